//! The engines in PostgreSQL, over real servers: each test starts its own on a free port, or has a database of its own on
//! one that several share, and stops it.

#![allow(clippy::unwrap_used, clippy::panic, clippy::disallowed_methods, reason = "this is a test, on real servers")]
#![allow(clippy::wildcard_enum_match_arm, reason = "what else there is fails the test")]

mod conformance;
mod crashes;
mod faults;
mod faulty;
mod place;
#[path = "../../../tests/src/postgres.rs"]
#[allow(
    dead_code,
    unreachable_pub,
    clippy::let_underscore_must_use,
    reason = "it is another crate's, and has more than is used here"
)]
mod server;
mod shared;
