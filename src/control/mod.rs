//! The control socket: how commands speak with a running appliance.
//!
//! HTTP/1.1 with JSON over a Unix socket of mode 0600. Whatever changes the state of a node comes this way; reads
//! do too while the node runs, since it alone knows what is durable at this moment.

mod body;
pub(crate) mod client;
pub(crate) mod egress;
pub(crate) mod node;
mod patient;
pub(crate) mod quota;
pub(crate) mod read;
pub(crate) mod runner;
pub(crate) mod server;
pub(crate) mod socket;
mod stat;
pub(crate) mod time;
pub(crate) mod top;
mod walk;
pub(crate) mod wire;

#[cfg(test)]
mod tests;
