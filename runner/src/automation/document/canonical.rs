//! One spelling of a document, so that one content has one digest.
//!
//! As RFC 8785 has it: no blanks, object members sorted by UTF-16 code units, strings with the shortest escapes. It differs
//! in numbers: they are written as they were read (`1` and `1.0` are two contents, and whole numbers behind 2^53 keep their
//! digits), where the RFC writes all of them as doubles.

use serde_json::Value;

/// The canonical text. The value's nesting is bounded by whoever read it.
pub(super) fn canonical(value: &Value) -> String {
    let mut text = String::new();
    write(value, &mut text);
    text
}

fn write(value: &Value, text: &mut String) {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => text.push_str(&value.to_string()),
        Value::Array(elements) => {
            text.push('[');
            for (at, element) in elements.iter().enumerate() {
                if at > 0 {
                    text.push(',');
                }
                write(element, text);
            }
            text.push(']');
        }
        Value::Object(members) => {
            let mut members: Vec<(&String, &Value)> = members.iter().collect();
            members.sort_by(|(a, _), (b, _)| a.encode_utf16().cmp(b.encode_utf16()));
            text.push('{');
            for (at, (key, value)) in members.into_iter().enumerate() {
                if at > 0 {
                    text.push(',');
                }
                text.push_str(&Value::from(key.as_str()).to_string());
                text.push(':');
                write(value, text);
            }
            text.push('}');
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn one_content_has_one_spelling() {
        let value: Value = serde_json::from_str(
            "{ \"b\": [1, 1.0, 1e3, 9007199254740993, true, null], \"a\": \"\\u00e9\\u0007\\/\\n\", \"\\ud83d\\ude00\": {}, \"\\uffee\": 1 }",
        )
        .unwrap();
        // The emoji is before U+FFEE in UTF-16, and behind it in UTF-8.
        assert_eq!(
            canonical(&value),
            "{\"a\":\"é\\u0007/\\n\",\"b\":[1,1.0,1000.0,9007199254740993,true,null],\"😀\":{},\"\u{ffee}\":1}"
        );
        assert_eq!(canonical(&json!({ "z": 1, "a": { "y": 2, "b": [] } })), "{\"a\":{\"b\":[],\"y\":2},\"z\":1}");
    }
}
