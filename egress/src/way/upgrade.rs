//! A switch of protocols (WebSocket): from here on a tunnel, with its bounds, its place in the list and its end at the
//! end of the proof.

use std::sync::Arc;

use http::HeaderValue;
use http::header::{CONNECTION, UPGRADE};
use listen::{Raw, Reply, Takeover};
use outbound::dial::Connect;

use super::absolute::Answering;
use super::instant_of;
use crate::Egress;
use crate::forward::Upgraded;
use crate::quota::Permit;
use crate::running::Carries;
use crate::trace::Trace;
use crate::tunnel::{Bounds, Content, Enforcement, Side, Tunnel};

impl Side for Upgraded {}

impl<C: Connect + 'static> Egress<C>
where
    C::Stream: Side + 'static,
{
    pub(super) fn switch(
        &self,
        answering: Answering<'_>,
        (mut head, upgraded): (http::response::Parts, Upgraded),
        permit: Arc<Permit>,
        trace: &mut Trace,
    ) -> Reply {
        let Answering { node, identified, authority, kept } = answering;
        let now_unix_ms = trace.ends().clock.unix_ms();
        let until = identified.caller.until_unix_ms.map(|until| instant_of(until, now_unix_ms));
        let tunnel = Tunnel {
            host: authority.host().clone(),
            // The request said what it was for, and was judged.
            content: Content::Anything,
            enforcement: Enforcement::Refuse,
            bounds: Bounds { until, ..node.settings.tunnel.clone() },
        };
        // They belong to one connection, and were taken out of the answer as such: to this one they are said anew.
        head.headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
        head.headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
        let open = self.parts.tunnels.open(trace.correlation);
        if let Some(running) = kept.0.running() {
            running.carries(Carries::Tunnel(Arc::clone(open.live())));
        }
        let mut trace = trace.carry_on();
        trace.goes_through(open.live());
        Takeover::new(head.status, head.headers, move |raw: Raw| async move {
            let ended = tunnel.run(raw, upgraded, &open).await;
            trace.tunnel_ended(&ended.end);
            // Slots of concurrency are in use for as long as it is open.
            drop((open, kept, permit));
        })
        .into()
    }
}
