//! Heads with any fields, and the framing of bodies that stream, as bytes.

use bytes::{BufMut, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use http_body::{Body, SizeHint};
use pingora_core::protocols::http::date;

use crate::answer::put_decimal;
use crate::http::Version;
use crate::outbox::Outbox;
use crate::reply::Streamed;

/// Room for a status line and the fields that are set here; how much fields take on top is not counted beforehand.
const HEAD_BYTES: usize = 512;

/// How the end of a streamed body is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Framing {
    /// There is no body. `Content-Length` may say what it would be.
    Bodiless(Option<u64>),
    Length(u64),
    Chunked,
    /// By the end of the connection.
    Close,
}

impl Framing {
    /// RFC 9112 §6.3, from the side of who answers. `size`: what the body says of itself.
    pub(crate) fn of(
        status: StatusCode,
        headers: &HeaderMap,
        size: &SizeHint,
        to_head: bool,
        version: Version,
    ) -> Self {
        let told = told_length(headers);
        if status == StatusCode::NO_CONTENT {
            return Self::Bodiless(None);
        }
        if to_head || status == StatusCode::NOT_MODIFIED {
            return Self::Bodiless(told);
        }
        match (size.exact().or(told), version) {
            (Some(length), _) => Self::Length(length),
            (None, Version::Http11) => Self::Chunked,
            // A stream of HTTP/2 ends as a connection does, and says so.
            (None, Version::Http10 | Version::Http2) => Self::Close,
        }
    }

    /// The same of an answer that is a stream's.
    pub(crate) fn of_answer(streamed: &Streamed, to_head: bool) -> Self {
        Self::of(streamed.status, &streamed.headers, &streamed.body.size_hint(), to_head, Version::Http2)
    }
}

/// The fields of an answer that is a stream's.
pub(crate) fn fields_of_stream(headers: &HeaderMap, framing: Framing) -> HeaderMap {
    let mut fields = HeaderMap::with_capacity(headers.len() + 2);
    if !headers.contains_key(header::DATE) {
        fields.insert(header::DATE, date::get_cached_date());
    }
    if let Framing::Length(length) | Framing::Bodiless(Some(length)) = framing {
        fields.insert(header::CONTENT_LENGTH, length.into());
    }
    for (name, value) in headers.iter().filter(|(name, _)| !is_of_the_connection(name)) {
        fields.append(name, value.clone());
    }
    fields
}

/// The fields behind which a stream is a tunnel.
pub(crate) fn fields_of_tunnel(headers: HeaderMap) -> HeaderMap {
    if headers.keys().any(is_of_the_connection) {
        headers.iter().filter(|(name, _)| !is_of_the_connection(name)).map(|(n, v)| (n.clone(), v.clone())).collect()
    } else {
        headers
    }
}

/// Trailers of a stream; none where there are none that may be.
pub(crate) fn trailers_of_stream(trailers: &HeaderMap) -> Option<HeaderMap> {
    let mut fields = HeaderMap::new();
    for (name, value) in trailers.iter().filter(|(name, _)| may_trail(name)) {
        fields.append(name, value.clone());
    }
    (!fields.is_empty()).then_some(fields)
}

/// What `Content-Length` says, if it says one thing.
fn told_length(headers: &HeaderMap) -> Option<u64> {
    let mut values = headers.get_all(header::CONTENT_LENGTH).iter();
    let value = values.next()?.as_bytes();
    let sound = values.next().is_none() && value.iter().all(u8::is_ascii_digit);
    if sound { std::str::from_utf8(value).ok()?.parse().ok() } else { None }
}

/// The head of an answer that streams.
pub(crate) fn head(
    status: StatusCode,
    headers: &HeaderMap,
    framing: Framing,
    close: bool,
    date: &HeaderValue,
) -> BytesMut {
    let mut out = BytesMut::with_capacity(HEAD_BYTES);
    put_status(&mut out, status, status.canonical_reason().unwrap_or_default());
    if !headers.contains_key(header::DATE) {
        put_field(&mut out, "Date", date.as_bytes());
    }
    put_field(&mut out, "Connection", if close { b"close" } else { b"keep-alive" });
    match framing {
        Framing::Length(length) | Framing::Bodiless(Some(length)) => {
            out.put_slice(b"Content-Length: ");
            put_decimal(&mut out, length);
            out.put_slice(b"\r\n");
        }
        Framing::Chunked => put_field(&mut out, "Transfer-Encoding", b"chunked"),
        Framing::Bodiless(None) | Framing::Close => {}
    }
    for (name, value) in headers.iter().filter(|(name, _)| !is_of_the_connection(name)) {
        put_field(&mut out, name.as_str(), value.as_bytes());
    }
    out.put_slice(b"\r\n");
    out
}

/// The head behind which a connection is somebody else's.
pub(crate) fn switch(status: StatusCode, headers: &HeaderMap) -> BytesMut {
    let mut out = BytesMut::with_capacity(HEAD_BYTES);
    let reason = if status.is_success() { "Connection Established" } else { "Switching Protocols" };
    put_status(&mut out, status, reason);
    let framing = [header::CONTENT_LENGTH, header::TRANSFER_ENCODING];
    for (name, value) in headers.iter().filter(|(name, _)| !framing.contains(name)) {
        put_field(&mut out, name.as_str(), value.as_bytes());
    }
    out.put_slice(b"\r\n");
    out
}

/// One chunk of a body. `data` holds something: a chunk of nothing would be the last.
pub(crate) fn put_chunk(outbox: &mut Outbox, data: bytes::Bytes) {
    let mut digits = [0; 18];
    let mut at = digits.len() - 2;
    digits[at..].copy_from_slice(b"\r\n");
    let mut left = data.len();
    while left > 0 {
        at -= 1;
        digits[at] = b"0123456789abcdef"[left & 0xf];
        left >>= 4;
    }
    outbox.copy(&digits[at..]);
    outbox.push(data);
    outbox.copy(b"\r\n");
}

/// The end of a chunked body.
pub(crate) fn put_last_chunk(outbox: &mut Outbox, trailers: Option<&HeaderMap>) {
    let mut out = BytesMut::new();
    for (name, value) in trailers.into_iter().flatten().filter(|(name, _)| may_trail(name)) {
        put_field(&mut out, name.as_str(), value.as_bytes());
    }
    outbox.copy(b"0\r\n");
    outbox.copy(&out);
    outbox.copy(b"\r\n");
}

fn put_status(out: &mut BytesMut, status: StatusCode, reason: &str) {
    out.put_slice(b"HTTP/1.1 ");
    out.put_slice(status.as_str().as_bytes());
    out.put_u8(b' ');
    out.put_slice(reason.as_bytes());
    out.put_slice(b"\r\n");
}

/// The types of name and value let no line end through.
fn put_field(out: &mut BytesMut, name: &str, value: &[u8]) {
    out.reserve(name.len() + value.len() + 4);
    out.put_slice(name.as_bytes());
    out.put_slice(b": ");
    out.put_slice(value);
    out.put_slice(b"\r\n");
}

/// Fields that are about one connection or its framing, and are set here or not at all.
fn is_of_the_connection(name: &HeaderName) -> bool {
    matches!(
        name.as_str(),
        "connection" | "content-length" | "keep-alive" | "proxy-connection" | "te" | "transfer-encoding" | "upgrade"
    )
}

/// RFC 9110 §6.5.1: nothing that frames or routes a message, says who asks, or how the content is read.
fn may_trail(name: &HeaderName) -> bool {
    !is_of_the_connection(name)
        && !matches!(
            name.as_str(),
            "authorization" | "content-encoding" | "content-range" | "content-type" | "host" | "set-cookie" | "trailer"
        )
}
