//! Signatures that cover a token and not the body: such a token proves one body, and no second one.
//!
//! Whoever has seen one delivery could else send any body under its signature for as long as its timestamp is taken. So the
//! first body that is committed under a token is the only one: the same delivery sent again gets the first one's answer and
//! is not stored again, another body under the token is refused.
//!
//! The memory is this process's own: bounded, one look-up for each delivery of such a scheme, and none for others. After a
//! restart, and on another node, a token of the last minutes is taken once more: the scheme's timestamp ends that
//! (`docs/schemes.md` says for how long). What is not committed is forgotten, since its provider sends it again.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use domain::EventId;
use hashbrown::HashMap;
use ring::digest;

/// Tokens that are remembered at once, on a node. One costs some 150 bytes: 40 MiB at most, and nothing before it comes.
const TOKENS_MAX: usize = 1 << 18;

/// Those of one endpoint: nobody's deliveries crowd out everybody else's. Of a quarter of an hour, 70 a second.
const TOKENS_OF_ENDPOINT_MAX: u32 = 1 << 16;

/// Entries that are looked at to make room, for each one that comes: the cost of one delivery stays the same.
const ENDED_LOOKED_AT: usize = 4;

/// An endpoint, and the digest of its token.
type Token = (u64, [u8; 16]);

#[derive(Debug)]
pub(crate) struct Once {
    state: Mutex<State>,
    tokens_max: usize,
    tokens_of_endpoint_max: u32,
}

#[derive(Debug, Default)]
struct State {
    known: HashMap<Token, Known>,
    /// In the order in which they came, with the time at which each is forgotten.
    order: VecDeque<(u64, Token)>,
    of_endpoint: HashMap<u64, u32>,
}

#[derive(Debug)]
struct Known {
    body: [u8; 16],
    until_unix_ms: u64,
    /// None until it is committed.
    event: Option<EventId>,
}

/// What a token is worth.
#[derive(Debug)]
pub(crate) enum Taken {
    /// It has not come before, or not with an end.
    Now(Claim),
    /// This very delivery is an event already.
    Before(EventId),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NotTaken {
    /// It proves another body.
    OtherBody,
    /// No more can be remembered: to take it would be to take it for ever.
    Full,
}

impl Default for Once {
    fn default() -> Self {
        Self::bounded(TOKENS_MAX, TOKENS_OF_ENDPOINT_MAX)
    }
}

impl Once {
    fn bounded(tokens_max: usize, tokens_of_endpoint_max: u32) -> Self {
        Self { state: Mutex::default(), tokens_max, tokens_of_endpoint_max }
    }

    /// Takes a token for a body, for `span_ms` from now on. `endpoint` is its subject.
    pub(crate) fn take(
        self: &Arc<Self>,
        endpoint: u64,
        token: [u8; 16],
        body: &[u8],
        now_unix_ms: u64,
        span_ms: u64,
    ) -> Result<Taken, NotTaken> {
        let mut hash = [0; 16];
        hash.copy_from_slice(&digest::digest(&digest::SHA256, body).as_ref()[..16]);
        let token = (endpoint, token);
        let mut state = self.state();
        state.forget(now_unix_ms);
        if let Some(known) = state.known.get(&token).filter(|known| known.until_unix_ms > now_unix_ms) {
            return match (known.body == hash, known.event) {
                (false, _) => Err(NotTaken::OtherBody),
                (true, Some(event)) => Ok(Taken::Before(event)),
                // Its first coming has no end yet: both may be stored, which is what at least once means.
                (true, None) => Ok(Taken::Now(Claim { once: Arc::clone(self), token, is_owner: false })),
            };
        }
        let of_endpoint = state.of_endpoint.get(&endpoint).copied().unwrap_or(0);
        let is_new = !state.known.contains_key(&token);
        let is_crowded = state.known.len() >= self.tokens_max || of_endpoint >= self.tokens_of_endpoint_max;
        // What was given back keeps its place in the order until its time is over.
        if is_new && is_crowded || state.order.len() >= self.tokens_max * 2 {
            return Err(NotTaken::Full);
        }
        let until_unix_ms = now_unix_ms.saturating_add(span_ms);
        if state.known.insert(token, Known { body: hash, until_unix_ms, event: None }).is_none() {
            *state.of_endpoint.entry(endpoint).or_default() += 1;
        }
        state.order.push_back((until_unix_ms, token));
        Ok(Taken::Now(Claim { once: Arc::clone(self), token, is_owner: true }))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing in here stops halfway: what another thread left is whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Forgets some of those whose time is over, from the front.
    fn forget(&mut self, now_unix_ms: u64) {
        for _ in 0..ENDED_LOOKED_AT {
            let Some((until, token)) = self.order.front().copied().filter(|(until, _)| *until <= now_unix_ms) else {
                return;
            };
            self.order.pop_front();
            // It may have been taken anew since.
            if self.known.get(&token).is_some_and(|known| known.until_unix_ms == until) {
                self.remove(token);
            }
        }
    }

    fn remove(&mut self, token: Token) {
        if self.known.remove(&token).is_none() {
            return;
        }
        if let hashbrown::hash_map::Entry::Occupied(mut count) = self.of_endpoint.entry(token.0) {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
    }
}

/// A token that was taken for a delivery that is under way. Dropped, it is given back.
#[derive(Debug)]
pub(crate) struct Claim {
    once: Arc<Once>,
    token: Token,
    is_owner: bool,
}

impl Claim {
    /// The delivery is this event now.
    pub(crate) fn keep(mut self, event: EventId) {
        self.is_owner = false;
        if let Some(known) = self.once.state().known.get_mut(&self.token) {
            known.event.get_or_insert(event);
        }
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if self.is_owner {
            let mut state = self.once.state();
            // Somebody with the same body may have been committed meanwhile.
            if state.known.get(&self.token).is_some_and(|known| known.event.is_none()) {
                state.remove(self.token);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPAN: u64 = 1_000;

    fn event(at: u64) -> EventId {
        EventId::new(at, domain::Slot::of("wh_1"), domain::NodeId(1), [0; 6])
    }

    fn take(once: &Arc<Once>, endpoint: u64, token: u8, body: &[u8], now: u64) -> Result<Taken, NotTaken> {
        once.take(endpoint, [token; 16], body, now, SPAN)
    }

    fn keep(taken: Result<Taken, NotTaken>, id: EventId) {
        match taken {
            Ok(Taken::Now(claim)) => claim.keep(id),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_token_proves_the_first_body_that_was_committed_and_no_other_one() {
        let once = Arc::new(Once::default());
        let id = event(5);
        keep(take(&once, 1, 1, b"first", 0), id);
        assert!(matches!(take(&once, 1, 1, b"first", 999), Ok(Taken::Before(known)) if known == id));
        assert_eq!(take(&once, 1, 1, b"other", 999).unwrap_err(), NotTaken::OtherBody);
        // Another token, another endpoint, and when the timestamp is taken no more.
        assert!(matches!(take(&once, 1, 2, b"other", 999), Ok(Taken::Now(_))));
        assert!(matches!(take(&once, 2, 1, b"other", 999), Ok(Taken::Now(_))));
        assert!(matches!(take(&once, 1, 1, b"other", 1_000), Ok(Taken::Now(_))));
    }

    #[test]
    fn what_is_not_committed_costs_no_token() {
        let once = Arc::new(Once::default());
        drop(take(&once, 1, 1, b"first", 0));
        assert!(once.state().known.is_empty() && once.state().of_endpoint.is_empty());
        let under_way = take(&once, 1, 1, b"first", 0).unwrap();
        assert_eq!(take(&once, 1, 1, b"other", 0).unwrap_err(), NotTaken::OtherBody);
        // The same delivery twice at the same time: the second one's end is not the first one's.
        let second = take(&once, 1, 1, b"first", 0).unwrap();
        drop(second);
        assert_eq!(take(&once, 1, 1, b"other", 0).unwrap_err(), NotTaken::OtherBody);
        drop(under_way);
        assert!(matches!(take(&once, 1, 1, b"other", 0), Ok(Taken::Now(_))));
    }

    #[test]
    fn memory_is_bounded_and_freed() {
        let once = Arc::new(Once::bounded(4, 3));
        let id = event(5);
        for token in 0..3 {
            keep(take(&once, 1, token, b"x", 0), id);
        }
        assert_eq!(take(&once, 1, 3, b"x", 0).unwrap_err(), NotTaken::Full);
        keep(take(&once, 2, 3, b"x", 0), id);
        assert_eq!(take(&once, 2, 4, b"x", 0).unwrap_err(), NotTaken::Full);
        // What is known is still answered, and what has ended makes room.
        assert!(matches!(take(&once, 1, 0, b"x", 999), Ok(Taken::Before(_))));
        keep(take(&once, 1, 9, b"x", 1_000), id);
        assert_eq!(once.state().known.len(), 1);
        assert_eq!(once.state().of_endpoint.len(), 1);
    }
}
