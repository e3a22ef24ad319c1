//! The load generator: threads of epoll over keep-alive HTTP/1.1 connections.
//!
//! - **Closed loop**: every connection sends its next request when the last one is answered. It finds the peak; its
//!   latencies say how long a full server takes, and nothing about how it would serve a given rate.
//! - **Open loop**: requests are due at fixed moments, whatever the server does. One that finds no free connection
//!   waits for one. Latency counts from the moment when it was *due*, so that a stall of the server is seen by every
//!   request that should have been sent during it, and not only by those that were: no coordinated omission. What was
//!   never answered counts with the time until the end.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

use crate::Result;
mod answer;
mod wire;
mod worker;

pub use wire::TlsTo;

/// What is sent, and what is to come back.
pub trait Requests: std::fmt::Debug + Send + Sync {
    /// Puts the `n`th request of the run into `out`.
    fn write(&self, n: u64, out: &mut Vec<u8>);

    /// Whether the body of a 2xx is the one that was asked for; `None` for one that came in chunks.
    fn is_right(&self, _body: Option<&[u8]>) -> bool {
        true
    }
}

/// How requests are paced.
#[derive(Debug, Clone, Copy)]
pub enum Pace {
    Closed,
    Open { per_second: f64 },
}

#[derive(Debug, Clone)]
pub struct Plan {
    pub target: SocketAddr,
    pub connections: usize,
    pub threads: usize,
    pub pace: Pace,
    /// Before anything is measured.
    pub warm_up: Duration,
    pub measured: Duration,
    pub requests: Arc<dyn Requests>,
    /// TLS on every connection.
    pub tls: Option<TlsTo>,
}

/// What came back within the measured time.
#[derive(Debug)]
pub struct Outcome {
    /// Answers that say the delivery was taken: 2xx.
    pub acknowledged: u64,
    /// Other answers, by status.
    pub refused: BTreeMap<u16, u64>,
    /// Answers of 2xx with a body that was not asked for.
    pub wrong: u64,
    /// Connections that failed or ended in the middle of a request.
    pub broken: u64,
    /// Connections that were made again, asked to by the server.
    pub reconnected: u64,
    /// Requests that were due and not answered when the run ended.
    pub unanswered: u64,
    pub elapsed: Duration,
    /// Nanoseconds, of acknowledged and of unanswered requests.
    pub latency: Histogram<u64>,
    /// How late the generator itself was with requests that had a free connection, in nanoseconds.
    pub lateness: Histogram<u64>,
}

impl Outcome {
    pub fn per_second(&self) -> f64 {
        self.acknowledged as f64 / self.elapsed.as_secs_f64()
    }

    pub fn latency_ms(&self, quantile: f64) -> f64 {
        self.latency.value_at_quantile(quantile) as f64 / 1e6
    }

    /// Ends the run where what is measured is not what was meant.
    pub fn check(&self, what: &str) -> Result<()> {
        let bad = self.broken + self.refused.values().sum::<u64>();
        if self.acknowledged == 0 || bad * 100 > self.acknowledged || self.wrong > 0 {
            return Err(format!(
                "{what}: {} acknowledged, {} wrong, {} broken, refused {:?}: this measures nothing",
                self.acknowledged, self.wrong, self.broken, self.refused
            )
            .into());
        }
        Ok(())
    }
}

/// Up to a minute, with three digits.
pub(crate) fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1_000, 60_000_000_000, 3).expect("the bounds are in order")
}

/// How long answers are waited for when the measured time is over.
const TAIL: Duration = Duration::from_secs(5);

/// Runs a plan. `edge` is called as the measured time begins and as it ends, to read the server's counters.
pub fn run(plan: &Plan, mut edge: impl FnMut()) -> Result<Outcome> {
    let shared = Shared {
        start: Barrier::new(plan.threads + 1),
        stop: AtomicBool::new(false),
        acknowledged: AtomicU64::new(0),
        next: AtomicU64::new(0),
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..plan.threads)
            .map(|index| {
                let shared = &shared;
                scope.spawn(move || worker::run(plan, index, shared))
            })
            .collect();
        shared.start.wait();
        std::thread::sleep(plan.warm_up);
        let (began, before) = (Instant::now(), shared.acknowledged.load(Ordering::Relaxed));
        edge();
        std::thread::sleep(plan.measured);
        let (elapsed, after) = (began.elapsed(), shared.acknowledged.load(Ordering::Relaxed));
        edge();
        shared.stop.store(true, Ordering::Relaxed);
        let mut outcome = Outcome {
            acknowledged: after - before,
            refused: BTreeMap::new(),
            wrong: 0,
            broken: 0,
            reconnected: 0,
            unanswered: 0,
            elapsed,
            latency: histogram(),
            lateness: histogram(),
        };
        for worker in workers {
            worker.join().map_err(|_| "a load thread panicked")??.add_to(&mut outcome);
        }
        Ok(outcome)
    })
}

/// What the threads of one run have in common.
#[derive(Debug)]
struct Shared {
    start: Barrier,
    stop: AtomicBool,
    acknowledged: AtomicU64,
    /// The number of the next request.
    next: AtomicU64,
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{Ipv4Addr, TcpListener, TcpStream};

    use super::*;
    use crate::hook::{Ring, Target};

    /// Answers every request with `status`; from `stall.0` on, for `stall.1`, it answers nothing at all.
    fn server(status: u16, stall: (Duration, Duration)) -> SocketAddr {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let began = Instant::now();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                std::thread::spawn(move || serve(stream, status, began, stall));
            }
        });
        address
    }

    fn serve(mut stream: TcpStream, status: u16, began: Instant, (from, span): (Duration, Duration)) {
        let mut request = Vec::new();
        let mut part = [0; 4_096];
        while let Ok(count @ 1..) = stream.read(&mut part) {
            request.extend_from_slice(&part[..count]);
            // The requests of these tests end with the last byte of their JSON.
            if request.ends_with(b"\"}") {
                request.clear();
                if (from..from + span).contains(&began.elapsed()) {
                    std::thread::sleep((from + span).saturating_sub(began.elapsed()));
                }
                let answer = format!("HTTP/1.1 {status} X\r\ncontent-length: 2\r\n\r\nok");
                if stream.write_all(answer.as_bytes()).is_err() {
                    return;
                }
            }
        }
    }

    fn plan(target: SocketAddr, pace: Pace) -> Plan {
        let targets = [Target { path: "/".into(), secret: "s".into() }];
        Plan {
            target,
            connections: 4,
            threads: 2,
            pace,
            warm_up: Duration::from_millis(100),
            measured: Duration::from_millis(1_500),
            requests: Arc::new(Ring::signed(10, &targets, "h", 256)),
            tls: None,
        }
    }

    #[test]
    fn a_stall_is_seen_by_every_request_that_was_due_in_it() {
        let stall = (Duration::from_millis(600), Duration::from_millis(500));
        let open = plan(server(202, stall), Pace::Open { per_second: 400.0 });
        let outcome = run(&open, || {}).unwrap();
        // 200 were due during the stall, and four connections could have carried one each.
        let slow = outcome.latency.len() - outcome.latency.count_between(0, 50_000_000);
        assert!(slow > 100, "{slow} of {}", outcome.latency.len());
        assert!((400..=601).contains(&outcome.latency.len()), "{}", outcome.latency.len());
        assert_eq!((outcome.broken, outcome.unanswered), (0, 0));
    }

    #[test]
    fn an_answer_that_never_comes_counts_with_the_time_until_the_end() {
        let stall = (Duration::from_millis(600), Duration::from_hours(1));
        let outcome = run(&plan(server(202, stall), Pace::Open { per_second: 400.0 }), || {}).unwrap();
        assert!(outcome.unanswered > 200, "{}", outcome.unanswered);
        assert!(outcome.latency_ms(0.99) > 1_000.0);
    }

    #[test]
    fn what_is_not_taken_is_not_acknowledged() {
        let never = (Duration::from_hours(1), Duration::ZERO);
        let mut edges = 0;
        let refused = run(&plan(server(503, never), Pace::Closed), || edges += 1).unwrap();
        assert_eq!((refused.acknowledged, edges), (0, 2));
        assert!(refused.refused[&503] > 100);
        assert!(refused.check("a server that refuses").is_err());
        let taken = run(&plan(server(200, never), Pace::Closed), || {}).unwrap();
        assert!(taken.acknowledged > 100 && taken.check("a server that takes").is_ok());
        assert!(taken.latency.len() >= taken.acknowledged / 2);
    }
}
