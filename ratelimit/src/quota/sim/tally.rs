//! What became of calls.

/// Of a tenant's calls.
#[derive(Debug, Clone, Default)]
pub struct Tally {
    pub wanted: u64,
    /// Requests that were written.
    pub sent: u64,
    /// From when a call began until it was written.
    pub waits_ms: Vec<u64>,
}

/// The value under which this part of them is, in hundredths.
pub fn percentile(values: &[u64], percent: usize) -> u64 {
    let mut sorted = values.to_vec();
    sorted.sort_unstable();
    sorted.get((sorted.len() * percent / 100).min(sorted.len().saturating_sub(1))).copied().unwrap_or(0)
}
