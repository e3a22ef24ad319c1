//! Both directions of a tunnel, until its end.
//!
//! The directions know nothing of each other: when one ends, its reader is told (a FIN), and the other goes on until it
//! ends too. So a client may end what it sends and then wait for its answer, and a destination that has said all it has
//! to say may go on listening.
//!
//! Where a side's connection breaks, what was on its way to it is lost; what has come from it is delivered before the
//! tunnel ends.

use std::future::poll_fn;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite};

use super::bounds::{Bounds, Watch};
use super::end::End;
use super::flow::{Flow, Stopped};
use super::live::Live;

/// Relays until the end. `first` has come from the client already, and is the first that the destination gets.
pub(super) async fn relay<C, D, M>(
    client: &mut C,
    destination: &mut D,
    first: Vec<u8>,
    bounds: &Bounds,
    watch: &mut Watch<'_, M>,
    live: &Live<M>,
) -> End
where
    C: AsyncRead + AsyncWrite + Unpin,
    D: AsyncRead + AsyncWrite + Unpin,
{
    let mut both =
        Both { out: Flow::new(first, bounds.sent_bytes_max), back: Flow::new(Vec::new(), bounds.received_bytes_max) };
    poll_fn(|cx| {
        let (end, has_passed) = both.poll_move(cx, client, destination, live);
        if let Some(end) = end {
            return Poll::Ready(end);
        }
        if has_passed {
            watch.passed();
        }
        watch.poll_end(cx, both.out.holds() || both.back.holds(), None)
    })
    .await
}

/// The two directions.
struct Both {
    out: Flow,
    back: Flow,
}

impl Both {
    fn poll_move<C, D, M>(
        &mut self,
        cx: &mut Context<'_>,
        client: &mut C,
        destination: &mut D,
        live: &Live<M>,
    ) -> (Option<End>, bool)
    where
        C: AsyncRead + AsyncWrite + Unpin,
        D: AsyncRead + AsyncWrite + Unpin,
    {
        let out = match self.out.poll_move(cx, client, destination, live.sent()) {
            Ok(has_passed) => has_passed,
            Err(Stopped::Writer) => return (Some(End::ClientReset), false),
            Err(Stopped::TooMuch) => return (Some(End::SentTooMuch), false),
        };
        let back = match self.back.poll_move(cx, destination, client, live.received()) {
            Ok(has_passed) => has_passed,
            Err(Stopped::Writer) => return (Some(End::DestinationReset), out),
            Err(Stopped::TooMuch) => return (Some(End::ReceivedTooMuch), out),
        };
        let end =
            (self.out.is_over() && self.back.is_over()).then(|| match (self.out.is_broken(), self.back.is_broken()) {
                (false, false) => End::Finished,
                (true, _) => End::DestinationReset,
                (false, true) => End::ClientReset,
            });
        (end, out || back)
    }
}
