//! Putting a dead letter away: somebody has looked at a run that is over, and nobody else needs to.

use domain::TenantId;

use super::acts::{ActError, Acts, name};
use crate::ids::RunId;
use crate::index::RunRow;
use crate::ledger::{AppendError, Body, Commit, Dismissed, Writer};

/// Longest reason, in bytes.
pub const REASON_BYTES_MAX: usize = 1_024;

impl Acts {
    /// Writes down who put a dead letter away, and why. The run and its history stay as they are; a re-run of it makes it
    /// one that can be a dead letter again.
    ///
    /// # Errors
    /// `NoDeadLetter`: nobody has to look at it, or it is set aside and not over, so that somebody has to decide about it.
    /// `NotFound` also where its records are past their retention.
    pub async fn dismiss(&self, tenant: &TenantId, run: RunId, by: &str, reason: &str) -> Result<(), ActError> {
        let by = name(by)?;
        if !(1..=REASON_BYTES_MAX).contains(&reason.len()) {
            return Err(ActError::Reason);
        }
        for _ in 0..super::acts::TRIES {
            let records = self.records(tenant, run).await?;
            let row = RunRow::fold(&records).ok_or(ActError::NotFound)?;
            if !row.is_dead_letter() || row.ended_unix_ms.is_none() {
                return Err(ActError::NoDeadLetter);
            }
            let commit = Commit {
                tenant: tenant.clone(),
                run,
                expected: row.seq,
                writer: Writer::Anyone,
                at_unix_ms: self.clock.unix_ms(),
                bodies: vec![Body::Dismissed(Dismissed { by: by.clone(), reason: reason.into() })],
            };
            match self.ledger.append(commit).await {
                Ok(_) => return Ok(()),
                Err(AppendError::Conflict { .. } | AppendError::Fenced { .. }) => {}
                Err(error) => return Err(ActError::Unavailable(error.to_string().into())),
            }
        }
        Err(ActError::Busy)
    }
}
