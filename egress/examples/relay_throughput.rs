//! How many bytes a second a tunnel carries over loopback, beside tokio's `copy_bidirectional` with buffers of 64 KiB,
//! and what an idle one costs: `relay_throughput [TUNNELS] [SECONDS] [ROUNDS]`.
//!
//! The two take turns, so that a machine that is shared with others is so for both.

#![allow(clippy::disallowed_methods, clippy::print_stdout, reason = "a measurement takes the real time and prints")]

use std::error::Error;
use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use outbound::{Host, HostName};
use tidegate_egress::tunnel::{Bounds, Content, Enforcement, Live, Tunnel};
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional_with_sizes};
use tokio::net::{TcpListener, TcpStream};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

type Failed = Box<dyn Error + Send + Sync>;

#[derive(Debug, Clone, Copy)]
enum Which {
    Ours,
    Tokios,
}

async fn connected(listener: &TcpListener) -> Result<(TcpStream, TcpStream), Failed> {
    let (near, far) = tokio::join!(TcpStream::connect(listener.local_addr()?), listener.accept());
    let (near, (far, _)) = (near?, far?);
    near.set_nodelay(true)?;
    far.set_nodelay(true)?;
    Ok((near, far))
}

/// A tunnel of that kind, and its two ends.
async fn opened(listener: &TcpListener, which: Which) -> Result<(TcpStream, TcpStream), Failed> {
    let (client, mut near) = connected(listener).await?;
    let (mut far, destination) = connected(listener).await?;
    tokio::spawn(async move {
        match which {
            Which::Ours => {
                let host = Host::Name(HostName::parse("api.example.com").expect("a name"));
                let (content, enforcement) = (Content::Anything, Enforcement::Refuse);
                let tunnel = Tunnel { host, content, enforcement, bounds: Bounds::default() };
                tunnel.run(near, far, &Live::new(())).await;
            }
            Which::Tokios => {
                let _ended = copy_bidirectional_with_sizes(&mut near, &mut far, 64 << 10, 64 << 10).await;
            }
        }
    });
    Ok((client, destination))
}

/// Bytes a second through so many tunnels, from the client to the destination.
async fn bulk(which: Which, tunnels: usize, length: Duration) -> Result<f64, Failed> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let arrived = Arc::new(AtomicU64::new(0));
    let mut tasks = Vec::new();
    for _ in 0..tunnels {
        let (mut client, mut destination) = opened(&listener, which).await?;
        tasks.push(tokio::spawn(async move {
            let block = vec![7; 256 << 10];
            while client.write_all(&block).await.is_ok() {}
        }));
        let arrived = Arc::clone(&arrived);
        tasks.push(tokio::spawn(async move {
            let mut block = vec![0; 256 << 10];
            while let Ok(count @ 1..) = destination.read(&mut block).await {
                arrived.fetch_add(count as u64, Ordering::Relaxed);
            }
        }));
    }
    tokio::time::sleep(Duration::from_millis(200)).await;
    let (from, began) = (arrived.load(Ordering::Relaxed), Instant::now());
    tokio::time::sleep(length).await;
    #[expect(clippy::cast_precision_loss, reason = "a rate")]
    let bytes = (arrived.load(Ordering::Relaxed) - from) as f64;
    let rate = bytes / began.elapsed().as_secs_f64();
    tasks.iter().for_each(tokio::task::JoinHandle::abort);
    // What they leave in the kernel is not to be the next one's burden.
    tokio::time::sleep(Duration::from_millis(500)).await;
    Ok(rate)
}

/// One byte there and back, in microseconds.
async fn round_trip(which: Which, length: Duration) -> Result<f64, Failed> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let (mut client, mut destination) = opened(&listener, which).await?;
    tokio::spawn(async move {
        while let Ok(byte) = destination.read_u8().await {
            if destination.write_u8(byte).await.is_err() {
                return;
            }
        }
    });
    let (began, mut count) = (Instant::now(), 0);
    while began.elapsed() < length {
        client.write_u8(1).await?;
        client.read_u8().await?;
        count += 1;
    }
    Ok(began.elapsed().as_secs_f64() * 1e6 / f64::from(count))
}

fn resident_kib() -> Result<u64, Failed> {
    let status = fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).ok_or("no VmRSS")?;
    Ok(line.split_whitespace().nth(1).ok_or("no number")?.parse()?)
}

/// Resident memory of one idle tunnel that has carried something, with the sockets of both of its ends, in KiB.
async fn idle(which: Which, tunnels: usize) -> Result<f64, Failed> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let before = resident_kib()?;
    let mut open = Vec::with_capacity(tunnels);
    for _ in 0..tunnels {
        let (mut client, mut destination) = opened(&listener, which).await?;
        client.write_all(&[7; 1000]).await?;
        destination.read_exact(&mut [0; 1000]).await?;
        open.push((client, destination));
    }
    #[expect(clippy::cast_precision_loss, reason = "a size")]
    Ok((resident_kib()?.saturating_sub(before)) as f64 / tunnels as f64)
}

#[tokio::main(worker_threads = 2)]
async fn main() -> Result<(), Failed> {
    let arguments: Vec<String> = std::env::args().collect();
    let number = |at: usize, default: u64| arguments.get(at).map_or(Ok(default), |text| text.parse::<u64>());
    let (tunnels, seconds, rounds) = (number(1, 1)?, number(2, 3)?, number(3, 3)?);
    let (tunnels, length) = (usize::try_from(tunnels)?, Duration::from_secs(seconds));
    for which in [Which::Ours, Which::Tokios] {
        println!("idle, {which:?}: {:.1} KiB each", idle(which, 1000).await?);
    }
    for _ in 0..rounds {
        let (ours, tokios) = (bulk(Which::Ours, tunnels, length).await?, bulk(Which::Tokios, tunnels, length).await?);
        println!(
            "bulk, {tunnels} tunnels: {:.2} GB/s, tokio {:.2}, ratio {:.3}",
            ours / 1e9,
            tokios / 1e9,
            ours / tokios
        );
        let (ours, tokios) = (round_trip(Which::Ours, length).await?, round_trip(Which::Tokios, length).await?);
        println!("round trip: {ours:.1} µs, tokio {tokios:.1}, ratio {:.3}", ours / tokios);
    }
    Ok(())
}
