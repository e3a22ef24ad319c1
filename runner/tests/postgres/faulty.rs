//! Streams that break where a test wants them to.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Context, Poll};

use async_trait::async_trait;
use tidegate_runner::postgres::{Dial, Stream};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// What happens to the next commit that is sent, once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Break {
    /// It is not sent, and the connection is lost.
    BeforeCommit = 1,
    /// It is done, its answer is lost with the connection.
    AfterCommit,
    /// It is not sent, and the connection stays.
    Stuck,
}

#[derive(Debug, Default)]
pub(crate) struct Armed(AtomicU8);

impl Armed {
    pub(crate) fn arm(&self, with: Break) {
        self.0.store(with as u8, Ordering::SeqCst);
    }

    /// It has happened.
    pub(crate) fn is_spent(&self) -> bool {
        self.0.load(Ordering::SeqCst) == 0
    }

    fn is(&self, with: Break) -> bool {
        self.0.load(Ordering::SeqCst) == with as u8
    }

    fn take(&self, with: Break) -> bool {
        self.0.compare_exchange(with as u8, 0, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    }
}

#[derive(Debug)]
pub(crate) struct Faulty<D> {
    pub(crate) dial: D,
    pub(crate) armed: Arc<Armed>,
}

#[async_trait]
impl<D: Dial> Dial for Faulty<D> {
    async fn dial(&self) -> io::Result<Box<dyn Stream>> {
        let inner = self.dial.dial().await?;
        Ok(Box::new(Breaking { inner, armed: Arc::clone(&self.armed), is_stuck: false }))
    }
}

struct Breaking {
    inner: Box<dyn Stream>,
    armed: Arc<Armed>,
    is_stuck: bool,
}

fn has_commit(bytes: &[u8]) -> bool {
    bytes.windows(6).any(|window| window == b"COMMIT")
}

fn broken() -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionReset, "as a test has asked")
}

impl AsyncRead for Breaking {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let polled = Pin::new(&mut self.inner).poll_read(cx, buf);
        // The answer names the command.
        let is_answer = has_commit(&buf.filled()[before..]);
        if is_answer && self.armed.is(Break::AfterCommit) && self.armed.take(Break::AfterCommit) {
            buf.set_filled(before);
            return Poll::Ready(Err(broken()));
        }
        polled
    }
}

impl AsyncWrite for Breaking {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if self.is_stuck {
            return Poll::Ready(Ok(bytes.len()));
        }
        let at = bytes.windows(6).position(|window| window == b"COMMIT");
        // The frame's tag and length are in front of it.
        let Some(before) = at.and_then(|at| at.checked_sub(5)) else {
            return Pin::new(&mut self.inner).poll_write(cx, bytes);
        };
        if before > 0 && (self.armed.is(Break::BeforeCommit) || self.armed.is(Break::Stuck)) {
            return Pin::new(&mut self.inner).poll_write(cx, &bytes[..before]);
        }
        if self.armed.take(Break::BeforeCommit) {
            return Poll::Ready(Err(broken()));
        }
        if self.armed.take(Break::Stuck) {
            self.is_stuck = true;
            return Poll::Ready(Ok(bytes.len()));
        }
        Pin::new(&mut self.inner).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}
