//! Values of a request as handshakes ask for them.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserializer, IgnoredAny, MapAccess, Visitor};

use super::delivery::Unverified;
use super::form;
use super::source::{Beside, Place, Source};

impl Source {
    /// The value, if it is there once and can be read.
    pub(crate) fn found_in<'a>(&self, request: &Unverified<'a>) -> Option<Cow<'a, [u8]>> {
        self.value(request, Beside::default()).ok().flatten()
    }

    /// Is what stands at this place all that the body has? Of a place that is not in the body, or deeper in it: no.
    pub(crate) fn is_alone_in(&self, body: &[u8]) -> bool {
        match &self.place {
            Place::Json(path) => path.len() == 1 && keys(body) == Some(1),
            Place::Form(_) => form::fields(body).is_ok_and(|fields| fields.len() == 1),
            Place::Header(_) | Place::Query(_) | Place::Field(_) | Place::Claim(_) | Place::Item(_) => false,
        }
    }
}

/// How many keys a JSON object has, duplicates counted.
fn keys(body: &[u8]) -> Option<usize> {
    struct Keys;

    impl<'de> Visitor<'de> for Keys {
        type Value = usize;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an object")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<usize, A::Error> {
            let mut count = 0;
            while entries.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {
                count += 1;
            }
            Ok(count)
        }
    }

    let mut reader = serde_json::Deserializer::from_slice(body);
    let count = reader.deserialize_map(Keys).ok()?;
    reader.end().ok().map(|()| count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_value_and_nothing_else() {
        let alone = |at: &str, body: &str| Source::compile(&at.parse().unwrap()).is_alone_in(body.as_bytes());
        assert!(alone("json:/challenge", r#"{"challenge":"x"}"#));
        for body in [
            r#"{"challenge":"x","event":{}}"#,
            r#"{"challenge":"x","challenge":"y"}"#,
            "{}",
            "[]",
            "",
            "{\"challenge\":1}x",
        ] {
            assert!(!alone("json:/challenge", body), "{body}");
        }
        assert!(alone("form:webhook_id", "webhook_id=7"));
        assert!(!alone("form:webhook_id", "webhook_id=7&x=1") && !alone("form:webhook_id", ""));
        assert!(!alone("query:challenge", "") && !alone("json:/a/b", r#"{"a":{"b":1}}"#));
    }
}
