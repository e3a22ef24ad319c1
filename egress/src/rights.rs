//! Whether calls under way may go on. Each was judged before it went out, and what was true then can end: a proof is
//! revoked, runs out or leaves the configuration, a kill switch is thrown, an operator closes a call.
//!
//! **Nothing slips through.** A call is put on the list of calls first and judged then, hop by hop (`serve.rs`). A change
//! that came before is seen by the judging; one that came later by the sweep, which begins behind the change and finds the
//! call on the list, whether its name is looked up, its destination dialled, its answer awaited, or bytes pass. It is told
//! to stop, and whoever waits for anything on its behalf is woken ([`Running::stop`]).
//!
//! What went out is not taken back: the destination sees a connection that is cut, and the caller an answer that is not
//! whole.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use listen::{Exchange, Watch};
use outbound::dial::Connect;
use tokio::time::{Instant, MissedTickBehavior, interval};

use crate::no::No;
use crate::{Call, CorrelationId, Egress, Refusal, Running, Stage};

/// Why a call is ended from outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// Its caller's proof was revoked, or left the configuration.
    Revoked,
    /// A kill switch was thrown.
    SwitchedOff,
    /// An operator closed it.
    Closed,
    /// Its caller's proof ended, and [`GRACE`](crate::GRACE) is over.
    Expired,
    /// It took longer than a request may take.
    TookTooLong,
}

impl Stop {
    /// The outcome in its record.
    pub fn refusal(self) -> Refusal {
        match self {
            Self::Revoked | Self::Expired => Refusal::CallerUnknown,
            Self::SwitchedOff | Self::Closed => Refusal::SwitchedOff,
            Self::TookTooLong => Refusal::ResponseTimedOut,
        }
    }

    /// The same in words, for the operator.
    pub fn detail(self) -> &'static str {
        match self {
            Self::Revoked => "the caller's proof was taken back while the call was under way",
            Self::SwitchedOff => "a kill switch was thrown while the call was under way",
            Self::Closed => "an operator closed the call",
            Self::Expired => "the caller's proof ended while the call was under way",
            Self::TookTooLong => "the call took too long as a whole",
        }
    }
}

impl From<Stop> for No {
    fn from(stop: Stop) -> Self {
        Self::new(stop.refusal(), stop.detail())
    }
}

/// How often it is looked for calls whose time is over. What is said of a grant's end is so by a second, as what is said
/// of revocations is.
const LOOK_EVERY: Duration = Duration::from_secs(1);

impl<C: Connect> Egress<C>
where
    C::Stream: 'static,
{
    /// Ends what may not go on, for ever: within a second of what takes its right.
    pub async fn keep_right(self: Arc<Self>) {
        let (mut callers, mut switches) = (self.parts.callers.watch(), self.parts.switches.watch());
        let mut ticks = interval(LOOK_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            // Who tells of changes is a part of this role, and there for as long as it is.
            let changed = tokio::select! {
                changed = callers.changed() => changed.is_ok(),
                changed = switches.changed() => changed.is_ok(),
                _ = ticks.tick() => false,
            };
            if changed {
                self.sweep();
            }
            let now = Instant::now();
            for running in self.parts.calls.list_over(now) {
                if let Some(why) = running.over(now) {
                    running.stop(why);
                }
            }
        }
    }

    /// Ends the call of this id, and says how far it was; none if nothing of it is under way.
    pub fn close(&self, id: CorrelationId) -> Option<Stage> {
        let running = self.parts.calls.list().into_iter().find(|running| running.correlation == id)?;
        running.stop(Stop::Closed);
        Some(running.stage())
    }

    /// Something has changed: each call is looked at.
    fn sweep(&self) {
        let (mut revoked, mut off) = (0, 0);
        for running in self.parts.calls.list() {
            if !self.parts.callers.still_good(&running.identified) || !self.is_tenant(&running) {
                running.stop(Stop::Revoked);
                revoked += 1;
            } else if self.is_off(&running) {
                running.stop(Stop::SwitchedOff);
                off += 1;
            }
        }
        if revoked + off > 0 {
            tracing::info!(revoked, off, "calls under way were ended");
        }
        // Idle connections, too, of those who may call no more: some have shown a credential.
        let (callers, switches) = (&self.parts.callers, &self.parts.switches);
        self.parts.forward.close_tenants(|tenant| callers.have_revoked(tenant) || switches.cover_all_of(tenant));
    }

    /// An issuer that may speak for every tenant keeps its word when one of them leaves the configuration.
    fn is_tenant(&self, running: &Running) -> bool {
        self.parts.snapshot.load().policy.tenant(&running.caller().tenant).is_some()
    }

    fn is_off(&self, running: &Running) -> bool {
        let (tenant, to) = (&running.caller().tenant, running.leads_to());
        let node = self.parts.snapshot.load();
        let of_host = node.policy.connector(to.host()).map(|found| &found.connector);
        [running.connector.as_ref(), of_host]
            .into_iter()
            .any(|connector| self.parts.switches.thrown(tenant, connector, &to, running.way).is_some())
    }
}

impl Call {
    /// Waits for it, and feeds the caller's body meanwhile: unless the caller hangs up, or the call is stopped.
    pub(crate) async fn drive<F: Future>(
        &self,
        exchange: &mut Exchange,
        mut going: Pin<&mut F>,
    ) -> Result<F::Output, No> {
        let running = self.running();
        let mut watch = running.map(|running| Watch::new(Arc::clone(running) as _));
        let unless_stopped = poll_fn(|cx| {
            let has_come = watch.as_mut().is_some_and(|watch| watch.has_come(cx));
            match running.and_then(|running| running.stopped()).filter(|_| has_come) {
                Some(stop) => Poll::Ready(Err(stop.into())),
                None => going.as_mut().poll(cx).map(Ok),
            }
        });
        exchange.drive(unless_stopped).await?
    }
}
