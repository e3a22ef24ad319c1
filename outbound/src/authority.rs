//! Authorities: the one parser for every way in.
//!
//! CONNECT's target, the URL of an absolute-form request, `Host`, `:authority`, a `Location` and a connection's
//! `base_url` all come through here, so that there is one reading of a destination and no second one that a caller
//! could aim between. The parser does not repair: text that another program could read differently is refused, with a
//! reason out of a closed set. In particular:
//!
//! - Hosts are ASCII. A name in another script comes as its A-labels (`xn--…`), and those are checked; nothing is
//!   folded or mapped here, since mapping is how `①②⑦.⓪.⓪.①` becomes `127.0.0.1`.
//! - An IPv4 address is four decimal numbers without leading zeros. Whatever else ends in a number (`127.1`, `0x7f.1`,
//!   `2130706433`, `1.2.3.04`, `127.0.0.1.`) is refused: to `getaddrinfo` and to browsers it is an address.
//! - An IPv6 address stands in brackets, alone: no zone, no name, nothing between bracket and port.
//! - A port is 1 to 65535 in plain digits.
//!
//! What is equal is written equally: names are lower case, one final dot is dropped (every name is absolute here),
//! IPv6 addresses are in their canonical form. Two authorities are the same destination exactly when they are `==`.

mod host;
mod malformed;
mod pattern;
mod target;

use std::fmt;
use std::net::IpAddr;

pub use host::{Host, HostName};
pub use malformed::Malformed;
pub use pattern::HostPattern;
pub use target::{Scheme, Target};

/// A host and a port, parsed and canonical.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Authority {
    host: Host,
    /// Never 0.
    port: u16,
}

/// Longest text of an authority: a name of 253 octets with its final dot, a colon, five digits.
const BYTES_MAX: usize = 253 + 1 + 1 + 5;

impl Authority {
    /// `host:port`, as CONNECT has it. There is no default: a port that nobody wrote is not guessed.
    pub fn with_port(text: impl AsRef<[u8]>) -> Result<Self, Malformed> {
        match split(text.as_ref())? {
            (host, Some(port)) => Ok(Self { host: Host::parse(host)?, port: parse_port(port)? }),
            (_, None) => Err(Malformed::PortMissing),
        }
    }

    /// `host` or `host:port`, as `Host`, `:authority` and URLs have it.
    pub fn or_port(text: impl AsRef<[u8]>, default: u16) -> Result<Self, Malformed> {
        let (host, port) = split(text.as_ref())?;
        let port = match port {
            Some(port) => parse_port(port)?,
            None if default == 0 => return Err(Malformed::PortMissing),
            None => default,
        };
        Ok(Self { host: Host::parse(host)?, port })
    }

    /// The name or address.
    pub fn host(&self) -> &Host {
        &self.host
    }

    /// 1 to 65535.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The name to resolve; none if the host is an address already.
    pub fn name(&self) -> Option<&HostName> {
        match &self.host {
            Host::Name(name) => Some(name),
            Host::Address(_) => None,
        }
    }

    /// The address that was asked for; none if the host is a name.
    pub fn address(&self) -> Option<IpAddr> {
        match self.host {
            Host::Name(_) => None,
            Host::Address(address) => Some(address),
        }
    }
}

/// Always with the port: what this prints, [`Authority::with_port`] reads as the same authority.
impl fmt::Display for Authority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

/// One pass over every byte, then host and port. A host in brackets keeps them.
fn split(text: &[u8]) -> Result<(&str, Option<&str>), Malformed> {
    if text.len() > BYTES_MAX {
        return Err(Malformed::TooLong);
    }
    if let Some(reason) = text.iter().find_map(|byte| Malformed::of_byte(*byte)) {
        return Err(reason);
    }
    let text = std::str::from_utf8(text).expect("every byte was seen to be ASCII");
    let end = match text.strip_prefix('[') {
        Some(inner) => inner.find(']').ok_or(Malformed::Brackets)? + 2,
        None => text.find(':').unwrap_or(text.len()),
    };
    let (host, rest) = text.split_at(end);
    match rest.strip_prefix(':') {
        Some(port) if port.contains(':') && !host.starts_with('[') => Err(Malformed::ColonInHost),
        Some(port) => Ok((host, Some(port))),
        None if rest.is_empty() => Ok((host, None)),
        None => Err(Malformed::Brackets),
    }
}

/// Digits only: no sign, no leading zero, no service name, and nothing that wraps.
fn parse_port(text: &str) -> Result<u16, Malformed> {
    let digits = !text.is_empty() && text.len() <= 5 && text.bytes().all(|byte| byte.is_ascii_digit());
    if !digits || text.starts_with('0') {
        return Err(Malformed::Port);
    }
    text.parse().map_err(|_| Malformed::Port)
}

#[cfg(test)]
mod tests;
