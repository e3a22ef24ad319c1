//! Places in a request where a value of the input stands.
//!
//! A place is the whole of a text, `{field}`: a value is never pasted into the middle of another language, so nothing in
//! it can be more than a value. Only a path has places within text, since there each value is percent-encoded.

use std::fmt;

use serde_json::Value;

/// A value, or where it comes from.
#[derive(Debug, Clone, PartialEq)]
pub enum Part {
    Constant(Box<str>),
    /// A member of the input.
    Field(Box<str>),
    /// The key of the effect.
    Effect(EffectForm),
}

/// How the key of an effect is written: its 128 bits are always the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EffectForm {
    /// `{effect.key}`: `eff_…`, as in the idempotency header.
    Key,
    /// `{effect.hex}`: 32 hexadecimal digits.
    Hex,
    /// `{effect.uuid}`: a version 4 UUID, so of 122 of its bits.
    Uuid,
}

/// A value with places in it.
#[derive(Debug, Clone, PartialEq)]
pub enum Template {
    /// What has no place in it.
    Constant(Value),
    /// The value itself, of whatever type; a member whose field is not in the input is left out.
    Part(Part),
    /// `{*}`: all members of the input that stand nowhere else in the request.
    Rest,
    List(Box<[Self]>),
    Table(Box<[(Box<str>, Self)]>),
}

/// A path with places in it.
#[derive(Debug, Clone, PartialEq)]
pub struct PathTemplate(Box<[PathPart]>);

#[derive(Debug, Clone, PartialEq)]
pub enum PathPart {
    /// As it travels.
    Text(Box<str>),
    /// Percent-encoded, and never a dot segment.
    Place(Part),
}

/// Longer names are no provider's.
const NAME_BYTES_MAX: usize = 64;

fn is_name(text: &str) -> bool {
    let plain = text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'$'));
    plain && (1..=NAME_BYTES_MAX).contains(&text.len())
}

impl Part {
    /// Of what stands between the braces.
    fn inside(text: &str) -> Result<Self, String> {
        Ok(match text {
            "effect.key" => Self::Effect(EffectForm::Key),
            "effect.hex" => Self::Effect(EffectForm::Hex),
            "effect.uuid" => Self::Effect(EffectForm::Uuid),
            name if is_name(name) => Self::Field(name.into()),
            _ => {
                return Err(format!(
                    "{{{text}}} is no place; write {{field}}, or {{effect.key}}, {{effect.hex}}, {{effect.uuid}}"
                ));
            }
        })
    }

    /// # Errors
    /// What is wrong with it, in words.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        match text.strip_prefix('{').and_then(|rest| rest.strip_suffix('}')) {
            Some(inside) if !inside.contains(['{', '}', ' ']) => Self::inside(inside),
            Some(_) | None => Ok(Self::Constant(text.into())),
        }
    }

    pub fn field(&self) -> Option<&str> {
        match self {
            Self::Field(name) => Some(name),
            Self::Constant(_) | Self::Effect(_) => None,
        }
    }
}

impl Template {
    /// # Errors
    /// What is wrong with it, in words.
    pub(super) fn parse(value: &Value) -> Result<Self, String> {
        Ok(match value {
            Value::String(text) if text == "{*}" => Self::Rest,
            Value::String(text) => match Part::parse(text)? {
                Part::Constant(text) => Self::Constant(Value::String(text.into())),
                part @ (Part::Field(_) | Part::Effect(_)) => Self::Part(part),
            },
            Value::Array(items) => Self::List(items.iter().map(Self::parse).collect::<Result<_, _>>()?),
            Value::Object(members) => {
                let members = members.iter().map(|(name, value)| Ok((name.as_str().into(), Self::parse(value)?)));
                Self::Table(members.collect::<Result<_, String>>()?)
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => Self::Constant(value.clone()),
        })
    }

    /// Every place in it.
    pub fn parts(&self) -> Vec<&Part> {
        match self {
            Self::Constant(_) | Self::Rest => Vec::new(),
            Self::Part(part) => vec![part],
            Self::List(items) => items.iter().flat_map(Self::parts).collect(),
            Self::Table(members) => members.iter().flat_map(|(_, member)| member.parts()).collect(),
        }
    }
}

impl PathTemplate {
    pub fn parts(&self) -> &[PathPart] {
        &self.0
    }

    pub(super) fn places(&self) -> impl Iterator<Item = &Part> {
        self.0.iter().filter_map(|part| match part {
            PathPart::Place(part) => Some(part),
            PathPart::Text(_) => None,
        })
    }

    /// # Errors
    /// What is wrong with it, in words.
    pub(in crate::connector) fn parse(text: &str) -> Result<Self, String> {
        let plain = text.bytes().all(|byte| byte.is_ascii_graphic() && !b"?#\\%".contains(&byte));
        if !text.starts_with('/') || text.len() > 512 || !plain {
            return Err(format!("{text:?} is no path; write such as \"/v1/customers/{{customer}}\", without a query"));
        }
        let segments = text.split('/').skip(1);
        if text.len() > 1 && segments.clone().any(|segment| matches!(segment, "" | "." | "..")) {
            return Err(format!("{text:?} has an empty segment, `.` or `..`; write it without"));
        }
        let (mut parts, mut rest) = (Vec::new(), text);
        while let Some((before, behind)) = rest.split_once('{') {
            let (inside, behind) = behind.split_once('}').ok_or_else(|| format!("{text:?} has a brace without end"))?;
            if before.contains('}') {
                return Err(format!("{text:?} has a brace without beginning"));
            }
            parts.extend((!before.is_empty()).then(|| PathPart::Text(before.into())));
            parts.push(PathPart::Place(Part::inside(inside)?));
            rest = behind;
        }
        if rest.contains('}') {
            return Err(format!("{text:?} has a brace without beginning"));
        }
        parts.extend((!rest.is_empty()).then(|| PathPart::Text(rest.into())));
        Ok(Self(parts.into()))
    }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Constant(text) => f.write_str(text),
            Self::Field(name) => write!(f, "{{{name}}}"),
            Self::Effect(EffectForm::Key) => f.write_str("{effect.key}"),
            Self::Effect(EffectForm::Hex) => f.write_str("{effect.hex}"),
            Self::Effect(EffectForm::Uuid) => f.write_str("{effect.uuid}"),
        }
    }
}

impl fmt::Display for PathTemplate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|part| match part {
            PathPart::Text(text) => f.write_str(text),
            PathPart::Place(part) => write!(f, "{part}"),
        })
    }
}
