//! Local ports under pressure.
//!
//! A connection is told apart by its two addresses and its two ports. From one exit address to one destination socket
//! only the local port is left to differ, and there are 28,232 of them unless the operator says otherwise. Whoever runs
//! out is told late by the kernel, after a search through all of them that costs every thread of the machine. So
//! connections are counted here by exit address and destination, and from 95 % on the next one is refused.
//!
//! What is counted is open connections. A connection that this side ended first keeps its port for a minute (60 s,
//! `TIME_WAIT`) and is not counted: whether the kernel reuses it earlier is a matter of its settings. Where it does not,
//! the kernel's own no has the same fault, [`ConnectFault::PortsExhausted`].
//!
//! [`PortCounting`] sits below the dialer, so that pools and tunnels count alike and each attempt of happy eyeballs does.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fs;
use std::hash::{BuildHasher, RandomState};
use std::io::{self, ErrorKind, IoSlice};
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use outbound::Source;
use outbound::VettedAddr;
use outbound::dial::{Connect, ConnectFault, Connected, TcpConnector};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::tunnel::Side;

/// How many local ports a connection can leave from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PortRange(u32);

const RANGE: &str = "/proc/sys/net/ipv4/ip_local_port_range";
const RESERVED: &str = "/proc/sys/net/ipv4/ip_local_reserved_ports";

impl PortRange {
    /// What the kernel says now; it is the same range for IPv6. A kernel too old for reserved ports has none.
    pub fn of_the_system() -> io::Result<Self> {
        let reserved = fs::read_to_string(RESERVED).unwrap_or_default();
        Self::parse(&fs::read_to_string(RANGE)?, &reserved)
            .ok_or_else(|| io::Error::new(ErrorKind::InvalidData, format!("{RANGE} holds no range of ports")))
    }

    /// So many.
    pub fn of(count: u16) -> Self {
        Self(count.into())
    }

    /// How many there are.
    pub fn count(self) -> u32 {
        self.0
    }

    /// The range as two numbers, less what of it is reserved: numbers and ranges between commas.
    fn parse(range: &str, reserved: &str) -> Option<Self> {
        let (first, last) = range.trim().split_once(|between: char| between.is_ascii_whitespace())?;
        let (first, last): (u16, u16) = (first.parse().ok()?, last.trim().parse().ok()?);
        let mut count = (u32::from(last) + 1).checked_sub(first.into())?;
        for part in reserved.trim().split(',').filter(|part| !part.is_empty()) {
            let (from, to) = part.split_once('-').unwrap_or((part, part));
            let (from, to): (u16, u16) = (from.parse().ok()?, to.parse().ok()?);
            // What the kernel writes neither overlaps nor runs backwards.
            let (from, to) = (from.max(first), to.min(last));
            count = count.saturating_sub((u32::from(to) + 1).saturating_sub(from.into()));
        }
        (count > 0).then_some(Self(count))
    }
}

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
/// A route has this share of its ports. The kernel's search for one of the last is long.
const SHARE_PERCENT: u32 = 95;

/// Counts connections by route. Holds only routes that have some: bounded by the connections that are open, and by
/// what it is given.
#[derive(Debug)]
pub struct Ports {
    open_max: u32,
    routes_max: usize,
    routes: AtomicUsize,
    refused: AtomicU64,
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
    /// `routes_max` is how many pairs of exit address and destination are kept in mind: as many as the process may have
    /// sockets is as many as there can be.
    pub fn new(range: PortRange, routes_max: usize) -> Arc<Self> {
        Arc::new(Self {
            // At least one, or a range of one port would be no way out at all.
            open_max: (range.count() * SHARE_PERCENT / 100).max(1),
            routes_max,
            routes: AtomicUsize::new(0),
            refused: AtomicU64::new(0),
            hasher: RandomState::new(),
            shards: std::array::from_fn(|_| Mutex::default()),
        })
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
            Entry::Occupied(open) if *open.get() >= self.open_max => Err(PortsFull::Route),
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

    /// How often there was no room, since the start.
    pub fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    /// The routes under most pressure, the worst first, at most so many. It looks at each that there is.
    pub fn top(&self, count: usize) -> Vec<Pressure> {
        let mut top: Vec<Pressure> = Vec::new();
        for shard in &self.shards {
            let shard = lock(shard);
            top.extend(shard.iter().map(|(route, open)| Pressure {
                exit: route.exit,
                to: route.to,
                open: *open,
                open_max: self.open_max,
            }));
            drop(shard);
            top.sort_unstable_by(|one, other| other.open.cmp(&one.open).then_with(|| one.to.cmp(&other.to)));
            top.truncate(count);
        }
        top
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

/// Nothing in here can be left half done by a panic.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Connects as the connector that it wraps, where there is room.
#[derive(Debug, Clone)]
pub struct PortCounting<C = TcpConnector> {
    connector: C,
    ports: Arc<Ports>,
}

impl<C> PortCounting<C> {
    pub fn new(connector: C, ports: Arc<Ports>) -> Self {
        Self { connector, ports }
    }
}

impl<C: Connect> Connect for PortCounting<C> {
    type Stream = Ported<C::Stream>;

    async fn connect(&self, to: VettedAddr, from: Option<Source>) -> Result<Connected<Self::Stream>, ConnectFault> {
        let port = self.ports.take(from.map(|source| source.address), to.socket()).map_err(|full| match full {
            PortsFull::Route => ConnectFault::PortsExhausted,
            PortsFull::Node => ConnectFault::SocketsExhausted(ErrorKind::QuotaExceeded),
        })?;
        let Connected { stream, local } = self.connector.connect(to, from).await?;
        Ok(Connected { stream: Ported { stream, _port: port }, local })
    }
}

/// A connection, and the port that it holds.
#[derive(Debug)]
pub struct Ported<S> {
    // Dropped in this order: the port is free when the socket is closed.
    stream: S,
    _port: Port,
}

impl<S> Ported<S> {
    /// The connection itself.
    pub fn get_ref(&self) -> &S {
        &self.stream
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Ported<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, space: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, space)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Ported<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

impl<S: Side> Side for Ported<S> {
    fn abort(&mut self) {
        self.stream.abort();
    }
}

#[cfg(test)]
mod tests;
