//! Values at a place in JSON.

use config::connector::quota::{JsonPath, Step};
use serde_json::Value;

/// Values looked at for one place: a list of many elements is no error that somebody reads.
const VISITED_MAX: usize = 1_000;

/// What is at a place, in the order of the text. With the name of the member that a `*` at its end found.
pub(super) fn at<'v>(value: &'v Value, path: &JsonPath) -> Vec<(Option<&'v str>, &'v Value)> {
    let (mut found, mut left) = (Vec::new(), VISITED_MAX);
    walk(value, path.steps(), None, &mut left, &mut found);
    found
}

/// The first that is there.
pub(super) fn first<'v>(value: &'v Value, path: &JsonPath) -> Option<&'v Value> {
    at(value, path).first().map(|(_, value)| *value)
}

fn walk<'v>(
    value: &'v Value,
    steps: &[Step],
    name: Option<&'v str>,
    left: &mut usize,
    found: &mut Vec<(Option<&'v str>, &'v Value)>,
) {
    let Some(fewer) = left.checked_sub(1) else { return };
    *left = fewer;
    let Some((step, rest)) = steps.split_first() else {
        found.push((name, value));
        return;
    };
    match step {
        Step::Member(member) => {
            if let Some(inside) = value.get(&**member) {
                walk(inside, rest, name, left, found);
            }
        }
        Step::Any => {
            for (member, inside) in value.as_object().into_iter().flatten() {
                walk(inside, rest, Some(member), left, found);
            }
        }
        Step::Element => {
            for inside in value.as_array().into_iter().flatten() {
                walk(inside, rest, name, left, found);
            }
        }
    }
}

/// A text, number or truth value as rules of manifests have it.
pub(super) fn scalar(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(flag) => Some(flag.to_string()),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

/// Whether there is anything to it.
pub(super) fn is_something(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => false,
        Value::String(text) => !text.is_empty(),
        Value::Array(items) => !items.is_empty(),
        Value::Object(members) => !members.is_empty(),
        Value::Bool(true) | Value::Number(_) => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_place_is_found_through_lists_and_members() {
        let value = json!({ "errors": [{ "code": "a" }, { "code": 7 }, {}], "fields": { "x": "is bad", "y": ["z"] } });
        let texts = |path: &str| {
            let found =
                at(&value, &JsonPath::parse(path).unwrap()).into_iter().map(|(name, value)| (name, scalar(value)));
            found.collect::<Vec<_>>()
        };
        assert_eq!(texts("errors[].code"), [(None, Some("a".into())), (None, Some("7".into()))]);
        assert_eq!(texts("fields.*"), [(Some("x"), Some("is bad".into())), (Some("y"), None)]);
        assert_eq!(texts("fields.*[]"), [(Some("y"), Some("z".into()))]);
        assert!(texts("errors.code").is_empty() && texts("nothing").is_empty());
    }

    #[test]
    fn a_list_without_end_is_not_walked_to_its_end() {
        let value = Value::Array(vec![json!(1); 100_000]);
        assert!(at(&value, &JsonPath::parse("[]").unwrap()).len() <= VISITED_MAX);
    }
}
