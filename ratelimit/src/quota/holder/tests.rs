//! The pure core by hand, and the task with virtual time.

mod bench;
mod leases;
mod service;
