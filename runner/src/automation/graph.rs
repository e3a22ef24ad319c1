//! A version of an automation, compiled.

use std::time::Duration;

use domain::{ConnectionId, EndpointId, TenantId};

use super::expression::Needs;
use crate::connector::Assertion;
use crate::ids::{AutomationId, StepId, Version};
use crate::ledger::QueueClass;

/// One version, ready to be walked. Nodes are in an order in which each comes behind those that it is after.
#[derive(Debug)]
pub struct Automation {
    pub tenant: TenantId,
    pub id: AutomationId,
    pub version: Version,
    /// BLAKE3 of the canonical JSON.
    pub digest: [u8; 32],
    pub name: Box<str>,
    pub trigger: Trigger,
    pub nodes: Box<[Node]>,
    /// From its admission on, for all of a run.
    pub deadline: Duration,
    /// In which queue its runs begin.
    pub class: QueueClass,
}

/// What begins a run.
#[derive(Debug)]
pub struct Trigger {
    /// Events of these endpoints; none: it is started by hand only.
    pub endpoints: Box<[EndpointId]>,
    /// An event for which this is false begins none.
    pub when: Option<super::expression::Expression>,
}

#[derive(Debug)]
pub struct Node {
    pub id: StepId,
    /// What it waits for; empty: nothing. It is done when all of these are settled and at least one was taken; it is
    /// skipped when all of them were skipped or lead elsewhere.
    pub after: Box<[Edge]>,
    /// Where this is false, the node is skipped.
    pub when: Option<super::expression::Expression>,
    pub kind: Kind,
    /// For one try.
    pub timeout: Duration,
    pub retry: RetryPolicy,
    /// Where it fails, the run goes on as if it had been done, with its failure for an output.
    pub continues_on_failure: bool,
    /// What its author says of its safety. It was held against the manifest when it was saved, and decides nothing.
    pub assertion: Assertion,
}

impl Automation {
    pub fn node(&self, id: &StepId) -> Option<&Node> {
        self.nodes.iter().find(|node| node.id == *id)
    }
}

impl Node {
    /// What of a run its expressions look at, all together: nothing else has to be fetched for it.
    pub fn needs(&self) -> Needs {
        let mut needs = Needs::default();
        if let Some(when) = &self.when {
            needs.add(when.needs());
        }
        match &self.kind {
            Kind::Call { input, .. } => needs.add(input.needs()),
            Kind::Branch { cases } => cases.iter().for_each(|(_, when)| needs.add(when.needs())),
            Kind::Delay(Delay::Until(until)) => needs.add(until.needs()),
            Kind::Delay(Delay::For(_)) => {}
            Kind::Transform { value } => needs.add(value.needs()),
        }
        needs
    }
}

/// A node that another one waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Edge {
    /// Place in `Automation::nodes`, before the one that waits.
    pub from: usize,
    /// Of a branch: only when this case was chosen.
    pub case: Option<Box<str>>,
}

#[derive(Debug)]
pub enum Kind {
    /// A call through egress: `http.request`, or an action that the connection's connector declares.
    Call {
        connection: ConnectionId,
        action: Box<str>,
        input: super::template::Template,
    },
    /// Chooses the first case whose condition holds, else the case `otherwise`.
    Branch {
        cases: Box<[(Box<str>, super::expression::Expression)]>,
    },
    Delay(Delay),
    /// Makes a value of what is there.
    Transform {
        value: super::template::Template,
    },
}

#[derive(Debug)]
pub enum Delay {
    For(Duration),
    /// A time in RFC 3339, or Unix seconds; one that is past is no delay.
    Until(super::template::Template),
}

/// How often a try that failed for the time being is made again. Parks are no tries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetryPolicy {
    /// Tries in all, 1 to 100.
    pub attempts_max: u32,
    /// Before the second try; doubled for each further one, with full jitter.
    pub backoff: Duration,
    pub backoff_max: Duration,
}
