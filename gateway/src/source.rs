//! Who is calling: the address that limits, source rules, events and logs are about.
//!
//! Behind a balancer the socket's peer is the balancer. Forwarded headers are believed only when the peer is a
//! listed proxy, and then only as far as the chain of listed proxies reaches: the right-most address that is not
//! a listed proxy is the source. What lies to the left of it was written by somebody unknown.

use std::net::{IpAddr, SocketAddr};

use ipnet::IpNet;
use listen::Exchange;

/// More hops than any honest chain has; the rest of the header is somebody's text.
const HOPS_MAX: usize = 16;

/// The source of a request that has arrived.
pub(crate) fn of(exchange: &Exchange, proxies: &[IpNet]) -> IpAddr {
    // Values are only looked at from a listed proxy, which sends one or two.
    let forwarded: Vec<&[u8]> =
        if proxies.is_empty() { Vec::new() } else { exchange.head().get_all("x-forwarded-for").collect() };
    source(exchange.peer(), proxies, forwarded.into_iter())
}

/// The source of a request: its peer, or what listed proxies say about it.
///
/// `forwarded_for` gives the values of `X-Forwarded-For`, in the order received; each may hold a list. A proxy
/// that writes something unreadable at a place that we would have to believe makes itself the source: better to
/// throttle a proxy than to let a text choose whom we throttle.
pub fn source<'a>(
    peer: SocketAddr,
    proxies: &[IpNet],
    forwarded_for: impl DoubleEndedIterator<Item = &'a [u8]>,
) -> IpAddr {
    let mut source = peer.ip().to_canonical();
    if proxies.is_empty() || !listed(proxies, source) {
        return source;
    }
    let hops = forwarded_for.rev().flat_map(|value| value.rsplit(|&b| b == b',')).take(HOPS_MAX);
    for hop in hops {
        let Some(address) = parse(hop) else { break };
        source = address;
        if !listed(proxies, source) {
            break;
        }
    }
    source
}

/// Is the address in one of the networks?
pub fn listed(networks: &[IpNet], address: IpAddr) -> bool {
    networks.iter().any(|network| network.contains(&address))
}

/// An address as proxies write it: bare, with a port, IPv6 in brackets.
fn parse(hop: &[u8]) -> Option<IpAddr> {
    let text = std::str::from_utf8(hop).ok()?.trim_matches([' ', '\t']);
    let address = text
        .parse::<IpAddr>()
        .or_else(|_| text.parse::<SocketAddr>().map(|socket| socket.ip()))
        .or_else(|_| text.strip_prefix('[').and_then(|t| t.strip_suffix(']')).unwrap_or("").parse::<IpAddr>())
        .ok()?;
    Some(address.to_canonical())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(peer: &str, proxies: &[&str], headers: &[&str]) -> String {
        let proxies: Vec<IpNet> = proxies.iter().map(|p| p.parse().unwrap()).collect();
        source(peer.parse().unwrap(), &proxies, headers.iter().map(|h| h.as_bytes())).to_string()
    }

    #[test]
    fn an_unlisted_peer_speaks_for_itself_alone() {
        assert_eq!(of("198.51.100.7:1", &[], &["203.0.113.9"]), "198.51.100.7");
        assert_eq!(of("198.51.100.7:1", &["10.0.0.0/8"], &["203.0.113.9"]), "198.51.100.7");
        assert_eq!(of("[::ffff:198.51.100.7]:1", &[], &[]), "198.51.100.7");
    }

    #[test]
    fn the_right_most_unlisted_address_is_the_source() {
        let proxies = &["10.0.0.0/8", "2001:db8:1::/48"];
        assert_eq!(of("10.1.1.1:1", proxies, &["6.6.6.6, 203.0.113.9"]), "203.0.113.9");
        assert_eq!(of("10.1.1.1:1", proxies, &["6.6.6.6", "203.0.113.9, 10.2.2.2"]), "203.0.113.9");
        assert_eq!(of("10.1.1.1:1", proxies, &["203.0.113.9:4711"]), "203.0.113.9");
        assert_eq!(of("[2001:db8:1::5]:1", proxies, &["[2001:db8:2::9]:443"]), "2001:db8:2::9");
        assert_eq!(of("10.1.1.1:1", proxies, &["[2001:db8:2::9]"]), "2001:db8:2::9");
        assert_eq!(of("10.1.1.1:1", proxies, &["::ffff:203.0.113.9"]), "203.0.113.9");
    }

    #[test]
    fn what_cannot_be_read_leaves_the_proxy_as_the_source() {
        let proxies = &["10.0.0.0/8"];
        assert_eq!(of("10.1.1.1:1", proxies, &[]), "10.1.1.1");
        assert_eq!(of("10.1.1.1:1", proxies, &["unknown"]), "10.1.1.1");
        assert_eq!(of("10.1.1.1:1", proxies, &["203.0.113.9, 10.2.2.2, \u{1b}[31m"]), "10.1.1.1");
        assert_eq!(of("10.1.1.1:1", proxies, &["203.0.113.9, junk, 10.2.2.2"]), "10.2.2.2");
        assert_eq!(of("10.1.1.1:1", proxies, &["10.2.2.2"]), "10.2.2.2");
    }
}
