//! The control socket's other side: what the commands speak through.

use std::io;
use std::path::Path;

use bytes::{Bytes, BytesMut};
use domain::text::Untrusted;
use http::{Method, Request, Response, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::net::UnixStream;

use super::wire::{Line, Said};

/// An answer that is no stream: a status of the log with thousands of segments fits, and a large event too.
const ANSWER_BYTES_MAX: usize = 1024 * 1024 * 1024;

/// Set where only the beginning of a payload was kept.
const PAYLOAD_TRUNCATED: &str = "tidegate-payload-truncated";

/// Why the appliance did not answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ClientError {
    /// No socket, or nobody behind it: reads can go to the log's directory instead.
    #[error("no appliance answers at {path}: {source}")]
    Absent { path: String, source: io::Error },
    /// Somebody is there, and we may not talk to it.
    #[error("may not open {path}: {source}")]
    Denied { path: String, source: io::Error },
    /// Somebody is there, and too many others wait for them.
    #[error("as many wait at {path} as it has room for: the appliance is busy, or stuck")]
    Busy { path: String },
    /// Whatever else the system says.
    #[error("cannot connect to {path}: {source}")]
    Unreachable { path: String, source: io::Error },
    #[error("the appliance's answer broke off: {0}")]
    Broken(String),
    /// It said no, and why.
    #[error("the appliance refused: {0}")]
    Refused(String),
}

/// A connection to a running appliance.
#[derive(Debug)]
pub(crate) struct Client {
    sender: SendRequest<Full<Bytes>>,
}

impl Client {
    pub(crate) async fn connect(path: &Path) -> Result<Self, ClientError> {
        let shown = || Untrusted::new(path.as_os_str().as_encoded_bytes()).to_string();
        let stream = UnixStream::connect(path).await.map_err(|source| {
            let path = shown();
            let is = |kind| source.kind() == kind;
            if is(io::ErrorKind::NotFound) || is(io::ErrorKind::ConnectionRefused) {
                ClientError::Absent { path, source }
            } else if is(io::ErrorKind::PermissionDenied) {
                ClientError::Denied { path, source }
            } else if is(io::ErrorKind::WouldBlock) {
                ClientError::Busy { path }
            } else {
                ClientError::Unreachable { path, source }
            }
        })?;
        let (sender, connection) = handshake(TokioIo::new(stream)).await.map_err(broken)?;
        // Ends with the sender; what goes wrong on it shows up in the answer.
        tokio::spawn(connection);
        Ok(Self { sender })
    }

    pub(crate) async fn get<T: DeserializeOwned>(&mut self, path: &str) -> Result<T, ClientError> {
        let answer = self.send(Method::GET, path, Bytes::new()).await?;
        object(answer).await
    }

    pub(crate) async fn ask<Q: Serialize, T: DeserializeOwned>(
        &mut self,
        path: &str,
        query: &Q,
    ) -> Result<T, ClientError> {
        let answer = self.send(Method::POST, path, json(query)?).await?;
        object(answer).await
    }

    /// Asks for a stream of items.
    pub(crate) async fn stream<Q: Serialize>(&mut self, path: &str, query: &Q) -> Result<Lines, ClientError> {
        let answer = self.send(Method::POST, path, json(query)?).await?;
        Ok(Lines { body: answer.into_body(), buffer: BytesMut::new(), searched: 0 })
    }

    /// Asks the runner: what it says, whatever that is.
    pub(crate) async fn runner(&mut self, asked: RunnerAsk<'_>) -> Result<RunnerBytes, ClientError> {
        let mut request = Request::builder()
            .method(asked.method)
            .uri(format!("/v1/runner{}", asked.path))
            .header(header::HOST, "tidegate")
            .header(header::CONTENT_TYPE, asked.content_type);
        if let Some(version) = asked.if_match {
            request = request.header(header::IF_MATCH, format!("\"{version}\""));
        }
        let request = request.body(Full::new(asked.body)).map_err(|error| ClientError::Broken(error.to_string()))?;
        let answer = self.sender.send_request(request).await.map_err(broken)?;
        let status = answer.status().as_u16();
        let is_truncated = answer.headers().contains_key(PAYLOAD_TRUNCATED);
        let body = Limited::new(answer.into_body(), ANSWER_BYTES_MAX).collect().await;
        let body = body.map_err(|error| ClientError::Broken(error.to_string()))?.to_bytes();
        Ok(RunnerBytes { status, is_truncated, body })
    }

    async fn send(&mut self, method: Method, path: &str, body: Bytes) -> Result<Response<Incoming>, ClientError> {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::HOST, "tidegate")
            .header(header::CONTENT_TYPE, "application/json")
            .body(Full::new(body))
            .map_err(|error| ClientError::Broken(error.to_string()))?;
        let answer = self.sender.send_request(request).await.map_err(broken)?;
        if answer.status().is_success() {
            return Ok(answer);
        }
        let status = answer.status();
        let problem: serde_json::Value = object(answer).await.unwrap_or_default();
        let title = problem["title"].as_str().map_or_else(|| status.to_string(), str::to_owned);
        Err(ClientError::Refused(Untrusted::with_limit(title.as_bytes(), 1024).to_string()))
    }
}

/// A question to the runner.
#[derive(Debug)]
pub(crate) struct RunnerAsk<'a> {
    pub(crate) method: Method,
    /// What stands behind `/v1/runner`, with its query.
    pub(crate) path: &'a str,
    pub(crate) content_type: &'static str,
    pub(crate) if_match: Option<u32>,
    pub(crate) body: Bytes,
}

/// What the runner said, as it came.
#[derive(Debug)]
pub(crate) struct RunnerBytes {
    pub(crate) status: u16,
    /// It is a payload of which only the beginning was kept.
    pub(crate) is_truncated: bool,
    pub(crate) body: Bytes,
}

impl RunnerBytes {
    pub(crate) fn json(&self) -> Result<RunnerSaid, ClientError> {
        let body = match self.body.as_ref() {
            [] => serde_json::Value::Null,
            body => serde_json::from_slice(body).map_err(|error| ClientError::Broken(error.to_string()))?,
        };
        Ok(RunnerSaid { status: self.status, body })
    }
}

/// What the runner said.
#[derive(Debug)]
pub(crate) struct RunnerSaid {
    pub(crate) status: u16,
    pub(crate) body: serde_json::Value,
}

/// Items of a stream, one at a time; what is not asked for stays with the appliance.
#[derive(Debug)]
pub(crate) struct Lines {
    body: Incoming,
    buffer: BytesMut,
    /// How much of the buffer holds no line end: a large line is not searched again and again.
    searched: usize,
}

impl Lines {
    /// The next item of an answer that carries no remarks.
    pub(crate) async fn next<T: DeserializeOwned>(&mut self) -> Result<Option<T>, ClientError> {
        match self.next_said().await? {
            Some(Said::Item(item)) => Ok(Some(item)),
            Some(Said::Aside(aside)) => Err(ClientError::Broken(Untrusted::new(aside.text.as_bytes()).to_string())),
            None => Ok(None),
        }
    }

    /// The next item or remark, or `None` when all were given. A stream that ends without saying so is an error.
    pub(crate) async fn next_said<T: DeserializeOwned>(&mut self) -> Result<Option<Said<T>>, ClientError> {
        let line = loop {
            if let Some(at) = self.buffer[self.searched..].iter().position(|byte| *byte == b'\n') {
                let line = self.buffer.split_to(self.searched + at + 1);
                self.searched = 0;
                break line;
            }
            self.searched = self.buffer.len();
            let frame = self.body.frame().await.ok_or_else(|| ClientError::Broken("it was cut off".to_owned()))?;
            if let Ok(data) = frame.map_err(broken)?.into_data() {
                self.buffer.extend_from_slice(&data);
            }
        };
        let line = serde_json::from_slice(&line).map_err(|error| ClientError::Broken(error.to_string()))?;
        match line {
            Line::Item(item) => Ok(Some(Said::Item(item))),
            Line::Aside(aside) => Ok(Some(Said::Aside(aside))),
            Line::End => Ok(None),
            Line::Fault(fault) => Err(ClientError::Refused(Untrusted::with_limit(fault.as_bytes(), 1024).to_string())),
        }
    }
}

#[expect(clippy::needless_pass_by_value, reason = "the shape that map_err wants")]
fn broken(error: hyper::Error) -> ClientError {
    ClientError::Broken(error.to_string())
}

fn json<Q: Serialize>(query: &Q) -> Result<Bytes, ClientError> {
    serde_json::to_vec(query).map(Bytes::from).map_err(|error| ClientError::Broken(error.to_string()))
}

async fn object<T: DeserializeOwned>(answer: Response<Incoming>) -> Result<T, ClientError> {
    let body = Limited::new(answer.into_body(), ANSWER_BYTES_MAX).collect().await;
    let body = body.map_err(|error| ClientError::Broken(error.to_string()))?;
    serde_json::from_slice(&body.to_bytes()).map_err(|error| ClientError::Broken(error.to_string()))
}
