//! Many callers of many tenants at once, over connections that are kept, with a book of what became of each call.
//!
//! Two kinds. A **steady** caller makes its calls at the moments at which they are due, whatever became of those before:
//! what it sees is what a user sees. A **greedy** one makes the next as soon as it has the last one's answer, from many
//! places at once; told when to come again it does that and no earlier.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::net::TcpStream;
use tokio::task::JoinSet;

use crate::call::{Said, exchange_within, governed};
use crate::patience::PATIENCE;

/// How long nobody is called that is not there.
const NOBODY: Duration = Duration::from_millis(50);
/// Longest time that somebody who was told to come again later stays away: a scenario is shorter than some windows.
const AWAY_MAX: Duration = Duration::from_secs(2);

/// Who calls what, and where.
#[derive(Debug, Clone)]
pub struct Caller {
    /// The name in the book.
    pub who: Arc<str>,
    /// The nodes, called in turn.
    pub nodes: Arc<[SocketAddr]>,
    /// As `/c/conn_…/…`.
    pub path: String,
    pub token: String,
    /// How long it asks to wait inside, in seconds.
    pub wait: Option<u32>,
    /// How long it waits for an answer.
    pub patience: Duration,
}

/// What became of a call.
#[derive(Debug, Clone)]
pub struct Called {
    pub who: Arc<str>,
    /// Its place among the nodes.
    pub node: usize,
    /// When it was due, since the beginning.
    pub at: Duration,
    /// From then to the answer.
    pub took: Duration,
    pub end: End,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum End {
    /// What the provider said; what it throttled is `Parked`.
    Answered(u16),
    /// Told to come again.
    Parked(Parked),
    /// Another refusal or fault of the proxy's.
    Refused { status: u16, code: String },
    /// No answer: nobody there, hung up.
    Broken,
    /// No answer within the caller's patience.
    GivenUp,
}

/// `Tidegate-Outcome: park; …`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parked {
    pub release: Duration,
    pub level: String,
    pub source: String,
}

/// Callers that are at it. Dropped, they go.
#[derive(Debug)]
pub struct Callers {
    began: Instant,
    stop: Arc<AtomicBool>,
    book: Arc<Mutex<Vec<Called>>>,
    tasks: JoinSet<()>,
}

/// Connections of a caller to a node that nobody uses at the moment.
type Idle = Mutex<Vec<(TcpStream, Vec<u8>)>>;

/// What all calls of a caller have in common.
#[derive(Debug)]
struct Line {
    caller: Caller,
    /// By node.
    idle: Vec<Idle>,
    request: Vec<u8>,
    began: Instant,
    stop: Arc<AtomicBool>,
    book: Arc<Mutex<Vec<Called>>>,
}

impl Default for Callers {
    fn default() -> Self {
        Self { began: Instant::now(), stop: Arc::default(), book: Arc::default(), tasks: JoinSet::new() }
    }
}

impl Callers {
    pub fn new() -> Self {
        Self::default()
    }

    /// Calls `per_second` times, evenly, from now on.
    pub fn steady(&mut self, caller: &Caller, per_second: f64) {
        let line = self.line(caller);
        self.tasks.spawn(async move {
            let (mut calls, gap) = (JoinSet::new(), Duration::from_secs_f64(1.0 / per_second));
            // Callers that begin together are apart all the same.
            let phase = gap.mul_f64(f64::from(phase_of(&line.caller.who)) / 256.0);
            let mut due = Instant::now() + phase;
            let mut turn = usize::from(phase_of(&line.caller.who));
            while !line.stop.load(Ordering::Relaxed) {
                tokio::time::sleep_until(due.into()).await;
                let (line, node) = (Arc::clone(&line), turn % line.caller.nodes.len());
                calls.spawn(async move {
                    line.call(node, due).await;
                });
                while calls.try_join_next().is_some() {}
                (due, turn) = (due + gap, turn + 1);
            }
            calls.join_all().await;
        });
    }

    /// Calls from so many places at once, without a pause.
    pub fn greedy(&mut self, caller: &Caller, at_once: usize) {
        let line = self.line(caller);
        for place in 0..at_once {
            let (line, node) = (Arc::clone(&line), place % line.caller.nodes.len());
            self.tasks.spawn(async move {
                while !line.stop.load(Ordering::Relaxed) {
                    let away = match line.call(node, Instant::now()).await {
                        End::Answered(_) => continue,
                        End::Parked(parked) => parked.release.min(AWAY_MAX),
                        End::Refused { .. } | End::Broken | End::GivenUp => NOBODY,
                    };
                    let until = Instant::now() + away;
                    while Instant::now() < until && !line.stop.load(Ordering::Relaxed) {
                        tokio::time::sleep(until.saturating_duration_since(Instant::now()).min(NOBODY)).await;
                    }
                }
            });
        }
    }

    /// One call.
    pub async fn once(&self, caller: &Caller) -> Called {
        let line = self.line(caller);
        let (at, began) = (self.began.elapsed(), Instant::now());
        let end = line.call(0, began).await;
        Called { who: Arc::clone(&caller.who), node: 0, at, took: began.elapsed(), end }
    }

    fn line(&self, caller: &Caller) -> Arc<Line> {
        let wait = caller.wait.map(|seconds| format!("Prefer: wait={seconds}\r\n")).unwrap_or_default();
        Arc::new(Line {
            idle: caller.nodes.iter().map(|_| Idle::default()).collect(),
            request: governed(&caller.path, &caller.token, &wait),
            caller: caller.clone(),
            began: self.began,
            stop: Arc::clone(&self.stop),
            book: Arc::clone(&self.book),
        })
    }

    /// Since the beginning.
    pub fn now(&self) -> Duration {
        self.began.elapsed()
    }

    pub fn so_far(&self) -> Vec<Called> {
        lock(&self.book).clone()
    }

    /// No more calls; those under way end. The book.
    pub async fn settle(self) -> Vec<Called> {
        self.stop.store(true, Ordering::Relaxed);
        self.tasks.join_all().await;
        std::mem::take(&mut *lock(&self.book))
    }
}

impl Line {
    async fn call(&self, node: usize, due: Instant) -> End {
        let end = self.made(node).await;
        let (who, at) = (Arc::clone(&self.caller.who), due.duration_since(self.began));
        let called = Called { who, node, at, took: due.elapsed(), end: end.clone() };
        lock(&self.book).push(called);
        end
    }

    async fn made(&self, node: usize) -> End {
        let kept = lock(&self.idle[node]).pop();
        let is_kept = kept.is_some();
        let (mut stream, mut read) = match kept {
            Some(kept) => kept,
            None => match self.open(node).await {
                Some(stream) => (stream, Vec::new()),
                None => return End::Broken,
            },
        };
        let mut said = exchange_within(self.caller.patience, &mut stream, &mut read, &self.request).await;
        if is_kept && matches!(said, Some(None)) {
            // It was hung up on while nobody looked, as clients find out at their next call.
            let Some(opened) = self.open(node).await else { return End::Broken };
            (stream, read) = (opened, Vec::new());
            said = exchange_within(self.caller.patience, &mut stream, &mut read, &self.request).await;
        }
        let Some(answered) = said else { return End::GivenUp };
        let Some(said) = answered else { return End::Broken };
        if !said.field("connection").is_some_and(|says| says.eq_ignore_ascii_case("close")) {
            lock(&self.idle[node]).push((stream, read));
        }
        End::of(&said)
    }

    async fn open(&self, node: usize) -> Option<TcpStream> {
        let opening = TcpStream::connect(self.caller.nodes[node]);
        let stream = tokio::time::timeout(PATIENCE, opening).await.ok()?.ok()?;
        stream.set_nodelay(true).ok()?;
        Some(stream)
    }
}

impl End {
    pub fn of(said: &Said) -> Self {
        if let Some(parked) = said.field("tidegate-outcome").and_then(Parked::parse) {
            return Self::Parked(parked);
        }
        match said.field("tidegate-send-state") {
            Some("response") => Self::Answered(said.status),
            _ => Self::Refused { status: said.status, code: said.code() },
        }
    }
}

impl Parked {
    fn parse(outcome: &str) -> Option<Self> {
        let rest = outcome.strip_prefix("park; ")?;
        let value = |name: &str| rest.split("; ").find_map(|part| part.strip_prefix(name)?.strip_prefix('='));
        let release = Duration::try_from_secs_f64(value("release")?.parse().ok()?).ok()?;
        Some(Self { release, level: value("level")?.to_owned(), source: value("source")?.to_owned() })
    }
}

/// How long so many thousandths of these took at most; zero of none.
pub fn quantile(times: impl IntoIterator<Item = Duration>, thousandths: usize) -> Duration {
    let mut times: Vec<Duration> = times.into_iter().collect();
    times.sort_unstable();
    let place = (times.len() * thousandths).div_ceil(1_000).saturating_sub(1);
    times.get(place).copied().unwrap_or_default()
}

/// A place within a period, the same for the same name.
fn phase_of(who: &str) -> u8 {
    who.bytes().fold(17, |sum: u8, byte| sum.wrapping_mul(31).wrapping_add(byte))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outcomes_are_read() {
        let parked = Parked::parse("park; release=12.034; level=app; source=quota").unwrap();
        assert_eq!((parked.release, &*parked.level, &*parked.source), (Duration::from_millis(12_034), "app", "quota"));
        assert_eq!(Parked::parse("done"), None);
    }

    #[test]
    fn quantiles_are_of_what_happened() {
        let times = (1..=100).map(Duration::from_millis);
        assert_eq!(quantile(times.clone(), 990), Duration::from_millis(99));
        assert_eq!(quantile(times, 1_000), Duration::from_millis(100));
        assert_eq!(quantile([], 500), Duration::ZERO);
    }
}
