//! JSON that has exactly one reading.
//!
//! RFC 8259 leaves open what two members of one name mean, and libraries differ: a token that an issuer's library reads
//! as one tenant and ours as another would be nobody's fault and everybody's loss. So a second member of the same name
//! is refused at any depth, escapes decoded first. Sizes are bounded by whoever calls, members by
//! [`MEMBERS_MAX`], depth by `serde_json` (128).

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use std::fmt;

/// Members of one object. Names are compared in pairs: the bound keeps that from costing more than reading does.
const MEMBERS_MAX: usize = 256;

/// A JSON value, as far as tokens and signed items have use for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    Text(String),
    /// A number without sign, fraction and exponent.
    Whole(u64),
    List(Vec<Self>),
    Members(Members),
    Flag(bool),
    /// null, and every other number.
    Other,
}

/// The members of an object, each name once, in their order.
pub type Members = Vec<(String, Value)>;

/// Why a text is not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// It is no JSON, or no object where one is meant.
    #[error("is no JSON object")]
    NotAnObject,
    #[error("has a member twice")]
    Twice,
    /// There are more members than anything here has.
    #[error("has too many members")]
    TooMany,
}

/// Reads one object, and nothing behind it.
pub fn object(text: &[u8]) -> Result<Members, Fault> {
    match value(text)? {
        Value::Members(members) => Ok(members),
        Value::Text(_) | Value::Whole(_) | Value::List(_) | Value::Flag(_) | Value::Other => Err(Fault::NotAnObject),
    }
}

/// Reads one value, whatever it is, and nothing behind it.
pub fn value(text: &[u8]) -> Result<Value, Fault> {
    serde_json::from_slice(text).map_err(|error| {
        // The one way in which serde lets an error of ours through is its text.
        let text = error.to_string();
        if text.starts_with(TWICE) {
            Fault::Twice
        } else if text.starts_with(TOO_MANY) {
            Fault::TooMany
        } else {
            Fault::NotAnObject
        }
    })
}

/// The member of this name.
pub fn member<'m>(members: &'m Members, name: &str) -> Option<&'m Value> {
    members.iter().find(|(known, _)| known == name).map(|(_, value)| value)
}

const TWICE: &str = "a member stands twice";
const TOO_MANY: &str = "too many members";

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Reader)
    }
}

struct Reader;

impl<'de> Visitor<'de> for Reader {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Value, E> {
        Ok(Value::Text(text.to_owned()))
    }

    fn visit_string<E: Error>(self, text: String) -> Result<Value, E> {
        Ok(Value::Text(text))
    }

    fn visit_u64<E: Error>(self, whole: u64) -> Result<Value, E> {
        Ok(Value::Whole(whole))
    }

    fn visit_i64<E: Error>(self, _negative: i64) -> Result<Value, E> {
        Ok(Value::Other)
    }

    fn visit_f64<E: Error>(self, _fraction: f64) -> Result<Value, E> {
        Ok(Value::Other)
    }

    fn visit_bool<E: Error>(self, flag: bool) -> Result<Value, E> {
        Ok(Value::Flag(flag))
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Other)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(value) = access.next_element()? {
            list.push(value);
        }
        Ok(Value::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let mut members = Members::new();
        while let Some(name) = access.next_key::<String>()? {
            if members.len() == MEMBERS_MAX {
                return Err(A::Error::custom(TOO_MANY));
            }
            if members.iter().any(|(known, _)| *known == name) {
                return Err(A::Error::custom(TWICE));
            }
            members.push((name, access.next_value()?));
        }
        Ok(Value::Members(members))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_stands_once_at_any_depth_however_it_is_written() {
        assert_eq!(
            object(br#" {"a":1,"b":["x",-1,1.0,null,{"a":true}]} "#),
            Ok(vec![
                ("a".into(), Value::Whole(1)),
                (
                    "b".into(),
                    Value::List(vec![
                        Value::Text("x".into()),
                        Value::Other,
                        Value::Other,
                        Value::Other,
                        Value::Members(vec![("a".into(), Value::Flag(true))]),
                    ])
                ),
            ])
        );
        for twice in [r#"{"a":1,"a":1}"#, r#"{"a":1,"\u0061":2}"#, r#"{"x":{"a":1,"a":2}}"#, r#"{"x":[{"":1,"":1}]}"#] {
            assert_eq!(object(twice.as_bytes()), Err(Fault::Twice), "{twice}");
        }
    }

    #[test]
    fn anything_but_one_object_is_refused() {
        let bad: &[&[u8]] =
            &[b"", b"[]", b"1", b"\"a\"", b"null", b"{", b"{} {}", b"{}x", b"{'a':1}", b"{\"a\":1,}", b"{\"\xff\":1}"];
        for text in bad {
            assert_eq!(object(text), Err(Fault::NotAnObject), "{}", String::from_utf8_lossy(text));
        }
        assert_eq!(object("[".repeat(200).as_bytes()), Err(Fault::NotAnObject));
        let many = |count| format!("{{{}}}", (0..count).map(|i| format!("\"{i}\":0")).collect::<Vec<_>>().join(","));
        assert_eq!(object(many(MEMBERS_MAX).as_bytes()).map(|members| members.len()), Ok(MEMBERS_MAX));
        assert_eq!(object(many(MEMBERS_MAX + 1).as_bytes()), Err(Fault::TooMany));
    }
}
