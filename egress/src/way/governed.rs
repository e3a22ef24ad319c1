//! A call of a connection: its fields, its credential, its redirects, each hop of which is judged as the first was.

use std::sync::Arc;

use http::HeaderMap;
use listen::{Exchange, Reply};
use outbound::dial::Connect;
use ratelimit::retry_budget::Attempt;

use super::absolute::{Answering, request_body};
use crate::answer::HOPS;
use crate::connections::Entry;
use crate::door::version_of;
use crate::forward::redirect::{HopEnd, HopRecord, hops_field};
use crate::forward::{Answered, HopFault, Passage, Tally};
use crate::governed::{self, Called, Follow, GovernedCall, NotJudged, StaticCredentials};
use crate::no::No;
use crate::serve::{Asking, Going, Terms};
use crate::trace::Trace;
use crate::tunnel::Side;
use crate::{Asked, Call, Egress, SendState};

/// How many redirects a caller wants to be followed; 0 for none.
const FOLLOW: &str = "tidegate-follow-redirects";

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
        let Going { node, identified, asked, judged, cleaned, call, terms } = going;
        let asked_for = exchange.head().get_one(FOLLOW).and_then(|value| std::str::from_utf8(value).ok()?.parse().ok());
        let rule = entry.connection.redirects(asked_for, node.settings.redirects_max.into());
        let (way, authority) = (asked.way, asked.authority.clone());
        let governed = GovernedCall {
            connection: Arc::clone(&entry.connection),
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
        let asking = Asking { node: &node, identified: &identified, entry: Some(entry), terms };
        let mut judge = Judging { egress: self, asking, entry, call: &call, trace };
        let calling = governed::call(&self.parts.forward, &StaticCredentials, &mut judge, &node.names, governed);
        let called = call.drive(exchange, Box::pin(calling).as_mut()).await;
        let Called { result, hops, .. } = called.map_err(|no| trace.so_far(no))?;
        let mut answered: Answered = result.map_err(|fault| of_chain(fault, &hops))?;
        let version = answered.response.version();
        node.names.add_via(answered.response.headers_mut(), version);
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

/// The fault of a call, with the hops that led to it. What the last one's record says is that hop's own.
fn of_chain(fault: HopFault, hops: &[HopRecord]) -> No {
    let was_answered = hops.iter().any(|hop| hop.end.state() == SendState::Response);
    No {
        hop_state: hops.last().map(|hop| hop.end.state()),
        hops: was_answered.then(|| Box::new(hops_field(hops))),
        ..No::from(fault)
    }
}

/// Judges the hops of one call, and writes a record for each.
struct Judging<'c, C> {
    egress: &'c Egress<C>,
    asking: Asking<'c>,
    entry: &'c Entry,
    call: &'c Call,
    trace: &'c mut Trace,
}

impl<C: Connect + 'static> governed::Judge for Judging<'_, C>
where
    C::Stream: Side + 'static,
{
    async fn judge(&mut self, _hop: u16, asked: &Asked, is_trusted: bool) -> Result<Passage, NotJudged> {
        self.trace.next_hop();
        self.trace.asks(asked);
        if let Some(running) = self.call.running() {
            running.moves_to(&asked.authority);
        }
        // The call is one attempt, however many hops it has: the first one was counted.
        let terms = Terms { attempt: Attempt::AfterPark, ..self.asking.terms };
        match self.egress.judge(&Asking { terms, ..self.asking }, asked, self.trace).await {
            Ok(judged) => Ok(own_tls(judged.passage, self.entry, asked, is_trusted)),
            Err(no) => Err(NotJudged { refusal: no.refusal, detail: no.detail, park: no.park }),
        }
    }

    fn answered(&mut self, headers: &HeaderMap) {
        self.trace.is_known_as(self.entry.connection.provider_ids(headers));
    }

    fn sends(&mut self, tally: &Arc<Tally>) {
        self.trace.is_sending(tally);
    }

    fn ended(&mut self, hop: &HopRecord) {
        if let HopEnd::Answered { status, went } = &hop.end {
            self.trace.went_by(went);
            self.trace.record_mut().status = Some(status.as_u16());
            self.trace.record_mut().send_state = SendState::Response;
        }
    }
}
