//! Idle connections, kept for those who may have them.
//!
//! A connection belongs to one [`Site`] and one vetted address. The site is everything that makes two connections
//! different to anybody who looks: whose it is, which credential goes over it, what its certificate was verified for,
//! whom it trusts, and from which address it leaves. Pools of HTTP clients know scheme and name, and hand the connection
//! that left from one tenant's exit, or was verified by one tenant's private roots, to the next.
//!
//! What is kept is not watched: nobody polls an idle connection, so it costs no task. Whoever takes it looks whether its
//! peer hung up meanwhile. It ends by [`Pool::reap`], by being the oldest where there are too many, or by
//! [`Pool::close`].
//!
//! Connections that many calls use at a time are kept beside, in `pool/shared.rs`.
//!
//! Every number is bounded: connections of one site, connections in all, how old one gets, how long it is idle.

mod shared;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use domain::{ConnectionId, TenantId};
use outbound::{Authority, Exit, Scheme, TlsClient, VettedAddr};
use tokio::time::Instant;

pub use shared::{Dialling, SEATS_MAX, Sat, Seat, Share, Shares, Turn, Waiting};

/// What two connections to one address have to have in common to be each other's.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Site {
    /// Whose it is.
    pub tenant: TenantId,
    /// Whose credential goes over it; none for requests that are merely forwarded.
    pub connection: Option<ConnectionId>,
    /// With or without TLS.
    pub scheme: Scheme,
    /// What a certificate was verified for.
    pub authority: Authority,
    /// From where it leaves.
    pub exit: Exit,
    /// Trust, identity and protocols. Equal only if they are the same one, which the pool keeps alive.
    pub tls: Option<TlsClient>,
}

/// Bounds of a pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolSettings {
    /// Idle connections of one site. Above what one tenant has under way to one place at a time, more are of no use.
    pub per_site_max: usize,
    /// Idle connections in all; each is a socket and some 20 KiB.
    pub total_max: usize,
    /// From when it was made. Peers move; whoever never dials again never notices.
    pub age_max: Duration,
    /// From when it was last used. Below what most servers wait (60 to 75 s), so that they seldom hang up first.
    pub idle_max: Duration,
}

impl Default for PoolSettings {
    fn default() -> Self {
        Self { per_site_max: 64, total_max: 4096, age_max: Duration::from_mins(10), idle_max: Duration::from_secs(45) }
    }
}

/// Idle connections `T`.
#[derive(Debug)]
pub struct Pool<T> {
    settings: PoolSettings,
    shelves: Mutex<Shelves<T>>,
}

/// A connection that is put back, or was.
#[derive(Debug)]
pub struct Pooled<T> {
    /// Where it leads.
    pub address: VettedAddr,
    /// When it was made.
    pub made: Instant,
    /// How long its peer says that it waits, if it says so.
    pub idle_max: Option<Duration>,
    /// The connection.
    pub item: T,
}

#[derive(Debug)]
struct Shelves<T> {
    by_site: HashMap<Arc<Site>, VecDeque<Idle<T>>>,
    /// By ticket, which is the order in which they were put back.
    order: BTreeMap<u64, Arc<Site>>,
    next_ticket: u64,
    is_closed: bool,
}

#[derive(Debug)]
struct Idle<T> {
    ticket: u64,
    since: Instant,
    pooled: Pooled<T>,
}

impl<T> Pool<T> {
    /// An empty one.
    pub fn new(settings: PoolSettings) -> Self {
        let shelves = Shelves { by_site: HashMap::new(), order: BTreeMap::new(), next_ticket: 0, is_closed: false };
        Self { settings, shelves: Mutex::new(shelves) }
    }

    /// The connection of this site that was used last, among those to one of these addresses. Those that are too old
    /// are dropped on the way.
    pub fn take(&self, site: &Site, addresses: &[VettedAddr], now: Instant) -> Option<Pooled<T>> {
        let mut ended = Vec::new();
        let mut shelves = self.shelves();
        let found = shelves.take(site, addresses, |idle| self.has_ended(idle, now), &mut ended);
        // Closing sockets is for when nobody waits.
        drop(shelves);
        drop(ended);
        found
    }

    /// Keeps it, unless it is too old already or the pool is closed. Where there are too many, the oldest goes.
    pub fn put(&self, site: &Arc<Site>, pooled: Pooled<T>, now: Instant) {
        let mut shelves = self.shelves();
        let idle = Idle { ticket: shelves.next_ticket, since: now, pooled };
        if shelves.is_closed || self.settings.total_max == 0 || self.has_ended(&idle, now) {
            drop(shelves);
            return;
        }
        shelves.next_ticket += 1;
        let ended = shelves.put(site, idle, &self.settings);
        drop(shelves);
        drop(ended);
    }

    /// Drops what is too old. For a timer: what is asked for is looked at anyway.
    pub fn reap(&self, now: Instant) {
        let ended = self.shelves().remove_where(|_, idle| self.has_ended(idle, now));
        drop(ended);
    }

    /// Drops every idle connection of those tenants.
    pub fn close_tenants(&self, is_meant: impl Fn(&TenantId) -> bool) {
        let ended = self.shelves().remove_where(|site, _| is_meant(&site.tenant));
        drop(ended);
    }

    /// Drops every idle connection. Those in use come back as before.
    pub fn close_idle(&self) {
        let ended = self.shelves().remove_where(|_, _| true);
        drop(ended);
    }

    /// Drops every idle connection, and from now on whatever is put back. For the end.
    pub fn close(&self) {
        self.shelves().is_closed = true;
        self.close_idle();
    }

    /// Idle connections.
    pub fn len(&self) -> usize {
        self.shelves().order.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn has_ended(&self, idle: &Idle<T>, now: Instant) -> bool {
        let idle_max = idle.pooled.idle_max.map_or(self.settings.idle_max, |said| said.min(self.settings.idle_max));
        now.duration_since(idle.pooled.made) >= self.settings.age_max || now.duration_since(idle.since) >= idle_max
    }

    fn shelves(&self) -> MutexGuard<'_, Shelves<T>> {
        self.shelves.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> Shelves<T> {
    fn take(
        &mut self,
        site: &Site,
        addresses: &[VettedAddr],
        has_ended: impl Fn(&Idle<T>) -> bool,
        ended: &mut Vec<Idle<T>>,
    ) -> Option<Pooled<T>> {
        let shelf = self.by_site.get_mut(site)?;
        let mut found = None;
        for at in (0..shelf.len()).rev() {
            let is_over = has_ended(&shelf[at]);
            if !is_over && !addresses.contains(&shelf[at].pooled.address) {
                continue;
            }
            let Some(idle) = shelf.remove(at) else { continue };
            self.order.remove(&idle.ticket);
            if is_over {
                ended.push(idle);
            } else {
                found = Some(idle.pooled);
                break;
            }
        }
        if shelf.is_empty() {
            self.by_site.remove(site);
        }
        found
    }

    /// What had to go for it.
    fn put(&mut self, site: &Arc<Site>, idle: Idle<T>, settings: &PoolSettings) -> Vec<Idle<T>> {
        let mut ended = Vec::new();
        self.order.insert(idle.ticket, Arc::clone(site));
        let shelf = self.by_site.entry(Arc::clone(site)).or_default();
        shelf.push_back(idle);
        if shelf.len() > settings.per_site_max
            && let Some(oldest) = shelf.pop_front()
        {
            self.order.remove(&oldest.ticket);
            ended.push(oldest);
        }
        if shelf.is_empty() {
            self.by_site.remove(site);
        }
        while self.order.len() > settings.total_max
            && let Some((_, site)) = self.order.pop_first()
        {
            // Within a site they stand in the order of their tickets, so the oldest of all is the first of its own.
            if let Some(shelf) = self.by_site.get_mut(&site) {
                ended.extend(shelf.pop_front());
                if shelf.is_empty() {
                    self.by_site.remove(&site);
                }
            }
        }
        ended
    }

    fn remove_where(&mut self, is_out: impl Fn(&Site, &Idle<T>) -> bool) -> Vec<Idle<T>> {
        let mut out = Vec::new();
        self.by_site.retain(|site, shelf| {
            let (gone, kept): (VecDeque<_>, VecDeque<_>) =
                std::mem::take(shelf).into_iter().partition(|idle| is_out(site, idle));
            *shelf = kept;
            out.extend(gone);
            !shelf.is_empty()
        });
        for idle in &out {
            self.order.remove(&idle.ticket);
        }
        out
    }
}

#[cfg(test)]
mod tests;
