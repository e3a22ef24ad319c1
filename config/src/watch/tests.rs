use super::*;
use notify::event::{CreateKind, Flag, ModifyKind};
use std::fs;
use std::time::Instant;

struct Place {
    root: tempfile::TempDir,
    watched: Watched,
}

fn place() -> Place {
    let root = tempfile::tempdir().unwrap();
    let watched = Watched { file: root.path().join("tidegate.toml"), tenants: root.path().join("tenants") };
    fs::write(&watched.file, "").unwrap();
    fs::create_dir_all(watched.tenants.join("acme.secrets")).unwrap();
    Place { root, watched }
}

fn told(watcher: &mut Watcher) -> bool {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(async { tokio::time::timeout(Duration::from_secs(20), watcher.changed()).await }).unwrap_or(false)
}

/// Each of these is noticed.
fn changes(place: &Place, watcher: &mut Watcher) {
    let tenants = &place.watched.tenants;
    fs::write(tenants.join("acme.toml"), "1").unwrap();
    assert!(told(watcher), "a file was added");
    fs::write(tenants.join("acme.toml"), "12").unwrap();
    assert!(told(watcher), "a file was written");
    fs::write(tenants.join("acme.secrets/key"), "1").unwrap();
    assert!(told(watcher), "a secret was added");
    fs::write(place.root.path().join("new"), "1").unwrap();
    fs::rename(place.root.path().join("new"), &place.watched.file).unwrap();
    assert!(told(watcher), "the appliance's file was replaced");
    fs::remove_file(tenants.join("acme.toml")).unwrap();
    assert!(told(watcher), "a file was taken away");
    fs::rename(tenants, place.root.path().join("old")).unwrap();
    assert!(told(watcher), "the directory was taken away");
    fs::create_dir(tenants).unwrap();
    assert!(told(watcher), "the directory came back");
    fs::write(tenants.join("beta.toml"), "1").unwrap();
    assert!(told(watcher), "a file was added to the new directory");
}

#[test]
fn changes_are_told_by_events() {
    let place = place();
    let mut watcher = Watcher::with(place.watched.clone(), POLL, SystemClock::shared(), false);
    assert!(!watcher.is_polling());
    changes(&place, &mut watcher);
}

#[test]
fn changes_are_told_by_looking() {
    let place = place();
    let mut watcher = Watcher::with(place.watched.clone(), Duration::from_millis(20), SystemClock::shared(), true);
    assert!(watcher.is_polling());
    changes(&place, &mut watcher);
}

#[test]
fn without_a_directory_it_looks_until_there_is_one() {
    let place = place();
    fs::remove_dir_all(&place.watched.tenants).unwrap();
    let mut watcher = Watcher::with(place.watched.clone(), Duration::from_millis(20), SystemClock::shared(), false);
    assert!(watcher.is_polling());
    fs::create_dir(&place.watched.tenants).unwrap();
    assert!(told(&mut watcher));
}

#[test]
fn dropping_it_does_not_wait_for_the_next_look() {
    let place = place();
    for only_poll in [false, true] {
        let watcher = Watcher::with(place.watched.clone(), Duration::from_hours(1), SystemClock::shared(), only_poll);
        #[expect(clippy::disallowed_methods, reason = "the time that a thread takes to end is the machine's")]
        let began = Instant::now();
        drop(watcher);
        assert!(began.elapsed() < Duration::from_mins(10));
    }
}

#[test]
fn reading_a_file_is_no_change_of_it() {
    let Place { watched, .. } = place();
    let kind = |kind: EventKind, path: &Path| signal_of(&watched, &Event::new(kind).add_path(path.into())).is_some();
    let (file, other) = (watched.tenants.join("acme.toml"), watched.file.with_file_name("other"));
    assert!(!kind(EventKind::Access(AccessKind::Open(AccessMode::Any)), &file));
    assert!(!kind(EventKind::Access(AccessKind::Close(AccessMode::Read)), &file));
    assert!(kind(EventKind::Access(AccessKind::Close(AccessMode::Write)), &file));
    assert!(kind(EventKind::Modify(ModifyKind::Any), &watched.file));
    assert!(!kind(EventKind::Modify(ModifyKind::Any), &other));
    assert!(kind(EventKind::Create(CreateKind::Any), &watched.file.with_file_name("..data")));
    let lost = Event::new(EventKind::Other).set_flag(Flag::Rescan);
    assert!(matches!(signal_of(&watched, &lost), Some(Signal::Lost)));
}

#[test]
fn somebody_who_never_stops_writing_does_not_hold_reloads_up() {
    #[derive(Debug)]
    struct Hasty(std::sync::atomic::AtomicU64);
    impl Clock for Hasty {
        fn unix_ms(&self) -> u64 {
            0
        }
        fn monotonic(&self) -> Duration {
            Duration::from_millis(self.0.fetch_add(100, std::sync::atomic::Ordering::SeqCst))
        }
    }
    let (sender, receiver) = sync_channel(1000);
    for _ in 0..1000 {
        sender.try_send(Signal::Changed).unwrap();
    }
    assert_eq!(settle(Signal::Replaced, &receiver, &Hasty(0.into())), Some(Settled::Replaced));
    // Thirty looks at the clock are three seconds here; the rest is for the next time.
    assert!(receiver.try_iter().count() > 900);
}

#[test]
fn lost_events_are_a_change_only_if_something_changed() {
    let place = place();
    let (sender, receiver) = sync_channel(SIGNALS);
    let (unheard, _nobody) = sync_channel(SIGNALS);
    let watcher = events(&place.watched, unheard).unwrap();
    let (told, changes) = watch::channel(0);
    let watched = place.watched.clone();
    let thread = std::thread::spawn(move || on_events(&watched, watcher, &receiver, &told, &SystemClock::new()));
    let lost = || sender.send(Signal::Lost).unwrap();
    lost();
    std::thread::park_timeout(QUIET * 3);
    assert_eq!(*changes.borrow(), 0, "a reload that loses events by reading is no reason for the next one");
    fs::write(place.watched.tenants.join("acme.toml"), "tenant = \"acme\"").unwrap();
    lost();
    let mut seen = changes.clone();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let change = seen.wait_for(|count| *count == 1);
    drop(runtime.block_on(async { tokio::time::timeout(Duration::from_secs(20), change).await }).unwrap().unwrap());
    lost();
    std::thread::park_timeout(QUIET * 3);
    sender.send(Signal::Stop).unwrap();
    thread.join().unwrap();
    assert_eq!(*changes.borrow(), 1);
}
