//! Answers, and the bytes that they are sent as.

use bytes::{BufMut, Bytes, BytesMut};
use http::{HeaderValue, StatusCode};

use crate::http::field;

/// What a handler answers.
///
/// `Date`, `Content-Length` and `Connection` are set here. No `Server` is: it tells a prober more than anybody else.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// 200 to 599.
    pub status: u16,
    pub headers: Vec<(&'static str, String)>,
    pub body: Bytes,
    /// Close the connection behind it.
    pub close: bool,
}

impl Answer {
    pub fn new(status: u16) -> Self {
        Self { status, headers: Vec::new(), body: Bytes::new(), close: false }
    }

    #[must_use]
    pub fn with_header(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }

    #[must_use]
    pub fn with_body(mut self, content_type: &'static str, body: impl Into<Bytes>) -> Self {
        self.headers.push(("Content-Type", content_type.into()));
        self.body = body.into();
        self
    }

    /// Anything outside 200–599 is a fault of the handler, and told as one.
    pub(crate) fn status_code(&self) -> StatusCode {
        match StatusCode::from_u16(self.status) {
            Ok(status) if (200..600).contains(&self.status) => status,
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    /// The whole answer, as bytes. `to_head`: it answers a HEAD request and has no body, but says how long that is.
    /// `close`: the connection ends behind it.
    pub(crate) fn encode(&self, to_head: bool, close: bool, date: &HeaderValue) -> BytesMut {
        let status = self.status_code();
        // RFC 9110 §8.6, §15.4.5: these have no body, and a length of one would only confuse.
        let bodiless = matches!(status.as_u16(), 204 | 304);
        let fields: usize = self.headers.iter().map(|(name, value)| name.len() + value.len() + 4).sum();
        let mut out = BytesMut::with_capacity(HEAD_BYTES + fields + self.body.len());
        out.put_slice(b"HTTP/1.1 ");
        out.put_slice(status.as_str().as_bytes());
        out.put_u8(b' ');
        out.put_slice(status.canonical_reason().unwrap_or_default().as_bytes());
        out.put_slice(b"\r\nDate: ");
        out.put_slice(date.as_bytes());
        out.put_slice(if close { b"\r\nConnection: close" } else { b"\r\nConnection: keep-alive" });
        if !bodiless {
            out.put_slice(b"\r\nContent-Length: ");
            put_decimal(&mut out, self.body.len() as u64);
        }
        for (name, value) in &self.headers {
            // A value with a line end in it must not become two fields.
            if !field::is_token(name.as_bytes()) || !field::is_value(value.as_bytes()) {
                tracing::error!(name, "an answer's field cannot be sent and is left out");
                continue;
            }
            out.put_slice(b"\r\n");
            out.put_slice(name.as_bytes());
            out.put_slice(b": ");
            out.put_slice(value.as_bytes());
        }
        out.put_slice(b"\r\n\r\n");
        if !to_head && !bodiless {
            out.put_slice(&self.body);
        }
        out
    }
}

/// What an answer's head takes beside its handler's fields, with some room.
const HEAD_BYTES: usize = 160;

pub(crate) fn put_decimal(out: &mut BytesMut, number: u64) {
    let mut digits = [0; 20];
    let mut at = digits.len();
    let mut left = number;
    loop {
        at -= 1;
        digits[at] = b'0' + u8::try_from(left % 10).unwrap_or_default();
        left /= 10;
        if left == 0 {
            return out.put_slice(&digits[at..]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(answer: &Answer, to_head: bool) -> String {
        let date = HeaderValue::from_static("Sun, 06 Nov 1994 08:49:37 GMT");
        String::from_utf8(answer.encode(to_head, true, &date).to_vec()).unwrap()
    }

    #[test]
    fn an_answer_is_a_whole_message() {
        let answer = Answer::new(400).with_body("text/plain", "no").with_header("Retry-After", "3");
        assert_eq!(
            encoded(&answer, false),
            "HTTP/1.1 400 Bad Request\r\nDate: Sun, 06 Nov 1994 08:49:37 GMT\r\nConnection: close\r\n\
             Content-Length: 2\r\nContent-Type: text/plain\r\nRetry-After: 3\r\n\r\nno"
        );
        assert!(encoded(&answer, true).ends_with("\r\n\r\n"));
    }

    #[test]
    fn a_value_cannot_smuggle_a_field() {
        let answer = Answer::new(200).with_header("X-A", "b\r\nX-Evil: 1").with_header("X-Ok", "1");
        let text = encoded(&answer, false);
        assert!(!text.contains("Evil") && text.contains("X-Ok: 1"));
    }

    #[test]
    fn a_status_that_is_no_answer_is_a_fault_of_ours() {
        for status in [0, 99, 100, 101, 199, 600, 1000] {
            assert!(encoded(&Answer::new(status), false).starts_with("HTTP/1.1 500 "), "{status}");
        }
    }
}
