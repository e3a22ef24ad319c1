//! The configuration that people start from is good, and stays good.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use tidegate_config::{MapEnvironment, TenantFiles, TenantsLoad, load_appliance};

fn example() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/example")
}

#[test]
fn the_example_loads_without_a_fault() {
    let root = tempfile::tempdir().unwrap();
    fs::create_dir_all(root.path().join("tenants/acme.secrets")).unwrap();
    for file in ["tidegate.toml", "tenants/acme.toml"] {
        fs::copy(example().join(file), root.path().join(file)).unwrap();
    }
    // As `make run` does: a secret for every reference.
    let text = fs::read_to_string(example().join("tenants/acme.toml")).unwrap();
    for reference in text.split('"').filter_map(|quoted| quoted.strip_prefix("secret:")) {
        let path = root.path().join("tenants/acme.secrets").join(reference);
        fs::write(&path, "0123456789abcdef0123456789abcdef").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    }
    let (appliance, faults) = load_appliance(&root.path().join("tidegate.toml"));
    assert!(faults.is_empty(), "{faults:?}");
    let appliance = appliance.unwrap();
    assert_eq!(appliance.tenants.directory, root.path().join("tenants"));
    assert_eq!(appliance.admin.socket, Path::new("/var/lib/tidegate/tidegate.sock"));
    let load: TenantsLoad = TenantFiles::without_state()
        .load(&appliance, &MapEnvironment::default(), &mut |tenant| (Some(tenant), Vec::new()));
    assert!(load.faults.is_empty(), "{:?}", load.faults);
    assert_eq!(load.tenants[0].endpoints.len(), 5);
    assert_eq!(&*load.tenants[0].endpoints[0].scheme, "github");
    assert!(load.tenants[0].endpoints.iter().all(|endpoint| endpoint.id.as_str().len() == 23));
}

/// DESIGN's first look at both files, word for word.
#[test]
fn the_form_that_is_promised_loads() {
    let root = tempfile::tempdir().unwrap();
    fs::create_dir(root.path().join("tenants")).unwrap();
    let appliance = r#"
        [gateway]
        listen = ["127.0.0.1:8080"]
        public_url = "https://hooks.example.com"
        [log]
        directory = "/var/lib/tidegate/log"
        [egress]
        listen = ["127.0.0.1:3128"]
        [admin]
        listen = "127.0.0.1:9090"
        [tenants]
        directory = "tenants"
        allow_env = ["ACME_*"]
    "#;
    let tenant = r#"
        tenant = "acme"
        [[endpoint]]
        id = "wh_9f2c1b7a"
        scheme = "github"
        secrets = [{ value = "env:ACME_GITHUB" }]
        [[connection]]
        id = "conn_stripe"
        connector = "stripe"
        base_url = "https://api.stripe.com"
        credential = "cred_44"
        [[credential]]
        id = "cred_44"
        kind = "bearer"
        value = "env:ACME_STRIPE"
        [egress]
        allow = ["api.stripe.com", "*.hubapi.com"]
        pool = "default"
    "#;
    fs::write(root.path().join("tidegate.toml"), appliance).unwrap();
    fs::write(root.path().join("tenants/acme.toml"), tenant).unwrap();
    let (appliance, faults) = load_appliance(&root.path().join("tidegate.toml"));
    assert!(faults.is_empty(), "{faults:?}");
    let environment = MapEnvironment::new([("ACME_GITHUB", "hunter2"), ("ACME_STRIPE", "sk_hunter2")]);
    let load: TenantsLoad =
        TenantFiles::without_state().load(&appliance.unwrap(), &environment, &mut |tenant| (Some(tenant), Vec::new()));
    assert_eq!(load.tenants[0].endpoints[0].secrets[0].secret.expose(), b"hunter2");
    assert!(load.faults.is_empty(), "{:?}", load.faults);
    let egress = load.tenants[0].egress().unwrap();
    assert_eq!(
        egress.allow.iter().map(|rule| rule.host.as_str()).collect::<Vec<_>>(),
        ["api.stripe.com", "*.hubapi.com"]
    );
    let credential = egress.credential(&egress.connections[0]).unwrap();
    assert_eq!(credential.value.as_ref().unwrap().expose(), b"sk_hunter2");
}

/// What is printed of a configuration never holds a secret.
#[test]
fn a_canary_appears_nowhere() {
    let (tenant, faults) = tidegate_config::parse_tenant(
        b"tenant = \"acme\"\n[[endpoint]]\nid = \"wh_1\"\nscheme = \"github\"\nsecrets = [{ value = \"env:K\" }]\n",
    );
    let shown = format!("{tenant:?} {faults:?}");
    assert!(shown.contains("wh_1") && !shown.contains("any") && !shown.contains("97, 110, 121"), "{shown}");
}
