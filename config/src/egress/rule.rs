//! A rule of an `allow` or a `deny` list: a host, and what of it is meant.
//!
//! Hosts stay text here. Whether a text is a host is for the one parser of hosts to say, and that is not in this crate:
//! what compiles the rule judges it, with the line that it stands in.

use serde_json::{Value, json};
use toml::Spanned;
use toml::de::DeValue;

use super::text::{host_and_port, host_text, method, path_prefix, port};
use crate::document::Document;
use crate::form::{Choice, Form, List, Maybe, Row, Settings, needed, object_schema, settings, text};

/// What happens to what a rule would refuse.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum RuleMode {
    /// It is refused.
    #[default]
    Enforce,
    /// It is let through, and the record says what would have refused it.
    Report,
    /// It is let through, and nothing is said.
    Open,
}

impl RuleMode {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Enforce => "enforce",
            Self::Report => "report",
            Self::Open => "open",
        }
    }
}

/// One entry of an `allow` or a `deny` list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EgressRule {
    /// A name, `*.zone` or an address, as it was written.
    pub host: String,
    /// None: of a rule that denies, all; of one that allows, those that are usual for the way.
    pub ports: Vec<u16>,
    /// None: every method. `CONNECT` stands for tunnels.
    pub methods: Vec<String>,
    /// Prefixes of paths, each `/…`; none: every path. What they hold is judged where they are matched.
    pub paths: Vec<String>,
    pub mode: RuleMode,
    /// How records call it.
    pub name: Option<String>,
    /// Where it stands.
    pub line: u32,
}

settings! {
    /// A rule that is more than a host: `{ host = "api.example.com", methods = ["GET"] }`.
    pub(crate) struct RuleTable {
        /// A host name, `*.` and a zone for every name within it, or an address (IPv6 in brackets).
        host: Option<String> = None, needed(Maybe(host_text())), live,
            "A rule without a host would be about everything.";
        /// Ports. Empty means, of a rule that denies, every one; of one that allows, the usual ones: `egress.connect_ports` for tunnels, `egress.ports` for requests.
        ports: Vec<u16> = Vec::new(), List(port(), 0..=64), live,
            "Few services are anywhere else.";
        /// Methods of requests, in capitals; empty means every one. `CONNECT` among them stands for tunnels, which show no other method.
        methods: Vec<String> = Vec::new(), List(method(), 0..=32), live,
            "A host that may be called may be called by every method.";
        /// Prefixes of paths, each begins with `/`; empty means every path. A tunnel shows no path, so a rule that allows some allows no tunnel.
        paths: Vec<String> = Vec::new(), List(path_prefix(), 0..=256), live,
            "A host that may be called may be called on every path.";
        /// What happens to what this rule would refuse.
        mode: RuleMode = RuleMode::Enforce, mode(), live,
            "A rule is written to be kept. `report` lets through and says in the record what would have been refused, `open` lets through.";
        /// How records call the rule.
        name: Option<String> = None, Maybe(rule_name()), live,
            "Without it they show the host.";
    }
}

pub(crate) const fn mode() -> Choice<RuleMode> {
    Choice(&[("enforce", RuleMode::Enforce), ("report", RuleMode::Report), ("open", RuleMode::Open)])
}

const fn rule_name() -> crate::form::Text<String> {
    text(
        "name",
        "partner-api",
        |text| match text.chars().find(|c| !c.is_ascii_graphic()) {
            Some(odd) => Err(format!("{text:?} holds {odd:?}; write a name of letters, digits and punctuation")),
            None if (1..=64).contains(&text.len()) => Ok(text.to_owned()),
            None => Err("has not 1 to 64 characters; write a short name".into()),
        },
        String::clone,
    )
}

/// A rule: `"host"`, `"*.zone"`, `"host:port"`, or a table.
pub(crate) struct Rule;

impl Form<EgressRule> for Rule {
    fn read(&self, document: &mut Document<'_>, at: &Spanned<DeValue<'_>>) -> Option<EgressRule> {
        let line = document.line(at.span().start);
        match at.get_ref() {
            DeValue::String(text) => match host_and_port(text) {
                Ok((host, port)) => {
                    let ports = port.into_iter().collect();
                    Some(EgressRule { host: host.to_owned(), ports, line, ..nothing() })
                }
                Err(message) => {
                    document.fault(at.span(), message);
                    None
                }
            },
            DeValue::Table(table) => {
                let RuleTable { host, ports, methods, paths, mode, name } = RuleTable::read(document, table, at.span());
                Some(EgressRule { host: host?, ports, methods, paths, mode, name, line })
            }
            DeValue::Integer(_)
            | DeValue::Float(_)
            | DeValue::Boolean(_)
            | DeValue::Datetime(_)
            | DeValue::Array(_) => {
                document.wrong_type(at, "a host as a string, such as \"api.example.com\", or a table with one");
                None
            }
        }
    }

    fn show(&self, rule: &EgressRule) -> String {
        format!("\"{}\"", rule.host)
    }

    fn kind(&self) -> String {
        "[rules](#rules)".into()
    }

    fn schema(&self) -> Value {
        json!({ "anyOf": [
            { "type": "string", "examples": ["api.example.com", "*.example.com", "api.example.com:8443"] },
            object_schema(&RuleTable::rows()),
        ] })
    }

    fn rows(&self) -> Vec<Row> {
        // Every list of rules would have the same section; the reference has one for them all.
        Vec::new()
    }
}

fn nothing() -> EgressRule {
    EgressRule {
        host: String::new(),
        ports: Vec::new(),
        methods: Vec::new(),
        paths: Vec::new(),
        mode: RuleMode::Enforce,
        name: None,
        line: 0,
    }
}
