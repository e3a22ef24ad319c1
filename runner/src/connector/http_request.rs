//! `http.request`: any request, through any connection. It is as safe as its method (RFC 9110, section 9.2.2), or as the
//! idempotency header of its connector where that covers it.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use config::connector::AuthSlot;
use config::connector::Manifest;
use config::connector::action::{Encoding, Method};
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderName, HeaderValue};
use serde_json::{Map, Value, json};

use super::answer::Answer;
use super::target::{Target, fault, header};
use super::{Action, InputFault, ReadBack, ReplaySafety, Request, Verdict, body, classify, place};
use crate::failure::FailureClass;
use crate::ids::EffectKey;

/// What an input may have.
const FIELDS: &[&str] = &["method", "path", "query", "headers", "body", "encoding"];

/// Headers that the connection or HTTP itself sets.
const NOT_THE_AUTHORS: &[&str] = &["authorization", "cookie", "proxy-authorization", "expect", "forwarded"];

const HEADERS_MAX: usize = 64;

/// Headers of an answer that later nodes see, beside those by which the provider names the request.
const SHOWN: &[&str] = &["content-type", "etag", "last-modified", "link", "location", "retry-after"];

/// Any request through a connection of this connector.
///
/// Its input:
/// - `method`: in capitals; without it, `GET`.
/// - `path`: what stands behind the connection's base URL; or a list of segments, each of which is encoded, for values
///   that an event chose. With a text, a query may follow.
/// - `query`: an object of texts, numbers, truth values, and lists of these.
/// - `headers`: an object of texts.
/// - `body`: any value; `encoding`: `json` (as without it), `form`, `text` or `base64`.
///
/// Its output is an object of `status`, `headers` and `body`.
#[derive(Debug, Clone)]
pub struct HttpRequest {
    manifest: Arc<Manifest>,
}

impl HttpRequest {
    pub fn new(manifest: Arc<Manifest>) -> Self {
        Self { manifest }
    }

    /// Whether a second request of this input does nothing more, by its method and by what the connector knows.
    fn is_idempotent(&self, input: &Value) -> bool {
        let Some(method) = method_of(input) else { return false };
        if self.key_header(input).is_some() {
            return true;
        }
        // What may be decoded on the way is compared as the provider would read it.
        let repeats = |path: &str| self.manifest.repeats(method, path) || self.manifest.repeats(method, &decoded(path));
        method.is_idempotent() && !is_overridden(input) && !path_of(input).is_some_and(|path| repeats(&path))
    }

    /// The idempotency header, if it covers this input.
    fn key_header(&self, input: &Value) -> Option<&str> {
        let method = method_of(input)?;
        let path = path_of(input)?;
        self.manifest.idempotency_header.as_deref().filter(|_| self.manifest.remembers(method, &path))
    }

    fn headers(&self, input: &Value) -> Result<Vec<(HeaderName, HeaderValue)>, InputFault> {
        let members = match input.get("headers") {
            None | Some(Value::Null) => return Ok(Vec::new()),
            Some(Value::Object(members)) => members,
            Some(_) => return Err(fault("headers is no object; write names and values")),
        };
        if members.len() > HEADERS_MAX {
            return Err(fault(format!("headers has more than {HEADERS_MAX} of them")));
        }
        let mut headers = Vec::with_capacity(members.len());
        for (name, value) in members.iter().filter(|(_, value)| !value.is_null()) {
            let value = place::scalar(value).ok_or_else(|| fault("headers has a value that is no text"))?;
            let (name, value) = header(name, &value)?;
            let is_slot = matches!(&self.manifest.auth, AuthSlot::Header(slot) if **slot == *name.as_str());
            if is_slot || NOT_THE_AUTHORS.contains(&name.as_str()) {
                return Err(fault(format!(
                    "headers.{name} is not the author's: the connection's credential is attached on the way out"
                )));
            }
            if self.manifest.idempotency_header.as_deref() == Some(name.as_str()) {
                return Err(fault(format!("headers.{name} is set by the runner: the effect's key stands in it")));
            }
            if headers.iter().any(|(known, _): &(HeaderName, HeaderValue)| *known == name) {
                return Err(fault(format!("headers.{name} is there twice")));
            }
            headers.push((name, value));
        }
        Ok(headers)
    }
}

impl Action for HttpRequest {
    fn safety(&self, input: &Value) -> ReplaySafety {
        // A method that is not known, or not known yet, is none that is safe.
        if self.is_idempotent(input) { ReplaySafety::Idempotent } else { ReplaySafety::Unsafe }
    }

    fn request(&self, input: &Value, effect: EffectKey) -> Result<Request, InputFault> {
        let members = input.as_object().ok_or_else(|| fault("the input is no object"))?;
        if let Some((name, _)) = members.iter().find(|(name, _)| !FIELDS.contains(&name.as_str())) {
            return Err(fault(format!("{name} is no field of http.request; it has {}", FIELDS.join(", "))));
        }
        let method = method_of(input)
            .ok_or_else(|| fault("method is none of GET, HEAD, OPTIONS, PUT, DELETE, POST and PATCH, in capitals"))?;
        let target = target(input)?;
        let mut headers = self.headers(input)?;
        let body = body_of(input, method, &mut headers)?;
        if let Some(name) = self.key_header(input) {
            headers.push(header(name, &effect.to_string())?);
        }
        let method = http::Method::from_bytes(method.as_str().as_bytes()).map_err(|_| fault("method is none"))?;
        Ok(Request { method, target, headers, body })
    }

    fn remembered_for(&self, input: &Value) -> Option<Duration> {
        self.manifest.idempotency_window.filter(|_| self.key_header(input).is_some())
    }

    fn is_effectful(&self, input: &Value) -> bool {
        let is_safe = method_of(input).is_some_and(Method::is_safe);
        !is_safe || !self.is_idempotent(input)
    }

    fn read_back(&self, _: &Value, _: EffectKey) -> Option<Result<Request, InputFault>> {
        None
    }

    fn judge_read_back(&self, _: &Value, _: EffectKey, _: u16, _: &HeaderMap, _: &Bytes) -> ReadBack {
        ReadBack::Unknown
    }

    fn judge(&self, status: u16, headers: &HeaderMap, body: &Bytes) -> Verdict {
        let answer = Answer::read(status, headers, body);
        if let Some((class, message)) = classify::failure(&answer, &self.manifest.errors) {
            return Verdict::Failed { class, message };
        }
        let mut shown = Map::new();
        let names = SHOWN.iter().copied().chain(self.manifest.correlation_headers.iter().map(|name| &**name));
        for name in names {
            if let Some(value) = headers.get(name).and_then(|value| value.to_str().ok()) {
                shown.insert(name.into(), value.into());
            }
        }
        Verdict::Done(json!({ "status": status, "headers": shown, "body": answer.value() }))
    }

    fn judge_cut(
        &self,
        status: u16,
        headers: &HeaderMap,
        beginning: &Bytes,
    ) -> Option<(FailureClass, Option<Box<str>>)> {
        classify::failure(&Answer::cut(status, headers, beginning), &self.manifest.errors)
    }
}

fn method_of(input: &Value) -> Option<Method> {
    match input.get("method") {
        None | Some(Value::Null) => Some(Method::Get),
        Some(value) => value.as_str().and_then(Method::parse),
    }
}

/// The path behind the base URL, without its query.
fn path_of(input: &Value) -> Option<String> {
    match input.get("path")? {
        Value::String(path) => Some(path.split('?').next().unwrap_or_default().to_owned()),
        Value::Array(segments) => {
            Some(format!("/{}", segments.iter().filter_map(place::scalar).collect::<Vec<_>>().join("/")))
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => None,
    }
}

/// With what is percent-encoded as it is; what is no UTF-8 then is left out.
fn decoded(path: &str) -> String {
    let (bytes, mut out, mut at) = (path.as_bytes(), Vec::with_capacity(path.len()), 0);
    while let Some(byte) = bytes.get(at) {
        let octet = path.get(at + 1..at + 3).and_then(|pair| u8::from_str_radix(pair, 16).ok());
        if let Some(octet) = octet.filter(|_| *byte == b'%') {
            out.push(octet);
            at += 3;
        } else {
            out.push(*byte);
            at += 1;
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// Whether a parameter or a header names another method, which some providers take for the request's own.
fn is_overridden(input: &Value) -> bool {
    let is_name = |name: &str| {
        let name = name.to_ascii_lowercase();
        matches!(
            name.as_str(),
            "method" | "_method" | "http_method" | "x-http-method-override" | "x-method-override" | "x-http-method"
        )
    };
    let changes = |text: &str| !Method::parse(&text.trim().to_ascii_uppercase()).is_some_and(Method::is_safe);
    let members = ["query", "headers"].into_iter().filter_map(|part| input.get(part)?.as_object()).flatten();
    let mut named = members.filter(|(name, _)| is_name(name));
    let written =
        input.get("path").and_then(Value::as_str).and_then(|path| path.split_once('?')).map(|(_, query)| query);
    let mut pairs =
        written.into_iter().flat_map(|query| query.split('&')).map(|pair| pair.split_once('=').unwrap_or((pair, "")));
    named.any(|(_, value)| value.as_str().is_none_or(changes))
        || pairs.any(|(name, value)| is_name(&decoded(name)) && changes(&decoded(value)))
}

fn target(input: &Value) -> Result<Box<str>, InputFault> {
    let mut target = Target::default();
    match input.get("path") {
        Some(Value::String(path)) => target.push_written("path", path)?,
        Some(Value::Array(segments)) => {
            for (index, segment) in segments.iter().enumerate() {
                let value =
                    place::scalar(segment).ok_or_else(|| fault(format!("path[{index}] is no text and no number")))?;
                target.push_text("/");
                target.push_value(&format!("path[{index}]"), &value)?;
            }
            if segments.is_empty() {
                target.push_text("/");
            }
        }
        Some(_) | None => return Err(fault("path is missing: a text that begins with `/`, or a list of segments")),
    }
    match input.get("query") {
        None | Some(Value::Null) => {}
        Some(Value::Object(members)) => {
            for (name, value) in members {
                target.push_parameter(name, value)?;
            }
        }
        Some(_) => return Err(fault("query is no object; write names and values")),
    }
    target.finish()
}

fn body_of(input: &Value, method: Method, headers: &mut Vec<(HeaderName, HeaderValue)>) -> Result<Bytes, InputFault> {
    let encoding = input.get("encoding").filter(|value| !value.is_null());
    let value = input.get("body").filter(|value| !value.is_null());
    let Some(value) = value else {
        return if encoding.is_some() { Err(fault("encoding is there and body is not")) } else { Ok(Bytes::new()) };
    };
    if matches!(method, Method::Get | Method::Head) {
        return Err(fault(format!("body is there, and {} has none", method.as_str())));
    }
    let text = || value.as_str().ok_or_else(|| fault("body is no text, which its encoding needs"));
    let (bytes, content_type) = match encoding.map_or(Some("json"), Value::as_str) {
        Some("json") => (body::encode(Encoding::Json, value)?, body::content_type(Encoding::Json)),
        Some("form") => (body::encode(Encoding::Form, value)?, body::content_type(Encoding::Form)),
        Some("text") => (body::bounded(Bytes::from(text()?.to_owned()))?, "text/plain; charset=utf-8"),
        Some("base64") => {
            let bytes = data_encoding::BASE64.decode(text()?.as_bytes());
            (body::bounded(bytes.map_err(|_| fault("body is no base64"))?.into())?, "application/octet-stream")
        }
        Some(_) | None => return Err(fault("encoding is none of json, form, text and base64")),
    };
    if !headers.iter().any(|(name, _)| name == CONTENT_TYPE) {
        headers.push((CONTENT_TYPE, HeaderValue::from_static(content_type)));
    }
    Ok(bytes)
}
