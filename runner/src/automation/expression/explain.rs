//! What went wrong, in words for an author. Values are never shown whole: they may be secrets, and as long as they like.

use std::borrow::Cow;

use cel::{ExecutionError, ParseErrors};

use super::super::scope::Scope;
use super::names::Place;

/// At most so many bytes, cut between characters, with control characters shown as blanks.
pub(in crate::automation) fn cut(text: &str, bytes_max: usize) -> Cow<'_, str> {
    let cut = &text[..text.floor_char_boundary(bytes_max)];
    let is_whole = cut.len() == text.len();
    if is_whole && !cut.contains(char::is_control) {
        return Cow::Borrowed(text);
    }
    let mut shown: String = cut.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    if !is_whole {
        shown.push('…');
    }
    Cow::Owned(shown)
}

/// Of a message with a picture above it, what it says.
pub(super) fn last_line(text: &str) -> String {
    cut(text.lines().last().unwrap_or_default().trim(), 200).into_owned()
}

/// The first three errors, each with its place.
pub(super) fn parse_errors(errors: &ParseErrors) -> String {
    let shown: Vec<String> = errors
        .errors
        .iter()
        .take(3)
        .map(|error| {
            let (line, column) = error.pos;
            // What could have stood there instead is a list of all that the grammar knows.
            let said = error.msg.split(", expecting").next().unwrap_or_default();
            let said = said.split(" expecting {").next().unwrap_or_default();
            format!("{} (line {line}, column {column})", cut(said, 120))
        })
        .collect();
    if shown.is_empty() { "it is no CEL".into() } else { format!("it is no CEL: {}", shown.join("; ")) }
}

/// An error of the interpreter's.
#[expect(clippy::wildcard_enum_match_arm, reason = "the crate's enumeration is open, and what it says shows values")]
pub(super) fn explain(error: &ExecutionError, places: &[Place], scope: &Scope) -> String {
    // What is missing is told by the place that was asked for: it knows what it is a field of.
    let is_of_a_name = match error {
        ExecutionError::NoSuchKey(_) | ExecutionError::UndeclaredReference(_) => true,
        ExecutionError::NoSuchOverload(overload) => overload.function() == "_._",
        _ => false,
    };
    if is_of_a_name && let Some(missing) = missing(error, places, scope) {
        return missing;
    }
    match error {
        ExecutionError::NoSuchKey(key) => format!("there is no field `{}`", cut(key, 64)),
        ExecutionError::UndeclaredReference(name) => format!("nothing is called `{}`", cut(name, 64)),
        ExecutionError::NoSuchOverload(overload) => {
            let types = overload.argument_types().join(", ");
            format!("{} does not take ({})", operation(overload.function()), cut(&types, 120))
        }
        ExecutionError::UnexpectedType { got, want } => {
            format!("a {} stands where a {} is needed", cut(got, 64), cut(want, 64))
        }
        ExecutionError::DivisionByZero(_) | ExecutionError::RemainderByZero(_) => "it divides by zero".into(),
        ExecutionError::Overflow(..) => "a number becomes too large".into(),
        ExecutionError::IndexOutOfBounds(_) => "the list has no element with this index".into(),
        ExecutionError::ValuesNotComparable(..) => "values of different kinds cannot be compared".into(),
        ExecutionError::UnsupportedBinaryOperator(name, ..) => format!("these two values have no `{name}`"),
        ExecutionError::UnsupportedKeyType(_) => "a key is a text, a whole number or a boolean".into(),
        ExecutionError::UnsupportedIndex(..) => "this value has no such index".into(),
        ExecutionError::DuplicateKey(_) => "a map has the same key twice".into(),
        ExecutionError::InvalidArgumentCount { expected, actual } => {
            format!("a function takes {expected} values and not {actual}")
        }
        ExecutionError::FunctionError { function, message } => {
            format!("`{}` failed: {}", cut(function, 64), cut(message, 120))
        }
        ExecutionError::InternalError(message) => cut(message, 120).into_owned(),
        // Their texts show values, of any length: the kind alone has to do.
        _ => "an operation does not fit its values".into(),
    }
}

/// The longest of the places that is not there, if the error is about one.
fn missing(error: &ExecutionError, places: &[Place], scope: &Scope) -> Option<String> {
    let field = if let ExecutionError::NoSuchKey(key) = error { Some(key.as_str()) } else { None };
    places
        .iter()
        .filter(|place| field.is_none_or(|field| place.fields.last().is_some_and(|last| **last == *field)))
        .find_map(|place| place.find(scope).err())
}

/// An operator as it is written, a function by its name.
fn operation(name: &str) -> String {
    let sign = name.trim_matches('_').trim_start_matches('@');
    match name {
        "_[_]" => "an index".into(),
        "_._" => "a field".into(),
        "_?_:_" => "`? :`".into(),
        _ => format!("`{}`", cut(sign, 64)),
    }
}
