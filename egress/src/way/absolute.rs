//! Absolute-form: the request goes on, cleaned, and its answer comes back, cleaned. Redirects are the caller's to
//! follow.

use std::pin::pin;
use std::sync::Arc;

use http_body_util::BodyExt;
use listen::{BodyError, Ending, Exchange, Reply, Streamed};
use outbound::Authority;
use outbound::dial::Connect;

use crate::answer::{CORRELATION_ID, RETRY_BUDGET, SEND_STATE, put, tell_park};
use crate::caller::Identified;
use crate::door::version_of;
use crate::forward::headers::Cleaned;
use crate::forward::{Answered, BodyFault, Hop, RequestBody, Tally};
use crate::metrics::UnderWay;
use crate::no::No;
use crate::quota::take_note;
use crate::running::Carries;
use crate::serve::Going;
use crate::snapshot::Snapshot;
use crate::trace::Trace;
use crate::tunnel::Side;
use crate::{Call, Egress, Refusal, SendState, Stop};

/// What an answer goes on with.
pub(super) struct Answering<'n> {
    pub(super) node: &'n Snapshot,
    pub(super) identified: Identified,
    pub(super) authority: Authority,
    /// Counted until the answer has ended.
    pub(super) kept: (Call, UnderWay),
}

impl<C: Connect + 'static> Egress<C>
where
    C::Stream: Side + 'static,
{
    pub(crate) async fn pass_on(&self, going: Going, exchange: &mut Exchange, trace: &mut Trace) -> Result<Reply, No> {
        let Going { node, identified, asked, judged, cleaned, call, .. } = going;
        let Cleaned { mut headers, upgrade } = cleaned;
        node.names.introduce(&mut headers, version_of(exchange.head()), &trace.correlation, None);
        let (way, authority, noted) = (asked.way, asked.authority.clone(), asked.clone());
        let tally = Arc::<Tally>::default();
        let hop = Hop {
            asked,
            tenant: identified.caller.tenant.clone(),
            connection: None,
            passage: judged.passage,
            headers,
            credential_query: None,
            body: request_body(&node, exchange)?,
            upgrade,
            waits: node.settings.waits.clone(),
            bounds: node.settings.bounds,
            tally: Arc::clone(&tally),
        };
        let under_way = trace.ends().metrics.begin(way);
        trace.is_sending(&tally);
        let sending = self.parts.forward.send(hop);
        let mut answered = call.drive(exchange, pin!(sending)).await.map_err(|no| trace.so_far(no))??;
        answered.park = take_note(&noted, &mut answered).await;
        trace.went(&answered.went);
        let version = answered.response.version();
        node.names.add_via(answered.response.headers_mut(), version);
        Ok(self.answer(Answering { node: &node, identified, authority, kept: (call, under_way) }, answered, trace))
    }

    /// Gives an answer to the caller: as it comes, or as a connection that speaks another protocol now.
    pub(super) fn answer(&self, answering: Answering<'_>, answered: Answered, trace: &mut Trace) -> Reply {
        let Answered { mut response, went, tally, upgraded, permit, park } = answered;
        let running = answering.kept.0.running().cloned();
        if let Some(running) = &running {
            running.leaves_from(went.local.ip());
        }
        trace.record_mut().status = Some(response.status().as_u16());
        trace.record_mut().send_state = SendState::Response;
        put(response.headers_mut(), CORRELATION_ID, &trace.correlation.to_string());
        put(response.headers_mut(), SEND_STATE, SendState::Response.as_str());
        if let Some(left) = permit.retries_left() {
            response.headers_mut().insert(RETRY_BUDGET, left.into());
        }
        if let Some(park) = &park {
            tell_park(&mut response, park);
        }
        if let Some(upgraded) = upgraded {
            let (head, _) = response.into_parts();
            return self.switch(answering, (head, upgraded), permit, trace);
        }
        if let Some(running) = &running {
            running.carries(Carries::Answer(Arc::clone(&tally)));
        }
        // Slots of concurrency come free with the end of the answer.
        let (trace, kept) = (trace.carry_on(), (answering.kept, permit));
        let mut streamed = Streamed::new(response);
        if let Some(running) = running {
            streamed = streamed.halted_by(running);
        }
        let streamed = streamed.on_end(move |ended| {
            let stopped = kept.0.0.running().and_then(|running| running.stopped());
            let failed = tally.end().and_then(|end| end.as_ref().err());
            match (ended.how, failed) {
                (Ending::Halted, _) => {
                    let stop = stopped.unwrap_or(Stop::Closed);
                    trace.ended(stop.refusal().code(), stop.detail());
                }
                (_, Some(fault)) => trace.ended(fault.refusal.code(), &fault.detail),
                (Ending::Whole, None) => match &park {
                    None => trace.ended("done", ""),
                    Some(park) => trace.ended(park.by.refusal().code(), &park.detail),
                },
                (Ending::ClientStalled, None) => trace.ended("caller-stalled", "the caller did not take its answer"),
                (Ending::BodyIdle, None) => trace.ended(Refusal::IdleTimeout.code(), "the answer stopped coming"),
                (Ending::ClientGone | Ending::Dropped | Ending::BodyFailed, None) => {
                    trace.lost("the caller hung up before the end of its answer");
                }
            }
            drop(kept);
        });
        streamed.into()
    }
}

/// The caller's body, as it comes.
pub(super) fn request_body(node: &Snapshot, exchange: &mut Exchange) -> Result<RequestBody, No> {
    let body = exchange.body_stream(node.settings.bounds.request_bytes_max)?;
    Ok(body.map_err(fault_of_caller).boxed_unsync())
}

fn fault_of_caller(error: BodyError) -> BodyFault {
    match error {
        BodyError::Refused(refusal) => {
            let no = No::from(refusal);
            BodyFault::new(no.refusal, refusal.title())
        }
        BodyError::Gone => BodyFault::new(Refusal::RequestTimeout, "the caller hung up within its body"),
        BodyError::GivenUp => BodyFault::new(Refusal::Internal, "nobody waits for the body any more"),
    }
}
