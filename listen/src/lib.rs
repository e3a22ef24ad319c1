//! Listeners: what stands between a socket and the path of a request.
//!
//! ```text
//! Pingora Server ─ Service ─ TCP listener          server.rs, service.rs
//!   └▶ connection loop: caps, deadlines, drain     connection.rs
//!        └▶ gate: sees every raw byte              gate.rs, http/
//!             └▶ Exchange ─ Handler ─ Reply        exchange.rs, handler.rs, reply.rs
//! ```
//!
//! The gate reads a request's head under one deadline for the whole of it, and judges it strictly; then exactly that
//! message's body, whose framing is checked while its bytes pass. What lies behind the message stays in the gate for
//! the next request, which is all that pipelining needs. Why this is not Pingora's own HTTP session is in
//! `docs/decisions/0004`; what that session makes of the same bytes is compared in tests.
//!
//! An origin server reads a body whole and answers in one piece: [`Exchange::body`], [`Answer`]. A proxy needs more, and
//! pays for it only where it is used:
//!
//! - heads for a proxy: [`Forms::Proxy`] in a service's [`Behaviour`]
//! - bodies that stream in: [`Exchange::body_stream`] gives one out and [`Exchange::drive`] feeds it (`feed.rs`,
//!   `request_body.rs`), no faster than it is read, and tells of a client that goes
//! - answers that stream out: [`Streamed`] (`respond.rs`, `wire.rs`), while the rest of the request is still fed
//! - connections that are handed over: [`Takeover`], for tunnels and switched protocols
//!
//! ```
//! use http::{HeaderMap, StatusCode};
//! use listen::{Answer, BoxError, Exchange, Form, Interrupted, Reply, RequestBody, Streamed, Takeover};
//! # use tidegate_listen as listen;
//! # async fn dial(_: &str) -> Result<tokio::io::DuplexStream, BoxError> { Err("nowhere".into()) }
//! # async fn send(_: &str, body: RequestBody) -> Result<http::Response<RequestBody>, BoxError> { Ok(http::Response::new(body)) }
//! async fn handle(exchange: &mut Exchange) -> Reply {
//!     let Some(authority) = exchange.head().authority().map(str::to_owned) else { return Answer::new(404).into() };
//!     if exchange.head().form() == Form::Authority {
//!         // Dialled first: if that fails, this is a plain answer, and the connection is closed behind it.
//!         return match exchange.drive(dial(&authority)).await {
//!             Ok(Ok(mut upstream)) => Takeover::new(StatusCode::OK, HeaderMap::new(), |mut raw| async move {
//!                 let _ended = tokio::io::copy_bidirectional(&mut raw, &mut upstream).await;
//!             })
//!             .into(),
//!             Ok(Err(_)) | Err(_) => Answer::new(502).into(),
//!         };
//!     }
//!     let Ok(body) = exchange.body_stream(1 << 30) else { return Answer::new(413).into() };
//!     match exchange.drive(send(&authority, body)).await {
//!         Ok(Ok(response)) => Streamed::new(response).on_end(|ended| println!("{ended:?}")).into(),
//!         Ok(Err(_)) | Err(Interrupted::Elapsed) => Answer::new(502).into(),
//!         // Nobody reads this; it only has to be something.
//!         Err(Interrupted::Gone) => Answer::new(400).into(),
//!     }
//! }
//! ```
//!
//! Nobody outside this crate names a type of Pingora's. Each service runs on a runtime of its own that Pingora makes;
//! whatever else the process does (admin, reload, timers) runs on the caller's: [`Server::run`] blocks a thread.

mod addresses;
mod answer;
mod bound;
mod connection;
mod drain;
mod exchange;
mod feed;
pub mod frames;
mod gate;
mod halt;
mod handler;
pub mod http;
mod http2;
mod observer;
mod outbox;
mod pace;
mod reply;
mod request_body;
mod reset;
mod respond;
mod server;
mod service;
mod source;
#[cfg(test)]
mod streams;
mod takeover;
#[cfg(any(test, feature = "test-util"))]
pub mod testing;
mod timer;
mod tls;
mod transport;
#[cfg(test)]
mod whole;
mod wire;

pub use answer::Answer;
pub use bound::{Bound, Opened};
pub use exchange::{Exchange, Interrupted};
pub use halt::{Halt, Watch};
pub use handler::Handler;
pub use http::{Form, Forms, Head, Version};
pub use observer::{Observer, Phase, Silent};
pub use reply::{BoxBody, BoxError, Ended, Ending, Reply, Streamed};
pub use request_body::{BodyError, RequestBody};
pub use server::{Drained, Server, ServerHandle};
pub use service::{Behaviour, HalfClose, Service};
pub use takeover::{Draining, Raw, Takeover};
pub use tls::{
    HandshakeFault, PeerCertificate, Secured, Tls, TlsBounds, TlsParts, TlsServer, TlsServerFault, Validity,
    VersionMin, Vouching,
};
