//! Asking the centre for what is missing.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::quota::op::{Acquire, Body, Class, LEGS_MAX, Lessee, Op, Renew};

use super::counters::add;
use super::leases::{Common, Effects, Sending, Ticket};
use super::parked::Reason;
use super::route::Route;
use super::shard::{Place, Places, Shard};

/// How soon to look again where as many operations are under way as may be.
const BUSY_MS: u64 = 20;

/// An operation under way that replaces leases.
#[derive(Debug)]
pub(super) struct Ask {
    pub(super) op: Arc<Op>,
    /// In the order of the legs.
    pub(super) places: Vec<Place>,
    /// Units that were the least, by leg.
    pub(super) least: Vec<u32>,
    pub(super) class: Class,
    /// The tenant's queue.
    pub(super) mark: u64,
    pub(super) attempts: u8,
}

impl<W> Shard<W> {
    /// Asks for the legs of a route that are `missing`, as a set of bits: those of the first application of which any
    /// are; those of the next follow once these are there, so that a scarce address is not taken up by a call that
    /// cannot go. Nothing is done for legs about which an operation is under way already.
    pub(super) fn ask_for(
        &mut self,
        common: &Common,
        call: (&Route, Class, u32),
        places: &Places,
        missing: u8,
        now_ms: u64,
        effects: &mut Effects<W>,
    ) -> Result<(), (u64, Reason)> {
        let (route, class, cost) = call;
        let stations = &route.0.legs;
        let is_missing = |leg: usize| missing & (1 << leg) != 0;
        let Some(first) = (0..stations.len()).find(|&leg| is_missing(leg)) else { return Ok(()) };
        let app = &stations[first].bucket.app;
        let lead_ms = common.health.lead_ms();
        let mut legs = [(0, 0); LEGS_MAX];
        let mut count = 0;
        let mut is_needed = false;
        for (leg, station) in stations.iter().enumerate().filter(|(_, station)| Arc::ptr_eq(&station.bucket.app, app)) {
            let Some(cell) = self.cell(places[leg]).filter(|cell| !cell.is_asking) else { continue };
            if is_missing(leg) {
                is_needed = true;
                legs[count] = (places[leg], station.units(cost));
            } else if cell.is_running_out(lead_ms, now_ms) {
                legs[count] = (places[leg], 0);
            } else {
                continue;
            }
            count += 1;
        }
        if !is_needed {
            return Ok(());
        }
        self.acquire(common, &legs[..count], class, now_ms, effects)
    }

    /// One acquire of leases of one tenant at one application, each with the least that a call needs of it.
    pub(super) fn acquire(
        &mut self,
        common: &Common,
        legs: &[(Place, u32)],
        class: Class,
        now_ms: u64,
        effects: &mut Effects<W>,
    ) -> Result<(), (u64, Reason)> {
        self.admit(common, legs.iter().map(|&(place, _)| place), now_ms)?;
        let seq = common.next_seq();
        let mut parts = Vec::with_capacity(legs.len());
        let mut party = None;
        let mut app = None;
        for &(place, least) in legs {
            let Some(cell) = self.cell_mut(place) else { continue };
            parts.push(cell.leg(least, seq, common.settings.horizon_ms, now_ms));
            app = Some(Arc::clone(&cell.bucket.app));
            party = Some(Arc::clone(&cell.party));
        }
        let (Some(party), Some(app)) = (party, app) else { return Ok(()) };
        let lessee = Lessee { holder: common.holder, tenant: party.tenant.clone() };
        let body = Body::Acquire(Acquire { lessee, class, share: party.share, legs: parts });
        let op = Arc::new(Op { application: app.name.clone(), body });
        let (places, least) = legs.iter().copied().unzip();
        let ask = Ask { op, places, least, class, mark: party.mark, attempts: 0 };
        self.send(common, seq, ask, effects);
        Ok(())
    }

    /// A heartbeat of slots of one tenant at one application.
    pub(super) fn renew(
        &mut self,
        common: &Common,
        beats: &[(Place, u32)],
        now_ms: u64,
        effects: &mut Effects<W>,
    ) -> Result<(), (u64, Reason)> {
        self.admit(common, beats.iter().map(|&(place, _)| place), now_ms)?;
        let seq = common.next_seq();
        let mut legs = Vec::with_capacity(beats.len());
        let mut party = None;
        let mut app = None;
        for &(place, held) in beats {
            let Some(cell) = self.cell_mut(place) else { continue };
            legs.push(cell.beat(held, seq));
            app = Some(Arc::clone(&cell.bucket.app));
            party = Some(Arc::clone(&cell.party));
        }
        let (Some(party), Some(app)) = (party, app) else { return Ok(()) };
        let lessee = Lessee { holder: common.holder, tenant: party.tenant.clone() };
        let op = Arc::new(Op { application: app.name.clone(), body: Body::Renew(Renew { lessee, legs }) });
        let places = beats.iter().map(|&(place, _)| place).collect();
        let least = vec![0; beats.len()];
        let ask = Ask { op, places, least, class: Class::Bulk, mark: party.mark, attempts: 0 };
        self.send(common, seq, ask, effects);
        Ok(())
    }

    /// Whether an operation about these leases may be begun.
    fn admit(&self, common: &Common, places: impl Iterator<Item = Place>, now_ms: u64) -> Result<(), (u64, Reason)> {
        let mut cells = places.filter_map(|place| self.cell(place));
        if cells.any(|cell| cell.bucket.is_penalised.load(Ordering::Relaxed)) {
            // What the provider said first: else the centre grants what it would not if it knew.
            return Err((now_ms + BUSY_MS, Reason::Slow));
        }
        if common.asks.load(Ordering::Relaxed) >= common.settings.asks {
            return Err((now_ms + BUSY_MS, Reason::Busy));
        }
        common.health.admit(now_ms).map_err(|until_ms| (until_ms, Reason::Gone))
    }

    fn send(&mut self, common: &Common, seq: u64, ask: Ask, effects: &mut Effects<W>) {
        common.asks.fetch_add(1, Ordering::Relaxed);
        add(&common.counters.operations, 1);
        effects.sends.push(Sending { ticket: Ticket::ask(ask.mark, seq), op: Arc::clone(&ask.op) });
        self.asks.insert(seq, ask);
    }
}
