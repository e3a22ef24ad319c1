//! IPv4 addresses inside IPv6 ones.
//!
//! A packet to such an address may end at the IPv4 address: through a translator, a relay, a tunnel, or the kernel
//! itself. The prefixes below are closed in the table already. They are decoded all the same, and what is found is
//! judged again, so that no opening, no NAT64 prefix and no later row of the table can let an address in through its
//! disguise.

use std::net::{Ipv4Addr, Ipv6Addr};

use ipnet::Ipv6Net;

/// Prefixes under which an address has an IPv4 address in it.
pub(crate) const EMBEDDING_PREFIXES: [Ipv6Net; 7] =
    [MAPPED, COMPATIBLE, TRANSLATED, NAT64, NAT64_LOCAL, SIX_TO_FOUR, TEREDO];

const MAPPED: Ipv6Net = Ipv6Net::new_assert(Ipv6Addr::new(0, 0, 0, 0, 0, 0xffff, 0, 0), 96);
const COMPATIBLE: Ipv6Net = Ipv6Net::new_assert(Ipv6Addr::UNSPECIFIED, 96);
const TRANSLATED: Ipv6Net = Ipv6Net::new_assert(Ipv6Addr::new(0, 0, 0, 0, 0xffff, 0, 0, 0), 96);
pub(crate) const NAT64: Ipv6Net = Ipv6Net::new_assert(Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, 0, 0), 96);
pub(crate) const NAT64_LOCAL: Ipv6Net = Ipv6Net::new_assert(Ipv6Addr::new(0x64, 0xff9b, 1, 0, 0, 0, 0, 0), 48);
const SIX_TO_FOUR: Ipv6Net = Ipv6Net::new_assert(Ipv6Addr::new(0x2002, 0, 0, 0, 0, 0, 0, 0), 16);
const TEREDO: Ipv6Net = Ipv6Net::new_assert(Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, 0, 0), 32);

/// Every IPv4 address that somebody could find in this one. Mostly none.
pub(crate) fn embedded(address: Ipv6Addr) -> impl Iterator<Item = Ipv4Addr> {
    let segments = address.segments();
    let is_nat64_local = matches!(segments, [0x64, 0xff9b, 1, ..]);
    let is_six_to_four = segments[0] == 0x2002;
    let is_teredo = matches!(segments, [0x2001, 0, ..]);
    // RFC 5214, 6.1, under any prefix.
    let is_isatap = matches!(segments, [_, _, _, _, 0x0000 | 0x0200, 0x5efe, _, _]);
    let is_in_last_four = match segments {
        // IPv4-mapped, IPv4-translated, NAT64.
        [0, 0, 0, 0, 0, 0xffff, ..] | [0, 0, 0, 0, 0xffff, 0, ..] | [0x64, 0xff9b, 0, 0, 0, 0, ..] => true,
        // IPv4-compatible; `::` and `::1` are addresses of their own.
        [0, 0, 0, 0, 0, 0, high, low] => high != 0 || low > 1,
        _ => is_isatap,
    };
    // How long the prefix inside 64:ff9b:1::/48 is, its operator knows: every place that there is counts.
    let local = |length| is_nat64_local.then(|| v4_behind(address, length));
    [
        is_in_last_four.then(|| v4_at(address, 12)),
        is_six_to_four.then(|| v4_at(address, 2)),
        // The server, and the client turned inside out.
        is_teredo.then(|| v4_at(address, 4)),
        is_teredo.then(|| !v4_at(address, 12)),
        local(48),
        local(56),
        local(64),
        local(96),
    ]
    .into_iter()
    .flatten()
}

/// The four octets from `first` on.
fn v4_at(address: Ipv6Addr, first: usize) -> Ipv4Addr {
    let octets = address.octets();
    Ipv4Addr::from(std::array::from_fn(|index| octets[first + index]))
}

/// RFC 6052, 2.2: the four octets behind a prefix of this length, which step over octet 8: it is reserved.
pub(crate) fn v4_behind(address: Ipv6Addr, prefix_length: u8) -> Ipv4Addr {
    let octets = address.octets();
    let first = usize::from(prefix_length / 8);
    Ipv4Addr::from(std::array::from_fn(|index| {
        let at = first + index;
        octets[if first <= 8 && at >= 8 { at + 1 } else { at }]
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Vec<String> {
        let mut found: Vec<_> = embedded(text.parse().unwrap()).map(|address| address.to_string()).collect();
        found.dedup();
        found
    }

    #[test]
    fn every_disguise_is_seen_through() {
        for (text, inside) in [
            ("::ffff:169.254.169.254", "169.254.169.254"),
            ("::10.0.0.1", "10.0.0.1"),
            ("::ffff:0:10.0.0.1", "10.0.0.1"),
            ("64:ff9b::a9fe:a9fe", "169.254.169.254"),
            ("2002:a00:1::1", "10.0.0.1"),
            ("2606:4700::5efe:7f00:1", "127.0.0.1"),
            ("2606:4700::200:5efe:a9fe:a9fe", "169.254.169.254"),
            ("fd00::5efe:10.0.0.1", "10.0.0.1"),
        ] {
            assert_eq!(found(text), [inside], "{text}");
        }
        // Teredo has two: the server, and the client turned inside out.
        assert_eq!(found("2001:0:a00:1:0:0:80ff:fffe"), ["10.0.0.1", "127.0.0.1"]);
    }

    #[test]
    fn every_embedding_prefix_is_decoded() {
        for prefix in EMBEDDING_PREFIXES {
            let last = prefix.broadcast();
            assert!(embedded(last).next().is_some(), "{prefix}");
        }
    }

    #[test]
    fn plain_addresses_have_none() {
        for text in
            ["::", "::1", "2606:4700::1111", "2001:4860:4860::8888", "fd00::1", "fe80::1", "2001:1::1", "64:ff9c::1"]
        {
            assert_eq!(found(text), Vec::<String>::new(), "{text}");
        }
    }

    /// The table of RFC 6052, 2.4.
    #[test]
    fn translation_steps_over_the_reserved_octet() {
        for (text, length) in [
            ("2001:db8:c000:221::", 32),
            ("2001:db8:1c0:2:21::", 40),
            ("2001:db8:122:c000:2:2100::", 48),
            ("2001:db8:122:3c0:0:221::", 56),
            ("2001:db8:122:344:c0:2:2100::", 64),
            ("2001:db8:122:344::192.0.2.33", 96),
        ] {
            let address: Ipv6Addr = text.parse().unwrap();
            assert_eq!(v4_behind(address, length), Ipv4Addr::new(192, 0, 2, 33), "{length}");
        }
    }

    #[test]
    fn a_local_translation_prefix_is_decoded_at_every_length() {
        // The metadata address, behind a prefix of 48, 56, 64 and 96 bits.
        for text in [
            "64:ff9b:1:a9fe:a9:fe00::",
            "64:ff9b:1:aa9:fe:a9fe::",
            "64:ff9b:1:1:a9:fea9:fe00::",
            "64:ff9b:1:1::a9fe:a9fe",
        ] {
            assert!(found(text).contains(&"169.254.169.254".to_owned()), "{text}: {:?}", found(text));
        }
    }
}
