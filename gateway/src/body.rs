//! Steps 2 and 3 as the path needs them: whether a source is heard, and the exact bytes of what it sends.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use bytes::Bytes;
use domain::Refusal;
use listen::Exchange;
use ratelimit::{Reservation, Source};

use crate::Gateway;
use crate::accept::No;
use crate::answer::Refused;
use crate::endpoint::Endpoint;
use crate::source;

/// A delivery that has been read whole, with the moment and the address that it is judged by from here on.
#[derive(Debug)]
pub(crate) struct Delivery {
    pub(crate) body: Bytes,
    /// The body's share of the bytes in flight; given back when the delivery has been answered.
    _reservation: Reservation,
    pub(crate) received_unix_ms: u64,
    /// The same moment on the clock that does not step.
    pub(crate) received_at: Duration,
    /// The socket's peer with the source's address: the port is only known where they are the same.
    pub(crate) source: SocketAddr,
}

impl Gateway {
    /// Only failed verifications and bodies that never came whole spend this budget, and a source that verified of late has one of its own.
    pub(crate) fn hears(&self, source: IpAddr, endpoint: &Endpoint) -> Result<(), No> {
        self.parts.unauthenticated.admits(Source::of(source), endpoint.subject().as_u64()).map_err(|throttled| {
            No::because(Refused::from(Refusal::SourceThrottled).after(throttled.retry_after), "too many failures")
        })
    }

    pub(crate) async fn read_body(
        &self,
        exchange: &mut Exchange,
        source: IpAddr,
        endpoint: &Endpoint,
    ) -> Result<Delivery, No> {
        let default = endpoint.snapshot().settings.body_bytes_max;
        let bytes_max = endpoint.settings().body_bytes_max().unwrap_or(default);
        let mut reservation =
            self.parts.in_flight.reserve(endpoint.subject().as_u64(), 0).map_err(|_| Refusal::Overloaded)?;
        let read = exchange.body(bytes_max, &mut |bytes| reservation.grow(bytes).is_ok()).await;
        let body = read.map_err(|refusal| {
            // A body that never comes whole proves nothing and holds memory meanwhile: it costs its source what a failed
            // verification does.
            if matches!(refusal, Refusal::BodyTimeout | Refusal::MalformedRequest) {
                self.parts.unauthenticated.failed(Source::of(source), endpoint.subject().as_u64());
            }
            if refusal == Refusal::MalformedRequest {
                No::because(refusal, exchange.why_malformed())
            } else {
                No::from(refusal)
            }
        })?;
        Ok(Delivery {
            body,
            _reservation: reservation,
            received_unix_ms: self.parts.clock.unix_ms(),
            received_at: self.parts.clock.monotonic(),
            source: SocketAddr::new(source, exchange.peer().port()),
        })
    }
}

impl Endpoint {
    pub(crate) fn takes_method(&self, method: &str) -> Result<(), No> {
        let scheme = self.scheme();
        let taken = scheme.takes(method) || scheme.handshakes().iter().any(|handshake| handshake.method() == method);
        if taken { Ok(()) } else { Err(self.other_method()) }
    }

    /// The refusal of a method by which neither a delivery nor such a handshake comes.
    pub(crate) fn other_method(&self) -> No {
        let scheme = self.scheme();
        let mut methods = scheme.methods().to_vec();
        for handshake in scheme.handshakes() {
            if !methods.contains(&handshake.method()) {
                methods.push(handshake.method());
            }
        }
        Refused::from(Refusal::MethodNotAllowed).with("allow", methods.join(", ")).into()
    }

    /// The provider's published addresses, where the endpoint lists them.
    pub(crate) fn takes_source(&self, address: IpAddr) -> Result<(), No> {
        let sources = self.settings().sources();
        if sources.is_empty() || source::listed(sources, address) {
            return Ok(());
        }
        Err(No::because(Refusal::SourceNotAllowed, "the source is not in the endpoint's list of addresses"))
    }
}
