//! The store itself: the journal and what is known of it.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::future::Future;
use std::ops::Bound;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use domain::{Clock, EndpointId, EventId, NodeId, TenantId};

use super::budget::{Budget, HoldingFull};
use super::record::{self, KIND_HELD, KIND_RESOLVED, Outcome, Status};
use super::{
    Held, HeldDeliveries, HoldingFilter, HoldingOpenError, HoldingSettings, HoldingStat, HoldingTrimError, NewHeld,
    ResolveError,
};
use crate::codec::{self, DecodeError};
use crate::embedded::place_of;
use crate::error::ReadError;
use crate::index::endpoint_key;
use crate::log::Scope;
use crate::position::{Lane, Position};
use crate::scope::Placed;
use crate::segment::{self, DamageKind, Entry, Journal, Payload, Record, Recovery, SegmentInfo, WhenFull};

/// How many deliveries are looked at in one go, with the lock that everybody at the door needs: some 50 µs.
const SLICE: usize = 512;

/// Where to go on, and the last place that counts.
pub(super) type PlaceRange = (Bound<segment::Position>, segment::Position);

/// Some of what is held.
#[derive(Debug)]
pub(super) struct Slice {
    pub(super) places: VecDeque<(segment::Position, EventId)>,
    pub(super) rest: Option<PlaceRange>,
}

#[derive(Debug)]
pub struct HoldingStore {
    pub(super) journal: Journal,
    lane: Lane,
    node: NodeId,
    age_ms: u64,
    bytes_max: u64,
    clock: Arc<dyn Clock>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    budget: Budget,
    held: HashMap<EventId, Entered>,
    /// Those that are durable, in the order in which they came; and all of them, by age.
    places: BTreeMap<segment::Position, EventId>,
    ages: BTreeSet<(u64, EventId)>,
    /// Appends whose outcome is not known yet, oldest first.
    appending: VecDeque<(EventId, segment::Append)>,
    /// The disk did not give all of the journal: there may be more that is held.
    is_partial: bool,
    stat: HoldingStat,
}

/// What is known of a held delivery.
#[derive(Debug, Clone)]
struct Entered {
    tenant: TenantId,
    endpoint: EndpointId,
    endpoint_key: u64,
    record_bytes: u64,
    received_unix_ms: u64,
    appended_unix_ms: u64,
    status: Status,
    /// `None` until it is durable: until then it is counted and not shown.
    position: Option<segment::Position>,
}

impl HoldingStore {
    /// Opens the stream and reads what it holds.
    pub fn open(settings: &HoldingSettings, clock: Arc<dyn Clock>) -> Result<(Self, Recovery), HoldingOpenError> {
        let options = segment::Options::new(settings.directory.clone(), Arc::clone(&clock));
        let options = segment::Options {
            segment_bytes: settings.segment_bytes,
            sync: settings.sync,
            // What is held must never push out anything, not even its own: the budgets say what it may take.
            when_full: WhenFull::Refuse,
            reserve_bytes: settings.reserve_bytes,
            storage: Arc::clone(&settings.storage),
            ..options
        };
        let (journal, recovery) = Journal::open(options)?;
        let state = State {
            budget: Budget::new(settings.limits),
            held: HashMap::new(),
            places: BTreeMap::new(),
            ages: BTreeSet::new(),
            appending: VecDeque::new(),
            is_partial: false,
            stat: HoldingStat { bytes_max: settings.limits.bytes_max, ..HoldingStat::default() },
        };
        let store = Self {
            journal,
            lane: Lane { class: "holding".into(), generation: 1, shard: 0 },
            node: settings.node,
            age_ms: u64::try_from(settings.age.as_millis()).unwrap_or(u64::MAX),
            bytes_max: settings.limits.bytes_max,
            clock,
            state: Mutex::new(state),
        };
        store.read_all();
        Ok((store, recovery))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Learns what the journal holds. What is damaged is not held any more: it was unverified at best.
    pub(super) fn read_all(&self) {
        let Ok(mut cursor) = self.journal.read(segment::Position::START) else {
            self.state().is_partial = true;
            return;
        };
        // By the time that trimming goes by: what is not taken up here is taken for dealt with there.
        let oldest = self.journal.trim_unix_ms().saturating_sub(self.age_ms);
        loop {
            match cursor.next_record() {
                Ok(Some(record)) => self.learn(&record, oldest),
                Ok(None) => return,
                Err(fault) => {
                    tracing::error!(%fault, "a part of the holding stream cannot be read and is passed over");
                    // A disk that gives something another time is not one that has lost it.
                    let damaged =
                        matches!(&fault, segment::ReadError::Damaged(damage) if damage.kind != DamageKind::Unreadable);
                    self.state().is_partial |= !damaged;
                    if !cursor.skip_damage() {
                        return;
                    }
                }
            }
        }
    }

    fn learn(&self, record: &Record, oldest_unix_ms: u64) {
        let state = &mut *self.state();
        match record.kind {
            KIND_HELD => match entered(record) {
                Ok((id, entered)) if self.is_young(record.position, record.time_unix_ms, oldest_unix_ms) => {
                    state.enter(id, entered);
                }
                Ok(_) => {}
                Err(fault) => tracing::error!(position = %record.position, %fault, "a held delivery does not read"),
            },
            KIND_RESOLVED => match record::decode_resolved(&record.payload) {
                Ok((id, _)) => drop(state.leave(id)),
                Err(fault) => tracing::error!(position = %record.position, %fault, "a tombstone does not read"),
            },
            kind => tracing::error!(position = %record.position, kind, "a record of an unknown kind is held"),
        }
    }

    /// Is what was appended there at that time, by the clock of then, within its age?
    fn is_young(&self, at: segment::Position, appended_unix_ms: u64, oldest_unix_ms: u64) -> bool {
        self.journal.latest_unix_ms(at.segment(), appended_unix_ms) >= oldest_unix_ms
    }

    /// Keeps a delivery, if there is room for it. Returns before it is durable.
    pub fn hold(&self, new: NewHeld) -> Result<(), HoldingFull> {
        let delivery = new.delivery;
        let mut head = record::held_prefix(new.status, new.reason);
        let event = codec::encode_head(&delivery, self.node).map_err(|_| HoldingFull::TooLarge)?;
        head.extend_from_slice(&event);
        let record_bytes = (head.len() + delivery.body.len()) as u64;
        let endpoint_key = endpoint_key(delivery.endpoint.as_str());
        let now = self.clock.unix_ms();

        let mut state = self.state();
        state.settle();
        if record_bytes > self.journal.payload_bytes_max() {
            state.stat.refused_other += 1;
            return Err(HoldingFull::TooLarge);
        }
        if state.held.contains_key(&delivery.id) {
            // The id was minted for this delivery: it is here already.
            return Ok(());
        }
        if let Err(refused) = state.budget.take(endpoint_key, record_bytes) {
            match refused {
                HoldingFull::Endpoint => state.stat.refused_endpoint += 1,
                HoldingFull::Node => state.stat.refused_node += 1,
                HoldingFull::TooLarge | HoldingFull::Unavailable { .. } => state.stat.refused_other += 1,
            }
            return Err(refused);
        }
        let append = self.journal.append(Entry {
            stream: 0,
            time_unix_ms: now,
            kind: KIND_HELD,
            payload: Payload { head, middle: delivery.body, ..Payload::default() },
            check: None,
        });
        state.count(new.status, 1);
        let entered = Entered {
            tenant: delivery.tenant,
            endpoint: delivery.endpoint,
            endpoint_key,
            record_bytes,
            received_unix_ms: delivery.received_unix_ms,
            appended_unix_ms: now,
            status: new.status,
            position: None,
        };
        state.insert(delivery.id, entered);
        state.appending.push_back((delivery.id, append));
        // A journal that refuses says so at once.
        state.settle_newest().map_err(|reason| HoldingFull::Unavailable { reason })
    }

    /// What is held now, in the order in which it came.
    pub fn iter(&self, scope: &Scope, filter: &HoldingFilter) -> HeldDeliveries<'_> {
        let mut state = self.state();
        state.settle();
        let last = state.places.last_key_value().map(|(position, _)| *position);
        drop(state);
        let range = last.map(|last| (Bound::Unbounded, last));
        HeldDeliveries { store: self, scope: scope.clone(), filter: filter.clone(), range, places: VecDeque::new() }
    }

    /// Places of what is wanted among the next few that are held, and where to go on. The lock is free between two
    /// slices: whoever is at the door needs it.
    pub(super) fn slice(&self, scope: &Scope, filter: &HoldingFilter, range: PlaceRange) -> Slice {
        let (from, last) = range;
        let mut slice = Slice { places: VecDeque::new(), rest: None };
        if matches!(from, Bound::Excluded(from) if from >= last) {
            return slice;
        }
        let state = self.state();
        for (nth, (position, id)) in state.places.range((from, Bound::Included(last))).enumerate() {
            if nth == SLICE {
                break;
            }
            if state.held.get(id).is_some_and(|entered| entered.is_wanted(scope, filter)) {
                slice.places.push_back((*position, *id));
            }
            slice.rest = Some((Bound::Excluded(*position), last));
        }
        slice
    }

    pub fn by_id(&self, scope: &Scope, id: EventId) -> Result<Option<Held>, ReadError> {
        let mut state = self.state();
        state.settle();
        let position = state.held.get(&id).and_then(|entered| entered.position);
        drop(state);
        position.map(|position| self.read(scope, position, id)).transpose()
    }

    pub(super) fn holds(&self, id: EventId) -> bool {
        self.state().held.contains_key(&id)
    }

    pub(super) fn read(&self, scope: &Scope, at: segment::Position, id: EventId) -> Result<Held, ReadError> {
        let position = Position { lane: self.lane.clone(), place: place_of(at) };
        let fault = |fault: segment::ReadError| match fault {
            segment::ReadError::Damaged(damage) => ReadError::Damaged {
                lane: self.lane.clone(),
                segment: damage.segment.to_string(),
                offset: damage.offset,
                reason: damage.kind.label().to_owned(),
            },
            other @ (segment::ReadError::Trimmed { .. }
            | segment::ReadError::NoSuchPosition(_)
            | segment::ReadError::Io { .. }) => {
                ReadError::Unreadable { lane: self.lane.clone(), reason: other.to_string() }
            }
        };
        let record = self.journal.read(at).map_err(fault)?.next_record().map_err(fault)?;
        let record = record
            .filter(|record| record.position == at && record.kind == KIND_HELD)
            .ok_or_else(|| ReadError::IndexMismatch { position: position.clone() })?;
        let (status, reason, event) = record::decode_held(&record.payload)
            .map_err(|fault| ReadError::NotAnEvent { position: position.clone(), fault })?;
        let placed = Placed {
            bytes: Bytes::copy_from_slice(event),
            position: position.clone(),
            appended_unix_ms: record.time_unix_ms,
            sequence: record.sequence,
        };
        if placed.view()?.id != id {
            return Err(ReadError::IndexMismatch { position });
        }
        Ok(Held { delivery: placed.open(scope)?, status, reason: reason.into() })
    }

    /// The delivery is dealt with. Returns when that is durable, and blocks until then; its budget is free from then
    /// on. A crash between a promotion's append and this leaves the delivery held and in the log, under one id: whoever
    /// promotes looks for it in the log first, since no reader would drop the second one.
    pub fn resolve(&self, id: EventId, outcome: Outcome) -> Result<(), ResolveError> {
        if !self.holds(id) {
            return Err(ResolveError::NotHeld(id));
        }
        let entry = Entry {
            stream: 0,
            time_unix_ms: self.clock.unix_ms(),
            kind: KIND_RESOLVED,
            payload: Payload::from(record::resolved(id, outcome)),
            check: None,
        };
        self.journal.append(entry).wait().map_err(crate::error::AppendError::from)?;
        self.state().leave(id);
        Ok(())
    }

    /// Lets go of what is over age, and of segments that hold nothing else.
    pub fn trim(&self) -> Result<u64, HoldingTrimError> {
        let oldest = self.journal.trim_unix_ms().saturating_sub(self.age_ms);
        let mut expired = 0;
        let mut from = Some(Bound::Unbounded);
        while let Some(here) = from {
            let (gone, next) = self.expire(oldest, here);
            expired += gone;
            from = next;
        }
        let front = self.front();
        self.journal.trim(oldest)?;
        if let Some(front) = front {
            self.journal.trim_before(front)?;
        }
        expired += self.let_go_of_trimmed();
        Ok(expired)
    }

    /// Looks at a few, from there on, that say that they are over age, and lets go of those that are: one that came under
    /// a clock that was behind is younger than it says. Also where to go on. The lock is free between two slices, as
    /// above.
    fn expire(&self, oldest_unix_ms: u64, from: Bound<(u64, EventId)>) -> (u64, Option<Bound<(u64, EventId)>>) {
        let mut state = self.state();
        state.settle();
        let ages = state.ages.range((from, Bound::Unbounded)).take_while(|(at, _)| *at < oldest_unix_ms);
        let looked_at: Vec<(u64, EventId)> = ages.take(SLICE).copied().collect();
        let mut gone = 0;
        for (at, id) in &looked_at {
            // What is not durable yet was appended just now.
            let position = state.held.get(id).and_then(|entered| entered.position);
            if position.is_some_and(|position| !self.is_young(position, *at, oldest_unix_ms)) {
                state.leave(*id);
                gone += 1;
            }
        }
        state.stat.expired += gone;
        (gone, looked_at.last().map(|last| Bound::Excluded(*last)))
    }

    /// Lets go of what is not there any more. A delivery that came under a clock that was ahead says for years that it is
    /// within its age; its segment goes by the time of those behind it.
    fn let_go_of_trimmed(&self) -> u64 {
        let Some(oldest) = self.journal.segments().first().map(SegmentInfo::first) else { return 0 };
        let mut gone = 0;
        loop {
            let mut state = self.state();
            let trimmed: Vec<EventId> = state.places.range(..oldest).take(SLICE).map(|(_, id)| *id).collect();
            for id in &trimmed {
                state.leave(*id);
            }
            state.stat.expired += trimmed.len() as u64;
            gone += trimmed.len() as u64;
            if trimmed.len() < SLICE {
                return gone;
            }
        }
    }

    /// The place in front of everything that is held: segments before it go although they are young, since all in
    /// them was dealt with. `None` if something is not durable yet, and may lie anywhere, or if not all is known.
    pub(super) fn front(&self) -> Option<segment::Position> {
        let mut state = self.state();
        state.settle();
        if !state.appending.is_empty() || state.is_partial {
            return None;
        }
        let first = state.places.first_key_value().map(|(position, _)| *position);
        // Asked while nothing can be held: whatever is held from here on lies behind it.
        Some(first.unwrap_or_else(|| self.journal.durable()))
    }

    pub fn stat(&self) -> HoldingStat {
        let mut state = self.state();
        state.settle();
        HoldingStat {
            endpoints: state.budget.endpoints() as u64,
            bytes: state.budget.node_bytes(),
            bytes_max: self.bytes_max,
            ..state.stat
        }
    }

    /// Makes durable what waits, then takes nothing more.
    pub fn close(&self) {
        self.journal.close();
    }
}

/// What a held record says, and how it is counted.
fn entered(record: &Record) -> Result<(EventId, Entered), DecodeError> {
    let (status, _, event) = record::decode_held(&record.payload)?;
    let view = codec::decode_event(event)?;
    let name = |field| move |_| DecodeError::Invalid { field };
    let entered = Entered {
        tenant: TenantId::parse(view.tenant).map_err(name("tenant"))?,
        endpoint: EndpointId::parse(view.endpoint).map_err(name("endpoint"))?,
        endpoint_key: endpoint_key(view.endpoint),
        record_bytes: record.payload.len() as u64,
        received_unix_ms: view.received_unix_ms,
        appended_unix_ms: record.time_unix_ms,
        status,
        position: Some(record.position),
    };
    Ok((view.id, entered))
}

impl Entered {
    fn is_wanted(&self, scope: &Scope, filter: &HoldingFilter) -> bool {
        let of_scope = match scope {
            Scope::Tenant(tenant) => self.tenant == *tenant,
            Scope::Operator => true,
        };
        of_scope
            && filter.endpoint.as_ref().is_none_or(|endpoint| self.endpoint == *endpoint)
            && filter.status.is_none_or(|status| self.status == status)
            && filter.from_unix_ms.is_none_or(|from| self.received_unix_ms >= from)
            && filter.until_unix_ms.is_none_or(|until| self.received_unix_ms < until)
    }
}

impl State {
    /// Enters what is on disk already.
    fn enter(&mut self, id: EventId, entered: Entered) {
        self.leave(id);
        self.budget.force(entered.endpoint_key, entered.record_bytes);
        self.count(entered.status, 1);
        self.insert(id, entered);
    }

    fn insert(&mut self, id: EventId, entered: Entered) {
        self.ages.insert((entered.appended_unix_ms, id));
        if let Some(position) = entered.position {
            self.places.insert(position, id);
        }
        self.held.insert(id, entered);
    }

    fn leave(&mut self, id: EventId) -> bool {
        let Some(entered) = self.held.remove(&id) else { return false };
        self.ages.remove(&(entered.appended_unix_ms, id));
        if let Some(position) = entered.position {
            self.places.remove(&position);
        }
        self.budget.give_back(entered.endpoint_key, entered.record_bytes);
        self.count(entered.status, -1);
        true
    }

    fn count(&mut self, status: Status, by: i64) {
        let counter = match status {
            Status::Pending => &mut self.stat.pending,
            Status::Quarantined => &mut self.stat.quarantined,
        };
        *counter = counter.saturating_add_signed(by);
    }

    /// Takes up the outcomes of appends that are known by now. They come in order, so the first that is not stops it.
    fn settle(&mut self) {
        while let Some((id, append)) = self.appending.front_mut() {
            let mut context = Context::from_waker(Waker::noop());
            let Poll::Ready(outcome) = Pin::new(append).poll(&mut context) else { return };
            let id = *id;
            self.appending.pop_front();
            self.conclude(id, outcome).ok();
        }
    }

    /// The same for the append that was just made: one that was refused is known at once.
    fn settle_newest(&mut self) -> Result<(), String> {
        let Some((id, append)) = self.appending.back_mut() else { return Ok(()) };
        let mut context = Context::from_waker(Waker::noop());
        let Poll::Ready(outcome) = Pin::new(append).poll(&mut context) else { return Ok(()) };
        let id = *id;
        self.appending.pop_back();
        self.conclude(id, outcome)
    }

    fn conclude(
        &mut self,
        id: EventId,
        outcome: Result<segment::Appended, segment::AppendError>,
    ) -> Result<(), String> {
        match outcome {
            Ok(appended) => {
                if let Some(entered) = self.held.get_mut(&id) {
                    entered.position = Some(appended.position);
                    self.places.insert(appended.position, id);
                }
                Ok(())
            }
            Err(fault) => {
                self.leave(id);
                self.stat.refused_other += 1;
                Err(fault.to_string())
            }
        }
    }
}
