//! A bound on every wait for a part of ours: none of them may hold a worker, and with it a slot and a lease, for ever.

use super::super::ports::PortError;
use super::Engine;
use crate::automation::StoreError;
use crate::ledger::BoxFuture;

/// How the errors of a port say that there was no answer.
pub(super) trait Late {
    fn late() -> Self;
}

impl Late for PortError {
    fn late() -> Self {
        Self::Unavailable("no answer in time".into())
    }
}

impl Late for StoreError {
    fn late() -> Self {
        Self::Unavailable("no answer in time".into())
    }
}

impl Engine {
    /// What it says within the bound. What is dropped then may have been done all the same.
    pub(super) async fn within<T, E: Late>(&self, asked: BoxFuture<'_, Result<T, E>>) -> Result<T, E> {
        tokio::time::timeout(self.settings.port_timeout, asked).await.unwrap_or_else(|_| Err(E::late()))
    }
}
