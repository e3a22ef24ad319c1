//! Connections to egress, kept alive.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use super::EgressSettings;
use crate::ledger::BoxFuture;

/// Bytes both ways.
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// Opens connections to egress, with TLS where it listens with it: nothing here does.
pub trait Dial: Send + Sync + fmt::Debug {
    fn dial(&self) -> BoxFuture<'_, io::Result<Box<dyn Stream>>>;
}

#[derive(Debug)]
pub(super) struct Pool {
    dial: Arc<dyn Dial>,
    room: Arc<Semaphore>,
    idle_max: usize,
    idle_for: Duration,
    /// In the order in which they were put back. The one that was used last is taken first, so that those too many grow old.
    idle: Mutex<VecDeque<(Sender, Instant)>>,
}

/// One connection, and its place among all.
#[derive(Debug)]
pub(super) struct Sender {
    sender: SendRequest<Full<Bytes>>,
    _place: OwnedSemaphorePermit,
}

/// Why there is no answer.
#[derive(Debug)]
pub(super) struct Fault {
    /// Not one byte of the request was written.
    pub(super) is_unsent: bool,
    pub(super) detail: String,
}

impl Pool {
    pub(super) fn new(dial: Arc<dyn Dial>, settings: &EgressSettings) -> Self {
        Self {
            dial,
            room: Arc::new(Semaphore::new(settings.connections_max)),
            idle_max: settings.idle_max,
            idle_for: settings.idle_for,
            idle: Mutex::default(),
        }
    }

    /// An idle connection, or a new one. Waits for a place among all; the caller bounds how long.
    pub(super) async fn take(&self) -> Result<Sender, String> {
        while let Some(mut idle) = self.newest() {
            if idle.sender.ready().await.is_ok() {
                return Ok(idle);
            }
        }
        let place = Arc::clone(&self.room).acquire_owned().await.map_err(|error| error.to_string())?;
        let stream = self.dial.dial().await.map_err(|error| error.to_string())?;
        let (sender, connection) = handshake(TokioIo::new(stream)).await.map_err(|error| error.to_string())?;
        // It ends with its sender, or with its stream; what went wrong is the sender's to hear.
        tokio::spawn(async move { drop(connection.await) });
        Ok(Sender { sender, _place: place })
    }

    fn newest(&self) -> Option<Sender> {
        let now = Instant::now();
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        while idle.front().is_some_and(|(_, since)| now.duration_since(*since) >= self.idle_for) {
            idle.pop_front();
        }
        while let Some((sender, _)) = idle.pop_back() {
            if !sender.sender.is_closed() {
                return Some(sender);
            }
        }
        None
    }

    /// Its answer was read to its end.
    pub(super) fn put_back(&self, sender: Sender) {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < self.idle_max && !sender.sender.is_closed() {
            idle.push_back((sender, Instant::now()));
        }
    }
}

impl Sender {
    pub(super) async fn send(&mut self, request: Request<Full<Bytes>>) -> Result<Response<Incoming>, Fault> {
        self.sender.try_send_request(request).await.map_err(|mut error| Fault {
            // Given back: the connection had ended before it was taken.
            is_unsent: error.take_message().is_some(),
            detail: error.into_error().to_string(),
        })
    }
}
