//! Services of the operator's that the appliance itself needs, such as the store that a fleet shares.
//!
//! The operator's file names them, no tenant does, and they are inside as a rule. So each is open by its name and port,
//! wherever inside it is; beyond that it is dialled as everything else is: names are looked up in the operator's DNS and
//! nowhere else, every address is vetted, and what hands out credentials is never dialled, whatever a name resolves to.
//! A service on this machine is one like any other. It leaves from the address that the kernel chooses: exit addresses are
//! for providers.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::time::Duration;

use thiserror::Error;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::authority::{Authority, Host, Malformed};
use crate::dial::{DialError, DialSettings, Dialer, TlsClient, TlsFault};
use crate::exit::Exit;
use crate::opening::Opening;
use crate::own::Own;
use crate::refused::Refused;
use crate::resolve::{Resolve, ResolveError};
use crate::table::AddressTable;
use crate::vet::{Rules, Vetted};

/// Opens connections to them. Cheap to clone.
#[derive(Clone)]
pub struct OperatorDialer {
    resolver: Arc<dyn Resolve>,
    rules: Arc<Rules>,
    dialer: Dialer,
}

/// Why there is no connection.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum NotReached {
    #[error("is no host: {0}")]
    Malformed(#[from] Malformed),
    #[error(transparent)]
    Refused(#[from] Refused),
    #[error(transparent)]
    Unresolved(#[from] ResolveError),
    #[error(transparent)]
    Dial(#[from] DialError),
    #[error(transparent)]
    Tls(#[from] TlsFault),
}

impl OperatorDialer {
    /// Looks names up there; the resolver belongs to the runtime that dials.
    pub fn new(resolver: Arc<dyn Resolve>, settings: DialSettings) -> Self {
        let rules = Rules { table: Arc::new(AddressTable::shipped()), own: Own::default(), nat64: Vec::new() };
        Self { resolver, rules: Arc::new(rules), dialer: Dialer::new(settings) }
    }

    /// A TCP connection to a host, an address without brackets or a name, as it stands in the operator's file or as a
    /// service that stands there names another one.
    pub async fn dial(&self, host: &str, port: u16) -> Result<TcpStream, NotReached> {
        let text = if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") };
        let vetted = self.vet(&Authority::with_port(text)?).await?;
        Ok(self.dialer.dial(&vetted, &Exit::Unbound).await?.stream)
    }

    /// The same with TLS, verified against the host by which it was named; all of the handshake within `limit`.
    pub async fn dial_tls(
        &self,
        host: &str,
        port: u16,
        tls: &TlsClient,
        limit: Duration,
    ) -> Result<impl AsyncRead + AsyncWrite + Send + Unpin + use<>, NotReached> {
        let stream = self.dial(host, port).await?;
        Self::shake_hands(host, port, stream, tls, limit).await
    }

    /// The handshake alone, on a stream to that host that is open: for services that speak something in clear before it.
    pub async fn shake_hands<S: AsyncRead + AsyncWrite + Send + Unpin>(
        host: &str,
        port: u16,
        stream: S,
        tls: &TlsClient,
        limit: Duration,
    ) -> Result<impl AsyncRead + AsyncWrite + Send + Unpin + use<S>, NotReached> {
        let text = if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") };
        let authority = Authority::with_port(text)?;
        let shaken = timeout(limit, tls.connect(authority.host(), stream)).await;
        Ok(shaken.map_err(|_| TlsFault::Timeout)??)
    }

    async fn vet(&self, authority: &Authority) -> Result<Vetted, NotReached> {
        let opening = [Opening::of_operator(authority, &self.rules.table)];
        let addresses: Arc<[IpAddr]> = match authority.host() {
            Host::Address(address) => Arc::new([*address]),
            // It is this machine, and no question for DNS (RFC 6761, 6.3).
            Host::Name(name) if name.as_str() == "localhost" => {
                Arc::new([Ipv6Addr::LOCALHOST.into(), Ipv4Addr::LOCALHOST.into()])
            }
            Host::Name(name) => self.resolver.resolve(name).await?.addresses,
        };
        Ok(self.rules.vet(authority, &addresses, &opening)?)
    }
}

impl fmt::Debug for OperatorDialer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OperatorDialer").field("dialer", &self.dialer).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use async_trait::async_trait;
    use tokio::net::TcpListener;

    use super::*;
    use crate::authority::HostName;
    use crate::resolve::Answer;

    /// Answers every name with these.
    struct Answering(Vec<IpAddr>);

    #[async_trait]
    impl Resolve for Answering {
        async fn resolve(&self, _: &HostName) -> Result<Answer, ResolveError> {
            if self.0.is_empty() {
                return Err(ResolveError::NotFound { ttl: None });
            }
            Ok(Answer { addresses: self.0.as_slice().into(), ttl: Duration::ZERO })
        }
    }

    fn dialer(addresses: &[&str]) -> OperatorDialer {
        let addresses = addresses.iter().map(|address| address.parse().unwrap()).collect();
        OperatorDialer::new(Arc::new(Answering(addresses)), DialSettings::default())
    }

    #[tokio::test]
    async fn what_an_operator_names_is_dialled_inside_too() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = listener.local_addr().unwrap();
        for host in ["127.0.0.1", "redis.internal", "redis", "localhost"] {
            let stream =
                dialer(&["127.0.0.1"]).dial(host, at.port()).await.unwrap_or_else(|why| panic!("{host}: {why}"));
            assert_eq!(stream.peer_addr().unwrap(), at, "{host}");
        }
    }

    #[tokio::test]
    async fn no_name_leads_to_what_hands_out_credentials() {
        for address in ["169.254.169.254", "100.100.100.200", "fd00:ec2::254", "0.0.0.0", "::ffff:10.0.0.1"] {
            let named = dialer(&[address]).dial("redis.internal", 6379).await.unwrap_err();
            assert!(matches!(named, NotReached::Refused(_)), "{address}: {named}");
            let written = dialer(&[]).dial(address, 6379).await.unwrap_err();
            assert!(matches!(written, NotReached::Refused(_)), "{address}: {written}");
        }
        let mixed = dialer(&["10.0.0.1", "169.254.169.254"]).dial("redis.internal", 6379).await.unwrap_err();
        assert!(matches!(mixed, NotReached::Refused(_)), "{mixed}");
    }

    #[tokio::test]
    async fn what_is_no_host_and_what_is_nowhere_is_said() {
        let why = |host: &'static str, port| async move { dialer(&[]).dial(host, port).await.unwrap_err() };
        assert!(matches!(why("re dis", 1).await, NotReached::Malformed(_)));
        assert!(matches!(why("redis", 0).await, NotReached::Malformed(_)));
        assert!(matches!(why("redis.internal", 6379).await, NotReached::Unresolved(ResolveError::NotFound { .. })));
        let port = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port();
        assert!(matches!(why("127.0.0.1", port).await, NotReached::Dial(_)));
    }
}
