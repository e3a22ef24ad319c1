//! What only an operator may do: it concerns no tenant alone, or what a tenant must not decide.

use std::fmt;

use async_trait::async_trait;
use serde_json::Value;

use super::asker::Asker;
use super::no::No;
use crate::ids::RunId;

/// What an operator looks at and does, beside what every tenant may.
#[async_trait]
pub trait Operations: Send + Sync + fmt::Debug {
    /// How the runner is.
    async fn stat(&self) -> Result<Value, No>;

    /// Runs of all tenants that were quarantined, the newest first.
    async fn quarantined(&self, limit: usize) -> Result<Vec<Value>, No>;

    /// Lets one go on.
    async fn release(&self, asker: &Asker, run: RunId) -> Result<(), No>;

    /// Lets admission pass the damaged place of the event log that it is halted at: what is there begins no run.
    async fn pass_damage(&self) -> Result<(), No>;

    /// Events that could not be admitted and were set aside, the oldest first.
    async fn set_aside(&self, limit: usize) -> Result<Vec<Value>, No>;

    /// Has all of them tried again, and says how many there are.
    async fn try_set_aside(&self) -> Result<usize, No>;

    /// Makes the index anew from the ledger, and says what it was made of.
    async fn rebuild(&self) -> Result<Value, No>;
}
