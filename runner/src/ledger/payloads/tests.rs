use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use domain::ManualClock;

use super::*;

const NOW: u64 = 1_800_000_000_000;

struct Rig {
    clock: Arc<ManualClock>,
    store: PayloadDirectory,
    directory: tempfile::TempDir,
}

fn rig() -> Rig {
    let (clock, directory) = (ManualClock::at_unix_ms(NOW), tempfile::tempdir().unwrap());
    let store = PayloadDirectory::open(directory.path(), Arc::<ManualClock>::clone(&clock)).unwrap();
    Rig { clock, store, directory }
}

fn tenant(name: &str) -> TenantId {
    TenantId::parse(name).unwrap()
}

fn bytes(of: u8, length: usize) -> Bytes {
    vec![of; length].into()
}

impl Rig {
    fn keep(&self, of: u8, length: usize) -> Payload {
        self.store.keep_here(&tenant("acme"), &bytes(of, length), Bounds::default()).unwrap()
    }

    fn fetch(&self, payload: &Payload) -> Result<Fetched, PayloadError> {
        self.store.fetch_here(&tenant("acme"), payload)
    }

    fn file(&self, payload: &Payload) -> PathBuf {
        let digest = data_encoding::HEXLOWER.encode(&payload.digest);
        self.directory.path().join("acme").join(&digest[..2]).join(digest)
    }
}

#[test]
fn each_size_is_kept_in_its_way_and_says_so() {
    let rig = rig();
    let bounds = Bounds::default();
    for (length, kept) in
        [(0, "inline"), (4096, "inline"), (4097, "stored"), (8 << 20, "stored"), ((8 << 20) + 1, "cut")]
    {
        let payload = rig.keep(7, length);
        assert_eq!((payload.bytes, payload.digest), (length as u64, *blake3::hash(&bytes(7, length)).as_bytes()));
        let fetched = rig.fetch(&payload).unwrap();
        match payload.kept {
            Kept::Inline(_) => assert_eq!((kept, fetched), ("inline", Fetched::Whole(bytes(7, length)))),
            Kept::Stored => assert_eq!((kept, fetched), ("stored", Fetched::Whole(bytes(7, length)))),
            // No store makes one: it has all that it is given.
            Kept::Beginning(_) => panic!("{payload:?}"),
            Kept::Truncated(_) => {
                assert_eq!((kept, fetched), ("cut", Fetched::Truncated(bytes(7, bounds.truncated_bytes))));
            }
            Kept::Expired => panic!("nothing is over age"),
        }
    }
    assert_eq!(rig.store.stat().unwrap().files, 2);
}

#[test]
fn a_tenant_has_its_own_and_no_others() {
    let rig = rig();
    let payload = rig.keep(1, 5000);
    assert_eq!(rig.store.fetch_here(&tenant("acme2"), &payload), Ok(Fetched::Expired));
}

#[test]
fn damage_is_told_and_never_given_out() {
    let rig = rig();
    let payload = rig.keep(1, 5000);
    let path = rig.file(&payload);
    let mut changed = fs::read(&path).unwrap();
    changed[4999] ^= 1;
    fs::write(&path, &changed).unwrap();
    assert!(matches!(rig.fetch(&payload), Err(PayloadError::Damaged(_))));
    for length in [4999, 5001] {
        fs::write(&path, vec![1; length]).unwrap();
        assert!(matches!(rig.fetch(&payload), Err(PayloadError::Damaged(_))));
    }
}

#[test]
fn a_sweep_takes_what_is_over_age_and_nobody_needs() {
    let rig = rig();
    let hour = Duration::from_hours(1);
    let (old, needed, again) = (rig.keep(1, 5000), rig.keep(2, 5000), rig.keep(3, 5000));
    rig.clock.advance(hour);
    // Kept again: young again.
    assert_eq!(rig.keep(3, 5000), again);
    let young = rig.keep(4, 5000);
    let is_needed = |of: &TenantId, digest: &[u8; 32]| *of == tenant("acme") && *digest == needed.digest;
    let swept = rig.store.sweep(NOW + 1, is_needed).unwrap();
    assert_eq!(swept, Swept { files: 1, bytes: 5000 });
    assert_eq!(rig.fetch(&old), Ok(Fetched::Expired));
    for payload in [&needed, &again, &young] {
        assert!(matches!(rig.fetch(payload), Ok(Fetched::Whole(_))));
    }
    assert_eq!(rig.store.sweep(NOW, |_, _| false).unwrap(), Swept::default(), "the bound itself stays");
}

#[test]
fn what_a_process_did_not_finish_is_dropped_by_the_next() {
    let rig = rig();
    let stored = rig.keep(1, 5000);
    let unfinished = rig.directory.path().join(".tmp-9");
    fs::write(&unfinished, b"half").unwrap();
    let store = PayloadDirectory::open(rig.directory.path(), Arc::<ManualClock>::clone(&rig.clock)).unwrap();
    assert!(!unfinished.exists());
    assert!(matches!(store.fetch_here(&tenant("acme"), &stored), Ok(Fetched::Whole(_))));
}

#[test]
fn a_payload_moves_out_of_its_record() {
    let rig = rig();
    let mut payload = rig.keep(1, 100);
    rig.store.move_out(&tenant("acme"), &mut payload).unwrap();
    assert_eq!(payload.kept, Kept::Stored);
    assert_eq!(rig.fetch(&payload), Ok(Fetched::Whole(bytes(1, 100))));
    rig.clock.advance(Duration::from_mins(1));
    rig.store.move_out(&tenant("acme"), &mut payload).unwrap();
    assert_eq!(rig.store.sweep(NOW + 1, |_, _| false).unwrap().files, 0, "it is young again");
}

#[tokio::test]
async fn it_is_a_store_of_payloads() {
    let rig = rig();
    let store: &dyn PayloadStore = &rig.store;
    for length in [10, 10_000, 9 << 20] {
        let payload = store.keep(tenant("acme"), bytes(5, length), Bounds::default()).await.unwrap();
        let fetched = store.fetch(tenant("acme"), &payload).await.unwrap();
        assert_eq!(fetched, rig.fetch(&payload).unwrap());
    }
}

/// Many keep what one sweeps: nothing that was kept after the bound is ever gone.
#[test]
fn keeping_and_sweeping_at_once_lose_nothing() {
    let rig = rig();
    for of in 0..20 {
        rig.keep(of, 5000);
    }
    rig.clock.advance(Duration::from_secs(10));
    std::thread::scope(|scope| {
        for part in 0..4_u8 {
            let rig = &rig;
            scope.spawn(move || {
                for of in 0..20 {
                    let payload = rig.keep((of + part * 5) % 20, 5000);
                    assert!(matches!(rig.fetch(&payload), Ok(Fetched::Whole(_))), "kept after the bound");
                }
            });
        }
        scope.spawn(|| {
            for _ in 0..20 {
                rig.store.sweep(NOW + 5000, |_, _| false).unwrap();
            }
        });
    });
}
