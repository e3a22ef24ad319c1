//! What cannot be read for now stays as it was and is read later on. Alone in its process: it takes the whole process's
//! file descriptors away.

use std::fs;
use std::os::fd::AsRawFd;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tidegate_config::{Appliance, MapEnvironment, TenantFiles, TenantsLoad, reload_appliance};

#[test]
fn a_load_without_file_descriptors_changes_nothing_and_asks_for_the_next() {
    let root = tempfile::tempdir().unwrap();
    let mut appliance = Appliance::default();
    appliance.tenants.directory = root.path().join("tenants");
    appliance.tenants.state_directory = root.path().join("state");
    let at = |name: &str| appliance.tenants.directory.join(name);
    let put = |tenant: &str, ids: &[&str], more: &str| {
        let secret = "secrets = [{ value = \"secret:k\" }]";
        let endpoint = |id: &&str| format!("[[endpoint]]\nid = \"{id}\"\nscheme = \"github\"\n{secret}\n");
        let endpoints: Vec<_> = ids.iter().map(endpoint).collect();
        let endpoints = endpoints.concat();
        fs::write(at(&format!("{tenant}.toml")), format!("tenant = \"{tenant}\"\n{endpoints}{more}")).unwrap();
    };
    for tenant in ["acme", "beta"] {
        fs::create_dir_all(at(&format!("{tenant}.secrets"))).unwrap();
        fs::write(at(&format!("{tenant}.secrets/k")), "k").unwrap();
        put(tenant, &[tenant], "");
    }
    let config = root.path().join("tidegate.toml");
    fs::write(&config, "").unwrap();
    let mut files: TenantFiles = TenantFiles::new(&appliance);
    let mut load = || files.load(&appliance, &MapEnvironment::default(), &mut |tenant| (Some(tenant), Vec::new()));
    let ids = |load: &TenantsLoad| {
        let endpoints = load.tenants.iter().flat_map(|tenant| &tenant.endpoints).filter(|endpoint| endpoint.enabled);
        endpoints.map(|endpoint| endpoint.id.to_string()).collect::<Vec<_>>()
    };
    let before = load();
    assert_eq!((ids(&before), before.again), (vec!["acme".to_owned(), "beta".to_owned()], false));

    put("acme", &["acme", "wh_new"], "");
    put("beta", &["beta"], "unknown_key = 1\n");
    let limit = getrlimit(Resource::Nofile);
    for left in 0..8 {
        // From none that is left to some: it fails at one place after the other.
        let lowest = fs::File::open("/dev/null").unwrap().as_raw_fd().cast_unsigned();
        setrlimit(Resource::Nofile, Rlimit { current: Some(u64::from(lowest + left)), ..limit }).unwrap();
        let load = load();
        let appliance = (left == 0).then(|| reload_appliance(&config));
        setrlimit(Resource::Nofile, limit).unwrap();
        assert!(ids(&load).iter().filter(|id| *id != "wh_new").eq(["acme", "beta"]), "{left}: {:#?}", load.faults);
        assert!(load.again || ids(&load).contains(&"wh_new".to_owned()), "{left}: {:#?}", load.faults);
        assert!(left > 0 || load.again);
        if let Some((appliance, faults, again)) = appliance {
            assert!(appliance.is_none() && again, "{faults:?}");
        }
    }
    let after = load();
    assert_eq!((ids(&after), after.again), (vec!["acme".to_owned(), "wh_new".into(), "beta".into()], false));
    assert!(after.faults.iter().filter(|fault| fault.is_error()).all(|fault| fault.file.ends_with("beta.toml")));
    // The disk fails: the memory of this process is a file whose beginning cannot be read.
    let disk_fails = |path: &std::path::Path| {
        fs::rename(path, path.with_extension("away")).unwrap();
        std::os::unix::fs::symlink("/proc/self/mem", path).unwrap();
    };
    let mended = |path: &std::path::Path| fs::rename(path.with_extension("away"), path).unwrap();
    let (acme, kept) = (at("acme.toml"), root.path().join("state/tenants.last-good"));
    disk_fails(&acme);
    for load in [load(), load()] {
        assert_eq!((ids(&load), load.again), (ids(&after), true));
    }
    mended(&acme);
    let load_mended = load();
    assert_eq!((ids(&load_mended), load_mended.again, load_mended.changed), (ids(&after), false, 0));
    put("acme", &["acme", "wh_new"], "unknown_key = 1\n");
    disk_fails(&kept);
    for load in [load(), load()] {
        assert_eq!((ids(&load), load.again), (ids(&after), true), "{:#?}", load.faults);
    }
    mended(&kept);
    let load_mended = load();
    assert_eq!((ids(&load_mended), load_mended.again, load_mended.changed), (ids(&after), false, 0));
    // What stays so is not read again and again.
    fs::remove_file(at("acme.toml")).unwrap();
    fs::create_dir(at("acme.toml")).unwrap();
    fs::remove_file(at("beta.secrets/k")).unwrap();
    assert!(!load().again);
    assert!(!reload_appliance(&root.path().join("none.toml")).2);
}
