//! Tunnels that stay: how much goes through them, and what they cost while nothing does.

use std::io::{ErrorKind, Read};
use std::net::TcpStream;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::hello::Blocks;
use super::proxies::Proxy;
use super::setups::Opener;
use crate::{Result, process};

const READ_BYTES: usize = 256 << 10;

/// Bytes that came, and how long that took.
#[derive(Debug)]
pub(super) struct Poured {
    pub(super) bytes: u64,
    pub(super) elapsed: Duration,
}

/// Lets the origin send through so many tunnels, and looks at what arrives: every block in its place.
pub(super) fn pour(
    opener: &Opener,
    tunnels: usize,
    warm_up: Duration,
    measured: Duration,
    mut edge: impl FnMut(),
) -> Result<Poured> {
    let (stop, arrived, start) = (AtomicBool::new(false), AtomicU64::new(0), Barrier::new(tunnels + 1));
    let take = |n: usize| -> Result<()> {
        let opened = opener.open(n as u64);
        // Whatever went wrong: the others wait for this thread.
        start.wait();
        let mut stream = opened?;
        opener.greet(n as u64, &mut stream)?;
        let (mut blocks, mut space) = (Blocks::default(), vec![0; READ_BYTES]);
        while !stop.load(Ordering::Relaxed) {
            let count = stream.read(&mut space)?;
            if count == 0 || !blocks.follow(&space[..count]) {
                return Err("a tunnel lost something".into());
            }
            arrived.fetch_add(count as u64, Ordering::Relaxed);
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let readers: Vec<_> = (0..tunnels).map(|n| scope.spawn(move || take(n))).collect();
        start.wait();
        std::thread::sleep(warm_up);
        let (began, before) = (Instant::now(), arrived.load(Ordering::Relaxed));
        edge();
        std::thread::sleep(measured);
        let (elapsed, after) = (began.elapsed(), arrived.load(Ordering::Relaxed));
        edge();
        stop.store(true, Ordering::Relaxed);
        for reader in readers {
            reader.join().map_err(|_| "a load thread panicked")??;
        }
        Ok(Poured { bytes: after - before, elapsed })
    })
}

/// Before the first is counted: what a proxy sets up once.
const WARMED: usize = 200;
/// Until what opening them took is given back, as far as it is.
const SETTLE: Duration = Duration::from_secs(3);

/// Memory of so many tunnels that carried a greeting in each direction and are silent since.
#[derive(Debug)]
pub(super) struct Idle {
    pub(super) tunnels: usize,
    pub(super) bytes_before: u64,
    pub(super) bytes_after: u64,
}

impl Idle {
    pub(super) fn bytes_each(&self) -> f64 {
        self.bytes_after.saturating_sub(self.bytes_before) as f64 / self.tunnels as f64
    }
}

/// Opens them, one after the other, and looks how much larger the proxy has become.
pub(super) fn idle(opener: &Opener, proxy: &Proxy, tunnels: usize) -> Result<Idle> {
    let open = |from: usize, count: usize| {
        (from..from + count).map(|n| {
            let mut stream = opener.open(n as u64)?;
            opener.exchange(n as u64, &mut stream)?;
            Ok(stream)
        })
    };
    let warmed = open(0, WARMED).collect::<Result<Vec<TcpStream>>>()?;
    std::thread::sleep(SETTLE);
    let bytes_before = process::family_resident_bytes(proxy.pid())?;
    let opened = open(WARMED, tunnels).collect::<Result<Vec<TcpStream>>>()?;
    std::thread::sleep(SETTLE);
    let bytes_after = process::family_resident_bytes(proxy.pid())?;
    // They are open until here, each of them.
    for stream in warmed.iter().chain(&opened) {
        stream.set_nonblocking(true)?;
        let is_silent = matches!(stream.peek(&mut [0]), Err(error) if error.kind() == ErrorKind::WouldBlock);
        if !is_silent {
            return Err("a tunnel did not stay open".into());
        }
    }
    Ok(Idle { tunnels, bytes_before, bytes_after })
}
