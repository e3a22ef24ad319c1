//! What was decided, printed for people and for machines.

use std::net::IpAddr;

use domain::text::Untrusted;
use egress::policy::{Fit, List, Mode, Note, Rule, Ruling};
use egress::{Refusal, Way};
use serde_json::{Value, json};

use super::super::Shell;
use super::super::exit::Outcome;
use super::super::out::Tone;
use super::super::table::{Cell, Table, print_fields};
use super::judge::{Counted, Judged, Judgement, Question, Source, Verdict};

/// Enough of a target to recognise it by.
const TARGET_BYTES_MAX: usize = 2048;

pub(super) fn print(question: &Question, judgement: &Judgement, json: bool, shell: &mut Shell<'_>) -> Outcome<()> {
    if json {
        return shell.out.json(&object(question, judgement));
    }
    let (tone, word, tail) = match &judgement.verdict {
        Verdict::Allowed => (Tone::Good, "allowed", String::new()),
        Verdict::Refused { refusal, .. } => (Tone::Bad, "refused", format!(": {refusal}. {}", refusal.title())),
        Verdict::Undecided { refusal, .. } => (Tone::Warn, "undecided", format!(": {refusal}. {}", refusal.title())),
    };
    let word = shell.out.paint(tone, word);
    shell.out.line(format_args!("{word}{tail}"))?;
    print_fields(&mut shell.out, &fields(question, judgement))?;
    if !judgement.addresses.is_empty() {
        shell.out.line("")?;
        let mut table = Table::new(&["ADDRESS", "ROW", "WHAT", "VERDICT"]);
        judgement.addresses.iter().for_each(|judged| table.row(address_cells(judged)));
        table.print(&mut shell.out)?;
    }
    let mut table = Table::new(&["CONSULTED", "WHAT", "WHERE", "OUTCOME"]);
    judgement.notes.iter().for_each(|note| table.row(note_cells(note)));
    if !table.is_empty() {
        shell.out.line("")?;
        table.print(&mut shell.out)?;
    }
    for remark in &judgement.remarks {
        shell.out.remark(format_args!("note: {remark}"));
    }
    Ok(())
}

fn fields(question: &Question, judgement: &Judgement) -> Vec<(&'static str, String)> {
    let mut fields = vec![("asked", target(question))];
    if let Some(asked) = &judgement.asked {
        fields.push(("way", asked.way.to_string()));
        let path = Untrusted::with_limit(asked.path().as_bytes(), TARGET_BYTES_MAX).to_string();
        fields.push(("hop", format!("{} {}{path}", asked.method, asked.authority)));
    }
    let role = question.role.as_ref().map(|role| format!(", role {}", Untrusted::new(role.as_bytes())));
    fields.push(("tenant", format!("{}{}", question.tenant, role.unwrap_or_default())));
    match (&judgement.verdict, &judgement.by) {
        (Verdict::Refused { why, .. } | Verdict::Undecided { why, .. }, by) => {
            if let Some(by) = by.as_ref().map(ToString::to_string).filter(|by| by != why) {
                fields.push(("rule", by));
            }
            fields.push(("because", why.clone()));
        }
        (Verdict::Allowed, by) => fields.extend(by.iter().map(|by| ("rule", by.to_string()))),
    }
    fields.extend(judgement.reported.iter().map(|ruling| ("would refuse", ruling.to_string())));
    if let Some(source) = judgement.source {
        fields.push(("addresses", source_word(source).to_owned()));
    }
    match (&judgement.exit, &judgement.by) {
        (Some((pool, addresses)), _) => fields.push(("exit", format!("pool {pool}: {}", joined(addresses)))),
        (None, Some(_)) if matches!(judgement.verdict, Verdict::Allowed) => {
            fields.push(("exit", "no pool: the kernel chooses the address".to_owned()));
        }
        (None, _) => {}
    }
    fields.extend(judgement.counted.as_ref().map(|counted| ("counts", counts(question, counted))));
    fields
}

fn counts(question: &Question, counted: &Counted) -> String {
    let limits = counted.limits.iter().map(|(name, level, units)| match units {
        0 => format!("{level} {name} (by the answer)"),
        units => format!("{level} {name} ({units})"),
    });
    let limits: Vec<String> = limits.collect();
    let limits = if limits.is_empty() { "no limit that is known".to_owned() } else { limits.join(", ") };
    let (tenant, connection) = (&question.tenant, &counted.connection);
    format!("{limits}; `tidegate quota explain --tenant {tenant} --connection {connection}` says what is left")
}

fn target(question: &Question) -> String {
    Untrusted::with_limit(&question.target, TARGET_BYTES_MAX).to_string()
}

fn joined(addresses: &[IpAddr]) -> String {
    addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

fn source_word(source: Source) -> &'static str {
    match source {
        Source::Literal => "literal",
        Source::Given => "given",
        Source::Resolved => "resolved",
    }
}

fn address_cells(judged: &Judged) -> Vec<Cell> {
    let (tone, verdict) = match &judged.refused {
        Some(refused) => (Tone::Bad, refused.reason()),
        None if judged.is_opened => (Tone::Good, "opened"),
        None => (Tone::Good, "public"),
    };
    vec![
        Cell::new(&judged.address),
        Cell::from(judged.prefix.as_str()),
        Cell::from(judged.what.as_str()),
        Cell::toned(tone, verdict),
    ]
}

fn note_cells(note: &Note) -> Vec<Cell> {
    match note {
        Note::List { list, rules } => {
            let count = super::super::faults::counted(*rules, "rule");
            vec![Cell::toned(Tone::Bold, list.as_str()), Cell::from(count)]
        }
        Note::Rule { list, rule, fit } => {
            let place = rule.place.as_ref().map(ToString::to_string).unwrap_or_default();
            let (tone, outcome) = effect(*list, rule, *fit);
            let outcome = if outcome.is_empty() { fit.as_str() } else { outcome };
            vec![Cell::new(""), Cell::from(rule_text(rule)), Cell::from(place), Cell::toned(tone, outcome)]
        }
        Note::Grant { covers } => {
            let outcome = if *covers { "names this destination" } else { "does not name this destination" };
            vec![Cell::toned(Tone::Bold, "grant"), Cell::new("destinations"), Cell::new(""), Cell::new(outcome)]
        }
        Note::NoRule { mode } => {
            let outcome = match mode {
                Mode::Enforce => "refuses",
                Mode::Report => "would refuse (report)",
                Mode::Open => "lets through (open)",
            };
            let what = format!("no allow rule; mode {}", mode.as_str());
            vec![Cell::toned(Tone::Bold, "list"), Cell::from(what), Cell::new(""), Cell::new(outcome)]
        }
        Note::Connector { connector, takes_tunnels } => {
            let outcome = if *takes_tunnels { "takes a tunnel" } else { "refuses tunnels" };
            let what = connector.to_string();
            vec![Cell::toned(Tone::Bold, "connector"), Cell::from(what), Cell::new(""), Cell::new(outcome)]
        }
    }
}

/// Its name and its hosts, with what else it names.
fn rule_text(rule: &Rule) -> String {
    let name = rule.name.as_ref().map(|name| format!("{}: ", Untrusted::new(name.as_bytes())));
    let mut text = format!("{}{}", name.unwrap_or_default(), rule.hosts);
    let mut part = |word: &str, values: Option<Vec<String>>| {
        if let Some(values) = values {
            text.extend([" ", word, " ", &values.join(",")]);
        }
    };
    part("ports", rule.ports.as_ref().map(|ports| ports.iter().map(ToString::to_string).collect()));
    part("methods", rule.methods.as_ref().map(|methods| methods.iter().map(ToString::to_string).collect()));
    part("paths", rule.paths.as_ref().map(|paths| paths.iter().map(ToString::to_string).collect()));
    text
}

fn denies(list: List) -> bool {
    match list {
        List::DenyEverybody | List::DenyTenant | List::DenyRole => true,
        List::AllowTenant | List::AllowRole | List::Connections | List::Openings | List::AllowEverybody => false,
    }
}

/// What a rule does that is for the request; nothing for the others.
fn effect(list: List, rule: &Rule, fit: Fit) -> (Tone, &'static str) {
    match (fit, denies(list), rule.mode) {
        (Fit::Fits, true, Mode::Enforce) => (Tone::Bad, "refuses"),
        (Fit::Fits, true, Mode::Report) => (Tone::Warn, "would refuse (report)"),
        (Fit::Fits, true, Mode::Open) => (Tone::Plain, "lets through (open)"),
        (Fit::Fits, false, _) => (Tone::Good, "allows"),
        (Fit::Apex | Fit::Port | Fit::WayPort | Fit::Method | Fit::Path | Fit::Tunnel, ..) => (Tone::Plain, ""),
    }
}

fn object(question: &Question, judgement: &Judgement) -> Value {
    let (decision, refusal, reason) = match &judgement.verdict {
        Verdict::Allowed => ("allowed", None, None),
        Verdict::Refused { refusal, why } => ("refused", Some(*refusal), Some(why)),
        Verdict::Undecided { refusal, why } => ("undecided", Some(*refusal), Some(why)),
    };
    let asked = judgement.asked.as_ref();
    json!({
        "decision": decision,
        "code": refusal.map(Refusal::code),
        "status": refusal.map(|refusal| status(refusal, question.way)),
        "reason": reason,
        "tenant": question.tenant,
        "role": question.role,
        "target": target(question),
        "way": question.way.as_str(),
        "method": question.method.as_str(),
        "scheme": asked.map(|asked| asked.scheme.as_str()),
        "destination": asked.map(|asked| asked.authority.to_string()),
        "path": asked.filter(|asked| asked.way != Way::Connect).map(egress::Asked::path),
        "rule": judgement.by.as_ref().map(ruling),
        "wouldRefuse": judgement.reported.iter().map(ruling).collect::<Vec<_>>(),
        "switch": judgement.switch,
        "counts": judgement.counted.as_ref().map(limits),
        "consulted": judgement.notes.iter().map(note).collect::<Vec<_>>(),
        "addressesFrom": judgement.source.map(source_word),
        "addresses": judgement.addresses.iter().map(address).collect::<Vec<_>>(),
        "exit": judgement.exit.as_ref().map(|(pool, addresses)| json!({ "pool": pool, "addresses": addresses })),
        "notes": judgement.remarks,
    })
}

fn limits(counted: &Counted) -> Vec<Value> {
    let limits = counted.limits.iter();
    limits.map(|(name, level, units)| json!({ "limit": name, "level": level, "units": units })).collect()
}

/// Governed calls are answered as an origin answers.
fn status(refusal: Refusal, way: Way) -> u16 {
    match (refusal.status(), way) {
        (407, Way::Governed) => 401,
        (status, Way::Connect | Way::Absolute | Way::Governed) => status,
    }
}

fn ruling(ruling: &Ruling) -> Value {
    let text = ruling.to_string();
    match ruling {
        Ruling::Rule { list, rule } => {
            let mut value = rule_object(*list, rule);
            value["text"] = text.into();
            value
        }
        Ruling::NoRule { .. }
        | Ruling::Ports { .. }
        | Ruling::Grant
        | Ruling::Connector(_)
        | Ruling::RoleUnknown
        | Ruling::TenantUnknown => json!({ "text": text }),
    }
}

fn rule_object(list: List, rule: &Rule) -> Value {
    let place = rule.place.as_ref();
    json!({
        "list": list.as_str(),
        "name": rule.name,
        "hosts": rule.hosts.to_string(),
        "ports": rule.ports,
        "methods": rule.methods.as_ref().map(|methods| methods.iter().map(http::Method::as_str).collect::<Vec<_>>()),
        "paths": rule.paths.as_ref().map(|paths| paths.iter().map(ToString::to_string).collect::<Vec<_>>()),
        "mode": rule.mode.as_str(),
        "file": place.map(|place| Untrusted::with_limit(place.file.as_os_str().as_encoded_bytes(), 1024).to_string()),
        "line": place.map(|place| place.line),
    })
}

fn note(note: &Note) -> Value {
    match note {
        Note::List { list, rules } => json!({ "kind": "list", "list": list.as_str(), "rules": rules }),
        Note::Rule { list, rule, fit } => {
            let mut value = rule_object(*list, rule);
            value["kind"] = "rule".into();
            value["fit"] = fit_word(*fit).into();
            value
        }
        Note::Grant { covers } => json!({ "kind": "grant", "covers": covers }),
        Note::NoRule { mode } => json!({ "kind": "mode", "mode": mode.as_str() }),
        Note::Connector { connector, takes_tunnels } => {
            json!({ "kind": "connector", "connector": connector, "takesTunnels": takes_tunnels })
        }
    }
}

fn fit_word(fit: Fit) -> &'static str {
    match fit {
        Fit::Fits => "matches",
        Fit::Apex => "apex",
        Fit::Port => "port",
        Fit::WayPort => "way-port",
        Fit::Method => "method",
        Fit::Path => "path",
        Fit::Tunnel => "tunnel",
    }
}

fn address(judged: &Judged) -> Value {
    json!({
        "address": judged.address,
        "allowed": judged.refused.is_none(),
        "opened": judged.is_opened,
        "row": judged.prefix,
        "what": judged.what,
        "code": judged.refused.as_ref().map(outbound::Refused::reason),
        "reason": judged.refused.as_ref().map(ToString::to_string),
    })
}
