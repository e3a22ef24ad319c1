//! Calls that take units, wait for them, or are told when to come again.

use std::cmp::Reverse;
use std::collections::VecDeque;
use std::sync::atomic::Ordering;

use crate::quota::op::{Class, LEGS_MAX};

use super::cell::Standing;
use super::counters::add;
use super::held::Term;
use super::leases::{Common, Effects, Hold, Taken, Verdict};
use super::parked::{Parked, Reason};
use super::route::Route;
use super::shard::{NOWHERE, Place, Places, Shard, Timer};

/// How soon a call may come again that waited in vain for an answer that is under way.
const SLOW_MS: u64 = 100;

/// Whoever waits. Who is gone is not served.
pub trait Token {
    fn is_gone(&self) -> bool;
}

/// A tenant's calls that wait, of all its routes.
#[derive(Debug)]
pub(super) struct Queue<W> {
    /// Interactive ones, bulk ones; in the order in which they came.
    classes: [VecDeque<Waiter<W>>; 2],
    /// The timer that is set for it.
    wake_ms: u64,
}

#[derive(Debug)]
struct Waiter<W> {
    token: W,
    route: Route,
    class: Class,
    cost: u32,
    deadline_ms: u64,
}

/// A call, as the queue sees it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Call<'a> {
    pub(super) route: &'a Route,
    pub(super) class: Class,
    pub(super) cost: u32,
    pub(super) deadline_ms: u64,
}

#[derive(Debug, Clone, Copy)]
enum Attempt {
    Ready,
    Refused {
        leg: usize,
        until_ms: u64,
        reason: Reason,
    },
    /// These legs, as a set of bits.
    Missing(u8),
}

#[expect(clippy::large_enum_variant, reason = "moved once or twice; a box would be an allocation for each call")]
enum Served {
    Taken(Taken),
    Parked(Parked),
    /// Until something comes, or this moment.
    Waits(u64),
}

impl<W> Default for Queue<W> {
    fn default() -> Self {
        Self { classes: [VecDeque::new(), VecDeque::new()], wake_ms: u64::MAX }
    }
}

impl<W> Queue<W> {
    pub(super) fn len(&self) -> usize {
        self.classes.iter().map(VecDeque::len).sum()
    }
}

impl<W: Token> Shard<W> {
    /// Takes what a call needs, if it is there; else the call waits, if it may.
    pub(super) fn hold(
        &mut self,
        common: &Common,
        call: Call<'_>,
        now_ms: u64,
        token: impl FnOnce() -> W,
        effects: &mut Effects<W>,
    ) -> Hold {
        let places = self.places(call.route);
        let is_behind = self.arrive(&call, &places, now_ms);
        match self.attempt(&call, &places, now_ms) {
            Attempt::Ready if !is_behind => {
                let taken = self.take(&call, &places, now_ms);
                add(&common.counters.local, 1);
                self.prefetch(common, &call, &places, now_ms, effects);
                return Hold::Held(taken);
            }
            Attempt::Refused { leg, until_ms, reason }
                if until_ms > call.deadline_ms && !self.may_come_free(places[leg], reason) =>
            {
                let until_ms = self.release_of(&call, places[leg], leg, until_ms);
                return Hold::Parked(common.park(call.route, leg, until_ms, reason, now_ms));
            }
            Attempt::Ready | Attempt::Refused { .. } | Attempt::Missing(_) => {}
        }
        let mark = call.route.0.party.mark;
        let waiting = self.queues.get(&mark).map_or(0, Queue::len);
        let is_full = waiting >= common.settings.waiters_per_tenant
            || common.waiters.load(Ordering::Relaxed) >= common.settings.waiters;
        let places = if is_full { None } else { self.make(common, call.route, now_ms) };
        let Some(places) = places else {
            return Hold::Parked(common.park(call.route, 0, now_ms + SLOW_MS, Reason::Busy, now_ms));
        };
        self.enter(common, &call, &places, token(), now_ms);
        self.pump(common, mark, now_ms, effects);
        Hold::Waits
    }

    /// Counts that a call wants units; whether others of the tenant wait for one of the same leases, and are first.
    fn arrive(&mut self, call: &Call<'_>, places: &Places, now_ms: u64) -> bool {
        let mut is_behind = false;
        for (&place, station) in places.iter().zip(&call.route.0.legs) {
            let Some(cell) = self.cell_mut(place) else { continue };
            cell.pace.arrive(station.units(call.cost), now_ms);
            is_behind |= match call.class {
                Class::Interactive => cell.urgent > 0,
                Class::Bulk => cell.queued > 0,
            };
        }
        is_behind
    }

    fn attempt(&self, call: &Call<'_>, places: &Places, now_ms: u64) -> Attempt {
        let mut missing = 0;
        let mut refused: Option<(u64, usize, Reason)> = None;
        for (leg, (&place, station)) in places.iter().zip(&call.route.0.legs).enumerate() {
            let standing = match self.cell(place) {
                Some(cell) => {
                    let wants = (&*station.rule, station.units(call.cost));
                    cell.standing(wants, call.class, call.deadline_ms, now_ms)
                }
                None => match station.bucket.park(now_ms) {
                    Some((until_ms, why)) => Standing::Refused { until_ms, reason: Reason::Park(why) },
                    None => Standing::Missing,
                },
            };
            match standing {
                Standing::Ready => {}
                Standing::Missing => missing |= 1 << leg,
                Standing::Refused { until_ms, reason } => {
                    if refused.is_none_or(|(longest_ms, ..)| until_ms > longest_ms) {
                        refused = Some((until_ms, leg, reason));
                    }
                }
            }
        }
        match refused {
            Some((until_ms, leg, reason)) => Attempt::Refused { leg, until_ms, reason },
            None if missing == 0 => Attempt::Ready,
            None => Attempt::Missing(missing),
        }
    }

    fn take(&mut self, call: &Call<'_>, places: &Places, now_ms: u64) -> Taken {
        let mut terms = [Term::NONE; LEGS_MAX];
        for ((term, &place), station) in terms.iter_mut().zip(places).zip(&call.route.0.legs) {
            if let Some(cell) = self.cell_mut(place) {
                *term = cell.take(station.units(call.cost), now_ms);
            }
        }
        Taken { route: call.route.clone(), terms }
    }

    /// Asks for the next block of what is about to run out.
    fn prefetch(&mut self, common: &Common, call: &Call<'_>, places: &Places, now_ms: u64, effects: &mut Effects<W>) {
        let lead_ms = common.health.lead_ms();
        let stations = &call.route.0.legs;
        for leg in 0..stations.len() {
            if !self.cell(places[leg]).is_some_and(|cell| cell.is_running_out(lead_ms, now_ms)) {
                continue;
            }
            let mut legs = [(NOWHERE, 0); LEGS_MAX];
            let mut count = 0;
            for (other, station) in stations.iter().enumerate() {
                let is_same = std::sync::Arc::ptr_eq(&station.bucket.app, &stations[leg].bucket.app);
                let is_due = self.cell(places[other]).is_some_and(|cell| cell.is_running_out(lead_ms, now_ms));
                if is_same && is_due {
                    legs[count] = (places[other], 0);
                    count += 1;
                }
            }
            // No call waits for it: who needs it later asks again.
            let _is_asked = self.acquire(common, &legs[..count], call.class, now_ms, effects).is_ok();
        }
    }

    fn enter(&mut self, common: &Common, call: &Call<'_>, places: &Places, token: W, now_ms: u64) {
        self.count(call.route, call.class, call.cost, places, true);
        common.waiters.fetch_add(1, Ordering::Relaxed);
        let mark = call.route.0.party.mark;
        let Call { route, class, cost, deadline_ms } = *call;
        let waiter = Waiter { token, route: route.clone(), class, cost, deadline_ms };
        self.queues.entry(mark).or_default().classes[of(class)].push_back(waiter);
        self.wake(mark, deadline_ms.max(now_ms));
    }

    /// Notes on leases how much waiting calls need of them.
    fn count(&mut self, route: &Route, class: Class, cost: u32, places: &Places, is_more: bool) {
        for (&place, station) in places.iter().zip(&route.0.legs) {
            let units = station.units(cost);
            let Some(cell) = self.cell_mut(place) else { continue };
            let moved = |count: u32| if is_more { count.saturating_add(units) } else { count.saturating_sub(units) };
            cell.queued = moved(cell.queued);
            if class == Class::Interactive {
                cell.urgent = moved(cell.urgent);
            }
        }
    }

    pub(super) fn wake(&mut self, mark: u64, at_ms: u64) {
        if let Some(queue) = self.queues.get_mut(&mark)
            && at_ms < queue.wake_ms
        {
            queue.wake_ms = at_ms;
            self.timers.push(Reverse((at_ms, Timer::Queue(mark))));
        }
    }

    /// Serves a tenant's calls that wait, as far as that goes.
    pub(super) fn pump(&mut self, common: &Common, mark: u64, now_ms: u64, effects: &mut Effects<W>) {
        let Some(mut queue) = self.queues.remove(&mark) else { return };
        // Marks of a pass long ago are none of this one: leases begin at 0.
        self.pass = self.pass.wrapping_add(1).max(1);
        if queue.wake_ms <= now_ms {
            queue.wake_ms = u64::MAX;
        }
        let mut wake_ms = u64::MAX;
        for class in &mut queue.classes {
            for _ in 0..class.len() {
                let Some(waiter) = class.pop_front() else { break };
                let served =
                    if waiter.token.is_gone() { None } else { Some(self.serve(common, &waiter, now_ms, effects)) };
                let verdict = match served {
                    Some(Served::Waits(until_ms)) => {
                        wake_ms = wake_ms.min(until_ms);
                        class.push_back(waiter);
                        continue;
                    }
                    Some(Served::Taken(taken)) => Some(Verdict::Held(taken)),
                    Some(Served::Parked(parked)) => Some(Verdict::Parked(parked)),
                    None => None,
                };
                let places = self.places(&waiter.route);
                self.count(&waiter.route, waiter.class, waiter.cost, &places, false);
                common.waiters.fetch_sub(1, Ordering::Relaxed);
                if let Some(verdict) = verdict {
                    effects.verdicts.push((waiter.token, verdict));
                }
            }
        }
        if queue.len() > 0 {
            self.queues.insert(mark, queue);
            self.wake(mark, wake_ms);
        }
    }

    fn serve(&mut self, common: &Common, waiter: &Waiter<W>, now_ms: u64, effects: &mut Effects<W>) -> Served {
        let call =
            Call { route: &waiter.route, class: waiter.class, cost: waiter.cost, deadline_ms: waiter.deadline_ms };
        let places = self.places(call.route);
        let is_over = now_ms >= call.deadline_ms;
        let pass = self.pass;
        let is_blocked = |place: Place| self.cell(place).is_some_and(|cell| cell.blocked_in == pass);
        let attempt = match places[..call.route.len()].iter().position(|&place| is_blocked(place)) {
            Some(leg) if is_over => return Served::Parked(Self::too_slow(common, &call, leg, now_ms)),
            Some(_) => return Served::Waits(call.deadline_ms),
            None => self.attempt(&call, &places, now_ms),
        };
        match attempt {
            Attempt::Ready => {
                add(&common.counters.waited, 1);
                Served::Taken(self.take(&call, &places, now_ms))
            }
            Attempt::Refused { leg, until_ms, reason } => {
                self.refuse(common, &call, places[leg], leg, (until_ms, reason), now_ms)
            }
            Attempt::Missing(missing) => {
                let leg = missing.trailing_zeros() as usize;
                if is_over {
                    return Served::Parked(Self::too_slow(common, &call, leg, now_ms));
                }
                let asked = (call.route, call.class, call.cost);
                match self.ask_for(common, asked, &places, missing, now_ms, effects) {
                    Ok(()) => {
                        self.block(&places);
                        Served::Waits(call.deadline_ms)
                    }
                    Err((until_ms, reason)) => match self.take_reserve(common, &call, &places, missing, now_ms) {
                        Some(taken) => Served::Taken(taken),
                        None => self.refuse(common, &call, places[leg], leg, (until_ms, reason), now_ms),
                    },
                }
            }
        }
    }

    /// Who comes behind a call that waits for an answer takes none of its leases before it.
    fn block(&mut self, places: &Places) {
        let pass = self.pass;
        for &place in places {
            if let Some(cell) = self.cell_mut(place) {
                cell.blocked_in = pass;
            }
        }
    }

    fn refuse(
        &mut self,
        common: &Common,
        call: &Call<'_>,
        place: Place,
        leg: usize,
        no: (u64, Reason),
        now_ms: u64,
    ) -> Served {
        let (until_ms, reason) = no;
        let is_hopeless = until_ms > call.deadline_ms && !self.may_come_free(place, reason);
        if is_hopeless || now_ms >= call.deadline_ms {
            let until_ms = self.release_of(call, place, leg, until_ms);
            return Served::Parked(common.park(call.route, leg, until_ms, reason, now_ms));
        }
        let pass = self.pass;
        if let Some(cell) = self.cell_mut(place) {
            cell.blocked_in = pass;
        }
        // A little later for each tenant, so that they do not all come at once for the first unit of a release.
        Served::Waits((until_ms + common.random() % 8).min(call.deadline_ms).max(now_ms + 1))
    }

    fn may_come_free(&self, place: Place, reason: Reason) -> bool {
        matches!(reason, Reason::Denied(_)) && self.cell(place).is_some_and(super::cell::Cell::may_come_free)
    }

    fn release_of(&mut self, call: &Call<'_>, place: Place, leg: usize, until_ms: u64) -> u64 {
        let units = call.route.0.legs[leg].units(call.cost);
        self.cell_mut(place).map_or(until_ms, |cell| cell.release_of(units, until_ms))
    }

    fn too_slow(common: &Common, call: &Call<'_>, leg: usize, now_ms: u64) -> Parked {
        let (until_ms, reason) = if common.health.is_gone() {
            (common.health.shut_until_ms().max(now_ms + SLOW_MS), Reason::Gone)
        } else {
            (now_ms + SLOW_MS, Reason::Slow)
        };
        common.park(call.route, leg, until_ms, reason, now_ms)
    }

    /// While the centre is gone: what is missing from what is set aside, the rest from what is held.
    fn take_reserve(
        &mut self,
        common: &Common,
        call: &Call<'_>,
        places: &Places,
        missing: u8,
        now_ms: u64,
    ) -> Option<Taken> {
        let reserve = common.reserve.as_ref().filter(|_| common.health.is_gone())?;
        let reserved = reserve.take(common.holder, call, missing, now_ms)?;
        let mut terms = reserved;
        for (leg, station) in call.route.0.legs.iter().enumerate() {
            if missing & (1 << leg) == 0
                && let Some(cell) = self.cell_mut(places[leg])
            {
                terms[leg] = cell.take(station.units(call.cost), now_ms);
            }
        }
        add(&common.counters.reserve, 1);
        Some(Taken { route: call.route.clone(), terms })
    }
}

const fn of(class: Class) -> usize {
    match class {
        Class::Interactive => 0,
        Class::Bulk => 1,
    }
}
