//! Calls under way, as they are asked for and told: the most telling ones first, and who has how many.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use domain::{ConnectionId, TenantId};
use egress::ports::Ports;
use egress::{Calls, CorrelationId, Running, Stage, Way};
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize};

use super::wire::Whose;

/// Most calls that are told at a time: 400 KiB of JSON.
pub(crate) const LIMIT_MAX: u32 = 1_000;
/// Tenants, callers and ways out that are counted in an answer: those that have most.
const COUNTED_MAX: usize = 10;

/// Which calls.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct TopQuery {
    pub(crate) whose: Whose,
    pub(crate) by: By,
    /// At most [`LIMIT_MAX`].
    #[serde(deserialize_with = "few")]
    pub(crate) limit: u32,
}

fn few<'de, D: Deserializer<'de>>(from: D) -> Result<u32, D::Error> {
    let limit = u32::deserialize(from)?;
    let told = || D::Error::custom(format!("{limit} calls are more than {LIMIT_MAX}"));
    if limit <= LIMIT_MAX { Ok(limit) } else { Err(told()) }
}

/// What stands first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "camelCase")]
pub(crate) enum By {
    /// Those that carried most, both ways together
    Bytes,
    /// The oldest
    Age,
}

/// What is under way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Top {
    /// When it was looked at.
    pub(crate) at_unix_ms: u64,
    /// All calls of whom it was asked for, tunnels among them.
    pub(crate) under_way: u64,
    pub(crate) tunnels: u64,
    /// Who has most of them.
    pub(crate) tenants: Vec<Count>,
    pub(crate) callers: Vec<Count>,
    /// The fullest way out of each exit address; for everybody's calls only.
    pub(crate) ports: Vec<PortLine>,
    /// As many as were asked for.
    pub(crate) calls: Vec<CallLine>,
}

/// How many calls somebody has under way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Count {
    pub(crate) tenant: TenantId,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) caller: Option<String>,
    pub(crate) under_way: u64,
}

/// Connections from an exit address to the destination that it has most to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PortLine {
    /// None where the kernel chooses.
    pub(crate) exit: Option<IpAddr>,
    pub(crate) to: SocketAddr,
    pub(crate) open: u32,
    pub(crate) open_max: u32,
}

/// One call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct CallLine {
    pub(crate) correlation: String,
    pub(crate) tenant: TenantId,
    pub(crate) role: Option<String>,
    pub(crate) caller: String,
    pub(crate) run: Option<String>,
    pub(crate) connection: Option<ConnectionId>,
    /// `connect`, `absolute` or `governed`.
    pub(crate) way: String,
    /// `waiting` for its connection or its answer, `answer` while that comes, `tunnel`.
    pub(crate) stage: String,
    pub(crate) destination: String,
    pub(crate) exit: Option<IpAddr>,
    pub(crate) age_ms: u64,
    pub(crate) sent_bytes: u64,
    pub(crate) received_bytes: u64,
}

impl CallLine {
    fn of(running: &Running) -> Self {
        let (sent_bytes, received_bytes) = running.bytes();
        let caller = running.caller();
        Self {
            correlation: running.correlation.to_string(),
            tenant: caller.tenant.clone(),
            role: caller.role.as_deref().map(str::to_owned),
            caller: caller.identity.to_string(),
            run: caller.run.as_deref().map(str::to_owned),
            connection: running.connection.clone(),
            way: way(running.way).to_owned(),
            stage: stage(running.stage()).to_owned(),
            destination: running.authority.to_string(),
            exit: running.exit(),
            age_ms: u64::try_from(running.age().as_millis()).unwrap_or(u64::MAX),
            sent_bytes,
            received_bytes,
        }
    }
}

fn way(way: Way) -> &'static str {
    way.as_str()
}

fn stage(stage: Stage) -> &'static str {
    match stage {
        Stage::Waiting => "waiting",
        Stage::Answer => "answer",
        Stage::Tunnel => "tunnel",
    }
}

/// Looks at every call that there is.
pub(crate) fn top(calls: &Calls, ports: &Ports, query: &TopQuery, now_unix_ms: u64) -> Top {
    let mut all = calls.list();
    let is_for_all = match &query.whose {
        Whose::Tenant(tenant) => {
            all.retain(|running| running.caller().tenant == *tenant);
            false
        }
        Whose::AllTenants => true,
    };
    let tunnels = all.iter().filter(|running| running.stage() == Stage::Tunnel).count() as u64;
    let pressure = if is_for_all { ports.worst(COUNTED_MAX) } else { Vec::new() };
    Top {
        at_unix_ms: now_unix_ms,
        under_way: all.len() as u64,
        tunnels,
        tenants: counts(&all, |_| None),
        callers: counts(&all, |running| Some(running.caller().identity.to_string())),
        ports: pressure
            .into_iter()
            .map(|worst| PortLine { exit: worst.exit, to: worst.to, open: worst.open, open_max: worst.open_max })
            .collect(),
        calls: first(all, query).iter().map(|running| CallLine::of(running)).collect(),
    }
}

/// Those that stand first, in order. What changes meanwhile is looked at once.
fn first(all: Vec<Arc<Running>>, query: &TopQuery) -> Vec<Arc<Running>> {
    let rank = |running: &Running| match query.by {
        By::Bytes => u128::from(running.bytes().0) + u128::from(running.bytes().1),
        By::Age => running.age().as_nanos(),
    };
    let mut ranked: Vec<_> =
        all.into_iter().map(|running| (Reverse(rank(&running)), running.correlation, running)).collect();
    let limit = query.limit as usize;
    let key = |(rank, id, _): &(Reverse<u128>, CorrelationId, Arc<Running>)| (*rank, *id.as_bytes());
    if limit > 0 && ranked.len() > limit {
        ranked.select_nth_unstable_by_key(limit - 1, key);
    }
    ranked.truncate(limit);
    ranked.sort_unstable_by_key(key);
    ranked.into_iter().map(|(.., running)| running).collect()
}

/// Who has most, by tenant and whatever else tells them apart.
fn counts(all: &[Arc<Running>], also: impl Fn(&Running) -> Option<String>) -> Vec<Count> {
    let mut counts: HashMap<(TenantId, Option<String>), u64> = HashMap::new();
    for running in all {
        *counts.entry((running.caller().tenant.clone(), also(running))).or_default() += 1;
    }
    let mut counts: Vec<Count> =
        counts.into_iter().map(|((tenant, caller), under_way)| Count { tenant, caller, under_way }).collect();
    counts.sort_unstable_by(|one, other| {
        let of = |count: &Count| (count.tenant.as_str().to_owned(), count.caller.clone());
        other.under_way.cmp(&one.under_way).then_with(|| of(one).cmp(&of(other)))
    });
    counts.truncate(COUNTED_MAX);
    counts
}

/// A call to be closed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Close {
    pub(crate) correlation: String,
}

/// What became of that.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Closed {
    /// A tunnel, which is told to end.
    Tunnel,
    /// A request, which is told to end: what it has sent cannot be taken back.
    Request,
    /// Nothing of this id is under way.
    Nothing,
}
