//! The suite over the centre in this process, with and without a journal, and over one that loses what it likes.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use domain::ManualClock;

use super::*;
use crate::quota::answer::{AskError, Reply};
use crate::quota::core::{Core, Epoch, Memory};
use crate::quota::in_process::InProcess;
use crate::quota::op::Op;

const START_MS: u64 = 1_800_000_000_000;

struct Here {
    centre: InProcess,
    clock: Arc<ManualClock>,
    _directory: Option<tempfile::TempDir>,
}

impl Here {
    fn volatile() -> Self {
        let clock = ManualClock::at_unix_ms(START_MS);
        Self { centre: InProcess::volatile(Arc::<ManualClock>::clone(&clock), 1_000), clock, _directory: None }
    }

    fn journalled() -> Self {
        let clock = ManualClock::at_unix_ms(START_MS);
        let directory = tempfile::tempdir().unwrap();
        let centre =
            InProcess::open(&directory.path().join("quota"), Arc::<ManualClock>::clone(&clock), 1_000).unwrap();
        Self { centre, clock, _directory: Some(directory) }
    }
}

#[async_trait]
impl Subject for Here {
    fn centre(&self) -> Arc<dyn Centre> {
        Arc::new(self.centre.clone())
    }

    fn application(&mut self) -> Name {
        Name::parse("new").unwrap()
    }

    async fn pass(&mut self, ms: u64) {
        self.clock.advance(Duration::from_millis(ms));
    }

    async fn fail_over(&mut self, _lost: usize) -> bool {
        false
    }
}

/// The pure centre with its past, any part of which may be lost.
#[derive(Debug)]
struct Replicated {
    state: Mutex<(Core, VecDeque<Core>, u64)>,
}

#[async_trait]
impl Centre for Replicated {
    async fn ask(&self, op: &Op) -> Result<Reply, AskError> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let (core, past, now_ms) = &mut *state;
        past.push_back(core.clone());
        Ok(core.step(*now_ms, op))
    }
}

struct Fallible(Arc<Replicated>);

impl Fallible {
    fn new() -> Self {
        let core = Core::new(Epoch { id: 1, since_ms: START_MS, memory: Memory::Whole }, 1_000);
        Self(Arc::new(Replicated { state: Mutex::new((core, VecDeque::new(), START_MS)) }))
    }
}

#[async_trait]
impl Subject for Fallible {
    fn centre(&self) -> Arc<dyn Centre> {
        Arc::clone(&self.0) as Arc<dyn Centre>
    }

    fn application(&mut self) -> Name {
        Name::parse("new").unwrap()
    }

    async fn pass(&mut self, ms: u64) {
        self.0.state.lock().unwrap().2 += ms;
    }

    async fn fail_over(&mut self, lost: usize) -> bool {
        let mut state = self.0.state.lock().unwrap();
        let (core, past, now_ms) = &mut *state;
        let at = past.len() - lost;
        *core = past[at].clone();
        let epoch = core.epoch();
        core.begin(Epoch { id: epoch.id + 1, since_ms: *now_ms, memory: Memory::LostSuffix });
        true
    }
}

mod in_process {
    crate::centre_conformance!(super::Here::volatile());
}

mod journalled {
    crate::centre_conformance!(super::Here::journalled());
}

mod replicated {
    crate::centre_conformance!(super::Fallible::new());
}
