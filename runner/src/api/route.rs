//! Which paths there are. The table is the API: routing, the list of methods, scopes and the document all follow it.

use domain::EventId;
use http::Method;

use super::asker::Scope;
use super::no::No;
use crate::ids::{AutomationId, RunId, StepId};

/// A path with what it names, read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Route {
    OpenApi,
    CreateWorkflow,
    ListWorkflows,
    ShowWorkflow(AutomationId),
    ReplaceWorkflow(AutomationId),
    DeleteWorkflow(AutomationId),
    CheckWorkflow,
    StartRun(AutomationId),
    ListExecutions,
    ShowExecution(ExecutionName),
    Cancel(ExecutionName),
    Resolve(ExecutionName),
    Replay(ExecutionName),
    Dismiss(ExecutionName),
    ShowNode(ExecutionName, StepId),
    Rerun(ExecutionName, StepId),
    Inbox,
    PlanReplays,
    StartReplays,
    ListReplays,
    ShowReplay(Box<str>),
    StopReplay(Box<str>),
    ListConnections,
    Reconnected(domain::ConnectionId),
}

/// What `/executions/{id}` may be given: the `executionId` of a 202, the event's own id, or a run's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExecutionName {
    Run(RunId),
    Event(EventId),
}

impl ExecutionName {
    pub fn parse(text: &str) -> Option<Self> {
        if let Some(rest) = text.strip_prefix("ex_") {
            return format!("evt_{rest}").parse().ok().map(Self::Event);
        }
        let run = text.parse().ok().map(Self::Run);
        run.or_else(|| text.parse().ok().map(Self::Event))
    }
}

/// Which automation is meant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AutomationName {
    Id(AutomationId),
    /// The tenant's one of this name that is not deleted.
    Name(Box<str>),
}

/// Longest name of an automation that is looked up, in bytes.
const NAME_BYTES_MAX: usize = 256;

/// What an id begins with: a text that does is no name, so that a slip in an id is told as one.
const ID_PREFIX: &str = "aut_";

impl AutomationName {
    pub fn parse(text: &str) -> Option<Self> {
        if let Ok(id) = text.parse() {
            return Some(Self::Id(id));
        }
        let is_name = (1..=NAME_BYTES_MAX).contains(&text.len()) && !text.starts_with(ID_PREFIX);
        is_name.then(|| Self::Name(text.into()))
    }

    /// The id, or the name.
    pub(super) fn parts(named: Option<Self>) -> (Option<AutomationId>, Option<Box<str>>) {
        match named {
            Some(Self::Id(id)) => (Some(id), None),
            Some(Self::Name(name)) => (None, Some(name)),
            None => (None, None),
        }
    }
}

/// Whether a text can name a replay.
pub(super) fn is_replay(text: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    (1..=64).contains(&text.len()) && text.bytes().all(is_plain)
}

/// One row of the API: method, path as the document has it, and what it takes to ask. None: nothing.
pub const ROUTES: &[(Method, &str, Option<Scope>)] = &[
    (Method::GET, "/openapi.json", None),
    (Method::POST, "/workflows", Some(Scope::Author)),
    (Method::GET, "/workflows", Some(Scope::Read)),
    (Method::POST, "/workflows/check", Some(Scope::Read)),
    (Method::GET, "/workflows/{id}", Some(Scope::Read)),
    (Method::PUT, "/workflows/{id}", Some(Scope::Author)),
    (Method::DELETE, "/workflows/{id}", Some(Scope::Author)),
    (Method::POST, "/workflows/{id}/runs", Some(Scope::Operate)),
    (Method::GET, "/executions", Some(Scope::Read)),
    (Method::GET, "/executions/{id}", Some(Scope::Read)),
    (Method::POST, "/executions/{id}/cancel", Some(Scope::Operate)),
    (Method::POST, "/executions/{id}/resolve", Some(Scope::Operate)),
    (Method::POST, "/executions/{id}/replay", Some(Scope::Operate)),
    (Method::POST, "/executions/{id}/dismiss", Some(Scope::Operate)),
    (Method::GET, "/executions/{id}/nodes/{node}", Some(Scope::Read)),
    (Method::POST, "/executions/{id}/nodes/{node}/rerun", Some(Scope::Operate)),
    (Method::GET, "/inbox", Some(Scope::Read)),
    (Method::POST, "/replays/plan", Some(Scope::Operate)),
    (Method::POST, "/replays", Some(Scope::Operate)),
    (Method::GET, "/replays", Some(Scope::Read)),
    (Method::GET, "/replays/{name}", Some(Scope::Read)),
    (Method::POST, "/replays/{name}/stop", Some(Scope::Operate)),
    (Method::GET, "/connections", Some(Scope::Read)),
    (Method::POST, "/connections/{id}/reconnected", Some(Scope::Operate)),
];

impl Route {
    /// The row that a request is of, and what it names. An id that cannot be one is one that nobody has.
    pub(super) fn of(method: &Method, path: &str) -> Result<(Self, Option<Scope>), No> {
        let segments = segments(path).ok_or(No::NotFound)?;
        let mut allowed = Vec::new();
        for (own, pattern, scope) in ROUTES {
            let Some(names) = matched(pattern, &segments) else { continue };
            if own == method {
                return Self::read(own, pattern, &names).map(|route| (route, *scope)).ok_or(No::NotFound);
            }
            allowed.push(own.as_str());
        }
        Err(if allowed.is_empty() { No::NotFound } else { No::Method(allow(&allowed)) })
    }

    fn read(method: &Method, pattern: &str, names: &[&str]) -> Option<Self> {
        let workflow = || names.first()?.parse::<AutomationId>().ok();
        let execution = || ExecutionName::parse(names.first()?);
        let node = || StepId::parse(names.get(1)?);
        let replay = || names.first().filter(|name| is_replay(name)).map(|name| Box::from(*name));
        Some(match (method.as_str(), pattern) {
            ("GET", "/openapi.json") => Self::OpenApi,
            ("POST", "/workflows") => Self::CreateWorkflow,
            ("GET", "/workflows") => Self::ListWorkflows,
            ("POST", "/workflows/check") => Self::CheckWorkflow,
            ("GET", "/workflows/{id}") => Self::ShowWorkflow(workflow()?),
            ("PUT", "/workflows/{id}") => Self::ReplaceWorkflow(workflow()?),
            ("DELETE", "/workflows/{id}") => Self::DeleteWorkflow(workflow()?),
            ("POST", "/workflows/{id}/runs") => Self::StartRun(workflow()?),
            ("GET", "/executions") => Self::ListExecutions,
            ("GET", "/executions/{id}") => Self::ShowExecution(execution()?),
            ("POST", "/executions/{id}/cancel") => Self::Cancel(execution()?),
            ("POST", "/executions/{id}/resolve") => Self::Resolve(execution()?),
            ("POST", "/executions/{id}/replay") => Self::Replay(execution()?),
            ("POST", "/executions/{id}/dismiss") => Self::Dismiss(execution()?),
            ("GET", "/executions/{id}/nodes/{node}") => Self::ShowNode(execution()?, node()?),
            ("POST", "/executions/{id}/nodes/{node}/rerun") => Self::Rerun(execution()?, node()?),
            ("GET", "/inbox") => Self::Inbox,
            ("POST", "/replays/plan") => Self::PlanReplays,
            ("POST", "/replays") => Self::StartReplays,
            ("GET", "/replays") => Self::ListReplays,
            ("GET", "/replays/{name}") => Self::ShowReplay(replay()?),
            ("POST", "/replays/{name}/stop") => Self::StopReplay(replay()?),
            ("GET", "/connections") => Self::ListConnections,
            ("POST", "/connections/{id}/reconnected") => {
                Self::Reconnected(domain::ConnectionId::parse(names.first()?).ok()?)
            }
            _ => return None,
        })
    }
}

/// The methods of one path are few, and a header wants them as one text.
fn allow(methods: &[&str]) -> &'static str {
    match methods {
        ["POST", "GET"] => "GET, POST",
        ["GET", "PUT", "DELETE"] => "GET, PUT, DELETE",
        ["GET"] => "GET",
        _ => "POST",
    }
}

/// Longest path: ids and node names of the longest kind, encoded.
const PATH_BYTES_MAX: usize = 2048;

/// The segments of a path, decoded one by one: `%2F` is part of a name and divides nothing.
fn segments(path: &str) -> Option<Vec<String>> {
    let rest = path.strip_prefix('/').filter(|_| path.len() <= PATH_BYTES_MAX)?;
    rest.split('/').map(decoded).collect()
}

/// Percent-decoding (RFC 3986, 2.1); none where it is malformed or no text.
pub(super) fn decoded(text: &str) -> Option<String> {
    if !text.contains('%') {
        return Some(text.to_owned());
    }
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, behind)) = rest.split_first() {
        rest = behind;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let (pair, behind) = rest.split_at_checked(2)?;
        bytes.extend(data_encoding::HEXUPPER_PERMISSIVE.decode(pair).ok()?);
        rest = behind;
    }
    String::from_utf8(bytes).ok()
}

/// What the segments put into the pattern's braces.
fn matched<'s>(pattern: &str, segments: &'s [String]) -> Option<Vec<&'s str>> {
    let mut names = Vec::new();
    let mut left = segments.iter();
    for part in pattern.trim_start_matches('/').split('/') {
        let segment = left.next()?;
        if part.starts_with('{') {
            names.push(segment.as_str());
        } else if part != segment {
            return None;
        }
    }
    left.next().is_none().then_some(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    const RUN: &str = "run_00000000000000000000000000";

    fn route(method: &Method, path: &str) -> Result<Route, No> {
        Route::of(method, path).map(|(route, _)| route)
    }

    #[test]
    fn every_row_can_be_asked_for() {
        let names = [
            ("{node}", "send"),
            ("/workflows/{id}", "/workflows/aut_00000000000000000000000000"),
            ("/executions/{id}", &format!("/executions/{RUN}")),
            ("/connections/{id}", "/connections/conn_a"),
            ("{name}", "rep_1"),
        ];
        for (method, pattern, _) in ROUTES {
            let path = names.iter().fold((*pattern).to_owned(), |path, (place, name)| path.replace(place, name));
            assert!(route(method, &path).is_ok(), "{method} {path}");
            let no = route(&Method::PATCH, &path).unwrap_err();
            let No::Method(allowed) = no else { panic!("{no:?}") };
            assert!(allowed.split(", ").any(|one| one == method.as_str()), "{method} {path}: {allowed}");
        }
    }

    #[test]
    fn a_name_is_one_segment_whatever_it_holds() {
        let path = format!("/executions/{RUN}/nodes/each%2Finner/rerun");
        let Ok(Route::Rerun(_, step)) = route(&Method::POST, &path) else { panic!() };
        assert_eq!(step.as_str(), "each/inner");
        for bad in [
            "/executions/../workflows",
            "/workflows/",
            "//workflows",
            "/workflows/%zz",
            "/workflows/%",
            "workflows",
            "/executions/run_1",
            "/executions/ex_",
            "/connections/a%00b/reconnected",
            "/",
        ] {
            assert_eq!(route(&Method::GET, bad).unwrap_err().status() / 100, 4, "{bad}");
        }
    }

    #[test]
    fn an_execution_has_three_names() {
        let event: EventId = EventId::from_bytes([7; 16]);
        let ex = event.to_string().replacen("evt_", "ex_", 1);
        assert_eq!(ExecutionName::parse(&ex), Some(ExecutionName::Event(event)));
        assert_eq!(ExecutionName::parse(&event.to_string()), Some(ExecutionName::Event(event)));
        assert_eq!(ExecutionName::parse(RUN), Some(ExecutionName::Run(RUN.parse().unwrap())));
        assert_eq!(ExecutionName::parse("aut_00000000000000000000000000"), None);
    }
}
