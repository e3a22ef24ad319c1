//! The helper thread: prepares the next segment, seals the last one, looks at the free space. None of it is on the
//! way of an acknowledgement.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use super::make::{Made, MakeError, make_segment};
use super::options::WhenFull;
use super::position::SegmentId;
use super::seal::{self, Sealing};
use super::shared::{Shared, locked};
use super::trim;

enum Job {
    Prepare(SegmentId),
    Seal(Box<Sealing>),
    Space,
}

#[derive(Default)]
struct State {
    jobs: VecDeque<Job>,
    /// A `Prepare` is queued or at work.
    preparing: bool,
    prepared: Option<Result<Made, MakeError>>,
    looking: bool,
    life: Life,
}

/// Of the thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Life {
    #[default]
    Working,
    /// It ends after the jobs that wait.
    Stopping,
    /// It is no more: nobody waits for it.
    Ended,
}

pub(crate) struct Helper {
    shared: Arc<Shared>,
    state: Mutex<State>,
    changed: Condvar,
}

impl std::fmt::Debug for Helper {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Helper").finish_non_exhaustive()
    }
}

impl Helper {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self { shared, state: Mutex::default(), changed: Condvar::new() }
    }

    fn push(&self, state: &mut State, job: Job) {
        state.jobs.push_back(job);
        self.changed.notify_all();
    }

    pub(crate) fn prepare(&self, id: SegmentId) {
        let mut state = locked(&self.state);
        if !state.preparing && state.prepared.is_none() {
            state.preparing = true;
            self.push(&mut state, Job::Prepare(id));
        }
    }

    /// Waits for the segment that was asked for, or asks for it. What kept it from being made when it was asked for may
    /// be long past (there were no files to be opened, or no room): it is tried once more.
    pub(crate) fn prepared(&self, id: SegmentId) -> Result<Made, MakeError> {
        self.wait_prepared(id).or_else(|_| self.wait_prepared(id))
    }

    fn wait_prepared(&self, id: SegmentId) -> Result<Made, MakeError> {
        self.prepare(id);
        let mut state = locked(&self.state);
        loop {
            if let Some(prepared) = state.prepared.take() {
                return prepared;
            }
            if state.life == Life::Ended {
                return Err(MakeError::Io(std::io::Error::other("the log's helper ended")));
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// The segment that was asked for, if it is there; else asks for it.
    pub(crate) fn ready(&self, id: SegmentId) -> Option<Made> {
        let ready = locked(&self.state).prepared.take().and_then(Result::ok);
        if ready.is_none() {
            self.prepare(id);
        }
        ready
    }

    /// Waits for a preparation that is under way, and gives up its result. The file stays.
    pub(crate) fn settle(&self) -> Option<Made> {
        let mut state = locked(&self.state);
        while state.preparing && state.life != Life::Ended {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.prepared.take().and_then(Result::ok)
    }

    pub(crate) fn seal(&self, sealing: Sealing) {
        self.push(&mut locked(&self.state), Job::Seal(Box::new(sealing)));
    }

    /// Looks at the free space soon, unless that is already asked for.
    pub(crate) fn look_at_space(&self) {
        let mut state = locked(&self.state);
        if !std::mem::replace(&mut state.looking, true) {
            self.push(&mut state, Job::Space);
        }
    }

    /// Ends the thread after the jobs that wait.
    pub(crate) fn stop(&self) {
        let mut state = locked(&self.state);
        if state.life == Life::Working {
            state.life = Life::Stopping;
        }
        drop(state);
        self.changed.notify_all();
    }

    /// Also when a side file's maker panics, the writer must not wait for a thread that is not there.
    pub(crate) fn ended(&self) {
        locked(&self.state).life = Life::Ended;
        self.changed.notify_all();
    }

    pub(crate) fn run(&self) {
        loop {
            let mut state = locked(&self.state);
            let job = loop {
                if let Some(job) = state.jobs.pop_front() {
                    break job;
                }
                if state.life == Life::Stopping {
                    return;
                }
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            };
            drop(state);
            match job {
                Job::Prepare(id) => {
                    let prepared = self.make(id);
                    let mut state = locked(&self.state);
                    state.prepared = Some(prepared);
                    state.preparing = false;
                    self.changed.notify_all();
                }
                Job::Seal(sealing) => seal::seal(&self.shared, *sealing),
                Job::Space => {
                    locked(&self.state).looking = false;
                    self.judge_space(0);
                }
            }
        }
    }

    /// Makes a segment on the caller's thread, from a trimmed file or where there is room for it.
    pub(crate) fn make(&self, id: SegmentId) -> Result<Made, MakeError> {
        let shared = &self.shared;
        let settings = &shared.settings;
        let recycled = shared.catalog().recyclable.pop();
        if recycled.is_none() && !self.judge_space(settings.segment_bytes) {
            return Err(MakeError::Full);
        }
        // Making room may have filled the pool.
        let recycled = recycled.or_else(|| shared.catalog().recyclable.pop());
        let made = make_segment(shared, id, recycled.as_deref());
        if made.is_err() && recycled.is_some() {
            // The trimmed file may be gone (another process took it). A new one is as good.
            return Ok(make_segment(shared, id, None)?);
        }
        Ok(made?)
    }

    /// Looks at the free space, makes room if that is wanted, and opens or shuts the door. True if there is room for
    /// `more` bytes above the reserve.
    fn judge_space(&self, more: u64) -> bool {
        let shared = &self.shared;
        let settings = &shared.settings;
        let look = || {
            let space = shared.storage.space(&settings.directory);
            let mut view = locked(&shared.space);
            view.looked = shared.clock.monotonic();
            // A file system that does not answer keeps its last answer.
            if let Ok(space) = space {
                view.space = space;
            }
            view.space.free
        };
        let mut free = look();
        if settings.when_full == WhenFull::Trim && free < settings.reserve_bytes.saturating_add(more) {
            // Once below, it goes on until there is room for a segment, so that it is not back in a second.
            let enough = settings.reserve_bytes.saturating_add(settings.segment_bytes);
            let keep = if more > 0 { trim::Keep::File } else { trim::Keep::Nothing };
            // Files that hold nothing go before those that hold something.
            while free < enough && matches!(trim::drop_recyclable(shared), Ok(true)) {
                free = look();
            }
            let enough = if free < settings.reserve_bytes.saturating_add(more) { enough } else { 0 };
            while free < enough && matches!(trim::drop_oldest(shared, keep), Ok(true)) {
                if !shared.catalog().recyclable.is_empty() && more > 0 {
                    return true;
                }
                free = look();
            }
        }
        let (_, full, _) = shared.queue.look();
        // Once shut, the door opens only when there is room for a whole segment: it does not flutter.
        let slack = if full { settings.segment_bytes } else { 0 };
        // A trimmed file is room for a segment that takes nothing from the file system.
        let idle = shared.catalog().recyclable.len() as u64 * settings.segment_bytes;
        let now_full = free.saturating_add(idle) < settings.reserve_bytes.saturating_add(slack);
        if now_full != full {
            shared.queue.set_full(now_full);
            if now_full {
                tracing::error!(free, reserve = settings.reserve_bytes, "the log's disk is full: appends are refused");
            } else {
                tracing::warn!(free, "the log's disk has room again");
            }
        }
        free >= settings.reserve_bytes.saturating_add(more)
    }
}
