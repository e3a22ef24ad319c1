//! The schema of an action's input: JSON Schema, draft 2020-12, as far as it can be checked without fetching anything and
//! at a cost that the schema bounds, whatever the input is.
//!
//! A `$ref` leads to a definition of the same schema and nowhere else, and never back to where it came from; what all of
//! them come to, written out, is bounded: so an input is looked at by so many schemas at most. A `pattern` is compiled in
//! the one form that takes linear time.

use std::collections::BTreeMap;

use regex::RegexBuilder;
use serde_json::{Map, Value};

/// Schemas that one comes to, with each `$ref` written out. A list of a hundred members with a handful of forms each has
/// some hundreds.
const SCHEMAS_MAX: u32 = 4_096;

/// Values of an `enum`, and schemas of one list of them.
const LIST_MAX: usize = 256;

/// What a pattern may be compiled to, in bytes.
const PATTERN_COMPILED_MAX: usize = 1 << 20;

/// The draft that all of this is of.
const DRAFT: &str = "https://json-schema.org/draft/2020-12/schema";

/// What a `$ref` begins with.
const DEFINITIONS: &str = "#/$defs/";

/// Keywords, and what each must be.
const KEYWORDS: &[(&str, Keyword)] = &[
    ("type", Keyword::Type),
    ("enum", Keyword::Values),
    ("const", Keyword::Any),
    ("properties", Keyword::Schemas),
    ("patternProperties", Keyword::Patterns),
    ("additionalProperties", Keyword::Schema),
    ("unevaluatedProperties", Keyword::Schema),
    ("propertyNames", Keyword::Schema),
    ("required", Keyword::Names),
    ("dependentRequired", Keyword::NamesOf),
    ("dependentSchemas", Keyword::Schemas),
    ("minProperties", Keyword::Size),
    ("maxProperties", Keyword::Size),
    ("items", Keyword::Schema),
    ("prefixItems", Keyword::SchemaList),
    ("unevaluatedItems", Keyword::Schema),
    ("contains", Keyword::Schema),
    ("minContains", Keyword::Size),
    ("maxContains", Keyword::Size),
    ("minItems", Keyword::Size),
    ("maxItems", Keyword::Size),
    ("uniqueItems", Keyword::Flag),
    ("minimum", Keyword::Number),
    ("maximum", Keyword::Number),
    ("exclusiveMinimum", Keyword::Number),
    ("exclusiveMaximum", Keyword::Number),
    ("multipleOf", Keyword::Divisor),
    ("minLength", Keyword::Size),
    ("maxLength", Keyword::Size),
    ("pattern", Keyword::Pattern),
    ("format", Keyword::Text),
    ("allOf", Keyword::SchemaList),
    ("anyOf", Keyword::SchemaList),
    ("oneOf", Keyword::SchemaList),
    ("not", Keyword::Schema),
    ("if", Keyword::Schema),
    ("then", Keyword::Schema),
    ("else", Keyword::Schema),
    ("$ref", Keyword::Reference),
    ("$defs", Keyword::Definitions),
    ("$schema", Keyword::Draft),
    ("$comment", Keyword::Text),
    ("title", Keyword::Text),
    ("description", Keyword::Text),
    ("default", Keyword::Any),
    ("examples", Keyword::List),
    ("deprecated", Keyword::Flag),
    ("readOnly", Keyword::Flag),
    ("writeOnly", Keyword::Flag),
    ("contentEncoding", Keyword::Text),
    ("contentMediaType", Keyword::Text),
    ("contentSchema", Keyword::Schema),
];

#[derive(Clone, Copy)]
enum Keyword {
    Type,
    Schema,
    Schemas,
    SchemaList,
    Definitions,
    Patterns,
    Names,
    NamesOf,
    Values,
    List,
    Number,
    Divisor,
    Size,
    Flag,
    Text,
    Pattern,
    Reference,
    Draft,
    Any,
}

const TYPES: &[&str] = &["string", "number", "integer", "boolean", "object", "array", "null"];

/// Says what keeps a value from being the schema of an input.
pub(super) fn judge(schema: &Value) -> Result<(), String> {
    if schema["type"] != "object" {
        return Err("is no schema of an object; write `type = \"object\"`".into());
    }
    let judging = Judging { definitions: schema["$defs"].as_object() };
    judging.schema(schema, true)?;
    let mut weights = BTreeMap::new();
    judging.weight(schema, &mut weights)?;
    let properties = schema["properties"].as_object();
    let required = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str);
    for name in required {
        if !properties.is_some_and(|properties| properties.contains_key(name)) {
            return Err(format!("requires {name:?}, which is none of its properties"));
        }
    }
    Ok(())
}

struct Judging<'s> {
    definitions: Option<&'s Map<String, Value>>,
}

impl<'s> Judging<'s> {
    fn schema(&self, schema: &Value, is_root: bool) -> Result<(), String> {
        if schema.is_boolean() && !is_root {
            return Ok(());
        }
        let Some(keywords) = schema.as_object() else { return Err("has a schema that is no table".into()) };
        for (name, value) in keywords {
            let Some((_, keyword)) = KEYWORDS.iter().find(|(known, _)| known == name) else {
                let known: Vec<_> = KEYWORDS.iter().map(|(name, _)| *name).collect();
                return Err(format!("has {name:?}, which inputs have not; known here: {}", known.join(", ")));
            };
            if matches!(keyword, Keyword::Definitions | Keyword::Draft) && !is_root {
                return Err(format!("has {name:?} within another schema; it belongs to all of the input"));
            }
            if !self.fits(*keyword, value)? {
                return Err(format!("has a {name:?} that is none"));
            }
        }
        Ok(())
    }

    fn fits(&self, keyword: Keyword, value: &Value) -> Result<bool, String> {
        Ok(match keyword {
            Keyword::Type => match value.as_array() {
                Some(types) => !types.is_empty() && types.iter().all(is_type),
                None => is_type(value),
            },
            Keyword::Schema => self.schema(value, false).map(|()| true)?,
            Keyword::Schemas | Keyword::Definitions => self.all(value.as_object().map(Map::values))?,
            Keyword::Patterns => {
                value.as_object().into_iter().flat_map(Map::keys).try_for_each(|text| pattern(text))?;
                self.all(value.as_object().map(Map::values))?
            }
            Keyword::SchemaList => {
                let list = value.as_array().filter(|list| (1..=LIST_MAX).contains(&list.len()));
                self.all(list.map(|list| list.iter()))?
            }
            Keyword::Names => is_names(value),
            Keyword::NamesOf => value.as_object().is_some_and(|members| members.values().all(is_names)),
            Keyword::Values => value.as_array().is_some_and(|list| (1..=LIST_MAX).contains(&list.len())),
            Keyword::List => value.is_array(),
            Keyword::Number => value.is_number(),
            Keyword::Divisor => value.as_f64().is_some_and(|number| number > 0.0),
            Keyword::Size => value.is_u64(),
            Keyword::Flag => value.is_boolean(),
            Keyword::Text => value.is_string(),
            Keyword::Pattern => match value.as_str() {
                Some(text) => pattern(text).map(|()| true)?,
                None => false,
            },
            Keyword::Reference => self.meant(value).map(|_| true)?,
            Keyword::Draft => value == DRAFT,
            Keyword::Any => true,
        })
    }

    fn all<'v>(&self, schemas: Option<impl Iterator<Item = &'v Value>>) -> Result<bool, String> {
        let Some(mut schemas) = schemas else { return Ok(false) };
        schemas.try_for_each(|schema| self.schema(schema, false)).map(|()| true)
    }

    /// The definition that a `$ref` names.
    fn meant(&self, reference: &Value) -> Result<(&'s str, &'s Value), String> {
        let no = |text: &str| {
            format!(
                "has \"$ref\" = {text:?}: write \"{DEFINITIONS}NAME\", a name of its own \"$defs\"; nothing is fetched"
            )
        };
        let text = reference.as_str().ok_or("has a \"$ref\" that is none")?;
        // A name with an escape of JSON pointers would be read as another one.
        let name =
            text.strip_prefix(DEFINITIONS).filter(|name| !name.contains(['~', '%', '/'])).ok_or_else(|| no(text))?;
        let found = self.definitions.and_then(|definitions| definitions.get_key_value(name));
        found.map(|(name, schema)| (name.as_str(), schema)).ok_or_else(|| no(text))
    }

    /// How many schemas it comes to. `known`: of definitions; none of one that is being counted.
    fn weight(&self, schema: &Value, known: &mut BTreeMap<&'s str, Option<u32>>) -> Result<u32, String> {
        let mut sum = 1_u32;
        for (name, value) in schema.as_object().into_iter().flatten() {
            let keyword = KEYWORDS.iter().find(|(known, _)| known == name).map(|(_, keyword)| *keyword);
            let inner: Vec<&Value> = match keyword {
                Some(Keyword::Schema) => vec![value],
                Some(Keyword::Schemas | Keyword::Patterns) => {
                    value.as_object().into_iter().flat_map(Map::values).collect()
                }
                Some(Keyword::SchemaList) => value.as_array().into_iter().flatten().collect(),
                Some(Keyword::Reference) => {
                    sum = sum.saturating_add(self.weight_of(value, known)?);
                    continue;
                }
                // Definitions count where they are named.
                _ => continue,
            };
            for one in inner {
                sum = sum.saturating_add(self.weight(one, known)?);
            }
        }
        if sum > SCHEMAS_MAX {
            return Err(format!("comes to more than {SCHEMAS_MAX} schemas with each \"$ref\" written out"));
        }
        Ok(sum)
    }

    fn weight_of(&self, reference: &Value, known: &mut BTreeMap<&'s str, Option<u32>>) -> Result<u32, String> {
        let (name, schema) = self.meant(reference)?;
        match known.get(name) {
            Some(Some(weight)) => return Ok(*weight),
            Some(None) => return Err(format!("has a \"$ref\" that leads from {name:?} back to it")),
            None => {}
        }
        known.insert(name, None);
        let weight = self.weight(schema, known)?;
        known.insert(name, Some(weight));
        Ok(weight)
    }
}

/// No look-around, no reference back, no flags: what has none of them takes linear time, and means the same to everybody.
fn pattern(text: &str) -> Result<(), String> {
    let has_flags = text.match_indices("(?").any(|(at, _)| !text[at + 2..].starts_with(':'));
    let compiled = RegexBuilder::new(text).size_limit(PATTERN_COMPILED_MAX).build();
    if compiled.is_ok() && !has_flags {
        return Ok(());
    }
    let shown = domain::text::Untrusted::with_limit(text.as_bytes(), 64);
    Err(format!(
        "has the pattern \"{shown}\", which is none: a regular expression without look-around, references back and flags"
    ))
}

fn is_names(value: &Value) -> bool {
    let mut seen = std::collections::BTreeSet::new();
    value.as_array().is_some_and(|names| names.iter().all(|name| name.as_str().is_some_and(|name| seen.insert(name))))
}

fn is_type(value: &Value) -> bool {
    value.as_str().is_some_and(|name| TYPES.contains(&name))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn with(property: &Value) -> Value {
        json!({ "type": "object", "properties": { "a": property }, "$defs": {
            "id": { "type": "string", "pattern": "^[a-z]{1,20}$" },
            "pair": { "prefixItems": [{ "$ref": "#/$defs/id" }, true], "items": false },
        } })
    }

    #[test]
    fn what_the_draft_has_is_taken() {
        for property in [
            json!(true),
            json!({ "$ref": "#/$defs/pair" }),
            json!({ "anyOf": [{ "type": "string" }, { "$ref": "#/$defs/id" }], "$comment": "either" }),
            json!({ "oneOf": [{ "const": 1 }], "allOf": [{}], "not": { "type": "null" } }),
            json!({ "if": { "minLength": 1 }, "then": { "pattern": "^\\d+$" }, "else": false }),
            json!({ "patternProperties": { "^x-": { "type": "string" } }, "propertyNames": { "maxLength": 9 } }),
            json!({ "dependentRequired": { "a": ["b"] }, "dependentSchemas": { "a": { "minProperties": 2 } } }),
            json!({ "contains": {}, "minContains": 1, "maxContains": 3, "uniqueItems": true, "unevaluatedItems": false }),
            json!({ "multipleOf": 0.5, "deprecated": true, "readOnly": false, "writeOnly": true, "examples": [1] }),
            json!({ "contentEncoding": "base64", "contentMediaType": "image/png", "unevaluatedProperties": {} }),
        ] {
            assert_eq!(judge(&with(&property)), Ok(()), "{property}");
        }
        let mut schema = with(&json!({}));
        schema["$schema"] = DRAFT.into();
        assert_eq!(judge(&schema), Ok(()));
    }

    #[test]
    fn what_would_be_fetched_or_has_no_bound_is_not() {
        for (property, words) in [
            (json!({ "$ref": "https://a.example.com/s" }), "nothing is fetched"),
            (json!({ "$ref": "#" }), "nothing is fetched"),
            (json!({ "$ref": "#/$defs/none" }), "nothing is fetched"),
            (json!({ "$ref": "#/$defs/id/pattern" }), "nothing is fetched"),
            (json!({ "$ref": "#/properties/a" }), "nothing is fetched"),
            (json!({ "$dynamicRef": "#a" }), "which inputs have not"),
            (json!({ "$id": "https://a.example.com/s" }), "which inputs have not"),
            (json!({ "$defs": {} }), "within another schema"),
            (json!({ "pattern": "(?=a)b" }), "which is none"),
            (json!({ "pattern": "(a)\\1" }), "which is none"),
            (json!({ "pattern": "(?i)a" }), "which is none"),
            (json!({ "pattern": "a{1000}{1000}" }), "which is none"),
            (json!({ "patternProperties": { "(": {} } }), "which is none"),
            (json!({ "anyOf": [] }), "that is none"),
            (json!({ "multipleOf": 0 }), "that is none"),
            (json!({ "uniqueItems": "yes" }), "that is none"),
            (json!(7), "no table"),
        ] {
            let fault = judge(&with(&property)).expect_err("it is refused");
            assert!(fault.contains(words), "{property}: {fault}");
        }
    }

    #[test]
    fn references_end_and_are_counted_as_what_they_come_to() {
        let mut schema = with(&json!({ "$ref": "#/$defs/b" }));
        schema["$defs"] =
            json!({ "b": { "items": { "$ref": "#/$defs/c" } }, "c": { "anyOf": [{ "$ref": "#/$defs/b" }] } });
        assert!(judge(&schema).expect_err("it goes round").contains("back to it"));
        // Each is twice the next: written out, they are 2^30.
        let two = |next: usize| json!({ "allOf": [{ "$ref": format!("#/$defs/d{next}") }, { "$ref": format!("#/$defs/d{next}") }] });
        let mut definitions: Map<String, Value> = (0..30).map(|at| (format!("d{at}"), two(at + 1))).collect();
        definitions.insert("d30".into(), json!({}));
        schema["$defs"] = definitions.into();
        schema["properties"]["a"] = json!({ "$ref": "#/$defs/d0" });
        assert!(judge(&schema).expect_err("it is too much").contains("more than 4096 schemas"));
        schema["properties"]["a"] = json!({ "$ref": "#/$defs/d25" });
        assert_eq!(judge(&schema), Ok(()));
    }
}
