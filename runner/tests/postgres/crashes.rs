//! The server is killed, frozen and restarted under load: nothing that was acknowledged is lost, and nothing is there twice.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use domain::SystemClock;
use tidegate_runner::ids::RunId;
use tidegate_runner::ledger::conformance::made::{self, admission, commit, lease, outcome};
use tidegate_runner::ledger::postgres::PostgresLedger;
use tidegate_runner::ledger::{AppendError, Body, LedgerStore, Record, TailPosition, Writer};
use tidegate_runner::postgres::PostgresSettings;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use crate::place::settings;
use crate::server::Postgres;

const WRITERS: u64 = 24;
/// Records of a run behind its admission and its lease.
const EACH: u64 = 12;

/// Those who work on runs of their own, one after the other, and never give up.
struct Load {
    ledger: Arc<dyn LedgerStore>,
    is_over: Arc<AtomicBool>,
    acknowledged: Arc<AtomicU64>,
    unknown: Arc<AtomicU64>,
    writers: Vec<JoinHandle<Vec<RunId>>>,
}

impl Load {
    fn start(ledger: &Arc<dyn LedgerStore>) -> Self {
        let mut load = Self {
            ledger: Arc::clone(ledger),
            is_over: Arc::default(),
            acknowledged: Arc::default(),
            unknown: Arc::default(),
            writers: Vec::new(),
        };
        load.writers = (0..WRITERS).map(|writer| tokio::spawn(load.writer().write(writer))).collect();
        load
    }

    fn writer(&self) -> Working {
        Working {
            ledger: Arc::clone(&self.ledger),
            is_over: Arc::clone(&self.is_over),
            acknowledged: Arc::clone(&self.acknowledged),
            unknown: Arc::clone(&self.unknown),
        }
    }

    /// Waits until so many more were acknowledged.
    async fn goes_on(&self, by: u64) {
        let until = self.acknowledged.load(Ordering::SeqCst) + by;
        let going = async {
            while self.acknowledged.load(Ordering::SeqCst) < until {
                sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(Duration::from_mins(1), going).await.expect("work goes on");
    }

    /// Ends it, and looks at every run and at the tail, which may have others of unknown end.
    async fn judge(self, others: &[RunId]) -> u64 {
        self.is_over.store(true, Ordering::SeqCst);
        let mut runs = Vec::new();
        for writer in self.writers {
            runs.extend(timeout(Duration::from_mins(1), writer).await.expect("in time").expect("no writer fails"));
        }
        let mut by_run: HashMap<RunId, Vec<Record>> = HashMap::new();
        let mut from = TailPosition::start();
        loop {
            let tail = self.ledger.tail(from, 500).await.unwrap();
            if tail.records.is_empty() {
                break;
            }
            from = tail.next;
            for record in tail.records {
                by_run.entry(record.run).or_default().push(record);
            }
        }
        for other in others {
            assert!(by_run.remove(other).is_none_or(|records| records.len() == 1));
        }
        assert_eq!(by_run.len(), runs.len(), "the tail has every run");
        for run in &runs {
            let records = self.ledger.read(&made::tenant("acme"), *run).await.unwrap();
            assert_eq!(by_run[run], records, "the tail has each record once, in order");
            let bodies: Vec<Body> = records.into_iter().map(|record| record.body).collect();
            assert_eq!(bodies, whole(), "each was written once");
        }
        runs.len() as u64
    }
}

/// What a run has at its end: a record's number is that of its place, so that none can be there twice.
fn whole() -> Vec<Body> {
    let mut bodies = vec![made::admitted(), lease(1, "one", 3_600_000)];
    bodies.extend((1..=EACH).map(numbered));
    bodies
}

fn numbered(number: u64) -> Body {
    outcome("a", u32::try_from(number).unwrap())
}

struct Working {
    ledger: Arc<dyn LedgerStore>,
    is_over: Arc<AtomicBool>,
    acknowledged: Arc<AtomicU64>,
    unknown: Arc<AtomicU64>,
}

impl Working {
    async fn write(self, writer: u64) -> Vec<RunId> {
        let mut runs = Vec::new();
        while !self.is_over.load(Ordering::SeqCst) {
            let run = made::run(writer * 1_000_000 + runs.len() as u64);
            self.write_run(run).await;
            runs.push(run);
        }
        runs
    }

    async fn write_run(&self, run: RunId) {
        let mut seq = 0;
        while seq < 2 + EACH {
            let next = match seq {
                0 => admission(run),
                1 => commit("acme", run, 1, Writer::Lease(1), vec![lease(1, "one", 3_600_000)]),
                // Two at a time: an outcome and what comes next.
                seq => commit("acme", run, seq, Writer::Lease(1), vec![numbered(seq - 1), numbered(seq)]),
            };
            match self.ledger.append(next).await {
                Ok(committed) => {
                    self.acknowledged.fetch_add(1, Ordering::SeqCst);
                    seq = committed.seq;
                }
                Err(AppendError::Unavailable(_)) => {
                    self.unknown.fetch_add(1, Ordering::SeqCst);
                    let found = self.found(run).await;
                    assert!(found >= seq, "record {seq} of {run} was acknowledged, and {found} are there");
                    seq = found;
                }
                // It was there after all when it was asked for again: the read came before it. Or somebody else came first.
                Err(AppendError::Conflict { seq: found }) => {
                    assert!(found > seq, "a run does not get shorter");
                    seq = found;
                }
                // Somebody else who writes to this run has it by the same number.
                Err(AppendError::Fenced { lease: 1 }) if seq == 1 => seq = self.found(run).await,
                Err(other) => panic!("{other}"),
            }
        }
    }

    async fn found(&self, run: RunId) -> u64 {
        loop {
            match self.ledger.read(&made::tenant("acme"), run).await {
                Ok(records) => return records.len() as u64,
                Err(_) => sleep(Duration::from_millis(50)).await,
            }
        }
    }
}

async fn opened(server: &Postgres, shorten: impl Fn(&mut PostgresSettings)) -> Arc<dyn LedgerStore> {
    let mut settings = settings(server.address, "postgres");
    shorten(&mut settings);
    Arc::new(PostgresLedger::open(settings, SystemClock::shared()).await.unwrap())
}

fn how_many(variable: &str, usual: u32) -> u32 {
    std::env::var(variable).ok().map_or(usual, |text| text.parse().unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_killed_loses_nothing_and_doubles_nothing() {
    let Some(mut server) = Postgres::start(&[]).await else { return };
    let ledger = opened(&server, |_| {}).await;
    let load = Load::start(&ledger);
    for _ in 0..how_many("TIDEGATE_POSTGRES_KILLS", 5) {
        load.goes_on(400).await;
        server.kill9();
        server.up().await;
    }
    load.goes_on(100).await;
    assert!(load.unknown.load(Ordering::SeqCst) > 0, "no kill met a commit under way");
    assert!(load.judge(&[]).await > WRITERS);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_frozen_is_given_up_and_loses_nothing() {
    let Some(server) = Postgres::start(&[]).await else { return };
    let ledger = opened(&server, |settings| settings.answer_within = Duration::from_secs(2)).await;
    let load = Load::start(&ledger);
    let strays = [made::run(u64::MAX), made::run(u64::MAX - 1)];
    for stray in strays {
        load.goes_on(200).await;
        server.freeze();
        let asked = tokio::time::Instant::now();
        let error = ledger.append(admission(stray)).await.unwrap_err();
        assert!(matches!(error, AppendError::Unavailable(_)), "{error}");
        assert!(asked.elapsed() < Duration::from_secs(3), "within its bound: {:?}", asked.elapsed());
        assert!(ledger.read(&made::tenant("acme"), made::run(0)).await.is_err());
        server.thaw();
    }
    load.goes_on(200).await;
    load.judge(&strays).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_processes_and_a_kill_have_each_run_once() {
    let Some(mut server) = Postgres::start(&[]).await else { return };
    let (one, other) = (opened(&server, |_| {}).await, opened(&server, |_| {}).await);
    // The same runs, by both: each record is written by whoever comes first.
    let loads = [Load::start(&one), Load::start(&other)];
    for load in &loads {
        load.goes_on(100).await;
    }
    server.kill9();
    server.up().await;
    for load in &loads {
        load.goes_on(100).await;
        load.is_over.store(true, Ordering::SeqCst);
    }
    let mut runs = Vec::new();
    for load in loads {
        for writer in load.writers {
            runs.extend(writer.await.unwrap());
        }
    }
    for run in runs {
        let bodies: Vec<Body> =
            one.read(&made::tenant("acme"), run).await.unwrap().into_iter().map(|record| record.body).collect();
        assert_eq!(bodies, whole());
    }
}
