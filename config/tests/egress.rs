//! The way out, as both kinds of file say it, and what becomes of a tenant whose calls need what is not there.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;

use tempfile::TempDir;
use tidegate_config::{
    Appliance, Both, CredentialKind, Fault, IssuerTenants, MapEnvironment, PlaintextGrants, PoolAddress, RuleMode,
    SniRule, Tenant, TenantFiles, TenantsLoad, both, has_errors, load_appliance, parse_tenant,
};

/// What a second judge made of a tenant: how many connections it has.
type Made = Both<Tenant, usize>;

/// A machine with a tenant `acme`.
struct Machine {
    _root: TempDir,
    appliance: Appliance,
}

impl Machine {
    fn new(tenant: &str) -> Self {
        let root = tempfile::tempdir().unwrap();
        let mut appliance = Appliance::default();
        appliance.tenants.directory = root.path().join("tenants");
        appliance.tenants.state_directory = root.path().join("state");
        fs::create_dir_all(appliance.tenants.directory.join("acme.secrets")).unwrap();
        let machine = Self { _root: root, appliance };
        machine.tenant(tenant);
        machine
    }

    fn tenant(&self, text: &str) {
        fs::write(self.appliance.tenants.directory.join("acme.toml"), format!("tenant = \"acme\"\n{text}")).unwrap();
    }

    fn secret(&self, name: &str, value: Option<&str>) {
        let path = self.appliance.tenants.directory.join("acme.secrets").join(name);
        match value {
            Some(value) => {
                fs::write(&path, value).unwrap();
                fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
            }
            None => fs::remove_file(path).unwrap(),
        }
    }

    /// Judged by a first judge that takes everything and by a second one.
    fn load(&self, files: &mut TenantFiles<Made>, second: fn(&Tenant) -> Vec<Fault>) -> TenantsLoad<Made> {
        let first = &mut |tenant| (Some(tenant), Vec::new());
        let second = &mut |tenant: &Tenant| {
            let connections = tenant.egress().map(|egress| Arc::new(egress.connections.len()));
            (connections, second(tenant))
        };
        files.load(&self.appliance, &MapEnvironment::default(), &mut both(first, second))
    }
}

fn no_fault(_: &Tenant) -> Vec<Fault> {
    Vec::new()
}

/// Refuses the host `evil.example.com` of a rule, as the parser of hosts would.
fn no_evil(tenant: &Tenant) -> Vec<Fault> {
    let rules = tenant.egress().into_iter().flat_map(|egress| &egress.allow).enumerate();
    let evil = rules.filter(|(_, rule)| rule.host == "evil.example.com");
    evil.map(|(index, rule)| tenant.fault(rule.line, format!("egress.allow[{index}]"), "is evil")).collect()
}

const ENDPOINT: &str = "[[endpoint]]\nid = \"wh_1\"\nscheme = \"github\"\nsecrets = [{ value = \"secret:hook\" }]\n";

const CONNECTION: &str = "[[connection]]\nid = \"conn_1\"\nconnector = \"stripe\"\nbase_url = \"https://api.stripe.com/\"\ncredential = \"cred_1\"\n[[credential]]\nid = \"cred_1\"\nkind = \"bearer\"\nvalue = \"secret:stripe\"\n";

fn errors(load: &TenantsLoad<Made>) -> Vec<String> {
    load.faults
        .iter()
        .filter(|fault| fault.is_error())
        .map(|fault| format!("{}: {}", fault.key, fault.message))
        .collect()
}

#[test]
fn the_appliances_file_says_everything_about_the_way_out() {
    let root = tempfile::tempdir().unwrap();
    let pem = "-----BEGIN PUBLIC KEY-----\nMCowBQYDK2VwAyEA11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo=\n-----END PUBLIC KEY-----\n";
    fs::write(root.path().join("grant.pub.pem"), pem).unwrap();
    let text = r#"
[egress]
listen = ["127.0.0.1:3128", "[::1]:3128"]
name = "edge-1"
mode = "report"
allow = ["status.example.com", { host = "*.example.com", ports = [8443], methods = ["GET"], paths = ["/v1/"], mode = "open", name = "ours" }]
deny = ["*.internal-partner.com:25"]
own_addresses = ["192.0.2.7", "2001:db8::7"]
nat64 = ["64:ff9b::/96"]
plaintext_grants = "never"
[egress.dns]
servers = ["192.0.2.53", "[2001:db8::53]:5353"]
[egress.limits]
redirects_max = 2
[egress.listener]
connections_max = 7
[[egress.issuer]]
name = "platform"
keys = ["file:grant.pub.pem", "ed25519:11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"]
tenants = ["acme", "beta"]
signing_key = "file:grant.key.pem"
[[egress.issuer]]
name = "https://ci.example.com"
keys = ["ed25519:11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"]
tenants = ["*"]
[[egress.pool]]
name = "default"
addresses = [{ v4 = "192.0.2.1", v6 = "2001:db8::1" }, { v4 = "192.0.2.2" }]
[[egress.opening]]
host = "db.internal"
networks = ["10.1.0.0/16"]
ports = [5432]
tenant = "acme"
role = "reports"
[connectors]
directory = "connectors"
"#;
    let path = root.path().join("tidegate.toml");
    fs::write(&path, text).unwrap();
    let (appliance, faults) = load_appliance(&path);
    assert!(!has_errors(&faults), "{faults:?}");
    let appliance = appliance.unwrap();
    assert!(!appliance.gateway.enabled && appliance.egress.enabled);
    assert_eq!(appliance.connectors.directory.as_deref(), Some(root.path().join("connectors").as_path()));
    let egress = appliance.egress;
    assert_eq!((egress.mode, egress.plaintext_grants), (RuleMode::Report, PlaintextGrants::Never));
    assert_eq!((egress.allow[0].host.as_str(), egress.allow[0].line), ("status.example.com", 6));
    let rule = &egress.allow[1];
    assert_eq!((&rule.ports[..], rule.mode, rule.name.as_deref()), (&[8443][..], RuleMode::Open, Some("ours")));
    assert_eq!((rule.methods[0].as_str(), rule.paths[0].as_str()), ("GET", "/v1/"));
    assert_eq!((egress.deny[0].host.as_str(), &egress.deny[0].ports[..]), ("*.internal-partner.com", &[25][..]));
    assert_eq!((egress.nat64[0].value.as_str(), egress.nat64[0].line), ("64:ff9b::/96", 9));
    let servers: Vec<_> = egress.dns.servers.iter().map(ToString::to_string).collect();
    assert_eq!(servers, ["192.0.2.53:53", "[2001:db8::53]:5353"]);
    // What a table leaves out is the default of this role.
    assert_eq!((egress.listener.connections_max, egress.listener.body_rate_min), (7, 0));
    assert_eq!((egress.limits.redirects_max, egress.limits.calls_max), (2, 32_768));
    let [platform, ci] = &egress.issuer[..] else { panic!() };
    assert_eq!((platform.keys[0].value.text.as_str(), platform.keys[0].line), (pem, 19));
    assert_eq!(ci.keys[0].value.text, "ed25519:11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo");
    let key = format!("file:{}", root.path().join("grant.key.pem").display());
    assert_eq!(platform.signing_key.as_ref().unwrap().value, key);
    assert!(platform.tenants.has(&"acme".parse_id()) && !platform.tenants.has(&"gamma".parse_id()));
    assert_eq!(ci.tenants, IssuerTenants::Every);
    let second = PoolAddress { v4: Some("192.0.2.2".parse().unwrap()), v6: None };
    assert_eq!((egress.pool[0].addresses.len(), egress.pool[0].addresses[1].value), (2, second));
    assert_eq!((egress.opening[0].host.line, egress.opening[0].role.as_deref()), (30, Some("reports")));
}

trait ParseId {
    fn parse_id(&self) -> domain::TenantId;
}

impl ParseId for str {
    fn parse_id(&self) -> domain::TenantId {
        domain::TenantId::parse(self).unwrap()
    }
}

#[test]
fn a_private_key_is_no_public_one_and_is_not_repeated() {
    let root = tempfile::tempdir().unwrap();
    fs::write(root.path().join("key.pem"), "-----BEGIN PRIVATE KEY-----\nhunter2\n-----END PRIVATE KEY-----\n")
        .unwrap();
    let text = "[egress]\n[[egress.issuer]]\nname = \"p\"\nkeys = [\"file:key.pem\"]\ntenants = [\"*\"]\n";
    fs::write(root.path().join("tidegate.toml"), text).unwrap();
    let (appliance, faults) = load_appliance(&root.path().join("tidegate.toml"));
    assert!(appliance.is_none());
    assert_eq!((faults.len(), faults[0].line, faults[0].key.as_str()), (1, Some(4), "egress.issuer[0].keys[0]"));
    assert!(faults[0].message.contains("holds a private key") && !faults[0].message.contains("hunter2"));
}

#[test]
fn a_tenants_file_says_everything_about_its_way_out() {
    let text = format!(
        r#"
[egress]
allow = ["api.stripe.com", {{ host = "api.example.com", ports = [443, 8443] }}]
deny = ["evil.hubapi.com"]
mode = "enforce"
pool = "default"
sni = "allow-absent"
[[egress.role]]
name = "build"
allow = []
sni = "require"
[[egress.token]]
name = "ci"
hash = "sha256:BA7816BF8F01CFEA414140DE5DAE2223B00361A396177A9CB410FF61F20015AD"
role = "build"
not_after = 2027-01-31T00:00:00Z
{CONNECTION}
[[credential]]
id = "cred_2"
kind = "header"
header = "X-Api-Key"
prefix = "Token "
value = "secret:stripe"
[[credential]]
id = "cred_3"
kind = "basic"
username = "AC1"
value = "secret:stripe"
[[credential]]
id = "cred_4"
kind = "query"
parameter = "api_key"
value = "secret:stripe"
"#
    );
    let machine = Machine::new(&text);
    machine.secret("stripe", Some("sk_hunter2\n"));
    let load = machine.load(&mut TenantFiles::without_state(), no_fault);
    assert!(load.faults.is_empty(), "{:?}", load.faults);
    let shown = format!("{:?}", load.tenants);
    assert!(shown.contains("cred_4") && !shown.contains("hunter2") && !shown.contains("186, 120"), "{shown}");
    let made = &load.tenants[0];
    assert_eq!(made.beside.as_deref(), Some(&1));
    let egress = made.made.egress().unwrap();
    assert_eq!((egress.allow[1].host.as_str(), egress.allow[1].line), ("api.example.com", 4));
    assert_eq!(
        (egress.mode, egress.pool.as_deref(), egress.sni),
        (Some(RuleMode::Enforce), Some("default"), Some(SniRule::AllowAbsent))
    );
    assert_eq!(
        (egress.roles[0].allow.as_deref(), egress.roles[0].mode, egress.roles[0].line),
        (Some(&[][..]), None, 9)
    );
    assert_eq!(
        (egress.tokens[0].hash[..2].to_vec(), egress.tokens[0].role.as_deref()),
        (vec![0xba, 0x78], Some("build"))
    );
    assert_eq!(egress.tokens[0].not_after_unix_ms, Some(1_801_353_600_000));
    let connection = &egress.connections[0];
    assert_eq!(
        (&*connection.base_url, connection.connector.as_str(), connection.usable),
        ("https://api.stripe.com", "stripe", true)
    );
    let credential = egress.credential(connection).unwrap();
    assert_eq!(
        (&credential.kind, credential.value.as_ref().unwrap().expose()),
        (&CredentialKind::Bearer, &b"sk_hunter2"[..])
    );
    let kinds: Vec<_> = egress.credentials[1..].iter().map(|credential| credential.kind.clone()).collect();
    let header = CredentialKind::Header { name: "x-api-key".into(), prefix: "Token ".into() };
    let basic = CredentialKind::Basic { username: Some("AC1".into()) };
    assert_eq!(kinds, [header, basic, CredentialKind::Query { parameter: "api_key".into() }]);
}

#[test]
fn a_tenant_without_a_way_out_has_none() {
    let (tenant, faults) = parse_tenant(b"tenant = \"acme\"\n");
    assert!(faults.is_empty() && tenant.unwrap().egress().is_none());
    let (tenant, _) = parse_tenant(b"tenant = \"acme\"\n[egress]\n");
    assert!(tenant.unwrap().egress().is_some(), "an empty table is one: nothing beyond the appliance's own rules");
    let machine = Machine::new("");
    let load = machine.load(&mut TenantFiles::without_state(), no_fault);
    assert!(load.tenants[0].beside.is_none());
}

#[test]
fn what_the_second_judge_refuses_makes_the_file_faulty_as_a_whole() {
    let machine = Machine::new(ENDPOINT);
    machine.secret("hook", Some("k"));
    let mut files: TenantFiles<Made> = TenantFiles::new(&machine.appliance);
    let first = machine.load(&mut files, no_evil);
    assert_eq!((errors(&first), first.tenants.len()), (Vec::new(), 1));

    machine.tenant(&format!("[egress]\nallow = [\n\"a.example.com\",\n\"evil.example.com\"]\n{ENDPOINT}"));
    let second = machine.load(&mut files, no_evil);
    assert_eq!(errors(&second), ["egress.allow[1]: is evil"]);
    assert_eq!(second.faults[0].line, Some(5));
    assert!(second.faults[0].file.ends_with("acme.toml"));
    assert!(Arc::ptr_eq(&second.tenants[0].made, &first.tenants[0].made), "the last good version is in force");

    // Both judges say what they have to say, also at once.
    machine.tenant("[egress]\nallow = [\"evil.example.com\"]\n");
    let mut refused = TenantFiles::<Made>::without_state();
    let first = &mut |tenant: Tenant| (None, vec![tenant.fault(1, "tenant", "is not liked")]);
    let beside = &mut |tenant: &Tenant| (None, no_evil(tenant));
    let load = refused.load(&machine.appliance, &MapEnvironment::default(), &mut both::<Tenant, usize>(first, beside));
    assert_eq!((errors(&load).len(), load.tenants.len()), (2, 0));
}

#[test]
fn a_file_is_judged_again_when_what_it_is_judged_by_changes() {
    let machine = Machine::new("[egress]\nallow = [\"evil.example.com\"]\n");
    let mut files: TenantFiles<Made> = TenantFiles::new(&machine.appliance);
    files.judged_by(&"connectors, as they were");
    assert_eq!(errors(&machine.load(&mut files, no_fault)), Vec::<String>::new());
    assert_eq!(errors(&machine.load(&mut files, no_evil)), Vec::<String>::new(), "nothing that is known of changed");
    files.judged_by(&"connectors, as they are");
    let load = machine.load(&mut files, no_evil);
    // Its text is what it was: it stays in force, and what is wrong is said.
    assert_eq!((errors(&load), load.tenants.len()), (vec!["egress.allow[0]: is evil".to_owned()], 1));
}

/// A tenant's file is faulty, and a secret of its last good version is gone: endpoints answer, the connection does not.
#[test]
fn a_lost_credential_takes_its_connection_and_nothing_else() {
    let machine = Machine::new(&format!("{ENDPOINT}{CONNECTION}"));
    machine.secret("hook", Some("k"));
    machine.secret("stripe", Some("sk_1"));
    let mut files: TenantFiles<Made> = TenantFiles::new(&machine.appliance);
    assert_eq!(errors(&machine.load(&mut files, no_fault)), Vec::<String>::new());
    machine.tenant(&format!("unknown = 1\n{ENDPOINT}{CONNECTION}"));
    let value = |load: &TenantsLoad<Made>| {
        let egress = load.tenants[0].made.egress().unwrap();
        egress.credentials[0].value.as_ref().map(|secret| String::from_utf8_lossy(secret.expose()).into_owned())
    };
    let faulty = machine.load(&mut files, no_fault);
    assert_eq!((value(&faulty).as_deref(), errors(&faulty).len()), (Some("sk_1"), 1));
    for unusable in [None, Some(""), Some("two\nlines")] {
        match unusable {
            None => machine.secret("stripe", None),
            Some(text) => machine.secret("stripe", Some(text)),
        }
        for process in [&mut files, &mut TenantFiles::new(&machine.appliance)] {
            let load = machine.load(process, no_fault);
            assert_eq!((value(&load), load.tenants.len()), (None, 1), "{unusable:?} {:#?}", load.faults);
            assert!(
                load.tenants[0].made.endpoints[0].enabled
                    && load.unavailable.iter().all(|one| one.endpoints.is_empty())
            );
            assert!(
                errors(&load).iter().any(|fault| fault.contains("these connections answer 503: conn_1")),
                "{:?}",
                errors(&load)
            );
        }
        if unusable.is_none() {
            machine.secret("stripe", Some("sk_2"));
            assert_eq!(value(&machine.load(&mut files, no_fault)).as_deref(), Some("sk_2"), "it is back");
        }
    }
}

/// What is in a secret's file can be no certificate, which only the second judge sees.
#[test]
fn an_unfit_certificate_takes_its_connection_and_nothing_else() {
    fn no_rot(tenant: &Tenant) -> Vec<Fault> {
        let connections = tenant.egress().into_iter().flat_map(|egress| &egress.connections);
        let roots =
            connections.filter_map(|connection| Some((connection.line, connection.tls.as_ref()?.roots.as_ref()?)));
        let rotten = roots.filter(|(_, roots)| roots.expose().ends_with(b"rot"));
        rotten.map(|(line, _)| tenant.fault(line, "connection[0].roots", "is rotten")).collect()
    }
    let text = "[[connection]]\nid = \"conn_1\"\nconnector = \"http\"\nbase_url = \"https://a.example.com\"\nroots = \"secret:ca\"\n";
    let machine = Machine::new(&format!("{ENDPOINT}{text}"));
    machine.secret("hook", Some("k"));
    machine.secret("ca", Some("-----BEGIN CERTIFICATE-----good"));
    let mut files: TenantFiles<Made> = TenantFiles::new(&machine.appliance);
    let load = machine.load(&mut files, no_rot);
    assert!(errors(&load).is_empty() && load.tenants[0].made.egress().unwrap().connections[0].tls.is_some());
    machine.secret("ca", Some("-----BEGIN CERTIFICATE-----rot"));
    for process in [&mut files, &mut TenantFiles::new(&machine.appliance)] {
        let load = machine.load(process, no_rot);
        let connection = &load.tenants[0].made.egress().unwrap().connections[0];
        assert!(!connection.usable && connection.tls.is_none() && load.tenants[0].made.endpoints[0].enabled);
        assert!(errors(&load).iter().any(|fault| fault.contains("conn_1")), "{:?}", errors(&load));
    }
    machine.secret("ca", None);
    let load = machine.load(&mut files, no_rot);
    assert!(!load.tenants[0].made.egress().unwrap().connections[0].usable);
}

/// Nodes of one fleet share tenants' files; one that takes no calls has neither the pools nor the credentials.
#[test]
fn a_node_that_takes_no_calls_does_without_what_they_need() {
    let mut machine = Machine::new(&format!("[egress]\npool = \"gold\"\n{CONNECTION}"));
    machine.appliance.egress.enabled = false;
    let load = machine.load(&mut TenantFiles::without_state(), no_fault);
    assert_eq!(errors(&load), Vec::<String>::new());
    assert!(load.faults.len() == 1 && load.faults[0].message.contains("this node takes no calls"), "{:?}", load.faults);
    machine.appliance.egress.enabled = true;
    let load = machine.load(&mut TenantFiles::without_state(), no_fault);
    assert_eq!(load.faults.len(), 2, "{:?}", load.faults);
}
