//! Questions to the runner of a running appliance, and what its refusals mean for a command.

use std::path::PathBuf;

use bytes::Bytes;
use domain::TenantId;
use domain::text::Untrusted;
use http::Method;
use runner::api::{AutomationName, ExecutionName};
use serde_json::Value;

use super::super::args::RunsPlain;
use super::super::events::source::unanswered;
use super::super::exit::{Exit, Failure, Outcome};
use super::super::{Shell, block_on, running};
use crate::control::client::{Client, RunnerAsk, RunnerBytes, RunnerSaid};

/// One who asks: the socket was found.
#[derive(Debug)]
pub(in crate::cli) struct Asking {
    socket: PathBuf,
}

/// What is asked.
#[derive(Debug)]
pub(in crate::cli) struct Question {
    method: Method,
    path: String,
    content_type: &'static str,
    if_match: Option<u32>,
    body: Bytes,
}

impl Question {
    pub(in crate::cli) fn get(path: impl Into<String>) -> Self {
        Self::new(Method::GET, path)
    }

    pub(in crate::cli) fn new(method: Method, path: impl Into<String>) -> Self {
        Self { method, path: path.into(), content_type: "application/json", if_match: None, body: Bytes::new() }
    }

    pub(in crate::cli) fn json(mut self, body: &Value) -> Self {
        self.body = body.to_string().into();
        self
    }

    pub(in crate::cli) fn document(mut self, content_type: &'static str, text: impl Into<Bytes>) -> Self {
        self.content_type = content_type;
        self.body = text.into();
        self
    }

    pub(in crate::cli) fn if_version(mut self, version: Option<u32>) -> Self {
        self.if_match = version;
        self
    }
}

impl Asking {
    pub(in crate::cli) fn of(node: &RunsPlain, shell: &mut Shell<'_>) -> Outcome<Self> {
        Ok(Self { socket: running::socket(node.socket.as_deref(), &node.config, shell)? })
    }

    /// Whatever it says.
    pub(in crate::cli) fn say(&self, question: Question) -> Outcome<RunnerSaid> {
        self.bytes(question)?.json().map_err(|error| unanswered(&error))
    }

    /// The same, as it is.
    pub(in crate::cli) fn bytes(&self, question: Question) -> Outcome<RunnerBytes> {
        let Question { method, path, content_type, if_match, body } = question;
        block_on(async {
            let mut client = Client::connect(&self.socket).await.map_err(|error| unanswered(&error))?;
            let asked = RunnerAsk { method, path: &path, content_type, if_match, body };
            client.runner(asked).await.map_err(|error| unanswered(&error))
        })
    }

    /// The id of an automation. None where there is none of the name, which is told then.
    pub(in crate::cli) fn automation(
        &self,
        tenant: &TenantId,
        name: &AutomationName,
        json: bool,
        shell: &mut Shell<'_>,
    ) -> Outcome<Option<String>> {
        let AutomationName::Name(text) = name else { return Ok(Some(called(name))) };
        let path = of_tenant(tenant, &format!("/workflows?name={}", called(name)));
        let Some(page) = self.yes(Question::get(path), json, shell)? else { return Ok(None) };
        let found = page["workflows"].as_array().and_then(|found| found.first());
        if let Some(id) = found.and_then(|one| one["id"].as_str()) {
            return Ok(Some(id.to_owned()));
        }
        if json {
            shell.out.json(&serde_json::json!({ "code": "not-found", "automation": text }))?;
        } else {
            let text = safe(text);
            shell.out.line(format_args!("no automation is called {text}; one that is deleted has only its id"))?;
        }
        Ok(None)
    }

    /// What it says, if it is yes; a refusal is told, and none.
    pub(in crate::cli) fn yes(&self, question: Question, json: bool, shell: &mut Shell<'_>) -> Outcome<Option<Value>> {
        let said = self.say(question)?;
        if (200..300).contains(&said.status) {
            return Ok(Some(said.body));
        }
        refused(&said, json, shell).map(|()| None)
    }
}

/// Tells a refusal; one that says that it could not be done, or not be asked, is a failure.
pub(in crate::cli) fn refused(said: &RunnerSaid, json: bool, shell: &mut Shell<'_>) -> Outcome<()> {
    let text = |key: &str| said.body[key].as_str().map(safe);
    let title = text("title").unwrap_or_else(|| format!("the appliance answered {}", said.status));
    // Without a code it is the socket that speaks and not the runner.
    if said.status >= 500 || said.body["code"].is_null() {
        let detail = text("detail").map(|detail| format!(" ({detail})")).unwrap_or_default();
        return Err(Failure::plain(format_args!("{title}{detail}")));
    }
    if json {
        return shell.out.json(&said.body);
    }
    // The API's word for it is no option of a command.
    let in_options = |detail: String| match said.body["code"].as_str() {
        Some("confirmation-needed") => detail.replace("confirmDuplicates", "--accept-duplicates"),
        _ => detail,
    };
    let detail = text("detail").map(|detail| format!(" {}", in_options(detail))).unwrap_or_default();
    shell.out.line(format_args!("{title}{detail}"))?;
    for fault in said.body["faults"].as_array().into_iter().flatten() {
        let part = |key: &str| fault[key].as_str().map(safe).unwrap_or_default();
        let place = match (fault["line"].as_u64(), fault["column"].as_u64()) {
            (Some(line), Some(column)) => format!("{line}:{column}: "),
            _ => String::new(),
        };
        let path = match part("path") {
            empty if empty.is_empty() => String::new(),
            path => format!("{path} "),
        };
        shell.out.line(format_args!("  {place}{path}{}", part("message")))?;
    }
    if let Some(more) = said.body["faultsMore"].as_u64() {
        shell.out.line(format_args!("  and {more} more"))?;
    }
    Ok(())
}

/// The end of a command that was asked for one thing.
pub(in crate::cli) fn ended(said: Option<&Value>) -> Exit {
    Exit::yes_if(said.is_some())
}

/// What came over the socket, safe for a terminal.
pub(in crate::cli) fn safe(text: &str) -> String {
    Untrusted::with_limit(text.as_bytes(), 4096).to_string()
}

/// An automation, as a query has it (RFC 3986, 2.1).
pub(in crate::cli) fn called(name: &AutomationName) -> String {
    let text = match name {
        AutomationName::Id(id) => return id.to_string(),
        AutomationName::Name(name) => name,
    };
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~');
    let one = |byte: u8| if is_plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") };
    text.bytes().map(one).collect()
}

pub(in crate::cli) fn of_tenant(tenant: &TenantId, path: &str) -> String {
    format!("/tenants/{tenant}{path}")
}

pub(in crate::cli) fn named(execution: ExecutionName) -> String {
    match execution {
        ExecutionName::Run(run) => run.to_string(),
        ExecutionName::Event(event) => event.to_string(),
    }
}
