//! Files that are missing, renamed, or too many to be read.

use std::fs;
use std::sync::Arc;

use tidegate_config::ABSENCE;

use crate::rig::{Machine, fault_names, file, in_force, of, unavailable};

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
