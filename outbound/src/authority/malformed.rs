//! Why a text is no authority.

use thiserror::Error;

/// One reason each, closed; the log shows it, the caller only learns that the destination is malformed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Error)]
pub enum Malformed {
    #[error("the host is empty")]
    Empty,
    #[error("it is longer than any name with a port")]
    TooLong,
    #[error("it has characters outside of ASCII; names in other scripts are written as A-labels (xn--…)")]
    NotAscii,
    #[error("it has a control character or a space")]
    Control,
    #[error("it is percent-encoded; hosts are written plainly")]
    PercentEncoded,
    #[error("it has user information in front of the host")]
    UserInfo,
    #[error("it has a backslash")]
    Backslash,
    #[error("it has a path, query or fragment")]
    NotAuthority,
    #[error("it has a character that no host has")]
    Character,
    #[error("brackets are for one IPv6 address, with nothing but a port behind them")]
    Brackets,
    #[error("it has more than one colon; an IPv6 address stands in brackets")]
    ColonInHost,
    #[error("the text in brackets is no IPv6 address")]
    Ipv6,
    #[error("it ends in a number and is no IPv4 address in canonical form")]
    Ipv4,
    #[error("a label of the name is empty")]
    LabelEmpty,
    #[error("a label of the name is longer than 63 octets")]
    LabelTooLong,
    #[error("a label of the name begins or ends with a hyphen")]
    LabelHyphen,
    #[error("a label of the name begins with xn-- and is no A-label")]
    ALabel,
    #[error("there is no port")]
    PortMissing,
    #[error("the port is not a number from 1 to 65535 in plain digits")]
    Port,
    #[error("the URL does not begin with http:// or https://")]
    Scheme,
    #[error("the URL has a fragment, which is never sent")]
    Fragment,
    #[error("the URL is longer than 64 KiB")]
    UrlTooLong,
}

impl Malformed {
    /// What a single byte already says. None for the bytes of names, addresses and ports.
    pub(super) fn of_byte(byte: u8) -> Option<Self> {
        match byte {
            b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z' | b'-' | b'_' | b'.' | b':' | b'[' | b']' => None,
            0x80.. => Some(Self::NotAscii),
            ..=b' ' | 0x7f => Some(Self::Control),
            b'%' => Some(Self::PercentEncoded),
            b'@' => Some(Self::UserInfo),
            b'\\' => Some(Self::Backslash),
            b'/' | b'?' | b'#' => Some(Self::NotAuthority),
            _ => Some(Self::Character),
        }
    }
}
