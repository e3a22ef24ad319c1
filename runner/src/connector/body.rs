//! Bodies of requests.

use bytes::Bytes;
use config::connector::action::Encoding;
use serde_json::Value;

use super::target::{fault, push_pair};
use super::{InputFault, place};

/// Longest body of a request, in bytes.
pub(super) const BODY_BYTES_MAX: usize = 1 << 20;

/// Levels of a form body; JSON has those of its parser.
const FORM_DEPTH_MAX: usize = 16;

pub(super) fn content_type(encoding: Encoding) -> &'static str {
    match encoding {
        Encoding::Json => "application/json",
        Encoding::Form | Encoding::FormRepeated => "application/x-www-form-urlencoded",
    }
}

pub(super) fn encode(encoding: Encoding, value: &Value) -> Result<Bytes, InputFault> {
    let written = match encoding {
        Encoding::Json => value.to_string(),
        Encoding::Form | Encoding::FormRepeated => {
            let Some(members) = value.as_object() else {
                return Err(fault("the body is no object, and a form has names"));
            };
            let mut out = String::new();
            for (name, value) in members {
                push_form(&mut out, name, value, encoding == Encoding::FormRepeated, FORM_DEPTH_MAX)?;
            }
            out
        }
    };
    bounded(written.into())
}

pub(super) fn bounded(body: Bytes) -> Result<Bytes, InputFault> {
    if body.len() > BODY_BYTES_MAX {
        return Err(fault(format!("the body has {} bytes; a request has at most {BODY_BYTES_MAX}", body.len())));
    }
    Ok(body)
}

fn push_form(out: &mut String, name: &str, value: &Value, repeats: bool, depth: usize) -> Result<(), InputFault> {
    if out.len() > BODY_BYTES_MAX {
        // The rest cannot make it shorter.
        return Ok(());
    }
    let Some(depth) = depth.checked_sub(1) else {
        return Err(fault(format!("body.{name} is nested deeper than a form is written here")));
    };
    match value {
        Value::Null => Ok(()),
        Value::Array(items) if repeats => items.iter().try_for_each(|item| push_form(out, name, item, repeats, depth)),
        Value::Array(items) => {
            let mut items = items.iter().enumerate();
            items.try_for_each(|(index, item)| push_form(out, &format!("{name}[{index}]"), item, repeats, depth))
        }
        Value::Object(_) if repeats => Err(fault(format!("body.{name} is an object, and this form has none"))),
        Value::Object(members) => {
            let mut members = members.iter();
            members
                .try_for_each(|(member, inside)| push_form(out, &format!("{name}[{member}]"), inside, repeats, depth))
        }
        Value::String(_) | Value::Number(_) | Value::Bool(_) => {
            push_pair(out, name, &place::scalar(value).unwrap_or_default());
            Ok(())
        }
    }
}
