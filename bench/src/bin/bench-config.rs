//! What loading tenants' files costs: time, memory, and a reload of which nothing, one file, or everything changed.
//!
//! `cargo run --release -p tidegate-bench --bin bench-config -- 10000 10` makes 10,000 files of 10 endpoints each.
//! Secrets are environment variables (`-- 10000 10 files` makes them files instead). Run it under `taskset -c 0` for
//! one core.

use std::fs;
use std::path::Path;
use std::time::Instant;

use config::{Appliance, MapEnvironment, TenantFiles, TenantsLoad};

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize, default: usize| args.get(at).map_or(default, |text| text.parse().expect("a number"));
    let (tenants, endpoints) = (number(0, 10_000), number(1, 10));
    let files = args.get(2).is_some_and(|kind| kind == "files");
    let root = tempfile::tempdir().expect("a directory");
    let mut appliance = Appliance::default();
    appliance.tenants.directory = root.path().join("tenants");
    appliance.tenants.state_directory = root.path().join("state");
    appliance.tenants.allow_env = vec!["SECRET_*".into()];
    fs::create_dir(&appliance.tenants.directory).expect("a directory");
    for tenant in 0..tenants {
        write(&appliance.tenants.directory, tenant, endpoints, files, 0);
    }
    let secrets = (0..tenants * endpoints).map(|n| (format!("SECRET_{n}"), format!("{n:032x}")));
    let environment = if files { MapEnvironment::default() } else { MapEnvironment::new(secrets) };
    let count = (tenants * endpoints) as u64;
    println!(
        "{tenants} tenants x {endpoints} endpoints, secrets in {}",
        if files { "files" } else { "the environment" }
    );

    let load = |set: &mut TenantFiles, what: &str| {
        let began = Instant::now();
        let load = set.load(&appliance, &environment, &mut |tenant| (Some(tenant), Vec::new()));
        println!("{what:<34} {:>8.3} s, {} changed", began.elapsed().as_secs_f64(), load.changed);
        assert!(load.faults.is_empty(), "{:?}", load.faults.first());
        load
    };
    let before = resident();
    let mut set = TenantFiles::new(&appliance);
    let first = load(&mut set, "first load, nothing kept yet");
    // Allocators give memory back when they are asked again: a reload first, then what is left is what stays.
    drop(load(&mut set, "reload, nothing changed"));
    let after = resident();
    println!("{:<34} {:>8} bytes resident each", "", (after.saturating_sub(before)) / count);
    write(&appliance.tenants.directory, 0, endpoints, files, 1);
    let one = load(&mut set, "reload, one file changed");
    drop(one);
    for tenant in 0..tenants {
        write(&appliance.tenants.directory, tenant, endpoints, files, 2);
    }
    let all = load(&mut set, "reload, every file changed");
    keep(&first);
    drop((first, all, set));
    let mut set = TenantFiles::new(&appliance);
    keep(&load(&mut set, "cold start, everything kept"));
}

fn write(directory: &Path, tenant: usize, endpoints: usize, files: bool, version: usize) {
    use std::fmt::Write as _;
    use std::os::unix::fs::PermissionsExt as _;
    let mut text = format!("# {version}\ntenant = \"tenant-{tenant:06}\"\n");
    let secrets = directory.join(format!("tenant-{tenant:06}.secrets"));
    if files && version == 0 {
        fs::create_dir(&secrets).expect("a directory");
    }
    for endpoint in 0..endpoints {
        let n = tenant * endpoints + endpoint;
        let reference = if files { format!("secret:s{endpoint}") } else { format!("env:SECRET_{n}") };
        write!(
            text,
            "\n[[endpoint]]\nid = \"wh_{n:020}\"\nscheme = \"github\"\nsecrets = [{{ value = \"{reference}\" }}]\n"
        )
        .expect("a string takes it");
        if files && version == 0 {
            let path = secrets.join(format!("s{endpoint}"));
            fs::write(&path, format!("{n:032x}")).expect("a secret");
            fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("its mode");
        }
    }
    fs::write(directory.join(format!("tenant-{tenant:06}.toml")), text).expect("a file");
}

fn resident() -> u64 {
    let text = fs::read_to_string("/proc/self/statm").expect("Linux");
    text.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok()).expect("a number of pages") * 4096
}

fn keep(load: &TenantsLoad) {
    assert!(!std::hint::black_box(load).tenants.is_empty());
}
