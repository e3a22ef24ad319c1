//! NAT64 prefixes that the operator opted into (RFC 6052).
//!
//! Behind one, an IPv6 address *is* an IPv4 address: it is decoded, and only the IPv4 address is judged. Without the
//! opt-in every such prefix is closed. RFC 6052, 3.1 forbids the well-known prefix for addresses that are not global;
//! here that holds for every prefix, so a translated address is never one that needs an opening.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use ipnet::Ipv6Net;
use thiserror::Error;

use crate::embedded::{NAT64, NAT64_LOCAL, v4_behind};

/// A prefix behind which a translator stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Nat64Prefix(Ipv6Net);

/// Why a prefix is none for NAT64.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum Nat64Fault {
    #[error("it is no IPv6 prefix")]
    Syntax,
    #[error("it has bits set behind its length")]
    HostBits,
    #[error("its length is none of 32, 40, 48, 56, 64 and 96 (RFC 6052, 2.2)")]
    Length,
    #[error("its bits 64 to 71 are not zero (RFC 6052, 2.2)")]
    Reserved,
    #[error(
        "it lies in no space where a translator can be: global unicast, unique local, 64:ff9b::/96 or 64:ff9b:1::/48"
    )]
    Place,
}

impl FromStr for Nat64Prefix {
    type Err = Nat64Fault;

    fn from_str(text: &str) -> Result<Self, Nat64Fault> {
        let prefix: Ipv6Net = text.parse().map_err(|_| Nat64Fault::Syntax)?;
        if prefix.trunc() != prefix {
            return Err(Nat64Fault::HostBits);
        }
        if !matches!(prefix.prefix_len(), 32 | 40 | 48 | 56 | 64 | 96) {
            return Err(Nat64Fault::Length);
        }
        if reserved(prefix.addr()) != 0 {
            return Err(Nat64Fault::Reserved);
        }
        let global = Ipv6Net::new_assert(Ipv6Addr::new(0x2000, 0, 0, 0, 0, 0, 0, 0), 3);
        let local = Ipv6Net::new_assert(Ipv6Addr::new(0xfc00, 0, 0, 0, 0, 0, 0, 0), 7);
        // In 2001::/23 and 2002::/16 addresses embed others in their own way, or belong to nobody.
        let protocol = Ipv6Net::new_assert(Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, 0, 0), 23);
        let relayed = Ipv6Net::new_assert(Ipv6Addr::new(0x2002, 0, 0, 0, 0, 0, 0, 0), 16);
        let usual = prefix == NAT64 || NAT64_LOCAL.contains(&prefix) || local.contains(&prefix);
        let own = global.contains(&prefix) && !protocol.contains(&prefix) && !relayed.contains(&prefix);
        if usual || own { Ok(Self(prefix)) } else { Err(Nat64Fault::Place) }
    }
}

/// What an address behind a NAT64 prefix means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Translated {
    To(Ipv4Addr),
    /// Bits are set that RFC 6052 wants to be zero: what a translator makes of it is its own affair.
    Ambiguous,
}

impl Nat64Prefix {
    /// None for an address that is not behind this prefix.
    pub(crate) fn translated(self, address: Ipv6Addr) -> Option<Translated> {
        if !self.0.contains(&address) {
            return None;
        }
        let length = self.0.prefix_len();
        // The bits behind the IPv4 address; it is eight further where the reserved octet lies in between.
        let used = if length < 96 { length + 32 + 8 } else { 128 };
        let suffix = u128::from(address).checked_shl(u32::from(used)).unwrap_or(0);
        if reserved(address) != 0 || suffix != 0 {
            return Some(Translated::Ambiguous);
        }
        Some(Translated::To(v4_behind(address, length)))
    }
}

fn reserved(address: Ipv6Addr) -> u8 {
    address.octets()[8]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn to(prefix: &str, address: &str) -> Option<Translated> {
        prefix.parse::<Nat64Prefix>().unwrap().translated(address.parse().unwrap())
    }

    #[test]
    fn addresses_behind_a_prefix_are_the_ipv4_ones() {
        let public = Some(Translated::To(Ipv4Addr::new(141, 95, 172, 205)));
        assert_eq!(to("64:ff9b::/96", "64:ff9b::8d5f:accd"), public);
        assert_eq!(to("64:ff9b:1:fffe::/96", "64:ff9b:1:fffe::141.95.172.205"), public);
        assert_eq!(to("fd64::/32", "fd64:0:8d5f:accd::"), public);
        assert_eq!(to("2a00:1:2::/48", "2a00:1:2:8d5f:ac:cd00::"), public);
        assert_eq!(to("64:ff9b::/96", "64:ff9b:0:1::8d5f:accd"), None);
    }

    #[test]
    fn bits_that_should_be_zero_make_it_ambiguous() {
        assert_eq!(to("2a00:1:2::/48", "2a00:1:2:8d5f:ac:cd01::"), Some(Translated::Ambiguous));
        assert_eq!(to("2a00:1:2::/48", "2a00:1:2:8d5f:1ac:cd00::"), Some(Translated::Ambiguous));
        assert_eq!(to("fd64::/32", "fd64:0:8d5f:accd::1"), Some(Translated::Ambiguous));
        assert_eq!(to("2a00:1:2:3::/64", "2a00:1:2:3:8d:5fac:cd00:1"), Some(Translated::Ambiguous));
    }

    #[test]
    fn prefixes_that_are_none() {
        for (text, fault) in [
            ("10.0.0.0/8", Nat64Fault::Syntax),
            ("64:ff9b::", Nat64Fault::Syntax),
            ("64:ff9b::1/96", Nat64Fault::HostBits),
            ("64:ff9b::/95", Nat64Fault::Length),
            ("2a00::/128", Nat64Fault::Length),
            ("2a00:0:0:0:100::/96", Nat64Fault::Reserved),
            ("::ffff:0:0/96", Nat64Fault::Place),
            ("::/96", Nat64Fault::Place),
            ("::/32", Nat64Fault::Place),
            ("2002:7f00::/32", Nat64Fault::Place),
            ("2001::/32", Nat64Fault::Place),
            ("fe80::/64", Nat64Fault::Place),
            ("64:ff9b::/64", Nat64Fault::Place),
        ] {
            assert_eq!(text.parse::<Nat64Prefix>(), Err(fault), "{text}");
        }
    }
}
