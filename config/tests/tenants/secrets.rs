//! Secrets that files refer to, and what becomes of a tenant when they change.

use std::fs;

use tidegate_config::TenantsLoad;

use crate::rig::{Machine, fault_names, file, in_force, of, unavailable};

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
