//! `check` says everything at once: no fault hides another one, and none is said that only follows from another.

use std::sync::LazyLock;

use config::MapEnvironment;
use gateway::scheme::Presets;

use super::check::look;
use super::scheme;
use super::testing::Files;
use crate::run::Machine;

/// `file:line: key` of everything that is wrong, in order.
fn told(files: &Files) -> Vec<String> {
    static PRESETS: LazyLock<Presets> = LazyLock::new(|| scheme::presets().unwrap());
    let found = look(&files.config(), &MapEnvironment::default(), &PRESETS, Machine::This).faults;
    let mut told: Vec<_> = found
        .iter()
        .map(|fault| {
            let file = fault.file.file_name().unwrap().display();
            let line = fault.line.map_or_else(String::new, |line| line.to_string());
            let warning = if fault.is_error() { "" } else { " warning" };
            format!("{file}:{line}:{warning} {}", fault.key)
        })
        .collect();
    told.sort();
    told
}

/// The same of the marks in a text: `#! key` is a fault of its line, `#!^ key` one of the line above.
fn marked(file: &str, text: &str) -> Vec<String> {
    let mut marked = Vec::new();
    for (line, number) in text.lines().zip(1..) {
        for mark in line.split("#!").skip(1) {
            let (mark, number) = mark.strip_prefix('^').map_or((mark, number), |mark| (mark, number - 1));
            marked.push(format!("{file}:{number}: {}", mark.trim()));
        }
    }
    marked
}

fn all_marked(files: &[(&str, &str)]) -> Vec<String> {
    let mut all: Vec<_> = files.iter().flat_map(|(file, text)| marked(file, text)).collect();
    all.sort();
    all
}

const APPLIANCE: &str = r#"
[gateway]
public_url = "hooks.example.com" #! gateway.public_url
listen = ["127.0.0.1:9090", "nowhere"] #! gateway.listen[1]
bytes_in_flight_max = "1MiB" #! gateway.bytes_in_flight_max
[gateway.nonsense] #! gateway
header_bytes_max = "1MiB"
[log]
directory = "log"
segment_bytes = "64" #! log.segment_bytes
queue_bytes = "2MiB" #! log.queue_bytes
retention = [{ name = "default", age = "1d" }, { name = "default", age = "1 day" }] #! log.retention #! log.retention[1].age
[admin]
listen = "127.0.0.1:9090" #! admin.listen
[limits.endpoint]
stored_bytes_max = "1GiB" #! limits.endpoint.stored_bytes_max
[tenants]
endpoints_per_tenant_max = 0 #! tenants.endpoints_per_tenant_max
"#;

const TENANT: &str = r#"
tenant = "acme"
retention = "for-ever" #! retention
colour = "red" #! 
[limits]
events = "many" #! limits.events
[[endpoint]]
id = "wh_1"
scheme = 3 #! endpoint[0].scheme
secrets = [{ value = "secret:gone" }, 7, { value = "secret:github", name = "primary" }] #! endpoint[0].secrets[0].value #! endpoint[0].secrets[1] #! endpoint[0].secrets[2]
[[endpoint]]
id = "wh 2" #! endpoint[1].id
scheme = "githbu" #! endpoint[1].scheme
secrets = [{ value = "secret:github" }]
aliases = ["in", "/twice"] #! endpoint[1].aliases[0]
[[endpoint]]
id = "wh_1" #! endpoint[2].id
scheme = "ours"
secrets = [{ value = "secret:github" }]
aliases = ["/twice"] #! endpoint[2].aliases[0]
[[endpoint]] #! endpoint[3].id
scheme = "sound"
secrets = [{ value = "secret:blank" }] #! endpoint[3].secrets[0].value
[[endpoint]]
id = "wh_5"
scheme = "torn
secrets = [{ value = "secret:github" }] #!^ 
[[scheme]]
name = "ours"
algorithm = "hmac-md5" #! scheme[0].algorithm
signature = { header = "X Sig", encoding = "hex", prefx = "v1=" } #! scheme[0].signature.header #! scheme[0].signature
content = "{timestamp}.{nonsense}" #! scheme[0].content
methods = [] #! scheme[0].methods
[scheme.answer]
status = 201 #! scheme[0].answer.status
[[scheme.known_answer]]
secret = "s"
headers = { X-Sig = "0" }
[[scheme]]
name = "sound"
algorithm = "token"
signature = { header = "X-Token" }
[[scheme.known_answer]]
secret = "s"
headers = { X-Token = "s" }
[[scheme.known_answer]] #! scheme[1].known_answer[1]
secret = "s"
headers = { X-Token = "t" }
"#;

#[test]
fn everything_is_said_at_once() {
    let files = Files::with(TENANT);
    files.write("tidegate.toml", APPLIANCE);
    files.write("tenants/acme.secrets/blank", " ");
    let expected = all_marked(&[("tidegate.toml", APPLIANCE), ("acme.toml", TENANT)]);
    assert!(expected.len() > 30);
    assert_eq!(told(&files), expected);
}

#[test]
fn a_faulty_file_is_told_of_its_conflicts_with_others() {
    let endpoint = |tenant: &str, more: &str| {
        format!(
            "tenant = \"{tenant}\"\n{more}[[endpoint]]\nid = \"wh_1\"\nscheme = \"github\"\nsecrets = [{{ value = \"secret:github\" }}]\n"
        )
    };
    let files = Files::with(&endpoint("acme", "colour = 1\n"));
    for tenant in ["beta", "gamma"] {
        files.write(&format!("tenants/{tenant}.secrets/github"), "It's a Secret to Everybody");
    }
    files.write("tenants/beta.toml", &endpoint("beta", ""));
    assert_eq!(told(&files), ["acme.toml:2: ", "acme.toml:3: endpoint[0].id"]);
    files.write("tenants/beta.toml", &endpoint("beta", "colour = 1\n"));
    files.write("tenants/gamma.toml", &endpoint("gamma", "").replace("wh_1", "wh_2"));
    assert_eq!(told(&files), ["acme.toml:2: ", "beta.toml:2: ", "beta.toml:3: endpoint[0].id"]);
}

const APPLIANCE_FILE: &str = "tidegate.toml";
const TENANT_FILE: &str = "acme.toml";

const GOOD_APPLIANCE: &str = r#"[gateway]
public_url = "https://hooks.example.com"
listen = ["127.0.0.1:8080", "127.0.0.1:8081"]
trusted_proxies = ["10.0.0.0/8"]
body_bytes_max = "1MiB"
bytes_in_flight_max = "64MiB"
[gateway.listener]
idle_timeout = "60s"
[log]
directory = "log"
queue_bytes = "8MiB"
segment_bytes = "8MiB"
retention = [{ name = "default", age = "1d" }, { name = "long", age = "9d" }]
[limits.tenant]
events = "100/s"
[admin]
listen = "127.0.0.1:9090"
[tenants]
directory = "tenants"
allow_env = []
endpoints_per_tenant_max = 10
"#;

const GOOD_TENANT: &str = r#"tenant = "acme"
retention = "long"
[limits]
events = "10/s"
[[endpoint]]
id = "wh_1"
scheme = "github"
secrets = [{ value = "secret:github" }, { value = "secret:github", name = "old" }]
aliases = ["/in", "/out"]
sources = ["10.0.0.0/8"]
over_limit = "refuse"
enabled = true
[[endpoint]]
id = "wh_2"
scheme = "ours"
secrets = [{ value = "secret:github" }]
body_bytes_max = "1MiB"
[[scheme]]
name = "ours"
algorithm = "hmac-sha256"
content = "{timestamp}.{body}"
methods = ["POST"]
[scheme.signature]
header = "X-Sig"
encoding = "hex"
[scheme.timestamp]
from = "header:X-Time"
format = "seconds"
old = "5m"
future = "5m"
[[scheme.known_answer]]
secret = "a secret that is no secret"
body = "x"
at_unix_ms = 1790000000000
headers = { X-Sig = "0cbfd89de4a4b0fee9d108266c5e45bd468eb7627e46323062b94665d4c6a920", X-Time = "1790000000" }
[[scheme]]
name = "token"
algorithm = "token"
signature = { header = "X-Token" }
[[scheme.known_answer]]
secret = "s"
headers = { X-Token = "s" }
"#;

/// A line that is faulty by itself.
struct Faulty {
    file: &'static str,
    /// How the good line begins in whose place it stands.
    instead_of: &'static str,
    /// With marks.
    line: &'static str,
    /// It is not said beside faults of this key or in it: it would only follow, or is none any more.
    follows: &'static str,
}

const fn fault(file: &'static str, instead_of: &'static str, line: &'static str, follows: &'static str) -> Faulty {
    Faulty { file, instead_of, line, follows }
}

const FAULTY: &[Faulty] = &[
    fault(APPLIANCE_FILE, "public_url =", "public_url = 3 #! gateway.public_url", ""),
    fault(APPLIANCE_FILE, "listen = [", r#"listen = ["127.0.0.1:8080", "127.0.0.1:8080"] #! gateway.listen"#, ""),
    fault(APPLIANCE_FILE, "trusted_proxies", r#"trusted_proxies = ["10.0.0.1/8"] #! gateway.trusted_proxies[0]"#, ""),
    fault(APPLIANCE_FILE, "bytes_in_flight_max", r#"bytes_in_flight_max = "1MiB" #! gateway.bytes_in_flight_max"#, ""),
    fault(APPLIANCE_FILE, "idle_timeout", r#"idle_timeut = "60s" #! gateway.listener"#, ""),
    fault(APPLIANCE_FILE, "queue_bytes", r#"queue_bytes = "1 MB/s" #! log.queue_bytes"#, ""),
    fault(APPLIANCE_FILE, "segment_bytes", r#"segment_bytes = "1MiB" #! log.segment_bytes"#, ""),
    fault(
        APPLIANCE_FILE,
        "retention = [",
        r#"retention = [{ name = "default", age = "1d" }, { name = 3, age = "9d" }] #! log.retention[1].name"#,
        "",
    ),
    fault(APPLIANCE_FILE, "events", r#"events = "100" #! limits.tenant.events"#, ""),
    fault(APPLIANCE_FILE, r#"listen = "127"#, r#"listen = "127.0.0.1:8081" #! admin.listen"#, "gateway.listen"),
    fault(APPLIANCE_FILE, "allow_env", r#"allow_env = ["a-b"] #! tenants.allow_env[0]"#, ""),
    fault(APPLIANCE_FILE, "endpoints_per", "endpoints_per_tenant_max = 0 #! tenants.endpoints_per_tenant_max", ""),
    fault(TENANT_FILE, "tenant =", r#"tenant = "ac me" #! tenant"#, ""),
    fault(TENANT_FILE, "retention =", r#"retention = "short" #! retention"#, "log.retention"),
    fault(TENANT_FILE, "events", "events = 10 #! limits.events", ""),
    fault(TENANT_FILE, r#"id = "wh_1""#, "id = [] #! endpoint[0].id", ""),
    fault(TENANT_FILE, r#"scheme = "github""#, r#"scheme = "githbu" #! endpoint[0].scheme"#, "scheme[0].name"),
    fault(
        TENANT_FILE,
        r#"secrets = [{ value = "secret:github" }, "#,
        r#"secrets = [{ value = "secret:gone" }, 3, { value = "secret:github", name = "a b" }] #! endpoint[0].secrets[0].value #! endpoint[0].secrets[1] #! endpoint[0].secrets[2].name"#,
        "",
    ),
    fault(
        TENANT_FILE,
        "aliases",
        r#"aliases = ["/in", "in", "/in"] #! endpoint[0].aliases[1] #! endpoint[0].aliases[2]"#,
        "",
    ),
    fault(TENANT_FILE, "sources", r#"sources = ["10"] #! endpoint[0].sources[0]"#, ""),
    fault(TENANT_FILE, "over_limit", r#"over_limit = "refuse #! "#, ""),
    fault(TENANT_FILE, "enabled", r#"enabled = "no" #! endpoint[0].enabled"#, ""),
    fault(TENANT_FILE, r#"id = "wh_2""#, r#"idd = "wh_2" #! endpoint[1]"#, ""),
    fault(
        TENANT_FILE,
        r#"secrets = [{ value = "secret:github" }]"#,
        r#"secrets = [{ value = "secret:blank" }] #! endpoint[1].secrets[0].value"#,
        "scheme[0]",
    ),
    fault(TENANT_FILE, "body_bytes_max", r#"body_bytes_max = "1GiB" #! endpoint[1].body_bytes_max"#, ""),
    fault(TENANT_FILE, r#"name = "ours""#, "name = 1 #! scheme[0].name", ""),
    fault(TENANT_FILE, r#"algorithm = "hmac"#, r#"algorithm = "hmac" #! scheme[0].algorithm"#, ""),
    fault(TENANT_FILE, "content", r#"content = "{timestamp}.{bdy}" #! scheme[0].content"#, ""),
    fault(TENANT_FILE, "methods", "methods = [] #! scheme[0].methods", ""),
    fault(TENANT_FILE, "header =", r#"header = "X Sig" #! scheme[0].signature.header"#, ""),
    fault(TENANT_FILE, "encoding", r#"encoding = "hexx" #! scheme[0].signature.encoding"#, ""),
    fault(TENANT_FILE, "from", r#"from = "header" #! scheme[0].timestamp.from"#, ""),
    fault(TENANT_FILE, "old", "old = 5 #! scheme[0].timestamp.old", ""),
    fault(TENANT_FILE, "future", r#"futur = "5m" #! scheme[0].timestamp"#, ""),
    fault(TENANT_FILE, r#"name = "token""#, r#"name = "stripe" #! scheme[1].name"#, ""),
    fault(TENANT_FILE, r#"secret = "s""#, r#"secret = "t" #!^ scheme[1].known_answer[0]"#, ""),
];

impl Faulty {
    fn put(&self, text: &str) -> String {
        let lines = text.lines().map(|line| if line.starts_with(self.instead_of) { self.line } else { line });
        let faulty: String = lines.flat_map(|line| [line, "\n"]).collect();
        assert_eq!(faulty.matches(self.line).count(), 1, "{}", self.instead_of);
        faulty
    }

    fn is_said_beside(&self, other: &Self) -> bool {
        let mut keys = other.line.split("#!").skip(1).map(|mark| mark.trim_start_matches('^').trim());
        let is_in_it = |key: &str| {
            key.strip_prefix(self.follows).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
        };
        self.follows.is_empty() || !keys.any(is_in_it)
    }
}

/// Whichever two lines are faulty, both are said, and nothing else is.
#[test]
fn no_fault_hides_another() {
    let files = Files::with("");
    files.write("tenants/acme.secrets/blank", " ");
    let mut wrong = Vec::new();
    for (at, one) in FAULTY.iter().enumerate() {
        for other in &FAULTY[at..] {
            let text = |file: &'static str, good: &str| {
                let faults = [one, other].into_iter().filter(|fault| fault.file == file);
                let mut text = good.to_owned();
                for fault in faults {
                    if !text.contains(fault.line) {
                        text = fault.put(&text);
                    }
                }
                text
            };
            let (appliance, tenant) = (text(APPLIANCE_FILE, GOOD_APPLIANCE), text(TENANT_FILE, GOOD_TENANT));
            files.write(APPLIANCE_FILE, &appliance);
            files.write("tenants/acme.toml", &tenant);
            let unsaid = |text: &str| {
                let hidden = [(one, other), (other, one)].into_iter().filter(|(one, other)| !one.is_said_beside(other));
                hidden.fold(text.to_owned(), |text, (one, _)| text.replace(one.line, &one.line.replace("#!", "#")))
            };
            let (appliance, tenant) = (unsaid(&appliance), unsaid(&tenant));
            let expected = all_marked(&[(APPLIANCE_FILE, &appliance), (TENANT_FILE, &tenant)]);
            let told = told(&files);
            if told != expected {
                wrong.push(format!("{} + {}\n  {told:?}\n  {expected:?}", one.line, other.line));
            }
        }
    }
    assert!(wrong.is_empty(), "{} of them:\n{}", wrong.len(), wrong.join("\n"));
}
