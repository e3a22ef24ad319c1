//! HTTP/2 towards a destination: many calls on one connection.
//!
//! A connection has a task of its own, which reads and writes its frames (`drive.rs`). A call sits on it
//! (`connection.rs`), has a stream there, and drives that inside of its own task (`stream.rs`): its body goes out as fast
//! as the peer takes it, its answer comes in as fast as the caller does, and a call that is dropped resets its stream in
//! the same moment.
//!
//! It stands on the `h2` crate, which hyper's HTTP/2 is made of, and not on `hyper::client`, for what only shows below
//! it: how many streams the peer allows, so that no request is handed over which cannot be sent; whose error ended a
//! stream, so that "not sent" is said where it is certain and nowhere else; and a body's early end by `NO_ERROR`, which
//! hyper passes for a whole one. It also needs no task and no channel for each request.
//!
//! **Not sent** is what was refused by `REFUSED_STREAM`, and what stands above the last stream of a GOAWAY
//! (RFC 9113, 8.7). Nothing else that was begun is: what lies in a buffer of a connection that others use may still go
//! out.
//!
//! **Windows.** A connection's window is as large as those of all of its seats together, so that callers that do not read
//! what they asked for hold up their own answers and nobody else's.
//!
//! **Memory.** One call may hold [`STREAM_WINDOW`] of an answer that nobody has read yet and [`SEND_BUFFER_BYTES`] of its
//! request's body: 192 KiB, three times what a stream of the listener holds. A connection with all of its
//! [`SEATS_MAX`](crate::pool::SEATS_MAX) taken may hold 12 MiB, two tables of 4 KiB (HPACK), and one header section for each
//! call. Windows count the bytes of bodies: a frame that waits costs some 200 bytes beside, which is more than what is in
//! it where a destination writes an event or a byte at a time. The meter bounds how many of those may wait.

mod connection;
mod drive;
mod exchange;
mod fault;
mod liveness;
mod meter;
mod pace;
mod stream;

use std::time::Duration;

use h2::client::Builder;

pub(crate) use connection::Connection;
pub(crate) use stream::Stream;

use crate::pool::SEATS_MAX;

/// Of one stream: 2.6 MB/s at 50 ms, 13 MB/s at 10 ms. Twice as much would be 16 MiB for a connection whose callers do not
/// read; half as much is a megabyte in a second from where a round trip takes 60 ms.
const STREAM_WINDOW: u32 = 128 << 10;
/// Of one connection: 8 MiB. No stream can take what is another one's.
const CONNECTION_WINDOW: u32 = 64 * STREAM_WINDOW;
const _: () = assert!(CONNECTION_WINDOW as usize >= SEATS_MAX * STREAM_WINDOW as usize);
/// Bytes of a request's body between its caller and the socket.
const SEND_BUFFER_BYTES: usize = 64 << 10;
/// What the count of streams is until the peer has said one; it is no number that a peer can say.
const STREAMS_UNTOLD: usize = usize::MAX - 1;
/// Answers before the answer (1xx) of one stream; they are passed over. Few servers send two.
const INFORMATIONAL_MAX: u32 = 32;
/// How long a connection with calls on it may be silent before it is asked for a sign of life. Most answers have begun
/// by then.
const PING_AFTER: Duration = Duration::from_mins(1);
/// How often it is asked while nothing of an answer comes. Servers of gRPC allow one PING in five minutes, overlook two
/// more, and end the connection at the third (`too_many_pings`); they count anew when they send a head or data.
const PINGS_MAX: u32 = 2;
/// How long a sign of life may take. Without one, the connection is dead: the calls on it need not wait for their own
/// times, and the next ones are not put on it.
const PONG_WITHIN: Duration = Duration::from_secs(10);
/// How long a call waits for somebody else's dial, or for a peer that allows no stream. Connecting and TLS take three round trips,
/// 300 ms each to the other side of the world.
pub(super) const PATIENCE: Duration = Duration::from_secs(1);

/// What an answer's head may be.
#[derive(Debug, Clone, Copy)]
pub(super) struct HeadBounds {
    /// Bytes, as HTTP/1.1 would write it.
    pub(super) bytes_max: usize,
    /// Fields.
    pub(super) fields_max: usize,
}

impl HeadBounds {
    /// In the terms of HTTP/2, which counts 32 bytes for each field beside (RFC 9113, 6.5.2).
    fn list_bytes(self) -> u32 {
        u32::try_from(self.bytes_max + self.fields_max * 32).unwrap_or(u32::MAX)
    }

    /// What travels of a head over HTTP/1.1: `name: value` and an end of line for each field.
    fn hold(self, headers: &http::HeaderMap) -> bool {
        let bytes: usize = headers.iter().map(|(name, value)| name.as_str().len() + value.len() + 4).sum();
        headers.len() <= self.fields_max && bytes <= self.bytes_max
    }
}

fn builder(head: HeadBounds) -> Builder {
    let mut builder = Builder::new();
    builder
        .enable_push(false)
        .max_concurrent_streams(0)
        .initial_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_send_buffer_size(SEND_BUFFER_BYTES)
        .max_header_list_size(head.list_bytes())
        .initial_max_send_streams(STREAMS_UNTOLD);
    builder
}
