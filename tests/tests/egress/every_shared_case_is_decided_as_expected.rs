//! The shared corpus of ways to reach the inside, against the real thing. Where it is not at hand, this is skipped.

use std::collections::BTreeMap;

use serde_json::Value;
use tidegate_tests::Tenant;
use tidegate_tests::call::{Said, connect, governed, token};
use tidegate_tests::world::{PROVIDER, Page, Record, Zone, address, alias};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::lab::{EXITS, Lab, connection, on_the_edge, open_tenant, with_token};

const NODE: &str = "127.0.0.1";
const PEER: &str = "93.184.216.201";

/// Refused or not, these fields have no effect: they do not travel, and nobody is called by what they say.
const UNHEARD: [(&str, &str); 2] = [("msg-hop-conn", "x-injected-auth"), ("msg-upstream-proxy-hdr", "x-upstream")];

struct Case {
    id: String,
    kind: String,
    target: String,
    is_allowed: bool,
    policy: String,
    dns: Value,
    chain: Vec<String>,
}

impl Case {
    fn of(case: &Value) -> Self {
        let text = |name: &str| {
            let text = case[name].as_str().unwrap_or_default();
            text.replace("PROXY_LISTEN_PORT", "3128")
                .replace("PROXY_LISTEN_IP", NODE)
                .replace("PROXY_PUBLIC_EGRESS_IP", EXITS[0][0])
                .replace("OTHER_NODE_EGRESS_IP", PEER)
                .replace("ADMIN_PORT", "9090")
        };
        let chain = case["chain"].as_array().into_iter().flatten().filter_map(Value::as_str);
        // Connections are over TLS. Redirects of a chain in the clear are refused for what they are and not for where they
        // lead, so that the whole chain is taken to be over TLS; one that is about losing it begins with it.
        let in_clear = case["chain"][0].as_str().is_some_and(|first| first.starts_with("http://"));
        let over_tls = |step: String| if in_clear { step.replace("http://", "https://") } else { step };
        Self {
            id: text("id"),
            kind: text("kind"),
            target: text("target"),
            is_allowed: case["expected"] == "allow",
            policy: text("policy"),
            dns: case["dns"].clone(),
            chain: chain
                .map(|step| over_tls(step.replace("PROXY_LISTEN_PORT", "3128").replace("PROXY_LISTEN_IP", NODE)))
                .collect(),
        }
    }

    /// The tenant whose rules are the case's.
    fn tenant(&self) -> Option<&'static str> {
        let is_prose =
            !self.target.contains("\r\n") && !self.target.contains(" + TLS") && !self.target.contains(" + ECH");
        match self.policy.as_str() {
            // What is described and not written out: HTTP/2, slow clients, large heads.
            _ if self.kind == "message" && is_prose => None,
            "" if self.kind == "redirect" => Some("listed"),
            "" | "ports=[443]" | "deny=[evil.com]" | "sni_check=enforce" | "sni_check=require" => Some("open"),
            "allowlist=allowed.example.com (public)" => Some("listed"),
            "ports=[443,993]" => Some("ports"),
            policy if policy.starts_with("allow=[*.example.com, allowed.example.com]") => Some("zones"),
            _ => None,
        }
    }

    /// Host and port as the text has them, in every way in which one could take it.
    fn authorities(&self) -> Vec<String> {
        let behind = self.target.split_once("://").map_or(self.target.as_str(), |(_, behind)| behind);
        let authority = behind.split(['/', '?', '#']).next().unwrap_or_default();
        let mut all = vec![authority.to_owned()];
        all.extend(authority.split('@').map(str::to_owned));
        all.dedup();
        all
    }

    fn zone(&self) -> Zone {
        let records = |answer: &Value| -> Vec<Record> {
            let record = |record: &Value| {
                let data = record["data"].as_str().expect("data");
                let made = if record["type"] == "CNAME" { alias(data) } else { address(data) };
                match record["owner"].as_str() {
                    Some(owner) => made.of(owner),
                    None => made,
                }
            };
            let mut records: Vec<Record> = answer.as_array().expect("records").iter().map(record).collect();
            // Behind an alias that is where the addresses are, whether the corpus says so or not.
            if let [first, rest @ ..] = &mut records[..]
                && let tidegate_tests::world::Data::Alias(to) = first.data.clone()
            {
                rest.iter_mut()
                    .filter(|record| record.owner.is_none())
                    .for_each(|record| record.owner = Some(to.clone()));
            }
            records
        };
        match &self.dns {
            Value::Null => Zone::always(PROVIDER),
            Value::Object(object) if object.contains_key("rcode") => Zone { is_absent: true, ..Zone::default() },
            Value::Object(object) => Zone {
                answers: object["sequence"].as_array().expect("answers").iter().map(records).collect(),
                ..Zone::default()
            },
            answer => Zone { answers: vec![records(answer)], ..Zone::default() },
        }
    }

    /// How often it is asked: as often as the answer changes.
    fn rounds(&self) -> usize {
        self.dns["sequence"].as_array().map_or(1, Vec::len)
    }

    fn host(&self) -> String {
        let authority = self.authorities().remove(0);
        authority.split(':').next().unwrap_or_default().to_ascii_lowercase()
    }
}

fn tenants() -> [Tenant; 4] {
    let open = open_tenant("open").set("egress", "deny", "[\"evil.com\"]");
    let rules = |id: &str, allow: &str, deny: &str| {
        let tenant = tidegate_tests::tenant(id).set("egress", "allow", allow).set("egress", "deny", deny);
        with_token(tenant, id, "")
    };
    [
        open,
        rules("listed", "[\"allowed.example.com\", \"api.provider.example\"]", "[]"),
        rules("zones", "[\"*.example.com\", \"allowed.example.com\"]", "[\"denied.example.com\"]"),
        rules("ports", "[{ host = \"example.com\", ports = [443, 993] }]", "[]"),
    ]
}

/// One request in absolute form, with whatever `Host` somebody could think fits.
async fn absolute(lab: &Lab, target: &str, host: &str, token: &str) -> Option<Said> {
    let request = format!("GET {target} HTTP/1.1\r\nHost: {host}\r\nProxy-Authorization: Bearer {token}\r\n\r\n");
    lab.ask(request.as_bytes()).await
}

/// By every way in that can say it.
async fn by_url(lab: &Lab, case: &Case, token: &str) -> Result<(), String> {
    let mut asked: Vec<(&str, String)> =
        case.authorities().iter().map(|authority| ("absolute", authority.clone())).collect();
    let authority = case.authorities().remove(0);
    let has_port = authority.rsplit_once(':').is_some_and(|(_, port)| port.bytes().all(|byte| byte.is_ascii_digit()));
    asked.push(("connect", if has_port { authority.clone() } else { format!("{authority}:443") }));
    if case.kind == "dns-answer" {
        asked.push(("governed", format!("/c/conn_{}/", case.id.replace('-', "_"))));
    }
    for (way, text) in asked {
        lab.world.name(&case.host(), case.zone());
        let mut last = None;
        for _ in 0..case.rounds() {
            lab.world.seen();
            last = match way {
                "absolute" => absolute(lab, &case.target, &text, token).await,
                "connect" => lab.ask(&connect(&text, token)).await,
                _ => lab.ask(&governed(&text, token, "")).await,
            };
        }
        judge(lab, case, way, last.as_ref())?;
    }
    Ok(())
}

/// Whether what was said is what was expected: an answer of the provider's, or a no and nothing that it saw.
fn judge(lab: &Lab, case: &Case, way: &str, said: Option<&Said>) -> Result<(), String> {
    let seen = lab.world.seen();
    let status = said.map_or(0, |said| said.status);
    let is_right = if case.is_allowed {
        (200..=399).contains(&status)
    } else {
        (status == 0 || (400..=599).contains(&status)) && seen.is_empty()
    };
    if is_right { Ok(()) } else { Err(format!("{}, {way}: {:?}: {said:?}; seen: {seen:?}", case.id, case.target)) }
}

async fn by_connect(lab: &Lab, case: &Case, token: &str) -> Result<(), String> {
    let authority = case.target.strip_prefix("CONNECT ").unwrap_or(&case.target);
    let host = authority.rsplit_once(':').map_or(authority, |(host, _)| host);
    lab.world.name(host.trim_end_matches('.'), case.zone());
    lab.world.seen();
    let said = lab.ask(&connect(authority, token)).await;
    judge(lab, case, "connect", said.as_ref())
}

/// Bytes as they are, with a proof behind their first line.
async fn by_bytes(lab: &Lab, case: &Case, token: &str) -> Result<(), String> {
    let (first, rest) = case.target.split_once("\r\n").unwrap_or((&case.target, "\r\n"));
    let proof = format!("Proxy-Authorization: Bearer {token}\r\n");
    let request = if rest.contains("Proxy-Authorization: Bearer T\r\n") {
        case.target.replace("Proxy-Authorization: Bearer T\r\n", &proof)
    } else {
        format!("{first}\r\n{proof}{rest}")
    };
    lab.world.seen();
    let mut call = lab.call().await;
    let said = call.ask(request.as_bytes()).await;
    if let Some(field) = UNHEARD.iter().find(|(id, _)| *id == case.id).map(|(_, field)| field) {
        let seen = lab.world.seen();
        let travels = seen.iter().any(|seen| seen.head.to_lowercase().contains(field));
        return if travels { Err(format!("{}: {field} travels: {seen:?}", case.id)) } else { Ok(()) };
    }
    judge(lab, case, "message", said.as_ref())
}

/// A tunnel, and a greeting for somebody else in it.
async fn by_greeting(lab: &Lab, case: &Case, token: &str) -> Result<(), String> {
    let mut call = lab.call().await;
    let said = call.ask(&connect("allowed.example.com:443", token)).await;
    if said.as_ref().is_none_or(|said| said.status != 200) {
        return Err(format!("{}: no tunnel: {said:?}", case.id));
    }
    lab.world.seen();
    // An address is no server name that would be sent.
    let name = if case.target.contains("without SNI") { "93.184.216.34" } else { "evil.com" };
    if let Ok(mut inner) = lab.tls(call, name).await {
        let _ = inner.write_all(b"GET / HTTP/1.1\r\nHost: evil.com\r\n\r\n").await;
        let _ = inner.read(&mut [0]).await;
        return Err(format!("{}: a greeting for {name} passed", case.id));
    }
    if lab.world.seen().is_empty() { Ok(()) } else { Err(format!("{}: something was seen", case.id)) }
}

/// The provider redirects as the case says, and the caller has it followed.
async fn by_redirect(lab: &Lab, case: &Case, token: &str) -> Result<(), String> {
    let path_of = |url: &str| {
        let behind = url.split_once("://").map_or(url, |(_, behind)| behind);
        let path = behind.find('/').map_or("/", |at| &behind[at..]);
        path.split([' ', '?']).next().unwrap_or("/").to_owned()
    };
    let mut path = path_of(&case.chain[0]);
    lab.world.forget_pages();
    for step in &case.chain[1..] {
        let (status, rest) = step.split_once(' ').unwrap_or((step, ""));
        let status = status.parse().expect("a status");
        let fields = match rest.strip_prefix("-> ").or(if rest == "->" { Some("") } else { None }) {
            // A blank that is not encoded is no URL; it is not what these cases are about.
            Some(to) => to.split(" | ").map(|to| format!("Location: {}\r\n", to.replace(' ', "%20"))).collect(),
            None => format!("{rest}\r\n"),
        };
        lab.world.page(&path, Page { status, fields });
        path = path_of(rest.trim_start_matches("-> "));
    }
    let id = if case.chain[0].contains("api.provider.example") { "conn_provider" } else { "conn_allowed" };
    let asked = governed(&format!("/c/{id}{}", path_of(&case.chain[0])), token, "Tidegate-Follow-Redirects: 5\r\n");
    lab.world.seen();
    let said = lab.ask(&asked).await;
    let seen = lab.world.seen();
    let status = said.as_ref().map_or(0, |said| said.status);
    let ours = ["host: allowed.example.com\r\n", "host: api.provider.example\r\n"];
    let elsewhere = seen.iter().any(|seen| !ours.iter().any(|host| seen.head.to_lowercase().contains(host)));
    let is_right = if case.is_allowed { (200..=399).contains(&status) } else { (400..=599).contains(&status) };
    let is_right = is_right && !elsewhere;
    if is_right { Ok(()) } else { Err(format!("{}: {:?}: {said:?}; seen: {seen:?}", case.id, case.chain)) }
}

#[test]
fn every_shared_case_is_decided_as_expected() {
    let Some(text) = skip::shared_cases("ssrf.json") else { return };
    let cases: Vec<Value> = serde_json::from_str(&text).expect("JSON");
    let cases: Vec<Case> = cases.iter().map(Case::of).collect();
    on_the_edge(async move |lab| {
        let [open, listed, zones, ports] = tenants();
        let dns: String = cases
            .iter()
            .filter(|case| case.kind == "dns-answer" && case.tenant() == Some("open"))
            .map(|case| connection(&format!("conn_{}", case.id.replace('-', "_")), &format!("https://{}", case.host())))
            .collect();
        let listed = listed
            .extra(&connection("conn_allowed", "https://allowed.example.com"))
            .extra(&connection("conn_provider", "https://api.provider.example"));
        let node = lab
            .appliance()
            .set("egress", "own_addresses", &format!("[\"{PEER}\"]"))
            .tenant(open.extra(&dns))
            .tenant(listed)
            .tenant(zones)
            .tenant(ports)
            .start()
            .await;
        node.checked();
        let (mut faults, mut decided, mut left) = (Vec::new(), BTreeMap::<&str, usize>::new(), Vec::new());
        for case in &cases {
            let Some(tenant) = case.tenant() else {
                left.push(case.id.as_str());
                continue;
            };
            let token = token(tenant).0;
            let outcome = match case.kind.as_str() {
                "redirect" => by_redirect(&lab, case, &token).await,
                "connect-authority" => by_connect(&lab, case, &token).await,
                "message" if case.target.contains(" + ") => by_greeting(&lab, case, &token).await,
                "message" => by_bytes(&lab, case, &token).await,
                _ => by_url(&lab, case, &token).await,
            };
            *decided.entry(&case.kind).or_default() += 1;
            faults.extend(outcome.err());
        }
        println!("decided: {decided:?}; left: {left:?}");
        assert!(faults.is_empty(), "{} cases:\n{}", faults.len(), faults.join("\n"));
        assert_eq!(lab.caught(), (0, 0), "packets inside, or connections to what is not to be called");
        assert!(left.len() <= 10 && decided.values().sum::<usize>() > 250, "the corpus is not what it was");
        drop(node);
    });
}
