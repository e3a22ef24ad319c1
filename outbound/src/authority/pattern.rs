//! Patterns of hosts, as rules and openings write them.

use std::fmt;

use super::{Authority, Host, HostName, Malformed};

/// One host, or every name in a zone.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum HostPattern {
    /// This name or address.
    Exactly(Host),
    /// Written `*.zone`: every name in the zone, at any depth, and not the zone itself.
    Within(HostName),
}

impl HostPattern {
    /// A name, `*.` and a zone, or an address (IPv6 in brackets): read by the one parser of hosts. A star anywhere else
    /// is refused.
    pub fn parse(text: &str) -> Result<Self, Malformed> {
        if let Some(zone) = text.strip_prefix("*.") {
            return HostName::parse(zone).map(Self::Within);
        }
        // The port is of no matter here; it only lets the one parser read the host.
        let authority = Authority::with_port(format!("{text}:1"))?;
        Ok(Self::Exactly(authority.host().clone()))
    }

    /// Does it cover this host?
    pub fn covers(&self, host: &Host) -> bool {
        match (self, host) {
            (Self::Exactly(own), host) => own == host,
            (Self::Within(zone), Host::Name(name)) => name != zone && name.is_within(zone.as_str()),
            (Self::Within(_), Host::Address(_)) => false,
        }
    }
}

impl fmt::Display for HostPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exactly(host) => host.fmt(f),
            Self::Within(zone) => write!(f, "*.{zone}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_read_strictly_and_printed_as_it_is_read() {
        for text in ["api.example.com", "*.example.com", "*.ru", "10.1.2.3", "[fd00::1]", "a_b.example.com"] {
            assert_eq!(HostPattern::parse(text).unwrap().to_string(), text);
        }
        for text in
            ["*", "*.", "*.*.com", "a.*.com", "*a.com", "a.com:443", "http://a.com", "a b.com", "*.10.1.2.3", ""]
        {
            assert!(HostPattern::parse(text).is_err(), "{text}");
        }
    }
}
