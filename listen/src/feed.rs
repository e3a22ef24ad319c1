//! Feeds a request's body to its reader, out of the gate or a stream and as fast as that reader takes it.

use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::BytesMut;
use domain::Refusal;

use crate::connection::Socket;
use crate::gate::Cut;
use crate::observer::Phase;
use crate::outbox::Outbox;
use crate::pace::Pace;
use crate::request_body::{BodyError, Pipe, Room};
use crate::source::Source;

/// How far a body has been fed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fed {
    /// Not to its end.
    Part,
    /// All of it has been given away.
    Whole,
    /// There is nothing more to be had of it.
    Failed(BodyError),
    /// Nobody wants the rest.
    Unwanted,
}

/// One body that is fed. Whoever polls it and stops has lost nothing.
#[derive(Debug)]
pub(crate) struct Feed {
    pipe: Arc<Pipe>,
    fed: Fed,
    /// The client waits to be asked for the body.
    uninvited: bool,
    /// Of the invitation, what is not written yet.
    invitation: Outbox,
    space: BytesMut,
    bytes_max: u64,
    pace: Pace,
}

impl Feed {
    /// `invite`: the client waits for `100 Continue`.
    pub(crate) fn new(pipe: Arc<Pipe>, bytes_max: u64, invite: bool, pace: Pace) -> Self {
        Self {
            pipe,
            fed: Fed::Part,
            uninvited: invite,
            invitation: Outbox::default(),
            space: BytesMut::new(),
            bytes_max,
            pace,
        }
    }

    pub(crate) fn fed(&self) -> Fed {
        self.fed
    }

    /// Does anybody want the rest?
    pub(crate) fn is_wanted(&self) -> bool {
        self.fed == Fed::Part && !self.pipe.is_reader_gone()
    }

    /// Bytes that have been fed.
    pub(crate) fn bytes(&self) -> u64 {
        self.pace.bytes()
    }

    /// The answer begins: there is no invitation any more. False where one is half written, and nothing can be behind it.
    pub(crate) fn stop_inviting(&mut self) -> bool {
        self.uninvited = false;
        self.invitation.is_out()
    }

    /// Feeds as much as there is and as is wanted. Ready when there is nothing more to feed.
    pub(crate) fn poll(&mut self, source: &mut Source, socket: &mut Socket, cx: &mut Context<'_>) -> Poll<Fed> {
        while self.fed == Fed::Part {
            let Poll::Ready(room) = self.pipe.poll_room(cx) else {
                self.pace.pause();
                return Poll::Pending;
            };
            let step = match room {
                Room::Never => Ok(Fed::Unwanted),
                Room::Yes => ready!(self.poll_step(source, socket, cx)),
            };
            self.fed = step.unwrap_or_else(Fed::Failed);
            match self.fed {
                Fed::Part => {}
                Fed::Whole | Fed::Unwanted => self.pipe.end(Ok(())),
                Fed::Failed(error) => self.pipe.end(Err(error)),
            }
        }
        Poll::Ready(self.fed)
    }

    fn poll_step(
        &mut self,
        source: &mut Source,
        socket: &mut Socket,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Fed, BodyError>> {
        if std::mem::take(&mut self.uninvited) && !source.has_begun() {
            source.invite(&mut self.invitation);
        }
        let (part, phase) = match self.poll_invite(source, cx) {
            Poll::Ready(Ok(())) => (source.poll_part(cx, &mut self.space, self.bytes_max), Phase::Body),
            Poll::Ready(Err(_)) => (Poll::Ready(Err(Cut::Gone)), Phase::Write),
            Poll::Pending => (Poll::Pending, Phase::Write),
        };
        let Poll::Ready(part) = part else {
            ready!(socket.timer.poll_elapsed(self.pace.deadline(), cx));
            socket.site.observer.timed_out(phase);
            return Poll::Ready(Err(BodyError::Refused(Refusal::BodyTimeout)));
        };
        self.pace.pause();
        Poll::Ready(match part {
            Ok(Some(part)) => {
                self.pace.came(part.len() as u64);
                self.pipe.push(part);
                Ok(Fed::Part)
            }
            Ok(None) => Ok(Fed::Whole),
            Err(Cut::Refused(refusal)) => Err(BodyError::Refused(refusal)),
            Err(Cut::Gone) => Err(BodyError::Gone),
        })
    }

    fn poll_invite(&mut self, source: &mut Source, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        while !self.invitation.is_empty() {
            ready!(source.poll_write(cx, &mut self.invitation))?;
        }
        if self.invitation.is_out() { Poll::Ready(Ok(())) } else { source.poll_flush(cx, &mut self.invitation) }
    }
}

impl Drop for Feed {
    fn drop(&mut self) {
        self.pipe.end(Err(BodyError::GivenUp));
    }
}
