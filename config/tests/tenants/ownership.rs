//! Who has an endpoint or a place that two files name.

use tidegate_config::{Appliance, MapEnvironment, TenantFiles};

use crate::rig::{Machine, fault_names, file, in_force, of, unavailable};

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
fn whose_a_variable_is_is_told_before_files_go_live() {
    let mut machine = Machine::new();
    machine.appliance.tenants.allow_env = Appliance::default().tenants.allow_env;
    machine.environment = MapEnvironment::new([("ACME_KEY", "k1"), ("ACME_EU_KEY", "k2")]);
    let naming = |tenant: &str, id: &str, variable: &str| {
        let text = file(tenant, &[id]).replace("env:KEY", &format!("env:{variable}"));
        machine.write(&format!("{tenant}.toml"), &text);
    };
    let checked = || machine.load(&mut TenantFiles::without_state().with_variables_apart());
    naming("acme", "wh_1", "ACME_KEY");
    naming("acme-eu", "wh_2", "ACME_EU_KEY");
    assert!(checked().faults.is_empty(), "{:?}", checked().faults);

    // Another tenant's by a longer name, and by the same one: there both are told.
    naming("acme", "wh_1", "ACME_EU_KEY");
    naming("acme_eu", "wh_3", "ACME_EU_KEY");
    let load = checked();
    assert_eq!(in_force(&load), [""; 0]);
    for (tenant, other) in [("acme", "acme-eu"), ("acme-eu", "acme_eu"), ("acme_eu", "acme-eu")] {
        let told = load.faults.iter().find(|fault| fault.file.ends_with(format!("{tenant}.toml"))).unwrap();
        assert_eq!((told.line, told.key.as_str()), (Some(6), "endpoint[0].secrets[0].value"));
        assert!(told.message.contains(&format!("by its name is the tenant {other}'s too")), "{told}");
    }
    // A node that runs takes it: no tenant loses a secret because another one came.
    assert_eq!(in_force(&machine.load(&mut machine.process())).len(), 3);
    // Nor is it told where the operator names the variable himself.
    machine.appliance.tenants.allow_env.push("ACME_EU_KEY".into());
    let load = machine.load(&mut TenantFiles::without_state().with_variables_apart());
    assert!(load.faults.is_empty(), "{:?}", load.faults);
}
