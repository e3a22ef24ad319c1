//! What an operator decides about a holder.

/// Longest wait inside that a call may ask for.
const WAIT_MS_MAX: u64 = 120_000;

/// Figures of a holder. [`Settings::default`] says which are usual and why.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// How long a call waits for the centre at most, unless it asked for longer.
    pub budget_ms: u64,
    /// How long a call may ask to wait at most.
    pub wait_ms_max: u64,
    /// What a block is to last for, where the limit allows it.
    pub horizon_ms: u64,
    /// Calls of one tenant that wait at a time. A further one is parked.
    pub waiters_per_tenant: usize,
    /// Calls that wait at a time.
    pub waiters: usize,
    /// Operations that are under way at a time.
    pub asks: usize,
    /// Leases that are remembered. A call that needs another one is parked.
    pub cells: usize,
    /// How often an operation is sent until it is given up.
    pub attempts: u8,
    /// What is spent while the centre is gone, besides what is held.
    pub degraded: Option<Degraded>,
}

/// A part of each limit that is set aside for the time in which the centre cannot be asked. The centre grants the rest;
/// every node has its own equal part of what is set aside, so that nothing is exceeded however many nodes are cut off.
/// Of a limit whose part would be less than one unit per node, and of concurrency, nothing is set aside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Degraded {
    /// Thousandths of a limit: 1..=500.
    pub permille: u16,
    /// Nodes that there may be at most: 1..=1000.
    pub nodes: u16,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            // A store answers within a few ms; what takes longer than this is not there.
            budget_ms: 50,
            wait_ms_max: 30_000,
            // Operations per second are the active buckets over this; what a crash forfeits grows with it.
            horizon_ms: 1_500,
            waiters_per_tenant: 256,
            waiters: 16_384,
            asks: 1_024,
            cells: 2_000_000,
            attempts: 3,
            degraded: None,
        }
    }
}

/// Why settings cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InvalidSettings {
    #[error("budget is not within 1..=1000 ms, or longer than the longest wait")]
    Budget,
    #[error("longest wait is over {WAIT_MS_MAX} ms")]
    Wait,
    #[error("horizon is not within 100..=60000 ms")]
    Horizon,
    #[error("waiters, asks or leases are 0, or more than 4 million")]
    Bound,
    #[error("attempts are not within 1..=10")]
    Attempts,
    #[error("what is set aside is not within 1..=500 thousandths for 1..=1000 nodes")]
    Degraded,
}

impl Settings {
    /// Whether every figure is within its bounds.
    pub fn check(&self) -> Result<(), InvalidSettings> {
        if self.wait_ms_max > WAIT_MS_MAX {
            return Err(InvalidSettings::Wait);
        }
        if !(1..=1_000).contains(&self.budget_ms) || self.budget_ms > self.wait_ms_max {
            return Err(InvalidSettings::Budget);
        }
        if !(100..=60_000).contains(&self.horizon_ms) {
            return Err(InvalidSettings::Horizon);
        }
        let bounds = [self.waiters_per_tenant, self.waiters, self.asks, self.cells];
        if bounds.iter().any(|bound| !(1..=4_000_000).contains(bound)) {
            return Err(InvalidSettings::Bound);
        }
        if !(1..=10).contains(&self.attempts) {
            return Err(InvalidSettings::Attempts);
        }
        let is_degraded_valid = self
            .degraded
            .is_none_or(|degraded| (1..=500).contains(&degraded.permille) && (1..=1_000).contains(&degraded.nodes));
        if is_degraded_valid { Ok(()) } else { Err(InvalidSettings::Degraded) }
    }
}
