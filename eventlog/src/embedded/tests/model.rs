//! The engine against a plain list: append, read on, trim, reopen, crash, change the number of shards.
//!
//! A crash is a copy of the directory, taken while the log is open, that is opened instead: whatever was
//! acknowledged must be in it.

use std::fs;
use std::time::Duration;

use proptest::prelude::*;

use super::*;

#[derive(Debug, Clone)]
enum Step {
    /// So many events, of this endpoint and class.
    Append {
        count: u8,
        endpoint: u8,
        short: bool,
    },
    /// A consumer reads so many events, and its place goes through its text.
    Read {
        count: u8,
    },
    Advance {
        minutes: u8,
    },
    Trim,
    /// With or without a clean close, under so many shards.
    Reopen {
        close: bool,
        shards: u16,
    },
    Crash,
    /// An index goes missing, for the next open to find.
    LoseIndex {
        which: prop::sample::Index,
    },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let one = prop_oneof![
        6 => (1_u8..60, 0_u8..6, any::<bool>())
            .prop_map(|(count, endpoint, short)| Step::Append { count, endpoint, short }),
        3 => (1_u8..80).prop_map(|count| Step::Read { count }),
        2 => (1_u8..50).prop_map(|minutes| Step::Advance { minutes }),
        2 => Just(Step::Trim),
        2 => (any::<bool>(), 1_u16..4).prop_map(|(close, shards)| Step::Reopen { close, shards }),
        1 => Just(Step::Crash),
        1 => any::<prop::sample::Index>().prop_map(|which| Step::LoseIndex { which }),
    ];
    proptest::collection::vec(one, 1..25)
}

#[derive(Debug, Clone)]
struct Known {
    event: NewEvent,
    appended_unix_ms: u64,
}

struct Run {
    on_disk: OnDisk,
    clock: Arc<ManualClock>,
    log: Option<EmbeddedLog>,
    /// What must be readable, in the order of appends.
    known: Vec<Known>,
    number: u32,
    /// A consumer's place, and what it has seen.
    cursor: Cursor,
    consumed: Vec<EventId>,
}

impl Run {
    fn new() -> Self {
        let on_disk = OnDisk::new(1);
        let clock = clock();
        let log = Some(on_disk.open(&clock));
        let (known, consumed) = (Vec::new(), Vec::new());
        Self { on_disk, clock, log, known, number: 0, cursor: Cursor::default(), consumed }
    }

    fn log(&self) -> &EmbeddedLog {
        self.log.as_ref().unwrap()
    }

    fn open(&mut self) {
        self.log = Some(self.on_disk.open(&self.clock));
    }

    fn step(&mut self, step: &Step) {
        match step {
            Step::Append { count, endpoint, short } => self.append(*count, *endpoint, *short),
            Step::Read { count } => self.read(*count),
            Step::Advance { minutes } => self.clock.advance(Duration::from_mins(u64::from(*minutes))),
            Step::Trim => self.trim(),
            Step::Reopen { close, shards } => {
                let log = self.log.take().unwrap();
                if *close {
                    log.close().unwrap();
                }
                drop(log);
                self.on_disk.shards = *shards;
                self.open();
            }
            Step::Crash => {
                let image = tempfile::tempdir().unwrap();
                copy(self.on_disk.directory.path(), image.path());
                self.log = None;
                self.on_disk.directory = image;
                self.open();
            }
            Step::LoseIndex { which } => {
                let indexes = self.on_disk.files(".idx");
                if !indexes.is_empty() {
                    fs::remove_file(&indexes[which.index(indexes.len())]).unwrap();
                }
            }
        }
    }

    fn append(&mut self, count: u8, endpoint: u8, short: bool) {
        let now = self.clock.unix_ms();
        let mut appends = Vec::new();
        for _ in 0..count {
            let tenant = if endpoint.is_multiple_of(2) { "acme" } else { "globex" };
            let mut event = event(tenant, &format!("wh_{endpoint}"), now, self.number);
            if short {
                event.retention = "short".into();
            }
            self.number += 1;
            appends.push(self.log().append(event.clone()));
            self.known.push(Known { event, appended_unix_ms: now });
        }
        for append in appends {
            append.wait().unwrap();
        }
    }

    fn read(&mut self, count: u8) {
        let start = Start::At(self.cursor.to_string().parse().unwrap());
        let reader = self.log().reader(Scope::Operator, start, Filter::default());
        let mut seen = Vec::new();
        let outcome = reader.and_then(|mut reader| {
            for _ in 0..count {
                let Some(event) = reader.next()? else { break };
                seen.push(event.id);
            }
            Ok(reader.cursor())
        });
        match outcome {
            Ok(cursor) => {
                self.cursor = cursor;
                self.consumed.extend(seen);
            }
            Err(ReadError::Trimmed { .. }) => {
                // The consumer slept too long: it begins anew, knowing it.
                self.cursor = Cursor::default();
                self.consumed.clear();
            }
            Err(other) => panic!("{other}"),
        }
        let mut once = self.consumed.clone();
        once.sort_unstable();
        once.dedup();
        assert_eq!(once.len(), self.consumed.len(), "a consumer saw an event twice");
    }

    fn trim(&mut self) {
        let now = self.clock.unix_ms();
        self.log().trim().unwrap();
        let left = ids(self.log(), Scope::Operator, Filter::default());
        self.known.retain(|known| {
            let there = left.contains(&known.event.id);
            let age = if &*known.event.retention == "short" { SHORT_AGE } else { DEFAULT_AGE };
            let over = Duration::from_millis(now - known.appended_unix_ms) > age;
            assert!(there || over, "an event within its age was trimmed");
            there
        });
    }

    /// Every way of reading gives what the list has.
    fn check(&self) {
        let log = self.log();
        let mut all = ids(log, Scope::Operator, Filter::default());
        all.sort_unstable();
        let mut expected: Vec<_> = self.known.iter().map(|known| known.event.id).collect();
        expected.sort_unstable();
        assert_eq!(all, expected);
        for endpoint in 0..6 {
            let name = format!("wh_{endpoint}");
            for class in ["default", "short"] {
                let of_class =
                    |known: &&Known| &*known.event.retention == class && known.event.endpoint.as_str() == name;
                let expected: Vec<_> = self.known.iter().filter(of_class).map(|known| known.event.id).collect();
                let read = ids(log, Scope::Operator, of_endpoint(&name));
                let read: Vec<_> = read.into_iter().filter(|id| expected.contains(id)).collect();
                assert_eq!(read, expected, "{name} {class}");
            }
        }
        for name in ["acme", "globex"] {
            let theirs = self.known.iter().filter(|known| known.event.tenant.as_str() == name);
            assert_eq!(ids(log, Scope::Tenant(tenant(name)), Filter::default()).len(), theirs.clone().count());
            let bytes = |known: &Known| codec::encode_head(&known.event, NODE).unwrap().len() + known.event.body.len();
            let bytes: usize = theirs.map(bytes).sum();
            assert_eq!(log.stored_bytes(&tenant(name)), bytes as u64, "{name}");
        }
        for known in self.known.iter().step_by(13) {
            let found = log.by_id(&Scope::Operator, known.event.id).unwrap().unwrap();
            assert_eq!(found.body, known.event.body);
        }
    }
}

fn copy(from: &Path, to: &Path) {
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        // Files come and go under a running log: what is gone by now is gone.
        if entry.path().is_dir() {
            fs::create_dir_all(&target).unwrap();
            copy(&entry.path(), &target);
        } else if let Err(fault) = fs::copy(entry.path(), &target) {
            assert_eq!(fault.kind(), io::ErrorKind::NotFound);
        }
    }
}

/// Found by the schedules below: everything of a class is trimmed, and the reader stands at the beginning of a segment in
/// which nothing is written yet.
#[test]
fn a_reader_comes_back_to_where_nothing_is_written_yet() {
    let mut run = Run::new();
    for step in [
        Step::Append { count: 1, endpoint: 0, short: true },
        Step::Read { count: 1 },
        Step::Append { count: 1, endpoint: 0, short: false },
        Step::Advance { minutes: 61 },
        Step::Trim,
        Step::Read { count: 33 },
        Step::Read { count: 75 },
        Step::Append { count: 2, endpoint: 0, short: true },
        Step::Read { count: 5 },
    ] {
        run.step(&step);
    }
    assert_eq!(run.consumed.len(), 4);
    run.check();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, max_shrink_iters: 200, ..ProptestConfig::default() })]

    #[test]
    fn the_engine_is_a_list(steps in steps()) {
        let mut run = Run::new();
        for step in &steps {
            run.step(step);
        }
        run.check();
        // And what is there outlives one more restart.
        run.log = None;
        run.open();
        run.check();
    }
}
