//! Lines about calls: one for each hop that went well, a sample of the others.
//!
//! Formatted by hand, since this runs once per hop. Each code may write a few lines a second; what is beyond that is
//! counted and told in the next one, so that a flood fills no disk and still leaves its trace.

use std::fmt::{self, Display, Write as _};
use std::sync::Arc;

use config::Logging;
use domain::Clock;
use domain::text::{Untrusted, json_for_terminals};
use egress::{Record, Refusal};
use jiff::Timestamp;

use super::super::logging;
use super::super::sample::Sample;
use super::super::sink::Sink;

/// Of a text that came from outside, as much as somebody recognises it by.
const TEXT_BYTES_MAX: usize = 256;
/// The longest sentence of ours, with the longest name that a provider can put into it, twice over.
const DETAIL_BYTES_MAX: usize = 1024;

/// A usual line, with some room.
const LINE_BYTES: usize = 960;

/// The outcome of a hop that went well.
pub(super) const DONE: &str = "done";

#[derive(Debug)]
pub(super) struct Lines {
    sink: Sink,
    json: bool,
    /// Lines a second about each code.
    per_second: u64,
    clock: Arc<dyn Clock>,
    /// One for each place in `Refusal::ALL`, and one for whatever else ended a hop.
    samples: Vec<Sample>,
}

impl Lines {
    pub(super) fn new(sink: Sink, settings: &Logging, clock: Arc<dyn Clock>) -> Self {
        let samples = (0..=Refusal::ALL.len()).map(|_| Sample::default()).collect();
        let per_second = u64::from(settings.refusals_per_second);
        Self { sink, json: logging::is_json(settings), per_second, clock, samples }
    }

    /// Writes the line about a record, if there is to be one, and gives back the record's JSON if that was in it.
    pub(super) fn write(&self, record: &Record) -> Option<String> {
        let unwritten = if &*record.outcome == DONE {
            0
        } else {
            let known = Refusal::ALL.iter().position(|refusal| refusal.code() == &*record.outcome);
            let sample = self.samples.get(known.unwrap_or(Refusal::ALL.len()))?;
            sample.admit(self.clock.unix_ms() / 1_000, self.per_second)?
        };
        let (mut line, time) = (String::with_capacity(LINE_BYTES), logging::time(&*self.clock));
        let (written, as_json) = if self.json {
            // Only a broken `Serialize` fails into memory.
            let as_json = serde_json::to_string(record).ok()?;
            (json(time, record, &as_json, unwritten, &mut line), Some(as_json))
        } else {
            (text(time, record, unwritten, &mut line), None)
        };
        if written.is_ok() {
            self.sink.push(line.as_bytes());
        }
        as_json
    }
}

fn level(record: &Record) -> (&'static str, &'static str) {
    if &*record.outcome == DONE { (" INFO", "info") } else { (" WARN", "warn") }
}

/// A text that may have come from outside, quoted.
fn quoted(text: &str) -> impl fmt::Debug + '_ {
    Untrusted::with_limit(text.as_bytes(), TEXT_BYTES_MAX)
}

fn text(time: Timestamp, record: &Record, unwritten: u64, out: &mut String) -> fmt::Result {
    let Record { correlation, hop, way, destination, outcome, times, .. } = record;
    // Ours: from a closed set of words, or of digits.
    let (level, way, outcome) = (level(record).0, word(way), word(outcome));
    write!(out, "{time:.3} {level} call correlation={correlation} hop={hop} outcome={outcome}")?;
    some(out, "status", record.status)?;
    some(out, "tenant", record.tenant.as_ref())?;
    some(out, "connection", record.connection.as_ref())?;
    let method = quoted(&record.method);
    write!(out, " way={way} method={method:?} destination={:?}", quoted(destination))?;
    for (name, value) in [
        ("path", &record.path),
        ("identity", &record.identity),
        ("role", &record.role),
        ("run", &record.run),
        ("automation", &record.automation),
        ("class", &record.class),
        ("rule", &record.rule),
    ] {
        if let Some(value) = value {
            write!(out, " {name}={:?}", quoted(value))?;
        }
    }
    for rule in &record.would_refuse {
        write!(out, " would_refuse={:?}", quoted(rule))?;
    }
    for (name, id) in &record.provider_ids {
        write!(out, " provider_id={:?}", quoted(&format!("{name}: {id}")))?;
    }
    write!(out, " peer={}", record.peer)?;
    some(out, "address", record.address)?;
    some(out, "exit", record.exit)?;
    let (sent, received, state) = (record.sent_bytes, record.received_bytes, record.send_state.as_str());
    some(out, "http", record.http.map(egress::HttpVersion::as_str))?;
    write!(out, " pooled={} sent={sent} received={received} send_state={state}", record.pooled)?;
    write!(out, " took_us={}", times.total_us)?;
    if unwritten > 0 {
        write!(out, " unwritten_before={unwritten}")?;
    }
    if !record.detail.is_empty() {
        write!(out, " detail={:?}", Untrusted::with_limit(record.detail.as_bytes(), DETAIL_BYTES_MAX))?;
    }
    writeln!(out)
}

fn some(out: &mut String, name: &str, value: Option<impl Display>) -> fmt::Result {
    value.map_or(Ok(()), |value| write!(out, " {name}={value}"))
}

/// A word of a closed set; whatever else there is in its place is quoted.
fn word(text: &str) -> String {
    let is_word = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
    if is_word && text.len() <= 64 { text.to_owned() } else { format!("{:?}", quoted(text)) }
}

/// The record itself, in the shape of every other line: `time`, `level`, `message`, then its own names.
fn json(time: Timestamp, record: &Record, as_json: &str, unwritten: u64, out: &mut String) -> fmt::Result {
    let fields = json_for_terminals(as_json);
    let fields = fields.strip_prefix('{').ok_or(fmt::Error)?;
    let level = level(record).1;
    write!(out, "{{\"time\":\"{time:.3}\",\"level\":\"{level}\",\"message\":\"call\",")?;
    if unwritten > 0 {
        write!(out, "\"unwrittenBefore\":{unwritten},")?;
    }
    writeln!(out, "{fields}")
}

#[cfg(test)]
mod tests {
    use super::super::super::sink::tests::written;
    use super::super::bounds::{RECORD_BYTES_MAX, bounded};
    use super::super::sample::{NOW, record};
    use super::*;
    use config::LogFormat;
    use domain::ManualClock;

    fn lines(format: LogFormat, records: &[Record]) -> String {
        written(|sink| {
            let settings = Logging { format, refusals_per_second: 5, ..Logging::default() };
            let lines = Lines::new(sink.clone(), &settings, ManualClock::at_unix_ms(NOW));
            for record in records {
                lines.write(record);
            }
        })
    }

    #[test]
    fn a_line_says_who_where_and_what_became_of_it() {
        let expected = format!(
            "2025-11-29T13:46:40.000Z  INFO call correlation={} hop=0 outcome=done \
             status=200 tenant=acme way=absolute method=\"GET\" destination=\"api.example.com:443\" \
             path=\"/v1/things\" identity=\"grant:platform/j1\" run=\"run_1\" rule=\"tenants/acme.toml:7\" \
             peer=127.0.0.1:50000 address=192.0.2.7:443 exit=198.51.100.1 http=1.1 pooled=false sent=10 \
             received=2000 send_state=response took_us=12345\n",
            record(0).correlation
        );
        assert_eq!(lines(LogFormat::Text, &[record(0)]), expected);
        let json: serde_json::Value = serde_json::from_str(&lines(LogFormat::Json, &[record(0)])).unwrap();
        assert_eq!(
            (&json["level"], &json["message"], &json["tenant"]),
            (&"info".into(), &"call".into(), &"acme".into())
        );
        assert_eq!(json["correlation"], record(0).correlation.to_string());
    }

    #[test]
    fn a_flood_of_one_code_is_sampled_and_hides_no_other() {
        let mut records = vec![Record { outcome: "dns-failed".into(), ..record(1) }; 100];
        records.push(Record { outcome: "connect-failed".into(), ..record(2) });
        records.push(Record { outcome: "never heard of".into(), ..record(3) });
        records.extend(vec![record(4); 50]);
        let all = lines(LogFormat::Text, &records);
        let count = |what: &str| all.lines().filter(|line| line.contains(what)).count();
        assert_eq!(
            ["outcome=dns-failed", "outcome=connect-failed", "outcome=\"never heard of\"", "outcome=done"].map(count),
            [5, 1, 1, 50]
        );
    }

    #[test]
    fn nothing_from_outside_breaks_a_line() {
        for text in ["a\nb\u{1b}[31m\" outcome=done ", "\u{9b}\u{202e}", &"x".repeat(20_000)] {
            let hostile = bounded(Record {
                method: text.into(),
                destination: text.into(),
                path: Some(text.into()),
                identity: Some(text.into()),
                run: Some(text.into()),
                outcome: text.into(),
                way: text.into(),
                detail: text.into(),
                would_refuse: vec![text.into(); 9],
                provider_ids: [(text.into(), text.into())].into(),
                ..record(1)
            });
            for format in [LogFormat::Text, LogFormat::Json] {
                let line = lines(format, std::slice::from_ref(&hostile));
                assert_eq!(line.lines().count(), 1, "{line:?}");
                assert!(line.trim_end().chars().all(|c| !c.is_control() && c != '\u{202e}'), "{line:?}");
                assert!(line.len() <= RECORD_BYTES_MAX + 200, "{}", line.len());
                assert!(format != LogFormat::Text || !line.contains("hop=0 outcome=done"), "{line:?}");
            }
        }
    }
}
