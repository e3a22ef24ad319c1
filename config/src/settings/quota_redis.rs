//! `[quota.redis]`: where the Redis is that a fleet shares, who we are there, and by what it is trusted.
//!
//! All of it is read once, at start.

use super::quota::{Reference, reference};
use crate::form::{AtLine, Choice, Flag, Lined, List, Maybe, Table, Text, settings, text};

/// How the servers are found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RedisMode {
    /// One server.
    Standalone,
    /// The primary that sentinels know.
    Sentinel,
    /// A cluster, whose nodes know each other.
    Cluster,
}

settings! {
    /// The Redis that nodes share: 7.0 or later, alone, behind Sentinel, or a Cluster. The appliance starts without it; calls that need units are parked until it is there, and `readyz` says why.
    pub struct QuotaRedis {
        /// How the servers are found: `standalone`, `sentinel` or `cluster`.
        mode: RedisMode = RedisMode::Standalone,
            Choice(&[("standalone", RedisMode::Standalone), ("sentinel", RedisMode::Sentinel), ("cluster", RedisMode::Cluster)]), restart,
            "The least that there is to run. A failover loses nothing with `min-replicas-to-write 1` and `min-replicas-max-lag 1`.";
        /// Host and port: of the server; of all sentinels; or of some nodes of the cluster. Names are looked up in `egress.dns`.
        addresses: Vec<String> = Vec::new(), List(host_and_port(), 0..=64), restart,
            "Nowhere, until somebody says where.";
        /// The user to log in as.
        user: Option<String> = None, Maybe(word()), restart,
            "A password alone is that of the user `default`.";
        /// Reference to the user's password: `env:NAME`, `file:PATH` or `systemd-credential:NAME`.
        password: Option<AtLine<String>> = None, Maybe(Lined(reference())), restart,
            "Without it nobody logs in.";
        /// By what name the sentinels know the primary.
        sentinel_name: Option<String> = None, Maybe(word()), restart,
            "They may watch several.";
        /// The user to log in as at sentinels.
        sentinel_user: Option<String> = None, Maybe(word()), restart,
            "Sentinels have users of their own.";
        /// Reference to the password at sentinels.
        sentinel_password: Option<AtLine<String>> = None, Maybe(Lined(reference())), restart,
            "That of the server is never sent to a sentinel.";
        /// TLS with the servers, and with sentinels.
        tls: QuotaRedisTls = QuotaRedisTls::default(), Table, restart, "";
    }

    /// TLS with Redis. The table's presence enables it.
    pub struct QuotaRedisTls {
        /// Whether TLS is spoken.
        enabled: bool = true, Flag, restart,
            "A file that has a `[quota.redis.tls]` table means it; without the table connections are in the clear.";
        /// Authorities that vouch for the servers, in PEM: `file:PATH`, `env:NAME` or `systemd-credential:NAME`.
        roots: Option<AtLine<String>> = None, Maybe(Lined(reference())), restart,
            "Without it, those that the machine trusts. A server's certificate has the host by which it is named in `addresses`, or by which sentinels and nodes name it.";
        /// Our own certificate for servers that ask for one, in PEM with its chain: a reference as for `roots`.
        certificate: Option<AtLine<String>> = None, Maybe(Lined(reference())), restart,
            "Most servers ask for none.";
        /// Its private key, in PEM: a reference as for `roots`.
        key: Option<AtLine<String>> = None, Maybe(Lined(reference())), restart,
            "It belongs to the certificate.";
    }
}

impl QuotaRedis {
    pub(super) fn references_mut(&mut self) -> impl Iterator<Item = &mut AtLine<String>> {
        let tls = &mut self.tls;
        let all: [&mut Reference; 5] =
            [&mut self.password, &mut self.sentinel_password, &mut tls.roots, &mut tls.certificate, &mut tls.key];
        all.into_iter().flatten()
    }
}

/// What the parts of the appliance that dial take for a host and a port.
const fn host_and_port() -> Text<String> {
    text(
        "host and port",
        "redis.internal:6379",
        |text| {
            if is_host_and_port(text) {
                return Ok(text.to_owned());
            }
            Err(format!("{text:?} is no host and port; write \"redis.internal:6379\" or \"[2001:db8::1]:6379\""))
        },
        String::clone,
    )
}

pub(super) fn is_host_and_port(text: &str) -> bool {
    let is_port =
        |port: &str| port.bytes().all(|byte| byte.is_ascii_digit()) && port.parse::<u16>().is_ok_and(|port| port > 0);
    let is_name = |host: &str| {
        let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_');
        (1..=253).contains(&host.len()) && host.bytes().all(is_allowed)
    };
    let is_host = |host: &str| match host.strip_prefix('[') {
        Some(rest) => rest.strip_suffix(']').is_some_and(|inner| inner.parse::<std::net::Ipv6Addr>().is_ok()),
        None => is_name(host),
    };
    text.rsplit_once(':').is_some_and(|(host, port)| is_host(host) && is_port(port))
}

/// The name of a user or of a primary.
const fn word() -> Text<String> {
    text(
        "name",
        "tidegate",
        |text| match text.chars().find(|c| !c.is_ascii_graphic()) {
            Some(odd) => Err(format!("{text:?} holds {odd:?}; write the name that Redis has for it")),
            None if (1..=256).contains(&text.len()) => Ok(text.to_owned()),
            None => Err("has not 1 to 256 characters; write the name that Redis has for it".into()),
        },
        String::clone,
    )
}
