//! The whole, opened and closed as the appliance does it.

use std::path::Path;

use config::MapEnvironment;
use domain::{ConnectorId, SystemClock, TenantId};
use egress::quota::Whose;
use ratelimit::breaker::{Change, Outcome};
use ratelimit::breaker::{Fault as Broken, Phase};
use ratelimit::quota::holder::{Need, Per};
use ratelimit::quota::{Application, BucketKey, Class, Kind, Level, Metered, Name, NoteKind, Rule, RuleSpec, Share};
use ratelimit::{Now, PairKey};

use super::*;

fn appliance(directory: &Path, text: &str) -> Appliance {
    let text = format!("[egress]\n[log]\ndirectory = \"{}/log\"\n{text}", directory.display());
    let (appliance, faults) = config::parse_appliance(Path::new("tidegate.toml"), text.as_bytes());
    appliance.unwrap_or_else(|| panic!("{faults:?}"))
}

fn open(directory: &Path, text: &str) -> Result<Quota, RunError> {
    let environment: Arc<dyn Environment> = Arc::new(MapEnvironment::default());
    let appliance = appliance(directory, text);
    std::fs::create_dir_all(&appliance.tenants.state_directory).unwrap();
    let by = (Path::new("tidegate.toml"), &environment);
    Quota::open(by, &appliance, &mut Registry::with_prefix("tidegate"))
}

fn acme() -> TenantId {
    TenantId::parse("acme").unwrap()
}

fn pair() -> PairKey {
    PairKey::connector(&acme(), &ConnectorId::parse("hubspot").unwrap())
}

fn tell(quota: &Quota, change: Change) {
    let tenant = acme();
    let whose = Whose { tenant: &tenant, kind: "connector", what: "hubspot" };
    quota.opened().watcher.breaker(pair(), &whose, change);
}

fn now() -> Now {
    Now::of(&BootClock::default())
}

fn alarms(quota: &Quota) -> Vec<String> {
    quota.alarms().iter().flat_map(|alarm| alarm()).collect()
}

fn route(holder: &Holder, cap: u32) -> ratelimit::quota::holder::Route {
    let name = |text| Name::parse(text).unwrap();
    let kind = Kind::Fixed { window_ms: 3_600_000, offset_ms: 0 };
    let rule = Rule::checked(RuleSpec { cfgver: 1, kind, cap, lease_ms: 500, guard_ms: 0, skew_ms: 0 }).unwrap();
    let key = BucketKey { level: Level::App, scope: name("main"), policy: name("hour") };
    let bucket = Metered { key: Arc::new(key), rule: Arc::new(rule) };
    let application = Application { provider: name("hubspot"), name: name("main") };
    let share = Share { weight: 1, floor_permille: 0, ceiling_permille: 1_000 };
    holder.route(&name("acme"), share, &[Need { application, bucket, per: Per::Units(1) }]).unwrap()
}

/// A call, as the path makes one; whether it was let out.
fn call(quota: &Quota, cap: u32) -> bool {
    let holder = &quota.opened().holder;
    let route = route(holder, cap);
    quota.runtime.block_on(async {
        let wait = Some(Duration::from_secs(1));
        match holder.hold(&route, Class::Interactive, 1, wait).await {
            Ok(held) => {
                held.check().unwrap();
                held.sent();
                true
            }
            Err(_) => false,
        }
    })
}

fn break_it(quota: &Quota) -> Change {
    let (breakers, rules) = (&quota.opened().guards.breakers, quota.opened().rules.now().breaker);
    let change = (0..100).find_map(|_| {
        let ticket = breakers.admit(pair(), &rules, now()).ok()?;
        breakers.report(pair(), &rules, ticket, Outcome::Failed(Broken::Timeout), now())
    });
    let change = change.unwrap();
    tell(quota, change);
    change
}

#[test]
fn what_is_known_survives_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let first = open(directory.path(), "").unwrap();
    assert!(matches!(break_it(&first), Change::Opened { .. }));
    for _ in 0..3 {
        let rules = first.opened().rules.now().runaway;
        first.opened().guards.runaways.attempt(pair(), &rules, now());
    }
    assert!(call(&first, 1), "the hour's only unit");
    assert_eq!(alarms(&first), Vec::<String>::new());
    first.close();

    let second = open(directory.path(), "").unwrap();
    let guards = &second.opened().guards;
    assert_eq!(guards.breakers.phase(pair(), now()), Phase::Open);
    assert_eq!(guards.runaways.tracked(), 1);
    assert!(!call(&second, 1), "the hour's unit was used before");
    // It works again: the next start knows nothing of it.
    guards.breakers.reset(pair());
    tell(&second, Change::Closed);
    second.close();
    let third = open(directory.path(), "").unwrap();
    assert_eq!(third.opened().guards.breakers.tracked(), 0);
    assert_eq!(third.keeper.open_breakers(), 0);
    third.close();
}

/// Nothing is waited for between the change and the crash but the disk.
#[test]
fn an_open_breaker_survives_a_crash() {
    let directory = tempfile::tempdir().unwrap();
    let first = open(directory.path(), "").unwrap();
    break_it(&first);
    let journal = directory.path().join("state").join(journal::FILE);
    let copied = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(copied.path().join("state")).unwrap();
    let began = SystemClock::new();
    let is_there = || {
        // As a crash leaves it: the lock is with the process, and the file as it is.
        std::fs::copy(&journal, copied.path().join("state").join(journal::FILE)).unwrap();
        let second = open(copied.path(), "").unwrap();
        let phase = second.opened().guards.breakers.phase(pair(), now());
        second.close();
        phase == Phase::Open
    };
    while !is_there() {
        assert!(began.monotonic() < Duration::from_secs(10), "it was never written");
    }
    first.close();
}

#[test]
fn a_damaged_note_is_dropped_and_counted() {
    let directory = tempfile::tempdir().unwrap();
    let first = open(directory.path(), "").unwrap();
    break_it(&first);
    let (key, note) = first.journal.notes(NoteKind::Breaker).remove(0);
    let mut flipped = note.to_vec();
    *flipped.last_mut().unwrap() ^= 1;
    // Past the keeper, so that it is not written anew at the end.
    first.opened().guards.breakers.reset(pair());
    first.runtime.block_on(first.journal.note(NoteKind::Breaker, &key, Some(&flipped))).unwrap();
    first.runtime.block_on(first.journal.note(NoteKind::Baseline, b"no key", Some(&note))).unwrap();
    first.close();

    let mut registry = Registry::with_prefix("tidegate");
    let environment: Arc<dyn Environment> = Arc::new(MapEnvironment::default());
    let by = (Path::new("tidegate.toml"), &environment);
    let appliance = appliance(directory.path(), "");
    let second = Quota::open(by, &appliance, &mut registry).unwrap();
    assert_eq!(second.opened().guards.breakers.tracked(), 0, "it is not believed");
    assert_eq!(second.journal.notes(NoteKind::Breaker), [], "nor kept");
    assert_eq!(second.journal.notes(NoteKind::Baseline), []);
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
    assert!(text.contains("tidegate_egress_quota_notes_damaged_total 2\n"), "{text}");
    second.close();
}

#[test]
fn a_sweep_writes_baselines_and_drops_notes_of_what_is_forgotten() {
    let directory = tempfile::tempdir().unwrap();
    let quota = open(directory.path(), "").unwrap();
    break_it(&quota);
    let rules = quota.opened().rules.now().runaway;
    for account in 0..50 {
        let key = PairKey::automation(&acme(), &format!("run-{account}"));
        quota.opened().guards.runaways.attempt(key, &rules, now());
    }
    quota.runtime.block_on(quota.keeper.sweep());
    let some = quota.journal.notes(NoteKind::Baseline).len();
    assert!(some < 50, "a part with each sweep: {some}");
    for _ in 0..180 {
        quota.runtime.block_on(quota.keeper.sweep());
    }
    assert_eq!(quota.journal.notes(NoteKind::Baseline).len(), 50, "all within an hour");
    assert_eq!(quota.journal.notes(NoteKind::Breaker).len(), 1);
    // Nobody told that it went, as where it made room for another one.
    quota.opened().guards.breakers.reset(pair());
    quota.runtime.block_on(quota.keeper.sweep());
    assert_eq!(quota.journal.notes(NoteKind::Breaker).len(), 0);
    quota.close();
}

#[test]
fn a_redis_that_is_not_there_hinders_no_start() {
    let directory = tempfile::tempdir().unwrap();
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let text = format!(
        "[egress.dns]\nservers = [\"127.0.0.1:{port}\"]\n[quota]\nstore = \"redis\"\n[quota.redis]\naddresses = [\"127.0.0.1:{port}\"]\n"
    );
    let began = SystemClock::new();
    let quota = open(directory.path(), &text).unwrap();
    assert!(began.monotonic() < Duration::from_secs(2), "{:?}", began.monotonic());
    assert!(!call(&quota, 1_000), "it is parked");
    break_it(&quota);
    while alarms(&quota).is_empty() {
        assert!(began.monotonic() < Duration::from_secs(30), "nothing is said");
        std::thread::park_timeout(Duration::from_millis(50));
    }
    let told = alarms(&quota).join("\n");
    assert!(told.contains("store has not answered") && told.contains("nothing listens there"), "{told}");
    assert!(!quota.store.is_there());
    quota.close();
    assert!(began.monotonic() < Duration::from_secs(40), "nor the end");
    // Its own notes it has all the same.
    let again = open(directory.path(), "").unwrap();
    assert_eq!(again.opened().guards.breakers.phase(pair(), now()), Phase::Open);
    again.close();
}

#[test]
fn a_journal_that_cannot_be_written_is_told() {
    let directory = tempfile::tempdir().unwrap();
    let quota = open(directory.path(), "").unwrap();
    assert_eq!(alarms(&quota), Vec::<String>::new());
    std::fs::remove_dir_all(directory.path().join("state")).unwrap();
    quota.journal.hand_over().unwrap_err();
    let told = alarms(&quota).join("\n");
    assert!(told.contains("journal cannot be written"), "{told}");
    assert!(!quota.store.is_there() && !call(&quota, 1_000), "nothing is granted that cannot be remembered");
    break_it(&quota);
    assert_eq!(quota.keeper.counts.unwritten.load(std::sync::atomic::Ordering::Relaxed), 1);
    quota.close();
}

#[test]
fn a_runaway_is_as_it_was_after_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let first = open(
        directory.path(),
        "[quota.runaway]\nplan_per_minute = 1\nfloor_per_minute = 1\ntrigger_factor = 2\nthrottle_factor = 1\n",
    )
    .unwrap();
    let (runaways, rules) = (&first.opened().guards.runaways, first.opened().rules.now().runaway);
    // Two samples over in a row.
    let later = |ms| Now { mono_ms: now().mono_ms + ms, ..now() };
    let events: Vec<_> = (0..8).filter_map(|n| runaways.attempt(pair(), &rules, later(n * 10_000)).event).collect();
    assert!(matches!(events[..], [ratelimit::runaway::Event::Began { .. }]), "{events:?}");
    let tenant = acme();
    let whose = Whose { tenant: &tenant, kind: "connection", what: "crm" };
    first.opened().watcher.runaway(pair(), &whose, events[0]);
    assert_eq!(first.journal.notes(NoteKind::Baseline).len(), 1, "at once");
    first.close();
    let second = open(directory.path(), "").unwrap();
    let verdict = second.opened().guards.runaways.verdict(pair(), &rules, now());
    assert!(matches!(verdict, ratelimit::runaway::Verdict::Throttled { .. }), "{verdict:?}");
    second.runtime.block_on(second.keeper.sweep());
    assert_eq!(second.keeper.counts.throttled.load(std::sync::atomic::Ordering::Relaxed), 1);
    second.close();
}

#[test]
fn a_journal_that_is_none_is_said_with_what_to_do() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(directory.path().join("state")).unwrap();
    std::fs::write(directory.path().join("state").join(journal::FILE), b"something else altogether").unwrap();
    let error = open(directory.path(), "").unwrap_err().to_string();
    assert!(error.contains("damaged at byte 0") && error.contains("move the file away"), "{error}");
}

/// A redis-server of a test's own, that wants a password.
struct Redis {
    child: std::process::Child,
    port: u16,
    _directory: tempfile::TempDir,
}

impl Redis {
    fn start(port: u16) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let mut command = std::process::Command::new("redis-server");
        command.args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", "", "--requirepass", "hunter2"]);
        command.arg("--dir").arg(directory.path());
        let null = std::process::Stdio::null;
        let spawned = command.stdout(null()).stderr(null()).spawn();
        let child = spawned.unwrap_or_else(|error| panic!("redis-server is to be installed: {error}"));
        Self { child, port, _directory: directory }
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

fn node(directory: &Path, port: u16) -> Quota {
    let secret = directory.join("password");
    std::fs::write(&secret, "hunter2\n").unwrap();
    let text = format!(
        "[egress.dns]\nservers = [\"127.0.0.1:1\"]\n[quota]\nstore = \"redis\"\nbudget = \"1s\"\n\
         [quota.redis]\naddresses = [\"localhost:{port}\"]\npassword = \"file:{}\"\n",
        secret.display()
    );
    open(directory, &text).unwrap()
}

#[track_caller]
fn within(what: &str, limit: Duration, mut is_so: impl FnMut() -> bool) {
    let began = SystemClock::new();
    while !is_so() {
        assert!(began.monotonic() < limit, "{what}");
        std::thread::park_timeout(Duration::from_millis(25));
    }
}

#[test]
fn nodes_share_what_redis_counts_and_hear_of_each_others_parks() {
    let redis = Redis::start(free_port());
    let directories = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let [one, other] = [0, 1].map(|at| node(directories[at].path(), redis.port));
    within("nothing goes out", Duration::from_secs(20), || call(&one, 1_000_000));
    within("nothing goes out", Duration::from_secs(20), || call(&other, 1_000_000));
    assert_eq!((alarms(&one), alarms(&other)), (Vec::new(), Vec::new()));

    // What a provider says to one stops the other, which has units of its own.
    let throttled = &one.opened().holder;
    one.runtime.block_on(async {
        let route = route(throttled, 1_000_000);
        let held = throttled.hold(&route, Class::Interactive, 1, Some(Duration::from_secs(1))).await.unwrap();
        held.sent();
        held.throttled(0, 60_000, Why::Provider);
    });
    let holder = &other.opened().holder;
    let route = route(holder, 1_000_000);
    let is_parked = || {
        let held = other.runtime.block_on(holder.hold(&route, Class::Interactive, 1, None));
        held.is_err_and(|parked| parked.release_ms > 10_000)
    };
    within("the other node goes on", Duration::from_secs(5), is_parked);
    one.close();
    other.close();
}

#[test]
fn a_redis_that_goes_and_comes_back_is_told_of() {
    let port = free_port();
    let directory = tempfile::tempdir().unwrap();
    let quota = node(directory.path(), port);
    within("nothing is said", Duration::from_secs(20), || !alarms(&quota).is_empty());
    let redis = Redis::start(port);
    // Nobody calls: it is looked at all the same.
    within("it is not noticed", Duration::from_secs(20), || alarms(&quota).is_empty());
    assert!(quota.store.is_there());
    drop(redis);
    within("it is not noticed", Duration::from_secs(20), || !alarms(&quota).is_empty());
    quota.close();
}
