//! From text to a value: JSON, or YAML that says no more than JSON can.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};
use serde_saphyr::Spanned;
use serde_saphyr::options::{DuplicateKeyPolicy, MergeKeyPolicy, NonFiniteFloatPolicy};

use super::bounds::{DOCUMENT_BYTES_MAX, VALUES_DEEP_MAX, VALUES_MAX};
use super::fault::{Fault, Faults};
use super::{below, explain};

/// How a document is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    Json,
    Yaml,
}

/// Where values stand, by their paths; of YAML alone.
pub(super) type Places = BTreeMap<Box<str>, (u32, u32)>;

pub(super) fn read(text: &str, format: Format) -> Result<(Value, Places), Faults> {
    if text.len() > DOCUMENT_BYTES_MAX {
        return Err(Faults::one(format!("a document has at most {} KiB", DOCUMENT_BYTES_MAX >> 10)));
    }
    let (value, places) = match format {
        Format::Json => (read_json(text)?, Places::new()),
        Format::Yaml => read_yaml(text)?,
    };
    let mut left = VALUES_MAX;
    measure(&value, VALUES_DEEP_MAX, &mut left).map_err(Faults::one)?;
    Ok((value, places))
}

fn measure(value: &Value, deeper: usize, left: &mut usize) -> Result<(), String> {
    if deeper == 0 {
        return Err(format!("values nest more than {VALUES_DEEP_MAX} deep"));
    }
    *left = left.checked_sub(1).ok_or_else(|| format!("it has more than {VALUES_MAX} values"))?;
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Ok(()),
        Value::Array(elements) => elements.iter().try_for_each(|element| measure(element, deeper - 1, left)),
        Value::Object(members) => members.values().try_for_each(|member| measure(member, deeper - 1, left)),
    }
}

fn unreadable(place: Option<(u32, u32)>, message: &str) -> Faults {
    Faults(vec![Fault { path: "".into(), place, message: explain::cut(message, 300).into() }])
}

fn read_json(text: &str) -> Result<Value, Faults> {
    serde_json::from_str::<Plain>(text).map(|Plain(value)| value).map_err(|error| {
        let place =
            (u32::try_from(error.line()).unwrap_or(u32::MAX), u32::try_from(error.column()).unwrap_or(u32::MAX));
        let said = error.to_string();
        // The place is told beside it.
        let said = said.rsplit_once(" at line ").map_or(said.as_str(), |(said, _)| said);
        unreadable(Some(place).filter(|(line, _)| *line > 0), &format!("it is no JSON: {said}"))
    })
}

/// A value without members of the same name: which of them counts would be a guess.
struct Plain(Value);

impl<'de> Deserialize<'de> for Plain {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Values::<Self>(std::marker::PhantomData)).map(|node| match node {
            Node::Scalar(value) => Self(value),
            Node::List(elements) => Self(elements.into_iter().map(|Self(value)| value).collect()),
            Node::Object(members) => {
                Self(Value::Object(members.into_iter().map(|(key, Self(value))| (key, value)).collect()))
            }
        })
    }
}

/// A value of YAML, with its place.
struct Placed(Spanned<Node<Self>>);

impl<'de> Deserialize<'de> for Placed {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Spanned::deserialize(deserializer).map(Self)
    }
}

enum Node<T> {
    Scalar(Value),
    List(Vec<T>),
    Object(Vec<(String, T)>),
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Node<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Values(std::marker::PhantomData))
    }
}

struct Values<T>(std::marker::PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for Values<T> {
    type Value = Node<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value of JSON")
    }

    fn visit_unit<E: Error>(self) -> Result<Self::Value, E> {
        Ok(Node::Scalar(Value::Null))
    }

    fn visit_none<E: Error>(self) -> Result<Self::Value, E> {
        Ok(Node::Scalar(Value::Null))
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Self::Value, E> {
        Ok(Node::Scalar(Value::Bool(value)))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Self::Value, E> {
        Ok(Node::Scalar(value.into()))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Self::Value, E> {
        Ok(Node::Scalar(value.into()))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Self::Value, E> {
        let number = Number::from_f64(value).ok_or_else(|| E::custom("a number is not finite"))?;
        Ok(Node::Scalar(Value::Number(number)))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Self::Value, E> {
        Ok(Node::Scalar(value.into()))
    }

    fn visit_string<E: Error>(self, value: String) -> Result<Self::Value, E> {
        Ok(Node::Scalar(value.into()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Self::Value, A::Error> {
        let mut elements = Vec::new();
        while let Some(element) = access.next_element()? {
            elements.push(element);
        }
        Ok(Node::List(elements))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Self::Value, A::Error> {
        let mut members: Vec<(String, T)> = Vec::new();
        let mut seen = std::collections::HashSet::new();
        while let Some(key) = access.next_key::<String>()? {
            if !seen.insert(key.clone()) {
                return Err(A::Error::custom(format!("the key `{}` is there twice", explain::cut(&key, 64))));
            }
            members.push((key, access.next_value()?));
        }
        Ok(Node::Object(members))
    }
}

fn read_yaml(text: &str) -> Result<(Value, Places), Faults> {
    // YAML 1.2 as JSON would have it: no guessing of `no` and `0o7`, and what aliases make of it is as bounded as the text.
    let mut alias_limits = serde_saphyr::options::AliasLimits::default();
    alias_limits.max_total_replayed_events = 2 * VALUES_MAX;
    alias_limits.max_replay_stack_depth = 16;
    alias_limits.max_alias_expansions_per_anchor = 200;
    let options = serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_reader_input_bytes: Some(DOCUMENT_BYTES_MAX),
            max_events: 4 * VALUES_MAX,
            max_aliases: 1000,
            max_anchors: 1000,
            max_depth: VALUES_DEEP_MAX,
            max_documents: 1,
            max_nodes: VALUES_MAX,
            max_total_scalar_bytes: 4 * DOCUMENT_BYTES_MAX,
            max_merge_keys: 100,
            max_recorded_anchor_events: 4 * VALUES_MAX,
            max_recorded_anchor_bytes: 4 * DOCUMENT_BYTES_MAX,
        },
        duplicate_keys: DuplicateKeyPolicy::Error,
        merge_keys: MergeKeyPolicy::Merge,
        alias_limits: alias_limits,
        strict_booleans: true,
        reject_unsupported_tags: true,
        non_finite_float_policy: NonFiniteFloatPolicy::Reject,
        with_snippet: false,
    };
    let read = serde_saphyr::from_str_with_options::<Placed>(text, options).map_err(|error| {
        let place = error.location().map(|location| (narrow(location.line()), narrow(location.column())));
        unreadable(place, &format!("it is no YAML: {}", error.to_string().lines().next().unwrap_or_default()))
    })?;
    let mut places = Places::new();
    let mut left = VALUES_MAX;
    let value = place(read, "", &mut places, &mut left).map_err(Faults::one)?;
    Ok((value, places))
}

fn narrow(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

fn place(Placed(read): Placed, path: &str, places: &mut Places, left: &mut usize) -> Result<Value, String> {
    *left = left.checked_sub(1).ok_or_else(|| format!("it has more than {VALUES_MAX} values"))?;
    let value = match read.value {
        Node::Scalar(value) => value,
        Node::List(elements) => elements
            .into_iter()
            .enumerate()
            .map(|(at, element)| place(element, &format!("{path}[{at}]"), places, left))
            .collect::<Result<Value, String>>()?,
        Node::Object(members) => {
            let mut object = Map::new();
            for (key, member) in members {
                let path = format!("{path}{}", below(&key));
                object.insert(key, place(member, &path, places, left)?);
            }
            Value::Object(object)
        }
    };
    let at = (narrow(read.referenced.line()), narrow(read.referenced.column()));
    places.insert(path.strip_prefix('.').unwrap_or(path).into(), at);
    Ok(value)
}
