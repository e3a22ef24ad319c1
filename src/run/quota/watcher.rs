//! Who is told what happens to calls that outlives them.

use domain::TenantId;
use ratelimit::{PairKey, breaker, runaway};

/// Is told what is worth a line in the log, a notice, and a record that outlives the process. Called on the path: it
/// hands over and returns.
pub(crate) trait Watcher: Send + Sync + std::fmt::Debug {
    /// A breaker opened or closed.
    fn breaker(&self, key: PairKey, whose: &Whose<'_>, change: breaker::Change);

    /// A connection or an automation ran away, or is let go.
    fn runaway(&self, key: PairKey, whose: &Whose<'_>, event: runaway::Event);

    /// A provider throttled a call, which parks everybody at that level for so long.
    fn parked(&self, whose: &Whose<'_>, level: &'static str, release_ms: u64);
}

/// A tenant and what it calls, for people; never for a label.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Whose<'w> {
    pub(crate) tenant: &'w TenantId,
    /// What is called: a connector, a connection, an automation or a destination.
    pub(crate) kind: &'static str,
    pub(crate) what: &'w str,
}
