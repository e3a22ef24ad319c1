//! The way to the centre and back, and what comes of it.

use std::sync::Arc;

use crate::quota::answer::{Answer, AskError};
use crate::quota::holder::{Sending, Ticket, Verdict};
use crate::quota::op::{Body, Op};

use super::{Caller, Event, Fleet};

/// A store's own time limit, after which it says that it has no answer.
const STORE_MS: u64 = 50;

impl Fleet {
    pub(super) fn effects(&mut self, node: usize, sends: Vec<Sending>, verdicts: Vec<(Caller, Verdict)>) {
        for sending in sends {
            self.send(node, sending.ticket, sending.op);
        }
        for (Caller(id), verdict) in verdicts {
            match verdict {
                Verdict::Held(taken) => self.held(node, id, taken),
                Verdict::Parked(parked) => self.park(node, id, parked),
            }
        }
        let due_ms = (self.nodes[node].origin_ms + self.nodes[node].leases.next_due_ms()).max(self.now_ms);
        if due_ms < self.nodes[node].tick_ms {
            self.nodes[node].tick_ms = due_ms;
            let life = self.nodes[node].life;
            self.at(due_ms, Event::Tick { node, life });
        }
    }

    /// An operation that is lost, or whose answer is, comes to nothing after the store's own time.
    fn send(&mut self, node: usize, ticket: Ticket, op: Arc<Op>) {
        self.operations += 1;
        self.acquires += u64::from(matches!(op.body, Body::Acquire(_)));
        let (life, sent_ms) = (self.nodes[node].life, self.own_ms(node));
        let scene = &self.scene;
        let (loss, twice, late, centre_ms) =
            (scene.loss_permille, scene.twice_permille, scene.late_permille, scene.centre_ms);
        if self.nodes[node].is_cut_off || self.dice.permille(loss) {
            let result = Err(AskError::Timeout);
            return self.at(self.now_ms + STORE_MS, Event::Answer { node, life, ticket, sent_ms, result });
        }
        let after_ms = if self.dice.permille(late) { self.dice.below(400) } else { centre_ms };
        if self.dice.permille(twice) {
            let again_ms = self.now_ms + after_ms + self.dice.below(100);
            let again =
                Event::AtCentre { node, life, ticket, op: Arc::clone(&op), sent_ms, is_lost: self.dice.permille(500) };
            self.at(again_ms, again);
        }
        let is_lost = self.dice.permille(loss) || after_ms > STORE_MS;
        if is_lost {
            let result = Err(AskError::Timeout);
            self.at(self.now_ms + STORE_MS, Event::Answer { node, life, ticket, sent_ms, result });
        }
        // What is late is at times heard all the same, when it is no longer waited for.
        let is_lost = is_lost && self.dice.permille(700);
        self.at(self.now_ms + after_ms, Event::AtCentre { node, life, ticket, op, sent_ms, is_lost });
    }

    pub(super) fn at_centre(
        &mut self,
        node: usize,
        life: u64,
        ticket: Ticket,
        op: &Arc<Op>,
        sent_ms: u64,
        is_lost: bool,
    ) {
        let reply = self.core.step(self.now_ms, op);
        if let Answer::ParkedFor { ms, generation } = reply.answer {
            for other in (0..self.nodes.len()).filter(|&other| other != node) {
                if !self.are_pushes_lost {
                    let after_ms = self.dice.below(20);
                    self.at(self.now_ms + after_ms, Event::Pushed { node: other, generation, ms });
                }
            }
        }
        if !is_lost {
            let back_ms = self.now_ms + self.scene.centre_ms;
            self.at(back_ms, Event::Answer { node, life, ticket, sent_ms, result: Ok(reply) });
        }
    }
}
