//! Names on the protocol: short, checked, and safe inside a key of any store.

use std::fmt;
use std::sync::Arc;

/// Longest name, in bytes.
pub const NAME_BYTES_MAX: usize = 64;

/// All that names have, in order.
const ALPHABET: &[u8] = b"-.0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ_abcdefghijklmnopqrstuvwxyz";

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

    /// The last name that there can be before this one, in the order of names; none before the first of all, `-`.
    pub(super) fn before(&self) -> Option<Self> {
        let (&last, rest) = self.0.as_bytes().split_last()?;
        let lower = ALPHABET.iter().rev().find(|&&byte| byte < last);
        let mut bytes = rest.to_vec();
        if let Some(&lower) = lower {
            // Whatever begins with that is before this one, and this is the last of those.
            bytes.push(lower);
            bytes.resize(NAME_BYTES_MAX, ALPHABET[ALPHABET.len() - 1]);
        }
        Self::parse(str::from_utf8(&bytes).ok()?).ok()
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

#[cfg(test)]
mod unit {
    use proptest::prelude::*;

    use super::*;

    fn name(text: &str) -> Name {
        Name::parse(text).unwrap()
    }

    #[test]
    fn the_first_of_all_names_has_none_before_it() {
        assert_eq!(name("-").before(), None);
        assert_eq!(name("a-").before(), Some(name("a")));
        assert_eq!(name("daily").before().unwrap().as_str(), format!("dailx{}", "z".repeat(59)));
        let mut sorted = ALPHABET.to_vec();
        sorted.sort_unstable();
        assert_eq!(sorted, ALPHABET);
    }

    proptest! {
        #[test]
        fn no_name_is_between_a_name_and_the_one_before(
            of in "[-._0-9A-Za-z]{1,64}",
            other in "[-._0-9A-Za-z]{1,64}",
            (at, end) in (0_usize..64, "[-.zZa_]{0,4}"),
        ) {
            let of = name(&of);
            let near = format!("{}{end}", &of.as_str()[..at.min(of.as_str().len())]);
            let near = Name::parse(&near).unwrap_or_else(|_| name("z"));
            if let Some(before) = of.before() {
                prop_assert!(before < of);
                for one in [name(&other), near] {
                    prop_assert!(one <= before || one >= of, "{one} is between {before} and {of}");
                }
            } else {
                prop_assert_eq!(of.as_str(), "-");
            }
        }
    }
}
