//! Connections that carry many calls at a time: HTTP/2's.
//!
//! They are kept by the same [`Site`] as idle ones are, so nothing is shared that two calls over HTTP/1.1 would not have
//! used one after the other: never across tenants, credentials, exits, trust, or names, whatever a certificate covers
//! beside.
//!
//! A call asks for its [`Turn`]: a seat on a connection that is there, or to dial, or to wait for somebody who dials.
//! Waiting is for a site that speaks HTTP/2, or that nobody knows yet: there, a hundred calls at once would make a
//! hundred connections where one does. Where a site chose HTTP/1.1 the last time, nobody waits. It is bounded three
//! times: a call waits only while the connections under way will have a seat for it, no longer than it says itself
//! ([`Shares::turn`] with `is_patient` off never says wait), and whoever dials and is dropped wakes the others.
//!
//! Where every seat is taken, another connection is dialled, as HTTP/1.1 does for every call: in a queue, quick calls
//! would stand behind slow ones.
//!
//! Where there are too many sites or connections, those go that nobody uses (`room.rs`).

mod room;

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use domain::TenantId;
use outbound::VettedAddr;
use tokio::sync::Notify;
use tokio::sync::futures::OwnedNotified;
use tokio::time::Instant;

use super::{PoolSettings, Site};

/// A connection that many calls use.
pub trait Share: Send + Sync + 'static {
    /// Where it leads.
    fn address(&self) -> VettedAddr;
    /// When it was made.
    fn made(&self) -> Instant;
    /// Takes a seat, if there is one.
    fn sit(&self) -> Sat;
    /// Since when nobody sits on it; none while somebody does.
    fn idle_since(&self) -> Option<Instant>;
    /// How many can sit on it; none while its peer has not said yet.
    fn seats(&self) -> Option<usize>;
    /// Gives a seat back. One that waits is told by whoever calls this.
    fn rise(&self);
}

/// What came of asking for a seat.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sat {
    /// There it is.
    Down,
    /// All are taken.
    Full,
    /// Nobody sits down here any more.
    Closed,
}

/// A seat on a connection. Whoever drops it makes room for the next one.
pub struct Seat<T: Share> {
    share: Arc<T>,
    changed: Arc<Notify>,
}

/// What a call does to have a connection.
#[derive(Debug)]
pub enum Turn<T: Share> {
    /// It has one.
    Sit(Seat<T>),
    /// It dials.
    Dial(Dialling<T>),
    /// It waits until something changed, and asks again.
    Wait(Waiting<T>),
}

/// Somebody dials. Dropped without [`Dialling::sit`] or [`Dialling::alone`], it failed.
#[derive(Debug)]
pub struct Dialling<T: Share> {
    shares: Arc<Shares<T>>,
    site: Arc<Site>,
    changed: Arc<Notify>,
    /// Others may be waiting for it.
    is_counted: bool,
}

/// Somebody waits for who dials.
#[derive(Debug)]
pub struct Waiting<T: Share> {
    shares: Arc<Shares<T>>,
    site: Arc<Site>,
    changed: Option<OwnedNotified>,
}

/// The connections, by site.
pub struct Shares<T> {
    settings: PoolSettings,
    places: Mutex<Places<T>>,
}

struct Places<T> {
    by_site: HashMap<Arc<Site>, Place<T>>,
    connections: usize,
    is_closed: bool,
    /// When nothing was found that could go.
    sites_looked: Option<Instant>,
    connections_looked: Option<Instant>,
}

struct Place<T> {
    connections: Vec<Arc<T>>,
    /// What the destination chose the last time.
    is_http2: Option<bool>,
    /// How many calls a connection that is under way will carry.
    seats: usize,
    dialling: usize,
    waiting: usize,
    changed: Arc<Notify>,
    used: Instant,
}

/// A site that is kept in mind is some 300 bytes. Where there are more, those that nobody used for the longest time are
/// forgotten; while all are in use, calls to the others dial without asking.
const PLACES_MAX: usize = 16_384;
/// What is expected of a peer that has not said: RFC 9113, 6.5.2 asks for no fewer than 100, and we use no more than
/// [`SEATS_MAX`].
const SEATS_EXPECTED: usize = SEATS_MAX;
/// Calls on one connection at a time. What one connection may hold is divided among them.
pub const SEATS_MAX: usize = 64;

impl<T: Share> Shares<T> {
    /// None yet.
    pub fn new(settings: PoolSettings) -> Arc<Self> {
        let places = Places {
            by_site: HashMap::new(),
            connections: 0,
            is_closed: false,
            sites_looked: None,
            connections_looked: None,
        };
        Arc::new(Self { settings, places: Mutex::new(places) })
    }

    /// What a call to this site does next, which may use these addresses. One that is not patient any more is never told
    /// to wait.
    pub fn turn(
        self: &Arc<Self>,
        site: &Arc<Site>,
        addresses: &[VettedAddr],
        is_patient: bool,
        now: Instant,
    ) -> Turn<T> {
        let mut ended = Vec::new();
        let mut places = self.places();
        let turn = self.turn_in(&mut places, site, addresses, is_patient, now, &mut ended);
        // Closing sockets is for when nobody waits.
        drop(places);
        drop(ended);
        turn
    }

    fn turn_in(
        self: &Arc<Self>,
        places: &mut Places<T>,
        site: &Arc<Site>,
        addresses: &[VettedAddr],
        is_patient: bool,
        now: Instant,
        ended: &mut Vec<Arc<T>>,
    ) -> Turn<T> {
        if places.by_site.len() >= PLACES_MAX && !places.by_site.contains_key(site) {
            places.forget_some(PLACES_MAX, now, ended);
        }
        let is_full = places.by_site.len() >= PLACES_MAX;
        let place = match places.by_site.entry(Arc::clone(site)) {
            Entry::Occupied(place) => place.into_mut(),
            Entry::Vacant(_) if is_full => return self.dial_aside(site),
            Entry::Vacant(place) => place.insert(Place::new(now)),
        };
        place.used = now;
        let before = place.connections.len();
        let seat = place.sit(addresses, now, &self.settings, ended);
        places.connections -= before - place.connections.len();
        match seat {
            Some(seat) => Turn::Sit(seat),
            None if is_patient && place.will_have_room() => {
                // It is worth waiting only for a connection that will be kept.
                let has_room = places.make_room(&self.settings, now, ended);
                match places.by_site.get_mut(site) {
                    // What went may have been what there was to wait for.
                    Some(place) if has_room && place.will_have_room() => self.wait(site, place),
                    Some(place) => self.dial(site, place),
                    None => self.dial_aside(site),
                }
            }
            None => self.dial(site, place),
        }
    }

    fn wait(self: &Arc<Self>, site: &Arc<Site>, place: &mut Place<T>) -> Turn<T> {
        place.waiting += 1;
        // Made while nothing can change, so that no change is missed.
        let changed = Some(Arc::clone(&place.changed).notified_owned());
        Turn::Wait(Waiting { shares: Arc::clone(self), site: Arc::clone(site), changed })
    }

    fn dial(self: &Arc<Self>, site: &Arc<Site>, place: &mut Place<T>) -> Turn<T> {
        let is_counted = place.is_http2 != Some(false);
        place.dialling += usize::from(is_counted);
        let changed = Arc::clone(&place.changed);
        Turn::Dial(Dialling { shares: Arc::clone(self), site: Arc::clone(site), changed, is_counted })
    }

    /// Nobody else will know of it.
    fn dial_aside(self: &Arc<Self>, site: &Arc<Site>) -> Turn<T> {
        let (shares, site) = (Arc::clone(self), Arc::clone(site));
        Turn::Dial(Dialling { shares, site, changed: Arc::new(Notify::new()), is_counted: false })
    }

    /// Nobody new sits down on this one. Those who sit on it stay; it ends with the last of them.
    pub fn retire(&self, site: &Site, share: &Arc<T>) {
        let mut places = self.places();
        let Some(place) = places.by_site.get_mut(site) else { return };
        let at = place.connections.iter().position(|other| Arc::ptr_eq(other, share));
        let retired = at.map(|at| place.connections.remove(at));
        places.connections -= usize::from(retired.is_some());
        drop(places);
        drop(retired);
    }

    /// Drops what is too old, and forgets sites that nobody asked for lately. For a timer.
    pub fn reap(&self, now: Instant) {
        let PoolSettings { age_max, idle_max, .. } = self.settings;
        let mut places = self.places();
        let ended = places.remove_where(|_, share| has_ended(share, now, &self.settings));
        places.by_site.retain(|_, place| {
            let is_in_use = !place.connections.is_empty() || place.dialling > 0 || place.waiting > 0;
            is_in_use || now.duration_since(place.used) < age_max.max(idle_max)
        });
        drop(places);
        drop(ended);
    }

    /// Retires every connection of those tenants.
    pub fn close_tenants(&self, is_meant: impl Fn(&TenantId) -> bool) {
        let ended = self.places().remove_where(|site, _| is_meant(&site.tenant));
        drop(ended);
    }

    /// Retires every connection, and from now on whatever is dialled: for the end.
    pub fn close(&self) {
        let mut places = self.places();
        places.is_closed = true;
        let ended = places.remove_where(|_, _| true);
        drop(places);
        drop(ended);
    }

    /// Connections on which nobody sits.
    pub fn idle(&self) -> usize {
        let places = self.places();
        let all = places.by_site.values().flat_map(|place| &place.connections);
        all.filter(|share| share.idle_since().is_some()).count()
    }

    fn places(&self) -> MutexGuard<'_, Places<T>> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: Share> Place<T> {
    fn new(now: Instant) -> Self {
        Self {
            connections: Vec::new(),
            is_http2: None,
            seats: SEATS_EXPECTED,
            dialling: 0,
            waiting: 0,
            changed: Arc::new(Notify::new()),
            used: now,
        }
    }

    /// A seat on the first connection that has one, so that those behind it become idle and end. What has ended is
    /// taken out on the way.
    fn sit(
        &mut self,
        addresses: &[VettedAddr],
        now: Instant,
        settings: &PoolSettings,
        ended: &mut Vec<Arc<T>>,
    ) -> Option<Seat<T>> {
        let mut at = 0;
        while let Some(share) = self.connections.get(at) {
            let is_over = has_ended(&**share, now, settings);
            if !is_over && !addresses.contains(&share.address()) {
                at += 1;
                continue;
            }
            let sat = if is_over { Sat::Closed } else { share.sit() };
            match sat {
                Sat::Down => {
                    return Some(Seat { share: Arc::clone(share), changed: Arc::clone(&self.changed) });
                }
                Sat::Full => {
                    self.seats = share.seats().unwrap_or(self.seats).max(1);
                    at += 1;
                }
                Sat::Closed => ended.push(self.connections.remove(at)),
            }
        }
        None
    }

    /// Whether the connections that are under way will carry those who wait and one more. Each has somebody who dials it
    /// or has dialled it. One whose peer has not said how much it carries is still under way.
    fn will_have_room(&self) -> bool {
        let settling = self.connections.iter().filter(|share| share.seats().is_none()).count();
        self.is_http2 != Some(false) && (self.dialling + settling) * (self.seats - 1) > self.waiting
    }
}

impl<T: Share> Places<T> {
    /// Whether one more connection would be kept, for others to sit down on. Where there are too many, idle ones go.
    fn make_room(&mut self, settings: &PoolSettings, now: Instant, ended: &mut Vec<Arc<T>>) -> bool {
        if self.is_closed {
            return false;
        }
        if self.connections >= settings.total_max {
            self.retire_some(settings.total_max, now, ended);
        }
        self.connections < settings.total_max
    }

    fn remove_where(&mut self, is_out: impl Fn(&Site, &T) -> bool) -> Vec<Arc<T>> {
        let mut out = Vec::new();
        for (site, place) in &mut self.by_site {
            let all = std::mem::take(&mut place.connections).into_iter();
            let (gone, kept): (Vec<_>, Vec<_>) = all.partition(|share| is_out(site, share));
            place.connections = kept;
            out.extend(gone);
        }
        self.connections -= out.len();
        out
    }
}

impl<T: Share> Dialling<T> {
    /// Who is told when something changes for those who wait.
    pub fn changed(&self) -> &Arc<Notify> {
        &self.changed
    }

    /// The destination chose HTTP/2: here is the connection, on which the one who dialled has a seat already. Others sit
    /// down beside it, unless there are as many connections as may be kept, and somebody sits on each.
    pub fn sit(self, share: T) -> Seat<T> {
        let share = Arc::new(share);
        let mut places = self.shares.places();
        let mut ended = Vec::new();
        let has_room = places.make_room(&self.shares.settings, Instant::now(), &mut ended);
        if let Some(place) = places.by_site.get_mut(&self.site) {
            place.is_http2 = Some(true);
            if has_room && place.connections.len() < self.shares.settings.per_site_max {
                place.connections.push(Arc::clone(&share));
                places.connections += 1;
            }
        }
        drop(places);
        drop(ended);
        Seat { share, changed: Arc::clone(&self.changed) }
    }

    /// The destination chose HTTP/1.1: the connection is for one call at a time.
    pub fn alone(self) {
        if let Some(place) = self.shares.places().by_site.get_mut(&self.site) {
            place.is_http2 = Some(false);
        }
    }
}

impl<T: Share> Drop for Dialling<T> {
    fn drop(&mut self) {
        if !self.is_counted {
            return;
        }
        if let Some(place) = self.shares.places().by_site.get_mut(&self.site) {
            place.dialling -= 1;
        }
        self.changed.notify_waiters();
    }
}

impl<T: Share> Waiting<T> {
    /// Until something changed.
    pub async fn changed(mut self) {
        if let Some(changed) = self.changed.take() {
            changed.await;
        }
    }
}

impl<T: Share> Drop for Waiting<T> {
    fn drop(&mut self) {
        if let Some(place) = self.shares.places().by_site.get_mut(&self.site) {
            place.waiting -= 1;
        }
    }
}

impl<T: Share> Seat<T> {
    /// On a connection that nobody else sits down on.
    pub(crate) fn alone(share: T, changed: Arc<Notify>) -> Self {
        Self { share: Arc::new(share), changed }
    }

    /// The connection.
    pub fn share(&self) -> &Arc<T> {
        &self.share
    }
}

impl<T: Share> Drop for Seat<T> {
    fn drop(&mut self) {
        self.share.rise();
        self.changed.notify_one();
    }
}

impl<T: Share> fmt::Debug for Seat<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Seat").field("address", &self.share.address()).finish_non_exhaustive()
    }
}

impl<T> fmt::Debug for Shares<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shares").field("settings", &self.settings).finish_non_exhaustive()
    }
}

fn has_ended<T: Share>(share: &T, now: Instant, settings: &PoolSettings) -> bool {
    let is_old = now.duration_since(share.made()) >= settings.age_max;
    is_old || share.idle_since().is_some_and(|since| now.duration_since(since) >= settings.idle_max)
}

#[cfg(test)]
mod tests;
