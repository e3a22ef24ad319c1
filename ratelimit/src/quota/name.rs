//! Names on the protocol: short, checked, and safe inside a key of any store.

use std::fmt;
use std::sync::Arc;

/// Longest name, in bytes.
pub const NAME_BYTES_MAX: usize = 64;

/// Why a text is not a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InvalidName {
    #[error("is empty")]
    Empty,
    #[error("is longer than {NAME_BYTES_MAX} bytes")]
    TooLong,
    #[error("has a character other than A-Z, a-z, 0-9, '.', '-' and '_' at byte {0}")]
    Character(usize),
    #[error("is not 32 hexadecimal digits in lower case")]
    Holder,
}

/// 1 to 64 characters of `A-Z a-z 0-9 . - _`. No colon and no brace: a store may build its keys of names, a hash tag too.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(Arc<str>);

impl Name {
    /// The text, if it is a name.
    pub fn parse(text: &str) -> Result<Self, InvalidName> {
        if text.is_empty() {
            return Err(InvalidName::Empty);
        }
        if text.len() > NAME_BYTES_MAX {
            return Err(InvalidName::TooLong);
        }
        let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_');
        match text.bytes().position(|byte| !is_allowed(byte)) {
            Some(at) => Err(InvalidName::Character(at)),
            None => Ok(Self(text.into())),
        }
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// One start of one node's process. It is drawn at random when the process starts and never used again, so that what
/// a process held can never be mistaken for what its successor holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HolderId(pub u128);

impl HolderId {
    /// Reads the 32 digits that [`fmt::Display`] writes.
    pub fn parse(text: &str) -> Result<Self, InvalidName> {
        let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        if text.len() != 32 || !text.bytes().all(is_digit) {
            return Err(InvalidName::Holder);
        }
        u128::from_str_radix(text, 16).map(Self).map_err(|_| InvalidName::Holder)
    }
}

impl fmt::Display for HolderId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}
