//! Whether a run may have had an effect.

use std::collections::HashSet;

use crate::ledger::{Attempt, Body, Record, SendState};

/// True unless nothing that it called can have reached a provider. It errs on this side: what a call does is its
/// connector's to know, and a request that only reads counts too.
pub(super) fn may_have_had_effects(records: &[Record]) -> bool {
    let mut open: HashSet<(&str, Attempt)> = HashSet::new();
    for record in records {
        match &record.body {
            Body::Intent(intent) if !intent.is_read_back => {
                open.insert((intent.step.as_str(), intent.attempt));
            }
            Body::Outcome(outcome) | Body::LateOutcome(outcome) => {
                let sent = outcome.provider.as_ref().map(|provider| provider.send_state);
                if sent == Some(SendState::NotSent) {
                    open.remove(&(outcome.step.as_str(), outcome.attempt));
                }
            }
            Body::Intent(_)
            | Body::Admitted(_)
            | Body::Lease(_)
            | Body::Parked(_)
            | Body::Released(_)
            | Body::Resolved(_)
            | Body::Rerun(_)
            | Body::CancelRequested(_)
            | Body::Quarantined(_)
            | Body::Terminal(_)
            | Body::Dismissed(_) => {}
        }
    }
    !open.is_empty()
}
