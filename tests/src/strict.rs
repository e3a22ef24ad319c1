//! A provider that counts: an HTTPS server that holds its callers to limits to the letter, by its own clock, and notes
//! every call that arrives.
//!
//! It shares nothing with the product's counting. What it does at once ([`count`]) and what is said of it afterwards
//! ([`judge`]) are two computations of the same limits, from different ends: the one decides about a call when it comes,
//! the other looks at all that came, whether it was refused or not.
//!
//! A call is of a **scope**, the first segment of its path: the account at the provider. Limits of an application count
//! all scopes together. `?cost=N` in the target says what a call costs where points are counted; whoever calls may not
//! know it beforehand, and the answer's body says it.

mod count;
mod judge;
mod limit;
mod serve;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

use tokio::sync::oneshot;

use crate::appliance::own_address;
use crate::patience::PATIENCE;
use crate::random::Random;
use crate::world::certificate;

pub use judge::{Excess, Verdict};
pub use limit::{Kind, Level, Limit, Unit};

use count::Counter;

/// What a provider is like.
#[derive(Debug, Clone)]
pub struct Terms {
    pub limits: Vec<Limit>,
    /// How far its clock is ahead of ours, in ms; fixed windows begin by it.
    pub skew_ms: i64,
    /// Mean time from a call to its answer; half of it passes before the call is counted, each half with the long tail of
    /// an exponential distribution, cut off at six times its mean.
    pub latency: Duration,
    /// Whether answers say what is left, and not only refusals.
    pub tells: bool,
}

/// What becomes of calls while something is broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// This status, without a word of limits.
    Status(u16),
    /// The connection is reset instead of an answer.
    Resets,
    /// Nothing is answered, until the caller hangs up.
    Silence,
}

/// A call that arrived.
#[derive(Debug, Clone)]
pub struct Arrival {
    /// Since the provider's start, in ms.
    pub at_ms: u64,
    /// When it had its answer, likewise; none while it has not.
    pub ended_ms: Option<u64>,
    pub scope: String,
    /// Points.
    pub cost: u32,
    /// The limit by which it was refused.
    pub refused_by: Option<&'static str>,
    /// It was not answered as others are.
    pub is_broken: bool,
}

/// Runs until it is dropped.
#[derive(Debug)]
pub struct Strict {
    pub address: SocketAddr,
    /// The authority of its certificate, in PEM.
    pub authority: String,
    state: Arc<State>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct State {
    terms: Terms,
    started: Instant,
    /// By the provider's clock.
    started_unix_ms: u64,
    book: Mutex<Book>,
}

#[derive(Debug)]
struct Book {
    arrivals: Vec<Arrival>,
    counters: HashMap<(usize, String), Counter>,
    everybody: Option<Fault>,
    faults: HashMap<String, Fault>,
    random: Random,
}

/// What is decided about a call as it arrives.
struct Decision {
    place: usize,
    fault: Option<Fault>,
    /// By which limit it is refused, and when it may come again.
    refused: Option<(usize, u64)>,
    /// Of each limit, what is left.
    left: Vec<u64>,
}

impl Strict {
    pub fn start(terms: Terms) -> Self {
        let address = own_address();
        let (acceptor, authority) = certificate(&[&address.to_string()]);
        let skewed = |unix_ms: u64| unix_ms.saturating_add_signed(terms.skew_ms);
        let started_unix_ms = skewed(now_unix_ms());
        let book = Book {
            arrivals: Vec::new(),
            counters: HashMap::new(),
            everybody: None,
            faults: HashMap::new(),
            random: Random::seeded(1),
        };
        let state = Arc::new(State { terms, started: Instant::now(), started_unix_ms, book: Mutex::new(book) });
        let (stop, stopped) = oneshot::channel();
        let (ready, is_ready) = std::sync::mpsc::channel();
        let serving = Arc::clone(&state);
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(async move {
                let listener = tokio::net::TcpListener::bind((address, 0)).await.expect("a port of an address of ours");
                ready.send(listener.local_addr().expect("its address")).expect("somebody waits");
                tokio::select! {
                    () = serve::serve(listener, acceptor, serving) => {}
                    // Sent or gone: it is the end.
                    _ = stopped => {}
                }
            });
        });
        let address = is_ready.recv_timeout(PATIENCE).expect("it listens");
        Self { address, authority, state, stop: Some(stop), thread: Some(thread) }
    }

    /// Where the account of this name is.
    pub fn url(&self, scope: &str) -> String {
        format!("https://{}/{scope}", self.address)
    }

    /// `[quota]` of a manifest, as somebody would write it who read of these limits.
    pub fn profile(&self) -> String {
        let mut toml = String::from("[quota]\nchecked = \"2026-11-30\"\nsources = [\"https://example.com/limits\"]\n");
        toml.push_str("park = \"500ms\"\n");
        for limit in &self.state.terms.limits {
            toml.push_str(&limit.toml());
        }
        toml
    }

    /// From now on every call is broken, or none that is not of a broken scope.
    pub fn breaks(&self, fault: Option<Fault>) {
        self.state.book().everybody = fault;
    }

    /// The same of a scope.
    pub fn breaks_for(&self, scope: &str, fault: Option<Fault>) {
        let mut book = self.state.book();
        match fault {
            Some(fault) => book.faults.insert(scope.to_owned(), fault),
            None => book.faults.remove(scope),
        };
    }

    /// Somebody else uses up all that is left of the limits of a scope now: another program with the same credentials.
    pub fn is_used_up(&self, scope: &str) {
        let wall_ms = self.state.started_unix_ms + self.state.now_ms();
        let mut book = self.state.book();
        for (place, limit) in self.state.terms.limits.iter().enumerate() {
            let key = (place, limit.scope(scope).to_owned());
            let counter = book.counters.entry(key).or_insert_with(|| Counter::new(limit, wall_ms));
            let left = (0..=counter.left(limit)).rev().find(|units| counter.has_room(limit, wall_ms, *units).is_ok());
            counter.take(limit, wall_ms, left.unwrap_or_default());
        }
    }

    /// ms since its start, by which arrivals are noted.
    pub fn now_ms(&self) -> u64 {
        self.state.now_ms()
    }

    pub fn arrivals(&self) -> Vec<Arrival> {
        self.state.book().arrivals.clone()
    }

    /// How many calls arrived.
    pub fn count(&self) -> usize {
        self.state.book().arrivals.len()
    }

    /// How many calls of a scope arrived.
    pub fn count_of(&self, scope: &str) -> usize {
        self.state.book().arrivals.iter().filter(|arrival| arrival.scope == scope).count()
    }

    /// What is to be said of all that arrived.
    pub fn verdict(&self) -> Verdict {
        Verdict::of(&self.state.terms.limits, &self.arrivals(), self.state.started_unix_ms)
    }

    /// Units that were not refused and arrived from one moment to another, for how much of a limit is used.
    pub fn units_between(&self, limit: &str, from_ms: u64, to_ms: u64) -> u64 {
        let limit = self.state.terms.limits.iter().find(|other| other.name == limit).expect("a limit of this provider");
        let arrivals = self.arrivals();
        let within = arrivals.iter().filter(|one| (from_ms..to_ms).contains(&one.at_ms) && one.refused_by.is_none());
        within.map(|one| limit.units(one.cost)).sum()
    }
}

impl Drop for Strict {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // It has said why, if it ended badly.
            let _ = thread.join();
        }
    }
}

impl State {
    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).expect("a test does not take that long")
    }

    /// How long one half of an exchange takes, this time.
    fn half_latency(&self) -> Duration {
        let mean = self.terms.latency / 2;
        let part = self.book().random.within(1, 1_000_001);
        #[expect(clippy::cast_precision_loss, reason = "a million is exact")]
        let times = -(part as f64 / 1_000_000.0).ln();
        mean.mul_f64(times.min(6.0))
    }

    /// A call is here. It is counted by every limit, or refused by one and then counted by none.
    fn arrive(&self, scope: &str, cost: u32) -> Decision {
        let now_ms = self.now_ms();
        let wall_ms = self.started_unix_ms + now_ms;
        let mut book = self.book();
        let Book { arrivals, counters, everybody, faults, .. } = &mut *book;
        let fault = faults.get(scope).copied().or(*everybody);
        let limits = &self.terms.limits;
        let key = |place: usize| (place, limits[place].scope(scope).to_owned());
        let mut refused: Option<(usize, u64)> = None;
        for (place, limit) in limits.iter().enumerate() {
            let counter = counters.entry(key(place)).or_insert_with(|| Counter::new(limit, wall_ms));
            let Err(release_ms) = counter.has_room(limit, wall_ms, limit.units(cost)) else { continue };
            if refused.is_none_or(|(_, longest)| release_ms > longest) {
                refused = Some((place, release_ms));
            }
        }
        let mut left = Vec::new();
        for (place, limit) in limits.iter().enumerate() {
            let counter = counters.get_mut(&key(place)).expect("it was looked at");
            if refused.is_none() {
                counter.take(limit, wall_ms, limit.units(cost));
            }
            left.push(counter.left(limit));
        }
        let refused_by = refused.map(|(place, _)| limits[place].name);
        let (scope, is_broken) = (scope.to_owned(), fault.is_some());
        arrivals.push(Arrival { at_ms: now_ms, ended_ms: None, scope, cost, refused_by, is_broken });
        Decision { place: arrivals.len() - 1, fault, refused, left }
    }

    /// It has its answer, or nobody waits for one any more.
    fn ended(&self, place: usize) {
        let now_ms = self.now_ms();
        let mut book = self.book();
        let Book { arrivals, counters, .. } = &mut *book;
        let arrival = &mut arrivals[place];
        if arrival.ended_ms.replace(now_ms).is_some() || arrival.refused_by.is_some() {
            return;
        }
        for (place, limit) in self.terms.limits.iter().enumerate() {
            if let Some(counter) = counters.get_mut(&(place, limit.scope(&arrival.scope).to_owned())) {
                counter.ended();
            }
        }
    }
}

fn now_unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970");
    u64::try_from(since.as_millis()).expect("64 bits hold it")
}
