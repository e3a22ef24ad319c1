//! A host: a name, or an address.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use idna::uts46::{AsciiDenyList, DnsLength, Hyphens, Uts46};

use super::Malformed;

/// What stands before the port.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Host {
    /// A name that has to be resolved.
    Name(HostName),
    /// An address that was written as one; it is not resolved.
    Address(IpAddr),
}

/// An absolute name: lower case, without the final dot, 1 to 253 octets, every label of letters, digits, `-` and `_`,
/// the last one not numeric. Cheap to clone.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct HostName(Arc<str>);

/// RFC 1035, 2.3.4: 255 octets on the wire, which is 253 of text without the final dot.
const NAME_BYTES_MAX: usize = 253;
const LABEL_BYTES_MAX: usize = 63;

impl Host {
    /// The text has only bytes that [`Malformed::of_byte`] lets through; an IPv6 address has its brackets.
    pub(super) fn parse(text: &str) -> Result<Self, Malformed> {
        if let Some(inner) = text.strip_prefix('[') {
            let inner = inner.strip_suffix(']').ok_or(Malformed::Brackets)?;
            let address: Ipv6Addr = inner.parse().map_err(|_| Malformed::Ipv6)?;
            return Ok(Self::Address(address.into()));
        }
        // The standard library reads four decimal numbers without leading zeros, and nothing else.
        if let Ok(address) = text.parse::<Ipv4Addr>() {
            return Ok(Self::Address(address.into()));
        }
        HostName::parse(text).map(Self::Name)
    }
}

impl HostName {
    /// A name, with or without its final dot. Addresses are none.
    pub fn parse(text: &str) -> Result<Self, Malformed> {
        let text = text.strip_suffix('.').unwrap_or(text);
        if text.is_empty() {
            return Err(Malformed::Empty);
        }
        if text.len() > NAME_BYTES_MAX {
            return Err(Malformed::TooLong);
        }
        let name = text.to_ascii_lowercase();
        for label in name.split('.') {
            check_label(label)?;
        }
        if ends_in_number(&name) {
            return Err(Malformed::Ipv4);
        }
        Ok(Self(name.into()))
    }

    /// Lower case, without the final dot.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// From left to right.
    pub fn labels(&self) -> impl DoubleEndedIterator<Item = &str> {
        self.0.split('.')
    }

    /// Whether this is the zone itself or a name in it: `a.example.com` is within `example.com`, and
    /// `badexample.com` is not.
    pub fn is_within(&self, zone: &str) -> bool {
        self.0.strip_suffix(zone).is_some_and(|front| front.is_empty() || front.ends_with('.'))
    }
}

fn check_label(label: &str) -> Result<(), Malformed> {
    if label.is_empty() {
        return Err(Malformed::LabelEmpty);
    }
    if label.len() > LABEL_BYTES_MAX {
        return Err(Malformed::LabelTooLong);
    }
    if let Some(byte) = label.bytes().find(|byte| !matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_')) {
        return Err(match Malformed::of_byte(byte) {
            Some(reason) => reason,
            // What is left are the brackets and the colon.
            None => Malformed::Character,
        });
    }
    if label.starts_with('-') || label.ends_with('-') {
        return Err(Malformed::LabelHyphen);
    }
    if label.starts_with("xn--") && !is_a_label(label) {
        return Err(Malformed::ALabel);
    }
    Ok(())
}

/// Whether it decodes, and encodes to itself again. `xn--example-` decodes to plain `example`, which would be one name
/// to the rules and another to whoever decodes it; that is why it does not pass.
fn is_a_label(label: &str) -> bool {
    Uts46::new()
        .to_ascii(label.as_bytes(), AsciiDenyList::URL, Hyphens::CheckFirstLast, DnsLength::Verify)
        .is_ok_and(|again| again == label)
}

/// The WHATWG's "ends in a number": such a text is an address to browsers and to `getaddrinfo`, or nothing.
fn ends_in_number(name: &str) -> bool {
    let last = name.rsplit('.').next().unwrap_or(name);
    match last.strip_prefix("0x") {
        Some(hex) => hex.bytes().all(|byte| byte.is_ascii_hexdigit()),
        None => last.bytes().all(|byte| byte.is_ascii_digit()),
    }
}

impl fmt::Display for HostName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for HostName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// As it stands in an authority: an IPv6 address in brackets, in the form of RFC 5952.
impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => name.fmt(f),
            Self::Address(IpAddr::V4(address)) => address.fmt(f),
            Self::Address(IpAddr::V6(address)) => write!(f, "[{address}]"),
        }
    }
}

impl fmt::Debug for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
