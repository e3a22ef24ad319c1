//! The gateway's parts, and how a connection's requests reach the accept path.

use std::net::SocketAddr;
use std::sync::Arc;

use arc_swap::ArcSwap;
use async_trait::async_trait;
use domain::{Clock, Refusal};
use eventlog::{EventLog, HoldingStore};
use listen::{Answer, Exchange, Handler, Reply};
use ratelimit::{InFlight, LocalLimits, Unauthenticated};

use crate::accept::{LostDelivery, No, Trace};
use crate::answer::Refused;
use crate::handshake::SecretKeeper;
use crate::metrics::Metrics;
use crate::mint::Mint;
use crate::once::Once;
use crate::record::{Recorder, RefusedLine};
use crate::repeats::Repeats;
use crate::snapshot::Snapshot;

/// What the gateway stands on. Everything is handed in: nothing here starts a thread or opens a file.
#[derive(Debug)]
pub struct Parts {
    pub node: domain::NodeId,
    /// Swapped by whoever reloads the configuration.
    pub snapshot: Arc<ArcSwap<Snapshot>>,
    pub log: Arc<dyn EventLog>,
    /// `None`: nothing unverified is kept.
    pub holding: Option<Arc<HoldingStore>>,
    pub limits: Arc<LocalLimits>,
    pub unauthenticated: Arc<Unauthenticated>,
    pub in_flight: Arc<InFlight>,
    pub clock: Arc<dyn Clock>,
    /// `None`: no secret is taken from a provider.
    pub keeper: Option<Arc<dyn SecretKeeper>>,
    pub repeats: Arc<Repeats>,
    pub metrics: Arc<Metrics>,
    pub recorder: Arc<dyn Recorder>,
}

#[derive(Debug)]
pub struct Gateway {
    pub(crate) parts: Parts,
    pub(crate) mint: Mint,
    /// Held while one delivery is promoted: looking for it, appending it and saying so are one step.
    pub(crate) promoting: tokio::sync::Mutex<()>,
    /// Tokens that prove one body each.
    pub(crate) once: Arc<Once>,
}

impl Gateway {
    /// # Errors
    /// The operating system gives no randomness for event ids.
    pub fn new(parts: Parts) -> Result<Self, getrandom::Error> {
        let mint = Mint::new(parts.node)?;
        Ok(Self { parts, mint, promoting: tokio::sync::Mutex::default(), once: Arc::default() })
    }

    fn tell_refused(&self, no: &No, trace: &Trace, target: &[u8]) {
        self.parts.metrics.refused(no.refused.refusal);
        self.parts.recorder.refused(&RefusedLine {
            refusal: no.refused.refusal,
            tenant: trace.endpoint.as_ref().map(|e| e.tenant().id.as_str()),
            endpoint: trace.endpoint.as_ref().map(|e| e.id().as_str()),
            source: trace.source,
            detail: &no.detail,
            held: no.held,
            lost: no.lost.as_deref().map(LostDelivery::shown),
            target,
        });
    }
}

#[async_trait]
impl Handler for Gateway {
    async fn handle(&self, exchange: &mut Exchange) -> Reply {
        let mut trace = Trace::of(exchange.peer());
        match self.accept(exchange, &mut trace).await {
            Ok(answer) => answer.into(),
            Err(no) => {
                self.tell_refused(&no, &trace, exchange.head().target());
                let bare = trace.endpoint.is_some_and(|endpoint| endpoint.scheme().refuses_without_body());
                if bare { no.refused.bare_answer().into() } else { no.refused.answer().into() }
            }
        }
    }

    /// The framing gate's own refusals: no endpoint is known, since nothing could be read that names one.
    fn refused(&self, peer: SocketAddr, refusal: Refusal) -> Answer {
        self.tell_refused(&No::from(refusal), &Trace::of(peer), b"");
        Refused::from(refusal).answer()
    }

    fn malformed(&self, peer: SocketAddr, why: &'static str) -> Answer {
        let refusal = Refusal::MalformedRequest;
        self.tell_refused(&No::because(refusal, why), &Trace::of(peer), b"");
        Refused::from(refusal).answer()
    }
}
