//! Whether a request is a handshake: by its method and by what its row says of it.
//!
//! This is asked before anything is proven, of every delivery of a scheme that has handshakes, so it is cheap: a large body is
//! no handshake, and a body is read only where the words that would be found in it are there.

use config::scheme::{ValueSource, When};
use memchr::memmem::Finder;

use super::Handshake;
use crate::scheme::{Scheme, Source, Unverified};

/// A handshake's body is some hundred bytes at every provider.
const BODY_BYTES_MAX: usize = 16 << 10;

/// What holds for a handshake.
#[derive(Debug)]
pub(super) enum Condition {
    Value {
        source: Source,
        says: Option<Box<[u8]>>,
        /// Stands in every body that has it, written as every provider writes it: plainly.
        word: Option<Box<Finder<'static>>>,
    },
    EmptyBody,
}

impl Condition {
    pub(super) fn compile(declared: &When) -> Self {
        let (source, says) = match declared {
            When::EmptyBody => return Self::EmptyBody,
            When::There(source) => (source, None),
            When::Says(source, text) => (source, Some(text.as_str())),
        };
        let name = match source {
            ValueSource::Json(path) => path.last().filter(|name| *name != "*").map(String::as_str),
            ValueSource::Form(_)
            | ValueSource::Header(_)
            | ValueSource::Query(_)
            | ValueSource::Field(_)
            | ValueSource::Claim(_)
            | ValueSource::Item(_) => None,
        };
        let word = name.map(|name| Box::new(Finder::new(name.as_bytes()).into_owned()));
        Self::Value { source: Source::compile(source), says: says.map(|text| text.as_bytes().into()), word }
    }

    fn holds(&self, asked: &Unverified<'_>) -> bool {
        match self {
            Self::EmptyBody => asked.body.is_empty(),
            Self::Value { word: Some(word), .. } if word.find(asked.body).is_none() => false,
            // What is there twice or cannot be read is no handshake: as a delivery it has to prove itself.
            Self::Value { source, says, .. } => {
                source.found_in(asked).is_some_and(|value| says.as_ref().is_none_or(|says| **says == *value))
            }
        }
    }
}

impl Scheme {
    /// The handshake that this request is; none for a delivery.
    pub(crate) fn handshake(&self, asked: &Unverified<'_>) -> Option<&Handshake> {
        if asked.body.len() > BODY_BYTES_MAX {
            return None;
        }
        self.handshakes().iter().find(|handshake| handshake.is(asked))
    }
}

impl Handshake {
    fn is(&self, asked: &Unverified<'_>) -> bool {
        self.method.as_bytes() == asked.method
            && self.conditions.iter().all(|condition| condition.holds(asked))
            && self.question.as_ref().is_none_or(|question| question.is_alone(asked))
    }
}
