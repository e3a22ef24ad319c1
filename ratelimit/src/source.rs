//! Where a delivery comes from, as budgets see it.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A source: one IPv4 address, or one IPv6 /64, since whoever has one address of a /64 has all of them.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Source(u64);

/// The upper half of an IPv4 source. As an IPv6 prefix it is multicast, which no peer has.
const V4: u64 = 0xffff_ffff_0000_0000;

/// A piece of the address space that one party is likely to hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Block {
    /// What a customer of a provider gets: IPv6 /48, IPv4 /24.
    Site(u64),
    /// What a provider gets: IPv6 /32, IPv4 /16.
    Network(u64),
}

impl Source {
    /// An IPv4 address that is written as IPv6 is unwrapped: mapped (`::ffff:a.b.c.d`, what a dual-stack listener
    /// sees) and translated (`64:ff9b::a.b.c.d`, what a listener behind NAT64 sees). Else all of IPv4 would be one
    /// source.
    pub fn of(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(v4) => Self::v4(v4),
            IpAddr::V6(v6) => match v4_within(v6) {
                Some(v4) => Self::v4(v4),
                None => Self((u128::from(v6) >> 64) as u64),
            },
        }
    }

    fn v4(address: Ipv4Addr) -> Self {
        Self(V4 | u64::from(u32::from(address)))
    }

    pub(crate) fn is_v6(self) -> bool {
        self.0 < V4
    }

    /// The blocks around it, the narrow one first.
    pub(crate) fn blocks(self) -> [Block; 2] {
        let (site, network) = if self.is_v6() { (16, 32) } else { (8, 16) };
        [Block::Site(self.0 >> site << site), Block::Network(self.0 >> network << network)]
    }
}

fn v4_within(address: Ipv6Addr) -> Option<Ipv4Addr> {
    const NAT64: [u16; 6] = [0x64, 0xff9b, 0, 0, 0, 0];
    address.to_ipv4_mapped().or_else(|| {
        let [prefix @ .., high, low] = address.segments();
        (prefix == NAT64).then(|| Ipv4Addr::from(u32::from(high) << 16 | u32::from(low)))
    })
}

impl From<IpAddr> for Source {
    fn from(address: IpAddr) -> Self {
        Self::of(address)
    }
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_v6() {
            write!(f, "{}/64", Ipv6Addr::from(u128::from(self.0) << 64))
        } else {
            write!(f, "{}", Ipv4Addr::from((self.0 & !V4) as u32))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(text: &str) -> Source {
        Source::of(text.parse().unwrap())
    }

    #[test]
    fn a_64_is_one_source_and_its_neighbour_another() {
        assert_eq!(source("2001:db8:1:2::1"), source("2001:db8:1:2:ffff:ffff:ffff:ffff"));
        assert_ne!(source("2001:db8:1:2::1"), source("2001:db8:1:3::1"));
        assert_ne!(source("192.0.2.1"), source("192.0.2.2"));
    }

    #[test]
    fn ipv4_is_the_same_source_however_it_is_written() {
        for text in ["::ffff:192.0.2.1", "::ffff:c000:201", "64:ff9b::192.0.2.1"] {
            assert_eq!(source(text), source("192.0.2.1"), "{text}");
        }
        assert_ne!(source("::ffff:192.0.2.2"), source("192.0.2.1"));
        // One bit beside the prefixes: IPv6 like any other.
        assert!(source("::fffe:192.0.2.1").is_v6());
        assert!(source("64:ff9b:0:0:0:1:c000:201").is_v6());
        assert!(source("64:ff9b:1::192.0.2.1").is_v6());
    }

    #[test]
    fn an_ipv4_source_is_no_ipv6_source() {
        assert_ne!(source("0.0.0.5"), source("0:0:0:5::1"));
        assert!(!source("255.255.255.255").is_v6());
        assert!(source("fe80::1").is_v6());
    }

    #[test]
    fn blocks_hold_their_neighbours_and_end_where_they_should() {
        let same = |level: usize, a: &str, b: &str| source(a).blocks()[level] == source(b).blocks()[level];
        assert!(same(0, "2001:db8:1::", "2001:db8:1:ffff::"));
        assert!(!same(0, "2001:db8:1::", "2001:db8:2::"));
        assert!(same(1, "2001:db8::", "2001:db8:ffff::"));
        assert!(!same(1, "2001:db8::", "2001:db9::"));
        assert!(same(0, "192.0.2.0", "192.0.2.255"));
        assert!(!same(0, "192.0.2.0", "192.0.3.0"));
        assert!(same(1, "192.0.0.0", "192.0.255.255"));
        assert!(!same(1, "192.0.0.0", "192.1.0.0"));
        // A site is not the network that begins at the same place.
        assert_ne!(source("2001:db8::").blocks()[0], source("2001:db8::").blocks()[1]);
    }

    #[test]
    fn it_is_shown_as_an_operator_would_write_it() {
        assert_eq!(format!("{:?}", source("2001:db8:1:2::9")), "2001:db8:1:2::/64");
        assert_eq!(format!("{:?}", source("::ffff:192.0.2.1")), "192.0.2.1");
    }
}
