//! Tunnels that are set up and ended, one after the other on each thread: connect, CONNECT, the head of the answer. Threads
//! that block, since one of them does little: it waits.
//!
//! One of sixteen is used, too: a greeting goes through, and the origin's comes back.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

use super::hello::{self, GREETING};
use super::names::{Places, TUNNEL_HOSTS, address_of, tunnel_host};
use super::proxies::Proxy;
use super::tls_client;
use crate::Result;
use crate::load::{Pace, histogram};

/// So many tunnels, of which one is used.
const USED_OF: u64 = 16;
/// Longest wait for whatever is waited for.
const PATIENCE: Duration = Duration::from_secs(10);
const HEAD_BYTES_MAX: usize = 8 << 10;
/// More failures than this are no benchmark.
const FAILED_MAX: u64 = 100;

/// Which port of a host of tunnels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum To {
    Greeting,
    Bulk,
}

/// Opens tunnels to the hosts of tunnels, each in its turn.
#[derive(Debug)]
pub(super) struct Opener {
    hosts: Vec<Host>,
    /// A proxy that knows CONNECT has answered when its head has come.
    connects: bool,
}

#[derive(Debug)]
struct Host {
    address: SocketAddr,
    head: Vec<u8>,
    hello: Vec<u8>,
}

impl Opener {
    pub(super) fn new(proxy: Option<&Proxy>, places: &Places, to: To) -> Result<Self> {
        let config = tls_client(&places.roots)?;
        let port = if to == To::Greeting { places.greeting } else { places.bulk };
        let fixed = proxy.and_then(|proxy| proxy.fixed);
        let host = |n| {
            let name = tunnel_host(n);
            let address = match (proxy, fixed) {
                (_, Some(fixed)) => {
                    if to == To::Greeting {
                        fixed.greeting
                    } else {
                        fixed.bulk
                    }
                }
                (Some(proxy), None) => proxy.proxy,
                (None, None) => (address_of(n), port).into(),
            };
            let proof = proxy.map(|proxy| proxy.proof("Proxy-Authorization: Bearer ")).unwrap_or_default();
            let head = format!("CONNECT {name}:{port} HTTP/1.1\r\nHost: {name}:{port}\r\n{proof}\r\n").into_bytes();
            Ok(Host { address, head, hello: hello::client_hello(&config, &name)? })
        };
        let hosts = (0..TUNNEL_HOSTS).map(host).collect::<Result<_>>()?;
        Ok(Self { hosts, connects: proxy.is_some() && fixed.is_none() })
    }

    fn host(&self, n: u64) -> &Host {
        &self.hosts[(n % TUNNEL_HOSTS) as usize]
    }

    /// A tunnel to the `n`th host, up to the point from which on it can be used.
    pub(super) fn open(&self, n: u64) -> Result<TcpStream> {
        let host = self.host(n);
        let mut stream = TcpStream::connect_timeout(&host.address, PATIENCE)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        if !self.connects {
            return Ok(stream);
        }
        stream.write_all(&host.head)?;
        let (mut head, mut length) = ([0; HEAD_BYTES_MAX], 0);
        loop {
            let count = stream.read(&mut head[length..])?;
            length += count;
            if head[..length].ends_with(b"\r\n\r\n") {
                break;
            }
            if count == 0 {
                return Err(format!("no head to CONNECT: {}", head[..length].escape_ascii()).into());
            }
        }
        if !head.starts_with(b"HTTP/1.1 200") {
            return Err(format!("refused: {}", head[..length].escape_ascii()).into());
        }
        Ok(stream)
    }

    /// Sends the greeting of the `n`th host.
    pub(super) fn greet(&self, n: u64, stream: &mut TcpStream) -> Result<()> {
        Ok(stream.write_all(&self.host(n).hello)?)
    }

    /// The same, and has it answered.
    pub(super) fn exchange(&self, n: u64, stream: &mut TcpStream) -> Result<()> {
        self.greet(n, stream)?;
        let mut answer = [0; GREETING.len()];
        stream.read_exact(&mut answer)?;
        if answer == GREETING { Ok(()) } else { Err("something else came through a tunnel".into()) }
    }
}

/// How set-ups are made.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) opener: Opener,
    /// At one time.
    pub(super) threads: usize,
    pub(super) pace: Pace,
    pub(super) warm_up: Duration,
    pub(super) measured: Duration,
}

/// What became of them, within the measured time.
#[derive(Debug)]
pub(super) struct Outcome {
    pub(super) made: u64,
    pub(super) failed: u64,
    /// The first failure.
    pub(super) why: Option<String>,
    pub(super) elapsed: Duration,
    /// Nanoseconds until the head of the answer, from when the set-up was due.
    pub(super) latency: Histogram<u64>,
}

/// Runs a plan. `edge` is called as the measured time begins and as it ends.
pub(super) fn run(plan: &Plan, mut edge: impl FnMut()) -> Result<Outcome> {
    let shared = Shared {
        stop: AtomicBool::new(false),
        next: AtomicU64::new(0),
        made: AtomicU64::new(0),
        failed: AtomicU64::new(0),
        why: Mutex::new(None),
        began: Instant::now(),
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..plan.threads).map(|_| scope.spawn(|| work(plan, &shared))).collect();
        std::thread::sleep(plan.warm_up);
        let (began, before) = (Instant::now(), shared.made.load(Ordering::Relaxed));
        edge();
        std::thread::sleep(plan.measured);
        let (elapsed, after) = (began.elapsed(), shared.made.load(Ordering::Relaxed));
        edge();
        shared.stop.store(true, Ordering::Relaxed);
        let mut latency = histogram();
        for worker in workers {
            latency.add(&worker.join().map_err(|_| "a load thread panicked")?)?;
        }
        let why = shared.why.lock().map_err(|_| "a load thread panicked")?.take();
        Ok(Outcome { made: after - before, failed: shared.failed.load(Ordering::Relaxed), why, elapsed, latency })
    })
}

struct Shared {
    stop: AtomicBool,
    next: AtomicU64,
    made: AtomicU64,
    failed: AtomicU64,
    why: Mutex<Option<String>>,
    began: Instant,
}

fn work(plan: &Plan, shared: &Shared) -> Histogram<u64> {
    let mut latency = histogram();
    let measured = shared.began + plan.warm_up..shared.began + plan.warm_up + plan.measured;
    while !shared.stop.load(Ordering::Relaxed) && shared.failed.load(Ordering::Relaxed) < FAILED_MAX {
        let n = shared.next.fetch_add(1, Ordering::Relaxed);
        let due = match plan.pace {
            Pace::Closed => Instant::now(),
            Pace::Open { per_second } => shared.began + Duration::from_secs_f64(n as f64 / per_second),
        };
        if due >= measured.end && matches!(plan.pace, Pace::Open { .. }) {
            break;
        }
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        let made = plan.opener.open(n).and_then(|mut stream| {
            let took = due.elapsed();
            if n.is_multiple_of(USED_OF) {
                plan.opener.exchange(n, &mut stream)?;
            }
            Ok(took)
        });
        match made {
            Ok(took) => {
                shared.made.fetch_add(1, Ordering::Relaxed);
                if measured.contains(&due) {
                    latency.saturating_record(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX));
                }
            }
            Err(error) => {
                shared.failed.fetch_add(1, Ordering::Relaxed);
                if let Ok(mut why) = shared.why.lock() {
                    why.get_or_insert_with(|| error.to_string());
                }
            }
        }
    }
    latency
}
