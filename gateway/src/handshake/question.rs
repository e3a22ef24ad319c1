//! What the provider asks, read strictly.

use config::scheme::{Alphabet, Challenge};

use crate::scheme::{Source, Unverified};

/// Longer challenges than this cannot be declared.
pub(super) const CHALLENGE_BYTES_MAX: u16 = 1024;

/// Where a challenge is and what it can look like.
#[derive(Debug)]
pub(crate) struct Question {
    pub(super) source: Source,
    alphabet: Alphabet,
    bytes_max: usize,
    /// The body has nothing else in it.
    alone: bool,
}

impl Question {
    pub(super) fn compile(declared: &Challenge) -> Self {
        Self {
            source: Source::compile(&declared.from),
            alphabet: declared.alphabet,
            bytes_max: usize::from(declared.bytes_max.min(CHALLENGE_BYTES_MAX)),
            alone: declared.alone,
        }
    }

    /// The challenge: there once, short enough, and of its alphabet.
    pub(super) fn read(&self, asked: &Unverified<'_>) -> Option<String> {
        let value = self.source.found_in(asked)?;
        let fits = !value.is_empty() && self.may_be(&value);
        fits.then(|| String::from_utf8(value.into_owned()).ok()).flatten()
    }

    /// Could this be a challenge, or a part of one?
    pub(crate) fn may_be(&self, text: &[u8]) -> bool {
        text.len() <= self.bytes_max && text.iter().all(|byte| self.alphabet.has(*byte))
    }

    /// Can this byte stand in a challenge?
    pub(crate) fn has(&self, byte: u8) -> bool {
        self.alphabet.has(byte)
    }

    /// Is it the whole body, where it has to be?
    pub(super) fn is_alone(&self, asked: &Unverified<'_>) -> bool {
        !self.alone || self.source.is_alone_in(asked.body)
    }
}
