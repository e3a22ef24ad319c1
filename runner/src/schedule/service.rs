//! Gives slots away and drives what gets one.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use domain::Clock;
use futures_util::FutureExt;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::core::{Core, Left, Limits, LimitsFault};
use super::handle::{Given, Handle, Shared};
use super::recovery::{self, Reminders, Sources};
use super::{Drive, Ended, Tiers, Turn};

/// What a scheduler is made with.
#[derive(Debug, Clone)]
pub struct Settings {
    pub limits: Limits,
    pub tiers: Arc<dyn Tiers>,
    /// How long turns may take to end when the process stops: each is told to begin nothing new, and waits for the calls that
    /// it has under way. What is left then is dropped, which is a crash of its worker: the ledger has what it needs to go on.
    pub drain: Duration,
    /// Who is told once more, at the start, of what waits for somebody.
    pub reminders: Option<Arc<dyn Reminders>>,
}

impl Default for Settings {
    fn default() -> Self {
        let tiers = Arc::new(super::OneTier);
        Self { limits: Limits::default(), tiers, drain: Duration::from_secs(20), reminders: None }
    }
}

/// How a drain ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Drained {
    /// Turns that ended by themselves.
    pub finished: usize,
    /// Turns that were dropped at the bound.
    pub dropped: usize,
}

/// The scheduler, before it runs. It takes runs in from the start.
#[derive(Debug)]
pub struct Scheduler {
    shared: Arc<Shared>,
    drain: Duration,
    reminders: Option<Arc<dyn Reminders>>,
}

impl Scheduler {
    pub fn new(settings: Settings, clock: Arc<dyn Clock>) -> Result<(Self, Handle), LimitsFault> {
        settings.limits.check()?;
        let shared = Arc::new(Shared::new(Core::new(settings.limits), clock, settings.tiers));
        let Settings { drain, reminders, .. } = settings;
        Ok((Self { shared: Arc::clone(&shared), drain, reminders }, Handle(shared)))
    }

    /// Runs until `stop` says true, and then until the turns under way have left their runs or their time is up.
    pub async fn run(self, drive: Arc<dyn Drive>, sources: Sources, mut stop: watch::Receiver<bool>) -> Drained {
        let fence = if sources.ledger.is_some() { Fence::Claimed } else { Fence::Alone };
        let mut turns = JoinSet::new();
        let leave = watch::Sender::new(false);
        let mut keeper = JoinSet::new();
        keeper.spawn(recovery::keep(Handle(Arc::clone(&self.shared)), sources, self.reminders.clone()));
        // A sender that is gone has nothing more to say than stop.
        let mut stopping = std::pin::pin!(async move { stop.wait_for(|stop| *stop).await.is_ok() });
        loop {
            self.dispatch(&drive, fence, &leave, &mut turns);
            tokio::select! {
                biased;
                _ = &mut stopping => break,
                () = self.shared.wake.notified() => {}
                Some(_) = turns.join_next() => {}
                () = tokio::time::sleep(self.until_next()) => {}
            }
            while turns.try_join_next().is_some() {}
        }
        leave.send_replace(true);
        keeper.shutdown().await;
        self.drain(turns).await
    }

    fn dispatch(&self, drive: &Arc<dyn Drive>, fence: Fence, leave: &watch::Sender<bool>, turns: &mut JoinSet<()>) {
        /// In one go; the rest at once behind it.
        const GIVEN_AT_ONCE: usize = 256;
        for given in self.shared.give(GIVEN_AT_ONCE) {
            turns.spawn(turn(Arc::clone(&self.shared), Arc::clone(drive), fence, given, leave.subscribe()));
        }
    }

    /// Until a parked run is due. The wall clock may step meanwhile: it is looked at each second.
    fn until_next(&self) -> Duration {
        const LONGEST: Duration = Duration::from_secs(1);
        let now_unix_ms = self.shared.clock.unix_ms();
        let next = self.shared.lock().core.next_unix_ms();
        next.map_or(LONGEST, |next| {
            Duration::from_millis(next.saturating_sub(now_unix_ms)).clamp(Duration::from_millis(1), LONGEST)
        })
    }

    async fn drain(&self, mut turns: JoinSet<()>) -> Drained {
        let until = Instant::now() + self.drain;
        let mut finished = 0;
        while let Ok(Some(_)) = tokio::time::timeout_at(until, turns.join_next()).await {
            finished += 1;
        }
        let dropped = turns.len();
        turns.shutdown().await;
        tracing::info!(finished, dropped, "the scheduler has drained");
        Drained { finished, dropped }
    }
}

/// What a run that another worker has comes to.
#[derive(Debug, Clone, Copy)]
enum Fence {
    /// It is claimed when the other lets go.
    Claimed,
    /// Nobody tells when, and there should be no other: it is looked at again.
    Alone,
}

/// One turn, to its end.
async fn turn(shared: Arc<Shared>, drive: Arc<dyn Drive>, fence: Fence, given: Given, stopping: watch::Receiver<bool>) {
    let Given { picked, nudged } = given;
    let turn = Turn { tenant: picked.tenant, run: picked.run, class: picked.class, nudged, stopping };
    let (run, tenant) = (turn.run, turn.tenant.clone());
    let driven = AssertUnwindSafe(async { drive.drive(turn).await }).catch_unwind().await;
    let left = if let Ok(ended) = driven {
        shared.count(&ended, fence)
    } else {
        // The panic's own words have gone where panics go, and may hold what is the tenant's.
        tracing::error!(%run, %tenant, "a worker crashed over a run; it is tried again later");
        shared.lock().turns.crashed += 1;
        Left::Crashed
    };
    shared.finish(picked.slot, left);
}

impl Shared {
    fn count(&self, ended: &Ended, fence: Fence) -> Left {
        /// An engine that asks for no delay while the ledger is away would be all that runs.
        const RETRY_MS: std::ops::RangeInclusive<u64> = 50..=300_000;
        const FENCED_MS: u64 = 30_000;
        let now_unix_ms = self.clock.unix_ms();
        let turns = &mut self.lock().turns;
        match *ended {
            Ended::Terminal => {
                turns.terminal += 1;
                Left::Over
            }
            Ended::Parked { until_unix_ms, class } => {
                turns.parked += 1;
                Left::Parked { until_unix_ms, class }
            }
            Ended::Fenced => {
                turns.fenced += 1;
                match fence {
                    Fence::Claimed => Left::Elsewhere,
                    Fence::Alone => Left::Again { at_unix_ms: now_unix_ms.saturating_add(FENCED_MS) },
                }
            }
            Ended::Unavailable { retry_ms } => {
                turns.unavailable += 1;
                let retry_ms = retry_ms.clamp(*RETRY_MS.start(), *RETRY_MS.end());
                Left::Again { at_unix_ms: now_unix_ms.saturating_add(retry_ms) }
            }
        }
    }
}
