//! Bytes of bodies that are being read or wait for their commit: bounded on the node and per endpoint.

use std::collections::hash_map::Entry;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, MutexGuard};

use crate::shards::{OwnKeys, Shards, spread};

/// One endpoint may hold this part of the node's bytes, so that it takes eight to shut out the others.
const SHARE: u64 = 8;

/// Whose bytes are used up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Full {
    /// This endpoint holds its eighth; others are served.
    Endpoint,
    /// The node holds all that it will.
    Node,
}

/// The budget. Cheap to clone; reservations keep it alive.
#[derive(Debug, Clone)]
pub struct InFlight(Arc<Budget>);

#[derive(Debug)]
struct Budget {
    bytes_max: u64,
    endpoint_bytes_max: u64,
    bytes: AtomicU64,
    /// Bytes per endpoint. Holds only endpoints that have some: bounded by the requests in flight.
    endpoints: Shards<Held>,
}

type Held = OwnKeys<u64, u64>;

/// Bytes held for one delivery; given back when dropped.
#[derive(Debug)]
#[must_use = "the bytes are given back when this is dropped"]
pub struct Reservation {
    budget: Arc<Budget>,
    endpoint: u64,
    bytes: u64,
}

impl InFlight {
    /// An endpoint never holds more than an eighth of `bytes_max`: a body larger than that can never be taken, so
    /// configuration must allow eight times its largest body.
    pub fn new(bytes_max: u64) -> Self {
        Self(Arc::new(Budget {
            bytes_max,
            endpoint_bytes_max: bytes_max / SHARE,
            bytes: AtomicU64::new(0),
            endpoints: Shards::new(),
        }))
    }

    /// Holds `bytes` for one delivery, or says whose bytes are used up. Nothing is held then.
    pub fn reserve(&self, endpoint: u64, bytes: u64) -> Result<Reservation, Full> {
        self.0.take(endpoint, bytes)?;
        Ok(Reservation { budget: Arc::clone(&self.0), endpoint, bytes })
    }

    /// Bytes held on the node.
    pub fn bytes(&self) -> u64 {
        self.0.bytes.load(Ordering::Relaxed)
    }

    /// Bytes held for one endpoint.
    pub fn bytes_of(&self, endpoint: u64) -> u64 {
        self.0.shard(endpoint).get(&endpoint).copied().unwrap_or(0)
    }

    pub fn bytes_max(&self) -> u64 {
        self.0.bytes_max
    }

    /// Endpoints that hold some.
    pub fn endpoints(&self) -> usize {
        self.0.endpoints.each().map(|held| held.len()).sum()
    }
}

impl Reservation {
    /// Holds `bytes` more, for a body that is longer than was announced. On `Full` what was held stays held.
    pub fn grow(&mut self, bytes: u64) -> Result<(), Full> {
        self.budget.take(self.endpoint, bytes)?;
        self.bytes += bytes;
        Ok(())
    }

    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.budget.give_back(self.endpoint, self.bytes);
    }
}

impl Budget {
    fn shard(&self, endpoint: u64) -> MutexGuard<'_, Held> {
        self.endpoints.lock(Shards::<Held>::of(spread(endpoint)))
    }

    fn take(&self, endpoint: u64, bytes: u64) -> Result<(), Full> {
        let mut shard = self.shard(endpoint);
        let held = shard.get(&endpoint).copied().unwrap_or(0);
        let held = held.checked_add(bytes).filter(|sum| *sum <= self.endpoint_bytes_max).ok_or(Full::Endpoint)?;
        // Only the sum is shared, and nothing else is read by it: no ordering is needed.
        self.bytes
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |all| {
                all.checked_add(bytes).filter(|sum| *sum <= self.bytes_max)
            })
            .map_err(|_| Full::Node)?;
        if held > 0 {
            shard.insert(endpoint, held);
        }
        Ok(())
    }

    fn give_back(&self, endpoint: u64, bytes: u64) {
        if bytes == 0 {
            return;
        }
        let mut shard = self.shard(endpoint);
        if let Entry::Occupied(mut held) = shard.entry(endpoint) {
            let left = held.get().saturating_sub(bytes);
            if left == 0 {
                held.remove();
            } else {
                held.insert(left);
            }
        }
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn an_endpoint_holds_an_eighth_and_not_a_byte_more() {
        let budget = InFlight::new(800);
        let first = budget.reserve(1, 99).unwrap();
        let second = budget.reserve(1, 1).unwrap();
        assert_eq!(budget.reserve(1, 1).unwrap_err(), Full::Endpoint);
        let other = budget.reserve(2, 100).unwrap();
        assert_eq!((budget.bytes(), budget.bytes_of(1), budget.bytes_of(2)), (200, 100, 100));
        drop((first, second, other));
        assert_eq!((budget.bytes(), budget.endpoints()), (0, 0));
    }

    #[test]
    fn the_node_is_full_at_its_last_byte() {
        let budget = InFlight::new(807);
        let held: Vec<_> = (0..8).map(|endpoint| budget.reserve(endpoint, 100).unwrap()).collect();
        assert_eq!(budget.reserve(9, 8).unwrap_err(), Full::Node);
        assert_eq!(budget.bytes_of(9), 0, "a refusal holds nothing");
        let last = budget.reserve(9, 7).unwrap();
        assert_eq!(budget.reserve(10, 1).unwrap_err(), Full::Node);
        drop(held);
        assert_eq!(budget.bytes(), 7);
        drop(last);
        assert_eq!((budget.bytes(), budget.endpoints()), (0, 0));
    }

    #[test]
    fn a_reservation_that_cannot_grow_keeps_what_it_holds() {
        let budget = InFlight::new(800);
        let mut body = budget.reserve(1, 60).unwrap();
        assert_eq!(body.grow(41).unwrap_err(), Full::Endpoint);
        assert_eq!((body.bytes(), budget.bytes()), (60, 60));
        body.grow(40).unwrap();
        assert_eq!((body.bytes(), budget.bytes(), budget.bytes_of(1)), (100, 100, 100));
        assert_eq!(body.grow(u64::MAX).unwrap_err(), Full::Endpoint, "a sum that overflows is a refusal");
        drop(body);
        assert_eq!((budget.bytes(), budget.endpoints()), (0, 0));
    }

    #[test]
    fn nothing_holds_nothing_and_leaves_no_trace() {
        let budget = InFlight::new(0);
        let empty = budget.reserve(1, 0).unwrap();
        assert_eq!(budget.endpoints(), 0);
        assert_eq!(budget.reserve(1, 1).unwrap_err(), Full::Endpoint);
        drop(empty);
        assert_eq!(budget.bytes(), 0);
    }

    #[test]
    fn threads_never_pass_a_bound_and_leave_nothing_behind() {
        let budget = InFlight::new(8_000);
        std::thread::scope(|scope| {
            for thread in 0..8_u64 {
                let budget = budget.clone();
                scope.spawn(move || {
                    let mut held = std::collections::VecDeque::new();
                    for turn in 0..20_000_u64 {
                        if let Ok(reservation) = budget.reserve((turn + thread) % 12, 1 + turn % 300) {
                            held.push_back(reservation);
                        }
                        assert!(budget.bytes() <= 8_000);
                        assert!(budget.bytes_of(turn % 12) <= 1_000);
                        if held.len() > 5 {
                            held.pop_front();
                        }
                    }
                });
            }
        });
        assert_eq!((budget.bytes(), budget.endpoints()), (0, 0));
    }

    proptest! {
        #[test]
        fn what_is_held_is_the_sum_of_the_reservations(
            steps in prop::collection::vec((0..4_u64, 0..200_u64, 0..3_u8), 1..200)
        ) {
            let budget = InFlight::new(1_000);
            let mut held: Vec<Reservation> = Vec::new();
            for (endpoint, bytes, what) in steps {
                match what {
                    0 => held.extend(budget.reserve(endpoint, bytes)),
                    1 if !held.is_empty() => drop(held.swap_remove(0)),
                    _ => if let Some(last) = held.last_mut() { let _grown = last.grow(bytes).is_ok(); },
                }
                prop_assert_eq!(budget.bytes(), held.iter().map(Reservation::bytes).sum::<u64>());
                for endpoint in 0..4 {
                    let own: u64 = held.iter().filter(|r| r.endpoint == endpoint).map(Reservation::bytes).sum();
                    prop_assert_eq!(budget.bytes_of(endpoint), own);
                    prop_assert!(own <= 125);
                }
            }
        }
    }
}
