//! What happens to a tenant when its file, its secrets, or somebody else's file changes.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use domain::ManualClock;
use tempfile::TempDir;
use tidegate_config::{
    ABSENCE, Appliance, Endpoint, Fault, MapEnvironment, Tenant, TenantFiles, TenantsLoad, has_errors,
};

/// A machine with a tenants' directory, and processes that load it one after the other.
struct Machine {
    root: TempDir,
    appliance: Appliance,
    environment: MapEnvironment,
    clock: Arc<ManualClock>,
}

impl Machine {
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        let mut appliance = Appliance::default();
        appliance.tenants.directory = root.path().join("tenants");
        appliance.tenants.state_directory = root.path().join("state");
        appliance.tenants.allow_env = vec!["KEY".into()];
        fs::create_dir(&appliance.tenants.directory).unwrap();
        Self { root, appliance, environment: MapEnvironment::new([("KEY", "k1")]), clock: ManualClock::at_unix_ms(0) }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.appliance.tenants.directory.join(name)
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).unwrap();
    }

    /// A good file with these endpoints.
    fn good(&self, tenant: &str, ids: &[&str]) {
        self.write(&format!("{tenant}.toml"), &file(tenant, ids));
    }

    fn process(&self) -> TenantFiles {
        let clock = Arc::clone(&self.clock);
        TenantFiles::new(&self.appliance).with_clock(clock)
    }

    fn load(&self, files: &mut TenantFiles) -> TenantsLoad {
        files.load(&self.appliance, &self.environment, &mut |tenant| (Some(tenant), Vec::new()))
    }

    /// Loads, and once more when what is missing has been so for long enough.
    fn load_twice(&self, files: &mut TenantFiles) -> TenantsLoad {
        self.load(files);
        self.clock.advance(ABSENCE);
        self.load(files)
    }

    fn restarted(&self) -> TenantsLoad {
        self.load(&mut self.process())
    }
}

fn file(tenant: &str, ids: &[&str]) -> String {
    let endpoint = |id: &&str| {
        format!("\n[[endpoint]]\nid = \"{id}\"\nscheme = \"github\"\nsecrets = [{{ value = \"env:KEY\" }}]\n")
    };
    format!("tenant = \"{tenant}\"\n{}", ids.iter().map(endpoint).collect::<String>())
}

/// `acme: wh_1 wh_2`, one line per tenant in force.
fn in_force(load: &TenantsLoad) -> Vec<String> {
    let tenants = load.tenants.iter();
    tenants
        .map(|tenant| {
            let ids: Vec<_> = tenant.endpoints.iter().map(|endpoint| endpoint.id.to_string()).collect();
            format!("{}: {}", tenant.id, ids.join(" "))
        })
        .collect()
}

fn unavailable(load: &TenantsLoad) -> Vec<String> {
    load.unavailable.iter().flat_map(|one| one.endpoints.iter().map(ToString::to_string)).collect()
}

fn of<'l>(load: &'l TenantsLoad, id: &str) -> &'l Arc<Tenant> {
    load.tenants.iter().find(|tenant| tenant.id.as_str() == id).unwrap()
}

#[track_caller]
fn fault_names(faults: &[Fault], file: &str, words: &str) {
    let found = faults.iter().any(|fault| fault.file.ends_with(file) && fault.message.contains(words));
    assert!(found, "no fault of {file} with {words:?} in {faults:#?}");
}

#[test]
fn only_what_changed_is_parsed_again() {
    let mut machine = Machine::new();
    machine.good("acme", &["wh_1"]);
    machine.good("beta", &["wh_2"]);
    let mut files = machine.process();
    let first = machine.load(&mut files);
    assert!(first.faults.is_empty(), "{:?}", first.faults);
    assert_eq!(first.changed, 2);
    let second = machine.load(&mut files);
    assert_eq!(second.changed, 0);
    assert!(Arc::ptr_eq(of(&first, "acme"), of(&second, "acme")));
    machine.good("acme", &["wh_1", "wh_3"]);
    let third = machine.load(&mut files);
    assert_eq!((third.changed, in_force(&third)), (1, vec!["acme: wh_1 wh_3".into(), "beta: wh_2".into()]));
    assert!(Arc::ptr_eq(of(&first, "beta"), of(&third, "beta")));
    // A rotated secret counts as a change, and so does a setting that files are judged by.
    machine.environment.set("KEY", "k2");
    let fourth = machine.load(&mut files);
    assert_eq!(fourth.changed, 2);
    assert_eq!(of(&fourth, "beta").endpoints[0].secrets[0].secret.expose(), b"k2");
    machine.appliance.tenants.allow_env.clear();
    // What a file may not refer to any more is not used any more, now as after a restart.
    for fifth in [machine.load(&mut files), machine.restarted()] {
        assert_eq!(
            (in_force(&fifth).len(), unavailable(&fifth)),
            (2, vec!["wh_1".into(), "wh_3".into(), "wh_2".into()])
        );
        fault_names(&fifth.faults, "beta.toml", "allow_env");
    }
    // A setting that has nothing to do with secrets leaves what was good before.
    machine.appliance.tenants.allow_env = vec!["KEY".into()];
    let sixth = machine.load(&mut files);
    assert_eq!((sixth.faults.len(), in_force(&sixth).len()), (0, 2));
    machine.appliance.tenants.endpoints_per_tenant_max = 1;
    let seventh = machine.load(&mut files);
    assert!(Arc::ptr_eq(of(&sixth, "acme"), of(&seventh, "acme")) && unavailable(&seventh).is_empty());
    fault_names(&seventh.faults, "acme.toml", "has 2 endpoints");
}

#[test]
fn a_faulty_file_keeps_its_last_good_version_and_touches_nobody_else() {
    let machine = Machine::new();
    machine.good("acme", &["wh_1"]);
    machine.good("beta", &["wh_2"]);
    let mut files = machine.process();
    let first = machine.load(&mut files);
    machine.write("acme.toml", "tenant = \"acme\"\n[[endpoint]]\nid = \"wh_9\"\nscheme = 3\n");
    for load in [machine.load(&mut files), machine.load(&mut files)] {
        assert_eq!(in_force(&load), ["acme: wh_1", "beta: wh_2"]);
        assert!(
            Arc::ptr_eq(of(&first, "acme"), of(&load, "acme")) && Arc::ptr_eq(of(&first, "beta"), of(&load, "beta"))
        );
        assert_eq!((load.changed, unavailable(&load)), (0, vec![]));
        fault_names(&load.faults, "acme.toml", "is an integer");
        assert!(load.faults.iter().all(|fault| fault.file.ends_with("acme.toml")));
    }
    // The same at a cold start, more than once.
    for load in [machine.restarted(), machine.restarted()] {
        assert_eq!(in_force(&load), ["acme: wh_1", "beta: wh_2"]);
        assert!(has_errors(&load.faults));
    }
    // Mended, it is in force at once and becomes the last good version.
    machine.good("acme", &["wh_1", "wh_5"]);
    assert_eq!(in_force(&machine.load(&mut files)), ["acme: wh_1 wh_5", "beta: wh_2"]);
    machine.write("acme.toml", "");
    assert_eq!(in_force(&machine.restarted()), ["acme: wh_1 wh_5", "beta: wh_2"]);
}

#[test]
fn without_a_last_good_version_its_endpoints_are_unavailable_and_never_unknown() {
    let machine = Machine::new();
    machine.good("beta", &["wh_2"]);
    let broken =
        "tenant = \"acme\"\n[[endpoint]]\nid = \"wh_1\"\nscheme = \naliases = [\"/in\"]\n[[endpoint]]\nid = \"wh_2\"\n";
    machine.write("acme.toml", broken);
    machine.write("not a tenant.toml", &file("other", &["wh_7"]));
    let mut files = machine.process();
    for load in [machine.load(&mut files), machine.load(&mut files), machine.restarted()] {
        assert_eq!(in_force(&load), ["beta: wh_2"]);
        // It named somebody else's endpoint: that one stays available.
        assert_eq!(unavailable(&load), ["wh_1", "wh_7"]);
        assert_eq!(load.unavailable[0].aliases[0].to_string(), "/in");
        fault_names(&load.faults, "acme.toml", "is not TOML here");
        fault_names(&load.faults, "not a tenant.toml", "rename it");
    }
    machine.good("acme", &["wh_1"]);
    let mended = machine.load(&mut files);
    assert_eq!((in_force(&mended).len(), unavailable(&mended)), (2, vec!["wh_7".into()]));
}

#[test]
fn a_file_that_is_taken_away_takes_its_tenant_with_it() {
    let machine = Machine::new();
    machine.good("acme", &["wh_1"]);
    machine.good("beta", &["wh_2"]);
    let mut files = machine.process();
    machine.load(&mut files);
    fs::remove_file(machine.path("acme.toml")).unwrap();
    // Not before it is sure: an editor's save looks like this for a moment.
    let load = machine.load(&mut files);
    assert_eq!((in_force(&load).len(), load.missing, load.changed), (2, 1, 0));
    machine.clock.advance(ABSENCE / 2);
    assert_eq!(in_force(&machine.load(&mut files)).len(), 2);
    machine.good("acme", &["wh_1"]);
    assert_eq!(machine.load(&mut files).missing, 0);
    fs::remove_file(machine.path("acme.toml")).unwrap();
    machine.clock.advance(ABSENCE);
    let load = machine.load_twice(&mut files);
    assert_eq!((in_force(&load), load.changed, load.missing), (vec!["beta: wh_2".to_owned()], 1, 0));
    assert_eq!(load.removed.iter().map(ToString::to_string).collect::<Vec<_>>(), ["acme"]);
    assert!(machine.load(&mut files).removed.is_empty());
    // What was removed does not come back by the last good version of a file that is faulty later on.
    machine.write("acme.toml", &file("acme", &["wh_1"]).replace("github", ""));
    assert_eq!(in_force(&machine.load(&mut files)), ["beta: wh_2"]);
    assert_eq!(
        (in_force(&machine.restarted()), unavailable(&machine.restarted())),
        (vec!["beta: wh_2".into()], vec!["wh_1".into()])
    );
    // The same when it was taken away while nobody ran.
    machine.good("acme", &["wh_1"]);
    fs::remove_file(machine.path("beta.toml")).unwrap();
    let load = machine.load_twice(&mut machine.process());
    assert_eq!(load.removed.iter().map(ToString::to_string).collect::<Vec<_>>(), ["beta"]);
    machine.write("beta.toml", "broken");
    assert_eq!(in_force(&machine.restarted()), ["acme: wh_1"]);
}

#[test]
fn an_empty_directory_takes_nobody() {
    let machine = Machine::new();
    fs::create_dir(machine.path("acme.secrets")).unwrap();
    machine.write("acme.secrets/k", "a secret");
    machine.write("acme.toml", &file("acme", &["wh_1"]).replace("env:KEY", "secret:k"));
    machine.good("beta", &["wh_2"]);
    let mut files = machine.process();
    machine.load(&mut files);
    // A volume that is not mounted leaves an empty directory, and takes the secrets with it too.
    let away = machine.root.path().join("away");
    fs::rename(machine.path(""), &away).unwrap();
    fs::create_dir(machine.path("")).unwrap();
    let load = machine.load_twice(&mut files);
    assert_eq!((in_force(&load).len(), load.changed, load.missing), (2, 0, 0));
    fault_names(&load.faults, "tenants", "has no tenant's file");
    let load = machine.load_twice(&mut machine.process());
    assert_eq!((in_force(&load).len(), unavailable(&load)), (2, vec!["wh_1".to_owned()]));
    fault_names(&load.faults, "tenants", "has no tenant's file");
    fs::remove_dir(machine.path("")).unwrap();
    fs::rename(&away, machine.path("")).unwrap();
    for load in [machine.load_twice(&mut files), machine.restarted()] {
        assert_eq!((in_force(&load).len(), load.faults.iter().filter(|fault| fault.is_error()).count()), (2, 0));
    }
    // The last tenant goes when its file says so.
    fs::remove_file(machine.path("acme.toml")).unwrap();
    machine.good("beta", &[]);
    assert_eq!(in_force(&machine.load_twice(&mut files)), ["beta: "]);
}

#[test]
fn too_many_files_remove_nobody() {
    let mut machine = Machine::new();
    machine.good("zeta", &["wh_1"]);
    machine.appliance.tenants.files_max = 2;
    machine.restarted();
    for name in ["aa", "ab"] {
        machine.good(name, &[name]);
    }
    // At a cold start too, and when the bound is lowered below what is there.
    assert_eq!(in_force(&machine.load_twice(&mut machine.process())), ["aa: aa", "zeta: wh_1"]);
    let mut files = machine.process();
    machine.load(&mut files);
    machine.appliance.tenants.files_max = 1;
    let load = machine.load_twice(&mut files);
    assert_eq!((in_force(&load).len(), load.removed.len()), (2, 0));
    // More entries than are looked at: who was there is read all the same, whatever comes first.
    for junk in 0..1200 {
        machine.write(&format!("junk-{junk}"), "");
    }
    machine.good("zeta", &["wh_1", "wh_2"]);
    for files in [&mut files, &mut machine.process()] {
        let load = machine.load_twice(files);
        assert_eq!((in_force(&load), load.missing), (vec!["aa: aa".to_owned(), "zeta: wh_1 wh_2".to_owned()], 0));
        fault_names(&load.faults, "tenants", "far more entries");
    }
}

#[test]
fn a_renamed_file_speaks_for_nobody_until_it_says_so() {
    let machine = Machine::new();
    machine.good("acme", &["wh_1"]);
    let mut files = machine.process();
    machine.load(&mut files);
    fs::rename(machine.path("acme.toml"), machine.path("beta.toml")).unwrap();
    let load = machine.load_twice(&mut files);
    assert_eq!((in_force(&load).len(), unavailable(&load)), (0, vec!["wh_1".to_owned()]));
    fault_names(&load.faults, "beta.toml", "is \"acme\" in the file of \"beta\"");
    machine.good("beta", &["wh_1"]);
    assert_eq!(in_force(&machine.load(&mut files)), ["beta: wh_1"]);
}

#[test]
fn who_had_an_endpoint_keeps_it() {
    let machine = Machine::new();
    machine.good("beta", &["wh_1"]);
    let mut files = machine.process();
    machine.load(&mut files);
    // By name it would come first; it comes too late all the same, now and at a cold start.
    machine.good("acme", &["wh_1", "wh_2"]);
    for load in [machine.load(&mut files), machine.load(&mut files), machine.restarted()] {
        assert_eq!((in_force(&load), unavailable(&load)), (vec!["beta: wh_1".to_owned()], vec!["wh_2".to_owned()]));
        fault_names(&load.faults, "acme.toml", "\"wh_1\" is an endpoint of beta.toml already");
        assert!(load.faults.iter().all(|fault| fault.file.ends_with("acme.toml")));
        assert_eq!(load.faults[0].line, Some(3));
    }
    // Gone there, it is free, though the file that wanted it did not change.
    machine.good("beta", &["wh_3"]);
    assert_eq!(in_force(&machine.load(&mut files)), ["acme: wh_1 wh_2", "beta: wh_3"]);
}

#[test]
fn an_endpoint_moves_when_both_files_say_so() {
    let machine = Machine::new();
    machine.good("acme", &["wh_1"]);
    machine.good("beta", &["wh_2"]);
    let mut files = machine.process();
    machine.load(&mut files);
    machine.good("acme", &["wh_2"]);
    machine.good("beta", &["wh_1"]);
    let load = machine.load(&mut files);
    assert_eq!((in_force(&load), load.faults.len()), (vec!["acme: wh_2".to_owned(), "beta: wh_1".to_owned()], 0));
    assert_eq!(in_force(&machine.restarted()), ["acme: wh_2", "beta: wh_1"]);
}

#[test]
fn a_newcomer_gives_back_what_a_last_good_version_needs() {
    let machine = Machine::new();
    machine.good("acme", &["wh_1"]);
    machine.good("beta", &["wh_2"]);
    machine.good("gamma", &["wh_3"]);
    let mut files = machine.process();
    machine.load(&mut files);
    // acme takes wh_2, which beta gives away in the same push; but beta takes wh_3, which gamma keeps, so beta's file
    // fails, beta's last good version needs wh_2, and acme has to stay as it was.
    // What else acme wanted is free for the next one.
    machine.good("acme", &["wh_1", "wh_2", "wh_9"]);
    machine.good("beta", &["wh_3"]);
    machine.good("delta", &["wh_9"]);
    let load = machine.load(&mut files);
    assert_eq!(in_force(&load), ["acme: wh_1", "beta: wh_2", "delta: wh_9", "gamma: wh_3"]);
    fault_names(&load.faults, "acme.toml", "beta.toml already");
    fault_names(&load.faults, "beta.toml", "gamma.toml already");
    assert_eq!(load.changed, 1);
}

#[test]
fn a_contested_file_holds_up_no_update_of_who_has_the_endpoint() {
    let mut machine = Machine::new();
    let alias = |text: String| text + "aliases = [\"/in\"]\n";
    machine.write("acme.toml", &alias(file("acme", &["wh_1"])));
    let mut files = machine.process();
    machine.load(&mut files);
    // By name it is before acme, and it is read again at every load since acme's change could mend it.
    machine.good("a0", &["wh_1"]);
    machine.write("a1.toml", &alias(file("a1", &["wh_2"])));
    assert_eq!(in_force(&machine.load(&mut files)), ["acme: wh_1"]);
    machine.environment.set("KEY", "k2");
    let load = machine.load(&mut files);
    assert_eq!(in_force(&load), ["acme: wh_1"]);
    assert_eq!(of(&load, "acme").endpoints[0].secrets[0].secret.expose(), b"k2");
    assert!(load.faults.iter().all(|fault| !fault.file.ends_with("acme.toml")), "{:?}", load.faults);
    // The same at a cold start, though acme's file changed while nobody ran and the old version's secret is gone.
    let text = alias(file("acme", &["wh_1", "wh_3"]));
    machine.write("acme.toml", &text.replace("env:KEY", "env:NEW"));
    machine.environment = MapEnvironment::new([("NEW", "k3")]);
    machine.appliance.tenants.allow_env = vec!["*".into()];
    let load = machine.restarted();
    assert_eq!(in_force(&load), ["acme: wh_1 wh_3"], "{:?}", load.faults);
    // What a file that fails had claimed is free again: here nobody is left who wants it but a0.
    machine.environment.set("KEY", "k4");
    machine.good("acme", &["wh_4"]);
    machine.write("a1.toml", "");
    assert_eq!(in_force(&machine.restarted()), ["a0: wh_1", "acme: wh_4"]);
}

#[test]
fn a_place_leads_to_one_endpoint() {
    let machine = Machine::new();
    let with = |tenant: &str, id: &str, alias: &str| {
        let text = file(tenant, &[id]) + &format!("aliases = [\"{alias}\"]\n");
        machine.write(&format!("{tenant}.toml"), &text);
    };
    with("acme", "wh_1", "a.example.com/in");
    with("beta", "wh_2", "b.example.com/in");
    let mut files = machine.process();
    assert!(machine.load(&mut files).faults.is_empty());
    for alias in ["A.example.com/in", "/in"] {
        with("gamma", "wh_3", alias);
        let load = machine.load(&mut files);
        assert_eq!(in_force(&load).len(), 2);
        fault_names(&load.faults, "gamma.toml", "already; a place leads to one endpoint");
    }
    with("gamma", "wh_3", "/other");
    assert_eq!(in_force(&machine.load(&mut files)).len(), 3);
}

#[test]
fn a_later_stage_can_find_a_file_faulty() {
    let machine = Machine::new();
    machine.good("acme", &["wh_1"]);
    let mut files = machine.process();
    let mut judge = |tenant: Tenant| {
        let unknown = tenant.endpoints.iter().filter(|endpoint| &*endpoint.scheme != "github");
        let fault = |endpoint: &Endpoint| tenant.fault(endpoint.line, "scheme", "is not a scheme that is known here");
        let faults: Vec<_> = unknown.map(fault).collect();
        (faults.is_empty().then_some(tenant), faults)
    };
    files.load(&machine.appliance, &machine.environment, &mut judge);
    machine.write("acme.toml", &file("acme", &["wh_1", "wh_2"]).replacen("github", "gihtub", 1));
    for files in [&mut files, &mut machine.process()] {
        let load = files.load(&machine.appliance, &machine.environment, &mut judge);
        assert_eq!(in_force(&load), ["acme: wh_1"]);
        assert_eq!(
            load.faults[0].to_string(),
            format!("{}:3: scheme: is not a scheme that is known here", machine.path("acme.toml").display())
        );
    }
}

#[test]
fn a_directory_that_cannot_be_listed_takes_nobody() {
    let machine = Machine::new();
    machine.good("acme", &["wh_1"]);
    let mut files = machine.process();
    let first = machine.load(&mut files);
    let away = machine.root.path().join("away");
    fs::rename(machine.path(""), &away).unwrap();
    let load = machine.load(&mut files);
    assert!(Arc::ptr_eq(of(&first, "acme"), of(&load, "acme")));
    assert_eq!((load.changed, load.removed.len()), (0, 0));
    fault_names(&load.faults, "tenants", "cannot be listed");
    assert_eq!(in_force(&machine.restarted()), ["acme: wh_1"]);
    fs::rename(&away, machine.path("")).unwrap();
    let load = machine.load(&mut files);
    assert!(load.faults.is_empty() && Arc::ptr_eq(of(&first, "acme"), of(&load, "acme")));
}

#[test]
fn what_is_kept_holds_no_secret_and_survives_damage() {
    let mut machine = Machine::new();
    machine.environment.set("KEY", "canary-secret-value");
    machine.good("acme", &["wh_1"]);
    machine.good("beta", &["wh_2"]);
    machine.restarted();
    let kept = machine.root.path().join("state/tenants.last-good");
    let bytes = fs::read(&kept).unwrap();
    assert!(!String::from_utf8_lossy(&bytes).contains("canary"));
    assert!(String::from_utf8_lossy(&bytes).contains("env:KEY"));
    // Damaged: said, and written anew from the files.
    fs::write(&kept, &bytes[..bytes.len() - 20]).unwrap();
    let load = machine.restarted();
    assert_eq!(in_force(&load).len(), 2);
    fault_names(&load.faults, "tenants.last-good", "damaged");
    assert!(machine.restarted().faults.is_empty());
    machine.write("acme.toml", "");
    machine.write("beta.toml", "");
    assert_eq!(in_force(&machine.restarted()), ["acme: wh_1", "beta: wh_2"]);
}

#[test]
fn without_a_place_to_keep_them_tenants_are_served_all_the_same() {
    let mut machine = Machine::new();
    fs::write(machine.root.path().join("file"), "").unwrap();
    machine.appliance.tenants.state_directory = machine.root.path().join("file/state");
    machine.good("acme", &["wh_1"]);
    let mut files = machine.process();
    let load = machine.load(&mut files);
    assert_eq!(in_force(&load), ["acme: wh_1"]);
    assert!(!has_errors(&load.faults));
    fault_names(&load.faults, "tenants.last-good", "cannot be written");
    // Writable again, everything is kept though no file changed.
    fs::remove_file(machine.root.path().join("file")).unwrap();
    assert!(machine.load(&mut files).faults.is_empty());
    machine.write("acme.toml", "");
    assert_eq!(in_force(&machine.restarted()), ["acme: wh_1"]);
}

#[test]
fn hostile_files_are_bounded() {
    let mut machine = Machine::new();
    machine.appliance.tenants.file_bytes_max = 4096;
    machine.appliance.tenants.endpoints_per_tenant_max = 3;
    machine.appliance.tenants.files_max = 5;
    machine.good("acme", &["wh_1"]);
    let mut files = machine.process();
    machine.load(&mut files);
    machine.write("large.toml", &format!("{}#{}", file("large", &["wh_2"]), "x".repeat(8192)));
    machine.good("many", &["wh_3", "wh_4", "wh_5", "wh_6"]);
    rustix::fs::mknodat(
        rustix::fs::CWD,
        machine.path("pipe.toml"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR,
        0,
    )
    .unwrap();
    fs::create_dir(machine.path("dir.toml")).unwrap();
    std::os::unix::fs::symlink("/dev/zero", machine.path("zero.toml")).unwrap();
    let before_it = ["aa", "ab", "ac", "aca", "acb"];
    for name in before_it {
        machine.good(name, &[name]);
    }
    let load = machine.load(&mut files);
    // `acme` was there and stays, though there are more files than are taken.
    assert!(in_force(&load).contains(&"acme: wh_1".to_owned()));
    fault_names(&load.faults, "tenants", "are not read. Raise it");
    machine.appliance.tenants.files_max = 100;
    let load = machine.load(&mut files);
    assert_eq!(in_force(&load).len(), 1 + before_it.len());
    assert_eq!(unavailable(&load), ["wh_2", "wh_3", "wh_4", "wh_5"]);
    fault_names(&load.faults, "large.toml", "is larger than 4KiB");
    fault_names(&load.faults, "many.toml", "has 4 endpoints");
    for name in ["pipe.toml", "dir.toml", "zero.toml"] {
        fault_names(&load.faults, name, "is no regular file");
    }
}

#[test]
fn secrets_of_files_are_their_tenants_own() {
    let machine = Machine::new();
    for tenant in ["acme", "beta"] {
        fs::create_dir(machine.path(&format!("{tenant}.secrets"))).unwrap();
        machine.write(&format!("{tenant}.toml"), &file(tenant, &[tenant]).replace("env:KEY", "secret:github"));
    }
    machine.write("acme.secrets/github", "s-acme\n");
    std::os::unix::fs::symlink(machine.path("acme.secrets/github"), machine.path("beta.secrets/github")).unwrap();
    let mut files = machine.process();
    let load = machine.load(&mut files);
    assert_eq!(of(&load, "acme").endpoints[0].secrets[0].secret.expose(), b"s-acme");
    fault_names(&load.faults, "beta.toml", "names a file that cannot be read");
    assert!(load.faults.iter().any(|fault| !fault.is_error() && fault.message.contains("chmod 600")));
    // A rotated secret is picked up although the file that names it is the same.
    machine.write("acme.secrets/github", "s-new");
    let load = machine.load(&mut files);
    assert_eq!((load.changed, of(&load, "acme").endpoints[0].secrets[0].secret.expose()), (1, &b"s-new"[..]));
}

#[test]
fn a_secret_that_is_taken_away_is_not_used_any_more() {
    let machine = Machine::new();
    fs::create_dir(machine.path("acme.secrets")).unwrap();
    let put = |name: &str| machine.write(&format!("acme.secrets/{name}"), name);
    let take = |name: &str| fs::remove_file(machine.path(&format!("acme.secrets/{name}"))).unwrap();
    let all = ["leaked", "fresh", "other"];
    all.into_iter().for_each(put);
    let two = "{ value = \"secret:leaked\" }, { value = \"secret:fresh\" }";
    let text = file("acme", &["wh_1"]).replace("{ value = \"env:KEY\" }", two);
    let other = file("acme", &["wh_2"]).replace("tenant = \"acme\"", "").replace("env:KEY", "secret:other");
    machine.write("acme.toml", &format!("{text}{other}aliases = [\"/in\"]\n"));
    let secrets = |load: &TenantsLoad| {
        let endpoints = of(load, "acme").endpoints.iter().filter(|endpoint| endpoint.enabled);
        let entries = endpoints.flat_map(|endpoint| endpoint.secrets.to_vec());
        entries.map(|entry| String::from_utf8(entry.secret.expose().to_vec()).unwrap()).collect::<Vec<_>>()
    };
    let mut files = machine.process();
    assert_eq!(secrets(&machine.load(&mut files)), all);
    take("leaked");
    for load in [machine.load(&mut files), machine.load(&mut files), machine.restarted()] {
        assert_eq!((secrets(&load), unavailable(&load)), (vec!["fresh".to_owned(), "other".to_owned()], vec![]));
        fault_names(&load.faults, "acme.toml", "has lost the secrets");
    }
    take("other");
    for load in [machine.load(&mut files), machine.load(&mut files), machine.restarted()] {
        assert_eq!((secrets(&load), unavailable(&load)), (vec!["fresh".to_owned()], vec!["wh_2".to_owned()]));
        assert_eq!(load.unavailable[0].aliases[0].to_string(), "/in");
        fault_names(&load.faults, "acme.toml", "answer 503: wh_2");
    }
    // What has no secret is still acme's.
    machine.good("a0", &["wh_2"]);
    assert_eq!(in_force(&machine.load(&mut files)), ["acme: wh_1 wh_2"]);
    // Back again, it counts again; and a secret that a changed file names too early keeps the version before.
    all.into_iter().for_each(put);
    let load = machine.load(&mut files);
    assert_eq!((secrets(&load), unavailable(&load)), (all.map(str::to_owned).to_vec(), vec![]));
    machine.write("acme.toml", &file("acme", &["wh_1"]).replace("env:KEY", "secret:not-yet"));
    assert_eq!(secrets(&machine.load(&mut files)), all);
}

#[test]
fn checking_writes_nothing() {
    let machine = Machine::new();
    machine.good("acme", &["wh_1"]);
    let load: TenantsLoad =
        TenantFiles::without_state()
            .load(&machine.appliance, &machine.environment, &mut |tenant| (Some(tenant), Vec::new()));
    assert_eq!(in_force(&load), ["acme: wh_1"]);
    assert!(!Path::new(&machine.appliance.tenants.state_directory).exists());
}

/// The disk fails where the last good versions are: the memory of this process is a file whose beginning cannot be read.
fn state_fails(machine: &Machine) {
    let kept = machine.root.path().join("state/tenants.last-good");
    fs::rename(&kept, kept.with_extension("away")).unwrap();
    std::os::unix::fs::symlink("/proc/self/mem", kept).unwrap();
}

fn state_mended(machine: &Machine) {
    let kept = machine.root.path().join("state/tenants.last-good");
    fs::rename(kept.with_extension("away"), kept).unwrap();
}

#[test]
fn a_last_good_version_that_is_found_late_takes_no_endpoint_from_who_serves_it() {
    let machine = Machine::new();
    machine.good("acme", &["wh_1", "wh_2"]);
    machine.restarted();
    state_fails(&machine);
    // Nothing says that it had the endpoint.
    machine.write("acme.toml", "[[[");
    machine.good("beta", &["wh_1"]);
    let mut files = machine.process();
    let load = machine.load(&mut files);
    assert_eq!((in_force(&load), load.again), (vec!["beta: wh_1".to_owned()], true));
    state_mended(&machine);
    for load in [machine.load(&mut files), machine.load(&mut files)] {
        assert_eq!((in_force(&load), unavailable(&load)), (vec!["beta: wh_1".into()], vec!["wh_2".into()]));
        fault_names(&load.faults, "acme.toml", "another tenant has its endpoints");
    }
}

#[test]
fn a_newcomer_gets_nothing_of_a_faulty_files_while_the_state_cannot_be_read() {
    let machine = Machine::new();
    machine.good("acme", &["wh_1"]);
    machine.restarted();
    state_fails(&machine);
    machine.write("acme.toml", &file("acme", &["wh_1", "wh_4"]).replace("scheme", "shceme"));
    machine.good("beta", &["wh_1"]);
    machine.good("delta", &["wh_4"]);
    machine.good("gamma", &["wh_3"]);
    let mut files = machine.process();
    for load in [machine.load(&mut files), machine.load(&mut files)] {
        assert_eq!((in_force(&load), load.again), (vec!["gamma: wh_3".to_owned()], true));
        assert_eq!(unavailable(&load).iter().filter(|id| *id == "wh_1").count(), 2, "beta's and acme's");
        fault_names(&load.faults, "beta.toml", "is an endpoint of acme.toml already");
    }
    state_mended(&machine);
    // What it only names, and never had, is free again.
    let load = machine.load(&mut files);
    assert_eq!(in_force(&load), ["acme: wh_1", "delta: wh_4", "gamma: wh_3"]);
    fault_names(&load.faults, "beta.toml", "is an endpoint of acme.toml already");
}

#[test]
fn damage_that_a_running_process_finds_hides_nothing_that_is_written_later() {
    let machine = Machine::new();
    for (tenant, id) in [("acme", "wh_1"), ("beta", "wh_2"), ("gamma", "wh_3")] {
        machine.good(tenant, &[id]);
    }
    let mut files = machine.process();
    machine.load(&mut files);
    let kept = machine.root.path().join("state/tenants.last-good");
    let mut bytes = fs::read(&kept).unwrap();
    let at = bytes.windows(10).position(|it| it == b"good beta ").unwrap();
    bytes[at] = b'x';
    fs::write(&kept, &bytes).unwrap();
    // Only who turns faulty before it is found has lost something.
    machine.write("beta.toml", "");
    let load = machine.load(&mut files);
    fault_names(&load.faults, "tenants.last-good", "damaged");
    assert_eq!((in_force(&load).len(), load.again), (2, true));
    let load = machine.load(&mut files);
    assert_eq!((in_force(&load).len(), load.again), (2, false));
    machine.write("gamma.toml", "");
    machine.write("acme.toml", "");
    assert_eq!(in_force(&machine.load(&mut files)), ["acme: wh_1", "gamma: wh_3"]);
    assert_eq!(in_force(&machine.restarted()), ["acme: wh_1", "gamma: wh_3"]);
}

#[test]
fn a_state_directory_that_is_mounted_again_is_looked_into_again() {
    let machine = Machine::new();
    let (state, away) = (machine.root.path().join("state"), machine.root.path().join("away"));
    machine.good("acme", &["wh_1"]);
    machine.good("beta", &["wh_2"]);
    let mut files = machine.process();
    machine.load(&mut files);
    fs::rename(&state, &away).unwrap();
    machine.write("acme.toml", "");
    // The first of these writes another file where the directory was.
    for changed in [1, 0, 0] {
        let load = machine.load(&mut files);
        assert_eq!((in_force(&load), load.changed), (vec!["beta: wh_2".to_owned()], changed));
        fault_names(&load.faults, "acme.toml", "is not in tenants.state_directory any more");
    }
    fs::remove_dir_all(&state).unwrap();
    fs::rename(&away, &state).unwrap();
    assert_eq!(in_force(&machine.load(&mut files)), ["acme: wh_1", "beta: wh_2"]);
}

#[test]
fn a_removal_that_could_not_be_written_is_written_later() {
    let machine = Machine::new();
    for (tenant, id) in [("acme", "wh_1"), ("beta", "wh_2"), ("gamma", "wh_3")] {
        machine.good(tenant, &[id]);
    }
    let mut files = machine.process();
    machine.load(&mut files);
    // A directory is where its lock should be.
    let lock = machine.root.path().join("state/tenants.lock");
    fs::remove_file(&lock).unwrap();
    fs::create_dir(&lock).unwrap();
    fs::remove_file(machine.path("acme.toml")).unwrap();
    fs::remove_file(machine.path("gamma.toml")).unwrap();
    let load = machine.load_twice(&mut files);
    assert_eq!(load.removed.len(), 2);
    fault_names(&load.faults, "tenants.last-good", "cannot be written");
    // What comes back faulty is not what was removed; what comes back good is kept.
    machine.write("acme.toml", "");
    machine.good("gamma", &["wh_4"]);
    assert_eq!(in_force(&machine.load(&mut files)), ["beta: wh_2", "gamma: wh_4"]);
    fs::remove_dir(&lock).unwrap();
    assert!(machine.load(&mut files).faults.iter().all(|fault| fault.file.ends_with("acme.toml")));
    machine.write("gamma.toml", "");
    assert_eq!(in_force(&machine.restarted()), ["beta: wh_2", "gamma: wh_4"]);
}
