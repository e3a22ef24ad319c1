//! Listeners: what stands between a socket and the path of a request.
//!
//! ```text
//! Pingora Server ─ Service ─ TCP listener          server.rs, service.rs
//!   └▶ connection loop: caps, deadlines, drain     connection.rs
//!        └▶ gate: sees every raw byte              gate.rs, http/
//!             └▶ Exchange ─ Handler                exchange.rs, handler.rs
//! ```
//!
//! The gate reads a request's head under one deadline for the whole of it, and judges it strictly; then exactly that
//! message's body, whose framing is checked while its bytes pass. What lies behind the message stays in the gate for
//! the next request, which is all that pipelining needs. Why this is not Pingora's own HTTP session is in
//! `docs/decisions/0004`; what that session makes of the same bytes is compared in tests.
//!
//! Nobody outside this crate names a type of Pingora's. Each service runs on a runtime of its own that Pingora makes;
//! whatever else the process does (admin, reload, timers) runs on the caller's: [`Server::run`] blocks a thread.

mod answer;
mod bound;
mod connection;
mod drain;
mod exchange;
mod gate;
mod handler;
pub mod http;
mod observer;
mod server;
mod service;
#[cfg(any(test, feature = "test-util"))]
pub mod testing;
mod timer;
#[cfg(test)]
mod whole;

pub use answer::Answer;
pub use bound::{Bound, Opened};
pub use exchange::Exchange;
pub use handler::Handler;
pub use http::{Head, Version};
pub use observer::{Observer, Phase, Silent};
pub use server::{Drained, Server, ServerHandle};
pub use service::Service;
