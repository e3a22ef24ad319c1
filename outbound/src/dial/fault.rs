//! What can go wrong on the way to a connection.

use std::io::{self, ErrorKind};
use std::net::IpAddr;

use thiserror::Error;

use super::TlsFault;
use crate::proxy_status::ErrorType;
use crate::vet::VettedAddr;

/// No connection, and why.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{fault}")]
pub struct DialError {
    /// What decided.
    pub fault: DialFault,
    /// Every attempt that failed.
    pub failed: Vec<Attempt>,
}

/// What decided.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum DialFault {
    #[error("the exit has no address of a family that the destination has")]
    NoExit,
    #[error("no connection: {0}")]
    Connect(ConnectFault),
    #[error("no TLS with {address}: {fault}")]
    Tls { address: VettedAddr, fault: TlsFault },
}

/// One attempt that failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attempt {
    /// Where to.
    pub address: VettedAddr,
    /// Why not.
    pub fault: ConnectFault,
}

/// Why one TCP connection did not come about.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ConnectFault {
    #[error("the exit address {0} is not on this machine")]
    ExitUnavailable(IpAddr),
    #[error("no local port is left from this exit to this destination")]
    PortsExhausted,
    #[error("this machine has no sockets left: {0}")]
    SocketsExhausted(ErrorKind),
    #[error("this machine does not let it out")]
    Prohibited,
    #[error("the peer did not answer in time")]
    Timeout,
    #[error("there is no way to the peer")]
    Unroutable,
    #[error("the peer refused")]
    Refused,
    #[error("the peer hung up")]
    Terminated,
    #[error("the system says {0}")]
    Other(ErrorKind),
}

/// What can have left the machine when a dial failed. In no case a byte of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sent {
    /// Nothing but the packets that open a TCP connection.
    Nothing,
    /// A TLS handshake, as far as it went. There is no early data.
    Handshake,
}

impl DialError {
    /// How `Proxy-Status` names it.
    pub fn error_type(&self) -> ErrorType {
        match &self.fault {
            DialFault::NoExit => ErrorType::DestinationIpUnroutable,
            DialFault::Connect(fault) => fault.error_type(),
            DialFault::Tls { fault, .. } => fault.error_type(),
        }
    }

    /// What can have been sent.
    pub fn sent(&self) -> Sent {
        match &self.fault {
            DialFault::NoExit | DialFault::Connect(_) => Sent::Nothing,
            DialFault::Tls { .. } => Sent::Handshake,
        }
    }

    /// A stable word for metrics.
    pub fn reason(&self) -> &'static str {
        match &self.fault {
            DialFault::NoExit => "no-exit",
            DialFault::Connect(fault) => fault.reason(),
            DialFault::Tls { fault, .. } => fault.reason(),
        }
    }
}

impl ConnectFault {
    /// How `Proxy-Status` names it.
    pub fn error_type(&self) -> ErrorType {
        match self {
            Self::ExitUnavailable(_) => ErrorType::ProxyConfigurationError,
            Self::PortsExhausted | Self::SocketsExhausted(_) => ErrorType::ConnectionLimitReached,
            Self::Prohibited => ErrorType::DestinationIpProhibited,
            Self::Timeout => ErrorType::ConnectionTimeout,
            Self::Unroutable => ErrorType::DestinationIpUnroutable,
            Self::Refused => ErrorType::ConnectionRefused,
            Self::Terminated => ErrorType::ConnectionTerminated,
            Self::Other(_) => ErrorType::ProxyInternalError,
        }
    }

    /// A stable word for metrics.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::ExitUnavailable(_) => "exit-unavailable",
            Self::PortsExhausted => "ports-exhausted",
            Self::SocketsExhausted(_) => "sockets-exhausted",
            Self::Prohibited => "prohibited",
            Self::Timeout => "timeout",
            Self::Unroutable => "unroutable",
            Self::Refused => "refused",
            Self::Terminated => "terminated",
            Self::Other(_) => "other",
        }
    }

    /// Of a system call that made or connected a socket. `AddrNotAvailable` of `bind` is the caller's to tell apart.
    pub(super) fn of(fault: &io::Error) -> Self {
        use nix::libc;
        match fault.raw_os_error() {
            Some(libc::EADDRNOTAVAIL | libc::EADDRINUSE) => Self::PortsExhausted,
            Some(libc::EMFILE | libc::ENFILE | libc::ENOBUFS | libc::ENOMEM) => Self::SocketsExhausted(fault.kind()),
            Some(libc::EACCES | libc::EPERM) => Self::Prohibited,
            Some(libc::ETIMEDOUT) => Self::Timeout,
            Some(libc::ENETUNREACH | libc::EHOSTUNREACH | libc::ENETDOWN | libc::EHOSTDOWN | libc::EINVAL) => {
                Self::Unroutable
            }
            Some(libc::ECONNREFUSED) => Self::Refused,
            Some(libc::ECONNRESET | libc::ECONNABORTED | libc::EPIPE) => Self::Terminated,
            Some(_) | None => Self::Other(fault.kind()),
        }
    }
}

/// The one that says most: what this machine lacks before what the peer does, and silence before a refusal, since a
/// peer that refuses on one address may be alive on the silent one.
pub(super) fn worst(failed: &[Attempt]) -> ConnectFault {
    let rank = |fault: &ConnectFault| match fault {
        ConnectFault::ExitUnavailable(_) => 0,
        ConnectFault::PortsExhausted => 1,
        ConnectFault::SocketsExhausted(_) => 2,
        ConnectFault::Prohibited => 3,
        ConnectFault::Timeout => 4,
        ConnectFault::Refused => 5,
        ConnectFault::Terminated => 6,
        ConnectFault::Unroutable => 7,
        ConnectFault::Other(_) => 8,
    };
    let worst = failed.iter().map(|attempt| &attempt.fault).min_by_key(|fault| rank(fault));
    // Nothing failed and nothing came: the time for all was over before the first attempt was.
    worst.cloned().unwrap_or(ConnectFault::Timeout)
}
