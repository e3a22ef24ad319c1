//! Values of JSON as values of CEL, and back.
//!
//! Whole numbers are `int`, those behind 2^63 are `uint`, all others `double`: what was a whole number stays the same number
//! to the last digit. On the way back a `double` stays one (`2.0`), bytes are Base64, a duration is in seconds (`90s`, as
//! `string()` writes it), a time is RFC 3339, an optional is its value or null.

use std::collections::HashMap;

use cel::common::types::{
    CelBool, CelDouble, CelDuration, CelInt, CelList, CelMap, CelMapKey, CelNull, CelString, CelTimestamp, CelUInt,
};
use cel::common::value::{BuiltinRef, Val};
use data_encoding::BASE64;
use serde_json::{Map, Number, Value};

use super::budget::VALUE;
use super::explain;

/// Deepest nesting of a value that comes out; what JSON parsers take again.
const DEPTH_MAX: usize = 100;

/// What converting costs, as `budget` counts; stops at more than `most`.
pub(super) fn cost(json: &Value, most: u64) -> u64 {
    let mut cost = VALUE;
    match json {
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        Value::Array(elements) => {
            for element in elements {
                if cost > most {
                    break;
                }
                cost += self::cost(element, most - cost);
            }
        }
        Value::Object(fields) => {
            for value in fields.values() {
                if cost > most {
                    break;
                }
                cost += self::cost(value, most - cost);
            }
        }
    }
    cost
}

pub(super) fn from_json<'v>(json: &'v Value) -> Box<dyn Val + 'v> {
    match json {
        Value::Null => Box::new(CelNull),
        Value::Bool(value) => Box::new(CelBool::from(*value)),
        Value::Number(number) => match (number.as_i64(), number.as_u64()) {
            (Some(int), _) => Box::new(CelInt::from(int)),
            (None, Some(uint)) => Box::new(CelUInt::from(uint)),
            (None, None) => Box::new(CelDouble::from(number.as_f64().unwrap_or(f64::NAN))),
        },
        Value::String(text) => Box::new(CelString::from(text.as_str())),
        Value::Array(elements) => Box::new(CelList::from(elements.iter().map(from_json).collect::<Vec<_>>())),
        Value::Object(fields) => {
            let fields: HashMap<CelMapKey<'v>, Box<dyn Val + 'v>> =
                fields.iter().map(|(key, value)| (CelMapKey::from(key.as_str()), from_json(value))).collect();
            Box::new(CelMap::from(fields))
        }
    }
}

/// The value as JSON of at most so many bytes, or what of it is no JSON.
pub(super) fn to_json(value: &dyn Val, bytes_max: usize) -> Result<Value, String> {
    let mut left = bytes_max;
    convert(value, &mut left, DEPTH_MAX)
}

#[expect(clippy::wildcard_enum_match_arm, reason = "the crate's enumeration is open")]
fn convert(value: &dyn Val, left: &mut usize, deeper: usize) -> Result<Value, String> {
    if deeper == 0 {
        return Err(format!("its value nests more than {DEPTH_MAX} deep"));
    }
    // What the shortest value and its comma take.
    take(left, 2)?;
    match value.as_builtin() {
        BuiltinRef::String(text) => {
            take(left, text.inner().len())?;
            Ok(Value::from(text.inner()))
        }
        BuiltinRef::Bytes(bytes) => {
            take(left, bytes.inner().len() / 3 * 4)?;
            Ok(Value::from(BASE64.encode(bytes.inner())))
        }
        BuiltinRef::List(list) => {
            list.inner().iter().map(|element| convert(element.as_ref(), left, deeper - 1)).collect()
        }
        BuiltinRef::Map(map) => {
            let mut fields = Map::new();
            for (key, value) in map.inner() {
                let key = key_text(key);
                take(left, key.len() + 3)?;
                let value = convert(value.as_ref(), left, deeper - 1)?;
                if fields.contains_key(&key) {
                    return Err(format!("its value has the key `{}` twice", explain::cut(&key, 64)));
                }
                fields.insert(key, value);
            }
            Ok(Value::Object(fields))
        }
        BuiltinRef::Optional(optional) => {
            optional.inner().map_or(Ok(Value::Null), |inner| convert(inner, left, deeper - 1))
        }
        _ => scalar(value),
    }
}

fn scalar(value: &dyn Val) -> Result<Value, String> {
    if value.downcast_ref::<CelNull>().is_some() {
        return Ok(Value::Null);
    }
    if let Some(value) = value.downcast_ref::<CelBool>() {
        return Ok(Value::Bool(*value.inner()));
    }
    if let Some(int) = value.downcast_ref::<CelInt>() {
        return Ok(Value::from(*int.inner()));
    }
    if let Some(uint) = value.downcast_ref::<CelUInt>() {
        return Ok(Value::from(*uint.inner()));
    }
    if let Some(double) = value.downcast_ref::<CelDouble>() {
        let number = Number::from_f64(*double.inner());
        return number.map(Value::Number).ok_or_else(|| "its value is no finite number".into());
    }
    if let Some(time) = value.downcast_ref::<CelTimestamp>() {
        return Ok(Value::from(time.inner().to_rfc3339()));
    }
    if let Some(duration) = value.downcast_ref::<CelDuration>() {
        return Ok(Value::from(seconds(duration)));
    }
    Err(format!("its value is a {}, which no later node could use", explain::cut(value.get_type().name(), 64)))
}

/// `90s`, `0.5s`.
fn seconds(duration: &CelDuration) -> String {
    let duration = duration.inner();
    let (seconds, nanos) = (duration.num_seconds(), duration.subsec_nanos());
    if nanos == 0 {
        return format!("{seconds}s");
    }
    let sign = if seconds < 0 || nanos < 0 { "-" } else { "" };
    let text = format!("{sign}{}.{:09}", seconds.unsigned_abs(), nanos.unsigned_abs());
    format!("{}s", text.trim_end_matches('0'))
}

fn key_text(key: &CelMapKey<'_>) -> String {
    match key {
        CelMapKey::Bool(key) => key.inner().to_string(),
        CelMapKey::Int(key) => key.inner().to_string(),
        CelMapKey::UInt(key) => key.inner().to_string(),
        CelMapKey::String(key) => key.inner().to_owned(),
    }
}

fn take(left: &mut usize, bytes: usize) -> Result<(), String> {
    *left = left.checked_sub(bytes).ok_or_else(too_large)?;
    Ok(())
}

pub(super) fn too_large() -> String {
    format!("its value is larger than {} KiB", super::OUTPUT_BYTES_MAX >> 10)
}

/// Whether the value takes at most so many bytes as JSON, as `to_json` counts.
pub(super) fn fits(json: &Value, bytes_max: usize) -> bool {
    size(json) <= bytes_max
}

/// About so many bytes it takes as JSON, as `to_json` counts.
pub(in crate::automation) fn size(json: &Value) -> usize {
    2 + match json {
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
        Value::String(text) => text.len(),
        Value::Array(elements) => elements.iter().map(size).sum(),
        Value::Object(fields) => fields.iter().map(|(key, value)| key.len() + 3 + size(value)).sum(),
    }
}

/// What kind of thing it is, with its value if that is short.
pub(in crate::automation) fn describe(json: &Value) -> String {
    match json {
        Value::Null => "null".into(),
        Value::Bool(value) => value.to_string(),
        Value::Number(number) => format!("the number {number}"),
        Value::String(text) => format!("the text {:?}", explain::cut(text, 40)),
        Value::Array(elements) => format!("a list of {}", elements.len()),
        Value::Object(_) => "an object".into(),
    }
}
