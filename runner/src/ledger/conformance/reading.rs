//! Reads: a run is its tenant's.

use super::made::tenant;
use super::{Subject, begun, new_run, read};
use crate::ledger::store::ReadError;

pub async fn a_run_is_its_tenant_s_alone(subject: &mut dyn Subject) {
    let ledger = subject.open().await;
    let run = begun(subject, &*ledger).await;
    assert_eq!(read(&*ledger, run).await.len(), 2);
    let foreign = ledger.read(&tenant("other"), run).await;
    assert_eq!(foreign, Err(ReadError::Tenant { run, found: tenant("acme"), asked: tenant("other") }));
}

pub async fn a_run_that_never_was_is_empty(subject: &mut dyn Subject) {
    let ledger = subject.open().await;
    begun(subject, &*ledger).await;
    assert_eq!(read(&*ledger, new_run(subject)).await, []);
}
