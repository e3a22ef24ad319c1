//! A governed call: its hops, from the first to the answer.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use domain::TenantId;
use http::{HeaderMap, Version};
use http_body_util::{BodyExt, Full};
use hyper::body::Body as _;
use outbound::dial::Connect;
use tokio::time::{Instant, timeout};

use super::connection::Connection;
use super::credential::{Attached, CredentialFault, Credentials, Head};
use crate::caller::presented::without_parameter;
use crate::forward::headers::Names;
use crate::forward::redirect::{HopEnd, HopRecord, RedirectRule, SentBody, Step, Trail};
use crate::forward::{Answered, BodyFault, Bounds, Forward, Hop, HopFault, Passage, RequestBody, Tally, Waits};
use crate::quota::{Park, take_note};
use crate::{Asked, CorrelationId, Refusal, SendState};

/// Who says yes or no to a hop: the one path of decisions, name and addresses included.
pub trait Judge: Send {
    /// The passage of a hop. `hop` counts from 0, which is judged before the call begins; here it is 1 and more. It is
    /// trusted if it and every one before it went to where the connection's credential is for: others are not shown who
    /// asks ([`Trail::is_trusted`]).
    fn judge(
        &mut self,
        hop: u16,
        asked: &Asked,
        is_trusted: bool,
    ) -> impl Future<Output = Result<Passage, NotJudged>> + Send;

    /// What the provider answers, before anything is taken out of it.
    fn answered(&mut self, _headers: &HeaderMap) {}

    /// A hop goes out now, and this counts its bytes.
    fn sends(&mut self, _tally: &Arc<Tally>) {}

    /// What became of a hop, as soon as it is known: the call may be dropped before it comes back with all of them.
    fn ended(&mut self, _hop: &HopRecord) {}
}

/// A hop that is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotJudged {
    /// What it is called.
    pub refusal: Refusal,
    /// For the operator.
    pub detail: Box<str>,
    /// It is to come again, and when.
    pub park: Option<Box<Park>>,
}

/// How redirects of a call are followed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Follow {
    /// Where to, and how often.
    pub rule: RedirectRule,
    /// A body that declares no more is kept, to be sent again by 307 and 308.
    pub body_bytes_max: u64,
}

/// One call.
#[derive(Debug)]
pub struct GovernedCall {
    pub connection: Arc<Connection>,
    pub tenant: TenantId,
    pub correlation: CorrelationId,
    /// In which version the caller asked.
    pub received: Version,
    /// The first hop, of [`Connection::ask`].
    pub asked: Asked,
    /// What the first hop was given.
    pub passage: Passage,
    /// Cleaned ([`clean_request`](crate::forward::headers::clean_request)); what may travel is left of them here.
    pub headers: HeaderMap,
    pub upgrade: bool,
    pub body: RequestBody,
    /// None: a redirect is the answer.
    pub follow: Option<Follow>,
    /// `total` is for all hops together.
    pub waits: Waits,
    pub bounds: Bounds,
}

/// What came of a call.
#[derive(Debug)]
pub struct Called {
    /// The answer, or why there is none. Its state is that of the whole call: once a hop was answered, it is never said
    /// that nothing was sent.
    pub result: Result<Answered, HopFault>,
    /// Every hop, refused ones too.
    pub hops: Vec<HopRecord>,
    /// The answer is a redirect that would have been followed, if its body could have been sent again.
    pub body_is_gone: bool,
}

/// Makes the call.
pub async fn call<C>(
    forward: &Forward<C>,
    credentials: &dyn Credentials,
    judge: &mut impl Judge,
    names: &Names,
    call: GovernedCall,
) -> Called
where
    C: Connect,
    C::Stream: 'static,
{
    let mut running = Running { began: Instant::now(), hops: Vec::new(), body_is_gone: false };
    let result = running.run(forward, credentials, judge, names, call).await;
    Called { result, hops: running.hops, body_is_gone: running.body_is_gone }
}

/// A call under way, and what is told of it in the end.
struct Running {
    began: Instant,
    hops: Vec<HopRecord>,
    body_is_gone: bool,
}

impl Running {
    async fn run<C>(
        &mut self,
        forward: &Forward<C>,
        credentials: &dyn Credentials,
        judge: &mut impl Judge,
        names: &Names,
        call: GovernedCall,
    ) -> Result<Answered, HopFault>
    where
        C: Connect,
        C::Stream: 'static,
    {
        let GovernedCall { connection, correlation, received, upgrade, follow, waits, bounds, .. } = call;
        let (mut asked, mut passage, mut headers) = (call.asked, call.passage, call.headers);
        connection.admit_request(&mut headers, upgrade);
        let follow = follow.filter(|_| !upgrade);
        let (mut body, mut again) = keep(call.body, follow.as_ref(), &waits).await.map_err(HopFault::before)?;
        let mut trail = follow.map(|follow| Trail::new(follow.rule, &asked));
        for hop in 0_u16.. {
            // Without redirects there is one hop, and nobody who would need them again.
            let own = if trail.is_some() { headers.clone() } else { std::mem::take(&mut headers) };
            let mut head = Head { headers: own, query: None };
            let connector = connection.connector_id().as_str();
            names.introduce(&mut head.headers, received, &correlation, Some(connector));
            let attached = if hop == 0 || trail.as_ref().is_some_and(Trail::is_trusted) {
                credentials.attach(&connection, &asked, &mut head).await
            } else {
                Ok(Attached::Elsewhere)
            };
            let has_credential = attached == Ok(Attached::Yes);
            attached_or_fault(hop, attached).map_err(|fault| self.refuse(judge, hop, &asked, fault))?;
            let tally = Arc::<Tally>::default();
            judge.sends(&tally);
            let next = Hop {
                asked: asked.clone(),
                tenant: call.tenant.clone(),
                connection: Some(connection.id().clone()),
                passage,
                headers: head.headers,
                credential_query: head.query,
                body,
                upgrade,
                waits: self.left_of(&waits),
                bounds,
                tally,
            };
            let mut answered = match forward.send(next).await {
                Ok(answered) => answered,
                Err(fault) => return Err(self.fail(judge, hop, &asked, has_credential, fault)),
            };
            answered.park = take_note(&asked, &mut answered).await;
            let (status, went) = (answered.response.status(), answered.went.clone());
            judge.answered(answered.response.headers());
            self.end(judge, HopRecord::new(hop, &asked, has_credential, HopEnd::Answered { status, went }));
            let step = trail
                .as_mut()
                .map_or(Ok(Step::Answer), |trail| trail.next(&asked, status, answered.response.headers(), again.state));
            let step = step.map_err(|why| refused(&why.to_string()))?;
            let Step::Next(next) = step else {
                self.body_is_gone = step == Step::BodyIsGone;
                connection.admit_response(answered.response.headers_mut(), answered.upgraded.is_some());
                return Ok(answered);
            };
            // Before the next is judged, which ends what is counted of this one.
            drain(answered).await;
            asked = next.asked.clone();
            // What a provider wrote into the place of the credential is not for the next one to see.
            for parameter in connection.parameters() {
                asked.path_and_query = without_parameter(&asked.path_and_query, parameter).into();
            }
            let is_trusted = trail.as_ref().is_some_and(Trail::is_trusted);
            passage =
                judge.judge(hop + 1, &asked, is_trusted).await.map_err(|NotJudged { refusal, detail, park }| {
                    let fault = match park {
                        None => refused(&format!("{refusal}: {detail}")),
                        // The place is allowed, only not now; but something has come of the call by then.
                        Some(park) => HopFault { state: SendState::Response, ..HopFault::of_park(*park, None) },
                    };
                    self.end(judge, HopRecord::new(hop + 1, &asked, false, HopEnd::Refused { refusal, detail }));
                    fault
                })?;
            next.narrow(&mut headers);
            if !next.keeps_body {
                again = Again::nothing();
            }
            body = again.body();
        }
        Err(HopFault::before(BodyFault::new(Refusal::Internal, "there are more hops than can be counted")))
    }

    /// A hop that is not sent, for a reason of ours.
    fn refuse(&mut self, judge: &mut impl Judge, hop: u16, asked: &Asked, fault: BodyFault) -> HopFault {
        let fault = of_whole(hop, HopFault::before(fault));
        let end = HopEnd::Refused { refusal: fault.refusal, detail: fault.detail.clone() };
        self.end(judge, HopRecord::new(hop, asked, false, end));
        fault
    }

    fn end(&mut self, judge: &mut impl Judge, hop: HopRecord) {
        judge.ended(&hop);
        self.hops.push(hop);
    }

    fn fail(
        &mut self,
        judge: &mut impl Judge,
        hop: u16,
        asked: &Asked,
        has_credential: bool,
        fault: HopFault,
    ) -> HopFault {
        let (refusal, state, detail) = (fault.refusal, fault.state, fault.detail.clone());
        let end = HopEnd::Failed { refusal, state, detail };
        self.end(judge, HopRecord::new(hop, asked, has_credential, end));
        of_whole(hop, fault)
    }

    fn left_of(&self, waits: &Waits) -> Waits {
        let total = waits.total.map(|total| total.saturating_sub(self.began.elapsed()));
        Waits { total, ..waits.clone() }
    }
}

fn attached_or_fault(hop: u16, attached: Result<Attached, CredentialFault>) -> Result<(), BodyFault> {
    match attached {
        // The first hop goes to the connection's own place; without its credential it is another call than was asked for.
        Ok(Attached::Elsewhere) if hop == 0 => {
            Err(BodyFault::new(Refusal::Internal, "the connection does not vouch for its own destination"))
        }
        Ok(Attached::Yes | Attached::None | Attached::Elsewhere) => Ok(()),
        Err(fault) => Err(BodyFault::new(Refusal::CredentialUnavailable, fault.to_string())),
    }
}

/// A redirect that is not followed any further. It was an answer, and something may have come of what was asked.
fn refused(detail: &str) -> HopFault {
    HopFault::of(BodyFault::new(Refusal::RedirectRefused, detail.to_owned()), SendState::Response, None)
}

/// Once a hop was answered, a later one that was not sent does not make it as if nothing had been asked.
fn of_whole(hop: u16, mut fault: HopFault) -> HopFault {
    if hop > 0 && matches!(fault.state, SendState::NotSent | SendState::PartiallySent) {
        fault.state = SendState::Response;
    }
    fault
}

/// What there is of a body when a hop is over.
struct Again {
    state: SentBody,
    bytes: Bytes,
}

impl Again {
    fn nothing() -> Self {
        Self { state: SentBody::Empty, bytes: Bytes::new() }
    }

    fn body(&self) -> RequestBody {
        Full::new(self.bytes.clone()).map_err(|never| match never {}).boxed_unsync()
    }
}

/// Reads a body whole that is small enough, where it may be needed again.
async fn keep(body: RequestBody, follow: Option<&Follow>, waits: &Waits) -> Result<(RequestBody, Again), BodyFault> {
    if body.is_end_stream() {
        return Ok((body, Again::nothing()));
    }
    let is_small = |follow: &Follow| body.size_hint().upper().is_some_and(|bytes| bytes <= follow.body_bytes_max);
    if !follow.is_some_and(is_small) {
        return Ok((body, Again { state: SentBody::Gone, bytes: Bytes::new() }));
    }
    let late = |_| BodyFault::new(Refusal::RequestTimeout, "the caller did not send its body in time");
    let whole = timeout(waits.total.unwrap_or(waits.idle), body.collect()).await.map_err(late)??;
    let again = Again { state: SentBody::AtHand, bytes: whole.to_bytes() };
    Ok((again.body(), again))
}

/// What a redirect says beside its head: a page for people. Read, so that the connection can be used again, unless that
/// takes longer than a new one would.
const DRAIN_BYTES_MAX: u64 = 16 << 10;
const DRAIN_TIME_MAX: Duration = Duration::from_millis(100);

async fn drain(answered: Answered) {
    let mut body = answered.response.into_body();
    let read = async {
        while let Some(Ok(_)) = body.frame().await {
            if answered.tally.received_bytes() > DRAIN_BYTES_MAX {
                break;
            }
        }
    };
    // Dropped before its end, it closes the connection.
    let _is_over = timeout(DRAIN_TIME_MAX, read).await;
}
