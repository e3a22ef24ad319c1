//! Local ports under pressure.
//!
//! A connection is told apart by its two addresses and its two ports. From one exit address to one destination socket
//! only the local port is left to differ, and there are 28,232 of them unless the operator says otherwise. Whoever runs
//! out is told late by the kernel, after a search through all of them that costs every thread of the machine. So
//! connections are counted here by exit address and destination, and above a share of the ports the next one is refused.
//!
//! What is counted is open connections, idle ones in the pool too. A connection that this side ended first keeps its port
//! for a minute (60 s, `TIME_WAIT`) and is not counted: whether the kernel reuses it earlier is a matter of its settings.
//! Where it does not, the kernel's own no has the same fault, `ConnectFault::PortsExhausted`, and is counted beside ours.
//!
//! [`PortCounting`] sits below the dialer, so that pools and tunnels count alike and each attempt of happy eyeballs does.

mod counting;
mod metrics;
mod range;

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

pub use counting::{PortCounting, Ported};
pub use metrics::PortMetrics;
pub use range::PortRange;

/// From where to where. Without an exit the kernel chooses, and chooses the same address each time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Route {
    exit: Option<IpAddr>,
    to: SocketAddr,
}

/// How much of its ports one route uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pressure {
    /// The exit address; none where the kernel chooses.
    pub exit: Option<IpAddr>,
    /// The destination.
    pub to: SocketAddr,
    /// Connections that are open or being opened.
    pub open: u32,
    /// How many may be.
    pub open_max: u32,
}

impl Pressure {
    /// From four fifths on: there is time left to add an exit address.
    pub fn is_near(&self) -> bool {
        u64::from(self.open) * 5 >= u64::from(self.open_max) * 4
    }
}

impl fmt::Display for Pressure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { to, open, open_max, .. } = self;
        match self.exit {
            Some(exit) => write!(f, "{open} of {open_max} local ports from {exit} to {to}"),
            None => write!(f, "{open} of {open_max} local ports to {to}"),
        }
    }
}

/// There is no room for another connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PortsFull {
    /// On this route.
    Route,
    /// On the node: it has connections to as many destinations as it may.
    Node,
}

/// Shards of the table: connections begin and end on every thread at once.
const SHARDS: usize = 16;

/// Counts connections by route. Holds only routes that have some: bounded by the connections that are open, and by
/// what it is given.
#[derive(Debug)]
pub struct Ports {
    open_max: AtomicU32,
    routes_max: usize,
    routes: AtomicUsize,
    refused: AtomicU64,
    refused_by_kernel: AtomicU64,
    hasher: RandomState,
    shards: [Mutex<HashMap<Route, u32>>; SHARDS],
}

/// One connection's port; given back when this is dropped.
#[derive(Debug)]
#[must_use = "the port is given back when this is dropped"]
pub struct Port {
    ports: Arc<Ports>,
    route: Route,
}

impl Ports {
    /// `percent` of the range may be in use on each route. `routes_max` is how many pairs of exit address and destination
    /// are kept in mind: as many as the process may have sockets is as many as there can be.
    pub fn new(range: PortRange, percent: u8, routes_max: usize) -> Arc<Self> {
        Arc::new(Self {
            open_max: AtomicU32::new(share(range, percent)),
            routes_max,
            routes: AtomicUsize::new(0),
            refused: AtomicU64::new(0),
            refused_by_kernel: AtomicU64::new(0),
            hasher: RandomState::new(),
            shards: std::array::from_fn(|_| Mutex::default()),
        })
    }

    /// Bounds anew what is opened from now on. What is open above the bound stays open.
    pub fn bound(&self, range: PortRange, percent: u8) {
        self.open_max.store(share(range, percent), Ordering::Relaxed);
    }

    /// How many connections one route may have.
    pub fn open_max(&self) -> u32 {
        self.open_max.load(Ordering::Relaxed)
    }

    /// Counts one more connection, or says what is used up; nothing is counted then.
    pub fn take(self: &Arc<Self>, exit: Option<IpAddr>, to: SocketAddr) -> Result<Port, PortsFull> {
        let route = Route { exit, to };
        let taken = self.count(route);
        if taken.is_err() {
            self.refused.fetch_add(1, Ordering::Relaxed);
        }
        taken.map(|()| Port { ports: Arc::clone(self), route })
    }

    fn count(&self, route: Route) -> Result<(), PortsFull> {
        match self.shard(route).entry(route) {
            Entry::Occupied(open) if *open.get() >= self.open_max() => Err(PortsFull::Route),
            Entry::Occupied(mut open) => {
                *open.get_mut() += 1;
                Ok(())
            }
            Entry::Vacant(open) => {
                // Threads that come at once may each see room for the last one: by so many it may be exceeded.
                if self.routes.load(Ordering::Relaxed) >= self.routes_max {
                    return Err(PortsFull::Node);
                }
                self.routes.fetch_add(1, Ordering::Relaxed);
                open.insert(1);
                Ok(())
            }
        }
    }

    /// Routes that have connections.
    pub fn routes(&self) -> usize {
        self.routes.load(Ordering::Relaxed)
    }

    /// How often there was no room by this count, since the start.
    pub fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    /// How often there was room by this count and the kernel had no port all the same, since the start.
    pub fn refused_by_kernel(&self) -> u64 {
        self.refused_by_kernel.load(Ordering::Relaxed)
    }

    /// Of each exit address the route under most pressure, the worst first, at most so many. It looks at each route that
    /// there is, while a sixteenth of them waits.
    pub fn worst(&self, exits_max: usize) -> Vec<Pressure> {
        let mut worst: HashMap<Option<IpAddr>, (u32, SocketAddr)> = HashMap::new();
        for shard in &self.shards {
            for (route, open) in lock(shard).iter() {
                let found = (*open, route.to);
                worst.entry(route.exit).and_modify(|most| *most = found.max(*most)).or_insert(found);
            }
        }
        let open_max = self.open_max();
        let pressure = |(exit, (open, to))| Pressure { exit, to, open, open_max };
        let mut worst: Vec<Pressure> = worst.into_iter().map(pressure).collect();
        worst.sort_unstable_by(|one, other| other.open.cmp(&one.open).then_with(|| one.exit.cmp(&other.exit)));
        worst.truncate(exits_max);
        worst
    }

    fn shard(&self, route: Route) -> MutexGuard<'_, HashMap<Route, u32>> {
        let place = usize::try_from(self.hasher.hash_one(route) % SHARDS as u64).unwrap_or_default();
        lock(&self.shards[place])
    }
}

impl Drop for Port {
    fn drop(&mut self) {
        if let Entry::Occupied(mut open) = self.ports.shard(self.route).entry(self.route) {
            if *open.get() > 1 {
                *open.get_mut() -= 1;
            } else {
                open.remove();
                self.ports.routes.fetch_sub(1, Ordering::Relaxed);
            }
        }
    }
}

/// At least one, or a range of one port would be no way out at all.
fn share(range: PortRange, percent: u8) -> u32 {
    (range.count() * u32::from(percent.min(100)) / 100).max(1)
}

/// Nothing in here can be left half done by a panic.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
