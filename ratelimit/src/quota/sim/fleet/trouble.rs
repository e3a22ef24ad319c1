//! What goes wrong: processes that end, a centre that forgets, penalties.

use std::sync::Arc;

use crate::quota::answer::Answer;
use crate::quota::core::{Epoch, Memory};
use crate::quota::op::{Body, Metered, Op, Penalise, Why};

use super::{Event, Fleet};

impl Fleet {
    /// A node's process ends without a word, and another one begins.
    pub fn crash(&mut self, node: usize) {
        self.nodes[node] = self.boot();
    }

    /// Keeps the centre as it is now, to go back to.
    pub fn remember(&mut self) {
        self.snapshots.push_back((self.now_ms, self.core.clone()));
        if self.snapshots.len() > 64 {
            self.snapshots.pop_front();
        }
    }

    /// A replica takes over that has all but what was granted in the last `lag_ms`.
    pub fn fail_over(&mut self, lag_ms: u64) {
        let at = self.snapshots.iter().rposition(|&(at_ms, _)| at_ms + lag_ms <= self.now_ms);
        let Some(at) = at else { return };
        let epoch = Epoch { id: self.core.epoch().id + 1, since_ms: self.now_ms, memory: Memory::LostSuffix };
        let mut core = self.snapshots[at].1.clone();
        core.begin(epoch);
        self.core = core;
        self.snapshots.clear();
    }

    /// An operator's or test's penalty at the centre, as if another node had told it.
    pub fn penalise(&mut self, ms: u64) {
        let bucket = Metered { key: Arc::clone(&self.key), rule: Arc::new(self.scene.rule) };
        let penalise = Penalise { bucket, delta_ms: ms, generation: None, why: Why::Provider };
        let op = Op { application: self.application.clone(), body: Body::Penalise(penalise) };
        let reply = self.core.step(self.now_ms, &op);
        if let Answer::ParkedFor { ms, generation } = reply.answer
            && !self.are_pushes_lost
        {
            for node in 0..self.nodes.len() {
                let after_ms = self.dice.below(20);
                self.at(self.now_ms + after_ms, Event::Pushed { node, generation, ms });
            }
        }
    }
}
