//! A call of a connection: its fields, its credential, its redirects, each hop of which is judged as the first was.

use http::HeaderMap;
use listen::{Exchange, Reply};
use outbound::dial::Connect;

use super::absolute::{Answering, request_body};
use crate::caller::Identified;
use crate::connections::Entry;
use crate::door::version_of;
use crate::forward::redirect::{HopEnd, HopRecord, hops_field};
use crate::forward::{Answered, Passage};
use crate::governed::{self, Called, Follow, GovernedCall, NotJudged, StaticCredentials};
use crate::no::No;
use crate::serve::Going;
use crate::snapshot::Snapshot;
use crate::trace::Trace;
use crate::tunnel::Side;
use crate::{Asked, Egress};

/// How many redirects a caller wants to be followed; 0 for none.
const FOLLOW: &str = "tidegate-follow-redirects";
/// Which hops there were.
const HOPS: http::HeaderName = http::HeaderName::from_static("tidegate-hops");

/// A body that declares no more is kept, to be sent again where a redirect asks for it.
const KEPT_BYTES_MAX: u64 = 1 << 20;

impl<C: Connect + 'static> Egress<C>
where
    C::Stream: Side + 'static,
{
    pub(crate) async fn call(
        &self,
        entry: &Entry,
        going: Going,
        exchange: &mut Exchange,
        trace: &mut Trace,
    ) -> Result<Reply, No> {
        let Going { node, identified, asked, judged, cleaned, call } = going;
        let asked_for = exchange.head().get_one(FOLLOW).and_then(|value| std::str::from_utf8(value).ok()?.parse().ok());
        let rule = entry.connection.redirects(asked_for, node.settings.redirects_max.into());
        let (way, authority) = (asked.way, asked.authority.clone());
        let governed = GovernedCall {
            connection: std::sync::Arc::clone(&entry.connection),
            tenant: identified.caller.tenant.clone(),
            correlation: trace.correlation,
            received: version_of(exchange.head()),
            passage: own_tls(judged.passage, entry, &asked, true),
            asked,
            headers: cleaned.headers,
            upgrade: cleaned.upgrade,
            body: request_body(&node, exchange)?,
            follow: rule.map(|rule| Follow { rule, body_bytes_max: KEPT_BYTES_MAX }),
            waits: node.settings.waits.clone(),
            bounds: node.settings.bounds,
        };
        let under_way = trace.ends().metrics.begin(way);
        trace.is_sending();
        let mut judge = Judging { egress: self, node: &node, identified: &identified, entry, trace };
        let calling = governed::call(&self.parts.forward, &StaticCredentials, &mut judge, &node.names, governed);
        let Called { result, hops, .. } = exchange.drive(Box::pin(calling)).await.map_err(No::while_sending)?;
        let mut answered: Answered = result?;
        if hops.len() > 1 {
            answered.response.headers_mut().insert(HOPS, hops_field(&hops));
        }
        trace.went(&answered.went);
        Ok(self.answer(Answering { node: &node, identified, authority, kept: (call, under_way) }, answered, trace))
    }
}

/// TLS as the connection has it, for its own provider and for nobody else.
fn own_tls(mut passage: Passage, entry: &Entry, asked: &Asked, is_trusted: bool) -> Passage {
    if let Some(tls) = entry.tls_for(asked, is_trusted) {
        passage.tls = passage.tls.map(|_| tls.clone());
    }
    passage
}

/// Judges the hops of one call, and writes a record for each.
struct Judging<'c, C> {
    egress: &'c Egress<C>,
    node: &'c Snapshot,
    identified: &'c Identified,
    entry: &'c Entry,
    trace: &'c mut Trace,
}

impl<C: Connect + 'static> governed::Judge for Judging<'_, C>
where
    C::Stream: Side + 'static,
{
    async fn judge(&mut self, _hop: u16, asked: &Asked, is_trusted: bool) -> Result<Passage, NotJudged> {
        self.trace.next_hop();
        self.trace.asks(asked);
        match self.egress.judge(self.node, self.identified, asked, self.trace).await {
            Ok(judged) => {
                self.trace.is_sending();
                Ok(own_tls(judged.passage, self.entry, asked, is_trusted))
            }
            Err(no) => Err(NotJudged { refusal: no.refusal, detail: no.detail }),
        }
    }

    fn answered(&mut self, headers: &HeaderMap) {
        self.trace.is_known_as(self.entry.connection.provider_ids(headers));
    }

    fn ended(&mut self, hop: &HopRecord) {
        if let HopEnd::Answered { status, went } = &hop.end {
            self.trace.went_by(went);
            self.trace.record_mut().status = Some(status.as_u16());
            self.trace.record_mut().send_state = crate::SendState::Response;
        }
    }
}
