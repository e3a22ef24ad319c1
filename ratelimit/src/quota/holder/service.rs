//! The face with a runtime: one task that asks, and callers that wait.

use std::collections::VecDeque;
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use domain::Clock;
use futures_util::StreamExt;
use futures_util::future::Either;
use futures_util::stream::FuturesUnordered;
use tokio::sync::{Notify, oneshot};

use crate::quota::answer::{Answer, AskError, Reply};
use crate::quota::centre::Centre;
use crate::quota::key::{Application, BucketKey, Level};
use crate::quota::name::{HolderId, Name};
use crate::quota::op::{Class, Share, Why};

use super::counters::Snapshot;
use super::explain::{Holding, LegView};
use super::held::Held;
use super::leases::{Effects, Hold, Leases, Sending, Ticket, Verdict};
use super::look::{Look, Looks};
use super::parked::{Parked, Reason};
use super::queue::Token;
use super::route::{InvalidRoute, Need, Route};
use super::settings::{InvalidSettings, Settings};

/// A store has its own time limit; one that forgets it is not waited for longer than this.
const ASK_MS_MAX: u64 = 2_000;
/// A verdict comes by the deadline; a caller whose verdict does not come is not left waiting.
const GRACE_MS: u64 = 250;
/// Operations under way at a time.
const UNDER_WAY: usize = 256;

/// What one node holds. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Holder {
    inner: Arc<Inner>,
}

#[derive(Debug)]
pub(super) struct Inner {
    pub(super) leases: Leases<Waiting>,
    clock: Arc<dyn Clock>,
    /// Bounded by what may be under way: each lease has one operation, each bucket one penalty.
    outbox: Mutex<VecDeque<Sending>>,
    /// What the centre has to be told or asked about routes that are new.
    looks: Looks,
    wake: Notify,
}

/// A caller that waits.
#[derive(Debug)]
pub(super) struct Waiting(oneshot::Sender<Result<Held, Parked>>);

impl Token for Waiting {
    fn is_gone(&self) -> bool {
        self.0.is_closed()
    }
}

impl Inner {
    /// By a clock that runs while the machine sleeps.
    pub(super) fn now_ms(&self) -> u64 {
        // 0 is "never" in places.
        u64::try_from(self.clock.monotonic().as_millis()).unwrap_or(u64::MAX).saturating_add(1)
    }

    pub(super) fn notify(&self) {
        self.wake.notify_one();
    }

    /// Sees to what has to be done outside. No lock is held: a caller that is gone gives its units back here.
    pub(super) fn dispatch(this: &Arc<Self>, effects: Effects<Waiting>) {
        if !effects.sends.is_empty() {
            this.outbox.lock().unwrap_or_else(PoisonError::into_inner).extend(effects.sends);
            this.notify();
        }
        for (Waiting(sender), verdict) in effects.verdicts {
            let verdict = match verdict {
                Verdict::Held(taken) => Ok(Held::new(Arc::clone(this), taken)),
                Verdict::Parked(parked) => Err(parked),
            };
            drop(sender.send(verdict));
        }
    }

    fn next_sending(&self) -> Option<Sending> {
        self.outbox.lock().unwrap_or_else(PoisonError::into_inner).pop_front()
    }
}

impl Holder {
    /// A holder that has nothing. It needs [`Self::run`] to be asked for anything. `clock`'s monotonic time has to run
    /// while the machine sleeps: [`super::BootClock`].
    pub fn new(settings: Settings, holder: HolderId, clock: Arc<dyn Clock>) -> Result<Self, InvalidSettings> {
        // The holder's id is drawn at random; half of it is as good a seed as any.
        let seed = u64::try_from(holder.0 >> 64).unwrap_or(0);
        let leases = Leases::new(settings, holder, seed)?;
        let inner = Inner { leases, clock, outbox: Mutex::default(), looks: Looks::default(), wake: Notify::new() };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// The way of a tenant's calls through their levels.
    pub fn route(&self, tenant: &Name, share: Share, needs: &[Need]) -> Result<Route, InvalidRoute> {
        let route = self.inner.leases.route(tenant, share, needs)?;
        if self.inner.looks.begin(&route, self.inner.now_ms()) {
            self.inner.notify();
        }
        Ok(route)
    }

    /// What the centre says unasked may have been missed, of an application or of any: parks of buckets that are only
    /// heeded are asked for.
    pub fn missed(&self, application: Option<&Application>) {
        let heeded = self.inner.leases.heeded(application);
        self.inner.looks.again(heeded, self.inner.now_ms());
        self.inner.notify();
    }

    /// Units of every level for a call, or when to come again. `wait` is for a caller that asked to wait inside; without
    /// it the wait is at most the budget.
    pub async fn hold(&self, route: &Route, class: Class, cost: u32, wait: Option<Duration>) -> Result<Held, Parked> {
        let inner = &self.inner;
        let budget_ms = inner.leases.settings().budget_ms;
        let asked_ms = wait.map_or(0, |wait| u64::try_from(wait.as_millis()).unwrap_or(u64::MAX));
        let wait_ms = asked_ms.max(budget_ms).min(inner.leases.settings().wait_ms_max);
        let until_ms = inner.now_ms().saturating_add(wait_ms);
        let parked = match self.take(route, class, cost, wait_ms).await {
            Err(parked) if route.heeded_park(inner.now_ms()).is_some() => parked,
            result => return result,
        };
        // Nobody grants anything of what is only heeded: its release is waited for here.
        let now_ms = inner.now_ms();
        if asked_ms == 0 || now_ms.saturating_add(parked.release_ms) >= until_ms {
            return Err(parked);
        }
        tokio::time::sleep(Duration::from_millis(parked.release_ms)).await;
        self.take(route, class, cost, until_ms.saturating_sub(inner.now_ms())).await
    }

    async fn take(&self, route: &Route, class: Class, cost: u32, wait_ms: u64) -> Result<Held, Parked> {
        let inner = &self.inner;
        let mut receiver = None;
        let token = || {
            let (sender, waits) = oneshot::channel();
            receiver = Some(waits);
            Waiting(sender)
        };
        let (hold, effects) = inner.leases.hold(route, class, cost, wait_ms, inner.now_ms(), token);
        if !effects.is_empty() {
            Inner::dispatch(inner, effects);
        }
        let level = route.key(0).map_or(Level::App, |(_, key)| key.level);
        let slow = Parked { release_ms: GRACE_MS, level, leg: 0, reason: Reason::Slow };
        match (hold, receiver) {
            (Hold::Held(taken), _) => Ok(Held::new(Arc::clone(inner), taken)),
            (Hold::Parked(parked), _) => Err(parked),
            (Hold::Waits, None) => Err(slow),
            (Hold::Waits, Some(waits)) => {
                inner.notify();
                let verdict = tokio::time::timeout(Duration::from_millis(wait_ms + GRACE_MS), waits).await;
                verdict.map_or(Err(slow), |verdict| verdict.unwrap_or(Err(slow)))
            }
        }
    }

    /// The centre said, unasked, that a bucket is parked, or is not any more (0 ms).
    pub fn pushed(&self, application: &Application, key: &BucketKey, generation: u64, ms: u64, why: Why) {
        self.inner.leases.pushed(application, key, generation, ms, why, self.inner.now_ms());
        self.inner.notify();
    }

    /// Why a call would be refused now, by level, as far as this node knows.
    pub fn explain(&self, route: &Route, class: Class, cost: u32) -> Vec<LegView> {
        self.inner.leases.explain(route, class, cost, self.inner.now_ms())
    }

    /// What this node holds of one part of the tenants; there are [`Leases::PAGES`].
    pub fn holdings(&self, page: usize) -> Vec<Holding> {
        self.inner.leases.holdings(page, self.inner.now_ms())
    }

    /// This node's leases of one bucket, the largest first: as many as asked for, and how many there are.
    pub fn holdings_of(&self, application: &Application, key: &BucketKey, most: usize) -> (Vec<Holding>, usize) {
        self.inner.leases.holdings_of(application, key, most, self.inner.now_ms())
    }

    /// Every application that this node has met, in no order. `read` should be quick.
    pub fn each_application(&self, read: impl FnMut(&Application)) {
        self.inner.leases.each_application(read);
    }

    /// By which name the centre knows this node.
    pub fn id(&self) -> HolderId {
        self.inner.leases.id()
    }

    pub fn counters(&self) -> Snapshot {
        self.inner.leases.counters().snapshot()
    }

    /// Leases that are remembered, calls that wait, operations under way.
    pub fn sizes(&self) -> (usize, usize, usize) {
        self.inner.leases.sizes()
    }

    /// Asks the centre what has to be asked, until `stop`; then gives back what is held, for at most `closing`. A centre
    /// that is not there at first is asked again like one that is gone: calls are parked meanwhile.
    pub async fn run(&self, centre: Arc<dyn Centre>, stop: impl Future<Output = ()>, closing: Duration) {
        let mut under_way = FuturesUnordered::new();
        tokio::pin!(stop);
        let mut ends: Option<tokio::time::Instant> = None;
        loop {
            while under_way.len() < UNDER_WAY
                && let Some(sending) = self.inner.next_sending()
            {
                under_way.push(Either::Left(self.ask(Arc::clone(&centre), sending)));
            }
            while under_way.len() < UNDER_WAY
                && ends.is_none()
                && let Some(look) = self.inner.looks.next(self.inner.now_ms())
            {
                centre.watch(look.application());
                under_way.push(Either::Right(self.look(Arc::clone(&centre), look)));
            }
            if ends.is_some() && under_way.is_empty() && self.inner.leases.is_told() {
                return;
            }
            let now_ms = self.inner.now_ms();
            // Looks wait for room, and nobody looks any more at the end: that they are due is no reason to come again at once.
            let may_look = under_way.len() < UNDER_WAY && ends.is_none();
            let look_ms = if may_look { self.inner.looks.next_due_ms() } else { u64::MAX };
            let due_ms = self.inner.leases.next_due_ms().min(look_ms);
            let pause = Duration::from_millis(due_ms.saturating_sub(now_ms));
            let over = async {
                match ends {
                    Some(at) => tokio::time::sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                () = &mut stop, if ends.is_none() => {
                    self.inner.leases.close(self.inner.now_ms());
                    ends = Some(tokio::time::Instant::now() + closing);
                }
                () = over => return,
                Some(answered) = under_way.next(), if !under_way.is_empty() => {
                    if let Some((ticket, sent_ms, result)) = answered {
                        let effects = self.inner.leases.answered(ticket, sent_ms, result, self.inner.now_ms());
                        Inner::dispatch(&self.inner, effects);
                    }
                }
                () = self.inner.wake.notified() => {}
                () = tokio::time::sleep(pause) => {}
            }
            self.tick();
        }
    }

    fn tick(&self) {
        let now_ms = self.inner.now_ms();
        if self.inner.leases.next_due_ms() <= now_ms {
            let effects = self.inner.leases.tick(now_ms, self.inner.clock.unix_ms());
            Inner::dispatch(&self.inner, effects);
        }
    }

    /// Asks for the park of a bucket of which nothing is ever asked otherwise.
    async fn look(&self, centre: Arc<dyn Centre>, look: Look) -> Option<(Ticket, u64, Result<Reply, AskError>)> {
        let op = look.op()?;
        let answer = tokio::time::timeout(Duration::from_millis(ASK_MS_MAX), centre.ask(&op)).await;
        match answer {
            Ok(Ok(Reply { answer: Answer::Buckets(views), .. })) => {
                for view in views.iter().filter(|view| look.is_of(&view.key)) {
                    if let Some(park) = view.park {
                        self.pushed(look.application(), &view.key, view.generation, park.ms, park.why);
                    }
                }
            }
            Ok(Ok(_)) => {}
            Ok(Err(_)) | Err(_) => self.inner.looks.failed(look, self.inner.now_ms()),
        }
        None
    }

    async fn ask(&self, centre: Arc<dyn Centre>, sending: Sending) -> Option<(Ticket, u64, Result<Reply, AskError>)> {
        let Sending { ticket, op } = sending;
        // The lease counts from here: before the operation was sent.
        let sent_ms = self.inner.now_ms();
        let answer = tokio::time::timeout(Duration::from_millis(ASK_MS_MAX), centre.ask(&op)).await;
        Some((ticket, sent_ms, answer.unwrap_or(Err(AskError::Timeout))))
    }
}
