//! What the centre's answers do.

use std::cmp::Reverse;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::quota::answer::{Answer, AskError, Denial, Lease, Reply};
use crate::quota::op::{Acquire, Body};

use super::ask::Ask;
use super::counters::add;
use super::leases::{Common, Effects, Sending, Ticket};
use super::parked::Reason;
use super::queue::Token;
use super::shard::{Shard, Timer};

/// How soon an operation without an answer is sent again; doubled each time.
const AGAIN_MS: u64 = 10;
/// Slots are asked for again after this at the latest: whenever a call ends somewhere, one may be free, which nobody
/// foresees. What the centre says of them is when one that nobody keeps is over.
const SLOTS_MS: u64 = 500;
/// How long a lease is not asked for whose operation was not understood.
const MISTAKE_MS: u64 = 1_000;

impl<W: Token> Shard<W> {
    /// An attempt that was sent at `sent_ms` has come to this. What is not known to be under way is ignored: an answer
    /// that comes twice, or after it was given up.
    pub(super) fn answered(
        &mut self,
        common: &Common,
        seq: u64,
        sent_ms: u64,
        result: Result<Reply, AskError>,
        now_ms: u64,
        effects: &mut Effects<W>,
    ) {
        let Some(ask) = self.asks.remove(&seq) else { return };
        let mark = ask.mark;
        match result {
            Ok(reply) => {
                common.health.answered(now_ms.saturating_sub(sent_ms));
                common.counters.answered(now_ms.saturating_sub(sent_ms));
                common.asks.fetch_sub(1, Ordering::Relaxed);
                self.take_up(common, &ask, reply, sent_ms, now_ms, effects);
            }
            Err(error) => {
                add(&common.counters.errors, 1);
                let is_known_undone = matches!(error, AskError::ReadOnly | AskError::Version | AskError::Busy);
                let is_last = ask.attempts + 1 >= common.settings.attempts || common.health.is_gone();
                if !is_known_undone && !is_last {
                    let due_ms = now_ms + (AGAIN_MS << ask.attempts.min(6));
                    self.timers.push(Reverse((due_ms, Timer::Resend(seq))));
                    self.asks.insert(seq, Ask { attempts: ask.attempts + 1, ..ask });
                    return;
                }
                self.give_up(common, &ask, now_ms);
            }
        }
        self.pump(common, mark, now_ms, effects);
    }

    /// The same operation again, under the same `seq`.
    pub(super) fn resend(&self, common: &Common, seq: u64, effects: &mut Effects<W>) {
        if let Some(ask) = self.asks.get(&seq) {
            add(&common.counters.operations, 1);
            effects.sends.push(Sending { ticket: Ticket::ask(ask.mark, seq), op: Arc::clone(&ask.op) });
        }
    }

    /// Whatever it was granted counts as spent.
    fn give_up(&mut self, common: &Common, ask: &Ask, now_ms: u64) {
        common.asks.fetch_sub(1, Ordering::Relaxed);
        add(&common.counters.given_up, 1);
        common.health.failed(now_ms, common.random());
        for &place in &ask.places {
            if let Some(cell) = self.cell_mut(place) {
                cell.answered();
            }
            self.schedule(common, place, now_ms);
        }
    }

    fn take_up(
        &mut self,
        common: &Common,
        ask: &Ask,
        reply: Reply,
        sent_ms: u64,
        now_ms: u64,
        effects: &mut Effects<W>,
    ) {
        let app = ask.places.first().and_then(|&place| self.cell(place)).map(|cell| Arc::clone(&cell.bucket.app));
        match reply.answer {
            Answer::Granted(leases) | Answer::Replayed(leases) if leases.len() == ask.places.len() => {
                self.granted(common, ask, &leases, sent_ms, now_ms);
            }
            Answer::Renewed(leases) if leases.len() == ask.places.len() => {
                self.renewed(ask, &leases, sent_ms);
            }
            answer @ (Answer::Granted(_)
            | Answer::Replayed(_)
            | Answer::Renewed(_)
            | Answer::Stale { .. }
            | Answer::Denied { .. }
            | Answer::Parked { .. }
            | Answer::Learning { .. }
            | Answer::Done { .. }
            | Answer::ParkedFor { .. }
            | Answer::NoBucket
            | Answer::Malformed(_)
            | Answer::Buckets(_)) => {
                self.for_each(ask, |_, cell| {
                    cell.answered();
                    cell.is_to_tell = false;
                });
                self.refused(common, ask, &answer, now_ms);
            }
        }
        for &place in &ask.places {
            self.schedule(common, place, now_ms);
        }
        if let Some(app) = app
            && app.enter(reply.epoch)
        {
            add(&common.counters.epochs, 1);
            effects.epochs.push(app);
        }
    }

    fn granted(&mut self, common: &Common, ask: &Ask, leases: &[Lease], sent_ms: u64, now_ms: u64) {
        let Body::Acquire(Acquire { legs, .. }) = &ask.op.body else { return };
        self.for_each(ask, |leg, cell| {
            let age_ms = now_ms.saturating_sub(cell.expires_ms.saturating_sub(u64::from(cell.rule.lease_ms)));
            common.counters.replaced(age_ms.min(u64::from(cell.rule.lease_ms)));
            add(&common.counters.granted_units, u64::from(leases[leg].units));
            cell.grant(&leases[leg], legs[leg].want, sent_ms, common.settings.horizon_ms, now_ms);
        });
    }

    fn renewed(&mut self, ask: &Ask, leases: &[Lease], sent_ms: u64) {
        self.for_each(ask, |leg, cell| cell.renewed(&leases[leg], sent_ms));
    }

    fn refused(&mut self, common: &Common, ask: &Ask, answer: &Answer, now_ms: u64) {
        let (leg, until_ms, reason) = match *answer {
            Answer::Denied { leg, retry_ms, why } => (leg, now_ms + retry_ms, Reason::Denied(why)),
            Answer::Learning { leg, ms } => (leg, now_ms + ms, Reason::Learning),
            Answer::Parked { leg, ms, why } => {
                if let Some(cell) = ask.places.get(usize::from(leg)).and_then(|&place| self.cell(place)) {
                    cell.bucket.park_until(now_ms + ms, why);
                }
                return;
            }
            // Asked again under a higher one, if it is still needed.
            Answer::Stale { seq, .. } => return common.raise_seq(seq),
            Answer::Granted(_)
            | Answer::Replayed(_)
            | Answer::Renewed(_)
            | Answer::Done { .. }
            | Answer::ParkedFor { .. }
            | Answer::NoBucket
            | Answer::Malformed(_)
            | Answer::Buckets(_) => {
                add(&common.counters.malformed, 1);
                let mistaken = now_ms + MISTAKE_MS;
                self.for_each(ask, |_, cell| {
                    cell.refuse(mistaken, 0, ask.class, Reason::Denied(Denial::Full));
                });
                return;
            }
        };
        let least = ask.least.get(usize::from(leg)).copied().unwrap_or(0);
        if let Some(cell) = ask.places.get(usize::from(leg)).and_then(|&place| self.cell_mut(place)) {
            let slots_ms = until_ms.min(now_ms + SLOTS_MS);
            let (until_ms, reason) = match reason {
                // One more than are in use here is more than there are; the call itself is not.
                Reason::Denied(Denial::OverCap) if !cell.rule.is_rate() && least <= cell.rule.cap => {
                    (slots_ms, Reason::Denied(Denial::Exhausted))
                }
                Reason::Denied(why) if !cell.rule.is_rate() && why != Denial::OverCap => (slots_ms, reason),
                Reason::Park(_)
                | Reason::Denied(_)
                | Reason::Learning
                | Reason::Slow
                | Reason::Gone
                | Reason::Busy
                | Reason::Closing
                | Reason::Spoilt => (until_ms, reason),
            };
            cell.refuse_again(until_ms, least, ask.class, reason, now_ms);
        }
    }

    fn for_each(&mut self, ask: &Ask, mut each: impl FnMut(usize, &mut super::cell::Cell)) {
        for (leg, &place) in ask.places.iter().enumerate() {
            if let Some(cell) = self.cell_mut(place) {
                each(leg, cell);
            }
        }
    }
}
