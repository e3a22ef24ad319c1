//! Restarts, crashes, upgrades, disks that fail, files that are damaged.

#![allow(clippy::wildcard_enum_match_arm, reason = "what else is answered fails the test, and is shown")]

use std::fs;
use std::path::PathBuf;

use domain::ManualClock;

use super::*;
use crate::quota::answer::{Answer, Denial, Lease};
use crate::quota::conformance::asks::{LONG, leg, lessee, metered, name, spec};
use crate::quota::key::{Application, Level};
use crate::quota::op::{Acquire, Class, Metered, Penalise, Renew, Share, Slots, Why};
use crate::quota::rule::{Kind, RuleSpec};

const START_MS: u64 = 1_800_000_000_000;

struct Bench {
    directory: tempfile::TempDir,
    clock: Arc<ManualClock>,
    seq: u64,
}

impl Bench {
    fn new() -> Self {
        Self { directory: tempfile::tempdir().unwrap(), clock: ManualClock::at_unix_ms(START_MS), seq: 0 }
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("quota")
    }

    fn open(&self) -> InProcess {
        InProcess::open(&self.path(), Arc::<ManualClock>::clone(&self.clock), 10_000).unwrap()
    }

    /// What a start after a power cut at this moment finds: the file as it is, in another place.
    fn after_power_cut(&self, at: &str) -> InProcess {
        let copy = self.directory.path().join(at);
        fs::copy(self.path(), &copy).unwrap();
        InProcess::open(&copy, Arc::<ManualClock>::clone(&self.clock), 10_000).unwrap()
    }

    async fn acquire(&mut self, centre: &InProcess, bucket: &Metered, units: u32) -> Answer {
        self.seq += 1;
        let mut leg = leg(bucket, units, units);
        leg.seq = self.seq;
        let share = Share { weight: 1, floor_permille: 0, ceiling_permille: 1_000 };
        let acquire = Acquire { lessee: lessee(1, "one"), class: Class::Interactive, share, legs: vec![leg] };
        ask(centre, Body::Acquire(acquire)).await.unwrap()
    }

    async fn take(&mut self, centre: &InProcess, bucket: &Metered, units: u32) -> Lease {
        match self.acquire(centre, bucket, units).await {
            Answer::Granted(leases) => leases[0],
            answer => panic!("not granted: {answer:?}"),
        }
    }
}

async fn ask(centre: &InProcess, body: Body) -> Result<Answer, AskError> {
    let application = Application { provider: name("acme"), name: name("main") };
    Ok(centre.ask(&Op { application, body }).await?.answer)
}

fn short() -> Metered {
    metered(Level::Connection, "short", spec(Kind::Fixed { window_ms: 10_000, offset_ms: 0 }, 100))
}

fn long() -> Metered {
    metered(Level::Connection, "long", spec(LONG, 100))
}

fn slots() -> Metered {
    metered(Level::Connection, "slots", RuleSpec { lease_ms: 5_000, ..spec(Kind::Concurrency, 3) })
}

#[tokio::test]
async fn a_crash_forgets_no_long_window_and_waits_for_the_short_ones() {
    let mut bench = Bench::new();
    let centre = bench.open();
    bench.take(&centre, &long(), 60).await;
    bench.take(&centre, &short(), 60).await;
    bench.take(&centre, &slots(), 2).await;
    let again = bench.after_power_cut("again");
    assert!(matches!(bench.acquire(&again, &long(), 41).await, Answer::Denied { why: Denial::Exhausted, .. }));
    bench.take(&again, &long(), 40).await;
    for bucket in [short(), slots()] {
        let Answer::Learning { ms, .. } = bench.acquire(&again, &bucket, 1).await else {
            panic!("{} was granted after what it forgot", bucket.key);
        };
        assert!((1..=10_000).contains(&ms));
    }
    bench.clock.advance(Duration::from_secs(10));
    bench.take(&again, &short(), 1).await;
    bench.take(&again, &slots(), 3).await;
}

#[tokio::test]
async fn every_grant_that_was_answered_is_in_the_file() {
    let mut bench = Bench::new();
    let centre = bench.open();
    for taken in 1..=20 {
        bench.take(&centre, &long(), 1).await;
        let again = bench.after_power_cut(&format!("cut{taken}"));
        assert!(matches!(bench.acquire(&again, &long(), 101 - taken).await, Answer::Denied { .. }), "{taken}");
        bench.take(&again, &long(), 100 - taken).await;
    }
}

#[tokio::test]
async fn a_park_survives_whatever_the_window() {
    let mut bench = Bench::new();
    let centre = bench.open();
    let penalise = Penalise { bucket: short(), delta_ms: 90_000, generation: None, why: Why::Provider };
    ask(&centre, Body::Penalise(penalise)).await.unwrap();
    let again = bench.after_power_cut("again");
    bench.clock.advance(Duration::from_secs(30));
    let Answer::Parked { ms, .. } = bench.acquire(&again, &short(), 1).await else { panic!("a park was forgotten") };
    assert!((59_000..=60_000).contains(&ms));
    ask(&again, Body::Release((*short().key).clone())).await.unwrap();
    again.hand_over().unwrap();
}

#[tokio::test]
async fn a_successor_goes_on_at_once_with_all_that_is_held() {
    let mut bench = Bench::new();
    let centre = bench.open();
    bench.take(&centre, &short(), 60).await;
    let lease = bench.take(&centre, &slots(), 2).await;
    assert!(matches!(
        InProcess::open(&bench.path(), Arc::<ManualClock>::clone(&bench.clock), 10).unwrap_err(),
        OpenError::InUse { .. }
    ));
    centre.hand_over().unwrap();
    assert_eq!(ask(&centre, Body::Reset((*short().key).clone())).await, Err(AskError::Gone));
    let next = bench.open();
    assert!(matches!(bench.acquire(&next, &short(), 41).await, Answer::Denied { why: Denial::Exhausted, .. }));
    // The predecessor's calls still run, and its holder may still say so.
    bench.seq += 1;
    let renewal = vec![Slots { bucket: slots(), seq: bench.seq, held: 2, heard: 0 }];
    let renew = Renew { lessee: lessee(1, "one"), legs: renewal };
    assert!(matches!(ask(&next, Body::Renew(renew)).await.unwrap(), Answer::Renewed(leases) if leases[0].units == 2));
    assert_eq!(lease.units, 2);
    // A crash of the successor is one.
    drop(next);
    let copy = bench.after_power_cut("again");
    assert!(matches!(bench.acquire(&copy, &short(), 1).await, Answer::Learning { .. }));
}

#[tokio::test]
async fn notes_are_what_was_noted_last() {
    let bench = Bench::new();
    let centre = bench.open();
    centre.note(NoteKind::Breaker, b"t1/acme", Some(b"open")).await.unwrap();
    centre.note(NoteKind::Breaker, b"t2/acme", Some(b"open")).await.unwrap();
    centre.note(NoteKind::Breaker, b"t1/acme", None).await.unwrap();
    centre.note_later(NoteKind::Baseline, b"t1/acme", Some(&[7; 336])).unwrap();
    centre.note(NoteKind::Baseline, b"t3/acme", Some(b"")).await.unwrap();
    for centre in [&bench.after_power_cut("again"), &centre] {
        assert_eq!(centre.notes(NoteKind::Breaker), [(b"t2/acme"[..].into(), b"open"[..].into())]);
        let baselines = centre.notes(NoteKind::Baseline);
        assert_eq!(baselines.len(), 2);
        assert_eq!((&*baselines[0].1, &*baselines[1].1), (&[7; 336][..], &b""[..]));
    }
    assert_eq!(centre.note(NoteKind::Breaker, b"", Some(b"")).await, Err(NoteError::Key));
    assert_eq!(centre.note(NoteKind::Breaker, &[0; 201], Some(b"")).await, Err(NoteError::Key));
    assert_eq!(centre.note(NoteKind::Breaker, b"k", Some(&[0; 4_097])).await, Err(NoteError::Value));
}

#[tokio::test]
async fn a_torn_end_is_cut_and_damage_is_named() {
    let mut bench = Bench::new();
    let centre = bench.open();
    bench.take(&centre, &long(), 30).await;
    let before = fs::metadata(bench.path()).unwrap().len();
    bench.take(&centre, &long(), 30).await;
    let whole = fs::read(bench.path()).unwrap();
    let torn = bench.directory.path().join("torn");
    fs::write(&torn, &whole[..whole.len() - 1]).unwrap();
    let again = InProcess::open(&torn, Arc::<ManualClock>::clone(&bench.clock), 10).unwrap();
    bench.take(&again, &long(), 70).await;
    let damaged = bench.directory.path().join("damaged");
    let mut bytes = whole;
    bytes[usize::try_from(before).unwrap() - 3] ^= 4;
    fs::write(&damaged, &bytes).unwrap();
    match InProcess::open(&damaged, Arc::<ManualClock>::clone(&bench.clock), 10).unwrap_err() {
        OpenError::Damaged { path, offset } => assert!(path == damaged && offset < before && offset > 8),
        error => panic!("{error}"),
    }
}

#[tokio::test]
async fn what_was_handed_over_was_whole_and_is_never_taken_for_torn() {
    let mut bench = Bench::new();
    let centre = bench.open();
    bench.take(&centre, &long(), 60).await;
    centre.hand_over().unwrap();
    let whole = fs::read(bench.path()).unwrap();
    let damaged = bench.directory.path().join("damaged");
    let open = |bytes: &[u8]| {
        fs::write(&damaged, bytes).unwrap();
        InProcess::open(&damaged, Arc::<ManualClock>::clone(&bench.clock), 10)
    };
    let head = whole.len() - 100;
    for at in head..whole.len() {
        let mut flipped = whole.clone();
        flipped[at] ^= 4;
        assert!(matches!(open(&flipped), Err(OpenError::Damaged { .. })), "flipped at {at}");
        assert!(matches!(open(&whole[..at]), Err(OpenError::Damaged { .. })), "cut at {at}");
    }
    // What was appended since may be torn.
    drop(bench.open());
    let begun = fs::read(bench.path()).unwrap();
    assert!(begun.len() > whole.len() && open(&begun[..begun.len() - 1]).is_ok());
}

#[tokio::test]
async fn the_file_stays_small_however_often_it_is_written() {
    let mut bench = Bench::new();
    let centre = bench.open();
    let value = [3_u8; 4_000];
    for round in 0..3_000_u32 {
        centre.note_later(NoteKind::Baseline, &[u8::try_from(round % 20).unwrap() + 1], Some(&value)).unwrap();
        if round % 50 == 0 {
            bench.take(&centre, &long(), 1).await;
        }
    }
    centre.note(NoteKind::Breaker, b"last", Some(b"1")).await.unwrap();
    let bytes = fs::metadata(bench.path()).unwrap().len();
    assert!(bytes < 6 << 20, "{bytes} bytes of a state of 80 KB, after 12 MB were written");
    let again = bench.after_power_cut("again");
    assert_eq!((again.notes(NoteKind::Baseline).len(), again.notes(NoteKind::Breaker).len()), (20, 1));
    assert!(matches!(bench.acquire(&again, &long(), 41).await, Answer::Denied { .. }));
    bench.take(&again, &long(), 40).await;
}

#[tokio::test]
async fn a_clock_that_goes_back_between_two_lives_grants_nothing_twice() {
    let mut bench = Bench::new();
    let centre = bench.open();
    bench.clock.advance(Duration::from_hours(2));
    bench.take(&centre, &long(), 100).await;
    centre.hand_over().unwrap();
    bench.clock.step_to_unix_ms(START_MS);
    let next = bench.open();
    assert!(matches!(bench.acquire(&next, &long(), 1).await, Answer::Denied { .. }));
}

#[test]
fn time_never_goes_back_and_runs_slowly_until_the_wall_clock_has_caught_up() {
    let clock = ManualClock::at_unix_ms(START_MS);
    let mut time = Time { now_ms: START_MS, monotonic_ms: 0 };
    clock.advance(Duration::from_secs(1));
    assert_eq!(time.read(clock.as_ref()), START_MS + 1_000);
    clock.step_to_unix_ms(START_MS - 1_000);
    let mut last_ms = START_MS + 1_000;
    for _ in 0..399 {
        clock.advance(Duration::from_millis(10));
        let now_ms = time.read(clock.as_ref());
        assert!(now_ms >= last_ms && now_ms <= last_ms + 6);
        last_ms = now_ms;
    }
    clock.advance(Duration::from_secs(1));
    assert_eq!(time.read(clock.as_ref()), clock.unix_ms());
    clock.step_to_unix_ms(START_MS + 50_000);
    assert_eq!(time.read(clock.as_ref()), START_MS + 50_000);
}
