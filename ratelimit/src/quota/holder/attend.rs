//! What is done by the clock: blocks for longer, leases given back, heartbeats, memory.

use std::cmp::Reverse;
use std::sync::Arc;

use crate::quota::op::{Body, Class, GiveBack, LEGS_MAX, Lessee, Op};

use super::bucket::{App, Bucket};
use super::cell::{Care, Cell};
use super::counters::add;
use super::leases::{Common, Effects};
use super::queue::Token;
use super::shard::{Place, Shard, Timer};

/// Most timers of one look at a shard: whoever waits for its lock waits for a bounded time.
const TIMERS: usize = 512;

/// What the leases that were looked at need, before it is put together.
#[derive(Debug, Default)]
struct Round {
    asks: Vec<Place>,
    beats: Vec<(Place, u32)>,
    backs: Vec<Place>,
}

impl<W: Token> Shard<W> {
    /// Does what is due.
    pub(super) fn tick(&mut self, common: &Common, now_ms: u64, effects: &mut Effects<W>) {
        let mut round = Round::default();
        for _ in 0..TIMERS {
            let Some(&Reverse((due_ms, timer))) = self.timers.peek() else { break };
            if due_ms > now_ms {
                break;
            }
            self.timers.pop();
            match timer {
                Timer::Cell(place) => self.attend(common, place, due_ms, &mut round, now_ms),
                Timer::Resend(seq) => self.resend(common, seq, effects),
                Timer::Queue(mark) => self.pump(common, mark, now_ms, effects),
            }
        }
        self.finish(common, round, now_ms, effects);
    }

    fn attend(&mut self, common: &Common, place: Place, due_ms: u64, round: &mut Round, now_ms: u64) {
        let (horizon_ms, lead_ms) = (common.settings.horizon_ms, common.health.lead_ms());
        let Some(cell) = self.cell_mut(place).filter(|cell| cell.timer_ms == due_ms) else { return };
        cell.timer_ms = u64::MAX;
        match cell.care(horizon_ms, lead_ms, now_ms) {
            // The answer looks at it again.
            Care::None if cell.is_asking => return,
            Care::None => {}
            Care::Ask => return round.asks.push(place),
            Care::GiveBack => return round.backs.push(place),
            Care::Beat(held) => return round.beats.push((place, held)),
            Care::Drop => return self.remove(common, place),
        }
        self.schedule(common, place, now_ms);
    }

    fn finish(&mut self, common: &Common, mut round: Round, now_ms: u64, effects: &mut Effects<W>) {
        for group in self.groups(&mut round.asks, |&place| place) {
            let legs: Vec<(Place, u32)> = group.iter().map(|&place| (place, 0)).collect();
            if let Err((until_ms, _)) = self.acquire(common, &legs, Class::Interactive, now_ms, effects) {
                self.postpone(&group, until_ms);
            }
        }
        for group in self.groups(&mut round.beats, |&(place, _)| place) {
            if let Err((until_ms, _)) = self.renew(common, &group, now_ms, effects) {
                let places: Vec<Place> = group.iter().map(|&(place, _)| place).collect();
                self.postpone(&places, until_ms);
            }
        }
        for group in self.groups(&mut round.backs, |&place| place) {
            self.give_back(common, &group, now_ms);
        }
    }

    fn postpone(&mut self, places: &[Place], until_ms: u64) {
        for &place in places {
            self.look_at(place, until_ms);
        }
    }

    /// Groups of at most as many as one operation takes, each of one tenant at one application, without twins.
    fn groups<T: Copy>(&self, items: &mut Vec<T>, place_of: impl Fn(&T) -> Place) -> Vec<Vec<T>> {
        let key = |item: &T| self.cell(place_of(item)).map(|cell| (cell.party.mark, app_of(cell), place_of(item)));
        items.sort_by_key(&key);
        items.dedup_by_key(|item| place_of(item));
        let mut groups: Vec<Vec<T>> = Vec::new();
        let mut last = None;
        for &item in &*items {
            let of = key(&item).map(|(mark, app, _)| (mark, app));
            match groups.last_mut() {
                Some(group) if last == of && group.len() < LEGS_MAX => group.push(item),
                _ => groups.push(vec![item]),
            }
            last = of;
        }
        groups
    }

    fn give_back(&mut self, common: &Common, places: &[Place], now_ms: u64) {
        let mut legs = Vec::with_capacity(places.len());
        let mut of = None;
        for &place in places {
            if let Some(cell) = self.cell_mut(place)
                && let Some(unspent) = cell.give_back(now_ms)
            {
                add(&common.counters.returned_units, u64::from(unspent.units));
                of = Some((Arc::clone(&cell.bucket.app), cell.party.tenant.clone()));
                legs.push(unspent);
            }
            self.schedule(common, place, now_ms);
        }
        let Some((app, tenant)) = of else { return };
        let lessee = Lessee { holder: common.holder, tenant };
        let op = Op { application: app.name.clone(), body: Body::GiveBack(GiveBack { lessee, legs }) };
        common.tell.give_back(op, now_ms);
    }

    /// Everything that is left goes back: the node ends. What is in use stays.
    pub(super) fn close(&mut self, common: &Common, now_ms: u64) {
        let mut places: Vec<Place> = self.cells().map(|(place, _)| place).collect();
        for group in self.groups(&mut places, |&place| place) {
            self.give_back(common, &group, now_ms);
        }
    }

    /// The application's centre began another life: what was granted has to be told to it, within the time of a
    /// lease.
    pub(super) fn tell_all(&mut self, common: &Common, app: &Arc<App>, now_ms: u64) {
        for place in 0..self.places_len() {
            let Some(cell) = self.cell_mut(place) else { continue };
            if !Arc::ptr_eq(&cell.bucket.app, app) || (cell.rule.is_rate() && !cell.is_known()) {
                continue;
            }
            cell.is_to_tell = true;
            let spread_ms = (u64::from(cell.rule.lease_ms) / 4).max(1);
            self.look_at(place, now_ms + common.random() % spread_ms);
        }
    }

    /// Refusals of this bucket are over: who waits for it is looked at, at once.
    pub(super) fn forgive(&mut self, bucket: &Arc<Bucket>, now_ms: u64) {
        for place in 0..self.places_len() {
            if let Some(cell) = self.cell_mut(place).filter(|cell| Arc::ptr_eq(&cell.bucket, bucket)) {
                cell.forgive();
                let mark = cell.party.mark;
                self.wake(mark, now_ms);
            }
        }
    }
}

/// Which application a lease is of; only for telling apart.
fn app_of(cell: &Cell) -> usize {
    Arc::as_ptr(&cell.bucket.app).addr()
}
