//! Which of a service's addresses a connection came in by, and so whether it speaks TLS.

use std::net::{IpAddr, SocketAddr};

use crate::tls::Tls;

/// The addresses of a service.
#[derive(Debug, Default)]
pub(crate) struct Addresses {
    plain: Vec<SocketAddr>,
    secure: Vec<SocketAddr>,
    tls: Option<Tls>,
}

impl Addresses {
    pub(crate) fn new(plain: Vec<SocketAddr>, secure: Vec<SocketAddr>, tls: Option<Tls>) -> Self {
        Self { plain, secure, tls }
    }

    /// TLS, where it is spoken at this local address of a connection. What was listened on with this very address has
    /// it, else what was listened on with any; where neither tells, there is TLS: nothing is taken plainly by mistake.
    pub(crate) fn tls_of(&self, local: SocketAddr) -> Option<&Tls> {
        let tls = self.tls.as_ref()?;
        let is_secure = self.secure.contains(&local) || takes_all(&self.secure, local);
        let is_plain = self.plain.contains(&local) || !is_secure && takes_all(&self.plain, local);
        (!is_plain).then_some(tls)
    }
}

/// Whether one of these listens on every address of this port.
fn takes_all(addresses: &[SocketAddr], local: SocketAddr) -> bool {
    // What listens on any address of IPv6 may take those of IPv4 too, and then they look like this.
    let is_v4 = matches!(local.ip().to_canonical(), IpAddr::V4(_));
    let mut these = addresses.iter().filter(|address| address.ip().is_unspecified() && address.port() == local.port());
    these.any(|address| is_v4 || address.is_ipv6())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::tls::TlsBounds;
    use crate::tls::tests::server;

    #[test]
    fn where_a_connection_came_in_says_whether_it_speaks_tls() {
        let bounds = TlsBounds { handshake_timeout: Duration::from_secs(1), http2_streams_max: 1 };
        let tls = || Some(Tls::new(server(), bounds));
        let parse = |addresses: &[&str]| addresses.iter().map(|address| address.parse().unwrap()).collect::<Vec<_>>();
        for (plain, secure, local, expected) in [
            (&["127.0.0.1:1"][..], &["127.0.0.1:2"][..], "127.0.0.1:1", false),
            (&["127.0.0.1:1"], &["127.0.0.1:2"], "127.0.0.1:2", true),
            (&["127.0.0.1:1"], &["0.0.0.0:2"], "192.0.2.1:2", true),
            (&["127.0.0.1:1"], &["192.0.2.1:1"], "192.0.2.1:1", true),
            (&["127.0.0.1:1"], &["192.0.2.1:1"], "127.0.0.1:1", false),
            (&["0.0.0.0:1"], &["[::]:2"], "192.0.2.1:1", false),
            (&["[::]:1"], &["[::]:2"], "[::ffff:192.0.2.1]:1", false),
            (&["[::]:1"], &["[::]:2"], "[::ffff:192.0.2.1]:2", true),
            (&["[::]:1"], &["127.0.0.1:1"], "127.0.0.1:1", true),
            // What nobody listens on, as where the system does not say.
            (&["127.0.0.1:1"], &["127.0.0.1:2"], "0.0.0.0:0", true),
        ] {
            let addresses = Addresses::new(parse(plain), parse(secure), tls());
            let found = addresses.tls_of(local.parse().unwrap()).is_some();
            assert_eq!(found, expected, "{plain:?} {secure:?} {local}");
        }
        let none = Addresses::new(parse(&["127.0.0.1:1"]), Vec::new(), None);
        assert!(none.tls_of("0.0.0.0:0".parse().unwrap()).is_none());
    }
}
