//! One answer, as it came over the wire.

use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt};

use crate::patience::PATIENCE;

/// A final answer and the informational ones that came before it.
#[derive(Debug, Clone)]
pub struct Response {
    /// Status codes of 1xx answers that preceded this one.
    pub informational: Vec<u16>,
    pub status: u16,
    /// In order, with the names as they were spelled.
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
    /// Status line and header section, byte for byte.
    pub head: Vec<u8>,
}

impl Response {
    /// The only value of a header; fails when there are several.
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut values = self.headers.iter().filter(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, v)| v.as_str());
        let first = values.next();
        assert!(values.next().is_none(), "more than one {name} in {self:?}");
        first
    }

    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|fault| panic!("{fault} in {:?}", String::from_utf8_lossy(&self.body)))
    }

    /// `eventId` of a 202, whose form is checked on the way.
    pub fn event_id(&self) -> String {
        assert_eq!(self.status, 202, "{self}");
        let json = self.json();
        let event = json["eventId"].as_str().expect("eventId is a string").to_owned();
        let execution = json["executionId"].as_str().expect("executionId is a string");
        assert_eq!(event.strip_prefix("evt_").expect("evt_"), execution.strip_prefix("ex_").expect("ex_"));
        event
    }

    /// The refusal's code, with everything that every refusal has to have checked on the way.
    pub fn refusal(&self) -> String {
        assert!(self.status >= 400, "{self}");
        assert_eq!(self.header("content-type"), Some("application/problem+json"), "{self}");
        let json = self.json();
        assert_eq!(json["status"], self.status, "{self}");
        assert!(json["title"].is_string(), "{self}");
        if matches!(self.status, 429 | 503) {
            let after: u64 = self.header("retry-after").expect("Retry-After").parse().expect("whole seconds");
            assert!(after >= 1, "{self}");
        }
        json["code"].as_str().unwrap_or_else(|| panic!("no code in {self}")).to_owned()
    }

    /// The whole answer but its date: what a prober could compare.
    pub fn comparable(&self) -> String {
        let head = String::from_utf8(self.head.clone()).expect("a head is ASCII");
        let kept: Vec<_> = head.split("\r\n").filter(|line| !line.to_ascii_lowercase().starts_with("date:")).collect();
        format!("{}{}", kept.join("\r\n"), String::from_utf8_lossy(&self.body))
    }

    pub fn closes(&self) -> bool {
        self.header("connection").is_some_and(|value| value.eq_ignore_ascii_case("close"))
    }
}

impl std::fmt::Display for Response {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}{}", String::from_utf8_lossy(&self.head), String::from_utf8_lossy(&self.body))
    }
}

/// Reads answers off a stream; what was read beyond one answer stays for the next.
#[derive(Debug, Default)]
pub struct Reader {
    buffer: Vec<u8>,
}

/// Why there was no answer.
#[derive(Debug)]
pub enum NoAnswer {
    /// The peer closed before the first byte of an answer.
    Closed,
    /// The peer closed, or the connection broke, within an answer.
    Cut(String),
}

impl Reader {
    /// The next final answer; panics when none comes in good time.
    pub async fn next(&mut self, stream: &mut (impl AsyncRead + Unpin)) -> Result<Response, NoAnswer> {
        let mut informational = Vec::new();
        loop {
            let response = self.one(stream, PATIENCE).await?;
            if response.status >= 200 {
                return Ok(Response { informational, ..response });
            }
            informational.push(response.status);
        }
    }

    /// The next answer of any kind, 1xx too, within `patience`.
    pub async fn one(
        &mut self,
        stream: &mut (impl AsyncRead + Unpin),
        patience: Duration,
    ) -> Result<Response, NoAnswer> {
        tokio::time::timeout(patience, self.parse(stream)).await.expect("an answer in good time")
    }

    async fn parse(&mut self, stream: &mut (impl AsyncRead + Unpin)) -> Result<Response, NoAnswer> {
        let end = loop {
            if let Some(at) = find(&self.buffer, b"\r\n\r\n") {
                break at + 4;
            }
            if !self.fill(stream).await? {
                let seen = String::from_utf8_lossy(&self.buffer).into_owned();
                return Err(if seen.is_empty() { NoAnswer::Closed } else { NoAnswer::Cut(seen) });
            }
        };
        let head: Vec<u8> = self.buffer.drain(..end).collect();
        let text = String::from_utf8(head.clone()).expect("a head is ASCII");
        let mut lines = text.trim_end().split("\r\n");
        let status_line = lines.next().expect("a status line");
        assert!(status_line.starts_with("HTTP/1.1 "), "an odd status line: {status_line:?}");
        let status: u16 = status_line[9..12].parse().expect("a status code");
        let headers: Vec<(String, String)> = lines
            .map(|line| line.split_once(':').unwrap_or_else(|| panic!("no colon in {line:?}")))
            .map(|(name, value)| (name.to_owned(), value.trim().to_owned()))
            .collect();
        let mut response = Response { informational: Vec::new(), status, headers, body: Vec::new(), head };
        if status >= 200 && status != 204 && status != 304 {
            response.body = self.body(stream, &response).await?;
        }
        Ok(response)
    }

    async fn body(&mut self, stream: &mut (impl AsyncRead + Unpin), head: &Response) -> Result<Vec<u8>, NoAnswer> {
        if head.header("transfer-encoding").is_some_and(|coding| coding.eq_ignore_ascii_case("chunked")) {
            return self.chunked(stream).await;
        }
        let Some(length) = head.header("content-length") else {
            while self.fill(stream).await? {}
            return Ok(std::mem::take(&mut self.buffer));
        };
        let length: usize = length.parse().expect("a length");
        self.exactly(stream, length).await
    }

    async fn chunked(&mut self, stream: &mut (impl AsyncRead + Unpin)) -> Result<Vec<u8>, NoAnswer> {
        let mut body = Vec::new();
        loop {
            let end = loop {
                if let Some(at) = find(&self.buffer, b"\r\n") {
                    break at;
                }
                if !self.fill(stream).await? {
                    return Err(NoAnswer::Cut("within a chunk's size".into()));
                }
            };
            let line: Vec<u8> = self.buffer.drain(..end + 2).collect();
            let size = std::str::from_utf8(&line).expect("ASCII").trim();
            let size = usize::from_str_radix(size, 16).expect("a chunk size");
            let chunk = self.exactly(stream, size + 2).await?;
            if size == 0 {
                return Ok(body);
            }
            body.extend_from_slice(&chunk[..size]);
        }
    }

    async fn exactly(&mut self, stream: &mut (impl AsyncRead + Unpin), length: usize) -> Result<Vec<u8>, NoAnswer> {
        while self.buffer.len() < length {
            if !self.fill(stream).await? {
                return Err(NoAnswer::Cut(format!("{} bytes of {length}", self.buffer.len())));
            }
        }
        Ok(self.buffer.drain(..length).collect())
    }

    async fn fill(&mut self, stream: &mut (impl AsyncRead + Unpin)) -> Result<bool, NoAnswer> {
        match stream.read_buf(&mut self.buffer).await {
            Ok(read) => Ok(read > 0),
            Err(fault) if self.buffer.is_empty() && fault.kind() == std::io::ErrorKind::ConnectionReset => {
                Err(NoAnswer::Closed)
            }
            Err(fault) => Err(NoAnswer::Cut(fault.to_string())),
        }
    }
}

/// Where `needle` begins in `haystack`.
pub fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    haystack.windows(needle.len()).position(|window| window == needle)
}
