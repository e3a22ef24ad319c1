//! The holding stream: deliveries that did not verify, or could not be judged yet, outside order and dedup.
//!
//! They lie in a journal of their own, in the form of events. What is held now is known in memory (id, whose, how
//! large, where) and is built again at open by reading the journal, which the node's budget bounds. A delivery that
//! is dealt with gets a tombstone and gives its budget back at once; its bytes go with their segment.
//!
//! `hold` is not waited for: a delivery that could not be verified is refused whatever becomes of its copy. An
//! append that fails afterwards gives its budget back at the next call.

mod budget;
mod record;
mod store;

use std::collections::VecDeque;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use domain::{EndpointId, EventId, NodeId};

use crate::error::{AppendError, ReadError};
use crate::event::{NewEvent, StoredEvent};
use crate::log::Scope;
use crate::segment::{self, RealStorage, Storage};

pub use budget::{HoldingFull, HoldingLimits};
pub use record::{Outcome, Status, decode_held, decode_resolved};
pub use store::HoldingStore;

/// Segments of the holding stream are small: what was dealt with frees its disk space with its segment.
const SEGMENT_BYTES: u64 = 16 << 20;

#[derive(Debug, Clone)]
pub struct HoldingSettings {
    pub node: NodeId,
    pub directory: PathBuf,
    pub limits: HoldingLimits,
    pub age: Duration,
    /// Largest delivery that can be held, about; a larger one is refused.
    pub segment_bytes: u64,
    pub sync: segment::SyncMode,
    pub reserve_bytes: u64,
    pub storage: Arc<dyn Storage>,
}

impl HoldingSettings {
    /// The sections `[holding]` and `[log]` of the appliance's file: it lies under the log's directory.
    pub fn new(holding: &config::Holding, log: &crate::embedded::Settings, body_bytes_max: u64) -> Self {
        // A delivery of the largest size must fit a segment, with its head and what the segment needs itself.
        let least = body_bytes_max.saturating_add(4 << 20).next_multiple_of(1 << 20).min(2 << 30);
        Self {
            node: log.node,
            directory: log.directory.join("holding"),
            limits: HoldingLimits {
                records_per_endpoint_max: holding.records_per_endpoint_max,
                bytes_per_endpoint_max: holding.bytes_per_endpoint_max,
                bytes_max: holding.bytes_max,
            },
            age: holding.age,
            segment_bytes: SEGMENT_BYTES.max(least),
            sync: log.sync,
            reserve_bytes: log.reserve_bytes,
            storage: Arc::new(RealStorage),
        }
    }
}

/// A delivery to be held. What the scheme would have told (which secret, a signed delivery id) is empty or unsigned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewHeld {
    pub delivery: NewEvent,
    pub status: Status,
    /// Why, as a bounded label: the verification's fault.
    pub reason: &'static str,
}

/// A held delivery.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Held {
    /// As it was received; position and sequence are the holding stream's.
    pub delivery: StoredEvent,
    pub status: Status,
    pub reason: Box<str>,
}

/// What a delivery that verified after all is promoted with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Proof {
    pub retention: Arc<str>,
    pub scheme: Arc<str>,
    pub secret: Arc<str>,
    pub delivery_id: Option<crate::event::DeliveryId>,
    pub signed_at_unix_ms: Option<u64>,
}

impl Held {
    /// The event that the delivery becomes: its original id, receive time and bytes, and the proof.
    pub fn promote(self, proof: Proof) -> NewEvent {
        let delivery = self.delivery;
        NewEvent {
            id: delivery.id,
            tenant: delivery.tenant,
            endpoint: delivery.endpoint,
            retention: proof.retention,
            received_unix_ms: delivery.received_unix_ms,
            peer: delivery.peer,
            method: std::borrow::Cow::Owned(delivery.method.into()),
            target: delivery.target,
            headers: delivery.headers,
            body: delivery.body,
            scheme: proof.scheme,
            secret: proof.secret,
            delivery_id: proof.delivery_id,
            class: delivery.class,
            signed_at_unix_ms: proof.signed_at_unix_ms,
            public_url: delivery.public_url.into(),
        }
    }
}

/// Which held deliveries to go through.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HoldingFilter {
    pub endpoint: Option<EndpointId>,
    pub status: Option<Status>,
    pub from_unix_ms: Option<u64>,
    pub until_unix_ms: Option<u64>,
}

/// What is held, for metrics and for operators.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize)]
pub struct HoldingStat {
    pub pending: u64,
    pub quarantined: u64,
    pub endpoints: u64,
    /// As the budgets count them.
    pub bytes: u64,
    pub bytes_max: u64,
    /// Deliveries that were not held since the store was opened, by why.
    pub refused_endpoint: u64,
    pub refused_node: u64,
    pub refused_other: u64,
    /// Went by age since the store was opened.
    pub expired: u64,
}

#[derive(Debug, thiserror::Error)]
pub enum HoldingOpenError {
    #[error("cannot open the holding stream: {0}")]
    Journal(#[from] segment::OpenError),
}

#[derive(Debug, thiserror::Error)]
pub enum ResolveError {
    #[error("no delivery {0} is held")]
    NotHeld(EventId),
    #[error("what became of the delivery could not be stored: {0}")]
    Append(#[from] AppendError),
}

#[derive(Debug, thiserror::Error)]
#[error("cannot trim the holding stream: {0}")]
pub struct HoldingTrimError(#[from] io::Error);

/// Walks over held deliveries in the order in which they came. One that was dealt with since is passed over.
#[derive(Debug)]
pub struct HeldDeliveries<'a> {
    store: &'a HoldingStore,
    scope: Scope,
    filter: HoldingFilter,
    /// What is still to be looked at.
    range: Option<store::PlaceRange>,
    places: VecDeque<(segment::Position, EventId)>,
}

impl Iterator for HeldDeliveries<'_> {
    type Item = Result<Held, ReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let Some((position, id)) = self.places.pop_front() else {
                let slice = self.store.slice(&self.scope, &self.filter, self.range.take()?);
                (self.places, self.range) = (slice.places, slice.rest);
                continue;
            };
            if self.store.holds(id) {
                return Some(self.store.read(&self.scope, position, id));
            }
        }
    }
}

#[cfg(test)]
mod tests;
