//! One request and its answer over one connection, HTTP/1.1's.

use std::future::{Future, poll_fn};
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use http::{Method, Request, Response, StatusCode};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use outbound::{Dialled, Scheme, TlsClient, VettedAddr};
use tokio::task::yield_now;
use tokio::time::Instant;

use super::body::{BodyFault, Tally};
use super::download::{self, Begun, Download, Home};
use super::fault::{self, HopFault, Tried};
use super::link::Link;
use super::patience::{Patience, Waits};
use super::source::Source;
use super::upload::Upload;
use super::{Answered, Bounds, Hop, Passage, Upgraded, Went, framing, headers, request};
use crate::pool::{Pool, Site};
use crate::{HttpVersion, Refusal, SendState};

/// How a connection came about.
pub(super) struct Way {
    pub(super) address: VettedAddr,
    pub(super) local: SocketAddr,
    pub(super) pooled: bool,
    pub(super) connect: Duration,
    pub(super) tls: Duration,
}

impl Way {
    pub(super) fn pooled(address: VettedAddr, local: SocketAddr) -> Self {
        Self { address, local, pooled: true, connect: Duration::ZERO, tls: Duration::ZERO }
    }

    pub(super) fn tried(&self) -> Tried {
        Tried { address: self.address, exit: Some(self.local.ip()) }
    }

    pub(super) fn dialled<S>(dialled: &Dialled<S>, connect: Duration, tls: Duration) -> Self {
        Self { address: dialled.address, local: dialled.local, pooled: false, connect, tls }
    }
}

/// A hop under way.
pub(super) struct Exchange {
    pub(super) site: Arc<Site>,
    pub(super) passage: Passage,
    pub(super) method: Method,
    upgrade: bool,
    pub(super) waits: Waits,
    pub(super) bounds: Bounds,
    pub(super) tally: Arc<Tally>,
    /// When all of it has to be over.
    pub(super) end: Option<Instant>,
}

/// Why there is no answer.
pub(super) enum Failed {
    /// The connection was closed before the request was begun; here it is again.
    NotBegun(Box<Request<Upload>>),
    Fault(HopFault),
}

impl Exchange {
    /// What is wrong already is said here.
    pub(super) fn of(hop: Hop) -> Result<(Self, Request<Upload>), BodyFault> {
        let Hop { asked, tenant, connection, passage, headers, credential_query, body, .. } = hop;
        let (upgrade, waits, bounds, tally) = (hop.upgrade, hop.waits, hop.bounds, hop.tally);
        let tls = passage.tls.as_ref().map(|tls| if upgrade { tls.without_http2() } else { tls.clone() });
        if asked.authority != *passage.vetted.authority() || passage.tls.is_some() != (asked.scheme == Scheme::Https) {
            return Err(BodyFault::new(Refusal::Internal, "what is asked is not what was decided"));
        }
        let upload = Upload::new(body, Arc::clone(&tally), bounds.request_bytes_max)?;
        let request = request::over_h1(&asked, credential_query.as_ref(), headers, upload, upgrade)?;
        let site = Arc::new(Site {
            tenant,
            connection,
            scheme: asked.scheme,
            authority: asked.authority,
            exit: passage.exit.clone(),
            tls,
        });
        let end = waits.total.map(|total| Instant::now() + total);
        Ok((Self { site, passage, method: asked.method, upgrade, waits, bounds, tally, end }, request))
    }

    /// Whether a connection that is open may be used for it: whether its address would be vetted now.
    pub(super) fn may_use(&self, address: VettedAddr) -> bool {
        let Passage { vetted, rules, openings, .. } = &self.passage;
        rules.still_vetted(vetted.authority(), address, openings).is_ok()
    }

    /// Whether the destination may choose HTTP/2.
    pub(super) fn offers_http2(&self) -> bool {
        self.site.tls.as_ref().is_some_and(TlsClient::offers_http2)
    }

    /// Over this connection.
    pub(super) async fn run(
        &self,
        mut link: Link,
        way: Way,
        request: Request<Upload>,
        pool: &Arc<Pool<Link>>,
    ) -> Result<Answered, Failed> {
        // Others on this thread that are as far have their turn first, and what is sent is sent together: a destination
        // that is awake already is not woken for each request, which costs as much as all that is decided about one.
        yield_now().await;
        self.may_begin(&way).await?;
        let began = Instant::now();
        let written = link.wire.written();
        let mut patience = Patience::new(self.end, self.waits.idle);
        let answer = self.head(&mut link, request, &mut patience).await.map_err(|failed| match failed {
            // hyper gave it back, and the socket says the same.
            HeadFailed::NotBegun(request) if link.wire.written() == written => Failed::NotBegun(request),
            HeadFailed::NotBegun(_) => {
                let why = BodyFault::new(Refusal::ResponseIncomplete, "the destination hung up");
                Failed::Fault(HopFault::of(why, SendState::PartiallySent, Some(way.tried())))
            }
            HeadFailed::Fault(fault) => {
                let state = match (link.wire.written() > written, self.tally.is_sent()) {
                    (false, _) => SendState::NotSent,
                    (true, false) => SendState::PartiallySent,
                    (true, true) => SendState::SentNoResponse,
                };
                Failed::Fault(HopFault::of(fault, state, Some(way.tried())))
            }
        })?;
        let first_byte = began.elapsed();
        patience.renew();
        let answered = self.receive(answer, link, patience, pool).await;
        let (response, upgraded) =
            answered.map_err(|fault| Failed::Fault(HopFault::of(fault, SendState::Response, Some(way.tried()))))?;
        let Way { address, local, pooled, connect, tls } = way;
        let went = Went { address, local, pooled, version: HttpVersion::Http11, connect, tls, first_byte };
        Ok(self.answered(response, went, upgraded))
    }

    /// Nothing is waited for between this and the first byte.
    pub(super) async fn may_begin(&self, way: &Way) -> Result<(), Failed> {
        let permit = &self.passage.permit;
        permit.ready().await.map_err(|park| Failed::Fault(HopFault::of_park(park, Some(way.tried()))))?;
        permit.begins();
        Ok(())
    }

    /// Nothing of the request was written: its units are there again, also if nobody waits for the next connection. Whether
    /// it may have one.
    pub(super) fn may_go_again(&self) -> bool {
        let permit = &self.passage.permit;
        permit.not_sent();
        permit.may_retry()
    }

    pub(super) fn answered(&self, response: Response<Download>, went: Went, upgraded: Option<Upgraded>) -> Answered {
        let (tally, permit) = (Arc::clone(&self.tally), Arc::clone(&self.passage.permit));
        Answered { response, went, tally, upgraded, permit, park: None }
    }

    /// The head of the answer.
    async fn head(
        &self,
        link: &mut Link,
        request: Request<Upload>,
        patience: &mut Patience,
    ) -> Result<Response<Incoming>, HeadFailed> {
        let mut answer = pin!(link.begin(request));
        let mut progress = link.wire.written();
        poll_fn(|cx| {
            let driven = link.poll_drive(cx);
            if let Poll::Ready(answer) = answer.as_mut().poll(cx) {
                return Poll::Ready(answer.map_err(|mut error| {
                    let ours = || self.tally.sent_fault().cloned();
                    match error.take_message() {
                        Some(request) => HeadFailed::NotBegun(Box::new(request)),
                        None => HeadFailed::Fault(ours().unwrap_or_else(|| fault::of_exchange(error.error()))),
                    }
                }));
            }
            if driven.is_ready() {
                let why = BodyFault::new(Refusal::Internal, "the connection ended and nobody said why");
                return Poll::Ready(Err(HeadFailed::Fault(why)));
            }
            let now = link.wire.written();
            if now != progress {
                progress = now;
                patience.renew();
            }
            let is_sent = self.tally.is_sent();
            let allowed = if is_sent { self.waits.first_byte } else { self.waits.idle };
            patience
                .poll(cx, allowed)
                .map(|expired| Err(HeadFailed::Fault(fault::of_wait(expired, is_sent, self.tally.is_waiting()))))
        })
        .await
    }

    /// From a head to an answer that may be given on.
    async fn receive(
        &self,
        answer: Response<Incoming>,
        mut link: Link,
        patience: Patience,
        pool: &Arc<Pool<Link>>,
    ) -> Result<(Response<Download>, Option<Upgraded>), BodyFault> {
        let (mut head, incoming) = answer.into_parts();
        let framing = framing::check(&mut head, &self.method, self.upgrade)?;
        let idle_max = headers::idle_max(&head.headers);
        headers::clean_response(&mut head.headers);
        if framing.length.is_some_and(|length| length > self.bounds.response_bytes_max) {
            return Err(download::too_large(self.bounds.response_bytes_max));
        }
        let begun = Begun {
            tally: Arc::clone(&self.tally),
            bytes_max: self.bounds.response_bytes_max,
            length: framing.length,
            patience,
            idle: self.waits.idle,
        };
        if head.status == StatusCode::SWITCHING_PROTOCOLS {
            let mut response = Response::from_parts(head, ());
            // hyper lets go of the connection as soon as it is driven once more.
            let upgrade = hyper::upgrade::on(&mut response);
            poll_fn(|cx| link.poll_drive(cx)).await;
            let upgraded = upgrade.await.map_err(|error| fault::of_exchange(&error))?;
            return Ok((response.map(|()| Download::none(begun)), Some(TokioIo::new(upgraded))));
        }
        let home = framing.is_reusable.then(|| Home { pool: Arc::clone(pool), site: Arc::clone(&self.site), idle_max });
        let mut body = Download::new(Source::Alone { incoming, link, home }, begun);
        poll_fn(|cx| {
            body.poll_begin(cx);
            Poll::Ready(())
        })
        .await;
        Ok((Response::from_parts(head, body), None))
    }
}

/// Why there is no head.
enum HeadFailed {
    NotBegun(Box<Request<Upload>>),
    Fault(BodyFault),
}
