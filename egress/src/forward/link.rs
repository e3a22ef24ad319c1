//! One connection to a destination, and who drives it.
//!
//! HTTP/1.1: whoever uses the connection drives it, inside the task of the call: no task beside, no channel between
//! threads for each request, and a call that is dropped closes its connection in the same moment. While it is idle nobody
//! drives it; [`Link::poll_idle`] looks what happened meanwhile.

use std::fmt;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::{Request, Response};
use hyper::body::Incoming;
use hyper::client::conn::{TrySendError, http1};
use hyper_util::rt::TokioIo;
use outbound::{Dialled, VettedAddr};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::Instant;

use super::counted::Wire;
use super::upload::Upload;

/// A connection.
pub(crate) struct Link {
    sender: http1::SendRequest<Upload>,
    /// None when the connection has ended.
    driver: Option<Driver>,
    /// What its socket has taken.
    pub(crate) wire: Arc<Wire>,
    /// Where it leads.
    pub(crate) address: VettedAddr,
    /// Where it leaves from.
    pub(crate) local: SocketAddr,
    /// When it was made.
    pub(crate) made: Instant,
}

type Driver = Pin<Box<dyn Future<Output = Result<(), hyper::Error>> + Send>>;

impl Link {
    /// Nothing is sent yet.
    pub(crate) async fn open<S>(http: &http1::Builder, dialled: Dialled<S>, wire: Arc<Wire>) -> hyper::Result<Self>
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let Dialled { stream, address, local, .. } = dialled;
        let (sender, connection) = http.handshake(TokioIo::new(stream)).await?;
        let driver: Driver = Box::pin(connection.with_upgrades());
        let made = wire.connected;
        Ok(Self { sender, driver: Some(driver), wire, address, local, made })
    }

    /// Hands the request over. It goes out while the connection is driven.
    pub(crate) fn begin(
        &mut self,
        request: Request<Upload>,
    ) -> impl Future<Output = Result<Response<Incoming>, TrySendError<Request<Upload>>>> + use<> {
        self.sender.try_send_request(request)
    }

    /// Reads and writes what can be read and written. The result says whether there is anything left to drive.
    pub(crate) fn poll_drive(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(driver) = &mut self.driver else { return Poll::Ready(()) };
        match driver.as_mut().poll(cx) {
            Poll::Pending => Poll::Pending,
            // What went wrong was told to whoever waits for an answer or reads a body; an idle connection has nobody
            // who would want to know. Dropping what is left closes the socket.
            Poll::Ready(Ok(()) | Err(_)) => {
                self.driver = None;
                Poll::Ready(())
            }
        }
    }

    /// Whether it can take a request now: its peer has not hung up, and nothing of the last exchange is left.
    pub(crate) fn poll_idle(&mut self, cx: &mut Context<'_>) -> bool {
        self.poll_drive(cx).is_pending() && self.sender.is_ready()
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link").field("address", &self.address).field("local", &self.local).finish_non_exhaustive()
    }
}
