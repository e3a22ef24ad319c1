//! `tidegate schemes …`

use std::path::Path;
use std::sync::Arc;

use config::scheme::{SchemeDeclaration, SignatureRule, Window};
use domain::text::Untrusted;
use gateway::scheme::{Proven, Scheme};
use serde_json::json;

use super::Shell;
use super::answers;
use super::args::{Schemes, SchemesList, SchemesShow};
use super::exit::{Exit, Failure, Outcome};
use super::out::Tone;
use super::scheme;
use super::settings::Configured;
use super::table::{Cell, Table, print_fields};

/// A scheme and who declares it.
struct Found {
    scheme: Arc<Scheme>,
    /// None for what comes with Tidegate.
    tenant: Option<String>,
}

impl Found {
    /// Other names by which endpoints find it: a tenant's own are found by their names alone.
    fn aliases(&self) -> &[String] {
        if self.tenant.is_none() { &self.scheme.declaration().aliases } else { &[] }
    }

    fn is_named(&self, name: &str) -> bool {
        self.scheme.name() == name || self.aliases().iter().any(|alias| alias == name)
    }

    /// Its name, and behind it the others.
    fn names(&self) -> String {
        let name = self.scheme.name();
        let aliases = self.aliases();
        if aliases.is_empty() { name.to_owned() } else { format!("{name} ({})", aliases.join(", ")) }
    }
}

pub(super) fn run(command: &Schemes, shell: &mut Shell<'_>) -> Outcome {
    match command {
        Schemes::List(args) => list(args, shell),
        Schemes::Show(args) => show(args, shell),
    }
}

fn list(args: &SchemesList, shell: &mut Shell<'_>) -> Outcome {
    let all = all(args.config.as_deref(), shell)?;
    if args.form.json {
        for found in &all {
            let declaration = found.scheme.declaration();
            shell.out.json(&json!({
                "name": declaration.name,
                "aliases": found.aliases(),
                "title": declaration.title,
                "tenant": found.tenant,
                "algorithm": declaration.algorithm,
                "coversBody": found.scheme.covers_body(),
                "evidence": found.scheme.proven().label(),
                "evidenceSource": source_of(found.scheme.proven()),
                "checked": declaration.checked,
            }))?;
        }
        return Ok(Exit::Yes);
    }
    if args.evidence {
        let mut table = Table::new(&["SCHEME", "EVIDENCE", "FROM", "CHECKED"]);
        for found in &all {
            let declaration = found.scheme.declaration();
            let proven = found.scheme.proven();
            table.row(vec![
                Cell::untrusted(&found.names()),
                Cell::from(proven.label().to_owned()),
                Cell::untrusted(source_of(proven).unwrap_or(&declaration.source)),
                Cell::untrusted(&declaration.checked),
            ]);
        }
        table.print(&mut shell.out)?;
        return Ok(Exit::Yes);
    }
    let mut table = Table::new(&["SCHEME", "PROVIDER", "ALGORITHM", "SIGNS", "CHECKED"]);
    for found in &all {
        let declaration = found.scheme.declaration();
        let provider = found.tenant.as_ref().map_or(declaration.title.as_str(), String::as_str);
        table.row(vec![
            Cell::untrusted(&found.names()),
            Cell::untrusted(provider),
            Cell::from(word(&declaration.algorithm)),
            Cell::untrusted(&contents(declaration)),
            Cell::untrusted(&declaration.checked),
        ]);
    }
    table.print(&mut shell.out)?;
    Ok(Exit::Yes)
}

fn show(args: &SchemesShow, shell: &mut Shell<'_>) -> Outcome {
    let all = all(args.config.as_deref(), shell)?;
    let Some(found) = all.into_iter().find(|found| found.is_named(&args.name)) else {
        shell.out.remark(format_args!(
            "there is no scheme \"{}\"; `tidegate schemes list` names them, --config adds those of tenants",
            Untrusted::new(args.name.as_bytes())
        ));
        return Ok(Exit::No);
    };
    let scheme = &*found.scheme;
    if args.form.json {
        shell.out.json(&json!({
            "name": scheme.name(),
            "aliases": found.aliases(),
            "tenant": found.tenant,
            "coversBody": scheme.covers_body(),
            "deliveryIdSigned": scheme.delivery_id_signed(),
            "strips": scheme.strips(),
            "declaration": scheme.declaration(),
        }))?;
        return Ok(Exit::Yes);
    }
    print(&found, shell)?;
    Ok(Exit::Yes)
}

fn print(found: &Found, shell: &mut Shell<'_>) -> Outcome<()> {
    let declaration = found.scheme.declaration();
    let title = shell.out.paint(Tone::Bold, safe(&declaration.name));
    shell.out.line(format_args!("{title}  {}", safe(&declaration.title)))?;
    print_fields(&mut shell.out, &fields(found))?;
    let heading = shell.out.paint(Tone::Dim, "declaration, as a tenant would write it:");
    shell.out.line(format_args!("\n{heading}"))?;
    let taken = if found.tenant.is_none() { format!("{TAKEN}\n") } else { String::new() };
    (taken + &toml_of(declaration)?).lines().try_for_each(|line| shell.out.line(Plain(line)))
}

fn all(config: Option<&Path>, shell: &Shell<'_>) -> Outcome<Vec<Found>> {
    let presets = scheme::presets()?;
    let mut all: Vec<_> = presets.iter().map(|scheme| Found { scheme: Arc::clone(scheme), tenant: None }).collect();
    if let Some(path) = config {
        for (tenant, scheme) in Configured::load(path, shell)?.declared() {
            all.push(Found { scheme: scheme?, tenant: Some(tenant.to_string()) });
        }
    }
    Ok(all)
}

fn fields(found: &Found) -> Vec<(&'static str, String)> {
    let (scheme, declaration) = (&*found.scheme, found.scheme.declaration());
    let mut fields = Vec::new();
    if let Some(tenant) = &found.tenant {
        fields.push(("tenant", tenant.clone()));
    }
    if !found.aliases().is_empty() {
        fields.push(("also named", safe(&found.aliases().join(", "))));
    }
    if !declaration.source.is_empty() {
        fields.push(("source", format!("{} ({})", safe(&declaration.source), safe(&declaration.checked))));
    }
    fields.push(("algorithm", word(&declaration.algorithm)));
    fields.push(("signature", safe(&signature(&declaration.signature))));
    let signs = contents(declaration);
    fields
        .push(("signs", if signs.is_empty() { "nothing: the secret itself is sent".to_owned() } else { safe(&signs) }));
    let covered = if scheme.covers_body() { "yes" } else { "no: the sender is proved, the body is not" };
    fields.push(("covers body", covered.to_owned()));
    if let Some(rule) = &declaration.timestamp {
        let window = |window: Window| if window == Window::Unlimited { "any".to_owned() } else { window.to_string() };
        let text = format!("{}, {} old, {} ahead", rule.from, window(rule.old), window(rule.future));
        fields.push(("timestamp", safe(&text)));
    }
    if let Some(from) = &declaration.delivery_id {
        let signed = if scheme.delivery_id_signed() { "signed" } else { "not signed: anybody can write it" };
        fields.push(("delivery id", format!("{}, {signed}", safe(&from.to_string()))));
    }
    fields.push(("methods", scheme.methods().join(", ")));
    fields.push(("answered", answers::answered(&declaration.answer)));
    fields.push(("a 503 costs", safe(&answers::cost(&declaration.redelivery))));
    for handshake in &declaration.handshakes {
        fields.push(("handshake", safe(&answers::handshake(handshake))));
    }
    if !scheme.strips().is_empty() {
        fields.push(("never stored", safe(&scheme.strips().join(", "))));
    }
    let proven = match scheme.proven() {
        Proven::KnownAnswer { source } => format!("; agrees with its provider's: {source}"),
        Proven::Constructed => "; constructed".to_owned(),
        Proven::Nothing => String::new(),
    };
    fields.push(("known answers", format!("{}{}", declaration.known_answers.len(), safe(&proven))));
    if declaration.once.is_some() {
        fields.push(("taken once", "another body under the same token is refused".to_owned()));
    }
    if scheme.has_published_keys() {
        fields.push(("secrets", "none needed: the provider publishes its key; secrets = []".to_owned()));
    }
    if !declaration.note.is_empty() {
        fields.push(("note", safe(&declaration.note)));
    }
    fields
}

/// Where the answer is published that it agrees with.
fn source_of(proven: Proven<'_>) -> Option<&str> {
    match proven {
        Proven::KnownAnswer { source } => Some(source),
        Proven::Constructed | Proven::Nothing => None,
    }
}

/// What is signed, case by case; of a JWT, what its claims say.
fn contents(declaration: &SchemeDeclaration) -> String {
    if declaration.algorithm.is_jwt() {
        let claims = declaration.claims.iter().map(|claim| match (claim.content.as_str(), claim.hash) {
            ("", _) => format!("{} = {}", claim.name, claim.equals.join(" or ")),
            (content, None) => format!("{} = {content}", claim.name),
            (content, Some(hash)) => format!("{} = {}({content})", claim.name, word(&hash)),
        });
        return std::iter::once("itself".to_owned()).chain(claims).collect::<Vec<_>>().join(", ");
    }
    if declaration.cases.is_empty() {
        return declaration.content.clone();
    }
    let each = declaration.cases.iter().map(|case| match &case.when {
        Some(when) => format!("{when}: {}", case.content),
        None => case.content.clone(),
    });
    each.collect::<Vec<_>>().join(" | ")
}

fn signature(rule: &SignatureRule) -> String {
    let place = match (&rule.header, &rule.numbered, &rule.from) {
        (Some(header), _, _) => format!("header {header}"),
        (None, Some(stem), _) => format!("headers {stem}1, {stem}2, …"),
        (None, None, Some(from)) => from.to_string(),
        (None, None, None) => format!("headers {}", rule.headers.join(", ")),
    };
    let prefix = if rule.prefix.is_empty() { String::new() } else { format!(", behind \"{}\"", rule.prefix) };
    let encoding = rule.encoding.map(|encoding| format!(", {}", word(&encoding))).unwrap_or_default();
    let list = if rule.list.is_some() { ", in a list" } else { "" };
    format!("{place}{list}{prefix}{encoding}")
}

/// Where a preset's signature is and how it is written; none for what a tenant declares.
pub(super) fn signature_of(preset: &str) -> Option<String> {
    let scheme = scheme::preset(preset).ok()?;
    Some(safe(&signature(&scheme.declaration().signature)))
}

/// The word that the declaration's format has for an enum's value.
fn word(value: &impl serde::Serialize) -> String {
    serde_json::to_value(value).ok().and_then(|value| value.as_str().map(str::to_owned)).unwrap_or_default()
}

fn safe(text: &str) -> String {
    Untrusted::with_limit(text.as_bytes(), 4096).to_string()
}

/// TOML escapes controls itself; what is left that deceives is escaped here, without touching its backslashes.
struct Plain<'a>(&'a str);

impl std::fmt::Display for Plain<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (at, part) in self.0.split('\\').enumerate() {
            let slash = if at == 0 { "" } else { "\\" };
            write!(f, "{slash}{}", Untrusted::with_limit(part.as_bytes(), usize::MAX))?;
        }
        Ok(())
    }
}

/// What comes with Tidegate cannot be declared again.
const TAKEN: &str =
    "# Its name is taken by the preset: give yours another one, and name that in the endpoint's `scheme`.";

/// Known answers are many and long: `--json` has them.
fn toml_of(declaration: &SchemeDeclaration) -> Outcome<String> {
    #[derive(serde::Serialize)]
    struct File<'a> {
        scheme: [&'a SchemeDeclaration; 1],
    }
    let shown = SchemeDeclaration { known_answers: Vec::new(), ..declaration.clone() };
    toml::to_string(&File { scheme: [&shown] })
        .map_err(|error| Failure::plain(format_args!("could not write the declaration: {error}")))
}

#[cfg(test)]
mod tests {
    use super::super::testing::{printed, run};
    use super::*;

    #[test]
    fn every_preset_is_listed_and_shown() {
        let listed = run(&["schemes", "list", "--json"]);
        assert_eq!(listed.exit, Exit::Yes);
        let presets = scheme::presets().unwrap();
        assert_eq!(listed.answer.lines().count(), presets.len());
        assert!(listed.answer.lines().all(|line| serde_json::from_str::<serde_json::Value>(line).is_ok()));
        for scheme in presets.iter() {
            let found = Found { scheme: Arc::clone(scheme), tenant: None };
            let shown = printed(|shell| print(&found, shell));
            assert!(
                shown.contains("[[scheme]]") && shown.contains("answered") && shown.contains("a 503 costs"),
                "{shown}"
            );
        }
        let json: serde_json::Value =
            serde_json::from_str(&run(&["schemes", "show", "github", "--json"]).answer).unwrap();
        assert_eq!(json["declaration"]["name"], "github");
    }

    #[test]
    fn what_stands_behind_a_scheme_is_listed() {
        let listed = run(&["schemes", "list", "--evidence"]).answer;
        let line = |name: &str| listed.lines().find(|line| line.starts_with(name)).unwrap().to_owned();
        assert!(line("github ").contains("known answer") && line("github ").contains("GitHub documentation"));
        assert!(line("bitbucket ").contains("constructed"));
        assert!(line("discord ").contains("2026-"));
        let json = run(&["schemes", "list", "--evidence", "--json"]).answer;
        let github = json.lines().find(|line| line.contains("\"github\"")).unwrap();
        let github: serde_json::Value = serde_json::from_str(github).unwrap();
        assert_eq!(github["evidence"], "known answer");
    }

    #[test]
    fn what_is_printed_can_be_pasted_into_a_tenants_file() {
        let shown = run(&["schemes", "show", "github"]).answer;
        let toml = &shown[shown.find("# Its name is taken").unwrap()..];
        let parsed: toml::Value = toml::from_str(toml).unwrap();
        assert_eq!(parsed["scheme"][0]["name"].as_str(), Some("github"));
        assert!(shown.starts_with("github  GitHub\n"), "{shown}");
        assert!(shown.contains("signature      header X-Hub-Signature-256, behind \"sha256=\", hex\n"), "{shown}");
        assert!(shown.contains("signs          {body}\n"), "{shown}");
    }

    #[test]
    fn a_scheme_is_shown_by_every_name_that_an_endpoint_may_give() {
        let listed = run(&["schemes", "list"]).answer;
        for (alias, name) in [("hubspot", "hubspot-v3"), ("gitlab-token", "gitlab"), ("messenger", "meta")] {
            assert!(scheme::preset(alias).is_ok(), "an endpoint may say {alias}");
            let shown = run(&["schemes", "show", alias]);
            assert_eq!(shown.exit, Exit::Yes, "{alias}: {}", shown.remarks);
            assert!(shown.answer.starts_with(&format!("{name}  ")), "{}", shown.answer);
            assert!(shown.answer.lines().any(|line| line.starts_with("also named") && line.contains(alias)));
            assert!(listed.lines().any(|line| line.starts_with(&format!("{name} (")) && line.contains(alias)));
        }
        let json: serde_json::Value =
            serde_json::from_str(&run(&["schemes", "show", "hubspot", "--json"]).answer).unwrap();
        assert_eq!((&json["name"], &json["aliases"][0]), (&"hubspot-v3".into(), &"hubspot".into()));
    }

    #[test]
    fn what_can_be_extended_without_the_secret_says_so() {
        let presets = scheme::presets().unwrap();
        let extended = presets.iter().filter(|scheme| {
            let declaration = scheme.declaration();
            let is_plain = word(&declaration.algorithm).starts_with("sha");
            is_plain && declaration.content.starts_with("{secret}") && declaration.content.ends_with("{body}")
        });
        let names: Vec<_> = extended.map(|scheme| scheme.name().to_owned()).collect();
        assert_eq!(names, ["hubspot-v1", "hubspot-v2", "recharge"]);
        for name in names {
            let shown = run(&["schemes", "show", &name]).answer;
            assert!(shown.contains("can append to its body and sign it again"), "{shown}");
        }
    }

    #[test]
    fn an_unknown_scheme_is_a_no() {
        let ran = run(&["schemes", "show", "\u{1b}[31m"]);
        assert_eq!(ran.exit, Exit::No);
        assert!(ran.answer.is_empty() && !ran.remarks.contains('\u{1b}') && ran.remarks.contains("schemes list"));
    }
}
