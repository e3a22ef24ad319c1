//! One stream: where an exchange's body comes from, and where its answer goes.

use std::io;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use domain::Refusal;
use h2::server::SendResponse;
use h2::{FlowControl, Reason, RecvStream, SendStream};
use http::{HeaderMap, Response, StatusCode};

use super::Tunnel;
use super::meter::{HEAD_EARNS, Meter, PART_EARNS};
use super::tunnel::Resets;
use crate::gate::{Cut, Seen};
use crate::outbox::Outbox;

/// What is handed to the codec at a time: as much as it buffers.
const PART_BYTES: usize = 64 * 1024;

/// See the module's essay.
pub(crate) struct Stream {
    /// None once nobody wants more of it.
    recv: Option<Incoming>,
    send: Send,
    meter: Meter,
    resets: Resets,
    /// Of the body, what has been given away.
    given: u64,
}

/// What its client sends, while somebody takes it; what is given up is told to the meter.
pub(super) struct Incoming {
    recv: RecvStream,
    meter: Meter,
}

impl Incoming {
    /// What the next frame of DATA held; None behind the last.
    pub(super) fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, h2::Error>>> {
        let data = ready!(self.recv.poll_data(cx));
        if let Some(Ok(data)) = &data {
            self.meter.took(data.len());
        }
        Poll::Ready(data)
    }

    pub(super) fn flow_control(&mut self) -> &mut FlowControl {
        self.recv.flow_control()
    }
}

impl Drop for Incoming {
    fn drop(&mut self) {
        if !self.recv.is_end_stream() {
            self.meter.gave_up();
        }
    }
}

/// How far the answer has come.
enum Send {
    Head(SendResponse<Bytes>),
    Body(SendStream<Bytes>),
    Over,
}

impl Stream {
    pub(super) fn new(recv: RecvStream, respond: SendResponse<Bytes>, meter: Meter, resets: Resets) -> Self {
        let recv = Incoming { recv, meter: meter.clone() };
        Self { recv: Some(recv), send: Send::Head(respond), meter, resets, given: 0 }
    }

    /// Has all of the body been taken?
    pub(crate) fn is_done(&self) -> bool {
        self.recv.as_ref().is_none_or(|incoming| incoming.recv.is_end_stream())
    }

    /// Nobody wants more of the body: what lies here of it is dropped, and so is what comes.
    pub(crate) fn let_go(&mut self) {
        self.recv = None;
    }

    /// Has the client begun to send its body?
    pub(crate) fn has_begun(&mut self) -> bool {
        self.given > 0 || self.recv.as_mut().is_some_and(|incoming| incoming.flow_control().used_capacity() > 0)
    }

    /// The next part of the body; None behind the last. The codec sees to `Content-Length`: a body of another length breaks
    /// the stream. Its window is moved by what is given away here, and by nothing else.
    pub(crate) fn poll_part(&mut self, cx: &mut Context<'_>, data_max: u64) -> Poll<Result<Option<Bytes>, Cut>> {
        let Some(recv) = &mut self.recv else { return Poll::Ready(Ok(None)) };
        loop {
            let Some(data) = ready!(recv.poll_data(cx)) else { return Poll::Ready(Ok(None)) };
            let Ok(data) = data else { return Poll::Ready(Err(Cut::Gone)) };
            self.given += data.len() as u64;
            if self.given > data_max {
                return Poll::Ready(Err(Cut::Refused(Refusal::BodyTooLarge)));
            }
            if recv.flow_control().release_capacity(data.len()).is_err() {
                return Poll::Ready(Err(Cut::Gone));
            }
            if !data.is_empty() {
                return Poll::Ready(Ok(Some(data)));
            }
        }
    }

    /// Looks after a client from which nothing is expected. It has gone when it resets the stream or loses its connection;
    /// that it has sent all that it sends says nothing.
    pub(crate) fn poll_watch(&mut self, cx: &mut Context<'_>) -> Poll<Seen> {
        let reset = match &mut self.send {
            Send::Head(respond) => respond.poll_reset(cx),
            Send::Body(send) => send.poll_reset(cx),
            Send::Over => return Poll::Pending,
        };
        reset.map(|_| Seen::Gone)
    }

    /// Asks for the body (RFC 9110, §15.2.1).
    pub(crate) fn invite(&mut self) -> io::Result<()> {
        let Send::Head(respond) = &mut self.send else { return Ok(()) };
        let mut invitation = Response::new(());
        *invitation.status_mut() = StatusCode::CONTINUE;
        respond.send_informational(invitation).map_err(io::Error::other)
    }

    /// Sends the head of the answer; `last` where nothing is behind it. False where that cannot be: the client has gone.
    pub(crate) fn send_head(&mut self, status: StatusCode, headers: HeaderMap, last: bool) -> bool {
        let Send::Head(respond) = &mut self.send else { return false };
        let mut head = Response::new(());
        (*head.status_mut(), *head.headers_mut()) = (status, headers);
        let send = match respond.send_response(head, last) {
            Ok(send) => send,
            Err(error) => {
                tracing::debug!(%error, "an answer's head could not be sent");
                return false;
            }
        };
        // What is answered after its client has reset it earns nothing.
        self.meter.earn(HEAD_EARNS);
        self.send = if last { Send::Over } else { Send::Body(send) };
        true
    }

    /// Sends some of what waits, as much as the client's windows take, and says how much.
    pub(crate) fn poll_send(&mut self, cx: &mut Context<'_>, outbox: &mut Outbox) -> Poll<io::Result<usize>> {
        let Send::Body(send) = &mut self.send else { return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into())) };
        let most = ready!(poll_room(send, cx, outbox.len().min(PART_BYTES)))?;
        let part = outbox.take(most);
        let sent = part.len();
        send.send_data(part, false).map_err(io::Error::other)?;
        self.meter.earn(PART_EARNS);
        Poll::Ready(Ok(sent))
    }

    /// Ends the answer, which is whole.
    pub(crate) fn finish(&mut self, trailers: Option<HeaderMap>) -> io::Result<()> {
        let Send::Body(mut send) = std::mem::replace(&mut self.send, Send::Over) else { return Ok(()) };
        let ended = match trailers {
            Some(trailers) => send.send_trailers(trailers),
            None => send.send_data(Bytes::new(), true),
        };
        ended.map_err(io::Error::other)
    }

    /// Ends it so that the client sees that it is not whole.
    pub(crate) fn reset(&mut self) {
        match &mut self.send {
            Send::Head(respond) => respond.send_reset(Reason::INTERNAL_ERROR),
            Send::Body(send) => send.send_reset(Reason::INTERNAL_ERROR),
            Send::Over => {}
        }
    }

    /// What follows is a tunnel's. None where the head of its answer was not sent.
    pub(crate) fn into_tunnel(self) -> Option<Tunnel> {
        let Self { recv, send, meter, resets, .. } = self;
        if let Send::Body(send) = send { Some(Tunnel::new(recv?, send, meter, resets)) } else { None }
    }
}

/// Waits until some of `wanted` bytes may be sent, and says how many.
pub(super) fn poll_room(send: &mut SendStream<Bytes>, cx: &mut Context<'_>, wanted: usize) -> Poll<io::Result<usize>> {
    send.reserve_capacity(wanted);
    let room = match send.capacity() {
        0 => match ready!(send.poll_capacity(cx)) {
            Some(Ok(room)) => room,
            Some(Err(error)) => return Poll::Ready(Err(io::Error::other(error))),
            None => return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into())),
        },
        room => room,
    };
    Poll::Ready(Ok(room.min(wanted)))
}
