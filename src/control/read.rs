//! Reading the log into lines: the same for the control socket and for a directory that is read without a node.

use std::collections::VecDeque;

use data_encoding::BASE64;
use eventlog::holding::{Held, HoldingFilter, Status};
use eventlog::{Class, EventLog, EventReader, Filter, HeaderBlock, HoldingStore, ReadError, Scope, Start, StoredEvent};

use super::time::rfc3339;
use super::wire::{DeliveryId, EventLine, Find, HeldLine, PlaceLine, Query, Text, Which, Whose};

/// Where lines go. An error means that nobody wants more of them.
pub(crate) trait Sink {
    type Stop;

    fn take(&mut self, line: EventLine) -> Result<(), Self::Stop>;

    /// Everything that is durable was given; more may come. Blocks until it is time to look again.
    fn caught_up(&mut self) -> Result<(), Self::Stop>;
}

/// Why a read ended early.
#[derive(Debug)]
pub(crate) enum Ended<S> {
    /// The sink wants no more.
    Stopped(S),
    /// There is more, and it cannot be read: why, in a sentence.
    Unreadable(String),
}

impl<S> From<ReadError> for Ended<S> {
    fn from(error: ReadError) -> Self {
        Self::Unreadable(error.to_string())
    }
}

/// Reads events as `query` says. Blocks on the disk.
pub(crate) fn events<S: Sink>(log: &dyn EventLog, query: &Query, sink: &mut S) -> Result<(), Ended<S::Stop>> {
    let start = if query.which == Which::FollowFromNow { Start::Latest } else { Start::Earliest };
    let filter = Filter { endpoint: query.endpoint.clone(), from_unix_ms: query.since, until_unix_ms: query.until };
    let mut reader = log.reader(scope(&query.whose), start, filter)?;
    match query.which {
        Which::All => forward(&mut *reader, u64::MAX, query.whole, sink),
        Which::First(count) => forward(&mut *reader, count, query.whole, sink),
        Which::Newest(count) => newest(&mut *reader, count as usize, query.whole, sink),
        Which::Follow | Which::FollowFromNow => loop {
            forward(&mut *reader, u64::MAX, query.whole, sink)?;
            sink.caught_up().map_err(Ended::Stopped)?;
        },
    }
}

fn forward<S: Sink>(reader: &mut dyn EventReader, count: u64, whole: bool, sink: &mut S) -> Result<(), Ended<S::Stop>> {
    for _ in 0..count {
        let Some(event) = reader.next()? else { break };
        sink.take(line(&event, whole)).map_err(Ended::Stopped)?;
    }
    Ok(())
}

/// The log reads forward only: the newest are what is left in a ring when the end is reached.
fn newest<S: Sink>(
    reader: &mut dyn EventReader,
    count: usize,
    whole: bool,
    sink: &mut S,
) -> Result<(), Ended<S::Stop>> {
    let mut ring = VecDeque::new();
    while let Some(event) = reader.next()? {
        if ring.len() == count {
            ring.pop_front();
        }
        ring.push_back(line(&event, whole));
    }
    ring.into_iter().try_for_each(|line| sink.take(line)).map_err(Ended::Stopped)
}

/// Why there is nothing to say about held deliveries.
const HOLDING_OFF: &str = "the holding stream is switched off (holding.enabled)";

/// Reads held deliveries as `query` says. What is held is bounded, so that it can be gathered.
pub(crate) fn held<S: Sink>(store: Option<&HoldingStore>, query: &Query, sink: &mut S) -> Result<(), Ended<S::Stop>> {
    let store = store.ok_or_else(|| Ended::Unreadable(HOLDING_OFF.to_owned()))?;
    let filter = HoldingFilter {
        endpoint: query.endpoint.clone(),
        status: None,
        from_unix_ms: query.since,
        until_unix_ms: query.until,
    };
    let all = store.iter(&scope(&query.whose), &filter);
    let count = match query.which {
        Which::All => usize::MAX,
        Which::First(count) => usize::try_from(count).unwrap_or(usize::MAX),
        Which::Newest(count) => {
            let mut ring = VecDeque::new();
            for held in all {
                if ring.len() == count as usize {
                    ring.pop_front();
                }
                ring.push_back(held_line(&held?, query.whole));
            }
            return ring.into_iter().try_for_each(|line| sink.take(line)).map_err(Ended::Stopped);
        }
        Which::Follow | Which::FollowFromNow => {
            return Err(Ended::Unreadable("held deliveries cannot be followed".to_owned()));
        }
    };
    for held in all.take(count) {
        sink.take(held_line(&held?, query.whole)).map_err(Ended::Stopped)?;
    }
    Ok(())
}

/// Finds one held delivery, whole.
pub(crate) fn find_held(store: Option<&HoldingStore>, find: &Find) -> Result<Option<EventLine>, String> {
    let store = store.ok_or_else(|| HOLDING_OFF.to_owned())?;
    match store.by_id(&scope(&find.whose), find.id) {
        Ok(found) => Ok(found.map(|held| held_line(&held, true))),
        Err(ReadError::ScopeMismatch { .. }) => Ok(None),
        Err(error) => Err(error.to_string()),
    }
}

fn held_line(held: &Held, whole: bool) -> EventLine {
    let status = match held.status {
        Status::Pending => "pending",
        Status::Quarantined => "quarantined",
    };
    let reason = held.reason.to_string();
    EventLine {
        place: None,
        held: Some(HeldLine { status: status.to_owned(), reason }),
        secret: None,
        ..line(&held.delivery, whole)
    }
}

/// Finds one event, whole.
pub(crate) fn find(log: &dyn EventLog, find: &Find) -> Result<Option<EventLine>, String> {
    match log.by_id(&scope(&find.whose), find.id) {
        Ok(found) => Ok(found.map(|event| line(&event, true))),
        // Somebody else's: for whoever asks it is not there, and that there is one is nobody's business.
        Err(ReadError::ScopeMismatch { .. }) => Ok(None),
        Err(error) => Err(error.to_string()),
    }
}

fn scope(whose: &Whose) -> Scope {
    match whose {
        Whose::Tenant(tenant) => Scope::Tenant(tenant.clone()),
        Whose::AllTenants => Scope::Operator,
    }
}

/// An event in its stable form; `whole` adds headers and body.
fn line(event: &StoredEvent, whole: bool) -> EventLine {
    let class = match event.class {
        Class::Normal => "normal",
        Class::Bulk => "bulk",
    };
    EventLine {
        id: event.id,
        execution_id: event.id.execution(),
        tenant: event.tenant.clone(),
        endpoint: event.endpoint.clone(),
        received_at: rfc3339(event.received_unix_ms),
        place: Some(PlaceLine {
            node: event.node.0,
            epoch: event.epoch,
            sequence: event.sequence,
            position: event.position.to_string(),
            appended_at: rfc3339(event.appended_unix_ms),
            class: class.to_owned(),
        }),
        held: None,
        method: event.method.to_string(),
        target: Text::of(&event.target),
        peer: event.peer.to_string(),
        scheme: event.scheme.to_string(),
        secret: Some(event.secret.to_string()),
        delivery_id: event.delivery_id.as_ref().map(|id| DeliveryId { value: Text::of(&id.value), signed: id.signed }),
        signed_at: event.signed_at_unix_ms.map(rfc3339),
        public_url: event.public_url.to_string(),
        headers: whole.then(|| headers(&event.headers)),
        body_bytes: event.body.len() as u64,
        body: whole.then(|| BASE64.encode(&event.body)),
    }
}

fn headers(block: &HeaderBlock) -> Vec<(Text, Text)> {
    block.iter().map(|(name, value)| (Text::of(name), Text::of(value))).collect()
}
