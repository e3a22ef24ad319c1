//! What of a record stands elsewhere: stored payloads, and the event that a run began with.

use domain::TenantId;

use crate::ledger::record::{Body, Cause, Kept, Record};
use crate::postgres::Kind;

/// What a body names, each by its kind.
pub(super) fn blobs_of(body: &Body) -> impl Iterator<Item = (Kind, Box<[u8]>)> {
    let stored = body.payload().filter(|payload| payload.kept == Kept::Stored);
    let stored = stored.map(|payload| (Kind::Payload, Box::<[u8]>::from(payload.digest)));
    let event = match body {
        Body::Admitted(admitted) => match &admitted.cause {
            Cause::Event { event, .. } | Cause::Replay { event, .. } => Some(*event),
            Cause::Again { .. } | Cause::Manual { .. } => None,
        },
        Body::Lease(_)
        | Body::Intent(_)
        | Body::Outcome(_)
        | Body::LateOutcome(_)
        | Body::Parked(_)
        | Body::Released(_)
        | Body::Resolved(_)
        | Body::Rerun(_)
        | Body::CancelRequested(_)
        | Body::Quarantined(_)
        | Body::Terminal(_)
        | Body::Dismissed(_) => None,
    };
    let event = event.map(|event| (Kind::Event, Box::<[u8]>::from(*event.as_bytes())));
    stored.into_iter().chain(event)
}

/// The same of a record, with whose it is.
pub(super) fn named_by(record: &Record) -> impl Iterator<Item = (TenantId, Kind, Box<[u8]>)> + '_ {
    blobs_of(&record.body).map(|(kind, name)| (record.tenant.clone(), kind, name))
}
