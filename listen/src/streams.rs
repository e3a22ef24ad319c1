//! Bodies that stream in and out, and connections that are taken over, through pipes that hold little.

mod answers;
mod bodies;
mod takeovers;

use std::future::poll_fn;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};

use async_trait::async_trait;
use bytes::Bytes;
use config::Listener;
use domain::Refusal;
use http_body::{Body, Frame, SizeHint};
use tokio::io::{AsyncReadExt, DuplexStream};
use tokio::sync::mpsc;

use crate::http::Forms;
use crate::testing::connect;
use crate::{Answer, Behaviour, BoxError, Exchange, HalfClose, Handler, Reply};

pub(crate) const PROXY: Behaviour = Behaviour {
    forms: Forms::Proxy,
    half_close: HalfClose::Answer,
    stream_idle_timeout: std::time::Duration::from_mins(1),
};

pub(crate) type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A handler out of a function.
struct With<F>(F);

#[async_trait]
impl<F> Handler for With<F>
where
    F: for<'a> Fn(&'a mut Exchange) -> BoxFuture<'a, Reply> + Send + Sync + 'static,
{
    async fn handle(&self, exchange: &mut Exchange) -> Reply {
        (self.0)(exchange).await
    }

    fn refused(&self, _: SocketAddr, refusal: Refusal) -> Answer {
        Answer::new(400).with_body("text/plain", refusal.code())
    }

    fn host_differs(&self, _: SocketAddr) -> Answer {
        Answer::new(400).with_body("text/plain", "host-mismatch")
    }
}

pub(crate) fn with<F>(handler: F) -> Arc<dyn Handler>
where
    F: for<'a> Fn(&'a mut Exchange) -> BoxFuture<'a, Reply> + Send + Sync + 'static,
{
    Arc::new(With(handler))
}

/// A connection to a proxy that answers with `handler`.
fn serve<F>(pipe_bytes: usize, behaviour: Behaviour, handler: F) -> (DuplexStream, tokio::task::JoinHandle<()>)
where
    F: for<'a> Fn(&'a mut Exchange) -> BoxFuture<'a, Reply> + Send + Sync + 'static,
{
    let (client, serving) = connect(pipe_bytes, Listener::default(), behaviour, with(handler));
    (client, tokio::spawn(serving))
}

/// A body whose frames come through a channel.
pub(crate) struct Channel {
    frames: mpsc::Receiver<Result<Frame<Bytes>, BoxError>>,
    size: SizeHint,
}

impl Body for Channel {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        self.frames.poll_recv(cx)
    }

    fn size_hint(&self) -> SizeHint {
        self.size
    }
}

pub(crate) type Frames = mpsc::Sender<Result<Frame<Bytes>, BoxError>>;

pub(crate) fn channel(length: Option<u64>) -> (Frames, Channel) {
    let (sender, frames) = mpsc::channel(16);
    (sender, Channel { frames, size: length.map_or_else(SizeHint::default, SizeHint::with_exact) })
}

pub(crate) fn data(bytes: impl Into<Bytes>) -> Frame<Bytes> {
    Frame::data(bytes.into())
}

/// Everything of a body, and how it ended.
pub(crate) async fn collect<B: Body<Data = Bytes>>(body: B) -> (Vec<u8>, Result<(), B::Error>) {
    let mut body = pin!(body);
    let mut all = Vec::new();
    loop {
        match poll_fn(|cx| body.as_mut().poll_frame(cx)).await {
            Some(Ok(frame)) => all.extend_from_slice(&frame.into_data().unwrap_or_default()),
            Some(Err(error)) => return (all, Err(error)),
            None => return (all, Ok(())),
        }
    }
}

/// Reads until what has come ends with `end`.
async fn read_to(client: &mut DuplexStream, end: &[u8]) -> String {
    let mut all = Vec::new();
    while !all.ends_with(end) {
        let mut byte = [0];
        assert_eq!(client.read(&mut byte).await.unwrap(), 1, "ended after {}", all.escape_ascii());
        all.extend_from_slice(&byte);
    }
    String::from_utf8(all).unwrap()
}

async fn read_all(client: &mut DuplexStream) -> String {
    let mut all = Vec::new();
    client.read_to_end(&mut all).await.unwrap();
    String::from_utf8_lossy(&all).into_owned()
}
