//! What happens to a tenant when its file, its secrets, or somebody else's file changes.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod absence;
mod ownership;
mod rig;
mod secrets;
mod state;
mod versions;
