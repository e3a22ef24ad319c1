//! Load generators and side-by-side comparisons with peers.
//!
//! One rule: everything that is compared runs in the same run, on the same machine, under the same load. Nothing is
//! pinned, nothing but loopback is used, everything stops by itself. `docs/performance.md` says what was measured.

pub mod disk;
pub mod egress;
pub mod hook;
pub mod ingest;
pub mod load;
pub mod peers;
pub mod process;
pub mod quota;
pub mod report;
pub mod runner;
pub mod server;
pub mod syncs;

/// Whatever goes wrong in a benchmark ends it with a sentence.
pub type Result<T, E = Error> = std::result::Result<T, E>;

pub type Error = Box<dyn std::error::Error + Send + Sync>;
