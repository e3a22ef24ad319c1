//! The state directory: what is kept there, and what happens while it cannot be read or written.

use std::fs;

use tidegate_config::has_errors;

use crate::rig::{Machine, fault_names, file, in_force, unavailable};

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
