use super::*;
use std::fs;

const NEVER: Every = Every { alone: Duration::from_hours(24), beside: Duration::from_hours(24) };
const OFTEN: Every = Every { alone: Duration::from_millis(20), beside: Duration::from_millis(20) };

struct Place {
    root: tempfile::TempDir,
    watched: Watched,
}

fn place() -> Place {
    let root = tempfile::tempdir().unwrap();
    let watched = Watched {
        file: root.path().join("tidegate.toml"),
        tenants: root.path().join("tenants"),
        others: vec![root.path().join("elsewhere/edge.pem")],
    };
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
    // Events alone: the next look is tomorrow.
    let mut watcher = Watcher::with(place.watched.clone(), NEVER, SystemClock::shared(), false);
    changes(&place, &mut watcher);
}

#[test]
fn changes_are_told_by_looking() {
    let place = place();
    let mut watcher = Watcher::with(place.watched.clone(), OFTEN, SystemClock::shared(), true);
    changes(&place, &mut watcher);
}

#[test]
fn where_there_are_no_events_it_looks() {
    let place = place();
    fs::remove_dir_all(&place.watched.tenants).unwrap();
    let tenants = place.watched.tenants.join("volume/tenants");
    let watched = Watched { tenants: tenants.clone(), ..place.watched };
    assert!(Events::start(&watched).is_err());
    let mut watcher = Watcher::with(watched, OFTEN, SystemClock::shared(), false);
    fs::create_dir_all(&tenants).unwrap();
    assert!(told(&mut watcher));
}

/// Events follow a link when they are set up, and never again.
#[test]
fn what_links_lead_to_is_noticed_beside_events() {
    use std::os::unix::fs::symlink;
    let root = tempfile::tempdir().unwrap();
    let at = |name: &str| root.path().join(name);
    for release in ["releases/42", "releases/43"] {
        fs::create_dir_all(at(release).join("tenants")).unwrap();
        fs::write(at(release).join("tidegate.toml"), release).unwrap();
    }
    fs::create_dir_all(at("shared")).unwrap();
    fs::write(at("shared/acme.toml"), "1").unwrap();
    for release in ["releases/42", "releases/43"] {
        symlink(at("shared/acme.toml"), at(release).join("tenants/acme.toml")).unwrap();
    }
    symlink("releases/42", at("current")).unwrap();
    let watched = Watched { file: at("current/tidegate.toml"), tenants: at("current/tenants"), others: Vec::new() };
    assert!(Events::start(&watched).is_ok(), "it listens");
    let mut watcher = Watcher::with(watched, OFTEN, SystemClock::shared(), false);
    fs::write(at("shared/acme.toml"), "12").unwrap();
    assert!(told(&mut watcher), "a file was written that a link leads to");
    symlink("releases/43", at("next")).unwrap();
    fs::rename(at("next"), at("current")).unwrap();
    assert!(told(&mut watcher), "a link above the directory leads elsewhere");
    fs::write(at("releases/43/tidegate.toml"), "anew").unwrap();
    assert!(told(&mut watcher), "a file was written where the link leads now");
}

#[test]
fn a_change_that_was_heard_is_told_once() {
    let place = place();
    let mut watcher = Watcher::with(place.watched.clone(), OFTEN, SystemClock::shared(), false);
    // In one step, so that no look comes between two of them.
    fs::write(place.root.path().join("new"), "1").unwrap();
    fs::rename(place.root.path().join("new"), place.watched.tenants.join("acme.toml")).unwrap();
    assert!(told(&mut watcher));
    // Many looks later nobody has anything to say.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let more = runtime.block_on(async { tokio::time::timeout(Duration::from_millis(500), watcher.changed()).await });
    assert!(more.is_err());
}

#[test]
fn dropping_it_does_not_wait_for_the_next_look() {
    let place = place();
    for only_poll in [false, true] {
        let watcher = Watcher::with(place.watched.clone(), NEVER, SystemClock::shared(), only_poll);
        let (done, dropped) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            drop(watcher);
            done.send(()).unwrap();
        });
        dropped.recv_timeout(Duration::from_mins(10)).unwrap();
    }
}

#[test]
fn what_is_heard_of_each_change() {
    let Place { root, watched } = place();
    let (tenants, at) = (&watched.tenants, |name: &str| watched.tenants.join(name));
    fs::write(at("acme.toml"), "1").unwrap();
    fs::write(at("acme.secrets/key"), "1").unwrap();
    let events = Events::start(&watched).unwrap();
    let heard = |what: &dyn Fn() -> std::io::Result<()>| {
        what().unwrap();
        events.read()
    };
    // A reload reads files and lists directories; it must not be the reason for the next one.
    let read = || {
        fs::read(at("acme.toml"))?;
        fs::read(at("acme.secrets/key"))?;
        fs::read(&watched.file)?;
        fs::read_dir(tenants)?.for_each(drop);
        fs::read_dir(at("acme.secrets"))?.for_each(drop);
        Ok(())
    };
    assert_eq!(heard(&read), Heard::Nothing);
    assert_eq!(heard(&|| fs::write(root.path().join("other"), "")), Heard::Nothing);
    assert_eq!(heard(&|| fs::write(&watched.file, "# 2")), Heard::Changed);
    assert_eq!(heard(&|| fs::write(root.path().join("..data"), "")), Heard::Changed);
    assert_eq!(heard(&|| fs::write(at("acme.toml"), "2")), Heard::Changed);
    assert_eq!(heard(&|| fs::write(at("acme.secrets/key"), "2")), Heard::Changed);
    assert_eq!(heard(&|| fs::create_dir(at("beta.secrets"))), Heard::Changed);
    assert_eq!(heard(&|| fs::write(at("beta.secrets/key"), "1")), Heard::Changed);
    assert_eq!(heard(&|| fs::remove_dir_all(at("beta.secrets"))), Heard::Changed);
    assert_eq!(heard(&|| fs::create_dir(at("gamma.secrets"))), Heard::Changed);
    assert_eq!(heard(&|| fs::rename(at("gamma.secrets"), root.path().join("old"))), Heard::Elsewhere);
    assert_eq!(heard(&|| std::os::unix::fs::symlink("..", at("delta.secrets"))), Heard::Elsewhere);
    assert_eq!(heard(&|| fs::rename(tenants, root.path().join("away"))), Heard::Elsewhere);
    assert_eq!(events.read(), Heard::Nothing, "everything is heard once");
    let events = Events::start(&watched).unwrap();
    fs::create_dir(tenants).unwrap();
    assert_eq!(events.read(), Heard::Elsewhere);
}

#[test]
fn a_link_to_secrets_is_followed() {
    let Place { root, watched } = place();
    let elsewhere = root.path().join("volume");
    fs::create_dir(&elsewhere).unwrap();
    std::os::unix::fs::symlink(&elsewhere, watched.tenants.join("beta.secrets")).unwrap();
    let events = Events::start(&watched).unwrap();
    fs::write(elsewhere.join("key"), "1").unwrap();
    assert_eq!(events.read(), Heard::Changed);
}

#[test]
fn events_that_were_lost_are_a_change_and_a_reason_to_watch_anew() {
    let place = place();
    let events = Events::start(&place.watched).unwrap();
    let most: usize = fs::read_to_string("/proc/sys/fs/inotify/max_queued_events").unwrap().trim().parse().unwrap();
    let (one, other) = (place.watched.tenants.join("1"), place.watched.tenants.join("2"));
    fs::write(&one, "").unwrap();
    for _ in 0..=most / 4 {
        fs::rename(&one, &other).unwrap();
        fs::rename(&other, &one).unwrap();
    }
    // The queue may be longer than what is read in one go.
    assert!(
        (0..=most)
            .map(|_| events.read())
            .take_while(|heard| *heard != Heard::Nothing)
            .any(|heard| heard == Heard::Elsewhere)
    );
}

/// A clock that goes on by itself, a tenth of a second each time that somebody looks.
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

#[test]
fn somebody_who_never_stops_writing_does_not_hold_reloads_up() {
    let mut asked = 0;
    let next = &mut |_| {
        asked += 1;
        Woken::Heard(Heard::Changed)
    };
    assert_eq!(settle(Heard::Elsewhere, next, &Hasty(0.into())), Some(Heard::Elsewhere));
    // Thirty looks at the clock are three seconds here.
    assert_eq!(asked, 30);
}

#[test]
fn a_burst_is_over_when_it_is_quiet_whatever_else_goes_on_beside_it() {
    let mut waits = Vec::new();
    let mut burst = [Heard::Nothing, Heard::Changed, Heard::Nothing, Heard::Nothing].into_iter();
    let next = &mut |time: Duration| {
        waits.push(time.as_millis());
        burst.next().map_or(Woken::TimeUp, Woken::Heard)
    };
    assert_eq!(settle(Heard::Changed, next, &Hasty(0.into())), Some(Heard::Changed));
    assert_eq!(waits, [250, 150, 250, 150, 50]);
    assert_eq!(settle(Heard::Changed, &mut |_| Woken::Stop, &Hasty(0.into())), None);
}

#[test]
fn events_come_back_when_what_kept_them_away_is_over() {
    use std::os::unix::fs::MetadataExt;
    let Place { root, watched } = place();
    let (volume, away) = (root.path().join("volume"), root.path().join("away"));
    let watched = Watched { tenants: volume.join("tenants"), ..watched };
    fs::create_dir_all(&watched.tenants).unwrap();
    let inode = format!("ino:{:x} ", fs::metadata(&watched.tenants).unwrap().ino());
    let mut watcher =
        Watcher::with(watched.clone(), Every { beside: NEVER.beside, ..OFTEN }, SystemClock::shared(), false);
    fs::rename(&volume, &away).unwrap();
    assert!(told(&mut watcher), "the volume was taken away");
    assert!(Events::start(&watched).is_err());
    fs::rename(&away, &volume).unwrap();
    // The kernel lists what is watched.
    let watches = || {
        let infos = fs::read_dir("/proc/self/fdinfo").unwrap().flatten();
        let mut texts = infos.filter_map(|info| fs::read_to_string(info.path()).ok());
        texts.any(|text| text.lines().any(|line| line.starts_with("inotify") && line.contains(&inode)))
    };
    let listens = (0..50).any(|time| {
        assert!(told(&mut watcher), "the volume came back, or a file was written");
        let listens = watches();
        fs::write(watched.tenants.join("acme.toml"), "x".repeat(time)).unwrap();
        listens
    });
    assert!(listens);
}
