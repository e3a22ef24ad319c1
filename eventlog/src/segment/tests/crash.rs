//! Power cuts, kills and failing disks, by seed.
//!
//! What must hold whatever happens: every acknowledged record is there, once, whole, in order; nothing is there
//! twice; nothing is there that was never appended; and nothing of it is called damage, for a crash is none.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use proptest::prelude::*;

use super::rig::*;
use crate::segment::storage::{Faults, FaultyStorage, MemoryStorage, Storage};
use crate::segment::{AppendError, Journal, Options, Position, SyncMode};

/// What a model knows: payloads are unique, so a payload names its record.
#[derive(Debug, Default)]
struct Model {
    acknowledged: BTreeMap<Position, Vec<u8>>,
    /// Everything that was ever handed over.
    appended: BTreeSet<Vec<u8>>,
    next: u64,
}

impl Model {
    fn payload(&mut self, bytes: usize) -> Vec<u8> {
        self.next += 1;
        let mut payload = self.next.to_le_bytes().to_vec();
        payload.resize(bytes.max(8), u8::try_from(self.next % 251).unwrap());
        self.appended.insert(payload.clone());
        payload
    }

    /// Appends so many records at once; counts those that failed.
    fn append(&mut self, journal: &Journal, sizes: &[usize]) -> Vec<AppendError> {
        let handed: Vec<_> = sizes
            .iter()
            .map(|bytes| {
                let payload = self.payload(*bytes);
                (payload.clone(), journal.append(entry(self.next % 4, self.next, payload)))
            })
            .collect();
        let mut errors = Vec::new();
        for (payload, append) in handed {
            match append.wait() {
                Ok(appended) => assert!(self.acknowledged.insert(appended.position, payload).is_none()),
                Err(error) => errors.push(error),
            }
        }
        errors
    }

    /// Holds the journal to what must be true of it.
    fn check(&self, journal: &Journal) {
        let records = read_all(journal);
        assert!(records.windows(2).all(|pair| pair[0].position < pair[1].position));
        let there: BTreeMap<Position, Vec<u8>> = records.iter().map(|r| (r.position, r.payload.to_vec())).collect();
        for (position, payload) in &self.acknowledged {
            assert_eq!(there.get(position), Some(payload), "acknowledged at {position}");
        }
        let payloads: BTreeSet<&Vec<u8>> = there.values().collect();
        assert_eq!(payloads.len(), records.len(), "nothing is there twice");
        assert!(payloads.iter().all(|payload| self.appended.contains(*payload)), "nothing is there out of nowhere");
        let mut sequences: BTreeMap<(u64, u64), u64> = BTreeMap::new();
        for record in records.iter().filter(|record| record.stream != 0) {
            let last = sequences.entry((record.position.epoch(), record.stream)).or_default();
            assert!(record.sequence == *last + 1 || *last == 0, "dense in its stream: {record:?}");
            *last = record.sequence;
        }
    }
}

fn faulty_options(storage: &FaultyStorage, sync: SyncMode) -> Options {
    Options { sync, ..options(Arc::new(storage.clone())) }
}

fn sync_of(seed: u64) -> SyncMode {
    if seed.is_multiple_of(2) { SyncMode::Direct } else { SyncMode::Fdatasync }
}

/// Opens, appends until the power goes, cuts, and again; after each time everything must hold.
fn power_cuts(seed: u64, rounds: u64) {
    let memory = MemoryStorage::new();
    let mut model = Model::default();
    let mut sizes = (0..).map(|n: u64| usize::try_from(n.wrapping_mul(0x9e37_79b9_7f4a_7c15 ^ seed) >> 51).unwrap());
    for round in 0..rounds {
        let cut = 1 + (seed.wrapping_mul(31).wrapping_add(round * 17)) % 40;
        let faults = Faults { power_cut_after: Some(cut), ..Faults::default() };
        let storage = FaultyStorage::new(memory.clone(), seed * 1000 + round, faults);
        if let Ok((journal, recovery)) = Journal::open(faulty_options(&storage, sync_of(seed + round))) {
            assert_eq!(recovery.damage, [], "a power cut is no damage (seed {seed}, round {round})");
            if !storage.is_out() {
                model.check_if_possible(&journal, &storage);
            }
            while !storage.is_out() {
                let batch: Vec<usize> = sizes.by_ref().take(1 + usize::try_from(round % 5).unwrap()).collect();
                model.append(&journal, &batch);
            }
            memory.power_cut(seed ^ round);
            drop(journal);
        } else {
            memory.power_cut(seed ^ round);
        }
        let report = Journal::verify_in(&memory, &directory()).unwrap();
        assert_eq!(report.damage, [], "seed {seed}, round {round}");
    }
    let (journal, recovery) = open(&memory);
    assert_eq!(recovery.damage, []);
    model.check(&journal);
    journal.close();
    assert!(Journal::verify_in(&memory, &directory()).unwrap().is_whole());
}

impl Model {
    /// The power may go while we read, too.
    fn check_if_possible(&self, journal: &Journal, storage: &FaultyStorage) {
        if let Ok(records) = read_from(journal, Position::START)
            && !storage.is_out()
        {
            let there: BTreeMap<Position, Vec<u8>> = records.iter().map(|r| (r.position, r.payload.to_vec())).collect();
            for (position, payload) in &self.acknowledged {
                assert_eq!(there.get(position), Some(payload), "acknowledged at {position}");
            }
        }
    }
}

#[test]
fn power_cuts_lose_nothing_that_was_acknowledged() {
    for seed in 0..60 {
        power_cuts(seed, 8);
    }
}

#[test]
fn a_disk_that_fails_now_and_then_loses_nothing_that_was_acknowledged() {
    for seed in 0..40 {
        let memory = MemoryStorage::new();
        let faults = Faults { write_fails: 9, sync_fails: 11, create_fails: 7, ..Faults::default() };
        let mut model = Model::default();
        for round in 0..4 {
            let storage = FaultyStorage::new(memory.clone(), seed * 100 + round, Faults::default());
            let (journal, recovery) = Journal::open(faulty_options(&storage, sync_of(seed))).unwrap();
            assert_eq!(recovery.damage, [], "seed {seed}, round {round}");
            model.check(&journal);
            storage.set_faults(faults);
            let mut failed = 0;
            for n in 0..60 {
                let sizes: Vec<usize> = (0..=n % 7).map(|k| 8 + (n * 131 + k * 977) % 5000).collect();
                let errors = model.append(&journal, &sizes);
                failed += errors.len();
                assert!(errors.iter().all(|e| matches!(e, AppendError::Unavailable { .. } | AppendError::Full)));
                if !errors.is_empty() {
                    until_available(&journal);
                }
            }
            assert!(failed > 0, "the disk did fail");
            assert!(journal.stat().heals > 0, "and was proved again");
            storage.set_faults(Faults::default());
            until_available(&journal);
            // Both: a live reader, and one after a crash, agree with the model.
            model.check(&journal);
            if round % 2 == 0 {
                memory.power_cut(seed ^ round);
            }
            drop(journal);
        }
        let (journal, recovery) = open(&memory);
        assert_eq!(recovery.damage, [], "seed {seed}");
        model.check(&journal);
        journal.close();
        let report = Journal::verify_in(&memory, &directory()).unwrap();
        assert_eq!(report.damage, [], "seed {seed}");
    }
}

/// Waits for the writer to have its fresh segment: its attempts are what moves the faults' dice on.
fn until_available(journal: &Journal) {
    while journal.stat().unavailable.is_some() {
        std::thread::yield_now();
    }
}

#[test]
fn a_failed_sync_poisons_until_a_fresh_segment_has_proved_the_disk() {
    for sync in [SyncMode::Direct, SyncMode::Fdatasync] {
        let memory = MemoryStorage::new();
        let storage = FaultyStorage::new(memory.clone(), 1, Faults::default());
        let (journal, _) = Journal::open(faulty_options(&storage, sync)).unwrap();
        let mut model = Model::default();
        assert_eq!(model.append(&journal, &[10, 10, 10]), []);
        let before = journal.durable();
        // Once the next segment is prepared nothing but our batch meets the fault.
        let bad = Faults { write_fails: 1, sync_fails: 1, create_fails: 1, ..Faults::default() };
        storage.set_faults(bad);
        let errors = model.append(&journal, &[10, 10]);
        assert_eq!(errors.len(), 2);
        let refused = journal.append(entry(1, 0, "refused at once")).wait();
        assert!(matches!(refused, Err(AppendError::Unavailable { .. })), "{refused:?}");
        assert_eq!(journal.durable(), before, "nothing became durable");
        storage.set_faults(Faults::default());
        until_available(&journal);
        assert_eq!(model.append(&journal, &[20]), []);
        assert!(journal.durable().segment().sequence > before.segment().sequence, "never the same segment again");
        let stat = journal.stat();
        assert_eq!((stat.failures, stat.heals), (1, 1));
        model.check(&journal);
        memory.power_cut(7);
        drop(journal);
        let (journal, recovery) = open(&memory);
        assert_eq!(recovery.damage, []);
        model.check(&journal);
    }
}

#[test]
fn a_crash_at_any_byte_of_the_last_write_is_a_torn_tail() {
    let memory = MemoryStorage::new();
    let (journal, _) = open(&memory);
    let mut model = Model::default();
    model.append(&journal, &[100, 900]);
    model.append(&journal, &[3000, 500, 2500]);
    let acknowledged = model.acknowledged.clone();
    let start = usize::try_from(journal.durable().file_offset()).unwrap();
    model.append(&journal, &[700, 5000, 20]);
    let end = usize::try_from(journal.durable().file_offset()).unwrap();
    let segment = directory().join("0000000000000001-00000000.seg");
    memory.kill();
    drop(journal);
    for cut in (start..end).step_by(37).chain([start, start + 1, end - 1]) {
        for fill in [0_u8, 0xff, 0x5a] {
            let copy = memory.copy();
            assert!(copy.tamper(&segment, |bytes| bytes[cut..end].fill(fill)));
            let (journal, recovery) = open(&copy);
            assert_eq!(recovery.damage, [], "cut at {cut}");
            let there: BTreeMap<_, _> =
                read_all(&journal).into_iter().map(|r| (r.position, r.payload.to_vec())).collect();
            // What was durable before is there; of the rest, whole batches from the front or nothing. (Padding behind
            // the last record may be anything: then the batch is whole.)
            let prefix: BTreeMap<_, _> =
                model.acknowledged.iter().take(there.len()).map(|(k, v)| (*k, v.clone())).collect();
            assert_eq!(there, prefix, "cut at {cut}");
            let blocks: BTreeSet<u64> = there.keys().map(Position::file_offset).collect();
            let whole = model.acknowledged.keys().filter(|p| blocks.contains(&p.file_offset())).count();
            assert!(there.len() >= acknowledged.len() && whole == there.len(), "cut at {cut}: whole batches");
        }
    }
}

#[derive(Debug, Clone)]
enum Op {
    Append(Vec<usize>),
    Trim(usize),
    Close,
    Kill,
    PowerCut(u64),
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        6 => prop::collection::vec(0_usize..9000, 1..8).prop_map(Op::Append),
        1 => (0_usize..100).prop_map(Op::Trim),
        1 => Just(Op::Close),
        1 => Just(Op::Kill),
        1 => any::<u64>().prop_map(Op::PowerCut),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]
    #[test]
    fn any_sequence_of_operations_agrees_with_the_model(ops in prop::collection::vec(op(), 1..40), direct: bool) {
        let memory = if direct { MemoryStorage::new() } else { MemoryStorage::without_direct() };
        let mut model = Model::default();
        let mut journal = open(&memory).0;
        for op in ops {
            match op {
                Op::Append(sizes) => prop_assert_eq!(model.append(&journal, &sizes), []),
                Op::Trim(part) => {
                    let positions: Vec<Position> = model.acknowledged.keys().copied().collect();
                    let Some(at) = positions.get(positions.len() * part / 100) else { continue };
                    journal.trim_before(*at).unwrap();
                    let oldest = journal.segments().first().map(super::super::catalog::SegmentInfo::first);
                    prop_assert!(oldest <= Some(*at), "only what is before it");
                    model.acknowledged.retain(|position, _| Some(*position) >= oldest);
                }
                Op::Close => {
                    journal.close();
                    prop_assert!(Journal::verify_in(&memory, &directory()).unwrap().is_whole());
                    journal = open(&memory).0;
                }
                Op::Kill => {
                    memory.kill();
                    drop(journal);
                    let (opened, recovery) = open(&memory);
                    prop_assert_eq!(&recovery.damage, &[]);
                    journal = opened;
                }
                Op::PowerCut(seed) => {
                    memory.power_cut(seed);
                    drop(journal);
                    let (opened, recovery) = open(&memory);
                    prop_assert_eq!(&recovery.damage, &[]);
                    journal = opened;
                }
            }
            model.check(&journal);
        }
        journal.close();
        let report = Journal::verify_in(&memory, &directory()).unwrap();
        prop_assert!(report.is_whole(), "{:?}", report);
    }
}

#[test]
fn storage_behaves_as_a_disk_does() {
    // The faults are only worth something if what is not synced is really lost.
    let memory = MemoryStorage::new();
    memory.create_directory(&directory()).unwrap();
    let path = directory().join("file");
    memory.create_zeroed(&path, 4096).unwrap();
    memory.sync_directory(&directory()).unwrap();
    let file = memory.open_write(&path, crate::segment::storage::WriteMode::Buffered).unwrap();
    file.write_at(0, &[1; 4096]).unwrap();
    let lost = (0..20).any(|seed| {
        let copy = memory.copy_with_pending();
        copy.power_cut(seed);
        copy.files()[0].1 != [1; 4096]
    });
    assert!(lost);
    file.sync().unwrap();
    memory.power_cut(3);
    assert_eq!(memory.files()[0].1, [1; 4096]);
    assert!(file.write_at(0, &[2; 4096]).is_err(), "what was open before a power cut is dead");
}
