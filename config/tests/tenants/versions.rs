//! What is in force of a file: what it says now, or its last good version.

use std::path::Path;
use std::sync::Arc;

use tidegate_config::{Endpoint, Tenant, TenantFiles, TenantsLoad, has_errors};

use crate::rig::{Machine, fault_names, file, in_force, of, unavailable};

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
fn checking_writes_nothing() {
    let machine = Machine::new();
    machine.good("acme", &["wh_1"]);
    let load: TenantsLoad =
        TenantFiles::without_state()
            .load(&machine.appliance, &machine.environment, &mut |tenant| (Some(tenant), Vec::new()));
    assert_eq!(in_force(&load), ["acme: wh_1"]);
    assert!(!Path::new(&machine.appliance.tenants.state_directory).exists());
}
