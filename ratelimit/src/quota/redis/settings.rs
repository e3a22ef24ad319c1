//! Where the Redis is, who we are there, and for how long anything may take.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use domain::Secret;
use rustls::ClientConfig;

use super::dial::Dial;

/// Host and port.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Address {
    /// A name or an IP address, without brackets.
    pub host: Arc<str>,
    pub port: u16,
}

/// Why a text is no address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("is no host and port, such as redis.internal:6379 or [2001:db8::1]:6379")]
pub struct InvalidAddress;

impl Address {
    /// Reads `host:port`; an IPv6 address stands in brackets.
    pub fn parse(text: &str) -> Result<Self, InvalidAddress> {
        let (host, port) = text.rsplit_once(':').ok_or(InvalidAddress)?;
        let port = port.parse().map_err(|_| InvalidAddress)?;
        let host = match host.strip_prefix('[').map(|rest| rest.strip_suffix(']')) {
            Some(Some(inner)) if inner.parse::<std::net::Ipv6Addr>().is_ok() => inner,
            None if !host.contains(':') => host,
            Some(_) | None => return Err(InvalidAddress),
        };
        Self::of(host, port).ok_or(InvalidAddress)
    }

    /// From parts, as servers name each other.
    pub(super) fn of(host: &str, port: u16) -> Option<Self> {
        let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_' | b':');
        let is_host = !host.is_empty() && host.len() <= 253 && host.bytes().all(is_allowed);
        let is_v6 = host.parse::<std::net::Ipv6Addr>().is_ok();
        (is_host && port != 0 && (is_v6 || !host.contains(':'))).then(|| Self { host: host.into(), port })
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

/// How the servers are found.
#[derive(Debug, Clone)]
pub enum Servers {
    One(Address),
    /// The primary that sentinels know by this name; they are asked anew with each connection.
    Sentinel {
        sentinels: Vec<Address>,
        name: String,
        credentials: Credentials,
    },
    /// Some nodes of the cluster, which know the others.
    Cluster(Vec<Address>),
}

/// Who we are to a server; a password without a user is the `default` user's.
#[derive(Debug, Clone, Default)]
pub struct Credentials {
    pub user: Option<String>,
    pub password: Option<Secret>,
}

/// All that a [`super::RedisCentre`] has to be told. [`RedisSettings::new`] has the rest.
#[derive(Debug, Clone)]
pub struct RedisSettings {
    pub servers: Servers,
    pub credentials: Credentials,
    /// Trust and identity; none is plain text. [`super::client_config`] makes one.
    pub tls: Option<Arc<ClientConfig>>,
    /// How connections are opened: never from here.
    pub dial: Arc<dyn Dial>,
    /// Longest wait of an ask, everything included. A call waits for it.
    pub budget: Duration,
    /// Longest opening of a connection: name, TCP, TLS, login, library. Nobody waits for longer than the budget.
    pub dial_limit: Duration,
    /// Silence after which a connection on which an answer is due is given up. Longer than a pause of the server's that
    /// happens (a fork, a slow command), since all that is under way is lost with it.
    pub stall_limit: Duration,
    /// Longest pause between two openings of a connection; the first is a tenth of a second, each next twice as long.
    pub pause_limit: Duration,
    /// Most operations under way per server. At 90 µs each they are six thousandths of a second: what waits longer than
    /// that waits for a server that does not answer, and would be done when nobody wants it any more.
    pub operations_max: usize,
    /// Most bytes that a server sends without being asked anything: a page of a hundred buckets has 300 kB.
    pub reply_bytes_max: usize,
    /// Most pushes that wait to be taken. More are let go, and one that says so takes their place.
    pub pushes_max: usize,
}

impl RedisSettings {
    pub fn new(servers: Servers, dial: Arc<dyn Dial>) -> Self {
        Self {
            servers,
            credentials: Credentials::default(),
            tls: None,
            dial,
            budget: Duration::from_millis(50),
            dial_limit: Duration::from_secs(2),
            stall_limit: Duration::from_secs(1),
            pause_limit: Duration::from_secs(2),
            operations_max: 64,
            reply_bytes_max: 4 << 20,
            pushes_max: 4_096,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quota::redis::Stream;

    /// Dials nothing.
    #[derive(Debug)]
    struct Nowhere;

    #[async_trait::async_trait]
    impl Dial for Nowhere {
        async fn dial(&self, _: &str, _: u16) -> std::io::Result<Box<dyn Stream>> {
            Err(std::io::ErrorKind::ConnectionRefused.into())
        }
    }

    #[test]
    fn addresses_are_read_and_written() {
        for text in ["localhost:6379", "192.0.2.1:1", "[2001:db8::1]:6379"] {
            assert_eq!(Address::parse(text).unwrap().to_string(), text);
        }
        for text in
            ["", "localhost", "localhost:", ":1", "a:0", "a:65536", "2001:db8::1:6379", "[a]:1", "a b:1", "[::1:1"]
        {
            assert_eq!(Address::parse(text), Err(InvalidAddress), "{text}");
        }
    }

    #[test]
    fn no_password_is_shown() {
        let mut settings = RedisSettings::new(Servers::One(Address::parse("a:1").unwrap()), Arc::new(Nowhere));
        settings.credentials.password = Some(Secret::new(*b"hunter2"));
        assert!(!format!("{settings:?}").contains("hunter2"));
    }
}
