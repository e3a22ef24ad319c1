//! From the text of both files to decisions, and to faults with their lines.

use config::parse_appliance;

use super::*;
use crate::caller::Identity;
use crate::policy::Unseen;
use crate::{Asked, Caller, Way};

const HEAD: &str = "[gateway]\npublic_url = \"https://hooks.example.com\"\n[tenants]\nfiles_max = 100\n";

/// Both files, compiled as serving and checking do.
fn compile(appliance: &str, tenant: &str) -> (Compiled, Option<Arc<TenantOut>>, Vec<String>) {
    let path = Path::new("/etc/t/tidegate.toml");
    let (parsed, faults) = parse_appliance(path, format!("{HEAD}{appliance}").as_bytes());
    let parsed = parsed.unwrap_or_else(|| panic!("{faults:?}"));
    let catalogue = catalogue(&parsed).0.unwrap();
    let (compiled, mut faults) = Compiled::new(&parsed, path, &catalogue);
    let (tenant, found) = config::parse_tenant(format!("tenant = \"acme\"\n{tenant}").as_bytes());
    let tenant = tenant.unwrap_or_else(|| panic!("{found:?}"));
    let (out, found) = compiled.tenant(&tenant);
    faults.extend(found);
    (compiled, out, faults.iter().map(ToString::to_string).collect())
}

fn decided(compiled: &Compiled, out: Option<&Arc<TenantOut>>, role: Option<&str>, asked: &str) -> String {
    let tenant = TenantId::parse("acme").unwrap();
    let policy = compiled.policy([(&tenant, out)]);
    let caller = Caller {
        tenant,
        role: role.map(Into::into),
        identity: Identity::Token { name: "t".into() },
        connections: None,
        destinations: None,
        run: None,
        automation: None,
        class: None,
        until_unix_ms: None,
    };
    let (way, url) = asked.split_once(' ').unwrap();
    let (way, method) = match way {
        "CONNECT" => (Way::Connect, "CONNECT"),
        "GOVERNED" => (Way::Governed, "POST"),
        method => (Way::Absolute, method),
    };
    let (scheme, authority, path) = match Target::parse(url) {
        Ok(target) => (target.scheme, target.authority, target.path_and_query),
        Err(_) => (outbound::Scheme::Https, outbound::Authority::with_port(url).unwrap(), ""),
    };
    let asked = Asked { way, method: method.parse().unwrap(), scheme, authority, path_and_query: path.into() };
    match policy.decide(&caller, &asked, &mut Unseen) {
        Ok(allowed) => format!("ok {}", allowed.by),
        Err(denied) => format!("{} {}", denied.refusal, denied.by),
    }
}

use outbound::Target;

const APPLIANCE: &str = r#"
[egress]
allow = ["status.example.com"]
deny = ["*.partner.com"]
mode = "enforce"

[[egress.opening]]
host = "db.internal"
networks = ["10.1.2.0/24"]
ports = [8443]
tenant = "acme"
role = "build"
"#;

const TENANT: &str = r#"
[egress]
allow = [
  "api.example.com",
  { host = "b.example.com", ports = [443, 8443], methods = ["GET"], paths = ["/v1/"], name = "b" },
]
deny = ["evil.example.com"]

[[egress.role]]
name = "build"
allow = ["registry.example.com:8443"]

[[egress.role]]
name = "same"
mode = "open"

[[connection]]
id = "conn_stripe"
connector = "stripe"
base_url = "https://api.stripe.com"
credential = "cred"

[[connection]]
id = "conn_own"
connector = "http"
base_url = "https://own.example.org:8443/base/"

[[credential]]
id = "cred"
kind = "bearer"
value = "secret:key"
"#;

#[test]
fn what_is_written_is_what_is_decided() {
    let (compiled, out, faults) = compile(APPLIANCE, TENANT);
    assert_eq!(faults, Vec::<String>::new());
    let out = out.unwrap();
    for (role, asked, expected) in [
        (None, "CONNECT status.example.com:443", "ok appliance allow: status.example.com (/etc/t/tidegate.toml:7)"),
        (None, "CONNECT api.example.com:443", "ok tenant allow: api.example.com (tenants/acme.toml:5)"),
        (None, "GET https://b.example.com:8443/v1/x", "ok tenant allow: b (tenants/acme.toml:6)"),
        (None, "POST https://b.example.com/v1/x", "request-not-allowed tenant allow: b (tenants/acme.toml:6)"),
        (
            None,
            "CONNECT x.partner.com:443",
            "destination-not-allowed appliance deny: *.partner.com (/etc/t/tidegate.toml:8)",
        ),
        (None, "CONNECT other.example.com:443", "destination-not-allowed no allow rule; mode enforce"),
        (None, "GOVERNED https://api.stripe.com/v1", "ok connection: conn_stripe (tenants/acme.toml:18)"),
        (None, "GOVERNED https://own.example.org:8443/", "ok connection: conn_own (tenants/acme.toml:24)"),
        (None, "GET https://api.stripe.com/v1", "destination-not-allowed no allow rule; mode enforce"),
        (None, "CONNECT db.internal:8443", "destination-not-allowed no allow rule; mode enforce"),
        (Some("build"), "CONNECT db.internal:8443", "ok opening: db.internal (/etc/t/tidegate.toml:12)"),
        (
            Some("build"),
            "CONNECT registry.example.com:8443",
            "ok role allow: registry.example.com (tenants/acme.toml:12)",
        ),
        (Some("build"), "CONNECT api.example.com:443", "destination-not-allowed no allow rule; mode enforce"),
        (Some("build"), "GOVERNED https://api.stripe.com/v1", "destination-not-allowed no allow rule; mode enforce"),
        (Some("same"), "CONNECT api.example.com:443", "ok tenant allow: api.example.com (tenants/acme.toml:5)"),
        (Some("same"), "CONNECT other.example.com:443", "ok no allow rule; mode open"),
        (Some("same"), "CONNECT api.stripe.com:443", "tunnel-not-allowed host of connector stripe"),
        (Some("same"), "GOVERNED https://api.stripe.com/v1", "ok connection: conn_stripe (tenants/acme.toml:18)"),
        (
            Some("same"),
            "CONNECT evil.example.com:443",
            "destination-not-allowed tenant deny: evil.example.com (tenants/acme.toml:8)",
        ),
    ] {
        assert_eq!(decided(&compiled, Some(&out), role, asked), expected, "{role:?} {asked}");
    }
    let own = &out.connections[1].connection;
    let asked = own.ask(http::Method::GET, "/x").unwrap();
    assert_eq!((asked.authority.to_string().as_str(), asked.path()), ("own.example.org:8443", "/base/x"));
    let openings = |role: &RolePolicy| role.openings.len();
    assert_eq!((openings(&out.policy.own), openings(&out.policy.roles["build"])), (0, 1));
}

#[test]
fn a_tenant_that_says_nothing_has_the_appliances_rules() {
    let (compiled, out, _) = compile("[egress]\nallow = [\"a.com\"]\nmode = \"report\"\n", "");
    assert!(out.is_none());
    assert_eq!(
        decided(&compiled, None, None, "CONNECT a.com:443"),
        "ok appliance allow: a.com (/etc/t/tidegate.toml:6)"
    );
    assert_eq!(decided(&compiled, None, None, "CONNECT b.com:443"), "ok no allow rule; mode report");
}

#[test]
fn everything_that_is_no_destination_is_said_with_its_line() {
    let appliance = r#"
[egress]
allow = ["127.1", "good.example.com"]
deny = [
  "x..y",
]
nat64 = ["64:ff9b::/95"]

[[egress.opening]]
host = "db.internal"
networks = ["169.254.169.254/32"]
ports = [443]
tenant = "acme"
role = "gone"

[[egress.opening]]
host = "ok.internal"
networks = ["10.0.0.0/8"]
ports = [443]
tenant = "acme"
role = "gone"
"#;
    let tenant = r#"
[egress]
allow = [{ host = "a_b.-x.com" }]
deny = [{ host = "a.com", paths = ["/v1/..;x"] }]

[[egress.role]]
name = "r"
allow = ["0x7f.1"]
deny = ["xn--example-.org"]

[[connection]]
id = "c1"
connector = "strip"
base_url = "https://api.stripe.com"

[[connection]]
id = "c2"
connector = "stripe"
base_url = "https://api.stripe.com.evil.test"

[[connection]]
id = "c3"
connector = "http"
base_url = "https://010.0.0.1"
"#;
    let (_, _, faults) = compile(appliance, tenant);
    let found: Vec<&str> = faults.iter().map(String::as_str).collect();
    let begins = [
        "/etc/t/tidegate.toml:11: egress.nat64: \"64:ff9b::/95\": its length is none of",
        "/etc/t/tidegate.toml:14: egress.opening: \"db.internal\": 169.254.169.254/32 is ",
        "/etc/t/tidegate.toml:7: egress.allow: \"127.1\" is no host: it ends in a number",
        "/etc/t/tidegate.toml:9: egress.deny: \"x..y\" is no host: a label of the name is empty",
        "tenants/acme.toml:12: connection.c1.connector: \"strip\" is no connector; known here: ",
        "tenants/acme.toml:17: connection.c2.base_url: api.stripe.com.evil.test is no host of the connector stripe",
        "tenants/acme.toml:22: connection.c3.base_url: \"https://010.0.0.1\" is no destination: it ends in a number",
        "tenants/acme.toml:4: egress.allow: \"a_b.-x.com\" is no host: a label of the name begins or ends with",
        "tenants/acme.toml:5: egress.deny: \"/v1/..;x\" is no path: it can be read in more than one way",
        "tenants/acme.toml:9: egress.role.allow: \"0x7f.1\" is no host: it ends in a number",
        "tenants/acme.toml:10: egress.role.deny: \"xn--example-.org\" is no host: a label of the name begins or ends with a hyphen",
        "tenants/acme.toml: warning: egress.role: egress.opening of the appliance's file opens something to the role \"gone\"",
    ];
    assert_eq!(found.len(), begins.len(), "{found:#?}");
    for (found, begin) in found.iter().zip(begins) {
        assert!(found.starts_with(begin), "{found}\n{begin}");
    }
}

#[test]
fn a_connection_that_is_denied_is_said() {
    let tenant = "[egress]\ndeny = [\"*.stripe.com\"]\n[[connection]]\nid = \"c\"\nconnector = \"stripe\"\nbase_url = \"https://api.stripe.com\"\n";
    let (_, _, faults) = compile("[egress]\n", tenant);
    assert_eq!(
        faults,
        [
            "tenants/acme.toml:4: warning: connection.c: cannot be called: api.stripe.com is denied by *.stripe.com (tenants/acme.toml:3)"
        ]
    );
}

#[test]
fn a_quota_that_the_operator_does_not_allow_is_said_with_its_line() {
    let tenant = "[[connection]]\nid = \"c\"\nconnector = \"hubspot\"\nbase_url = \"https://api.hubapi.com\"\nquota_tier = \"professional\"\nquota = [{ limit = \"daily\", cap = 900000 }]\n";
    let (_, _, faults) = compile("[egress]\n", tenant);
    assert_eq!(faults.len(), 2, "{faults:#?}");
    assert!(faults[0].contains("acme.toml:6: connection.c.quota_tier: \"professional\" allows more"), "{faults:#?}");
    assert!(faults[1].contains("acme.toml:7: connection.c.quota: is 900000 where 250000 is allowed"), "{faults:#?}");
    let allowed = "[egress]\n[[egress.quota]]\nconnector = \"hubspot\"\ntenant_tiers = [\"professional\"]\ncap = [{ limit = \"daily\", cap = 900000 }]\n";
    let (_, _, faults) = compile(allowed, tenant);
    assert!(faults.is_empty(), "{faults:#?}");
    let (_, _, faults) = compile("[egress]\n[[egress.quota]]\nconnector = \"hubspot\"\ntier = \"gold\"\n", "");
    assert!(
        faults.len() == 1 && faults[0].contains("tidegate.toml:8: egress.quota.tier: \"gold\" is no tier"),
        "{faults:#?}"
    );
}

#[test]
fn the_appliance_itself_is_what_it_says_it_is() {
    let text = format!(
        "{HEAD}[admin]\nlisten = \"127.0.0.1:9090\"\n[egress]\nlisten = [\"198.51.100.20:3128\"]\nown_addresses = [\"192.0.2.9\"]\n\
         [[egress.pool]]\nname = \"default\"\naddresses = [{{ v4 = \"192.0.2.1\", v6 = \"2001:db8::1\" }}]\n"
    );
    let (appliance, faults) = parse_appliance(Path::new("/etc/t/tidegate.toml"), text.as_bytes());
    let own = own(&appliance.unwrap_or_else(|| panic!("{faults:?}")), ["198.51.100.20".parse().unwrap()]);
    for (address, port, is_own) in [
        ("198.51.100.20", 1, true),
        ("192.0.2.1", 443, true),
        ("2001:db8::1", 443, true),
        ("192.0.2.9", 80, true),
        ("127.0.0.1", 9090, true),
        ("127.0.0.1", 9091, false),
        ("192.0.2.2", 443, false),
    ] {
        assert_eq!(own.has(address.parse().unwrap(), port), is_own, "{address}:{port}");
    }
}
