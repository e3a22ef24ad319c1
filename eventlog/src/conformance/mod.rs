//! What every engine of the log must do, as tests that run over any of them.
//!
//! An engine joins by implementing [`Subject`] and expanding [`event_log_conformance!`](crate::event_log_conformance)
//! in its tests. Scenarios use nothing but the [`EventLog`] trait and say nothing about segments, shards or files;
//! where engines may differ (how much of what is over age a trim drops) they ask for what all can promise.

mod appending;
mod reading;
mod retention;
mod scoping;

use std::borrow::Cow;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use domain::{EndpointId, EventId, ManualClock, NodeId, Slot, TenantId};

pub use appending::*;
pub use reading::*;
pub use retention::*;
pub use scoping::*;

use crate::event::{Class, DeliveryId, NewEvent, StoredEvent};
use crate::headers::HeaderBlock;
use crate::log::{Appended, EventLog, EventReader, Filter, Scope, Start};

/// The age of the class `default` that a subject must have.
pub const DEFAULT_AGE: Duration = Duration::from_hours(30 * 24);
/// The age of the class `short` that a subject must have.
pub const SHORT_AGE: Duration = Duration::from_hours(1);
/// The node that a subject must write as.
pub const NODE: NodeId = NodeId(7);
/// Where scenarios start their clock.
pub const EPOCH_UNIX_MS: u64 = 1_800_000_000_000;

/// An engine under test, with a place to store.
pub trait Subject {
    /// Opens what is stored, or an empty log. The caller has closed and dropped the last one.
    fn open(&mut self, clock: Arc<ManualClock>) -> Arc<dyn EventLog>;
}

/// Expands to one test per scenario over the engine that the expression makes.
#[macro_export]
macro_rules! event_log_conformance {
    ($subject:expr) => {
        $crate::event_log_conformance! { @each $subject;
            what_was_acknowledged_is_there_byte_for_byte,
            order_per_endpoint_with_dense_sequences,
            an_epoch_per_open_and_order_across_them,
            appends_from_many_threads_are_all_there_once,
            a_closed_log_takes_nothing_and_reads_on,
            what_no_class_or_record_can_hold_is_refused,
            a_reader_goes_on_where_another_stopped,
            latest_sees_what_comes_next,
            whoever_waits_is_told_of_what_comes,
            the_newest_end_as_everything_does,
            endpoint_and_time_select,
            an_id_finds_its_event,
            a_reader_follows_a_writer,
            an_index_is_never_behind_the_durable_end,
            a_place_that_never_was_is_refused,
            groups_keep_their_places,
            a_tenant_reads_its_own_and_nothing_else,
            a_foreign_endpoint_halts_the_reader,
            a_foreign_id_is_not_told,
            trim_drops_what_is_over_age_and_nothing_else,
            what_was_trimmed_is_named_and_not_passed_over,
            stored_bytes_follow_appends_trims_and_reopens,
        }
    };
    (@each $subject:expr; $($scenario:ident,)+) => {
        $(
            #[test]
            fn $scenario() {
                let mut subject = $subject;
                $crate::conformance::$scenario(&mut subject);
            }
        )+
    };
}

fn clock() -> Arc<ManualClock> {
    ManualClock::at_unix_ms(EPOCH_UNIX_MS)
}

fn tenant(name: &str) -> TenantId {
    TenantId::parse(name).expect("scenarios use valid names")
}

fn endpoint(name: &str) -> EndpointId {
    EndpointId::parse(name).expect("scenarios use valid names")
}

/// An event with something in every field, told apart by its number.
pub fn event(tenant_name: &str, endpoint_name: &str, received_unix_ms: u64, number: u32) -> NewEvent {
    let mut headers = HeaderBlock::with_capacity(128);
    for (name, value) in [("Host", "hooks.example.com"), ("X-Sig", "one"), ("x-sig", "two"), ("X-Empty", "")] {
        headers.push(name.as_bytes(), value.as_bytes()).expect("a short field fits");
    }
    headers.push(b"X-Raw", b"\xff\x00\x80").expect("a short field fits");
    let [a, b, c, d] = number.to_be_bytes();
    NewEvent {
        id: EventId::new(received_unix_ms, Slot::of(endpoint_name), NODE, [0, 0, a, b, c, d]),
        tenant: tenant(tenant_name),
        endpoint: endpoint(endpoint_name),
        retention: "default".into(),
        received_unix_ms,
        peer: SocketAddr::from(([192, 0, 2, 1], 443)),
        method: Cow::Borrowed("POST"),
        target: Bytes::from(format!("/hooks/{endpoint_name}?n={number}")),
        headers: headers.finish(),
        body: Bytes::from(format!("{{\"number\":{number}}}\0\r\n").repeat(1 + number as usize % 40)),
        scheme: "github".into(),
        secret: "primary".into(),
        delivery_id: Some(DeliveryId {
            value: Bytes::from(number.to_be_bytes().to_vec()),
            signed: number.is_multiple_of(2),
        }),
        class: if number.is_multiple_of(5) { Class::Bulk } else { Class::Normal },
        signed_at_unix_ms: number.is_multiple_of(3).then_some(received_unix_ms / 1000 * 1000),
        public_url: "https://hooks.example.com".into(),
    }
}

/// Appends and waits until it is durable.
fn commit(log: &dyn EventLog, event: NewEvent) -> Appended {
    log.append(event).wait().expect("a healthy log commits")
}

/// Everything that a reader yields up to the durable end.
fn drain(reader: &mut dyn EventReader) -> Vec<StoredEvent> {
    let mut events = Vec::new();
    while let Some(event) = reader.next().expect("a healthy log reads") {
        events.push(event);
    }
    events
}

fn read(log: &dyn EventLog, scope: Scope, start: Start, filter: Filter) -> Vec<StoredEvent> {
    drain(&mut *log.reader(scope, start, filter).expect("a healthy log reads"))
}

fn everything(log: &dyn EventLog) -> Vec<StoredEvent> {
    read(log, Scope::Operator, Start::Earliest, Filter::default())
}

/// Looks at a log, and looks again after it was opened anew.
fn now_and_reopened(
    subject: &mut dyn Subject,
    clock: &Arc<ManualClock>,
    log: Arc<dyn EventLog>,
    look: impl Fn(&dyn EventLog),
) {
    look(&*log);
    drop(log);
    look(&*subject.open(Arc::clone(clock)));
}

/// Is this the event that was appended, in every field?
fn assert_same(stored: &StoredEvent, new: &NewEvent) {
    assert_eq!(stored.id, new.id);
    assert_eq!(stored.tenant, new.tenant);
    assert_eq!(stored.endpoint, new.endpoint);
    assert_eq!(stored.received_unix_ms, new.received_unix_ms);
    assert_eq!(stored.peer, new.peer);
    assert_eq!(*stored.method, *new.method);
    assert_eq!(stored.target, new.target);
    assert_eq!(stored.headers, new.headers);
    assert_eq!(stored.body, new.body);
    assert_eq!(*stored.scheme, *new.scheme);
    assert_eq!(*stored.secret, *new.secret);
    assert_eq!(stored.delivery_id, new.delivery_id);
    assert_eq!(stored.class, new.class);
    assert_eq!(stored.signed_at_unix_ms, new.signed_at_unix_ms);
    assert_eq!(*stored.public_url, *new.public_url);
    assert_eq!(stored.node, NODE);
}

/// Ids, for comparing what was read with what was appended.
fn ids(events: &[StoredEvent]) -> Vec<EventId> {
    events.iter().map(|event| event.id).collect()
}
