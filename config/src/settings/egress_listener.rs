//! `[egress.listener]`: the same bounds as the gateway's, for connections that carry a proxy.
//!
//! The keys are the same and most reasons are others: callers are known programs inside, bodies stream through and hold
//! no memory, and a tunnel may last for hours.

use std::time::Duration;

use serde_json::Value;
use toml::Spanned;
use toml::de::DeValue;

use super::Listener;
use crate::document::Document;
use crate::form::{Bytes, Count, Effect, Form, Row, Settings, Span, Table, settings};
use crate::units::{GIB, KIB, seconds};

const MS: Duration = Duration::from_millis(1);

settings! {
    /// The bounds in front of calls.
    struct EgressListener {
        /// Bytes of a request's header section, request line included.
        header_bytes_max: u32 = 64 << 10, Bytes(KIB..=512 * KIB), restart,
            "Twice what the gateway takes: a call may carry a grant beside tokens and cookies of its own.";
        /// Fields of a request's header section.
        header_count_max: u16 = 100, Count(8..=256), restart,
            "Clients send 10 to 30 fields.";
        /// Bytes of a request's target.
        target_bytes_max: u32 = 16 << 10, Bytes(256..=64 * KIB), restart,
            "Twice what RFC 9110 asks for: some APIs take whole queries in the URL.";
        /// From the first byte of a request to the end of its header section, in total.
        header_timeout: Duration = seconds(10), Span(100 * MS..=seconds(300)), restart,
            "Callers are near; the total, not the gap between bytes, is what a dripping client cannot stretch.";
        /// How long a connection may be silent between requests, or before its first one.
        idle_timeout: Duration = seconds(60), Span(100 * MS..=seconds(3600)), restart,
            "Clients keep connections to their proxy for a minute or two and open another one when theirs is gone.";
        /// How long a caller may be waited for until its request's body has come, in total. Time in which the destination takes nothing does not count.
        body_timeout: Duration = seconds(3600), Span(100 * MS..=seconds(3600)), restart,
            "As `egress.limits.total_timeout`: 1 GiB at 2.5 Mbit/s.";
        /// Lowest rate of a request's body, per second, averaged since its grace ended.
        body_rate_min: u32 = 0, Bytes(0..=GIB), restart,
            "0B is none: bodies stream through and hold no memory, and some callers send as they produce.";
        /// How long a body may be below its lowest rate at its start.
        body_rate_grace: Duration = seconds(5), Span(Duration::ZERO..=seconds(300)), restart,
            "A lost packet and its retransmissions take up to 3 s.";
        /// How long a caller may take nothing of an answer that is there. Over HTTP/2, a refusal has `header_timeout` if that is less.
        write_timeout: Duration = seconds(300), Span(100 * MS..=seconds(300)), restart,
            "Whoever works on a stream as it comes holds it up, for minutes at times; as `egress.limits.idle_timeout`.";
        /// Open connections, tunnels included.
        connections_max: u32 = 16_384, Count(1..=1_000_000), restart,
            "Up to 32 KiB each as a tunnel that idles, 512 MiB for all; over HTTP/2, as much for each of its streams as stands at `egress.tls.http2_streams_max`. Raise the limit of open files with it: each call holds another one.";
        /// Requests on one connection before it is closed.
        requests_per_connection_max: u32 = 10_000, Count(1..=4_294_967_295), restart,
            "Lets load balancers rebalance over nodes.";
        /// How long what a caller still sends is read and dropped after an early answer. A refused CONNECT is closed at once.
        linger_timeout: Duration = seconds(2), Span(Duration::ZERO..=seconds(60)), restart,
            "Closed at once, many clients see a reset connection instead of the answer.";
        /// How long calls that were taken may still run after the node was asked to stop. Idle tunnels end first.
        drain_timeout: Duration = seconds(30), Span(Duration::ZERO..=seconds(3600)), restart,
            "Most calls take seconds. Longer ones end with the node; raise it where they must not.";
    }
}

impl From<EgressListener> for Listener {
    fn from(table: EgressListener) -> Self {
        let EgressListener {
            header_bytes_max,
            header_count_max,
            target_bytes_max,
            header_timeout,
            idle_timeout,
            body_timeout,
            body_rate_min,
            body_rate_grace,
            write_timeout,
            connections_max,
            requests_per_connection_max,
            linger_timeout,
            drain_timeout,
        } = table;
        Self {
            header_bytes_max,
            header_count_max,
            target_bytes_max,
            header_timeout,
            idle_timeout,
            body_timeout,
            body_rate_min,
            body_rate_grace,
            write_timeout,
            connections_max,
            requests_per_connection_max,
            linger_timeout,
            drain_timeout,
        }
    }
}

/// The bounds that hold where the file says nothing.
pub(super) fn default() -> Listener {
    EgressListener::default().into()
}

/// The table, with the defaults of this role.
pub(super) struct ListenerForm;

impl Form<Listener> for ListenerForm {
    fn read(&self, document: &mut Document<'_>, at: &Spanned<DeValue<'_>>) -> Option<Listener> {
        Form::<EgressListener>::read(&Table, document, at).map(Into::into)
    }

    fn show(&self, _: &Listener) -> String {
        String::new()
    }

    fn kind(&self) -> String {
        Form::<EgressListener>::kind(&Table)
    }

    fn schema(&self) -> Value {
        Form::<EgressListener>::schema(&Table)
    }

    fn rows(&self) -> Vec<Row> {
        EgressListener::rows()
    }

    fn restarts(&self, old: &Listener, new: &Listener, _: Effect, path: &str, out: &mut Vec<String>) {
        Settings::restarts(old, new, path, out);
    }
}
