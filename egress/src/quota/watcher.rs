//! Who is told of what is worth a line in the log.

use domain::TenantId;
use ratelimit::{PairKey, breaker, runaway};

/// Is told what is worth a line in the log, a notice, and a record that outlives the process. Called on the path: it
/// hands over and returns.
pub trait Watcher: Send + Sync + std::fmt::Debug {
    /// A breaker opened or closed.
    fn breaker(&self, key: PairKey, whose: &Whose<'_>, change: breaker::Change);

    /// A connection or an automation ran away, or is let go.
    fn runaway(&self, key: PairKey, whose: &Whose<'_>, event: runaway::Event);

    /// An operator has announced a spike of a key, or taken that back. Not on the path.
    fn announced(&self, _key: PairKey) {}

    /// A provider throttled a call, which parks everybody at that level for so long.
    fn parked(&self, whose: &Whose<'_>, level: &'static str, release_ms: u64);
}

/// A tenant and what it calls, for people; never for a label.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Whose<'w> {
    pub tenant: &'w TenantId,
    /// What is called: a connector, a connection, an automation or a destination.
    pub kind: &'static str,
    pub what: &'w str,
}

/// Tells nobody.
#[derive(Debug, Clone, Copy, Default)]
pub struct Silent;

impl Watcher for Silent {
    fn breaker(&self, _: PairKey, _: &Whose<'_>, _: breaker::Change) {}
    fn runaway(&self, _: PairKey, _: &Whose<'_>, _: runaway::Event) {}
    fn parked(&self, _: &Whose<'_>, _: &'static str, _: u64) {}
}
