//! What is in force is the last good version with its secrets as they are now: whatever happened before, and whether the
//! process has run all along or starts.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use domain::ManualClock;
use proptest::prelude::*;
use tempfile::TempDir;
use tidegate_config::{ABSENCE, Appliance, Fault, MapEnvironment, Tenant, TenantFiles, TenantsLoad, has_errors};

/// Endpoints and the secrets of each, by version of the tenant's file.
const VERSIONS: [&[(&str, &[usize])]; 4] =
    [&[("wh_1", &[0]), ("wh_2", &[1])], &[("wh_1", &[0, 1]), ("wh_3", &[1])], &[("wh_2", &[0])], &[]];

const NAMES: [&str; 2] = ["a", "b"];

#[derive(Debug, Clone, Copy, PartialEq)]
enum Text {
    Good(usize),
    /// A version with a fault in it.
    Faulty(usize),
    /// Nothing can be made out.
    Garbage,
    TooLarge,
    Pipe,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Secret {
    Value(u8),
    Missing,
    /// The first half of an ordinary write.
    Empty,
    /// There is something, and it is no file.
    Directory,
    /// Its scheme refuses it.
    Unfit,
}

#[derive(Debug, Clone, Copy)]
enum Event {
    Put(Text),
    Secret(usize, Secret),
    /// The file is gone for so long that its tenant is.
    Remove,
    /// As an editor saves.
    Blink,
    /// The directory of secrets is moved away and back.
    SecretsBlink,
    Restart,
    /// The state directory is cleared.
    Clear,
}

fn event() -> impl Strategy<Value = Event> {
    let version = 0..VERSIONS.len();
    let text = prop_oneof![
        6 => version.clone().prop_map(Text::Good),
        2 => version.prop_map(Text::Faulty),
        1 => Just(Text::Garbage),
        1 => Just(Text::TooLarge),
        1 => Just(Text::Pipe),
    ];
    let secret = prop_oneof![
        4 => (1..4_u8).prop_map(Secret::Value),
        2 => Just(Secret::Missing),
        2 => Just(Secret::Empty),
        1 => Just(Secret::Directory),
        1 => Just(Secret::Unfit),
    ];
    prop_oneof![
        4 => text.prop_map(Event::Put),
        6 => (0..2_usize, secret).prop_map(|(which, secret)| Event::Secret(which, secret)),
        1 => Just(Event::Remove),
        1 => Just(Event::Blink),
        1 => Just(Event::SecretsBlink),
        2 => Just(Event::Restart),
        1 => Just(Event::Clear),
    ]
}

type Served = BTreeMap<String, Vec<Vec<u8>>>;

fn served(load: &TenantsLoad) -> Served {
    let endpoints = load.tenants.iter().flat_map(|tenant| &tenant.endpoints).filter(|endpoint| endpoint.enabled);
    let values = endpoints.map(|endpoint| {
        let secrets = endpoint.secrets.iter().map(|entry| entry.secret.expose().to_vec());
        (endpoint.id.to_string(), secrets.collect())
    });
    values.collect()
}

fn unavailable(load: &TenantsLoad) -> BTreeSet<String> {
    load.unavailable.iter().flat_map(|one| &one.endpoints).map(ToString::to_string).collect()
}

struct Machine {
    root: TempDir,
    appliance: Appliance,
    clock: Arc<ManualClock>,
}

impl Machine {
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        let mut appliance = Appliance::default();
        appliance.tenants.directory = root.path().join("tenants");
        appliance.tenants.state_directory = root.path().join("state");
        appliance.tenants.file_bytes_max = 4096;
        fs::create_dir_all(appliance.tenants.directory.join("acme.secrets")).unwrap();
        // Somebody else, so that the directory is never empty.
        fs::write(appliance.tenants.directory.join("zeta.toml"), "tenant = \"zeta\"\n").unwrap();
        Self { root, appliance, clock: ManualClock::at_unix_ms(0) }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.appliance.tenants.directory.join(name)
    }

    fn process(&self) -> TenantFiles {
        let clock = Arc::clone(&self.clock);
        TenantFiles::new(&self.appliance).with_clock(clock)
    }

    fn load(&self, files: &mut TenantFiles) -> TenantsLoad {
        files.load(&self.appliance, &MapEnvironment::default(), &mut |tenant: Tenant| {
            let unfit = tenant
                .endpoints
                .iter()
                .filter(|endpoint| endpoint.secrets.iter().any(|entry| entry.secret.expose() == b"unfit"));
            let faults: Vec<Fault> =
                unfit.map(|endpoint| tenant.fault(endpoint.line, "secrets", "is no key of the scheme")).collect();
            (Some(tenant).filter(|_| !has_errors(&faults)), faults)
        })
    }

    fn take(&self, name: &str) {
        let path = self.path(name);
        if path.is_dir() {
            fs::remove_dir(path).unwrap();
        } else if path.symlink_metadata().is_ok() {
            fs::remove_file(path).unwrap();
        }
    }

    fn put(&self, text: Text) {
        let of = |version: usize| {
            let endpoint = |(id, secrets): &(&str, &[usize])| {
                let secrets: Vec<_> =
                    secrets.iter().map(|at| format!("{{ value = \"secret:{}\" }}", NAMES[*at])).collect();
                format!("[[endpoint]]\nid = \"{id}\"\nscheme = \"github\"\nsecrets = [{}]\n", secrets.join(", "))
            };
            format!("tenant = \"acme\"\n{}", VERSIONS[version].iter().map(endpoint).collect::<String>())
        };
        self.take("acme.toml");
        let path = self.path("acme.toml");
        match text {
            Text::Good(version) => fs::write(path, of(version)).unwrap(),
            Text::Faulty(version) => fs::write(path, format!("unknown_key = 1\n{}", of(version))).unwrap(),
            Text::Garbage => fs::write(path, "[[[\n").unwrap(),
            Text::TooLarge => fs::write(path, "#".repeat(5000)).unwrap(),
            Text::Pipe => {
                let mode = rustix::fs::Mode::RUSR;
                rustix::fs::mknodat(rustix::fs::CWD, path, rustix::fs::FileType::Fifo, mode, 0).unwrap();
            }
        }
    }

    fn secret(&self, name: &str, secret: Secret) {
        let name = format!("acme.secrets/{name}");
        // Written in place, where there is something to write over.
        if matches!(secret, Secret::Missing | Secret::Directory) || self.path(&name).is_dir() {
            self.take(&name);
        }
        match secret {
            Secret::Value(value) => fs::write(self.path(&name), [b'k', value]).unwrap(),
            Secret::Missing => {}
            Secret::Empty => fs::write(self.path(&name), "").unwrap(),
            Secret::Directory => fs::create_dir(self.path(&name)).unwrap(),
            Secret::Unfit => fs::write(self.path(&name), "unfit").unwrap(),
        }
    }
}

/// What should be so, told from what was done.
struct Model {
    text: Option<Text>,
    secrets: [Secret; 2],
    last_good: Option<usize>,
    /// What answered 503 for want of a last good version.
    known: BTreeSet<String>,
}

impl Model {
    fn values(&self, secrets: &[usize]) -> Vec<Vec<u8>> {
        let value = |at: &usize| match self.secrets[*at] {
            Secret::Value(value) => Some(vec![b'k', value]),
            Secret::Missing | Secret::Empty | Secret::Directory | Secret::Unfit => None,
        };
        secrets.iter().filter_map(value).collect()
    }

    /// What is served now, and what answers 503.
    fn loaded(&mut self) -> (Served, BTreeSet<String>) {
        if self.text.is_none() {
            (self.last_good, self.known) = (None, BTreeSet::new());
            return Default::default();
        }
        if let Some(Text::Good(version)) = self.text
            && VERSIONS[version].iter().all(|(_, secrets)| self.values(secrets).len() == secrets.len())
        {
            self.last_good = Some(version);
        }
        let Some(version) = self.last_good else {
            if let Some(Text::Good(version) | Text::Faulty(version)) = self.text {
                self.known.extend(VERSIONS[version].iter().map(|(id, _)| (*id).to_owned()));
            }
            return (Served::new(), self.known.clone());
        };
        self.known.clear();
        let all = VERSIONS[version].iter().map(|(id, secrets)| ((*id).to_owned(), self.values(secrets)));
        let (served, gone): (Served, Served) = all.partition(|(_, values)| !values.is_empty());
        (served, gone.into_keys().collect())
    }
}

proptest! {
    // Each event is two loads, of which some are synced to the disk.
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]
    #[test]
    fn the_order_of_events_does_not_matter(events in proptest::collection::vec(event(), 1..24)) {
        let machine = Machine::new();
        let secrets = [Secret::Value(1); 2];
        for (name, secret) in NAMES.iter().zip(secrets) {
            machine.secret(name, secret);
        }
        let mut model = Model { text: None, secrets, last_good: None, known: BTreeSet::new() };
        let mut files = machine.process();
        machine.load(&mut files);
        for event in events {
            match event {
                Event::Put(text) => {
                    machine.put(text);
                    model.text = Some(text);
                }
                Event::Secret(which, secret) => {
                    machine.secret(NAMES[which], secret);
                    model.secrets[which] = secret;
                }
                Event::Remove => {
                    machine.take("acme.toml");
                    machine.load(&mut files);
                    machine.clock.advance(ABSENCE);
                    model.text = None;
                }
                Event::Blink => {
                    machine.take("acme.toml");
                    machine.load(&mut files);
                    model.text.into_iter().for_each(|text| machine.put(text));
                }
                Event::SecretsBlink => {
                    let away = machine.root.path().join("away");
                    fs::rename(machine.path("acme.secrets"), &away).unwrap();
                    let load = machine.load(&mut files);
                    prop_assert!(served(&load).is_empty());
                    fs::rename(&away, machine.path("acme.secrets")).unwrap();
                    if let Some(Text::Good(version)) = model.text && VERSIONS[version].is_empty() {
                        model.last_good = Some(version);
                    }
                }
                Event::Restart => {
                    files = machine.process();
                    // A guess at what a faulty file has is made anew.
                    model.known.clear();
                }
                Event::Clear => {
                    // What turned faulty before is in memory; what turns faulty in the same moment would be lost.
                    machine.load(&mut files);
                    fs::remove_dir_all(&machine.appliance.tenants.state_directory).unwrap();
                }
            }
            let load = machine.load(&mut files);
            let (serves, answers_503) = model.loaded();
            prop_assert_eq!(served(&load), serves.clone(), "after {:?}: {:#?}", event, load.faults);
            prop_assert_eq!(unavailable(&load), answers_503.clone(), "after {:?}: {:#?}", event, load.faults);
            prop_assert!(!load.again);
            let again = machine.load(&mut files);
            prop_assert_eq!((again.changed, served(&again), unavailable(&again)), (0, serves.clone(), answers_503.clone()));
            // And a process that starts now makes the same of it, but for what is a guess.
            let started = machine.load(&mut machine.process());
            prop_assert_eq!(served(&started), serves, "started after {:?}", event);
            prop_assert!(unavailable(&started).is_subset(&answers_503));
            if model.last_good.is_some() {
                prop_assert_eq!(unavailable(&started), answers_503, "started after {:?}", event);
            }
        }
    }
}

/// `wh_1` with one secret, in force, and then a fault in the file.
fn faulty() -> (Machine, TenantFiles) {
    let machine = Machine::new();
    machine.secret("a", Secret::Value(1));
    machine.secret("b", Secret::Value(1));
    machine.put(Text::Good(0));
    let mut files = machine.process();
    assert_eq!(served(&machine.load(&mut files)).len(), 2);
    machine.put(Text::Faulty(0));
    (machine, files)
}

#[test]
fn a_revoked_or_rotated_secret_is_so_while_the_file_is_faulty() {
    let (machine, mut files) = faulty();
    assert_eq!(served(&machine.load(&mut files))["wh_1"], [b"k\x01"]);
    machine.secret("a", Secret::Value(2));
    assert_eq!(served(&machine.load(&mut files))["wh_1"], [b"k\x02"]);
    machine.secret("a", Secret::Missing);
    for text in [Text::Faulty(0), Text::Garbage] {
        machine.put(text);
        let load = machine.load(&mut files);
        assert_eq!((served(&load).len(), unavailable(&load)), (1, ["wh_1".to_owned()].into()));
    }
    machine.secret("a", Secret::Empty);
    assert_eq!(unavailable(&machine.load(&mut files)), ["wh_1".to_owned()].into());
    machine.secret("a", Secret::Value(3));
    assert_eq!(served(&machine.load(&mut files))["wh_1"], [b"k\x03"]);
}

#[test]
fn secrets_are_read_anew_also_where_nothing_can_be_kept() {
    let machine = Machine::new();
    fs::write(&machine.appliance.tenants.state_directory, "a file").unwrap();
    machine.secret("a", Secret::Value(1));
    machine.secret("b", Secret::Value(1));
    machine.put(Text::Good(0));
    let mut files = machine.process();
    machine.load(&mut files);
    machine.put(Text::Faulty(0));
    machine.secret("a", Secret::Value(2));
    machine.secret("b", Secret::Missing);
    let load = machine.load(&mut files);
    assert_eq!(
        (&served(&load)["wh_1"][..], unavailable(&load)),
        (&[b"k\x02".to_vec()][..], ["wh_2".to_owned()].into())
    );
}

#[test]
fn what_could_not_be_kept_is_kept_as_soon_as_it_can_be() {
    let (machine, _) = faulty();
    let (state, tenants) = (&machine.appliance.tenants.state_directory, &machine.appliance.tenants.directory);
    fs::remove_dir_all(state).unwrap();
    fs::write(state, "a file").unwrap();
    machine.put(Text::Good(0));
    let mut files = machine.process();
    machine.load(&mut files);
    fs::remove_file(state).unwrap();
    // Also where the files cannot be read at that moment.
    let away = machine.root.path().join("away");
    fs::rename(tenants, &away).unwrap();
    machine.load(&mut files);
    fs::rename(&away, tenants).unwrap();
    machine.put(Text::Faulty(0));
    assert_eq!(served(&machine.load(&mut machine.process())).len(), 2);
}

#[test]
fn what_cannot_be_kept_because_a_pipe_is_there_hangs_nobody() {
    use rustix::fs::{CWD, FileType, Mode, mknodat};
    let (machine, _) = faulty();
    let state = &machine.appliance.tenants.state_directory;
    for name in ["tenants.last-good", "tenants.lock"] {
        fs::remove_file(state.join(name)).unwrap();
        mknodat(CWD, state.join(name), FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        machine.put(Text::Good(0));
        let mut files = machine.process();
        let load = machine.load(&mut files);
        assert_eq!(served(&load).len(), 2);
        assert!(load.faults.iter().any(|fault| fault.file.ends_with("tenants.last-good")), "{:?}", load.faults);
        assert!(!load.again, "a pipe stays one");
        machine.put(Text::Faulty(0));
        assert_eq!(served(&machine.load(&mut files)).len(), 2, "from memory");
        fs::remove_file(state.join("tenants.last-good")).ok();
        fs::write(state.join("tenants.last-good"), "").unwrap();
    }
}
