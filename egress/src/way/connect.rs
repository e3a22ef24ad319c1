//! CONNECT: dial first, then hand the connection over. A caller gets its `200` only when there is somebody to speak to.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, StatusCode};
use listen::{Exchange, Raw, Reply, Takeover};
use outbound::dial::Connect;
use ratelimit::breaker::Outcome;
use tokio::time::Instant;

use super::instant_of;
use crate::answer::{CORRELATION_ID, put};
use crate::forward::HopFault;
use crate::no::No;
use crate::running::Carries;
use crate::serve::{Going, Judged};
use crate::trace::Trace;
use crate::tunnel::{Bounds, Content, Enforcement, Side, Tunnel};
use crate::{Egress, Way};

impl Side for Raw {
    fn abort(&mut self) {
        Self::abort(self);
    }
}

impl<C: Connect + 'static> Egress<C>
where
    C::Stream: Side + 'static,
{
    pub(crate) async fn tunnel(&self, going: Going, exchange: &mut Exchange, trace: &mut Trace) -> Result<Reply, No> {
        let Going { node, identified, asked, judged: Judged { passage, sni }, call, .. } = going;
        let began = Instant::now();
        let dialling = self.parts.dialer.dial(&passage.vetted, &passage.exit);
        let dialled = call.drive(exchange, pin!(dialling)).await?;
        let dialled = dialled.map_err(|fault| HopFault::of_dial(&fault, &passage));
        let dialled = dialled.inspect_err(|fault| passage.permit.failed(fault))?;
        passage.permit.ended(Outcome::Answered);
        trace.connected(dialled.address.socket(), dialled.local.ip(), began.elapsed(), Duration::ZERO);
        trace.ends().metrics.connected(false);

        let now_unix_ms = trace.ends().clock.unix_ms();
        let until = identified.caller.until_unix_ms.map(|until| instant_of(until, now_unix_ms));
        let tunnel = Tunnel {
            host: asked.authority.host().clone(),
            content: Content::Tls(sni),
            enforcement: Enforcement::from(sni),
            bounds: Bounds { until, ..node.settings.tunnel.clone() },
        };
        let open = self.parts.tunnels.open(trace.correlation);
        if let Some(running) = call.running() {
            running.leaves_from(dialled.local.ip());
            running.carries(Carries::Tunnel(Arc::clone(open.live())));
        }
        let mut headers = HeaderMap::new();
        put(&mut headers, CORRELATION_ID, &trace.correlation.to_string());
        let mut trace = trace.carry_on();
        trace.goes_through(open.live());
        let under_way = trace.ends().metrics.begin(Way::Connect);
        let destination = dialled.stream;
        Ok(Takeover::new(StatusCode::OK, headers, move |raw: Raw| async move {
            let ended = tunnel.run(raw, destination, &open).await;
            if let Some(mismatch) = &ended.reported {
                trace.would_refuse(mismatch);
            }
            trace.tunnel_ended(&ended.end);
            drop((open, call, under_way));
        })
        .into())
    }
}
