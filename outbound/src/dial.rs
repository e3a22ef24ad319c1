//! Dialling: from vetted addresses to one connection.
//!
//! The dialer takes a [`Vetted`] and nothing else, so it cannot dial what was not judged. Over its addresses it runs
//! happy eyeballs (RFC 8305): families take turns, IPv6 first; the next attempt starts when the last one failed or has
//! been silent for a moment; the first connection wins and the others are dropped. No more than a few attempts are
//! made, each within a time, and all within one.
//!
//! Every connection leaves from the exit that it was given. If that address is not on the machine, the dial fails: it
//! never leaves from another one.
//!
//! TLS is verified against the authority that was vetted, a name or an address. There is no early data: when a dial
//! fails, no byte of a request has left ([`Sent`]).

mod connect;
mod fault;
mod race;
mod tls;

use std::net::SocketAddr;
use std::time::Duration;

use tokio::time::timeout;
use tokio_rustls::client::TlsStream;

use crate::exit::Exit;
use crate::vet::{Vetted, VettedAddr};

pub use connect::{Connect, Connected, TcpConnector};
pub use fault::{Attempt, ConnectFault, DialError, DialFault, Sent};
pub use tls::{Alpn, ClientIdentity, Roots, TlsClient, TlsFault, TlsSettingsFault};

/// How patiently, and how often.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DialSettings {
    /// For one attempt. Three lost packets (1, 2 and 4 s) are not waited for; two are.
    pub attempt_timeout: Duration,
    /// For all attempts together.
    pub connect_timeout: Duration,
    /// How long an attempt may be silent before the next one starts beside it (RFC 8305, 8: 250 ms, 100 ms at least).
    pub attempt_delay: Duration,
    /// Attempts in all. An answer may have 64 addresses; whoever does not answer on 6 of them is down.
    pub attempts_max: usize,
    /// For the whole of a TLS handshake.
    pub tls_timeout: Duration,
}

impl Default for DialSettings {
    fn default() -> Self {
        Self {
            attempt_timeout: Duration::from_secs(5),
            connect_timeout: Duration::from_secs(10),
            attempt_delay: Duration::from_millis(250),
            attempts_max: 6,
            tls_timeout: Duration::from_secs(10),
        }
    }
}

/// Dials.
#[derive(Debug, Clone)]
pub struct Dialer<C = TcpConnector> {
    connector: C,
    settings: DialSettings,
}

/// A connection, and how it came about.
#[derive(Debug)]
pub struct Dialled<S> {
    /// The connection itself.
    pub stream: S,
    /// Where it leads.
    pub address: VettedAddr,
    /// Where it leaves from.
    pub local: SocketAddr,
    /// What the two sides agreed to speak; none without TLS, and where the peer knows no ALPN.
    pub alpn: Option<Alpn>,
    /// The attempts that failed before.
    pub failed: Vec<Attempt>,
}

impl Dialer {
    /// A dialer over real sockets.
    pub fn new(settings: DialSettings) -> Self {
        Self::with_connector(TcpConnector, settings)
    }
}

impl<C: Connect> Dialer<C> {
    /// A dialer over somebody else's connections; for tests.
    pub fn with_connector(connector: C, settings: DialSettings) -> Self {
        Self { connector, settings }
    }

    /// A TCP connection to one of the addresses.
    pub async fn dial(&self, to: &Vetted, exit: &Exit) -> Result<Dialled<C::Stream>, DialError> {
        let attempts = race::order(to.addresses(), exit);
        if attempts.is_empty() {
            return Err(DialError { fault: DialFault::NoExit, failed: Vec::new() });
        }
        let mut failed = Vec::new();
        match race::run(&self.connector, &attempts, &self.settings, &mut failed).await {
            Some((address, Connected { stream, local })) => Ok(Dialled { stream, address, local, alpn: None, failed }),
            None => Err(DialError { fault: DialFault::Connect(fault::worst(&failed)), failed }),
        }
    }

    /// The same, with TLS on it, verified against the authority.
    pub async fn dial_tls(
        &self,
        to: &Vetted,
        exit: &Exit,
        tls: &TlsClient,
    ) -> Result<Dialled<TlsStream<C::Stream>>, DialError> {
        let Dialled { stream, address, local, failed, .. } = self.dial(to, exit).await?;
        let handshake = tls.connect(to.authority().host(), stream);
        let outcome = timeout(self.settings.tls_timeout, handshake).await.unwrap_or(Err(TlsFault::Timeout));
        match outcome {
            Ok(stream) => {
                let alpn = Alpn::agreed(stream.get_ref().1.alpn_protocol());
                Ok(Dialled { stream, address, local, alpn, failed })
            }
            Err(fault) => Err(DialError { fault: DialFault::Tls { address, fault }, failed }),
        }
    }
}

#[cfg(test)]
mod tests;
