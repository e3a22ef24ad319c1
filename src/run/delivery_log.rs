//! Lines about deliveries: one for each accepted one, also where it was held first, a sample of the refused ones.
//!
//! Formatted by hand, since this runs once per delivery. Each kind of refusal may write a few lines a second; what
//! is beyond that is counted and told in one line, so that a flood fills no disk and still leaves its trace.

use std::fmt::{self, Write as _};
use std::sync::Arc;

use config::Logging;
use domain::text::Untrusted;
use domain::{Clock, Refusal};
use gateway::record::{Accepted, Lost, Promoted, Recorder, RefusedLine, Repeated, Shaken};
use jiff::Timestamp;

use super::logging;
use super::sample::Sample;
use super::sink::Sink;
use crate::control::time::rfc3339;

/// The longest sentence of ours, with the longest name that a declaration can put into it, twice over.
const DETAIL_BYTES_MAX: usize = 1024;

#[derive(Debug)]
pub(crate) struct DeliveryLog {
    sink: Sink,
    json: bool,
    /// Lines a second about each kind of refusal.
    per_second: u64,
    clock: Arc<dyn Clock>,
    /// One for each place in `Refusal::ALL`.
    samples: Vec<Sample>,
    /// Of answered handshakes, which anybody can ask for.
    shaken: Sample,
    /// Of deliveries that were committed before.
    repeated: Sample,
}

impl DeliveryLog {
    pub(crate) fn new(sink: Sink, settings: &Logging, clock: Arc<dyn Clock>) -> Self {
        let samples = Refusal::ALL.iter().map(|_| Sample::default()).collect();
        let per_second = u64::from(settings.refusals_per_second);
        Self {
            sink,
            json: logging::is_json(settings),
            per_second,
            clock,
            samples,
            shaken: Sample::default(),
            repeated: Sample::default(),
        }
    }

    fn time(&self) -> Timestamp {
        logging::time(&*self.clock)
    }
}

fn accepted_text(time: Timestamp, line: &Accepted<'_>, out: &mut String) -> fmt::Result {
    let Accepted { event, tenant, endpoint, scheme, secret, source, body_bytes, bulk, took } = line;
    let (us, class) = (took.as_micros(), class(*bulk));
    writeln!(
        out,
        "{time:.3}  INFO accepted event={event} tenant={tenant} endpoint={endpoint} scheme={scheme} secret={secret} \
         source={source} bytes={body_bytes} class={class} took_us={us}"
    )
}

/// Nothing in it needs escaping: names are plain by their syntax, the rest is ours.
fn accepted_json(time: Timestamp, line: &Accepted<'_>, out: &mut String) -> fmt::Result {
    let Accepted { event, tenant, endpoint, scheme, secret, source, body_bytes, bulk, took } = line;
    let (us, class) = (took.as_micros(), class(*bulk));
    writeln!(
        out,
        "{{\"time\":\"{time:.3}\",\"level\":\"info\",\"message\":\"accepted\",\"event\":\"{event}\",\
         \"tenant\":\"{tenant}\",\"endpoint\":\"{endpoint}\",\"scheme\":\"{scheme}\",\"secret\":\"{secret}\",\
         \"source\":\"{source}\",\"bytes\":{body_bytes},\"class\":\"{class}\",\"tookUs\":{us}}}"
    )
}

fn promoted_text(time: Timestamp, line: &Promoted<'_>, out: &mut String) -> fmt::Result {
    let Promoted { event, tenant, endpoint, scheme, secret, source, body_bytes, received_unix_ms } = line;
    let received = rfc3339(*received_unix_ms);
    writeln!(
        out,
        "{time:.3}  INFO promoted event={event} tenant={tenant} endpoint={endpoint} scheme={scheme} secret={secret} \
         source={source} bytes={body_bytes} received={received}"
    )
}

fn promoted_json(time: Timestamp, line: &Promoted<'_>, out: &mut String) -> fmt::Result {
    let Promoted { event, tenant, endpoint, scheme, secret, source, body_bytes, received_unix_ms } = line;
    let received = rfc3339(*received_unix_ms);
    writeln!(
        out,
        "{{\"time\":\"{time:.3}\",\"level\":\"info\",\"message\":\"promoted\",\"event\":\"{event}\",\
         \"tenant\":\"{tenant}\",\"endpoint\":\"{endpoint}\",\"scheme\":\"{scheme}\",\"secret\":\"{secret}\",\
         \"source\":\"{source}\",\"bytes\":{body_bytes},\"receivedAt\":\"{received}\"}}"
    )
}

fn shaken_text(time: Timestamp, line: &Shaken<'_>, unwritten: u64, out: &mut String) -> fmt::Result {
    let Shaken { tenant, endpoint, scheme, kind, source, status } = line;
    write!(
        out,
        "{time:.3}  INFO handshake tenant={tenant} endpoint={endpoint} scheme={scheme} kind={kind} source={source} \
         status={status}"
    )?;
    if unwritten > 0 {
        write!(out, " unwritten_before={unwritten}")?;
    }
    out.write_char('\n')
}

fn shaken_json(time: Timestamp, line: &Shaken<'_>, unwritten: u64, out: &mut String) -> fmt::Result {
    let Shaken { tenant, endpoint, scheme, kind, source, status } = line;
    writeln!(
        out,
        "{{\"time\":\"{time:.3}\",\"level\":\"info\",\"message\":\"handshake\",\"tenant\":\"{tenant}\",\
         \"endpoint\":\"{endpoint}\",\"scheme\":\"{scheme}\",\"kind\":\"{kind}\",\"source\":\"{source}\",\
         \"status\":{status},\"unwrittenBefore\":{unwritten}}}"
    )
}

fn repeated_text(time: Timestamp, line: &Repeated<'_>, unwritten: u64, out: &mut String) -> fmt::Result {
    let Repeated { event, tenant, endpoint, source } = line;
    write!(out, "{time:.3}  INFO repeated event={event} tenant={tenant} endpoint={endpoint} source={source}")?;
    if unwritten > 0 {
        write!(out, " unwritten_before={unwritten}")?;
    }
    out.write_char('\n')
}

fn repeated_json(time: Timestamp, line: &Repeated<'_>, unwritten: u64, out: &mut String) -> fmt::Result {
    let Repeated { event, tenant, endpoint, source } = line;
    writeln!(
        out,
        "{{\"time\":\"{time:.3}\",\"level\":\"info\",\"message\":\"repeated\",\"event\":\"{event}\",\
         \"tenant\":\"{tenant}\",\"endpoint\":\"{endpoint}\",\"source\":\"{source}\",\"unwrittenBefore\":{unwritten}}}"
    )
}

fn lost_text(lost: &Lost<'_>, out: &mut String) -> fmt::Result {
    let Lost { delivery, received_unix_ms, body_bytes, comes_again } = lost;
    if let Some(delivery) = delivery {
        write!(out, " delivery={:?}", Untrusted::new(delivery))?;
    }
    write!(out, " received={} bytes={body_bytes} comes_again={comes_again}", rfc3339(*received_unix_ms))
}

fn lost_json(lost: &Lost<'_>) -> serde_json::Value {
    let Lost { delivery, received_unix_ms, body_bytes, comes_again } = lost;
    serde_json::json!({
        "delivery": delivery.map(|id| Untrusted::new(id).to_string()),
        "receivedAt": rfc3339(*received_unix_ms), "bytes": body_bytes, "comesAgain": comes_again,
    })
}

fn refused_text(time: Timestamp, line: &RefusedLine<'_>, unwritten: u64, out: &mut String) -> fmt::Result {
    let RefusedLine { refusal, tenant, endpoint, source, detail, held, lost, target } = line;
    let target = Untrusted::new(without_query(target));
    write!(out, "{time:.3}  WARN refused code={refusal} source={source} target={target:?}")?;
    if let (Some(tenant), Some(endpoint)) = (tenant, endpoint) {
        write!(out, " tenant={tenant} endpoint={endpoint}")?;
    }
    if let Some(held) = held {
        write!(out, " held={held}")?;
    }
    if let Some(lost) = lost {
        lost_text(lost, out)?;
    }
    if unwritten > 0 {
        write!(out, " unwritten_before={unwritten}")?;
    }
    // Ours, and yet it can quote a name from a tenant's declaration.
    writeln!(out, " detail={:?}", Untrusted::with_limit(detail.as_bytes(), DETAIL_BYTES_MAX))
}

fn refused_json(time: Timestamp, line: &RefusedLine<'_>, unwritten: u64, out: &mut String) -> fmt::Result {
    let RefusedLine { refusal, tenant, endpoint, source, detail, held, lost, target } = line;
    let object = serde_json::json!({
        "time": format!("{time:.3}"), "level": "warn", "message": "refused", "code": refusal.code(),
        "source": source, "target": Untrusted::new(without_query(target)).to_string(), "tenant": tenant, "endpoint": endpoint,
        "held": held.map(|id| id.to_string()), "lost": lost.as_ref().map(lost_json), "unwrittenBefore": unwritten,
        "detail": Untrusted::with_limit(detail.as_bytes(), DETAIL_BYTES_MAX).to_string(),
    });
    writeln!(out, "{object}")
}

/// A query can hold a token, also one that is right and came to the wrong place.
fn without_query(target: &[u8]) -> &[u8] {
    target.split(|byte| *byte == b'?').next().unwrap_or_default()
}

fn class(bulk: bool) -> &'static str {
    if bulk { "bulk" } else { "normal" }
}

impl Recorder for DeliveryLog {
    fn accepted(&self, line: &Accepted<'_>) {
        let mut text = String::with_capacity(320);
        let write = if self.json { accepted_json } else { accepted_text };
        if write(self.time(), line, &mut text).is_ok() {
            self.sink.push(text.as_bytes());
        }
    }

    fn promoted(&self, line: &Promoted<'_>) {
        let mut text = String::with_capacity(320);
        let write = if self.json { promoted_json } else { promoted_text };
        if write(self.time(), line, &mut text).is_ok() {
            self.sink.push(text.as_bytes());
        }
    }

    fn repeated(&self, line: &Repeated<'_>) {
        let Some(unwritten) = self.repeated.admit(self.clock.unix_ms() / 1_000, self.per_second) else { return };
        let mut text = String::with_capacity(256);
        let write = if self.json { repeated_json } else { repeated_text };
        if write(self.time(), line, unwritten, &mut text).is_ok() {
            self.sink.push(text.as_bytes());
        }
    }

    fn shaken(&self, line: &Shaken<'_>) {
        let Some(unwritten) = self.shaken.admit(self.clock.unix_ms() / 1_000, self.per_second) else { return };
        let mut text = String::with_capacity(256);
        let write = if self.json { shaken_json } else { shaken_text };
        if write(self.time(), line, unwritten, &mut text).is_ok() {
            self.sink.push(text.as_bytes());
        }
    }

    fn refused(&self, line: &RefusedLine<'_>) {
        let place = Refusal::ALL.iter().position(|&r| r == line.refusal);
        let Some(sample) = place.and_then(|p| self.samples.get(p)) else { return };
        let Some(unwritten) = sample.admit(self.clock.unix_ms() / 1_000, self.per_second) else { return };
        let mut text = String::with_capacity(320);
        let write = if self.json { refused_json } else { refused_text };
        if write(self.time(), line, unwritten, &mut text).is_ok() {
            self.sink.push(text.as_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_promotion_says_what_an_acceptance_would_have_said_and_when_it_came() {
        let line = Promoted {
            event: "evt_06dczqd2fc00e001041061050r".parse().unwrap(),
            tenant: "acme",
            endpoint: "wh_1",
            scheme: "github",
            secret: "primary",
            source: [192, 0, 2, 7].into(),
            body_bytes: 9,
            received_unix_ms: 1_764_424_000_123,
        };
        let mut text = String::new();
        promoted_text(Timestamp::UNIX_EPOCH, &line, &mut text).unwrap();
        assert!(
            text.contains(" INFO promoted event=evt_06dczqd2fc00e001041061050r tenant=acme endpoint=wh_1 "),
            "{text}"
        );
        assert!(text.ends_with(" bytes=9 received=2025-11-29T13:46:40.123Z\n"), "{text}");
        text.clear();
        promoted_json(Timestamp::UNIX_EPOCH, &line, &mut text).unwrap();
        let json: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!((&json["message"], &json["receivedAt"]), (&"promoted".into(), &"2025-11-29T13:46:40.123Z".into()));
        assert_eq!((&json["source"], &json["bytes"]), (&"192.0.2.7".into(), &9.into()));
    }

    #[test]
    fn a_handshake_has_a_line_of_its_own() {
        let line = Shaken {
            tenant: "acme",
            endpoint: "wh_1",
            scheme: "x",
            kind: "digest",
            source: [192, 0, 2, 7].into(),
            status: 200,
        };
        let mut text = String::new();
        shaken_text(Timestamp::UNIX_EPOCH, &line, 3, &mut text).unwrap();
        assert!(text.contains(" INFO handshake tenant=acme endpoint=wh_1 scheme=x kind=digest "), "{text}");
        assert!(text.ends_with(" source=192.0.2.7 status=200 unwritten_before=3\n"), "{text}");
        text.clear();
        shaken_json(Timestamp::UNIX_EPOCH, &line, 0, &mut text).unwrap();
        let json: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(
            (&json["message"], &json["kind"], &json["status"]),
            (&"handshake".into(), &"digest".into(), &200.into())
        );
    }

    #[test]
    fn a_detail_cannot_break_its_line() {
        let line = RefusedLine {
            refusal: Refusal::SignatureInvalid,
            tenant: None,
            endpoint: None,
            source: [192, 0, 2, 7].into(),
            detail: "no a\n\u{1b}[31m\" code=forged",
            held: None,
            lost: None,
            target: b"/hooks/wh_1?token=canary",
        };
        let mut text = String::new();
        refused_text(Timestamp::UNIX_EPOCH, &line, 0, &mut text).unwrap();
        assert!(text.ends_with("detail=\"no a\\n\\u{1b}[31m\\\" code=forged\"\n"), "{text}");

        let long = "x".repeat(10 * DETAIL_BYTES_MAX);
        for write in [refused_text, refused_json] {
            text.clear();
            write(Timestamp::UNIX_EPOCH, &RefusedLine { detail: &long, ..line }, 0, &mut text).unwrap();
            assert!(text.contains("/hooks/wh_1") && !text.contains("canary"), "{text}");
            assert!(text.len() < 2 * DETAIL_BYTES_MAX && text.lines().count() == 1, "{}", text.len());
        }
    }
}
