//! Event ids, minted once per delivery and never twice.

use std::sync::atomic::{AtomicU64, Ordering};

use domain::{EventId, NodeId, Slot};

const MASK: u64 = (1 << 48) - 1;

/// Mints event ids for one process.
///
/// The 48 random bits come from a counter that is sent through a bijection of 48-bit numbers and then masked with
/// a key that the operating system gave at start. So no two ids of one process are equal, whatever its clock does
/// (a clock that steps back cannot bring an id back), and two processes share an id only if time, slot and node
/// are equal and their keys happen to meet. Ids are names, not secrets: nothing is authorised by knowing one.
#[derive(Debug)]
pub(crate) struct Mint {
    node: NodeId,
    key: u64,
    counter: AtomicU64,
}

impl Mint {
    /// # Errors
    /// The operating system gives no randomness.
    pub(crate) fn new(node: NodeId) -> Result<Self, getrandom::Error> {
        let mut random = [0; 16];
        getrandom::fill(&mut random)?;
        let (key, start) = random.split_at(8);
        let wide = |bytes: &[u8]| bytes.iter().fold(0_u64, |sum, &byte| sum << 8 | u64::from(byte)) & MASK;
        Ok(Self { node, key: wide(key), counter: AtomicU64::new(wide(start)) })
    }

    pub(crate) fn mint(&self, received_unix_ms: u64, slot: Slot) -> EventId {
        let count = self.counter.fetch_add(1, Ordering::Relaxed);
        let mixed = mix(count & MASK) ^ self.key;
        let wide = mixed.to_be_bytes();
        EventId::new(received_unix_ms, slot, self.node, [wide[2], wide[3], wide[4], wide[5], wide[6], wide[7]])
    }
}

/// A bijection of 48-bit numbers: an odd factor and a shifted exclusive or can each be undone.
fn mix(mut x: u64) -> u64 {
    x = x.wrapping_mul(0x9e37_79b9_7f4b) & MASK;
    x ^= x >> 25;
    x = x.wrapping_mul(0xbf58_476d_1ce5) & MASK;
    x ^ (x >> 23)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn ids_differ_even_when_the_clock_stands_still() {
        let mint = Mint::new(NodeId(3)).unwrap();
        let ids: HashSet<_> = (0..100_000).map(|_| mint.mint(1_000, Slot(5))).collect();
        assert_eq!(ids.len(), 100_000);
        let id = ids.iter().next().unwrap();
        assert_eq!((id.received_unix_ms(), id.slot(), id.node()), (1_000, Slot(5), NodeId(3)));
    }

    #[test]
    fn neighbours_of_the_wrap_stay_distinct() {
        let values: HashSet<_> = (0..1_000).chain(MASK - 1_000..=MASK).map(mix).collect();
        assert_eq!(values.len(), 2_001);
        assert!(values.iter().all(|&v| v <= MASK));
    }
}
