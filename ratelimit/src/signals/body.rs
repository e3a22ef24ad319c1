//! What stands at a place of a JSON text of which only the beginning may be there.
//!
//! The text is walked once and nothing of it is kept; where it ends, or stops being JSON, the walk ends, and what was
//! found before counts. Depth is bounded by the parser (128), time and memory by the prefix.

use std::fmt;
use std::ops::ControlFlow;

use config::connector::quota::{JsonPath, Step};
use serde::de::{DeserializeSeed, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

/// A value that is no list and no object.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Scalar<'a> {
    Text(&'a str),
    Whole(u64),
    Fraction(f64),
    /// Negative, `null`, true, false.
    Other,
}

/// Shows each scalar at a place, in the order of the text, until one breaks.
pub(super) fn each(body: &[u8], path: &JsonPath, mut look: impl FnMut(Scalar<'_>) -> ControlFlow<()>) {
    let mut reader = serde_json::Deserializer::from_slice(body);
    let walk = Walk { steps: path.steps(), look: &mut look };
    // It fails where the text ends, and where the look has had enough.
    drop(walk.deserialize(&mut reader));
}

struct Walk<'w, F> {
    steps: &'w [Step],
    look: &'w mut F,
}

impl<F: FnMut(Scalar<'_>) -> ControlFlow<()>> Walk<'_, F> {
    fn found<E: Error>(self, scalar: Scalar<'_>) -> Result<(), E> {
        if !self.steps.is_empty() {
            return Ok(());
        }
        match (self.look)(scalar) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => Err(E::custom("enough")),
        }
    }
}

impl<'de, F: FnMut(Scalar<'_>) -> ControlFlow<()>> DeserializeSeed<'de> for Walk<'_, F> {
    type Value = ();

    fn deserialize<D: serde::Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de, F: FnMut(Scalar<'_>) -> ControlFlow<()>> Visitor<'de> for Walk<'_, F> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<(), E> {
        self.found(Scalar::Text(text))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<(), E> {
        self.found(Scalar::Whole(value))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<(), E> {
        self.found(Scalar::Fraction(value))
    }

    fn visit_i64<E: Error>(self, _: i64) -> Result<(), E> {
        self.found(Scalar::Other)
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<(), E> {
        self.found(Scalar::Other)
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        self.found(Scalar::Other)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        match self.steps.split_first() {
            Some((Step::Element, steps)) => while list.next_element_seed(Walk { steps, look: self.look })?.is_some() {},
            Some(_) | None => while list.next_element::<IgnoredAny>()?.is_some() {},
        }
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let Some((step, steps)) = self.steps.split_first() else {
            while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
            return Ok(());
        };
        while let Some(fits) = map.next_key_seed(Fits(step))? {
            if fits {
                map.next_value_seed(Walk { steps, look: self.look })?;
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(())
    }
}

/// Whether a member is the one that a step leads to.
struct Fits<'s>(&'s Step);

impl<'de> DeserializeSeed<'de> for Fits<'_> {
    type Value = bool;

    fn deserialize<D: serde::Deserializer<'de>>(self, deserializer: D) -> Result<bool, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for Fits<'_> {
    type Value = bool;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a name")
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<bool, E> {
        Ok(match self.0 {
            Step::Member(wanted) => **wanted == *name,
            Step::Any => true,
            Step::Element => false,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(body: &str, path: &str) -> Vec<String> {
        let mut all = Vec::new();
        each(body.as_bytes(), &JsonPath::parse(path).unwrap(), |scalar| {
            all.push(format!("{scalar:?}"));
            if all.len() < 8 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
        all
    }

    #[test]
    fn only_what_stands_at_the_place_is_found() {
        let body = r#"{"data":{"errors":[{"extensions":{"code":"NO"}}]},"errors":[{"message":"x","extensions":{"code":"THROTTLED"}},{"extensions":{"code":7}}]}"#;
        assert_eq!(found(body, "errors[].extensions.code"), ["Text(\"THROTTLED\")", "Whole(7)"]);
        assert!(found(body, "code").is_empty());
        assert_eq!(found(r#"[{"errorCode":"A"},{"errorCode":-1}]"#, "[].errorCode"), ["Text(\"A\")", "Other"]);
        assert_eq!(found(r#"{"1":[{"n":28}],"2":[{"n":9.67}]}"#, "*[].n"), ["Whole(28)", "Fraction(9.67)"]);
        assert!(found(r#"{"code":{"code":1}}"#, "code").is_empty(), "an object is no value");
        assert_eq!(found(r#"{"a":"\u0041"}"#, "a"), ["Text(\"A\")"]);
    }

    #[test]
    fn a_text_that_ends_early_says_what_it_said() {
        let body = r#"{"error":{"code":4,"message":"Applica"#;
        assert_eq!(found(body, "error.code"), ["Whole(4)"]);
        assert!(found(body, "error.message").is_empty(), "half a text is none");
        for junk in ["", "{", "[[[[", "nul", "\u{1}", "{\"a\"", "<html>", "1e999"] {
            assert!(found(junk, "a").is_empty(), "{junk:?}");
        }
        assert!(found(&"[".repeat(100_000), "[].a").is_empty(), "deep is no harm");
        assert_eq!(
            found(&format!("[{}]", vec![r#"{"a":1}"#; 100].join(",")), "[].a").len(),
            8,
            "and it can be stopped"
        );
    }
}
