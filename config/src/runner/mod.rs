//! What a tenant's file says of its runs.

mod build;
mod tables;
mod tenant;

pub(crate) use build::build;
pub(crate) use tables::RunnerTable;
pub use tenant::{RunnerScope, RunnerToken, TenantRunner};
