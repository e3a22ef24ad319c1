//! Runs admission: a reader ahead, many events under way, and a place that is committed behind them.

use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use domain::{Clock, TenantId};
use eventlog::{Class, Cursor, EventLog, GroupError};
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;

use super::admit::{Admitter, Begun, Later};
use super::backlog::{Backlog, Failed, Failure, Spot, Taken};
use super::letters::{LETTERS_MAX, Letter, Letters};
use super::scan;
use super::status::{Halt, Status};
use super::triggers::Triggers;
use crate::ledger::{BoxFuture, LedgerStore};
use crate::schedule::{Queue, Waits};

/// What admission is made with.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The consumer group that its place is kept under.
    pub group: Box<str>,
    /// Events in memory, at most 64 bytes each.
    pub entries_max: usize,
    /// Events whose runs are being admitted at a time: the ledger commits many with one write.
    pub under_way_max: usize,
    /// How often the place is committed. A crash reads again what came since.
    pub commit_every: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            group: "runner".into(),
            entries_max: 1 << 18,
            under_way_max: 1024,
            commit_every: Duration::from_millis(250),
        }
    }
}

/// What admission stands on.
#[derive(Debug, Clone)]
pub struct Parts {
    pub log: Arc<dyn EventLog>,
    pub ledger: Arc<dyn LedgerStore>,
    pub triggers: Arc<Triggers>,
    pub queue: Arc<dyn Queue>,
    pub clock: Arc<dyn Clock>,
    /// What is not to be admitted.
    pub letters: Letters,
}

/// Admission, before it runs.
#[derive(Debug)]
pub struct Admission {
    shared: Arc<Shared>,
    parts: Parts,
    settings: Settings,
}

/// A way to it; cheap to clone.
#[derive(Debug, Clone)]
pub struct Handle(Arc<Shared>);

/// What an operator says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Command {
    SkipDamage,
    GoTo(Cursor),
}

#[derive(Debug)]
pub(super) struct Shared {
    state: Mutex<State>,
    /// There is something to admit.
    pub(super) fed: Notify,
    /// A tenant that was skipped may be caught up.
    pub(super) room: Notify,
    pub(super) commanded: Notify,
    /// An operator has dead letters tried again.
    again: Notify,
    letters: Letters,
}

#[derive(Debug)]
pub(super) struct State {
    pub(super) backlog: Backlog,
    /// Where the main reader is.
    pub(super) main: Cursor,
    committed: Option<Cursor>,
    pub(super) command: Option<Command>,
    pub(super) halt: Option<Halt>,
    /// Why a tenant that was skipped is not caught up.
    pub(super) part_fault: Option<Box<str>>,
    under_way: usize,
    events: u64,
    begun: Begun,
    pub(super) failures: u64,
    letters_made: u64,
    pub(super) trimmed: u64,
    pub(super) damage_skipped: u64,
    delays: Waits,
}

impl Shared {
    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the main reader has read from `at` on.
    pub(super) fn take_in(&self, at: &Cursor, events: Vec<(TenantId, Spot)>, behind: Cursor) {
        let mut state = self.lock();
        let is_fed = !events.is_empty();
        state.events += events.len() as u64;
        state.backlog.push(at, events);
        state.main = behind;
        drop(state);
        if is_fed {
            self.fed.notify_one();
        }
    }

    /// Reading has got on.
    pub(super) fn goes_on(&self) {
        if self.lock().halt.take().is_some() {
            tracing::info!("admission reads on");
        }
    }

    /// The place to commit, if it is another than the last.
    fn to_commit(&self) -> Option<Cursor> {
        let state = self.lock();
        let place = state.backlog.place(&state.main);
        (state.committed.as_ref() != Some(&place)).then_some(place)
    }
}

impl Admission {
    pub fn new(parts: Parts, settings: Settings) -> (Self, Handle) {
        // One tenant that waits for something has half of what may be under way, and no more.
        let backlog = Backlog::new(settings.entries_max, settings.under_way_max.div_ceil(2));
        let state = State {
            backlog,
            main: Cursor::default(),
            committed: None,
            command: None,
            halt: None,
            part_fault: None,
            under_way: 0,
            events: 0,
            begun: Begun::default(),
            failures: 0,
            letters_made: 0,
            trimmed: 0,
            damage_skipped: 0,
            delays: Waits::default(),
        };
        let shared = Shared {
            state: Mutex::new(state),
            fed: Notify::new(),
            room: Notify::new(),
            commanded: Notify::new(),
            again: Notify::new(),
            letters: parts.letters.clone(),
        };
        let shared = Arc::new(shared);
        (Self { shared: Arc::clone(&shared), parts, settings }, Handle(shared))
    }

    /// Runs until `stop` says true. What is under way then may be admitted and is read again, which admits none twice.
    pub async fn run(self, mut stop: watch::Receiver<bool>) {
        let mut stopping = std::pin::pin!(async move { stop.wait_for(|stop| *stop).await.is_ok() });
        tokio::select! {
            biased;
            _ = &mut stopping => return,
            () = self.begin() => {}
        }
        let admitter = self.admitter();
        let mut helpers = JoinSet::new();
        helpers.spawn(try_letters(Arc::clone(&self.shared), Arc::clone(&admitter)));
        helpers.spawn(scan::scan(Arc::clone(&self.shared), Arc::clone(&self.parts.log)));
        helpers.spawn(keep_place(Arc::clone(&self.shared), Arc::clone(&self.parts.log), self.settings.clone()));
        tokio::select! {
            biased;
            _ = &mut stopping => {}
            () = self.admit(admitter) => {}
        }
        helpers.shutdown().await;
        commit(&self.shared, &self.parts.log, &self.settings.group).await;
    }

    /// Finds the place to begin at. A group that was never here begins with the oldest event that is left: automations
    /// begin with the events that come after they were made, so history does nothing, and nothing is missed that came
    /// before this was up.
    async fn begin(&self) {
        const RETRY: Duration = Duration::from_secs(1);
        loop {
            let (log, group) = (Arc::clone(&self.parts.log), self.settings.group.clone());
            match tokio::task::spawn_blocking(move || log.groups().cursor(&group)).await {
                Ok(Ok(place)) => {
                    let mut state = self.shared.lock();
                    state.main = place.clone().unwrap_or_default();
                    state.committed = place;
                    state.halt = None;
                    return;
                }
                Ok(Err(fault)) => self.cannot_begin(&fault.to_string(), matches!(fault, GroupError::Damaged { .. })),
                Err(_) => self.cannot_begin("reading the place of the group crashed", false),
            }
            tokio::select! {
                () = self.shared.commanded.notified() => {}
                () = tokio::time::sleep(RETRY) => {}
            }
            let mut state = self.shared.lock();
            if let Some(Command::GoTo(place)) = state.command.take() {
                state.main = place;
                state.halt = None;
                return;
            }
        }
    }

    fn cannot_begin(&self, reason: &str, needs_operator: bool) {
        let halt = Some(Halt { reason: reason.into(), needs_operator });
        let mut state = self.shared.lock();
        if state.halt != halt {
            tracing::error!(reason, needs_operator, "admission does not know where to begin");
            state.halt = halt;
        }
    }

    fn admitter(&self) -> Arc<Admitter> {
        Arc::new(Admitter {
            triggers: Arc::clone(&self.parts.triggers),
            ledger: Arc::clone(&self.parts.ledger),
            queue: Arc::clone(&self.parts.queue),
            clock: Arc::clone(&self.parts.clock),
            letters: self.parts.letters.clone(),
            told: Mutex::default(),
        })
    }

    /// Admits what there is, tenants in turn, for ever.
    async fn admit(&self, admitter: Arc<Admitter>) {
        const LONGEST: Duration = Duration::from_secs(1);
        let mut under_way: FuturesUnordered<BoxFuture<'static, Settled>> = FuturesUnordered::new();
        loop {
            let now_ms = self.now_ms();
            let next_ms = {
                let mut state = self.shared.lock();
                while under_way.len() < self.settings.under_way_max
                    && let Some(taken) = state.backlog.take(now_ms)
                {
                    under_way.push(Box::pin(admit_one(Arc::clone(&admitter), taken)));
                }
                state.under_way = under_way.len();
                state.backlog.next_ms()
            };
            let sleep = next_ms.map_or(LONGEST, |next| Duration::from_millis(next.saturating_sub(now_ms)).min(LONGEST));
            tokio::select! {
                Some(done) = under_way.next() => {
                    under_way.extend(self.settle(done));
                    // As many as are ready, before the lock is taken for new ones.
                    while let Some(Some(done)) = under_way.next().now_or_never() {
                        under_way.extend(self.settle(done));
                    }
                    self.shared.room.notify_one();
                }
                () = self.shared.fed.notified() => {}
                () = tokio::time::sleep(sleep.max(Duration::from_millis(1))) => {}
            }
        }
    }

    /// Says what is still to be done about it: to keep it as a dead letter.
    fn settle(&self, settled: Settled) -> Option<BoxFuture<'static, Settled>> {
        let (now_ms, now_unix_ms) = (self.now_ms(), self.parts.clock.unix_ms());
        let mut state = self.shared.lock();
        match settled {
            Settled::Admitted(taken, begun) => {
                if begun.runs > 0 {
                    state.delays.add(now_unix_ms.saturating_sub(taken.spot.event.received_unix_ms()));
                }
                state.begun.add(begun);
                state.backlog.done(taken);
                None
            }
            Settled::Failed(taken, fault) => {
                let (tenant, event) = (taken.tenant.clone(), taken.spot.event);
                state.failures += 1;
                let how = if matches!(fault, Later::Crashed) { Failure::Crash } else { Failure::Fault };
                let failed = state.backlog.failed(taken, how, now_ms);
                drop(state);
                match failed {
                    // The first, and then ever less often.
                    Failed::Waits(Some(in_a_row)) if in_a_row.is_power_of_two() => {
                        tracing::error!(%tenant, %event, %fault, in_a_row, "an event cannot be admitted for the moment; it is tried again");
                        None
                    }
                    Failed::Waits(_) => None,
                    Failed::Aside => {
                        tracing::error!(%tenant, %event, %fault, "an event cannot be admitted for the moment; it waits alone, and its tenant goes on");
                        None
                    }
                    Failed::Poison(taken) => {
                        let letter = letter(&taken, &fault, now_unix_ms);
                        Some(Box::pin(keep_letter(self.parts.letters.clone(), taken, letter)))
                    }
                }
            }
            Settled::Kept(taken) => {
                state.letters_made += 1;
                state.backlog.done(taken);
                None
            }
            Settled::NotKept(taken) => {
                state.backlog.not_kept(taken, now_ms);
                None
            }
        }
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.parts.clock.monotonic().as_millis()).unwrap_or(u64::MAX)
    }
}

/// What came of an event that was under way.
#[derive(Debug)]
enum Settled {
    Admitted(Taken, Begun),
    Failed(Taken, Later),
    /// As a dead letter, or not even so.
    Kept(Taken),
    NotKept(Taken),
}

/// A crash of it is a failure of this event, and not the end of admission.
async fn admit_one(admitter: Arc<Admitter>, taken: Taken) -> Settled {
    let outcome = AssertUnwindSafe(admitter.admit(&taken)).catch_unwind().await.unwrap_or(Err(Later::Crashed));
    match outcome {
        Ok(begun) => Settled::Admitted(taken, begun),
        Err(fault) => Settled::Failed(taken, fault),
    }
}

fn letter(taken: &Taken, fault: &Later, at_unix_ms: u64) -> Letter {
    Letter {
        event: taken.spot.event,
        tenant: taken.tenant.clone(),
        endpoint: taken.spot.endpoint.clone(),
        is_bulk: taken.spot.class == Class::Bulk,
        why: fault.to_string().into(),
        tries: taken.tries(),
        at_unix_ms,
    }
}

async fn keep_letter(letters: Letters, taken: Taken, letter: Letter) -> Settled {
    let (tenant, event) = (&taken.tenant, taken.spot.event);
    let (why, tries) = (letter.why.clone(), letter.tries);
    match letters.keep(letter).await {
        Ok(()) => {
            tracing::error!(%tenant, %event, %why, tries, "an event is set aside as a dead letter: it begins no run until an operator has it tried again");
            Settled::Kept(taken)
        }
        Err(fault) => {
            tracing::error!(%tenant, %event, %fault, "an event is not to be admitted, and cannot be set aside");
            Settled::NotKept(taken)
        }
    }
}

/// Tries all dead letters again, one after the other, whenever an operator says so.
async fn try_letters(shared: Arc<Shared>, admitter: Arc<Admitter>) {
    loop {
        shared.again.notified().await;
        let (mut through, mut left) = (0_u64, 0_u64);
        for letter in shared.letters.list(LETTERS_MAX) {
            let class = if letter.is_bulk { Class::Bulk } else { Class::Normal };
            let spot = Spot { event: letter.event, endpoint: letter.endpoint.clone(), class };
            let tried = AssertUnwindSafe(admitter.admit_spot(&letter.tenant, &spot)).catch_unwind().await;
            let removed = match tried.unwrap_or(Err(Later::Crashed)) {
                Ok(begun) => {
                    shared.lock().begun.add(begun);
                    shared.letters.remove(letter.event).await
                }
                Err(fault) => {
                    left += 1;
                    let again =
                        Letter { why: fault.to_string().into(), tries: letter.tries.saturating_add(1), ..letter };
                    shared.letters.keep(again).await
                }
            };
            match removed {
                Ok(()) => through += 1,
                Err(fault) => tracing::error!(%fault, "a dead letter was tried again, and that cannot be kept"),
            }
        }
        through = through.saturating_sub(left);
        tracing::info!(through, left, "dead letters were tried again");
    }
}

async fn keep_place(shared: Arc<Shared>, log: Arc<dyn EventLog>, settings: Settings) {
    loop {
        tokio::time::sleep(settings.commit_every).await;
        commit(&shared, &log, &settings.group).await;
    }
}

async fn commit(shared: &Shared, log: &Arc<dyn EventLog>, group: &str) {
    let Some(place) = shared.to_commit() else { return };
    let (log, group, at) = (Arc::clone(log), group.to_owned(), place.clone());
    match tokio::task::spawn_blocking(move || log.groups().commit(&group, &at)).await {
        Ok(Ok(())) => shared.lock().committed = Some(place),
        // Nothing is lost: more is read again after a restart.
        Ok(Err(fault)) => tracing::error!(%fault, "admission's place was not committed; it is tried again"),
        Err(_) => tracing::error!("committing admission's place crashed; it is tried again"),
    }
}

impl Handle {
    pub fn status(&self) -> Status {
        let state = self.0.lock();
        let of_a_part = || state.part_fault.clone().map(|reason| Halt { reason, needs_operator: true });
        Status {
            halt: state.halt.clone().or_else(of_a_part),
            read: state.main.clone(),
            committed: state.committed.clone().unwrap_or_default(),
            waiting: state.backlog.len() as u64,
            under_way: state.under_way as u64,
            oldest_unix_ms: state.backlog.oldest_unix_ms(),
            skipped_tenants: state.backlog.skipped_tenants() as u64,
            delayed_tenants: state.backlog.delayed_tenants() as u64,
            events: state.events,
            begun: state.begun,
            failures: state.failures,
            aside: state.backlog.aside() as u64,
            letters: self.0.letters.count() as u64,
            letters_made: state.letters_made,
            trimmed: state.trimmed,
            damage_skipped: state.damage_skipped,
            delays: state.delays,
        }
    }

    /// Lets the reader pass the damaged place that it was halted at. What is passed begins no run. False: nothing is halted.
    pub fn skip_damage(&self) -> bool {
        let mut state = self.0.lock();
        let is_halted = state.part_fault.is_some() || state.halt.as_ref().is_some_and(|halt| halt.needs_operator);
        if is_halted {
            state.command = Some(Command::SkipDamage);
            self.0.commanded.notify_one();
            self.0.room.notify_one();
        }
        is_halted
    }

    /// Dead letters, the oldest events first.
    pub fn letters(&self, max: usize) -> Vec<Letter> {
        self.0.letters.list(max)
    }

    /// Has all dead letters tried again, and says how many there are. What gets through is none any more.
    pub fn try_letters(&self) -> usize {
        self.0.again.notify_one();
        self.0.letters.count()
    }

    /// Reads on from this place. Going back is safe; what is gone past begins no run.
    pub fn go_to(&self, place: Cursor) {
        self.0.lock().command = Some(Command::GoTo(place));
        self.0.commanded.notify_one();
        self.0.room.notify_one();
    }
}
