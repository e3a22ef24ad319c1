//! An answer as it is judged: its body read once, and the provider's own words in it.

use std::sync::LazyLock;

use bytes::Bytes;
use config::connector::errors::ErrorRules;
use config::connector::quota::JsonPath;
use domain::text::Untrusted;
use http::HeaderMap;
use http::header::CONTENT_TYPE;
use serde_json::{Value, json};

use super::place;
use super::redact::redact_text;

/// Longest message that is kept, in bytes, with its mark where it was cut.
pub(super) const MESSAGE_BYTES_MAX: usize = 1 << 10;

/// Bytes of a text that are looked at for a message: enough for the longest, with what redaction takes out.
const TEXT_BYTES_MAX: usize = 8 << 10;

/// Stands where a message was cut.
const MARK: &str = "…";

/// Texts of one place that make a message.
const TEXTS_MAX: usize = 5;

/// Where providers' own words are, where a manifest says nothing: the first that has some.
const PLACES: &[&str] = &[
    "error.message",
    "error.error_user_msg",
    "error_description",
    "message",
    "errors[].message",
    "errors[].detail",
    "detail",
    "errorMessages[]",
    "error.description",
    "description",
    "error",
    "errors[].title",
    "errors[]",
    "[].message",
    "title",
    "Message",
    "msg",
    "reason",
    "error_message",
    "errorMessage",
    "fault.faultstring",
    "Fault.Error[].Message",
    "errors.*[]",
    "errors.*",
];

static PARSED: LazyLock<Vec<JsonPath>> =
    LazyLock::new(|| PLACES.iter().filter_map(|text| JsonPath::parse(text).ok()).collect());

/// An answer's body.
#[derive(Debug)]
pub(super) enum Body {
    Empty,
    Json(Value),
    Html,
    /// XML, plain text, or JSON that is broken.
    Text,
    /// What is no UTF-8.
    Binary,
}

/// What of an answer is looked at.
#[derive(Debug)]
pub(super) struct Answer<'a> {
    pub(super) status: u16,
    pub(super) headers: &'a HeaderMap,
    pub(super) bytes: &'a Bytes,
    pub(super) body: Body,
    /// The provider said that it is JSON, and it is not.
    pub(super) is_broken: bool,
    /// It is JSON, and only its beginning is here.
    pub(super) is_cut_json: bool,
}

impl<'a> Answer<'a> {
    pub(super) fn read(status: u16, headers: &'a HeaderMap, bytes: &'a Bytes) -> Self {
        let content_type = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let content_type = content_type.to_ascii_lowercase();
        let says_json = content_type.contains("json");
        let start = bytes.iter().position(|byte| !byte.is_ascii_whitespace());
        let first = start.and_then(|at| bytes.get(at)).copied();
        let may_be_json = says_json || matches!(first, Some(b'{' | b'['));
        let parsed = if may_be_json { serde_json::from_slice::<Value>(bytes).ok() } else { None };
        let is_broken = says_json && parsed.is_none() && first.is_some();
        let body = match (first, parsed) {
            (None, _) => Body::Empty,
            (_, Some(value)) => Body::Json(value),
            _ if is_html(&content_type, bytes) => Body::Html,
            _ if std::str::from_utf8(bytes).is_ok() => Body::Text,
            _ => Body::Binary,
        };
        Self { status, headers, bytes, body, is_broken, is_cut_json: false }
    }

    /// The beginning of one. What of JSON is there says nothing: the rest may say otherwise.
    pub(super) fn cut(status: u16, headers: &'a HeaderMap, bytes: &'a Bytes) -> Self {
        let content_type = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let content_type = content_type.to_ascii_lowercase();
        let first = bytes.iter().find(|byte| !byte.is_ascii_whitespace());
        let is_cut_json = content_type.contains("json") || matches!(first, Some(b'{' | b'['));
        let body = if is_cut_json {
            Body::Binary
        } else if is_html(&content_type, bytes) {
            Body::Html
        } else {
            // It may end within a character.
            match std::str::from_utf8(bytes) {
                Err(fault) if fault.error_len().is_some() => Body::Binary,
                Ok(_) | Err(_) => Body::Text,
            }
        };
        Self { status, headers, bytes, body, is_broken: false, is_cut_json }
    }

    pub(super) fn json(&self) -> Option<&Value> {
        match &self.body {
            Body::Json(value) => Some(value),
            Body::Empty | Body::Html | Body::Text | Body::Binary => None,
        }
    }

    /// The body as later nodes see it.
    pub(super) fn value(self) -> Value {
        match self.body {
            Body::Empty => Value::Null,
            Body::Json(value) => value,
            Body::Html | Body::Text => Value::String(String::from_utf8_lossy(self.bytes).into_owned()),
            Body::Binary => json!({ "base64": data_encoding::BASE64.encode(self.bytes), "bytes": self.bytes.len() }),
        }
    }

    /// The provider's own words: without secrets, escaped, and cut.
    pub(super) fn message(&self, rules: &ErrorRules) -> Option<Box<str>> {
        let words = match &self.body {
            Body::Empty | Body::Binary => None,
            Body::Json(value) => in_json(value, rules),
            Body::Html => Some(html_summary(&start_of(self.bytes))),
            Body::Text => in_text(&start_of(self.bytes)),
        };
        words.as_deref().and_then(cleaned)
    }
}

/// The beginning of a text, as much of it as is looked at.
fn start_of(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes.get(..TEXT_BYTES_MAX).unwrap_or(bytes)).into_owned()
}

fn is_html(content_type: &str, bytes: &[u8]) -> bool {
    if content_type.contains("text/html") || content_type.contains("xhtml") {
        return true;
    }
    let start = start_of(bytes.get(..256).unwrap_or(bytes)).trim_start().to_ascii_lowercase();
    start.starts_with("<!doctype html") || start.starts_with("<html")
}

fn in_json(value: &Value, rules: &ErrorRules) -> Option<String> {
    let own = rules.message.iter().find_map(|path| texts_at(value, path));
    let head = own.or_else(|| PARSED.iter().find_map(|path| texts_at(value, path)));
    let details: Vec<String> = rules.details.iter().filter_map(|path| texts_at(value, path)).collect();
    let mut parts: Vec<String> = Vec::new();
    for part in head.into_iter().chain(details) {
        // Providers often say the same in two places.
        if !parts.iter().any(|known| known.contains(&part)) {
            parts.push(part);
        }
    }
    if !parts.is_empty() {
        return Some(parts.join(": "));
    }
    match value {
        Value::String(text) if !text.trim().is_empty() => Some(bounded(text).to_owned()),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) | Value::Object(_) => None,
    }
}

/// The texts at a place, with the names of members that a `*` found.
fn texts_at(value: &Value, path: &JsonPath) -> Option<String> {
    let mut texts = Vec::new();
    for (name, found) in place::at(value, path) {
        let text = match found {
            Value::String(text) if !text.trim().is_empty() => bounded(text.trim()).to_owned(),
            Value::Number(number) => number.to_string(),
            Value::Null | Value::Bool(_) | Value::String(_) | Value::Array(_) | Value::Object(_) => continue,
        };
        let text = match name {
            Some(name) => format!("{}: {text}", bounded(name)),
            None => text,
        };
        if !texts.contains(&text) {
            texts.push(text);
        }
        if texts.len() == TEXTS_MAX {
            break;
        }
    }
    (!texts.is_empty()).then(|| texts.join("; "))
}

fn bounded(text: &str) -> &str {
    &text[..text.floor_char_boundary(TEXT_BYTES_MAX)]
}

/// An HTML page is nobody's message; its title may say which one it is.
fn html_summary(page: &str) -> String {
    match between(page, "title") {
        Some(title) => format!("an HTML page: {title}"),
        None => "an HTML page".into(),
    }
}

/// Plain text, or the message of an error in XML.
fn in_text(text: &str) -> Option<String> {
    let trimmed = text.trim();
    if trimmed.starts_with('<') {
        return ["Message", "message", "faultstring", "Detail", "detail", "error_description", "error", "title"]
            .iter()
            .find_map(|name| between(trimmed, name))
            .or_else(|| Some("an XML document without a message".into()));
    }
    (!trimmed.is_empty()).then(|| trimmed.to_owned())
}

/// The text of the first element of this name, without markup in it.
fn between(text: &str, name: &str) -> Option<String> {
    let lower = text.to_ascii_lowercase();
    let wanted = format!("<{}", name.to_ascii_lowercase());
    let mut from = 0;
    loop {
        let start = from + lower.get(from..)?.find(&wanted)? + wanted.len();
        from = start;
        // `<titles>` is another element.
        if !lower.get(start..)?.starts_with(['>', ' ', '\t', '\n', '\r']) {
            continue;
        }
        let open = start + lower.get(start..)?.find('>')? + 1;
        let end = open + lower.get(open..)?.find("</").unwrap_or(lower.len() - open);
        let inside = text.get(open..end)?.trim().trim_start_matches("<![CDATA[").trim_end_matches("]]>");
        return (!inside.is_empty() && !inside.contains('<')).then(|| unescaped(inside));
    }
}

fn unescaped(text: &str) -> String {
    let text = text.replace("&lt;", "<").replace("&gt;", ">").replace("&quot;", "\"").replace("&#39;", "'");
    text.replace("&apos;", "'").replace("&amp;", "&")
}

/// Without secrets, on one line, with nothing in it that deceives, and cut at the bound.
pub(super) fn cleaned(words: &str) -> Option<Box<str>> {
    let words = bounded(words).split_whitespace().collect::<Vec<_>>().join(" ");
    if words.is_empty() {
        return None;
    }
    let redacted = redact_text(&words);
    let shown = Untrusted::with_limit(redacted.as_bytes(), usize::MAX).to_string();
    if shown.len() <= MESSAGE_BYTES_MAX {
        return Some(shown.into());
    }
    let cut = shown.floor_char_boundary(MESSAGE_BYTES_MAX - MARK.len());
    Some(format!("{}{MARK}", &shown[..cut]).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_common_place_is_one() {
        assert_eq!(PARSED.len(), PLACES.len());
    }

    #[test]
    fn markup_is_told_apart_from_words() {
        for (text, expected) in [
            ("<Error><Titles>no</Titles><Message> a &lt;b&gt; </Message></Error>", "a <b>"),
            ("<soap:Fault><faultstring>Server was unable</faultstring></soap:Fault>", "Server was unable"),
            ("<a><b/></a>", "an XML document without a message"),
            ("<Message><![CDATA[raw]]></Message>", "raw"),
            ("<Message", "an XML document without a message"),
            ("plain words", "plain words"),
        ] {
            assert_eq!(in_text(text).as_deref(), Some(expected), "{text}");
        }
        assert_eq!(in_text("  \n "), None);
        assert_eq!(html_summary("<html><body>x"), "an HTML page");
    }

    #[test]
    fn words_are_cleaned() {
        assert_eq!(cleaned("a\u{1b}[31m\nb\tc").as_deref(), Some("a\\u{1b}[31m b c"));
        assert_eq!(cleaned("x\u{202e}y").as_deref(), Some("x\\u{202e}y"));
        assert_eq!(cleaned(" \n "), None);
    }
}
