//! Answers, and how the gate writes one without a session.

use bytes::{BufMut, Bytes, BytesMut};
use http::{HeaderName, HeaderValue, StatusCode};

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

    /// Does a body follow the head of this answer?
    pub(crate) fn carries_body(&self, to_head: bool) -> bool {
        !to_head && !matches!(self.status, 204 | 304)
    }

    /// The fields that can be sent: a value with a line end in it must not become two fields.
    pub(crate) fn fields(self) -> impl Iterator<Item = (HeaderName, HeaderValue)> {
        self.headers.into_iter().filter_map(|(name, value)| {
            let field = HeaderName::try_from(name).ok().zip(HeaderValue::try_from(value).ok());
            if field.is_none() {
                tracing::error!(name, "an answer's field cannot be sent and is left out");
            }
            field
        })
    }

    /// The whole answer, as bytes. `to_head`: it answers a HEAD request and has no body, but says how long that is.
    pub(crate) fn encode_closing(self, to_head: bool, date: &HeaderValue) -> Bytes {
        let status = self.status_code();
        let body = self.body.clone();
        let carries_body = self.carries_body(to_head);
        let mut out = BytesMut::with_capacity(256 + body.len());
        out.put_slice(b"HTTP/1.1 ");
        out.put_slice(status.as_str().as_bytes());
        out.put_u8(b' ');
        out.put_slice(status.canonical_reason().unwrap_or_default().as_bytes());
        out.put_slice(b"\r\nDate: ");
        out.put_slice(date.as_bytes());
        out.put_slice(b"\r\nConnection: close\r\nContent-Length: ");
        out.put_slice(body.len().to_string().as_bytes());
        for (name, value) in self.fields() {
            out.put_slice(b"\r\n");
            out.put_slice(name.as_str().as_bytes());
            out.put_slice(b": ");
            out.put_slice(value.as_bytes());
        }
        out.put_slice(b"\r\n\r\n");
        if carries_body {
            out.put_slice(&body);
        }
        out.freeze()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(answer: Answer, to_head: bool) -> String {
        let date = HeaderValue::from_static("Sun, 06 Nov 1994 08:49:37 GMT");
        String::from_utf8(answer.encode_closing(to_head, &date).to_vec()).unwrap()
    }

    #[test]
    fn an_answer_is_a_whole_message() {
        let answer = Answer::new(400).with_body("text/plain", "no").with_header("Retry-After", "3");
        assert_eq!(
            encoded(answer.clone(), false),
            "HTTP/1.1 400 Bad Request\r\nDate: Sun, 06 Nov 1994 08:49:37 GMT\r\nConnection: close\r\n\
             Content-Length: 2\r\ncontent-type: text/plain\r\nretry-after: 3\r\n\r\nno"
        );
        assert!(encoded(answer, true).ends_with("\r\n\r\n"));
    }

    #[test]
    fn a_value_cannot_smuggle_a_field() {
        let answer = Answer::new(200).with_header("X-A", "b\r\nX-Evil: 1").with_header("X-Ok", "1");
        let text = encoded(answer, false);
        assert!(!text.contains("Evil") && text.contains("x-ok: 1"));
    }

    #[test]
    fn a_status_that_is_no_answer_is_a_fault_of_ours() {
        for status in [0, 99, 100, 101, 199, 600, 1000] {
            assert!(encoded(Answer::new(status), false).starts_with("HTTP/1.1 500 "), "{status}");
        }
    }
}
