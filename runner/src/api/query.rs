//! What stands behind the question mark: read strictly, all faults at once.

use domain::{ConnectionId, EndpointId, EventId};

use super::no::{DocumentFault, No};
use super::route::{AutomationName, ExecutionName, decoded, is_replay};
use crate::automation::time::parse_rfc3339;
use crate::failure::FailureClass;
use crate::ids::{AutomationId, Version};
use crate::ledger::RunStatus;
use crate::view::Part;

/// Entries of a page where nobody says how many.
pub const LIMIT_DEFAULT: usize = 50;

/// Entries of a page at most.
pub const LIMIT_MAX: usize = 200;

/// How statuses are written, here and in every answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StatusWord;

impl StatusWord {
    pub const ALL: &'static [(&'static str, RunStatus)] = &[
        ("queued", RunStatus::Queued),
        ("running", RunStatus::Running),
        ("parked", RunStatus::Parked),
        ("needs-attention", RunStatus::NeedsAttention),
        ("quarantined", RunStatus::Quarantined),
        ("succeeded", RunStatus::Succeeded),
        ("failed", RunStatus::Failed),
        ("cancelled", RunStatus::Cancelled),
        ("timed-out", RunStatus::TimedOut),
        ("ended-ambiguous", RunStatus::EndedAmbiguous),
    ];

    pub fn parse(word: &str) -> Option<RunStatus> {
        Self::ALL.iter().find(|(own, _)| *own == word).map(|(_, status)| *status)
    }

    pub fn of(status: RunStatus) -> &'static str {
        Self::ALL.iter().find(|(_, own)| *own == status).map_or("unknown", |(word, _)| word)
    }
}

/// Why runs exist, as a filter has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CauseWord {
    Event,
    Replay,
    Manual,
}

/// Which runs are wanted: all that every part says yes to.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ExecutionFilter {
    pub automation: Option<AutomationId>,
    /// Any of them; empty: all.
    pub statuses: Vec<RunStatus>,
    pub cause: Option<CauseWord>,
    pub endpoint: Option<EndpointId>,
    pub connection: Option<ConnectionId>,
    /// Runs of this event, replays of it too.
    pub event: Option<EventId>,
    /// Runs of this replay.
    pub replay: Option<Box<str>>,
    pub class: Option<FailureClass>,
    /// Admitted at or after.
    pub from_unix_ms: Option<u64>,
    /// Admitted before.
    pub to_unix_ms: Option<u64>,
    /// Only those that were set aside or ended badly for good, and that nobody has put away.
    pub dead_letters: bool,
    /// Where the last page ended.
    pub after: Option<Box<str>>,
    /// 1 to [`LIMIT_MAX`].
    pub limit: usize,
}

/// A page of something else than runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Paging {
    pub(super) after: Option<Box<str>>,
    pub(super) limit: usize,
}

/// Parts of a query that are looked at.
const PARTS_MAX: usize = 32;

/// Reads a query's parts one by one and gathers what is wrong with them.
struct Reading {
    faults: Vec<DocumentFault>,
}

impl Reading {
    fn fault(&mut self, name: &str, message: impl Into<Box<str>>) {
        self.faults.push(DocumentFault::new(format!("?{}", shown(name)), message));
    }

    fn take<T>(&mut self, name: &str, value: &str, what: &str, read: impl Fn(&str) -> Option<T>) -> Option<T> {
        let found = read(value);
        if found.is_none() {
            self.fault(name, format!("{:?} is no {what}", shown(value)));
        }
        found
    }

    fn done<T>(self, value: T) -> Result<T, No> {
        if self.faults.is_empty() { Ok(value) } else { Err(No::Malformed(self.faults)) }
    }
}

fn shown(text: &str) -> String {
    domain::text::Untrusted::with_limit(text.as_bytes(), 64).to_string()
}

/// The parts, decoded. A name twice is a fault: nobody knows which one is meant.
fn parts(query: Option<&str>, reading: &mut Reading) -> Vec<(String, String)> {
    let mut parts: Vec<(String, String)> = Vec::new();
    let all = query.unwrap_or_default().split('&').filter(|part| !part.is_empty());
    for (index, part) in all.enumerate() {
        if index == PARTS_MAX {
            reading.fault("", format!("has more than {PARTS_MAX} parts"));
            break;
        }
        let (name, value) = part.split_once('=').unwrap_or((part, ""));
        // As forms encode it (WHATWG URL, 5.1).
        let decoded = |text: &str| decoded(&text.replace('+', " "));
        let (Some(name), Some(value)) = (decoded(name), decoded(value)) else {
            reading.fault(part, "is not encoded as a query is");
            continue;
        };
        if parts.iter().any(|(other, _)| *other == name) {
            reading.fault(&name, "stands there twice");
            continue;
        }
        parts.push((name, value));
    }
    parts
}

fn limit(reading: &mut Reading, value: &str) -> usize {
    let what = format!("number from 1 to {LIMIT_MAX}");
    let read = |text: &str| text.parse().ok().filter(|limit| (1..=LIMIT_MAX).contains(limit));
    reading.take("limit", value, &what, read).unwrap_or(LIMIT_DEFAULT)
}

/// A time: RFC 3339, or milliseconds since the Unix epoch.
fn time(text: &str) -> Option<u64> {
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        return text.parse().ok();
    }
    parse_rfc3339(text)
}

/// Which runs, and the name of the automation where it is not named by its id.
pub(super) fn executions(query: Option<&str>) -> Result<(ExecutionFilter, Option<Box<str>>), No> {
    let mut reading = Reading { faults: Vec::new() };
    let mut filter = ExecutionFilter { limit: LIMIT_DEFAULT, ..ExecutionFilter::default() };
    let mut named = None;
    for (name, value) in parts(query, &mut reading) {
        let r = &mut reading;
        match name.as_str() {
            "automation" => {
                let automation = r.take(&name, &value, "id or name of an automation", AutomationName::parse);
                (filter.automation, named) = AutomationName::parts(automation);
            }
            "status" => {
                for word in value.split(',') {
                    filter.statuses.extend(r.take(&name, word, "status", StatusWord::parse));
                }
            }
            "cause" => filter.cause = r.take(&name, &value, "cause; write event, replay or manual", cause),
            "endpoint" => {
                filter.endpoint = r.take(&name, &value, "id of an endpoint", |text| EndpointId::parse(text).ok());
            }
            "connection" => {
                filter.connection = r.take(&name, &value, "id of a connection", |text| ConnectionId::parse(text).ok());
            }
            "event" => filter.event = r.take(&name, &value, "id of an event", event),
            "replay" => {
                let read = |text: &str| is_replay(text).then(|| text.into());
                filter.replay = r.take(&name, &value, "name of a replay", read);
            }
            "class" => filter.class = r.take(&name, &value, "class of failures", class),
            "from" => filter.from_unix_ms = r.take(&name, &value, "time (RFC 3339)", time),
            "to" => filter.to_unix_ms = r.take(&name, &value, "time (RFC 3339)", time),
            "deadLetters" => filter.dead_letters = r.take(&name, &value, "true or false", flag).unwrap_or(false),
            "after" => filter.after = r.take(&name, &value, "place that an answer named", place),
            "limit" => filter.limit = limit(r, &value),
            _ => r.fault(&name, "is not known here"),
        }
    }
    reading.done((filter, named))
}

/// `evt_…`, or the `ex_…` of its 202.
fn event(text: &str) -> Option<EventId> {
    match ExecutionName::parse(text)? {
        ExecutionName::Event(event) => Some(event),
        ExecutionName::Run(_) => None,
    }
}

fn flag(word: &str) -> Option<bool> {
    word.parse().ok()
}

fn cause(word: &str) -> Option<CauseWord> {
    Some(match word {
        "event" => CauseWord::Event,
        "replay" => CauseWord::Replay,
        "manual" => CauseWord::Manual,
        _ => return None,
    })
}

fn class(word: &str) -> Option<FailureClass> {
    FailureClass::ALL.iter().copied().find(|class| class.code() == word)
}

/// What `next` of an answer is: opaque, short and plain.
fn place(text: &str) -> Option<Box<str>> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'~');
    ((1..=512).contains(&text.len()) && text.bytes().all(is_plain)).then(|| text.into())
}

pub(super) fn paging(query: Option<&str>) -> Result<Paging, No> {
    let mut reading = Reading { faults: Vec::new() };
    let mut paging = Paging { after: None, limit: LIMIT_DEFAULT };
    for (name, value) in parts(query, &mut reading) {
        match name.as_str() {
            "after" => paging.after = reading.take(&name, &value, "place that an answer named", place),
            "limit" => paging.limit = limit(&mut reading, &value),
            _ => reading.fault(&name, "is not known here"),
        }
    }
    reading.done(paging)
}

/// Automations of a page, and of which name.
pub(super) fn workflows(query: Option<&str>) -> Result<(Paging, Option<Box<str>>), No> {
    let mut reading = Reading { faults: Vec::new() };
    let (mut paging, mut wanted) = (Paging { after: None, limit: LIMIT_DEFAULT }, None);
    for (name, value) in parts(query, &mut reading) {
        match name.as_str() {
            "name" => wanted = Some(value.into()),
            "after" => paging.after = reading.take(&name, &value, "place that an answer named", place),
            "limit" => paging.limit = limit(&mut reading, &value),
            _ => reading.fault(&name, "is not known here"),
        }
    }
    reading.done((paging, wanted))
}

/// Which payload of a node is wanted as it is; none: the node.
pub(super) fn part(query: Option<&str>) -> Result<Option<Part>, No> {
    let mut reading = Reading { faults: Vec::new() };
    let mut part = None;
    for (name, value) in parts(query, &mut reading) {
        match name.as_str() {
            "part" => part = reading.take(&name, &value, "part; write input or output", part_of),
            _ => reading.fault(&name, "is not known here"),
        }
    }
    reading.done(part)
}

fn part_of(word: &str) -> Option<Part> {
    match word {
        "input" => Some(Part::Input),
        "output" => Some(Part::Output),
        _ => None,
    }
}

pub(super) fn version(query: Option<&str>) -> Result<Option<Version>, No> {
    let mut reading = Reading { faults: Vec::new() };
    let mut version = None;
    for (name, value) in parts(query, &mut reading) {
        match name.as_str() {
            "version" => version = reading.take(&name, &value, "version", |text| text.parse().ok()),
            _ => reading.fault(&name, "is not known here"),
        }
    }
    reading.done(version)
}

/// Of a request that takes none.
pub(super) fn nothing(query: Option<&str>) -> Result<(), No> {
    let mut reading = Reading { faults: Vec::new() };
    for (name, _) in parts(query, &mut reading) {
        reading.fault(&name, "is not known here");
    }
    reading.done(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_is_all_of_its_parts() {
        let (filter, named) = executions(Some(
            "automation=aut_00000000000000000000000000&status=failed,timed-out&cause=replay&endpoint=wh_1&connection=conn_a\
            &event=ex_01kc7yqz4w3h5v8m2n6p9r1t4c&replay=rep_1&class=plan-limit&from=2026-01-01T00%3A00%3A00Z&to=1767225600000&deadLetters=true&after=abc-1&limit=7",
        ))
        .unwrap();
        assert_eq!((&*filter.statuses, named), (&[RunStatus::Failed, RunStatus::TimedOut][..], None));
        assert_eq!((filter.event.is_some(), filter.replay.as_deref()), (true, Some("rep_1")));
        assert_eq!((filter.from_unix_ms, filter.to_unix_ms), (Some(1_767_225_600_000), Some(1_767_225_600_000)));
        assert_eq!((filter.limit, filter.after.as_deref(), filter.cause), (7, Some("abc-1"), Some(CauseWord::Replay)));
        assert_eq!((filter.class, filter.dead_letters), (Some(FailureClass::PlanLimit), true));
        assert!(
            executions(Some("deadLetters=1")).is_err()
                && !executions(Some("deadLetters=false")).unwrap().0.dead_letters
        );
        let nothing = ExecutionFilter { limit: LIMIT_DEFAULT, ..ExecutionFilter::default() };
        assert_eq!(executions(None).unwrap(), (nothing.clone(), None));
        assert_eq!(executions(Some("automation=greet+all")).unwrap(), (nothing, Some("greet all".into())));
        for no in ["automation=", "automation=aut_1", "event=run_00000000000000000000000000", "replay=a%20b"] {
            assert!(executions(Some(no)).is_err(), "{no}");
        }
    }

    #[test]
    fn everything_that_is_wrong_is_said_at_once() {
        let no = executions(Some("limit=0&status=broken,failed&from=yesterday&colour=red&limit=2&a=%zz&after=%2Fx"))
            .unwrap_err();
        let No::Malformed(faults) = no else { panic!() };
        let paths: Vec<_> = faults.iter().map(|fault| &*fault.path).collect();
        assert_eq!(paths, ["?limit", "?a=%zz", "?limit", "?status", "?from", "?colour", "?after"]);
        let many = "a=1&".repeat(1000);
        let No::Malformed(faults) = executions(Some(&many)).unwrap_err() else { panic!() };
        assert!(faults.len() <= PARTS_MAX + 1);
    }

    #[test]
    fn a_part_is_one_of_two() {
        assert_eq!(part(None).unwrap(), None);
        assert_eq!(part(Some("part=output")).unwrap(), Some(Part::Output));
        assert!(part(Some("part=all")).is_err() && part(Some("part=input&part=output")).is_err());
    }

    #[test]
    fn every_status_has_one_word() {
        for (word, status) in StatusWord::ALL {
            assert_eq!((StatusWord::parse(word), StatusWord::of(*status)), (Some(*status), *word));
        }
        assert_eq!(StatusWord::ALL.len(), 10);
    }
}
