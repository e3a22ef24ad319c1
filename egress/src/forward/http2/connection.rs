//! A connection that many calls are on.

use std::fmt;
use std::future::{Future, poll_fn};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use h2::client::SendRequest;
use outbound::{Dialled, ErrorType, VettedAddr};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::drive::{Drive, is_told};
use super::fault;
use super::liveness::Liveness;
use super::pace::{Pace, Paced};
use super::{HeadBounds, STREAMS_UNTOLD, builder};
use crate::Refusal;
use crate::forward::body::BodyFault;
use crate::pool::{SEATS_MAX, Sat, Share};

/// A connection. Its task ends when nobody holds it any more and its last stream has ended.
pub(crate) struct Connection {
    sender: SendRequest<Bytes>,
    pub(super) gate: Arc<Gate>,
    pub(super) pace: Arc<Pace>,
    pub(super) head: HeadBounds,
    pub(crate) address: VettedAddr,
    pub(crate) local: SocketAddr,
    made: Instant,
}

/// Who may come in. The task of the connection has one end of it, those who use it the other.
#[derive(Debug)]
pub(super) struct Gate {
    state: Mutex<State>,
    /// For those who sit here and may not begin.
    pub(super) allowed: Notify,
}

#[derive(Debug)]
struct State {
    taken: usize,
    /// What the peer allows; none while it has not said.
    streams_max: Option<usize>,
    is_shut: bool,
    fate: Option<Fate>,
    idle_since: Instant,
}

/// Why it was us who ended it.
#[derive(Debug, Clone, Copy)]
pub(super) enum Fate {
    /// Nothing came back when it was asked for a sign of life.
    Dead,
    /// It was kept busy with nothing.
    Flooded,
}

impl Connection {
    /// Speaks first, and hands the connection to a task of its own. The one who dialled sits on it already.
    pub(crate) async fn open<S>(
        dialled: Dialled<S>,
        made: Instant,
        head: HeadBounds,
        changed: Arc<Notify>,
    ) -> Result<Self, BodyFault>
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let Dialled { stream, address, local, .. } = dialled;
        let pace = Arc::<Pace>::default();
        let paced = Paced::new(stream, Arc::clone(&pace));
        let opened = builder(head).handshake::<_, Bytes>(paced).await;
        let (sender, mut connection) = opened.map_err(|error| fault::of(&error).fault)?;
        let gate = Arc::new(Gate::new(made));
        let liveness = connection.ping_pong().map(Liveness::new);
        let streams_max = STREAMS_UNTOLD;
        let (own_gate, own_pace) = (Arc::clone(&gate), Arc::clone(&pace));
        let mut drive = Drive { connection, liveness, pace: own_pace, gate: own_gate, changed, streams_max };
        // What the peer said together with the end of its handshake is known before anything is asked.
        let has_ended = poll_fn(|cx| Poll::Ready(Pin::new(&mut drive).poll(cx).is_ready())).await;
        if let Some(fault) = gate.fate() {
            return Err(fault);
        }
        if !has_ended {
            tokio::spawn(drive);
        }
        Ok(Self { sender, gate, pace, head, address, local, made })
    }

    /// Somebody who can begin a stream now; none if nobody can any more, of which nothing has been sent then.
    pub(super) fn sender(&self) -> Option<SendRequest<Bytes>> {
        let mut sender = self.sender.clone();
        // It has no request of its own that could be waiting, so that it is never pending.
        if let Poll::Ready(Ok(())) = sender.poll_ready(&mut Context::from_waker(Waker::noop())) {
            return Some(sender);
        }
        self.gate.shut();
        None
    }
}

impl Share for Connection {
    fn address(&self) -> VettedAddr {
        self.address
    }

    fn made(&self) -> Instant {
        self.made
    }

    fn sit(&self) -> Sat {
        self.gate.state().sit()
    }

    fn idle_since(&self) -> Option<Instant> {
        let state = self.gate.state();
        (state.taken == 0).then_some(state.idle_since)
    }

    fn seats(&self) -> Option<usize> {
        self.gate.state().streams_max.map(|max| max.min(SEATS_MAX))
    }

    fn rise(&self) {
        let mut state = self.gate.state();
        state.taken -= 1;
        if state.taken == 0 {
            state.idle_since = Instant::now();
        }
    }
}

impl Gate {
    fn new(made: Instant) -> Self {
        let state = State { taken: 1, streams_max: None, is_shut: false, fate: None, idle_since: made };
        Self { state: Mutex::new(state), allowed: Notify::new() }
    }

    /// The peer says how many streams there may be.
    pub(super) fn allow(&self, streams_max: usize) {
        self.state().streams_max = is_told(streams_max).then_some(streams_max);
        self.allowed.notify_waiters();
    }

    /// Whether one who sits here may begin. Before the peer has said anything, the one who dialled may: a peer that
    /// allows none says so by refusing it.
    pub(super) fn may_begin(&self) -> bool {
        let state = self.state();
        state.streams_max != Some(0) || state.is_shut
    }

    pub(super) fn is_busy(&self) -> bool {
        self.state().taken > 0
    }

    pub(super) fn shut(&self) {
        self.state().is_shut = true;
        self.allowed.notify_waiters();
    }

    /// It is ended by us.
    pub(super) fn end(&self, fate: Fate) {
        self.state().fate = Some(fate);
    }

    /// What ended the streams, if it was us.
    pub(super) fn fate(&self) -> Option<BodyFault> {
        let fate = self.state().fate?;
        Some(match fate {
            Fate::Dead => BodyFault {
                refusal: Refusal::IdleTimeout,
                error_type: ErrorType::ConnectionReadTimeout,
                detail: "the connection is dead: nothing came, and no PING was answered".into(),
            },
            Fate::Flooded => {
                let detail = "the destination keeps the connection busy with frames that carry nothing";
                BodyFault::new(Refusal::ResponseRefused, detail)
            }
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn sit(&mut self) -> Sat {
        if self.is_shut {
            return Sat::Closed;
        }
        // One until the peer has said how many: what it does not allow, it refuses.
        let seats = self.streams_max.unwrap_or(1).min(SEATS_MAX);
        if self.taken >= seats {
            return Sat::Full;
        }
        self.taken += 1;
        Sat::Down
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").field("address", &self.address).field("local", &self.local).finish_non_exhaustive()
    }
}
