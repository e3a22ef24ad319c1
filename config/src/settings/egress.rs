//! `[egress]` and `[connectors]`: the role that takes calls out, its policy for every tenant, and its bounds.
//!
//! What is policy takes effect live; what sockets and threads are made of waits for a restart.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use super::egress_listener::{self, ListenerForm};
use super::{EgressRanges, EgressTls, Issuer, Listener, Opening, Pool};
use crate::connector::quota::QuotaChoiceTable;
use crate::egress::{EgressRule, Rule, RuleMode, mode, port};
use crate::form::{
    AtLine, Bytes, Choice, Count, Flag, Lined, List, Maybe, Span, Table, Text, address, path, settings, shown, text,
};
use crate::units::{GIB, KIB, MIB, TIB, days, seconds};

const MS: Duration = Duration::from_millis(1);

/// Rules of one list. A decision is as quick with all of them as with one; they are bounded by what a person can read.
pub(crate) const RULES_MAX: usize = 20_000;

/// Where a grant may come in on a connection without TLS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PlaintextGrants {
    /// Where both ends of the connection are loopback addresses.
    Loopback,
    /// Nowhere.
    Never,
}

/// Whether HTTP/2 is spoken with destinations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Http2 {
    /// Where the destination chooses it.
    Auto,
    /// With none.
    Off,
}

/// Its words.
pub(crate) const fn http2() -> Choice<Http2> {
    Choice(&[("auto", Http2::Auto), ("off", Http2::Off)])
}

settings! {
    /// The role that takes calls out.
    pub struct Egress {
        /// Whether this process takes calls.
        enabled: bool = true, Flag, restart,
            "A file that has an `[egress]` table means it; without the table the role is off.";
        /// Addresses to listen on for calls: as a proxy, and for `/c/{connection}/…`.
        listen: Vec<SocketAddr> = vec![SocketAddr::from((Ipv4Addr::LOCALHOST, 3128))], List(address(), 0..=64), restart,
            "Loopback, on the port that proxies usually have: grants and tokens are read from this connection, and nobody else can listen in on it. `[]` where `egress.tls.listen` is all.";
        /// Name of this proxy in `Via` and `Proxy-Status`. A request that has it in `Via` came through here before and is refused.
        name: String = "tidegate".into(), pseudonym(), live,
            "Nodes of one fleet share it, so that a call never goes through two of them. Where one Tidegate calls through another on purpose, give each its own.";
        /// Worker threads of the role.
        threads: usize = cpus(), shown(Count(1..=1024), "one per CPU that the process may use"), restart,
            "The threads never block: more of them only take turns.";
        /// What happens to a destination that no `allow` rule covers, of tenants that do not say otherwise.
        mode: RuleMode = RuleMode::Enforce, mode(), live,
            "What nobody allowed is not called. `report` is for finding out what is called, `open` for platforms whose tenants may call any public address.";
        /// What every tenant may call, beside its own rules.
        allow: Vec<EgressRule> = Vec::new(), List(Rule, 0..=RULES_MAX), live,
            "Nothing, until somebody says so.";
        /// What no tenant may call, whatever its own rules say: a `deny` wins over every `allow`.
        deny: Vec<EgressRule> = Vec::new(), List(Rule, 0..=RULES_MAX), live,
            "Internal and metadata addresses are refused without any rule.";
        /// Ports of tunnels (CONNECT) where a rule names none.
        connect_ports: Vec<u16> = vec![443], List(port(), 1..=64), live,
            "A tunnel is for TLS. On other ports it reaches mail servers and databases.";
        /// Ports of requests where a rule names none.
        ports: Vec<u16> = vec![80, 443], List(port(), 1..=64), live,
            "Where HTTP is.";
        /// Addresses that belong to this fleet and are never called, beside those of this machine's interfaces.
        own_addresses: Vec<IpAddr> = Vec::new(), List(ip(), 0..=4096), live,
            "Other nodes, and what a load balancer forwards to this one: nothing on this machine tells of them.";
        /// Prefixes of NAT64 translators in this network: addresses behind one are judged as the IPv4 addresses that they mean.
        nat64: Vec<AtLine<String>> = Vec::new(), List(Lined(prefix()), 0..=16), live,
            "Without a translator such addresses lead nowhere, and through one that nobody named they lead inside.";
        /// Who a grant must be for: its `aud`.
        audience: String = "tidegate".into(), audience(), live,
            "A token that was made for something else is not taken.";
        /// Where grants and tokens are taken on connections without TLS: `loopback` where both ends are loopback addresses, `never` nowhere.
        plaintext_grants: PlaintextGrants = PlaintextGrants::Loopback,
            Choice(&[("loopback", PlaintextGrants::Loopback), ("never", PlaintextGrants::Never)]), live,
            "Whoever reads a grant on its way can call with it until it ends.";
        /// Whether HTTP/2 is spoken with destinations: `auto` where a destination chooses it (over TLS), `off` with none. A tenant's connection can say otherwise for itself.
        http2: Http2 = Http2::Auto, http2(), live,
            "One connection carries many calls. `off` is for a network whose middle boxes stumble over it.";
        /// Bounds on connections and requests of callers, in front of everything else.
        listener: Listener = egress_listener::default(), ListenerForm, restart, "";
        /// TLS towards callers, on addresses of its own.
        tls: EgressTls = EgressTls::default(), Table, restart, "";
        /// Where names are looked up.
        dns: EgressDns = EgressDns::default(), Table, restart, "";
        /// Bounds on calls.
        limits: EgressLimits = EgressLimits::default(), Table, live, "";
        /// Where the decision records of calls are kept.
        records: EgressRecords = EgressRecords::default(), Table, restart, "";
        /// The ranges that calls leave from, and what is published of them.
        ranges: EgressRanges = EgressRanges::default(), Table, live, "";
        /// Whose grants are believed, and for which tenants.
        issuer: Vec<Issuer> = Vec::new(), List(Table, 0..=64), live, "";
        /// Addresses that calls leave from. Without any, the kernel chooses; with some, one of them is named `default`.
        pool: Vec<Pool> = Vec::new(), List(Table, 0..=1024), live, "";
        /// Named internal destinations that are open to one tenant or one role of it. Only this file can open; metadata addresses and the appliance's own stay shut.
        opening: Vec<Opening> = Vec::new(), List(Table, 0..=1024), live, "";
        /// Plans at providers: which tier of a connector's quota profile holds, and caps of its limits. Who counts them is
        /// said in `[quota]`.
        quota: Vec<QuotaChoiceTable> = Vec::new(), List(Table, 0..=1024), live, "";
    }

    /// Where names are looked up: in DNS and nowhere else. There is no search list, and `/etc/hosts` is not read.
    pub struct EgressDns {
        /// Recursive DNS servers, with a port where it is not 53.
        servers: Vec<SocketAddr> = Vec::new(), shown(List(server(), 0..=8), "those of `/etc/resolv.conf`, read at start"), restart,
            "The machine's own are the only ones that are known. Servers that answer for internal names tell callers of them: name others where that matters.";
        /// How long one attempt waits for an answer.
        attempt_timeout: Duration = seconds(2), Span(100 * MS..=seconds(30)), restart,
            "A server that has to ask others takes a second or two.";
        /// Attempts in all, over all servers.
        attempts: u8 = 2, Count(1..=8), restart,
            "One lost packet must not fail a call; two are not waited for by most callers either.";
        /// How long a name may take, once it is its turn: both address families, aliases and every attempt.
        timeout: Duration = seconds(5), Span(100 * MS..=seconds(60)), restart,
            "Longer than both attempts, shorter than the patience of any client.";
        /// Shortest time for which an answer is kept, whatever its TTL.
        ttl_min: Duration = seconds(1), Span(Duration::ZERO..=seconds(300)), restart,
            "An answer of TTL 0 would be asked for at every call; nobody moves a service within a second.";
        /// Longest time for which an answer is kept.
        ttl_max: Duration = seconds(300), Span(seconds(1)..=days(1)), restart,
            "A provider that moves counts on its TTL, and some TTLs are a day.";
        /// Longest time for which it is kept that a name does not exist.
        negative_ttl_max: Duration = seconds(30), Span(Duration::ZERO..=seconds(3600)), restart,
            "A name that was just made should be found soon.";
        /// Names in the cache.
        cache_names_max: u32 = 10_000, Count(1..=10_000_000), restart,
            "About 500 bytes each, 5 MiB.";
        /// Look-ups under way at one time. While no more than a quarter of them is free, a tenant that has a quarter already is refused another one (`calls-limited`). Where none is free, a look-up waits for its turn, for as long as `timeout`.
        lookups_max: u32 = 512, Count(1..=65_536), restart,
            "Each holds a few sockets. At 50 ms each, 10,000 names a second that are not in the cache. Whoever answers slowly for the names that it calls leaves a quarter to the others.";
    }

    /// Bounds on calls. A tunnel is a call for as long as it is open.
    pub struct EgressLimits {
        /// Calls under way on this node.
        calls_max: u32 = 32_768, Count(1..=1_000_000), live,
            "Twice `egress.listener.connections_max`: one connection of HTTP/2 carries several.";
        /// Calls under way of one tenant.
        calls_per_tenant_max: u32 = 4_096, Count(1..=1_000_000), live,
            "An eighth of the node: a slow provider of one tenant takes nobody else's room.";
        /// Calls under way of one caller: one grant, one token, one certificate.
        calls_per_caller_max: u32 = 512, Count(1..=1_000_000), live,
            "An eighth of the tenant: a run that goes wild stops itself and not the runs beside it.";
        /// Largest body of a request.
        request_bytes_max: u64 = GIB, Bytes(0..=1024 * GIB), live,
            "Bodies stream through and take no memory; this ends what would never end.";
        /// Largest body of an answer, as it comes over the wire.
        response_bytes_max: u64 = GIB, Bytes(0..=1024 * GIB), live,
            "As for requests. A longer answer ends with an error that says so.";
        /// Bytes of an answer's header section.
        header_bytes_max: u32 = 64 << 10, Bytes(KIB..=MIB), restart,
            "Twice what providers send; four times their usual bound.";
        /// Fields of an answer's header section.
        header_count_max: u16 = 200, Count(8..=1000), restart,
            "Twice what is taken of callers: some providers set dozens of cookies.";
        /// How long it may take to connect, over all addresses of a destination.
        connect_timeout: Duration = seconds(10), Span(100 * MS..=seconds(120)), restart,
            "Two lost packets are made up for within 7 s.";
        /// How long a TLS handshake may take.
        tls_timeout: Duration = seconds(10), Span(100 * MS..=seconds(120)), restart,
            "As for connecting.";
        /// From the end of the request to the head of the answer.
        first_byte_timeout: Duration = seconds(300), Span(100 * MS..=seconds(3600)), live,
            "Models think for minutes before they answer; whoever wants less has a time-out of its own.";
        /// How long a body may be silent, in either direction.
        idle_timeout: Duration = seconds(300), Span(100 * MS..=seconds(3600)), live,
            "Streams of events send a sign of life every 15 to 60 s.";
        /// How long a call may take in all, from its first byte to its last.
        total_timeout: Duration = seconds(3600), Span(seconds(1)..=days(1)), live,
            "1 GiB at 2.5 Mbit/s.";
        /// From the answer to a CONNECT to the end of what opens TLS in the tunnel.
        tunnel_hello_timeout: Duration = seconds(10), Span(100 * MS..=seconds(120)), live,
            "Clients send it at once; until it is there, the destination is held connected for nothing.";
        /// How long a tunnel may be silent in both directions.
        tunnel_idle_timeout: Duration = seconds(600), Span(seconds(1)..=days(1)), live,
            "Clients that keep a tunnel for its next request use it within minutes; whoever needs longer sends pings.";
        /// How long a tunnel may be open. It ends with its caller's grant at the latest.
        tunnel_lifetime: Duration = days(1), Span(seconds(1)..=days(30)), live,
            "A tunnel is judged when it opens: what changes later has to reach it at some time.";
        /// Redirects that are followed for one call.
        redirects_max: u8 = 5, Count(0..=20), live,
            "Providers need one or two; browsers give up at 20.";
        /// How long a connection to a provider is kept for the next call.
        reuse_timeout: Duration = seconds(55), Span(Duration::ZERO..=seconds(600)), restart,
            "Providers and their load balancers close theirs after 60 s, most of them.";
        /// Connections to providers that are kept for the next call.
        reuse_connections_max: u32 = 4_096, Count(0..=1_000_000), restart,
            "About 30 KiB each with TLS, 128 MiB for all.";
        /// Part of the local ports that connections from one exit address to one destination may hold, in per cent. The range is the kernel's (`net.ipv4.ip_local_port_range`), read at start and at each reload.
        ports_percent_max: u8 = 95, Count(1..=100), live,
            "The kernel's search for one of the last ports is long and holds up everybody. Lower it where connections are short: one that this side ends keeps its port for a minute more.";
    }

    /// Decision records of calls, one for each hop: what a correlation id is looked up in. Where they cannot be kept as long as they should, `readyz`, a metric and the log say so.
    pub struct EgressRecords {
        /// Directory of the records.
        directory: PathBuf = "/var/lib/tidegate/egress".into(),
            shown(path(), "`egress` beside `log.directory`"), restart,
            "The log has a directory of its own, and so have they.";
        /// How long a record is kept.
        age: Duration = days(30), Span(days(30)..=days(3660)), restart,
            "A provider that asks about a call is answered for at least as long.";
        /// Bytes of the directory. Over it the oldest records go, however young.
        bytes_max: u64 = 8 * GIB, Bytes(64 * MIB..=64 * TIB), restart,
            "About 250 bytes a record: 12 calls a second for 30 days. A busier node needs more, and says so when it does.";
    }

    /// What is known of providers.
    pub struct Connectors {
        /// Directory of connector manifests, `NAME.toml` each, beside those that come with Tidegate. One of the same name takes its place.
        directory: Option<PathBuf> = None, Maybe(path()), live,
            "Those that come with Tidegate are inside the binary; `docs/connectors.md` lists them.";
    }
}

fn cpus() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

const fn pseudonym() -> Text<String> {
    text(
        "name",
        "tidegate-eu-1",
        |text| {
            // A token of RFC 9110 that is also one of RFC 9651, so that `Via` and `Proxy-Status` say the same.
            let plain = text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte));
            let starts = text.bytes().next().is_some_and(|byte| byte.is_ascii_alphabetic());
            if plain && starts && text.len() <= 64 {
                Ok(text.to_owned())
            } else {
                Err(format!(
                    "{text:?} is no name of a proxy; write up to 64 letters, digits, -, . and _, a letter first"
                ))
            }
        },
        String::clone,
    )
}

const fn audience() -> Text<String> {
    text(
        "audience",
        "tidegate",
        |text| match text.chars().find(|c| !c.is_ascii_graphic()) {
            Some(odd) => Err(format!("{text:?} holds {odd:?}; write what issuers put into aud")),
            None if (1..=256).contains(&text.len()) => Ok(text.to_owned()),
            None => Err("has not 1 to 256 characters; write what issuers put into aud".into()),
        },
        String::clone,
    )
}

pub(crate) const fn ip() -> Text<IpAddr> {
    text(
        "address",
        "192.0.2.1",
        |text| text.parse().map_err(|_| format!("{text:?} is no address; write \"192.0.2.1\" or \"2001:db8::1\"")),
        IpAddr::to_string,
    )
}

/// What makes a prefix one of NAT64 is for the vetting of addresses to say.
const fn prefix() -> Text<String> {
    text(
        "IPv6 prefix",
        "64:ff9b::/96",
        |text| match text.parse::<ipnet::Ipv6Net>() {
            Ok(_) => Ok(text.to_owned()),
            Err(_) => Err(format!("{text:?} is no IPv6 prefix; write such as \"64:ff9b::/96\"")),
        },
        String::clone,
    )
}

const fn server() -> Text<SocketAddr> {
    text(
        "address, or address and port",
        "192.0.2.53",
        |text| {
            let with_port = || text.parse::<IpAddr>().map(|address| SocketAddr::new(address, 53));
            let server = text.parse::<SocketAddr>().or_else(|_| with_port());
            server.map_err(|_| {
                format!("{text:?} is no address of a DNS server; write \"192.0.2.53\" or \"[2001:db8::53]:5353\"")
            })
        },
        SocketAddr::to_string,
    )
}
