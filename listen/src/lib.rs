//! Listeners: what stands between a socket and the path of a request.
//!
//! ```text
//! Pingora Server ─ Service ─ TCP listener          server.rs, service.rs
//!   └▶ connection loop: caps, deadlines, drain     connection.rs
//!        └▶ gate: sees every raw byte              gate.rs, http/
//!             └▶ Pingora's HTTP/1 session          exchange.rs
//!                  └▶ Handler                      handler.rs
//! ```
//!
//! The gate reads a request's head itself, under one deadline for the whole of it, and judges it strictly. Only then
//! does Pingora's session see it: exactly that head, and then exactly that message's body, whose framing is checked
//! again while the bytes pass. What lies behind the message stays in the gate for the next request, so pipelining
//! needs no help from the session, and two parsers have to agree before a body counts as complete.
//!
//! Nobody outside this crate names a type of Pingora's. Each service runs on a runtime of its own that Pingora makes;
//! whatever else the process does (admin, reload, timers) runs on the caller's: [`Server::run`] blocks a thread.

mod answer;
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
pub use exchange::Exchange;
pub use handler::Handler;
pub use http::{Head, Version};
pub use observer::{Observer, Phase, Silent};
pub use server::{Drained, Server, ServerHandle};
pub use service::Service;
