//! HTTP/2 towards clients (RFC 9113), inside of TLS and where ALPN agrees on it.
//!
//! ```text
//! TLS ─▶ meter: sees every frame      meter.rs
//!         └▶ codec (`h2`)             frames, HPACK, windows, states of streams
//!              └▶ connection loop     connection.rs: bounds, deadlines, drain
//!                   └▶ each stream    stream.rs: an Exchange like any other; head.rs says what it asks for
//!                        └▶ tunnel    tunnel.rs, behind CONNECT
//! ```
//!
//! A stream is an [`Exchange`](crate::Exchange): the same handler answers it, by the same replies. Its head is written down
//! as HTTP/1.1 would have it and read by the one parser of heads, so what is refused there is refused here, for the same
//! reason and with the same answer. What breaks HTTP/2 itself the codec ends without one: a stream by `RST_STREAM`, a
//! connection by GOAWAY.
//!
//! Why this stands on `h2` and not on hyper's server, which does too, is in `docs/decisions/0006`.

mod connection;
mod head;
mod meter;
mod stream;
#[cfg(test)]
mod tests;
mod tunnel;

pub(crate) use connection::serve;
pub(crate) use stream::Stream;
pub(crate) use tunnel::Tunnel;

/// What a stream may hold that nobody takes, each way: the initial window of RFC 9113. Callers are near, and 64 KiB a
/// round trip of half a millisecond are 1 Gbit/s.
const STREAM_BYTES: u32 = 65_535;
