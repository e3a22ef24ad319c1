//! A request and an answer, as the API has them: whatever carries them is somebody else's.

use bytes::Bytes;
use data_encoding::HEXLOWER;
use http::Method;
use serde_json::Value;

use super::desk::Payload;

/// What was asked.
#[derive(Debug, Clone)]
pub struct ApiRequest {
    pub method: Method,
    /// Absolute path, still encoded, without a query.
    pub path: Box<str>,
    /// Behind the `?`, still encoded.
    pub query: Option<Box<str>>,
    pub content_type: Option<Box<str>>,
    /// `Idempotency-Key`: the same one asks for the same thing.
    pub idempotency_key: Option<Box<str>>,
    /// `If-Match`: the version that is edited.
    pub if_match: Option<Box<str>>,
    /// Whole, and within the listener's bound.
    pub body: Bytes,
}

impl ApiRequest {
    /// One without anything beside.
    pub fn new(method: Method, path: &str) -> Self {
        let (path, query) = path.split_once('?').map_or((path, None), |(path, query)| (path, Some(query)));
        Self {
            method,
            path: path.into(),
            query: query.map(Box::from),
            content_type: None,
            idempotency_key: None,
            if_match: None,
            body: Bytes::new(),
        }
    }

    #[must_use]
    pub fn with_json(mut self, body: &Value) -> Self {
        self.content_type = Some("application/json".into());
        self.body = body.to_string().into();
        self
    }
}

/// What is answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiAnswer {
    pub status: u16,
    /// None where there is no body.
    pub content_type: Option<&'static str>,
    pub headers: Vec<(&'static str, String)>,
    pub body: Bytes,
}

impl ApiAnswer {
    /// One line, so that it can be read where it is shown on a terminal, and piped.
    pub fn json(status: u16, body: &Value) -> Self {
        let body = Bytes::from(format!("{body}\n"));
        // What tenants do is nobody's to keep on the way.
        let headers = vec![("Cache-Control", "no-store".to_owned())];
        Self { status, content_type: Some("application/json"), headers, body }
    }

    pub fn empty(status: u16) -> Self {
        Self { status, content_type: None, headers: vec![("Cache-Control", "no-store".to_owned())], body: Bytes::new() }
    }

    #[must_use]
    pub fn with(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }

    #[must_use]
    pub(super) fn problem(mut self) -> Self {
        self.content_type = Some("application/problem+json");
        self
    }

    /// A payload as it is, with what is known of the original. It is somebody else's text: whoever shows it must not take
    /// it for something that runs.
    pub(super) fn payload(payload: Payload) -> Self {
        let is_json = || serde_json::from_slice::<serde::de::IgnoredAny>(&payload.shown).is_ok();
        let content_type = match str::from_utf8(&payload.shown) {
            Ok(_) if !payload.is_truncated && is_json() => "application/json",
            Ok(_) => "text/plain; charset=utf-8",
            // Cut text may end within a character.
            Err(fault) if payload.is_truncated && fault.error_len().is_none() => "text/plain; charset=utf-8",
            Err(_) => "application/octet-stream",
        };
        let mut headers = vec![
            ("Cache-Control", "no-store".to_owned()),
            ("X-Content-Type-Options", "nosniff".to_owned()),
            ("Tidegate-Payload-Bytes", payload.bytes.to_string()),
            ("Tidegate-Payload-Digest", format!("blake3:{}", HEXLOWER.encode(&payload.digest))),
        ];
        if payload.is_truncated {
            headers.push(("Tidegate-Payload-Truncated", "too-large".to_owned()));
        }
        Self { status: 200, content_type: Some(content_type), headers, body: payload.shown }
    }

    /// One that never changes within a version.
    pub(super) fn document(body: &'static str) -> Self {
        let headers = vec![("Cache-Control", "public, max-age=300".to_owned())];
        Self { status: 200, content_type: Some("application/json"), headers, body: Bytes::from_static(body.as_bytes()) }
    }
}
