//! A range of addresses, in the one way to write it.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use ipnet::IpNet;
use outbound::AddressTable;
use outbound::table::Verdict;
use serde::{Deserialize, Serialize};

/// An IPv4 or IPv6 prefix without bits behind its length. IPv4 sorts first, then by address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Prefix(IpNet);

/// Widest ranges: nobody calls out from more, and whoever allows one lets everybody in who is in it.
const WIDEST: (u8, u8) = (16, 29);

/// Why a text is no range.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PrefixFault {
    /// Neither address nor prefix.
    #[error("is no prefix; write such as 198.51.100.0/24 or 2001:db8::/48")]
    Form,
    /// One address.
    #[error("is an address; where it is that one alone, write {0}")]
    Address(IpNet),
    /// Bits behind the length.
    #[error("has bits set behind its length; the prefix is {0}")]
    HostBits(IpNet),
    /// Another spelling of it, which a plain comparison would not find.
    #[error("is written {0}")]
    Spelling(IpNet),
    /// More than a platform's.
    #[error("is wider than /{0}: whoever allows it lets everybody in who is in it")]
    Wide(u8),
}

impl Prefix {
    /// As a network.
    pub fn net(self) -> IpNet {
        self.0
    }

    /// Is the address in it?
    pub fn has(self, address: IpAddr) -> bool {
        self.0.contains(&address)
    }

    /// Do they have an address in common?
    pub fn overlaps(self, other: Self) -> bool {
        self.0.contains(&other.0) || other.0.contains(&self.0)
    }

    /// What of it is not public, if anything is: a row of the table around it or inside it.
    pub fn special(self, table: &AddressTable) -> Option<(IpNet, &str)> {
        let inside = table.rows().filter(|row| self.0.contains(&row.prefix));
        let mut rows = std::iter::once(table.row_around(self.0)).chain(inside);
        rows.find(|row| row.verdict != Verdict::Public).map(|row| (row.prefix, row.name.as_str()))
    }

    /// `ipv4` or `ipv6`.
    pub fn family(self) -> &'static str {
        if self.0.addr().is_ipv4() { "ipv4" } else { "ipv6" }
    }
}

impl FromStr for Prefix {
    type Err = PrefixFault;

    fn from_str(text: &str) -> Result<Self, PrefixFault> {
        if let Ok(address) = text.parse::<IpAddr>() {
            return Err(PrefixFault::Address(address.into()));
        }
        let net: IpNet = text.parse().map_err(|_| PrefixFault::Form)?;
        if net.trunc() != net {
            return Err(PrefixFault::HostBits(net.trunc()));
        }
        if net.to_string() != text {
            return Err(PrefixFault::Spelling(net));
        }
        let widest = if net.addr().is_ipv4() { WIDEST.0 } else { WIDEST.1 };
        if net.prefix_len() < widest { Err(PrefixFault::Wide(widest)) } else { Ok(Self(net)) }
    }
}

impl TryFrom<String> for Prefix {
    type Error = PrefixFault;

    fn try_from(text: String) -> Result<Self, PrefixFault> {
        text.parse()
    }
}

impl From<Prefix> for String {
    fn from(prefix: Prefix) -> Self {
        prefix.to_string()
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_one_way_to_write_a_prefix() {
        for text in ["198.51.100.0/24", "198.51.100.7/32", "2001:db8::/48", "2600:1f00::/29"] {
            assert_eq!(text.parse::<Prefix>().unwrap().to_string(), text);
        }
        let fault = |text: &str| text.parse::<Prefix>().expect_err(text).to_string();
        assert_eq!(fault("198.51.100.7"), "is an address; where it is that one alone, write 198.51.100.7/32");
        assert_eq!(fault("198.51.100.7/24"), "has bits set behind its length; the prefix is 198.51.100.0/24");
        assert_eq!(fault("2001:DB8::/48"), "is written 2001:db8::/48");
        assert_eq!(fault("8.0.0.0/8"), "is wider than /16: whoever allows it lets everybody in who is in it");
        for text in ["", "x", "1.2.3/24", "1.2.3.0/33", "01.2.3.0/24", "1.2.3.0/24 ", "1.2.3.0/024", "fe80::%1/64"] {
            assert!(text.parse::<Prefix>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn what_is_not_public_is_said_by_its_name() {
        let table = AddressTable::shipped();
        let special = |text: &str| text.parse::<Prefix>().unwrap().special(&table).map(|(_, name)| name.to_owned());
        assert_eq!(special("93.184.216.0/24"), None);
        assert_eq!(special("2600:1f00::/32"), None);
        assert_eq!(special("10.1.0.0/16").as_deref(), Some("private use"));
        assert_eq!(special("127.0.0.1/32").as_deref(), Some("loopback"));
        assert_eq!(special("198.51.100.0/24").as_deref(), Some("documentation (TEST-NET-2)"));
        // A row inside of it is enough.
        assert!(special("192.0.0.0/16").is_some() && special("168.63.0.0/16").is_some());
        assert!(special("::ffff:1.2.3.0/120").is_some());
    }
}
