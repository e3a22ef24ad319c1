//! `docs/answers.md` says what the rows say: `TIDEGATE_BLESS=1` writes it anew.
#![allow(clippy::unwrap_used, reason = "helpers of a test fail by panicking, as the test does")]

use std::fmt::Write;
use std::path::Path;

use config::scheme::{Answer, AnswerBody, Handshake, HandshakeKind, Redelivery};
use tidegate_gateway::scheme::{Presets, Scheme};

const HEAD: &str = "\
# What providers hear, and what a refusal costs

Written from the rows of `gateway/presets.toml`, and tested to be in step with them; `tidegate schemes show NAME` says more of one.
Presets of which nothing but the default is known are left out: they hear 202 with the event's ids, have no handshake, and nothing
is promised of them: a 503 or a 429 may cost the delivery.

- **answer**: status and body of a delivery that was taken. `ids` is `{\"eventId\",\"executionId\"}`.
- **waits**: after so long without an answer the provider takes the delivery for failed.
- **after a 503**: what a refusal that is ours costs. **after a 429**: what a tenant's limits cost; where it is not sent again, such
  a delivery is committed in the bulk class as far as that has room ([refusals](refusals.md#rate-limited)).
- **id**: whether the delivery's id is signed: then what comes again is answered as it was first
  ([how](schemes.md#deliveries-that-come-twice)).

| scheme | answer | waits | after a 503 | after a 429 | keeps failing; to ask for it | handshake | id |
|---|---|---|---|---|---|---|---|
";

fn answer(answer: &Answer) -> String {
    let body = match answer.body {
        AnswerBody::Event => "ids".to_owned(),
        AnswerBody::Empty => "no body".to_owned(),
        AnswerBody::Text => format!("`{}`", answer.text),
    };
    let bare = if answer.bare_refusals { "; refusals without a body" } else { "" };
    format!("{}, {body}{bare}", answer.status)
}

fn again(ways: &Redelivery, does: bool) -> String {
    if !does {
        return "lost".to_owned();
    }
    let often = ways.attempts.map(|attempts| format!(", {attempts} times")).unwrap_or_default();
    let long = ways.lasts.map(|lasts| format!(", for {lasts}")).unwrap_or_default();
    format!("sent again{often}{long}")
}

fn handshake(handshake: &Handshake) -> String {
    let what = match handshake.kind {
        HandshakeKind::Echo => "echo",
        HandshakeKind::Digest => "digest",
        HandshakeKind::Fixed => "probe",
        HandshakeKind::Origin => "origin",
        HandshakeKind::Adopt => "secret",
    };
    let proof = match (handshake.verified, handshake.token.is_some()) {
        (true, _) => ", signed",
        (false, true) => ", token",
        (false, false) => "",
    };
    format!("{} {what}{proof}", handshake.method.as_str())
}

fn row(scheme: &Scheme) -> Option<String> {
    let declared = scheme.declaration();
    let ways = &declared.redelivery;
    if declared.answer == Answer::default() && *ways == Redelivery::default() && declared.handshakes.is_empty() {
        return None;
    }
    let words: Vec<_> =
        [&ways.gives_up, &ways.ask, &ways.note].into_iter().filter(|w| !w.is_empty()).cloned().collect();
    let handshakes: Vec<_> = declared.handshakes.iter().map(handshake).collect();
    let id = match (&declared.delivery_id, scheme.delivery_id_signed()) {
        (None, _) => "none",
        (Some(_), true) => "signed",
        (Some(_), false) => "not signed",
    };
    Some(format!(
        "| `{}` | {} | {} | {} | {} | {} | {} | {id} |",
        scheme.name(),
        answer(&declared.answer),
        ways.timeout.map(|timeout| timeout.to_string()).unwrap_or_default(),
        again(ways, ways.automatic),
        again(ways, ways.after_429),
        words.join("; "),
        handshakes.join("; "),
    ))
}

#[test]
fn the_table_of_answers_is_in_step() {
    let mut text = HEAD.to_owned();
    for line in Presets::load().unwrap().iter().filter_map(|scheme| row(scheme)) {
        writeln!(text, "{line}").unwrap();
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/answers.md");
    if std::env::var_os("TIDEGATE_BLESS").is_some() {
        std::fs::write(&path, &text).unwrap();
    }
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(written == text, "docs/answers.md is not what the rows say; write it anew with TIDEGATE_BLESS=1");
}
