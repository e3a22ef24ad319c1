//! What the holding stream may take, in records and bytes, per endpoint and for the node.
//!
//! The endpoint's budget is asked first. An endpoint that is full refuses what is new and keeps what it has, so a
//! forger who aims at one endpoint neither pushes out what was held there before nor takes from another
//! endpoint more than the node's budget leaves.

use std::collections::HashMap;

/// What a held delivery costs besides its bytes: its entry in memory and what the journal puts around it. It
/// bounds how many small deliveries the node's budget can hold.
pub(crate) const RECORD_OVERHEAD: u64 = 512;

/// Bounds of the holding stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HoldingLimits {
    pub records_per_endpoint_max: u32,
    pub bytes_per_endpoint_max: u64,
    /// For all endpoints together, on disk. In memory a held delivery takes about 200 bytes of the 512 that it is
    /// charged with: 256 MiB can hold half a million of the smallest and then cost 100 MiB.
    pub bytes_max: u64,
}

/// Why a delivery is not held.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HoldingFull {
    #[error("the endpoint holds as many unverified deliveries as it may")]
    Endpoint,
    #[error("the node holds as many bytes of unverified deliveries as it may")]
    Node,
    #[error("the delivery is too large to be held")]
    TooLarge,
    #[error("the holding stream cannot be written: {reason}")]
    Unavailable { reason: String },
}

impl HoldingFull {
    /// Every label, for whoever registers metrics.
    pub const LABELS: [&'static str; 4] = ["endpoint-full", "node-full", "too-large", "unavailable"];

    /// A bounded label for metrics.
    pub fn label(&self) -> &'static str {
        match self {
            Self::Endpoint => "endpoint-full",
            Self::Node => "node-full",
            Self::TooLarge => "too-large",
            Self::Unavailable { .. } => "unavailable",
        }
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Used {
    pub(crate) records: u32,
    pub(crate) bytes: u64,
}

#[derive(Debug)]
pub(crate) struct Budget {
    limits: HoldingLimits,
    endpoints: HashMap<u64, Used>,
    node_bytes: u64,
}

impl Budget {
    pub(crate) fn new(limits: HoldingLimits) -> Self {
        Self { limits, endpoints: HashMap::new(), node_bytes: 0 }
    }

    /// Takes room for one delivery, or says whose budget is spent and takes nothing.
    pub(crate) fn take(&mut self, endpoint: u64, record_bytes: u64) -> Result<(), HoldingFull> {
        let bytes = record_bytes + RECORD_OVERHEAD;
        let used = self.endpoints.get(&endpoint).copied().unwrap_or_default();
        if used.records >= self.limits.records_per_endpoint_max
            || used.bytes.saturating_add(bytes) > self.limits.bytes_per_endpoint_max
        {
            return Err(HoldingFull::Endpoint);
        }
        if self.node_bytes.saturating_add(bytes) > self.limits.bytes_max {
            return Err(HoldingFull::Node);
        }
        self.force(endpoint, record_bytes);
        Ok(())
    }

    /// Takes room for what is on disk already, whatever the limits are now.
    pub(crate) fn force(&mut self, endpoint: u64, record_bytes: u64) {
        let used = self.endpoints.entry(endpoint).or_default();
        used.records += 1;
        used.bytes += record_bytes + RECORD_OVERHEAD;
        self.node_bytes += record_bytes + RECORD_OVERHEAD;
    }

    pub(crate) fn give_back(&mut self, endpoint: u64, record_bytes: u64) {
        let bytes = record_bytes + RECORD_OVERHEAD;
        if let Some(used) = self.endpoints.get_mut(&endpoint) {
            used.records = used.records.saturating_sub(1);
            used.bytes = used.bytes.saturating_sub(bytes);
            if used.records == 0 {
                self.endpoints.remove(&endpoint);
            }
        }
        self.node_bytes = self.node_bytes.saturating_sub(bytes);
    }

    pub(crate) fn node_bytes(&self) -> u64 {
        self.node_bytes
    }

    pub(crate) fn endpoints(&self) -> usize {
        self.endpoints.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn budget() -> Budget {
        Budget::new(HoldingLimits { records_per_endpoint_max: 3, bytes_per_endpoint_max: 5_000, bytes_max: 8_000 })
    }

    #[test]
    fn an_endpoint_stops_at_its_own_limits() {
        let mut budget = budget();
        for _ in 0..3 {
            assert_eq!(budget.take(1, 10), Ok(()));
        }
        assert_eq!(budget.take(1, 10), Err(HoldingFull::Endpoint));
        assert_eq!(budget.take(2, 5_000 - RECORD_OVERHEAD + 1), Err(HoldingFull::Endpoint));
        assert_eq!(budget.take(2, 5_000 - RECORD_OVERHEAD), Ok(()));
        assert_eq!(budget.take(2, 0), Err(HoldingFull::Endpoint));
        budget.give_back(1, 10);
        assert_eq!(budget.take(1, 10), Ok(()));
    }

    #[test]
    fn a_refusal_takes_nothing_and_the_node_stops_last() {
        let mut budget = budget();
        assert_eq!(budget.take(1, 4_000), Ok(()));
        let before = budget.node_bytes();
        assert_eq!(budget.take(1, 4_000), Err(HoldingFull::Endpoint));
        assert_eq!(budget.take(2, 4_000), Err(HoldingFull::Node));
        assert_eq!((budget.node_bytes(), budget.endpoints()), (before, 1));
        assert_eq!(budget.take(2, 2_000), Ok(()));
        budget.give_back(1, 4_000);
        budget.give_back(2, 2_000);
        assert_eq!((budget.node_bytes(), budget.endpoints()), (0, 0));
    }
}
