//! Where an answer ends, and whether everybody would say so.
//!
//! hyper refuses folded lines, spaces before the colon, lengths that differ, and `Transfer-Encoding` in HTTP/1.0. It lets
//! through what it has one reading for and others have another: `Transfer-Encoding` beside `Content-Length`, encodings
//! other than `chunked`, lengths of answers that have no body. Those stop here.

use http::header::{CONTENT_LENGTH, TRANSFER_ENCODING, UPGRADE};
use http::response::Parts;
use http::{HeaderMap, HeaderValue, Method, StatusCode};

use super::body::BodyFault;
use crate::Refusal;

/// An answer that has one reading.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Framing {
    /// Length of the body, where it was said.
    pub(crate) length: Option<u64>,
    /// Whether the connection can be used again, as far as the head says.
    pub(crate) is_reusable: bool,
}

/// Checks, and leaves at most one `Content-Length`. `Transfer-Encoding` is for the connection, and is taken out.
pub(crate) fn check(answer: &mut Parts, method: &Method, is_upgrade_asked: bool) -> Result<Framing, BodyFault> {
    let headers = &mut answer.headers;
    let length = length(headers)?;
    let is_chunked = is_chunked(headers)?;
    headers.remove(TRANSFER_ENCODING);
    let refused = |why| Err(BodyFault::new(Refusal::ResponseRefused, why));
    match answer.status {
        StatusCode::SWITCHING_PROTOCOLS if !is_upgrade_asked => {
            return refused("it switches protocols, which nobody asked for");
        }
        StatusCode::SWITCHING_PROTOCOLS if !names_websocket(headers) => {
            return refused("it switches to another protocol than was asked for");
        }
        // Many a server says a length of 0 here, and some a chunked nothing. What else they say may follow as bytes.
        StatusCode::SWITCHING_PROTOCOLS | StatusCode::NO_CONTENT => {
            headers.remove(CONTENT_LENGTH);
            return Ok(Framing { length: Some(0), is_reusable: length.unwrap_or(0) == 0 && !is_chunked });
        }
        _ => {}
    }
    if is_chunked && length.is_some() {
        return refused("it has both Transfer-Encoding and Content-Length");
    }
    let has_body = *method != Method::HEAD && answer.status != StatusCode::NOT_MODIFIED;
    Ok(Framing { length: if has_body { length } else { Some(0) }, is_reusable: true })
}

/// The one length that all lines say. RFC 9110, 8.6 lets a list of equal ones pass; it leaves as a single one.
fn length(headers: &mut HeaderMap) -> Result<Option<u64>, BodyFault> {
    let refused = || BodyFault::new(Refusal::ResponseRefused, "its Content-Length is not one number");
    let mut said = None;
    let mut count = 0;
    for value in headers.get_all(CONTENT_LENGTH) {
        for part in value.as_bytes().split(|byte| *byte == b',') {
            let part = part.trim_ascii();
            let is_digits = !part.is_empty() && part.iter().all(u8::is_ascii_digit);
            let number = std::str::from_utf8(part).ok().filter(|_| is_digits).and_then(|text| text.parse().ok());
            let number: u64 = number.ok_or_else(refused)?;
            if said.is_some_and(|said| said != number) {
                return Err(refused());
            }
            said = Some(number);
            count += 1;
        }
    }
    if let Some(length) = said
        && count > 1
    {
        headers.insert(CONTENT_LENGTH, HeaderValue::from(length));
    }
    Ok(said)
}

fn is_chunked(headers: &HeaderMap) -> Result<bool, BodyFault> {
    let mut lines = headers.get_all(TRANSFER_ENCODING).iter();
    match (lines.next(), lines.next()) {
        (None, _) => Ok(false),
        (Some(line), None) if line.as_bytes().trim_ascii().eq_ignore_ascii_case(b"chunked") => Ok(true),
        (Some(_), _) => {
            Err(BodyFault::new(Refusal::ResponseRefused, "its Transfer-Encoding is something else than chunked"))
        }
    }
}

fn names_websocket(headers: &HeaderMap) -> bool {
    let mut lines = headers.get_all(UPGRADE).iter();
    let is_websocket = lines.next().is_some_and(|line| line.as_bytes().eq_ignore_ascii_case(b"websocket"));
    is_websocket && lines.next().is_none()
}
