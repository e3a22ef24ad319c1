//! What a view needs of an automation's version.

use crate::automation::{Automation, Kind};
use crate::ids::StepId;

/// The graph of a version, as far as people look at it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Plan {
    pub name: Box<str>,
    /// In the order of the automation.
    pub nodes: Vec<PlanNode>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlanNode {
    pub id: StepId,
    pub kind: &'static str,
    pub action: Option<Box<str>>,
    pub connection: Option<Box<str>>,
    /// Nodes that it waits for, and of a branch the case: `decide.yes`.
    pub after: Vec<Box<str>>,
}

impl Plan {
    pub fn of(automation: &Automation) -> Self {
        let nodes = automation.nodes.iter().map(|node| {
            let (kind, action, connection) = match &node.kind {
                Kind::Call { connection, action, .. } => {
                    ("call", Some(action.clone()), Some(connection.as_str().into()))
                }
                Kind::Branch { .. } => ("branch", None, None),
                Kind::Delay(_) => ("delay", None, None),
                Kind::Transform { .. } => ("transform", None, None),
            };
            let after = node.after.iter().filter_map(|edge| {
                let from = automation.nodes.get(edge.from)?.id.as_str();
                Some(edge.case.as_ref().map_or_else(|| from.into(), |case| format!("{from}.{case}").into()))
            });
            PlanNode { id: node.id.clone(), kind, action, connection, after: after.collect() }
        });
        Self { name: automation.name.clone(), nodes: nodes.collect() }
    }
}
