//! The leases of some of the tenants, what is under way about them, and who waits for them.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use hashbrown::HashTable;

use crate::quota::op::LEGS_MAX;
use crate::shards::OwnKeys;

use super::ask::Ask;
use super::cell::Cell;
use super::leases::Common;
use super::queue::Queue;
use super::route::{Party, Route, Station};

/// A lease's place in its shard. It stays while anything is under way about it, or a call waits for it.
pub(super) type Place = u32;

/// No place: the lease is not there.
pub(super) const NOWHERE: Place = Place::MAX;

/// The places of a route's leases, by leg.
pub(super) type Places = [Place; LEGS_MAX];

/// Everything of one tenant is in one shard, so that all levels of a call are taken under one lock.
#[derive(Debug)]
pub(super) struct Shard<W> {
    table: HashTable<Place>,
    cells: Vec<Option<Box<Cell>>>,
    vacant: Vec<Place>,
    /// By the `seq` of their legs.
    pub(super) asks: HashMap<u64, Ask>,
    /// By the tenant's mark.
    pub(super) queues: OwnKeys<u64, Queue<W>>,
    pub(super) timers: BinaryHeap<Reverse<(u64, Timer)>>,
    /// Counts passes over queues, so that leases can be marked for the length of one.
    pub(super) pass: u32,
}

/// What is to be looked at when.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Timer {
    Cell(Place),
    Resend(u64),
    Queue(u64),
}

impl<W> Default for Shard<W> {
    fn default() -> Self {
        Self {
            table: HashTable::new(),
            cells: Vec::new(),
            vacant: Vec::new(),
            asks: HashMap::new(),
            queues: OwnKeys::default(),
            timers: BinaryHeap::new(),
            pass: 0,
        }
    }
}

impl<W> Shard<W> {
    /// Where the leases of a route are.
    pub(super) fn places(&self, route: &Route) -> Places {
        let mut places = [NOWHERE; LEGS_MAX];
        for (place, station) in places.iter_mut().zip(&route.0.legs) {
            *place = self.find(station, &route.0.party);
        }
        places
    }

    pub(super) fn find(&self, station: &Station, party: &Party) -> Place {
        let is_it = |&place: &Place| self.cell(place).is_some_and(|cell| cell.is_of(station, party));
        self.table.find(station.hash, is_it).copied().unwrap_or(NOWHERE)
    }

    /// The same, made where they are not yet; none if there is no room for one of them.
    pub(super) fn make(&mut self, common: &Common, route: &Route, now_ms: u64) -> Option<Places> {
        let mut places = self.places(route);
        for (place, station) in places.iter_mut().zip(&route.0.legs) {
            if *place == NOWHERE {
                *place = self.insert(common, station, &route.0.party, now_ms)?;
            } else if let Some(cell) = self.cell_mut(*place) {
                cell.refresh(station, &route.0.party);
            }
        }
        Some(places)
    }

    fn insert(&mut self, common: &Common, station: &Station, party: &Arc<Party>, now_ms: u64) -> Option<Place> {
        if common.cells.load(Ordering::Relaxed) >= common.settings.cells {
            return None;
        }
        let cell = Box::new(Cell::new(station, party, now_ms));
        let due_ms = cell.due_ms(common.settings.horizon_ms, common.health.lead_ms(), now_ms);
        let place = if let Some(place) = self.vacant.pop() {
            place
        } else {
            self.cells.push(None);
            Place::try_from(self.cells.len() - 1).ok()?
        };
        self.cells[place as usize] = Some(cell);
        let cells = &self.cells;
        let rehash = |&place: &Place| cells[place as usize].as_deref().map_or(0, |cell| cell.hash);
        self.table.insert_unique(station.hash, place, rehash);
        common.cells.fetch_add(1, Ordering::Relaxed);
        self.look_at(place, due_ms);
        Some(place)
    }

    /// Forgets a lease that nothing is under way about.
    pub(super) fn remove(&mut self, common: &Common, place: Place) {
        let Some(cell) = self.cells.get_mut(place as usize).and_then(Option::take) else { return };
        if let Ok(entry) = self.table.find_entry(cell.hash, |&other| other == place) {
            entry.remove();
        }
        self.vacant.push(place);
        common.cells.fetch_sub(1, Ordering::Relaxed);
    }

    /// Gives memory back of what was there and is no more.
    pub(super) fn shrink(&mut self) {
        if self.table.len() * 4 >= self.table.capacity() {
            return;
        }
        let cells = &self.cells;
        self.table.shrink_to_fit(|&place| cells[place as usize].as_deref().map_or(0, |cell| cell.hash));
        while self.cells.last().is_some_and(Option::is_none) {
            self.cells.pop();
        }
        let len = self.cells.len();
        self.vacant.retain(|&place| (place as usize) < len);
        self.cells.shrink_to_fit();
        self.vacant.shrink_to_fit();
        self.timers.shrink_to_fit();
    }

    pub(super) fn cell(&self, place: Place) -> Option<&Cell> {
        self.cells.get(place as usize)?.as_deref()
    }

    pub(super) fn cell_mut(&mut self, place: Place) -> Option<&mut Cell> {
        self.cells.get_mut(place as usize)?.as_deref_mut()
    }

    pub(super) fn cells(&self) -> impl Iterator<Item = (Place, &Cell)> {
        let numbered = self.cells.iter().enumerate();
        numbered.filter_map(|(at, cell)| Some((Place::try_from(at).ok()?, cell.as_deref()?)))
    }

    /// One more than the last place that there may be.
    pub(super) fn places_len(&self) -> Place {
        Place::try_from(self.cells.len()).unwrap_or(NOWHERE)
    }

    /// Looks at a lease at its next due time.
    pub(super) fn schedule(&mut self, common: &Common, place: Place, now_ms: u64) {
        let (horizon_ms, lead_ms) = (common.settings.horizon_ms, common.health.lead_ms());
        if let Some(cell) = self.cell(place) {
            let due_ms = cell.due_ms(horizon_ms, lead_ms, now_ms);
            self.look_at(place, due_ms);
        }
    }

    /// Sets a lease's timer, unless it is set for earlier. A lease has one; those that another one came before are
    /// ignored when they come up.
    pub(super) fn look_at(&mut self, place: Place, at_ms: u64) {
        if let Some(cell) = self.cell_mut(place)
            && at_ms < cell.timer_ms
        {
            cell.timer_ms = at_ms;
            self.timers.push(Reverse((at_ms, Timer::Cell(place))));
        }
    }

    pub(super) fn next_due_ms(&self) -> Option<u64> {
        self.timers.peek().map(|Reverse((due_ms, _))| *due_ms)
    }
}
