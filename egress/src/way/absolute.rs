//! Absolute-form: the request goes on, cleaned, and its answer comes back, cleaned. Redirects are the caller's to
//! follow.

use http_body_util::BodyExt;
use listen::{BodyError, Ending, Exchange, Reply, Streamed};
use outbound::dial::Connect;

use crate::answer::{CORRELATION_ID, put};
use crate::door::version_of;
use crate::forward::headers::{Cleaned, clean_response};
use crate::forward::{Answered, BodyFault, Hop, RequestBody};
use crate::no::No;
use crate::serve::Going;
use crate::snapshot::Snapshot;
use crate::trace::Trace;
use crate::tunnel::Side;
use crate::{Egress, Refusal, SendState};

impl<C: Connect + 'static> Egress<C>
where
    C::Stream: Side + 'static,
{
    pub(crate) async fn pass_on(&self, going: Going, exchange: &mut Exchange, trace: &mut Trace) -> Result<Reply, No> {
        let Going { node, identified, asked, judged, cleaned, call } = going;
        let Cleaned { mut headers, upgrade } = cleaned;
        node.names.introduce(&mut headers, version_of(exchange.head()), &trace.correlation, None);
        let (way, authority) = (asked.way, asked.authority.clone());
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
        };
        let under_way = trace.ends().metrics.begin(way);
        let sending = self.parts.forward.send(hop);
        let Answered { mut response, went, tally, upgraded } = exchange.drive(sending).await??;
        trace.went(&went);
        trace.record_mut().status = Some(response.status().as_u16());
        trace.record_mut().send_state = SendState::Response;

        let version = response.version();
        clean_response(response.headers_mut());
        node.names.add_via(response.headers_mut(), version);
        put(response.headers_mut(), CORRELATION_ID, &trace.correlation.to_string());
        if let Some(upgraded) = upgraded {
            let (head, _) = response.into_parts();
            let kept = (call, under_way);
            return Ok(self.switch(&node, identified, authority, head, upgraded, kept, trace));
        }
        let mut trace = trace.carry_on();
        let streamed = Streamed::new(response).on_end(move |ended| {
            trace.counted(&tally);
            let failed = tally.end().and_then(|end| end.as_ref().err());
            match (ended.how, failed) {
                (_, Some(fault)) => trace.ended(fault.refusal.code(), &fault.detail),
                (Ending::Whole, None) => trace.ended("done", ""),
                (Ending::ClientStalled, None) => trace.ended("caller-stalled", "the caller did not take its answer"),
                (Ending::BodyIdle, None) => trace.ended(Refusal::IdleTimeout.code(), "the answer stopped coming"),
                (Ending::ClientGone | Ending::Dropped | Ending::BodyFailed, None) => {
                    trace.ended("caller-gone", "the caller hung up before the end of its answer");
                }
            }
            drop((call, under_way));
        });
        Ok(streamed.into())
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
