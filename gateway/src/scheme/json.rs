//! Values at a path of a JSON body, found without building the document.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

/// Values that one path may give. Providers batch up to some hundreds of notifications; each value costs a digest before
/// anything is proven, and a body has room for a million.
const VALUES_MAX: usize = 1024;

/// Why a path gives no values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Found {
    /// An object on the path has the same key twice: readers differ about which one counts.
    Several,
    /// The body is no JSON, what is at the path is neither a text nor an integer, or there are too many of them.
    Unreadable,
}

/// Every value at `path`, in order; `*` in the path stands for each element of an array. Reads no further than the first
/// fault.
pub(super) fn all(body: &[u8], path: &[Box<str>]) -> Result<Vec<Box<[u8]>>, Found> {
    let mut search = Search { values: Vec::new(), first_only: false, duplicate: false };
    let mut reader = serde_json::Deserializer::from_slice(body);
    let read = Step { path, search: &mut search }.deserialize(&mut reader).and_then(|()| reader.end());
    if search.duplicate {
        return Err(Found::Several);
    }
    read.map(|()| search.values).map_err(|_| Found::Unreadable)
}

/// The first value at `path`. Reads no further than that, so only for what is a hint or was signed.
pub(super) fn first(body: &[u8], path: &[Box<str>]) -> Option<Box<[u8]>> {
    let mut search = Search { values: Vec::new(), first_only: true, duplicate: false };
    let mut reader = serde_json::Deserializer::from_slice(body);
    // Stopping early is an error to the reader, as is what is no JSON: only what was found counts.
    drop(Step { path, search: &mut search }.deserialize(&mut reader));
    search.values.into_iter().next()
}

struct Search {
    values: Vec<Box<[u8]>>,
    first_only: bool,
    duplicate: bool,
}

impl Search {
    fn found<E: Error>(&mut self, value: &[u8]) -> Result<(), E> {
        if self.values.len() == VALUES_MAX {
            return Err(E::custom("too many values"));
        }
        self.values.push(value.into());
        if self.first_only { Err(E::custom("found")) } else { Ok(()) }
    }
}

/// One step down the path.
struct Step<'p, 's> {
    path: &'p [Box<str>],
    search: &'s mut Search,
}

impl<'de> DeserializeSeed<'de> for Step<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, reader: D) -> Result<(), D::Error> {
        reader.deserialize_any(self)
    }
}

impl Step<'_, '_> {
    /// A value that is no text, number or container on the path.
    fn other<E: Error>(&self) -> Result<(), E> {
        if self.path.is_empty() { Err(E::custom("neither text nor integer")) } else { Ok(()) }
    }

    fn scalar<E: Error>(&mut self, text: &[u8]) -> Result<(), E> {
        if self.path.is_empty() { self.search.found(text) } else { Ok(()) }
    }
}

impl<'de> Visitor<'de> for Step<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_str<E: Error>(mut self, text: &str) -> Result<(), E> {
        self.scalar(text.as_bytes())
    }

    fn visit_u64<E: Error>(mut self, number: u64) -> Result<(), E> {
        self.scalar(number.to_string().as_bytes())
    }

    fn visit_i64<E: Error>(mut self, number: i64) -> Result<(), E> {
        self.scalar(number.to_string().as_bytes())
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<(), E> {
        self.other()
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<(), E> {
        self.other()
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        self.other()
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        match self.path.split_first() {
            None => Err(A::Error::custom("neither text nor integer")),
            Some((step, path)) if step.as_ref() == "*" => {
                while items.next_element_seed(Step { path, search: &mut *self.search })?.is_some() {}
                Ok(())
            }
            Some(_) => {
                while items.next_element::<IgnoredAny>()?.is_some() {}
                Ok(())
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<(), A::Error> {
        let Some((step, path)) = self.path.split_first() else {
            return Err(A::Error::custom("neither text nor integer"));
        };
        let mut met = false;
        while let Some(fits) = entries.next_key_seed(KeyIs(step))? {
            if !fits {
                entries.next_value::<IgnoredAny>()?;
                continue;
            }
            if met {
                self.search.duplicate = true;
                return Err(A::Error::custom("the same key twice"));
            }
            met = true;
            entries.next_value_seed(Step { path, search: &mut *self.search })?;
        }
        Ok(())
    }
}

/// Is a key this one? Compared after its escapes are read, without keeping it.
struct KeyIs<'k>(&'k str);

impl<'de> DeserializeSeed<'de> for KeyIs<'_> {
    type Value = bool;

    fn deserialize<D: Deserializer<'de>>(self, reader: D) -> Result<bool, D::Error> {
        reader.deserialize_str(self)
    }
}

impl Visitor<'_> for KeyIs<'_> {
    type Value = bool;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_str<E: Error>(self, key: &str) -> Result<bool, E> {
        Ok(key == self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> Vec<Box<str>> {
        text.split('/').map(Into::into).collect()
    }

    fn values(body: &str, at: &str) -> Result<Vec<String>, Found> {
        Ok(all(body.as_bytes(), &path(at))?.iter().map(|v| String::from_utf8_lossy(v).into_owned()).collect())
    }

    #[test]
    fn values_are_found_by_path() {
        assert_eq!(values(r#"{"a":{"b":"x\u0041"},"c":1}"#, "a/b").unwrap(), ["xA"]);
        assert_eq!(values(r#"{"c":1781308800123}"#, "c").unwrap(), ["1781308800123"]);
        assert_eq!(values(r#"{"v":[{"s":"1"},{"s":"2"},{}]}"#, "v/*/s").unwrap(), ["1", "2"]);
        assert_eq!(values(r#"{"a":{"b":1}}"#, "b").unwrap(), Vec::<String>::new());
        assert_eq!(values(r#"{"\u0061":"escaped key"}"#, "a").unwrap(), ["escaped key"]);
        assert_eq!(values("[]", "a").unwrap(), Vec::<String>::new());
    }

    #[test]
    fn what_has_two_readings_is_refused() {
        assert_eq!(values(r#"{"a":1,"a":1}"#, "a"), Err(Found::Several));
        assert_eq!(values(r#"{"a":{"b":1},"a":{"b":2}}"#, "a/b"), Err(Found::Several));
        for body in
            ["", "{", r#"{"a":1} x"#, r#"{"a":1.5}"#, r#"{"a":null}"#, r#"{"a":[1]}"#, r#"{"a":{}}"#, r#"{"a":true}"#]
        {
            assert_eq!(values(body, "a"), Err(Found::Unreadable), "{body}");
        }
    }

    #[test]
    fn a_body_full_of_values_is_refused_at_the_bound() {
        let body = |count: usize| format!(r#"{{"v":[{}]}}"#, vec![r#"{"s":"x"}"#; count].join(","));
        assert_eq!(values(&body(VALUES_MAX), "v/*/s").unwrap().len(), VALUES_MAX);
        assert_eq!(values(&body(VALUES_MAX + 1), "v/*/s"), Err(Found::Unreadable));
    }

    #[test]
    fn bytes_beside_the_path_need_not_be_text() {
        assert_eq!(all(b"{\"n\":\"\xff\xfe\",\"a\":\"x\"}", &path("a")).unwrap(), [b"x"[..].into()]);
    }

    #[test]
    fn the_first_value_needs_no_end() {
        assert_eq!(first(br#"{"id":"evt_1","rest":"#, &path("id")).as_deref(), Some(&b"evt_1"[..]));
        assert_eq!(first(br#"{"id":null}"#, &path("id")), None);
        assert_eq!(first(b"not json", &path("id")), None);
    }

    #[test]
    fn deep_bodies_end() {
        let deep = "[".repeat(100_000);
        assert_eq!(values(&deep, "a"), Err(Found::Unreadable));
    }
}
