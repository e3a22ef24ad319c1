//! Faults of one connection, and transactions that are held open.

use std::io::Write;
use std::process::{Child, ChildStdin, Stdio};
use std::sync::Arc;
use std::time::Duration;

use data_encoding::HEXLOWER;
use domain::{Secret, SystemClock};
use tidegate_runner::ids::RunId;
use tidegate_runner::ledger::codec::{self, Heading, Turn};
use tidegate_runner::ledger::conformance::made::{self, admission, cancel_requested, commit};
use tidegate_runner::ledger::postgres::PostgresLedger;
use tidegate_runner::ledger::{AppendError, Committed, LedgerStore, Record, TailPosition, Writer};
use tidegate_runner::postgres::{MigrateError, PostgresSettings, migrate};
use tokio::time::{Instant, sleep, timeout};

use crate::faulty::{Armed, Break, Faulty};
use crate::place::{Place, Plain};

async fn open(settings: PostgresSettings) -> PostgresLedger {
    PostgresLedger::open(settings, SystemClock::shared()).await.unwrap()
}

async fn read(ledger: &PostgresLedger, run: RunId) -> Vec<Record> {
    ledger.read(&made::tenant("acme"), run).await.unwrap()
}

/// A run whose records are in this shard.
fn run_in(shard: u8, nth: usize) -> RunId {
    (0..).map(made::run).filter(|run| run.as_bytes()[0] % 8 == shard).nth(nth).unwrap()
}

fn faulty(place: &Place) -> (PostgresSettings, Arc<Armed>) {
    let armed = Arc::new(Armed::default());
    let mut settings = place.settings();
    settings.dial = Arc::new(Faulty { dial: Plain(place.server.address), armed: Arc::clone(&armed) });
    (settings, armed)
}

#[tokio::test]
async fn an_answer_that_is_lost_says_that_it_may_be_there() {
    let Some(place) = Place::new().await else { return };
    let (settings, armed) = faulty(&place);
    let ledger = open(settings).await;
    for (how, is_there) in [(Break::AfterCommit, true), (Break::BeforeCommit, false)] {
        let run = made::run(how as u64);
        armed.arm(how);
        let error = ledger.append(admission(run)).await.unwrap_err();
        assert!(armed.is_spent() && matches!(error, AppendError::Unavailable(_)), "{error}");
        assert_eq!(!read(&ledger, run).await.is_empty(), is_there, "{how:?}");
        let again = ledger.append(admission(run)).await;
        let expected =
            if is_there { Err(AppendError::Conflict { seq: 1 }) } else { Ok(Committed { seq: 1, lease: 0 }) };
        assert_eq!(again, expected);
        assert_eq!(read(&ledger, run).await.len(), 1);
    }
}

#[tokio::test]
async fn a_process_that_is_stuck_in_a_transaction_is_put_out() {
    let Some(place) = Place::new().await else { return };
    let (mut settings, armed) = faulty(&place);
    settings.answer_within = Duration::from_secs(5);
    let (stuck, other) = (open(settings).await, open(place.settings()).await);
    armed.arm(Break::Stuck);
    let asked = Instant::now();
    let pending = stuck.append(admission(run_in(3, 0)));
    while !armed.is_spent() {
        sleep(Duration::from_millis(5)).await;
    }
    let elsewhere = timeout(Duration::from_secs(2), other.append(admission(run_in(4, 0)))).await;
    assert_eq!(elsewhere.expect("other shards do not wait"), Ok(Committed { seq: 1, lease: 0 }));
    assert_eq!(other.append(admission(run_in(3, 1))).await, Ok(Committed { seq: 1, lease: 0 }));
    assert!(asked.elapsed() > Duration::from_secs(3), "it did not wait for the other");
    let error = pending.await.unwrap_err();
    assert!(matches!(error, AppendError::Unavailable(_)), "{error}");
    assert_eq!(read(&other, run_in(3, 0)).await, []);
}

/// A session by hand, in the middle of a commit of one admission.
struct Held {
    child: Child,
    input: ChildStdin,
}

impl Held {
    async fn begin(place: &Place, run: RunId) -> Self {
        let commit = admission(run);
        let heading = Heading {
            tenant: commit.tenant.clone(),
            run,
            first: 1,
            count: 1,
            lease: 0,
            at_unix_ms: commit.at_unix_ms,
            turn: Turn::of(&commit.bodies),
        };
        let (shard, id) = (run.as_bytes()[0] % 8, HEXLOWER.encode(run.as_bytes()));
        let body = HEXLOWER.encode(&codec::encode(&heading, &commit.bodies, 0));
        let sql = format!(
            "BEGIN; UPDATE tidegate_run_shards SET position = position + 1 WHERE shard = {shard};
             INSERT INTO tidegate_run_heads VALUES ('\\x{id}', 'acme', 1, 0, '', 0, 0, 0, 1);
             INSERT INTO tidegate_run_commits SELECT shard, position, '\\x{id}', 1, 1, 'acme', 0, '\\x{body}'
               FROM tidegate_run_shards WHERE shard = {shard};\n"
        );
        let mut child = place.server.psql(&place.database).stdin(Stdio::piped()).spawn().unwrap();
        let mut input = child.stdin.take().unwrap();
        input.write_all(sql.as_bytes()).unwrap();
        let locked = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND state = 'idle in transaction'";
        while place.run(locked) != "1" {
            sleep(Duration::from_millis(10)).await;
        }
        Self { child, input }
    }

    fn end(mut self, how: &str) {
        self.input.write_all(format!("{how};\n").as_bytes()).unwrap();
        drop(self.input);
        assert!(self.child.wait().unwrap().success());
    }
}

/// Its places are before those of whoever comes later, and it commits after them: a reader must not be past it by then.
#[tokio::test]
async fn a_transaction_that_commits_late_is_not_skipped() {
    let Some(place) = Place::new().await else { return };
    let ledger = open(place.settings()).await;
    for (how, round) in [("COMMIT", 0), ("ROLLBACK", 10)] {
        let from = drain(&ledger, TailPosition::start()).await.1;
        let held = Held::begin(&place, run_in(5, round)).await;
        let later = ledger.append(admission(run_in(5, round + 1)));
        let elsewhere = ledger.append(admission(run_in(6, round))).await;
        assert_eq!(elsewhere, Ok(Committed { seq: 1, lease: 0 }), "other shards do not wait");
        sleep(Duration::from_millis(300)).await;
        let (seen, from) = drain(&ledger, from).await;
        assert_eq!(runs(&seen), [run_in(6, round)]);
        held.end(how);
        assert_eq!(later.await, Ok(Committed { seq: 1, lease: 0 }));
        let (seen, _) = drain(&ledger, from).await;
        let expected =
            if how == "COMMIT" { vec![run_in(5, round), run_in(5, round + 1)] } else { vec![run_in(5, round + 1)] };
        assert_eq!(runs(&seen), expected);
    }
}

async fn drain(ledger: &PostgresLedger, mut from: TailPosition) -> (Vec<Record>, TailPosition) {
    let mut records = Vec::new();
    loop {
        let tail = ledger.tail(from, 100).await.unwrap();
        from = tail.next;
        if tail.records.is_empty() {
            return (records, from);
        }
        records.extend(tail.records);
    }
}

fn runs(records: &[Record]) -> Vec<RunId> {
    records.iter().map(|record| record.run).collect()
}

#[tokio::test]
async fn a_lock_that_is_held_too_long_is_given_up_in_time() {
    let Some(place) = Place::new().await else { return };
    let mut settings = place.settings();
    settings.answer_within = Duration::from_secs(2);
    let ledger = open(settings).await;
    let held = Held::begin(&place, run_in(5, 0)).await;
    let asked = Instant::now();
    let error = ledger.append(admission(run_in(5, 1))).await.unwrap_err();
    assert!(matches!(error, AppendError::Unavailable(_)), "{error}");
    assert!(asked.elapsed() < Duration::from_secs(4), "{:?}", asked.elapsed());
    held.end("ROLLBACK");
    // What the server was still trying when it was given up here may have come through.
    match ledger.append(admission(run_in(5, 1))).await {
        Ok(Committed { seq: 1, lease: 0 }) | Err(AppendError::Conflict { seq: 1 }) => {}
        other => panic!("{other:?}"),
    }
    assert_eq!(read(&ledger, run_in(5, 1)).await.len(), 1);
}

#[tokio::test]
async fn what_does_not_fit_a_row_is_damage_and_another_s_row_is_told() {
    let Some(place) = Place::new().await else { return };
    let ledger = open(place.settings()).await;
    for (nth, change) in [
        "tenant = 'other'",
        "first_seq = 3",
        "records = 2",
        "body = substr(body, 1, length(body) - 1)",
        "body = '\\x07'::bytea || substr(body, 2)",
        "run = decode(repeat('00', 16), 'hex')",
        "lease = -1",
    ]
    .into_iter()
    .enumerate()
    {
        let run = made::run(nth as u64);
        ledger.append(admission(run)).await.unwrap();
        ledger.append(commit("acme", run, 1, Writer::Anyone, vec![cancel_requested()])).await.unwrap();
        let id = HEXLOWER.encode(run.as_bytes());
        place.run(&format!("UPDATE tidegate_run_commits SET {change} WHERE run = '\\x{id}' AND first_seq = 1"));
        let read = ledger.read(&made::tenant("acme"), run).await;
        assert!(matches!(read, Err(tidegate_runner::ledger::ReadError::Damaged(_))), "{change}: {read:?}");
        assert!(ledger.tail(TailPosition::start(), 100).await.is_err(), "{change}");
        place.run(&format!(
            "DELETE FROM tidegate_run_commits WHERE run = '\\x{id}' OR run = decode(repeat('00', 16), 'hex')"
        ));
    }
}

#[tokio::test]
async fn many_processes_make_the_tables_once() {
    let Some(place) = Place::new().await else { return };
    let starts: Vec<_> = (0..8)
        .map(|_| {
            let settings = place.settings();
            tokio::spawn(async move { migrate(&settings).await })
        })
        .collect();
    for start in starts {
        assert_eq!(start.await.unwrap(), Ok(()));
    }
    assert_eq!(place.run("SELECT version FROM tidegate_schema"), "1");
    assert_eq!(place.run("SELECT count(*) FROM tidegate_run_shards"), "8");
}

#[tokio::test]
async fn tables_of_a_later_version_are_refused() {
    let Some(place) = Place::new().await else { return };
    migrate(&place.settings()).await.unwrap();
    place.run("INSERT INTO tidegate_schema VALUES (999, now())");
    let refused = PostgresLedger::open(place.settings(), SystemClock::shared()).await.map(|_| ());
    assert_eq!(refused, Err(MigrateError::Newer { found: 999, known: 1 }));
}

#[tokio::test]
async fn a_wrong_password_is_told_and_not_shown() {
    let Some(place) = Place::new().await else { return };
    let mut settings = place.settings();
    settings.answer_within = Duration::from_secs(1);
    settings.password = Some(Secret::new(&b"hunter2hunter2"[..]));
    let refused = migrate(&settings).await.unwrap_err().to_string();
    assert!(refused.contains("password") && !refused.contains("hunter2"), "{refused}");
    assert!(!format!("{settings:?}").contains("hunter2"));
}

#[tokio::test]
async fn a_role_that_gives_up_durability_gets_it_all_the_same() {
    let Some(place) = Place::new().await else { return };
    place.run(&format!("ALTER DATABASE {} SET synchronous_commit = off", place.database));
    let ledger = open(place.settings()).await;
    place.run(
        "CREATE TABLE seen (setting text); \
        CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS \
          $$ BEGIN INSERT INTO seen VALUES (current_setting('synchronous_commit')); RETURN NEW; END $$; \
        CREATE TRIGGER note AFTER INSERT ON tidegate_run_commits FOR EACH ROW EXECUTE FUNCTION note()",
    );
    ledger.append(admission(made::run(1))).await.unwrap();
    assert_eq!(place.run("SELECT setting FROM seen"), "on");
}
