//! The names that are called, and the addresses of loopback that they have.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// Everything that may be called is in here.
pub const ZONE: &str = "bench.example";
/// Where requests go.
pub const API: &str = "api.bench.example";
/// So many names that tunnels lead to, each with an address of its own: one destination would run out of ports.
pub const TUNNEL_HOSTS: u64 = 16;

/// What the origin wants of a governed call, and nobody but the proxy has.
pub const CREDENTIAL: &str = "credential-of-the-bench";
/// The connection of governed calls.
pub const CONNECTION: &str = "conn_bench";

/// The name of a host of tunnels.
pub fn tunnel_host(n: u64) -> String {
    format!("h{}.{ZONE}", n % TUNNEL_HOSTS)
}

/// Its address, and of [`API`] the first one.
pub fn address_of(host: u64) -> IpAddr {
    Ipv4Addr::new(127, 0, 8, 1 + (host % TUNNEL_HOSTS) as u8).into()
}

/// What a name resolves to.
pub fn resolve(name: &str) -> Option<IpAddr> {
    if name.eq_ignore_ascii_case(API) {
        return Some(address_of(0));
    }
    let (label, zone) = name.split_once('.')?;
    let host = label.strip_prefix(['h', 'H'])?.parse::<u64>().ok()?;
    (zone.eq_ignore_ascii_case(ZONE) && host < TUNNEL_HOSTS).then(|| address_of(host))
}

/// Where the origin is.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Places {
    /// Ports of [`API`]: HTTP, and HTTP over TLS.
    pub plain: u16,
    pub tls: u16,
    /// Ports of every host of tunnels: one that greets and waits, one that sends without end.
    pub greeting: u16,
    pub bulk: u16,
    /// What names are asked of.
    pub dns: SocketAddr,
    /// Whom its certificate is from, in PEM.
    pub roots: PathBuf,
}

impl Places {
    /// All ports that may be called.
    pub fn ports(&self) -> [u16; 4] {
        [self.plain, self.tls, self.greeting, self.bulk]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_host_has_its_address_and_nothing_else_has_one() {
        assert_eq!(resolve("Api.Bench.example"), Some(address_of(0)));
        let mut seen: Vec<_> = (0..TUNNEL_HOSTS).map(|n| resolve(&tunnel_host(n)).unwrap()).collect();
        seen.sort();
        seen.dedup();
        assert_eq!(seen.len() as u64, TUNNEL_HOSTS);
        for name in ["bench.example", "h16.bench.example", "hx.bench.example", "h1.bench.other", "h1", ""] {
            assert_eq!(resolve(name), None, "{name}");
        }
    }
}
