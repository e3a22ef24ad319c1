//! Deliveries that a provider sends again: which ids were committed of late, and as which events.
//!
//! A provider that got no answer in time, or a 503, sends again. Where the signature covers the delivery's id, one endpoint and
//! one id are one delivery: the second is answered as the first was, with the first one's event, and no event comes of it. An id
//! that is not covered anybody can write, so it counts only where the endpoint says so.
//!
//! - **Nothing is lost by it.** An id is remembered when its event is durable, and not before. While its first delivery is being
//!   committed, a second one waits for what becomes of it; if that is nothing, the second one is the first.
//! - **Flat cost, bounded memory.** The table is made of sets of a few places. An id belongs to one set, by its keyed hash; a full
//!   set gives up the oldest id of the endpoint that has most in it, so that a busy endpoint pushes out its own. What was given up
//!   is not recognised: it becomes an event of its own, as at least once allows.
//! - **Over a restart** the newest events of the log are read again, in the background (`recall`).

mod recall;
mod set;
mod step;

use std::hash::{BuildHasher, RandomState};
use std::sync::{Mutex, MutexGuard, PoisonError};

use domain::{EndpointId, EventId, TenantId};
use tokio::sync::watch;

use set::{Entry, Id, Set, State};

/// Places of a set: enough that sets fill evenly, few enough that looking through one is nothing.
const WAYS: usize = 16;

/// Ids of deliveries that were committed of late.
#[derive(Debug)]
pub struct Repeats {
    sets: Box<[Mutex<Set>]>,
    /// Keyed by the process, so that nobody outside chooses where an id goes.
    hashers: [RandomState; 2],
}

/// Whose an id is: an endpoint that another tenant has now is another one.
#[derive(Debug, Clone, Copy, Hash)]
pub(crate) struct Whose<'w> {
    pub(crate) tenant: &'w TenantId,
    pub(crate) endpoint: &'w EndpointId,
}

/// What is known of an id.
pub(crate) enum Known<'r> {
    /// It is new: whoever holds this says what becomes of it.
    First(First<'r>),
    /// It became this event.
    Event(EventId),
    /// It is being committed: wait until this changes or ends, and look again.
    Waits(watch::Receiver<()>),
}

impl Repeats {
    /// Remembers about `ids_max` ids; none where that is 0. 48 bytes each, taken when they are needed.
    pub fn new(ids_max: u32) -> Self {
        let sets = (ids_max as usize).div_ceil(WAYS);
        Self { sets: (0..sets).map(|_| Mutex::default()).collect(), hashers: [RandomState::new(), RandomState::new()] }
    }

    /// What is known of this id. `since_unix_ms`: what was committed before that is forgotten.
    pub(crate) fn look(&self, of: Whose<'_>, id: &[u8], now_unix_ms: u64, since_unix_ms: u64) -> Known<'_> {
        let id = self.id(of, id);
        let Some(mut set) = self.set(id) else { return Known::First(First { repeats: self, id: None }) };
        match set.get(id, since_unix_ms) {
            Some(Entry { state: State::Event(event), .. }) => return Known::Event(*event),
            Some(Entry { state: State::Pending(waiters), .. }) => {
                let waiters = waiters.get_or_insert_with(|| watch::channel(()).0);
                return Known::Waits(waiters.subscribe());
            }
            None => {}
        }
        let placed = set.put(Entry { id, at_unix_ms: now_unix_ms, state: State::Pending(None) });
        Known::First(First { repeats: self, id: placed.then_some(id) })
    }

    /// Remembers what was committed by an earlier process, unless more is known already.
    pub(crate) fn recall(&self, of: Whose<'_>, id: &[u8], event: EventId, at_unix_ms: u64) {
        let id = self.id(of, id);
        let Some(mut set) = self.set(id) else { return };
        if set.get(id, 0).is_none() {
            let _placed = set.put(Entry { id, at_unix_ms, state: State::Event(event) });
        }
    }

    /// Ids that are remembered now.
    pub fn len(&self) -> usize {
        self.sets.iter().map(|set| lock(set).len()).sum()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn id(&self, of: Whose<'_>, id: &[u8]) -> Id {
        let [first, second] = &self.hashers;
        let hash = |hasher: &RandomState| hasher.hash_one((of, id));
        Id { endpoint: first.hash_one(of), hash: u128::from(hash(first)) << 64 | u128::from(hash(second)) }
    }

    fn set(&self, id: Id) -> Option<MutexGuard<'_, Set>> {
        let at = id.hash.checked_rem(self.sets.len() as u128)?;
        Some(lock(self.sets.get(usize::try_from(at).ok()?)?))
    }
}

fn lock(set: &Mutex<Set>) -> MutexGuard<'_, Set> {
    // No set is left half changed by a panic: each change is one assignment.
    set.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The first delivery of an id. Dropped without a word, the id is forgotten and whoever waits is the first.
pub(crate) struct First<'r> {
    repeats: &'r Repeats,
    /// None where there was no place: then nobody knows of it.
    id: Option<Id>,
}

impl First<'_> {
    /// Its event is durable.
    pub(crate) fn became(mut self, event: EventId) {
        let Some(id) = self.id.take() else { return };
        if let Some(mut set) = self.repeats.set(id) {
            set.settle(id, event);
        }
    }
}

impl Drop for First<'_> {
    fn drop(&mut self) {
        if let Some(mut set) = self.id.and_then(|id| self.repeats.set(id)) {
            set.give_up(self.id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn endpoint(name: &str) -> EndpointId {
        EndpointId::parse(name).unwrap()
    }

    fn event(n: u8) -> EventId {
        EventId::from_bytes([n; 16])
    }

    fn look<'r>(repeats: &'r Repeats, at: &str, id: &[u8], now: u64, since: u64) -> Known<'r> {
        let tenant = TenantId::parse("acme").unwrap();
        repeats.look(Whose { tenant: &tenant, endpoint: &endpoint(at) }, id, now, since)
    }

    fn first<'r>(repeats: &'r Repeats, at: &str, id: &[u8], now: u64) -> First<'r> {
        match look(repeats, at, id, now, 0) {
            Known::First(first) => first,
            Known::Event(_) | Known::Waits(_) => panic!("it is not the first"),
        }
    }

    fn known(repeats: &Repeats, at: &str, id: &[u8], since: u64) -> Option<EventId> {
        match look(repeats, at, id, u64::MAX, since) {
            Known::Event(event) => Some(event),
            Known::First(_) => None,
            Known::Waits(_) => panic!("it is being committed"),
        }
    }

    #[test]
    fn an_id_is_remembered_when_its_event_is_durable_and_not_before() {
        let repeats = Repeats::new(64);
        drop(first(&repeats, "wh_1", b"m1", 10));
        assert!(repeats.is_empty(), "what was not committed is forgotten");
        first(&repeats, "wh_1", b"m1", 10).became(event(1));
        assert_eq!(known(&repeats, "wh_1", b"m1", 0), Some(event(1)));
        assert_eq!(known(&repeats, "wh_2", b"m1", 0), None, "another endpoint's");
        assert_eq!(known(&repeats, "wh_1", b"m2", 0), None);
        assert_eq!(repeats.len(), 1);
    }

    #[test]
    fn what_is_older_than_the_window_is_forgotten() {
        let repeats = Repeats::new(64);
        first(&repeats, "wh_1", b"m1", 10).became(event(1));
        assert_eq!(known(&repeats, "wh_1", b"m1", 10), Some(event(1)));
        assert_eq!(known(&repeats, "wh_1", b"m1", 11), None);
        assert!(repeats.is_empty());
    }

    #[tokio::test]
    async fn a_second_one_waits_for_what_becomes_of_the_first() {
        let repeats = Repeats::new(64);
        let begun = first(&repeats, "wh_1", b"m1", 10);
        let Known::Waits(mut waits) = look(&repeats, "wh_1", b"m1", 11, 0) else { panic!("it is new") };
        begun.became(event(1));
        assert!(waits.changed().await.is_err(), "it is told");
        assert_eq!(known(&repeats, "wh_1", b"m1", 0), Some(event(1)));

        let begun = first(&repeats, "wh_1", b"m2", 10);
        let Known::Waits(mut waits) = look(&repeats, "wh_1", b"m2", 11, 0) else { panic!("it is new") };
        drop(begun);
        assert!(waits.changed().await.is_err());
        assert_eq!(known(&repeats, "wh_1", b"m2", 0), None, "now it is the first");
    }

    #[test]
    fn a_busy_endpoint_pushes_out_its_own() {
        let repeats = Repeats::new(1024);
        for n in 0..200_u16 {
            first(&repeats, "wh_quiet", &n.to_be_bytes(), 1).became(event(1));
        }
        for n in 0..100_000_u32 {
            first(&repeats, "wh_busy", &n.to_be_bytes(), 2).became(event(2));
        }
        assert!(repeats.len() <= 1024);
        let kept = (0..200_u16).filter(|n| known(&repeats, "wh_quiet", &n.to_be_bytes(), 0).is_some()).count();
        // A set in which the quiet one has half of the places would lose one; hardly any has.
        assert!(kept >= 190, "{kept} of 200");
    }

    #[test]
    fn none_are_remembered_where_there_is_no_room() {
        let repeats = Repeats::new(0);
        first(&repeats, "wh_1", b"m1", 10).became(event(1));
        assert_eq!(known(&repeats, "wh_1", b"m1", 0), None);
        // A set full of what is being committed gives nothing up.
        let repeats = Repeats::new(1);
        let begun: Vec<_> = (0..=WAYS as u64).map(|n| first(&repeats, "wh_1", &n.to_be_bytes(), 1)).collect();
        for first in begun {
            first.became(event(3));
        }
        assert_eq!(repeats.len(), WAYS);
    }

    #[test]
    fn what_the_log_says_does_not_undo_what_is_known() {
        let repeats = Repeats::new(64);
        first(&repeats, "wh_1", b"m1", 10).became(event(1));
        let (tenant, other) = (TenantId::parse("acme").unwrap(), TenantId::parse("globex").unwrap());
        let (endpoint, of) = (endpoint("wh_1"), |tenant, endpoint| Whose { tenant, endpoint });
        repeats.recall(of(&tenant, &endpoint), b"m1", event(9), 5);
        repeats.recall(of(&tenant, &endpoint), b"m2", event(2), 5);
        repeats.recall(of(&other, &endpoint), b"m3", event(3), 5);
        assert_eq!(known(&repeats, "wh_1", b"m1", 0), Some(event(1)));
        assert_eq!(known(&repeats, "wh_1", b"m2", 0), Some(event(2)));
        assert_eq!(known(&repeats, "wh_1", b"m3", 0), None, "it was another tenant's then");
    }
}
