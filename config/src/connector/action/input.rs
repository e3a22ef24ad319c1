//! Values that are written as TOML and are JSON: schemas of inputs, and bodies.
//!
//! Of JSON Schema an action's input has those keywords that cost little to check whatever the input is: no references,
//! so no recursion and nothing to fetch; no patterns, so no expression that a text can make slow; no combinations of
//! whole schemas, whose cost multiplies.

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

/// Keywords, and what each must be.
const KEYWORDS: &[(&str, Keyword)] = &[
    ("type", Keyword::Type),
    ("properties", Keyword::Schemas),
    ("required", Keyword::Names),
    ("additionalProperties", Keyword::SchemaOrFlag),
    ("items", Keyword::Schema),
    ("enum", Keyword::Values),
    ("const", Keyword::Any),
    ("minimum", Keyword::Number),
    ("maximum", Keyword::Number),
    ("exclusiveMinimum", Keyword::Number),
    ("exclusiveMaximum", Keyword::Number),
    ("minLength", Keyword::Size),
    ("maxLength", Keyword::Size),
    ("minItems", Keyword::Size),
    ("maxItems", Keyword::Size),
    ("minProperties", Keyword::Size),
    ("maxProperties", Keyword::Size),
    ("title", Keyword::Text),
    ("description", Keyword::Text),
    ("format", Keyword::Text),
    ("default", Keyword::Any),
    ("examples", Keyword::Any),
];

#[derive(Clone, Copy)]
enum Keyword {
    Type,
    Schemas,
    Names,
    SchemaOrFlag,
    Schema,
    Values,
    Number,
    Size,
    Text,
    Any,
}

const TYPES: &[&str] = &["string", "number", "integer", "boolean", "object", "array", "null"];

/// Says what keeps a value from being the schema of an input.
pub(super) fn judge(schema: &Value) -> Result<(), String> {
    if schema["type"] != "object" {
        return Err("is no schema of an object; write `type = \"object\"`".into());
    }
    judge_schema(schema)?;
    let properties = schema["properties"].as_object();
    let required = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str);
    for name in required {
        if !properties.is_some_and(|properties| properties.contains_key(name)) {
            return Err(format!("requires {name:?}, which is none of its properties"));
        }
    }
    Ok(())
}

fn judge_schema(schema: &Value) -> Result<(), String> {
    let Some(keywords) = schema.as_object() else { return Err("has a schema that is no table".into()) };
    for (name, value) in keywords {
        let Some((_, keyword)) = KEYWORDS.iter().find(|(known, _)| known == name) else {
            let known: Vec<_> = KEYWORDS.iter().map(|(name, _)| *name).collect();
            return Err(format!("has {name:?}, which inputs have not; known here: {}", known.join(", ")));
        };
        let fits = match keyword {
            Keyword::Type => match value.as_array() {
                Some(types) => !types.is_empty() && types.iter().all(is_type),
                None => is_type(value),
            },
            Keyword::Schemas => {
                let members = value.as_object();
                members.into_iter().flat_map(Map::values).try_for_each(judge_schema)?;
                members.is_some()
            }
            Keyword::Names => value.as_array().is_some_and(|names| {
                let mut seen = std::collections::BTreeSet::new();
                names.iter().all(|name| name.as_str().is_some_and(|name| seen.insert(name)))
            }),
            Keyword::SchemaOrFlag if value.is_boolean() => true,
            Keyword::SchemaOrFlag | Keyword::Schema => judge_schema(value).map(|()| true)?,
            Keyword::Values => value.as_array().is_some_and(|values| !values.is_empty() && values.len() <= 256),
            Keyword::Number => value.is_number(),
            Keyword::Size => value.is_u64(),
            Keyword::Text => value.is_string(),
            Keyword::Any => true,
        };
        if !fits {
            return Err(format!("has a {name:?} that is none"));
        }
    }
    Ok(())
}

fn is_type(value: &Value) -> bool {
    value.as_str().is_some_and(|name| TYPES.contains(&name))
}
