//! Paths, queries and headers of requests, made of values that an author or an event chose.
//!
//! Nothing of a value can be more than a value: in a path it is percent-encoded within its segment, and what the way out
//! would refuse because two servers could read it differently is refused here, where the author is told which field it is.

use std::fmt::Write;

use http::{HeaderName, HeaderValue};
use serde_json::Value;

use super::answer::cleaned;
use super::{InputFault, place};

/// Longest path and query together, in bytes: what common servers take.
const TARGET_BYTES_MAX: usize = 8 << 10;

/// Longest value of a header, in bytes.
const HEADER_BYTES_MAX: usize = 4 << 10;

/// Elements of a list in a query.
const ELEMENTS_MAX: usize = 256;

/// A fault in words: names in it are the tenant's, and so escaped and without secrets.
pub(super) fn fault(message: impl AsRef<str>) -> InputFault {
    InputFault(cleaned(message.as_ref()).unwrap_or_default())
}

/// A path that is made segment by segment, and then its query.
#[derive(Debug, Default)]
pub(super) struct Target {
    path: String,
    query: String,
}

impl Target {
    /// Text of a manifest, as it travels.
    pub(super) fn push_text(&mut self, text: &str) {
        self.path.push_str(text);
    }

    /// A value within a segment, encoded.
    pub(super) fn push_value(&mut self, name: &str, value: &str) -> Result<(), InputFault> {
        judge_value(name, value)?;
        encode(&mut self.path, value, is_unreserved);
        Ok(())
    }

    /// A whole path that an author wrote: what must be encoded is, and what is encoded stays.
    pub(super) fn push_written(&mut self, name: &str, path: &str) -> Result<(), InputFault> {
        let (path, query) = path.split_once('?').map_or((path, None), |(path, query)| (path, Some(query)));
        if !path.starts_with('/') {
            return Err(fault(format!(
                "{name} does not begin with `/`; it is what stands behind the connection's base URL"
            )));
        }
        if path.contains('#') || query.is_some_and(|query| query.contains('#')) {
            return Err(fault(format!("{name} has a `#`, which no request has; write %23 for one that is meant")));
        }
        for segment in path.split('/').skip(1) {
            judge_segment(name, segment)?;
        }
        encode_written(&mut self.path, path, |byte| is_unreserved(byte) || b"/!$&'()*+,;=:@".contains(&byte));
        if let Some(query) = query.filter(|query| !query.is_empty()) {
            encode_written(&mut self.query, query, |byte| is_unreserved(byte) || b"/?!$&'()*+,;=:@".contains(&byte));
        }
        Ok(())
    }

    /// A parameter: a text, a number or a truth value, or a list of these, for which the name is repeated.
    pub(super) fn push_parameter(&mut self, name: &str, value: &Value) -> Result<(), InputFault> {
        let one = std::slice::from_ref(value);
        let values = value.as_array().map_or(one, Vec::as_slice);
        if values.len() > ELEMENTS_MAX {
            return Err(fault(format!("query.{name} has more than {ELEMENTS_MAX} elements")));
        }
        for value in values.iter().filter(|value| !value.is_null()) {
            let Some(text) = place::scalar(value) else {
                return Err(fault(format!("query.{name} is no text, number, true or false, and no list of these")));
            };
            push_pair(&mut self.query, name, &text);
        }
        Ok(())
    }

    pub(super) fn finish(self) -> Result<Box<str>, InputFault> {
        let Self { mut path, query } = self;
        for segment in path.split('/').skip(1) {
            judge_dots("the path", segment)?;
        }
        if path.contains("//") {
            return Err(fault("the path has an empty segment: a value that stands in it is empty"));
        }
        if !query.is_empty() {
            path.push('?');
            path.push_str(&query);
        }
        if path.len() > TARGET_BYTES_MAX {
            return Err(fault(format!("path and query have more than {TARGET_BYTES_MAX} bytes")));
        }
        Ok(path.into())
    }
}

/// A value that stands in a path.
fn judge_value(name: &str, value: &str) -> Result<(), InputFault> {
    if value.is_empty() {
        return Err(fault(format!("{name} is empty, and stands in the path")));
    }
    if value.contains(['/', '\\']) || value.chars().any(char::is_control) {
        return Err(fault(format!("{name} has a slash, a backslash or a control character, and stands in the path")));
    }
    judge_double(name, value)
}

/// What is encoded, encoded once more, is decoded by whoever decodes twice.
fn judge_double(name: &str, value: &str) -> Result<(), InputFault> {
    let is_pair =
        |at: usize| value.as_bytes().get(at..at + 2).is_some_and(|pair| pair.iter().all(u8::is_ascii_hexdigit));
    if value.match_indices('%').any(|(at, _)| is_pair(at + 1)) {
        return Err(fault(format!("{name} is percent-encoded already; write it plain, it is encoded here")));
    }
    Ok(())
}

/// A segment that an author wrote, in which something may be encoded.
fn judge_segment(name: &str, segment: &str) -> Result<(), InputFault> {
    if segment.contains('\\') || segment.chars().any(char::is_control) {
        return Err(fault(format!("{name} has a backslash or a control character")));
    }
    let bytes = segment.as_bytes();
    for (at, _) in segment.match_indices('%') {
        let pair = bytes.get(at + 1..at + 3).and_then(|pair| std::str::from_utf8(pair).ok());
        let octet = pair.filter(|pair| pair.bytes().all(|byte| byte.is_ascii_hexdigit()));
        match octet.and_then(|pair| u8::from_str_radix(pair, 16).ok()) {
            None => {
                return Err(fault(format!("{name} has a `%` that encodes nothing; write %25 for one that is meant")));
            }
            Some(..=0x1f | 0x7f | b'.' | b'/' | b'\\' | 0xc0 | 0xc1) => {
                return Err(fault(format!(
                    "{name} has an encoded slash, dot, backslash or control character, which servers read differently"
                )));
            }
            Some(b'%') => {
                let behind = segment.get(at + 3..at + 5).unwrap_or_default();
                judge_double(name, &format!("%{behind}"))?;
            }
            Some(_) => {}
        }
    }
    judge_dots(name, segment)
}

fn judge_dots(name: &str, segment: &str) -> Result<(), InputFault> {
    // `..;x` is a step up to servers that know segment parameters.
    if matches!(segment.split(';').next(), Some("." | "..")) {
        return Err(fault(format!("{name} has a segment that is `.` or `..`")));
    }
    Ok(())
}

/// RFC 3986, section 2.3.
fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~')
}

fn encode(out: &mut String, text: &str, keep: impl Fn(u8) -> bool) {
    for byte in text.bytes() {
        if keep(byte) {
            out.push(char::from(byte));
        } else {
            // Writing to a string does not fail.
            let _written = write!(out, "%{byte:02X}");
        }
    }
}

fn encode_written(out: &mut String, text: &str, keep: impl Fn(u8) -> bool) {
    encode(out, text, |byte| byte == b'%' || keep(byte));
}

/// `name=value` behind the pairs that are there, in the form of parameters and of form bodies.
pub(super) fn push_pair(out: &mut String, name: &str, value: &str) {
    if !out.is_empty() {
        out.push('&');
    }
    // Brackets stand in names of form fields, and no server reads them otherwise.
    encode(out, name, |byte| is_unreserved(byte) || matches!(byte, b'[' | b']' | b'$'));
    out.push('=');
    encode(out, value, is_unreserved);
}

/// A header that an input fills: a name that calls may set, a value of visible characters.
pub(super) fn header(name: &str, value: &str) -> Result<(HeaderName, HeaderValue), InputFault> {
    let lower = config::connector::settable_header(name).map_err(|message| fault(format!("headers: {message}")))?;
    let parsed = HeaderName::from_bytes(lower.as_bytes()).map_err(|_| fault(format!("headers.{lower} is no name")))?;
    let is_plain = value.bytes().all(|byte| matches!(byte, b' '..=b'~' | b'\t'));
    if value.len() > HEADER_BYTES_MAX || !is_plain || value.trim() != value {
        let message = format!(
            "headers.{lower} has more than {HEADER_BYTES_MAX} bytes, a space at an end, or what is not printable ASCII"
        );
        return Err(fault(message));
    }
    let value = HeaderValue::from_str(value).map_err(|_| fault(format!("headers.{lower} has no value of a header")))?;
    Ok((parsed, value))
}
