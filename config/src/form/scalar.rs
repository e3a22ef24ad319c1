//! Numbers, sizes, durations, moments, and words of a few.

use std::fmt::Display;
use std::ops::RangeInclusive;
use std::time::Duration;

use domain::text::Untrusted;
use serde_json::{Value, json};
use toml::Spanned;
use toml::de::DeValue;

use super::{Form, text};
use crate::document::{Document, nearest};
use crate::units::{format_bytes, format_duration, parse_bytes, parse_duration};

/// A whole number in a range.
pub(crate) struct Count(pub(crate) RangeInclusive<u64>);

impl<T: TryFrom<u64> + Copy + Display> Form<T> for Count {
    fn read(&self, document: &mut Document<'_>, at: &Spanned<DeValue<'_>>) -> Option<T> {
        let Some(number) = at.get_ref().as_integer() else {
            document.wrong_type(at, &format!("a whole number from {} to {}", self.0.start(), self.0.end()));
            return None;
        };
        let value = u64::from_str_radix(number.as_str(), number.radix()).ok().filter(|value| self.0.contains(value));
        let value = value.and_then(|value| T::try_from(value).ok());
        if value.is_none() {
            let (shown, low, high) =
                (Untrusted::with_limit(number.as_str().as_bytes(), 32), self.0.start(), self.0.end());
            document.fault(at.span(), format!("{shown} is out of range; write {low} to {high}"));
        }
        value
    }

    fn show(&self, value: &T) -> String {
        value.to_string()
    }

    fn kind(&self) -> String {
        format!("number, {} to {}", self.0.start(), self.0.end())
    }

    fn schema(&self) -> Value {
        json!({ "type": "integer", "minimum": self.0.start(), "maximum": self.0.end() })
    }
}

/// A size with its unit, in a range.
pub(crate) struct Bytes(pub(crate) RangeInclusive<u64>);

impl<T: TryFrom<u64> + TryInto<u64> + Copy> Form<T> for Bytes {
    fn read(&self, document: &mut Document<'_>, at: &Spanned<DeValue<'_>>) -> Option<T> {
        let bytes = text("a size", "25MiB", parse_bytes, |bytes| format_bytes(*bytes)).read(document, at)?;
        let value = self.0.contains(&bytes).then(|| T::try_from(bytes).ok()).flatten();
        if value.is_none() {
            let (low, high) = (format_bytes(*self.0.start()), format_bytes(*self.0.end()));
            document
                .fault(at.span(), format!("{} is out of range; write \"{low}\" to \"{high}\"", format_bytes(bytes)));
        }
        value
    }

    fn show(&self, value: &T) -> String {
        format!("\"{}\"", format_bytes((*value).try_into().unwrap_or(u64::MAX)))
    }

    fn kind(&self) -> String {
        format!("size, {} to {}", format_bytes(*self.0.start()), format_bytes(*self.0.end()))
    }

    fn schema(&self) -> Value {
        json!({ "type": "string", "pattern": "^ *[0-9]+ *([KMGT]i?)?B$", "examples": ["25MiB"] })
    }
}

/// A size that files are made of: whole blocks of 4 KiB, in a range.
pub(crate) struct Blocks(pub(crate) RangeInclusive<u64>);

/// What direct writes are made of.
const BLOCK_BYTES: u64 = 4 << 10;

impl Blocks {
    fn bytes(&self) -> Bytes {
        Bytes(self.0.clone())
    }
}

impl Form<u64> for Blocks {
    fn read(&self, document: &mut Document<'_>, at: &Spanned<DeValue<'_>>) -> Option<u64> {
        let bytes: u64 = self.bytes().read(document, at)?;
        if bytes.is_multiple_of(BLOCK_BYTES) {
            return Some(bytes);
        }
        // The ends of the range are whole blocks, so the next one is within it.
        let (shown, next) = (format_bytes(bytes), format_bytes(bytes.next_multiple_of(BLOCK_BYTES)));
        document.fault(at.span(), format!("{shown} is no multiple of 4KiB; write \"{next}\""));
        None
    }

    fn show(&self, value: &u64) -> String {
        self.bytes().show(value)
    }

    fn kind(&self) -> String {
        format!("{}, in steps of 4KiB", Form::<u64>::kind(&self.bytes()))
    }

    fn schema(&self) -> Value {
        Form::<u64>::schema(&self.bytes())
    }
}

/// A duration with its unit, in a range.
pub(crate) struct Span(pub(crate) RangeInclusive<Duration>);

impl Form<Duration> for Span {
    fn read(&self, document: &mut Document<'_>, at: &Spanned<DeValue<'_>>) -> Option<Duration> {
        let value = text("a duration", "10s", parse_duration, |it| format_duration(*it)).read(document, at)?;
        let (low, high) = (format_duration(*self.0.start()), format_duration(*self.0.end()));
        if self.0.contains(&value) {
            return Some(value);
        }
        document.fault(at.span(), format!("{} is out of range; write \"{low}\" to \"{high}\"", format_duration(value)));
        None
    }

    fn show(&self, value: &Duration) -> String {
        format!("\"{}\"", format_duration(*value))
    }

    fn kind(&self) -> String {
        format!("duration, {} to {}", format_duration(*self.0.start()), format_duration(*self.0.end()))
    }

    fn schema(&self) -> Value {
        json!({ "type": "string", "pattern": "^ *([0-9]+(ms|s|m|h|d))+ *$", "examples": ["10s"] })
    }
}

/// `true` or `false`.
pub(crate) struct Flag;

impl Form<bool> for Flag {
    fn read(&self, document: &mut Document<'_>, at: &Spanned<DeValue<'_>>) -> Option<bool> {
        let value = at.get_ref().as_bool();
        if value.is_none() {
            document.wrong_type(at, "true or false");
        }
        value
    }

    fn show(&self, value: &bool) -> String {
        value.to_string()
    }

    fn kind(&self) -> String {
        "true or false".into()
    }

    fn schema(&self) -> Value {
        json!({ "type": "boolean" })
    }
}

/// One of a few words.
pub(crate) struct Choice<T: 'static>(pub(crate) &'static [(&'static str, T)]);

impl<T: Copy + PartialEq> Form<T> for Choice<T> {
    fn read(&self, document: &mut Document<'_>, at: &Spanned<DeValue<'_>>) -> Option<T> {
        let Some(word) = at.get_ref().as_str() else {
            document.wrong_type(at, &format!("one of {}", self.kind()));
            return None;
        };
        let found = self.0.iter().find(|(name, _)| *name == word);
        if found.is_none() {
            let names: Vec<_> = self.0.iter().map(|(name, _)| *name).collect();
            let hint = nearest(word, &names).map_or_else(
                || format!("write one of {}", names.join(", ")),
                |near| format!("did you mean \"{near}\"?"),
            );
            document.fault(
                at.span(),
                format!("\"{}\" is not known here; {hint}", Untrusted::with_limit(word.as_bytes(), 64)),
            );
        }
        found.map(|(_, value)| *value)
    }

    fn show(&self, value: &T) -> String {
        let name = self.0.iter().find(|(_, it)| it == value).map_or("", |(name, _)| *name);
        format!("\"{name}\"")
    }

    fn kind(&self) -> String {
        self.0.iter().map(|(name, _)| format!("\"{name}\"")).collect::<Vec<_>>().join(", ")
    }

    fn schema(&self) -> Value {
        json!({ "enum": self.0.iter().map(|(name, _)| *name).collect::<Vec<_>>() })
    }
}

/// A moment with its offset, in milliseconds since the Unix epoch: TOML's own form or a string.
pub(crate) struct Moment;

impl Form<u64> for Moment {
    fn read(&self, document: &mut Document<'_>, at: &Spanned<DeValue<'_>>) -> Option<u64> {
        let value = at.get_ref();
        let text = value.as_datetime().map(ToString::to_string).or_else(|| value.as_str().map(str::to_owned));
        let Some(text) = text else {
            document.wrong_type(at, "a moment, such as 2026-01-31T12:00:00Z");
            return None;
        };
        let moment =
            text.parse::<jiff::Timestamp>().ok().and_then(|moment| u64::try_from(moment.as_millisecond()).ok());
        if moment.is_none() {
            document
                .fault(at.span(), format!("{text:?} is no moment with an offset; write it as 2026-01-31T12:00:00Z"));
        }
        moment
    }

    fn show(&self, _: &u64) -> String {
        String::new()
    }

    fn kind(&self) -> String {
        "moment".into()
    }

    fn schema(&self) -> Value {
        json!({ "type": "string", "format": "date-time" })
    }
}
