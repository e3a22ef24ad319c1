//! What is asked and told of quota: over the socket, and out of `--json`. Times are ms, rates are per second where nothing
//! else is said, `milli` is thousandths.

use domain::{ConnectionId, TenantId};
use serde::{Deserialize, Serialize};

/// Most buckets, breakers or runaways in one answer.
pub(crate) const LIMIT_MAX: u32 = 1_000;
/// Bytes of a reason: as much as somebody reads in a log.
pub(crate) const REASON_BYTES_MAX: usize = 500;

/// Which buckets, in the order of their names.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct ListQuery {
    #[serde(default)]
    pub(crate) provider: Option<String>,
    /// Without its provider.
    #[serde(default)]
    pub(crate) application: Option<String>,
    #[serde(default)]
    pub(crate) level: Option<String>,
    #[serde(default)]
    pub(crate) parked: bool,
    /// Goes on behind this: [`Listed::next`].
    #[serde(default)]
    pub(crate) after: Option<String>,
    /// At most [`LIMIT_MAX`].
    pub(crate) limit: u32,
}

/// A part of the buckets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Listed {
    pub(crate) buckets: Vec<BucketLine>,
    /// There may be more behind this, however few these are.
    pub(crate) next: Option<String>,
}

/// A bucket as the centre has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct BucketLine {
    /// `PROVIDER:APPLICATION/LEVEL:SCOPE:POLICY`.
    pub(crate) bucket: String,
    pub(crate) level: String,
    pub(crate) scope: String,
    pub(crate) policy: String,
    pub(crate) rule: RuleLine,
    /// Units that count against the cap now; of concurrency slots that are held.
    pub(crate) used: u64,
    /// Units that could be granted now, if nothing but the cap stood against it.
    pub(crate) room: u64,
    /// A lower limit than the rule's, which the provider's headers told.
    pub(crate) limit_seen: Option<u32>,
    pub(crate) park: Option<ParkLine>,
    /// Thousandths of the rate that are released: 1000 unless a park was not long ago.
    pub(crate) released_milli: u16,
    /// What each tenant may have, per second and weight, while more is wanted than there is; else none.
    pub(crate) lambda_milli: Option<u64>,
    /// Tenants that want something of it.
    pub(crate) tenants: u32,
    /// For how long the centre still listens, since it may have forgotten something.
    pub(crate) learning_ms: Option<u64>,
    pub(crate) generation: u64,
    /// Nodes that hold live leases, the largest first; at most 32.
    pub(crate) holders: Vec<HolderLine>,
    /// Why one unit would be refused now to a tenant that has had nothing.
    pub(crate) refusal: Option<RefusalLine>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RuleLine {
    /// `fixed`, `anchored`, `calendar`, `sliding`, `bucket`, `concurrency`; `none` of a bucket that is only parked.
    pub(crate) kind: String,
    pub(crate) cap: u32,
    pub(crate) window_ms: u64,
    pub(crate) burst: Option<u32>,
    pub(crate) lease_ms: u32,
    pub(crate) version: u32,
    /// For people.
    pub(crate) words: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ParkLine {
    pub(crate) ms: u64,
    pub(crate) until: String,
    /// `provider`, `exhausted` or `operator`.
    pub(crate) why: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct HolderLine {
    pub(crate) holder: String,
    /// It is this node.
    pub(crate) here: bool,
    pub(crate) units: u64,
    pub(crate) ttl_ms: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RefusalLine {
    /// A word of the closed set that metrics have, too.
    pub(crate) reason: String,
    pub(crate) retry_ms: u64,
}

/// A bucket by its name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct ShowQuery {
    pub(crate) bucket: String,
}

/// One bucket, whole.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Shown {
    #[serde(flatten)]
    pub(crate) line: BucketLine,
    /// By which name the centre knows this node.
    pub(crate) node: String,
    /// This node's leases of it, the largest first; at most 100.
    pub(crate) here: Vec<HoldingLine>,
    /// How many there are.
    pub(crate) here_all: usize,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct HoldingLine {
    pub(crate) tenant: String,
    pub(crate) free: u32,
    pub(crate) granted: u32,
    /// Of concurrency: calls under way.
    pub(crate) in_use: u32,
    pub(crate) ttl_ms: u64,
    pub(crate) generation: u64,
    /// Units that calls wait for.
    pub(crate) queued: u32,
    pub(crate) wanted_milli: u32,
    /// The centre is being asked.
    pub(crate) asking: bool,
}

/// What an operator does about a bucket.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct BucketAct {
    pub(crate) bucket: String,
    pub(crate) act: Act,
    #[serde(default)]
    pub(crate) reason: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) enum Act {
    /// Nothing is granted for so long.
    Park { ms: u64 },
    /// Its park is over.
    Release,
    /// Everything about it is forgotten but its fences.
    Reset,
}

/// What came of that.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Acted {
    /// Something has changed.
    pub(crate) done: bool,
    /// In a sentence.
    pub(crate) said: String,
    /// The park as it stands now.
    pub(crate) park: Option<ParkLine>,
}

/// A call to be explained.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct ExplainQuery {
    pub(crate) tenant: TenantId,
    #[serde(default)]
    pub(crate) role: Option<String>,
    pub(crate) connection: ConnectionId,
    pub(crate) method: String,
    /// What stands behind `/c/CONNECTION`.
    pub(crate) path: String,
    #[serde(default)]
    pub(crate) bulk: bool,
    #[serde(default)]
    pub(crate) automation: Option<String>,
}

/// What a call would meet now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ExplainAnswer {
    pub(crate) fate: Fate,
    /// In a sentence.
    pub(crate) said: String,
    /// Until when, where that is known.
    pub(crate) release_ms: Option<u64>,
    pub(crate) until: Option<String>,
    /// `PROVIDER:APPLICATION`.
    pub(crate) application: String,
    pub(crate) runaways: Vec<RunawayLine>,
    pub(crate) breaker: BreakerLine,
    /// Of the provider, for the fleet: why it would refuse the call.
    #[serde(default)]
    pub(crate) fleet_breaker: Option<RefusalLine>,
    pub(crate) retries_left: u32,
    pub(crate) levels: Vec<LevelLine>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Fate {
    /// It would go.
    Goes,
    /// It would go, at a rate that is less than what is wanted.
    Throttled,
    /// It would come again later.
    Parked,
    /// The rules would refuse it.
    Refused,
    /// It hangs on an answer of whoever counts, who cannot be asked.
    Unknown,
}

/// One level of a call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct LevelLine {
    pub(crate) bucket: String,
    pub(crate) level: String,
    /// Units that the call takes; 0 where it only heeds the park.
    pub(crate) units: u32,
    /// Units that this node could give it now.
    pub(crate) free: u32,
    /// What this node has is not enough, so that the centre would be asked.
    pub(crate) asks: bool,
    /// Why this node would refuse it without asking.
    pub(crate) here: Option<RefusalLine>,
    /// As the centre has it; none where nothing was asked of it yet, or nobody answers.
    pub(crate) centre: Option<BucketLine>,
    pub(crate) unanswered: Option<String>,
}

/// Which breakers or runaways.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct GuardsQuery {
    #[serde(default)]
    pub(crate) tenant: Option<TenantId>,
    /// Of breakers: those that are not closed. Of runaways: those that are throttled, paused or announced.
    #[serde(default)]
    pub(crate) notable: bool,
    /// At most [`LIMIT_MAX`].
    pub(crate) limit: u32,
}

/// Breakers or runaways: the most telling first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Guards<T> {
    /// How many there are of those that were asked for.
    pub(crate) all: usize,
    pub(crate) lines: Vec<T>,
}

/// Whose it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct WhoLine {
    /// As commands take it: `TENANT/WHAT`, or `key:…` where nobody here knows the name.
    pub(crate) name: String,
    pub(crate) key: String,
    pub(crate) tenant: Option<TenantId>,
    /// `connector`, `destination`, `connection` or `automation`.
    pub(crate) kind: Option<String>,
    pub(crate) what: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct BreakerLine {
    #[serde(flatten)]
    pub(crate) who: WhoLine,
    /// `closed`, `open` or `half-open`.
    pub(crate) phase: String,
    /// When a call may go; 0: now, or the next one is the probe.
    pub(crate) retry_ms: u64,
    /// How often it opened in a row.
    pub(crate) times: u8,
    /// Of the window, while it is closed.
    pub(crate) calls: u32,
    pub(crate) faults: u32,
}

/// Numbers are attempts per minute.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RunawayLine {
    #[serde(flatten)]
    pub(crate) who: WhoLine,
    /// `fine`, `throttled` or `paused`.
    pub(crate) state: String,
    pub(crate) throttled_to: Option<u32>,
    pub(crate) paused_since: Option<String>,
    /// Usual; none of one that never called.
    pub(crate) baseline: Option<u32>,
    /// Above this it runs away.
    pub(crate) trigger: Option<u64>,
    pub(crate) wanted: u32,
    pub(crate) announced: Option<SpikeLine>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct SpikeLine {
    pub(crate) factor: u16,
    pub(crate) until: String,
}

/// Which breaker or runaway.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) enum Guarded {
    Connector {
        tenant: TenantId,
        what: String,
    },
    Destination {
        tenant: TenantId,
        what: String,
    },
    Connection {
        tenant: TenantId,
        what: ConnectionId,
    },
    Automation {
        tenant: TenantId,
        what: String,
    },
    /// 32 hexadecimal digits, as a list shows it.
    Key(String),
}

/// What an operator does about one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct GuardAct {
    pub(crate) of: Guarded,
    pub(crate) act: GuardWord,
    #[serde(default)]
    pub(crate) reason: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) enum GuardWord {
    /// A breaker is closed and what it counted forgotten.
    CloseBreaker,
    /// A runaway goes on.
    Resume,
    /// More than usual is to be expected.
    #[serde(rename_all = "camelCase")]
    Announce {
        factor: u16,
        until_unix_ms: u64,
    },
    Withdraw,
}
