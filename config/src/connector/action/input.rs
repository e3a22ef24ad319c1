//! Values that are written as TOML and are JSON: schemas of inputs, and bodies.

use serde_json::{Map, Value, json};
use toml::Spanned;
use toml::de::DeValue;

use crate::document::Document;
use crate::form::Form;

/// Longest schema or body, as JSON, in bytes.
pub const INPUT_BYTES_MAX: usize = 64 << 10;

/// Deeper than any provider's request that is written here.
const DEPTH_MAX: usize = 12;

/// A table of any keys, as JSON.
pub(super) struct Json {
    pub(super) kind: &'static str,
}

impl Form<Value> for Json {
    fn read(&self, document: &mut Document<'_>, at: &Spanned<DeValue<'_>>) -> Option<Value> {
        if at.get_ref().as_table().is_none() && at.get_ref().as_str().is_none() {
            document.wrong_type(at, &format!("a table: {}", self.kind));
            return None;
        }
        match convert(at.get_ref(), DEPTH_MAX) {
            Ok(value) if value.to_string().len() <= INPUT_BYTES_MAX => Some(value),
            Ok(_) => {
                document.fault(at.span(), format!("has more than {INPUT_BYTES_MAX} bytes as JSON"));
                None
            }
            Err(message) => {
                document.fault(at.span(), message);
                None
            }
        }
    }

    fn show(&self, value: &Value) -> String {
        value.to_string()
    }

    fn kind(&self) -> String {
        self.kind.into()
    }

    fn schema(&self) -> Value {
        json!({ "type": ["object", "string"] })
    }
}

fn convert(value: &DeValue<'_>, depth: usize) -> Result<Value, &'static str> {
    let inside = || depth.checked_sub(1).ok_or("is nested deeper than 12");
    Ok(match value {
        DeValue::String(text) => Value::String(text.to_string()),
        DeValue::Boolean(flag) => Value::Bool(*flag),
        DeValue::Integer(number) => i64::from_str_radix(number.as_str(), number.radix())
            .map_err(|_| "has a number that does not fit 64 bits")?
            .into(),
        DeValue::Float(number) => {
            let float = number.as_str().parse::<f64>().ok().filter(|float| float.is_finite());
            float.ok_or("has a number that JSON has not")?.into()
        }
        DeValue::Datetime(_) => return Err("has a date; JSON has none, so write it as a string"),
        DeValue::Array(items) => {
            let depth = inside()?;
            Value::Array(items.iter().map(|item| convert(item.get_ref(), depth)).collect::<Result<_, _>>()?)
        }
        DeValue::Table(members) => {
            let depth = inside()?;
            let members = members
                .iter()
                .map(|(name, member)| Ok((name.get_ref().to_string(), convert(member.get_ref(), depth)?)));
            Value::Object(members.collect::<Result<Map<_, _>, &'static str>>()?)
        }
    })
}
