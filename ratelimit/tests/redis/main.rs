//! The centre in Redis, over real servers: each test starts its own on a free port and stops it.

#![allow(clippy::unwrap_used, clippy::panic, clippy::disallowed_methods, reason = "this is a test, on real servers")]
#![allow(clippy::wildcard_enum_match_arm, reason = "what else there is fails the test")]

mod breakers;
mod conformance;
mod differential;
mod faults;
mod fleet;
mod pushes;
mod server;
