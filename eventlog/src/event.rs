//! Events: what the accept path hands over, and what a reader gets back.

use std::borrow::Cow;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use domain::{EndpointId, EventId, NodeId, TenantId};

use crate::headers::HeaderBlock;
use crate::position::Position;

/// The provider's own id of a delivery.
#[derive(Clone, PartialEq, Eq)]
pub struct DeliveryId {
    pub value: Bytes,
    /// Usable for dedup only if the signature covers it: anybody can write any other id.
    pub signed: bool,
}

/// How a delivery came in: within its limits, or over them and kept all the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Class {
    #[default]
    Normal,
    Bulk,
}

/// A verified delivery, ready to be committed.
#[derive(Clone, PartialEq, Eq)]
pub struct NewEvent {
    pub id: EventId,
    pub tenant: TenantId,
    pub endpoint: EndpointId,
    /// The tenant's retention class: which log the event goes to. Not part of the record.
    pub retention: Arc<str>,
    pub received_unix_ms: u64,
    pub peer: SocketAddr,
    pub method: Cow<'static, str>,
    /// Raw request target, as the request line had it.
    pub target: Bytes,
    pub headers: HeaderBlock,
    pub body: Bytes,
    pub scheme: Arc<str>,
    /// Name of the secret that verified, never the secret.
    pub secret: Arc<str>,
    pub delivery_id: Option<DeliveryId>,
    pub class: Class,
    /// When the provider says that it signed, if the scheme carries a time.
    pub signed_at_unix_ms: Option<u64>,
    /// The URL that the provider saw, up to the target: what a later check of the signature needs.
    pub public_url: Arc<str>,
}

/// A committed event with its place.
#[derive(Clone, PartialEq, Eq)]
pub struct StoredEvent {
    pub id: EventId,
    pub tenant: TenantId,
    pub endpoint: EndpointId,
    pub received_unix_ms: u64,
    pub peer: SocketAddr,
    pub method: Box<str>,
    pub target: Bytes,
    pub headers: HeaderBlock,
    pub body: Bytes,
    pub scheme: Box<str>,
    pub secret: Box<str>,
    pub delivery_id: Option<DeliveryId>,
    pub class: Class,
    pub signed_at_unix_ms: Option<u64>,
    pub public_url: Box<str>,

    /// Where the event lies.
    pub position: Position,
    /// When it was appended, on the accepting node's wall clock; at or after the receive time unless that clock
    /// stepped. Long after it for a delivery that was held first.
    pub appended_unix_ms: u64,
    /// The node that committed it.
    pub node: NodeId,
    /// The writer that committed it: a process has one epoch per journal.
    pub epoch: u64,
    /// Dense from 1 per endpoint, lane and epoch.
    pub sequence: u64,
}

impl fmt::Debug for DeliveryId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeliveryId")
            .field("value", &domain::text::Untrusted::new(&self.value))
            .field("signed", &self.signed)
            .finish()
    }
}

/// Shows what identifies an event and how large it is; never what is in it.
impl fmt::Debug for NewEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NewEvent")
            .field("id", &self.id)
            .field("tenant", &self.tenant)
            .field("endpoint", &self.endpoint)
            .field("body_bytes", &self.body.len())
            .finish_non_exhaustive()
    }
}

/// Shows what identifies an event and where it lies; never what is in it.
impl fmt::Debug for StoredEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoredEvent")
            .field("id", &self.id)
            .field("tenant", &self.tenant)
            .field("endpoint", &self.endpoint)
            .field("position", &self.position)
            .field("sequence", &self.sequence)
            .field("body_bytes", &self.body.len())
            .finish_non_exhaustive()
    }
}
