//! Tunnels: what happens between the `200` to a CONNECT and the end of both connections.
//!
//! ```text
//! 200 ─▶ ClientHello ─▶ is it for this destination? ─▶ relay, both ways ─▶ end
//!        client_hello.rs  rule.rs                       relay.rs, flow.rs   end.rs
//!        └──────────── bounds.rs: time, orders from outside (live.rs) ────┘
//! ```
//!
//! A tunnel is opaque, and this is what can be held against that: the first thing that the client says must be a
//! `ClientHello` that names the destination which was allowed, and until that was judged the destination gets nothing.
//! What the rule cannot stop is in `docs/tunnels.md`.
//!
//! An idle tunnel costs its two sockets and a task: it holds no buffer, and one timer.

mod bounds;
mod client_hello;
mod end;
mod flow;
mod live;
mod relay;
mod rule;

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;

use bytes::BufMut;
use futures_util::FutureExt;
use outbound::Host;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep};

use bounds::{Watch, later};
use client_hello::RAW_BYTES_MAX;

pub use bounds::Bounds;
pub use client_hello::{Hello, HelloFault, HelloReader, Progress};
pub use end::End;
pub use live::{Live, Open, Tunnels};
pub use rule::{Content, Enforcement, Mismatch};

/// One side of a tunnel.
pub trait Side: AsyncRead + AsyncWrite + Send + Unpin {
    /// The connection is about to be dropped, and shall end with a reset instead of a clean end, if it can.
    fn abort(&mut self) {}
}

impl Side for TcpStream {
    fn abort(&mut self) {
        // A socket that refuses has no connection any more.
        let _is_gone = self.set_zero_linger();
    }
}

impl Side for tokio::io::DuplexStream {}

/// What one tunnel may carry, and for how long.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tunnel {
    /// What was asked for and allowed.
    pub host: Host,
    /// What may pass.
    pub content: Content,
    /// What becomes of anything else.
    pub enforcement: Enforcement,
    /// What it may use up.
    pub bounds: Bounds,
}

/// What became of a tunnel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ended {
    /// Why it ended.
    pub end: End,
    /// What the client said first; none if that was no `ClientHello`, or was not looked at.
    pub hello: Option<Hello>,
    /// What would have ended it, if it had been enforced.
    pub reported: Option<Mismatch>,
}

/// Fatal, `access_denied` (RFC 8446, 6): the client sees a refusal where it would see a broken line.
const ACCESS_DENIED: [u8; 7] = [21, 3, 1, 0, 2, 2, 49];
/// One read while a `ClientHello` is awaited.
const READ_BYTES: usize = 4096;

impl Tunnel {
    /// Carries bytes between the two until one of the many ends has come, and closes both. The first bytes that
    /// `client` yields are those behind the CONNECT's head, wherever they were until now.
    pub async fn run<C: Side, D: Side, M>(&self, mut client: C, mut destination: D, live: &Live<M>) -> Ended {
        let mut timer = pin!(sleep(self.bounds.hello_timeout.min(self.bounds.idle_timeout)));
        let mut watch = Watch::new(live, &self.bounds, timer.as_mut());
        let mut ended = Ended { end: End::Finished, hello: None, reported: None };
        ended.end = match self.admit(&mut client, &mut watch, &mut ended).await {
            Ok(first) => relay::relay(&mut client, &mut destination, first, &self.bounds, &mut watch, live).await,
            Err(end) => {
                if matches!(end, End::Mismatch(_)) && ended.hello.is_some() {
                    // Seven bytes for a connection that nothing was written to. Where they do not fit, nobody waits.
                    let _is_told = client.write_all(&ACCESS_DENIED).now_or_never();
                    let _is_told = client.flush().now_or_never();
                }
                end
            }
        };
        if ended.end.is_abrupt() {
            client.abort();
            destination.abort();
        } else if ended.end != End::Finished {
            // The system says of a socket that is dropped that it has ended; for TLS and a stream of HTTP/2 we have to.
            let _is_said = client.shutdown().now_or_never();
            let _is_said = destination.shutdown().now_or_never();
        }
        ended
    }

    /// What the client said first, if it may pass.
    async fn admit<C: Side, M>(
        &self,
        client: &mut C,
        watch: &mut Watch<'_, M>,
        ended: &mut Ended,
    ) -> Result<Vec<u8>, End> {
        let Content::Tls(sni) = self.content else { return Ok(Vec::new()) };
        let mut first = Vec::new();
        let found = match self.read_hello(client, &mut first, watch).await {
            Err(End::Mismatch(mismatch)) => Err(mismatch),
            Err(other) => return Err(other),
            Ok(None) => return Ok(first),
            Ok(Some(hello)) => {
                let judged = rule::judge(&self.host, sni, &hello);
                ended.hello = Some(hello);
                judged
            }
        };
        match (found, self.enforcement) {
            (Ok(()), _) => Ok(first),
            (Err(mismatch), Enforcement::Refuse) => Err(End::Mismatch(mismatch)),
            (Err(mismatch), Enforcement::Report) => {
                ended.reported = Some(mismatch);
                Ok(first)
            }
        }
    }

    /// Reads until the `ClientHello` is there. None if the client ended without a word, which does no harm.
    async fn read_hello<C: Side, M>(
        &self,
        client: &mut C,
        first: &mut Vec<u8>,
        watch: &mut Watch<'_, M>,
    ) -> Result<Option<Hello>, End> {
        let deadline = later(Instant::now(), self.bounds.hello_timeout);
        let mut reader = HelloReader::default();
        loop {
            debug_assert!(first.len() <= RAW_BYTES_MAX, "the reader has bounds of its own");
            let before = first.len();
            let read = {
                let mut space = (&mut *first).limit(READ_BYTES);
                let mut read = pin!(client.read_buf(&mut space));
                poll_fn(|cx| match read.as_mut().poll(cx) {
                    Poll::Ready(read) => Poll::Ready(read.map_err(|_| End::ClientReset)),
                    // A piece of a ClientHello makes nothing look whole: nobody has got any of it.
                    Poll::Pending => {
                        watch.poll_end(cx, false, Some((deadline, End::Mismatch(Mismatch::Silent)))).map(Err)
                    }
                })
                .await?
            };
            watch.passed();
            match reader.advance(&first[before..]) {
                _ if read == 0 && before == 0 => return Ok(None),
                _ if read == 0 => return Err(End::Mismatch(Mismatch::Cut)),
                Progress::More => {}
                Progress::Hello(hello) => return Ok(Some(hello)),
                Progress::NotTls => return Err(End::Mismatch(Mismatch::NotTls)),
                Progress::Malformed(fault) => return Err(End::Mismatch(Mismatch::Hello(fault))),
            }
        }
    }
}

#[cfg(test)]
mod tests;
