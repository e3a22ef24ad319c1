//! `[gateway]`: the role that takes deliveries, and the bounds in front of it.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use ipnet::IpNet;

use crate::form::{Bytes, Count, Flag, List, Span, Table, address, needed, network, settings, shown, text, url};
use crate::public_url::{PublicUrl, is_host};
use crate::units::{GIB, KIB, MIB, seconds};

const MS: Duration = Duration::from_millis(1);

settings! {
    /// The role that takes deliveries.
    pub struct Gateway {
        /// Whether this process takes deliveries.
        enabled: bool = true, Flag, restart,
            "A file that has a `[gateway]` table means it; without the table the role is off.";
        /// Addresses to listen on for deliveries.
        listen: Vec<SocketAddr> = vec![SocketAddr::from((Ipv4Addr::LOCALHOST, 8080))], List(address(), 1..=64), restart,
            "Loopback: nothing is reachable from outside until somebody says so, and TLS ends in front of this listener.";
        /// The URL that providers post to, as they see it, without `/hooks/…`.
        public_url: PublicUrl = PublicUrl::default(), needed(url()), live,
            "Schemes that sign the URL sign this one, and it cannot be guessed behind a load balancer.";
        /// Host names that are answered beside the public URL's own.
        hosts: Vec<String> = Vec::new(), List(host_name(), 0..=1024), live,
            "A request for another host is not ours: it is answered as an unknown endpoint is.";
        /// Worker threads of the role.
        threads: usize = cpus(), shown(Count(1..=1024), "one per CPU that the process may use"), restart,
            "Verification is CPU work and the threads never block: more of them only take turns.";
        /// Peers whose `X-Forwarded-For` field is believed. `Forwarded` is not read.
        trusted_proxies: Vec<IpNet> = Vec::new(), List(network(), 0..=1024), live,
            "Anybody can send this field; only your own load balancers can be believed.";
        /// Bytes of bodies held in memory at one time, for all requests together.
        bytes_in_flight_max: u64 = 512 * MIB, Bytes(MIB..=1024 * GIB), restart,
            "Room for 20 bodies of the largest size, or 500,000 usual ones, on a machine with 2 GiB. No endpoint gets more than an eighth of it.";
        /// Largest body that an endpoint takes unless it says otherwise.
        body_bytes_max: u64 = 26 * MIB, Bytes(1..=GIB), live,
            "GitHub sends up to 25 MiB, the most of any provider with a preset; above it is a little room.";
        /// How long a delivery waits to be durable before it is answered 503.
        commit_timeout: Duration = seconds(5), Span(100 * MS..=seconds(60)), live,
            "Longer than any healthy disk takes, shorter than the 10 s after which most providers hang up and learn nothing.";
        /// Ids of committed deliveries that are remembered, to know a delivery that comes again.
        repeats_max: u32 = 262_144, Count(0..=16_777_216), restart,
            "About 16 MiB when all are there: at 100 deliveries a second the last three quarters of an hour, in which providers send again most of what got no answer. 0 remembers none.";
        /// How long they are remembered, if there is room.
        repeats_for: Duration = seconds(259_200), Span(seconds(60)..=seconds(2_592_000)), live,
            "Three days, for which the most patient providers send again.";
        /// Bounds on connections and requests, in front of everything else.
        listener: Listener = Listener::default(), Table, restart, "";
    }

    /// The bounds in front of the accept path.
    pub struct Listener {
        /// Bytes of a request's header section, request line included.
        header_bytes_max: u32 = 32 << 10, Bytes(KIB..=512 * KIB), restart,
            "Four times what the chattiest provider sends through a proxy that adds its own; above it only mischief. Anybody can make a connection hold so much.";
        /// Fields of a request's header section.
        header_count_max: u16 = 100, Count(8..=256), restart,
            "Providers send 10 to 30 fields and proxies add 10.";
        /// Bytes of a request's target.
        target_bytes_max: u32 = 8 << 10, Bytes(256..=64 * KIB), restart,
            "RFC 9110 asks for at least 8,000.";
        /// From the first byte of a request to the end of its header section, in total.
        header_timeout: Duration = seconds(10), Span(100 * MS..=seconds(300)), restart,
            "A header section fits in a few packets; the total, not the gap between bytes, is what a dripping client cannot stretch.";
        /// How long a connection may be silent between requests, or before its first one.
        idle_timeout: Duration = seconds(60), Span(100 * MS..=seconds(3600)), restart,
            "Providers reuse connections within seconds; load balancers usually close theirs after 60 s.";
        /// From the end of the header section to the end of the body, in total.
        body_timeout: Duration = seconds(60), Span(100 * MS..=seconds(3600)), restart,
            "25 MiB at 4 Mbit/s take 52 s.";
        /// Lowest rate of a body, per second, averaged since its grace ended.
        body_rate_min: u32 = 1 << 10, Bytes(0..=GIB), restart,
            "No network in use is slower; a body that drips holds memory for nothing. 0B switches it off.";
        /// How long a body may be below its lowest rate at its start.
        body_rate_grace: Duration = seconds(5), Span(Duration::ZERO..=seconds(300)), restart,
            "A lost packet and its retransmissions take up to 3 s.";
        /// How long the peer may take to receive an answer.
        write_timeout: Duration = seconds(10), Span(100 * MS..=seconds(300)), restart,
            "Answers are below 1 KiB and fit in any socket buffer: a peer that does not read is gone.";
        /// Open connections.
        connections_max: u32 = 16_384, Count(1..=1_000_000), restart,
            "About 10 KiB each while they idle, 160 MiB for all; while a header section drips in, up to `header_bytes_max` and 8 KiB more: 640 MiB at worst. One peer can take all of them, so let what ends TLS in front of this cap its own. Raise the limit of open files with it.";
        /// Requests on one connection before it is closed.
        requests_per_connection_max: u32 = 10_000, Count(1..=4_294_967_295), restart,
            "Lets load balancers rebalance over nodes; the cost of a new connection is spread over 10,000 requests.";
        /// How long what a peer still sends is read and dropped after an early answer.
        linger_timeout: Duration = seconds(2), Span(Duration::ZERO..=seconds(60)), restart,
            "Closed at once, many peers see a reset connection instead of the answer.";
        /// How long requests that were taken may still run after the node was asked to stop.
        drain_timeout: Duration = seconds(10), Span(Duration::ZERO..=seconds(3600)), restart,
            "Longer than `commit_timeout` and what is left of a usual body. An idle node stops at once.";
    }
}

fn cpus() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

pub(crate) const fn host_name() -> crate::form::Text<String> {
    text(
        "host name",
        "hooks.example.com",
        |text| match text.to_ascii_lowercase() {
            host if is_host(&host) => Ok(host),
            _ => Err(format!(
                "{text:?} is no host name; write it without scheme, port and path, such as \"hooks.example.com\""
            )),
        },
        String::clone,
    )
}
