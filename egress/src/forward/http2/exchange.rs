//! One request and its answer over one stream.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

use http::{Request, Response, StatusCode};
use tokio::time::{Instant, timeout};

use super::PATIENCE;
use super::connection::Connection;
use super::stream::{NotBegun, Stream};
use crate::forward::body::BodyFault;
use crate::forward::download::{self, Begun, Download};
use crate::forward::exchange::{Exchange, Failed, Way};
use crate::forward::fault::{self, HopFault};
use crate::forward::patience::Patience;
use crate::forward::source::Source;
use crate::forward::upload::Upload;
use crate::forward::{Answered, Went, framing, headers};
use crate::pool::Seat;
use crate::{HttpVersion, Refusal, SendState};

impl Exchange {
    /// Over this connection, beside others.
    pub(in crate::forward) async fn run_beside(
        &self,
        seat: Seat<Connection>,
        way: Way,
        request: Request<Upload>,
    ) -> Result<Answered, Failed> {
        let began = Instant::now();
        let failed = |fault, state| Failed::Fault(HopFault::of(fault, state, Some(way.tried())));
        self.await_leave(&seat).await.map_err(|fault| failed(fault, SendState::NotSent))?;
        self.may_begin(&way).await?;
        let mut stream = Stream::begin(seat, request).map_err(|why| match why {
            NotBegun::Closed(request) => Failed::NotBegun(request),
            NotBegun::Fault(fault) => failed(fault, SendState::NotSent),
        })?;
        let mut patience = Patience::new(self.end, self.waits.idle);
        let head = self.head_beside(&mut stream, &mut patience).await;
        let head = head.map_err(|(fault, state)| failed(fault, state))?;
        let first_byte = began.elapsed();
        patience.renew();
        let response = self.receive_beside(head, stream, patience).await;
        let response = response.map_err(|fault| failed(fault, SendState::Response))?;
        let Way { address, local, pooled, connect, tls } = way;
        let went = Went { address, local, pooled, version: HttpVersion::Http2, connect, tls, first_byte };
        Ok(self.answered(response, went, None))
    }

    /// A peer that allows no stream at all may allow some in a moment.
    async fn await_leave(&self, seat: &Seat<Connection>) -> Result<(), BodyFault> {
        let gate = &seat.share().gate;
        let leave = async {
            loop {
                let allowed = gate.allowed.notified();
                if gate.may_begin() {
                    return;
                }
                allowed.await;
            }
        };
        timeout(PATIENCE, leave).await.map_err(|_| {
            BodyFault::new(Refusal::ConnectTimedOut, "the destination allows no stream on this connection")
        })
    }

    async fn head_beside(
        &self,
        stream: &mut Stream,
        patience: &mut Patience,
    ) -> Result<Response<()>, (BodyFault, SendState)> {
        poll_fn(|cx| {
            if stream.poll_upload(cx) {
                patience.renew();
            }
            let polled = stream.poll_head(cx);
            // Read by what went into the stream, and not by what the caller gave: a piece that is still here is not there.
            let is_whole = self.tally.is_sent() && !stream.is_cut();
            let state = if is_whole { SendState::SentNoResponse } else { SendState::PartiallySent };
            match polled {
                Poll::Ready(Ok(head)) => return Poll::Ready(Ok(head)),
                Poll::Ready(Err(ended)) => {
                    let state = if ended.is_unprocessed { SendState::NotSent } else { state };
                    let fault = self.tally.sent_fault().cloned().unwrap_or(ended.fault);
                    return Poll::Ready(Err((fault, state)));
                }
                Poll::Pending => {}
            }
            let has_sent = stream.has_sent() || is_whole;
            let allowed = if has_sent { self.waits.first_byte } else { self.waits.idle };
            let expired = patience.poll(cx, allowed);
            expired.map(|expired| Err((fault::of_wait(expired, has_sent, self.tally.is_waiting()), state)))
        })
        .await
    }

    async fn receive_beside(
        &self,
        response: Response<()>,
        stream: Stream,
        patience: Patience,
    ) -> Result<Response<Download>, BodyFault> {
        let (mut head, ()) = response.into_parts();
        if !stream.connection().head.hold(&head.headers) {
            return Err(BodyFault::new(Refusal::ResponseRefused, "its head is too large"));
        }
        if head.status == StatusCode::SWITCHING_PROTOCOLS {
            return Err(BodyFault::new(Refusal::ResponseRefused, "it switches protocols, which HTTP/2 does not do"));
        }
        let framing = framing::check(&mut head, &self.method, false)?;
        headers::clean_response(&mut head.headers);
        let bytes_max = self.bounds.response_bytes_max;
        if framing.length.is_some_and(|length| length > bytes_max) {
            return Err(download::too_large(bytes_max));
        }
        let begun = Begun {
            tally: Arc::clone(&self.tally),
            bytes_max,
            length: framing.length,
            patience,
            idle: self.waits.idle,
        };
        let mut body = Download::new(Source::beside(stream), begun);
        poll_fn(|cx| {
            body.poll_begin(cx);
            Poll::Ready(())
        })
        .await;
        Ok(Response::from_parts(head, body))
    }
}
