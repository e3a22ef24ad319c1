//! The harness: a real appliance in a directory of its own, honest and dishonest senders, and judges of what is left.
//!
//! A scenario reads as a story: `Appliance::new().tenant(…).start()`, send, look. Nothing here shares code with the
//! gateway: signatures, HTTP and the reading of answers are written a second time, so that a mistake in the product
//! is not repeated by its judge.
//!
//! Each appliance listens on a loopback address of its own (the whole of 127/8 is one machine), so that scenarios run
//! side by side and no port is ever contended.

pub mod appliance;
pub mod book;
pub mod call;
pub mod callers;
pub mod disk;
pub mod events;
pub mod fleet;
pub mod guest;
pub mod judge;
pub mod load;
pub mod metrics;
pub mod network;
pub mod patience;
pub mod postgres;
pub mod provider;
pub mod random;
pub mod redis;
pub mod relay;
pub mod response;
pub mod runs;
pub mod sender;
pub mod settings;
pub mod signing;
pub mod strict;
pub mod trace;
pub mod world;
pub mod write_log;

pub use appliance::{Appliance, Node};
pub use response::Response;
pub use sender::{Connection, Request, Sender};
pub use settings::{Endpoint, Tenant, endpoint, tenant};
