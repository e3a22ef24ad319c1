use bytes::Bytes;
use domain::{ConnectionId, EndpointId, EventId};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

use super::*;
use crate::failure::FailureClass;
use crate::ids::{AutomationId, EffectKey, LogicalAttempt, StepId, Version};
use crate::ledger::record as ledger;
use crate::ledger::{
    Admitted, Ambiguity, Attempt, CancelRequested, Cause, Choice, Dismissed, Intent, Kept, Lease, Outcome, ParkReason,
    Parked, Payload, Provider, Quarantined, QueueClass, Released, Rerun, Resolved, RunStatus, SendState, Terminal,
};

const NOW: u64 = 1_800_000_000_123;

fn text() -> impl Strategy<Value = Box<str>> {
    ".{0,40}".prop_map(String::into_boxed_str)
}

fn step() -> impl Strategy<Value = StepId> {
    "[a-z0-9_-]{1,12}(/[a-z]{1,5}){0,2}".prop_map(|text| StepId::parse(&text).unwrap())
}

fn payload() -> impl Strategy<Value = Payload> {
    let whole = vec(any::<u8>(), 0..600).prop_map(|data| Payload {
        bytes: data.len() as u64,
        digest: *blake3::hash(&data).as_bytes(),
        kept: Kept::Inline(data.into()),
    });
    let kept = prop_oneof![
        Just(Kept::Stored),
        Just(Kept::Expired),
        vec(any::<u8>(), 0..60).prop_map(|data| Kept::Truncated(data.into())),
        vec(any::<u8>(), 0..60).prop_map(|data| Kept::Beginning(data.into())),
        // Of other length or digest than it says: kept as it is said.
        vec(any::<u8>(), 0..60).prop_map(|data| Kept::Inline(data.into())),
    ];
    let other =
        (any::<u64>(), any::<[u8; 32]>(), kept).prop_map(|(bytes, digest, kept)| Payload { bytes, digest, kept });
    prop_oneof![whole, other]
}

fn attempt() -> impl Strategy<Value = Attempt> {
    (any::<LogicalAttempt>(), any::<u32>()).prop_map(|(logical, physical)| Attempt { logical, physical })
}

fn one_of<T: Copy + std::fmt::Debug + 'static>(all: &'static [T]) -> impl Strategy<Value = T> {
    prop::sample::select(all)
}

fn reason() -> impl Strategy<Value = ParkReason> {
    use ParkReason::{Ambiguous, Backoff, Breaker, Delay, NeedsReconnect, Provider, Quota, Unavailable};
    one_of(&[Delay, Backoff, Provider, Quota, Breaker, NeedsReconnect, Ambiguous, Unavailable])
}

fn provider() -> impl Strategy<Value = Provider> {
    use SendState::{NotSent, PartiallySent, Response, SentNoResponse};
    let state = one_of(&[NotSent, PartiallySent, SentNoResponse, Response]);
    let texts = (option::of(text()), option::of(text()), option::of(text()));
    (state, any::<Option<u16>>(), texts).prop_map(|(send_state, status, (message, request_id, correlation))| Provider {
        send_state,
        status,
        message,
        request_id,
        correlation,
    })
}

fn outcome() -> impl Strategy<Value = Outcome> {
    let result = prop_oneof![
        payload().prop_map(|output| ledger::Result::Done { output }),
        Just(ledger::Result::Skipped),
        (one_of(FailureClass::ALL), text()).prop_map(|(class, detail)| ledger::Result::Failed { class, detail }),
        (any::<u64>(), reason()).prop_map(|(until_unix_ms, reason)| ledger::Result::Deferred { until_unix_ms, reason }),
        one_of(&[Ambiguity::WorkerLost, Ambiguity::NoAnswer, Ambiguity::ReadBack]).prop_map(ledger::Result::Ambiguous),
    ];
    (step(), attempt(), result, option::of(provider())).prop_map(|(step, attempt, result, provider)| Outcome {
        step,
        attempt,
        result,
        provider,
    })
}

fn cause() -> impl Strategy<Value = Cause> {
    let endpoint = || "wh_[a-z0-9]{1,20}".prop_map(|text| EndpointId::parse(&text).unwrap());
    let event = || any::<[u8; 16]>().prop_map(EventId::from_bytes);
    prop_oneof![
        (event(), endpoint()).prop_map(|(event, endpoint)| Cause::Event { event, endpoint }),
        (event(), endpoint(), text()).prop_map(|(event, endpoint, replay)| Cause::Replay { event, endpoint, replay }),
        text().prop_map(|by| Cause::Manual { by }),
        (any::<[u8; 16]>(), text(), text()).prop_map(|(of, replay, by)| Cause::Again {
            of: RunId::from_bytes(of),
            replay,
            by
        }),
    ]
}

fn admitted() -> impl Strategy<Value = Body> {
    use QueueClass::{Bulk, Interactive, ParkedRelease, Retry};
    let class = one_of(&[Interactive, Retry, ParkedRelease, Bulk]);
    (any::<[u8; 16]>(), any::<Version>(), cause(), class, any::<u64>(), option::of(payload())).prop_map(
        |(automation, version, cause, class, deadline_unix_ms, input)| {
            let automation = AutomationId::from_bytes(automation);
            Body::Admitted(Admitted { automation, version, cause, class, deadline_unix_ms, input })
        },
    )
}

fn intent(run: RunId) -> impl Strategy<Value = Body> {
    let connection = "conn_[a-z0-9]{1,30}".prop_map(|text| ConnectionId::parse(&text).unwrap());
    let effect = option::of(any::<[u8; 16]>());
    (step(), attempt(), effect, any::<bool>(), option::of(connection), payload()).prop_map(
        move |(step, attempt, effect, is_read_back, connection, input)| {
            let follows = EffectKey::new(run, &step, attempt.logical);
            let effect = effect.map_or(follows, EffectKey::from_bytes);
            Body::Intent(Intent { step, attempt, effect, is_read_back, connection, input })
        },
    )
}

fn terminal() -> impl Strategy<Value = Body> {
    use RunStatus::{
        Cancelled, EndedAmbiguous, Failed, NeedsAttention, Parked, Quarantined, Queued, Running, Succeeded, TimedOut,
    };
    let all: &'static [RunStatus] =
        &[Queued, Running, Parked, NeedsAttention, Quarantined, Succeeded, Failed, Cancelled, TimedOut, EndedAmbiguous];
    (one_of(all), option::of(step()), option::of(one_of(FailureClass::ALL)))
        .prop_map(|(status, failed_at, class)| Body::Terminal(Terminal { status, failed_at, class }))
}

fn body(run: RunId) -> impl Strategy<Value = Body> {
    let choice = one_of(&[Choice::ContinueAcceptGap, Choice::RetryAcceptDuplicate]);
    prop_oneof![
        admitted(),
        (any::<u64>(), text(), any::<u64>()).prop_map(|(lease, owner, until_unix_ms)| Body::Lease(Lease {
            lease,
            owner,
            until_unix_ms
        })),
        intent(run),
        outcome().prop_map(Body::Outcome),
        outcome().prop_map(Body::LateOutcome),
        (reason(), option::of(step()), any::<Option<u64>>())
            .prop_map(|(reason, step, until_unix_ms)| Body::Parked(Parked { reason, step, until_unix_ms })),
        text().prop_map(|by| Body::Released(Released { by })),
        (step(), attempt(), choice, text()).prop_map(|(step, attempt, choice, by)| Body::Resolved(Resolved {
            step,
            attempt,
            choice,
            by
        })),
        (step(), any::<LogicalAttempt>(), option::of(payload()), text())
            .prop_map(|(step, logical, input, by)| Body::Rerun(Rerun { step, logical, input, by })),
        text().prop_map(|by| Body::CancelRequested(CancelRequested { by })),
        (any::<u32>(), text()).prop_map(|(crashes, reason)| Body::Quarantined(Quarantined { crashes, reason })),
        terminal(),
        (text(), text()).prop_map(|(by, reason)| Body::Dismissed(Dismissed { by, reason })),
    ]
}

fn commit() -> impl Strategy<Value = (Heading, Vec<Body>)> {
    any::<[u8; 16]>().prop_map(RunId::from_bytes).prop_flat_map(|run| {
        let numbers = (1..u64::MAX / 2, any::<u64>(), any::<u64>());
        let tenant = "[a-z0-9][a-zA-Z0-9_-]{0,63}".prop_map(|text| TenantId::parse(&text).unwrap());
        (tenant, numbers, vec(body(run), 1..8)).prop_map(move |(tenant, (first, lease, at_unix_ms), bodies)| {
            let count = u16::try_from(bodies.len()).unwrap();
            let turn = Turn::of(&bodies);
            (Heading { tenant, run, first, count, lease, at_unix_ms, turn }, bodies)
        })
    })
}

fn in_place(heading: &Heading, bodies: &[Body]) -> Vec<Record> {
    let record = |(body, seq): (&Body, u64)| Record {
        run: heading.run,
        tenant: heading.tenant.clone(),
        seq,
        lease: heading.lease,
        at_unix_ms: heading.at_unix_ms,
        body: body.clone(),
    };
    bodies.iter().zip(heading.first..).map(record).collect()
}

proptest! {
    #[test]
    fn commits_go_there_and_back((written, bodies) in commit()) {
        let bytes = encode(&written, &bodies, NOW);
        prop_assert_eq!(&heading(&bytes, NOW).unwrap(), &written);
        prop_assert_eq!(decode(&bytes, NOW).unwrap(), in_place(&written, &bodies));
    }

    #[test]
    fn a_broken_commit_is_refused_or_read_and_never_a_panic(
        (written, bodies) in commit(), at: prop::sample::Index, to: u8, cut: prop::sample::Index,
    ) {
        let mut bytes = encode(&written, &bodies, NOW);
        let at = at.index(bytes.len());
        bytes[at] = to;
        let _ = (heading(&bytes, NOW).is_ok(), decode(&bytes, NOW).is_ok());
        bytes.truncate(cut.index(bytes.len()));
        prop_assert!(decode(&bytes, NOW).is_err(), "a part of a commit is none");
    }

    #[test]
    fn any_bytes_are_refused_or_read_and_never_a_panic(mut bytes in vec(any::<u8>(), 0..300)) {
        let _ = (heading(&bytes, NOW).is_ok(), decode(&bytes, NOW).is_ok());
        if let Some(version) = bytes.first_mut() {
            *version = VERSION;
        }
        let _ = (heading(&bytes, NOW).is_ok(), decode(&bytes, NOW).is_ok());
    }
}

fn sample() -> (Heading, Vec<Body>) {
    let run = RunId::from_bytes([7; 16]);
    let tenant = TenantId::parse("acme").unwrap();
    let bodies = vec![Body::Released(Released { by: "ops".into() })];
    (Heading { tenant, run, first: 4, count: 1, lease: 2, at_unix_ms: 1_800_000_000_000, turn: Turn::None }, bodies)
}

#[test]
fn a_later_version_is_refused_loudly() {
    let (heading, bodies) = sample();
    let mut bytes = encode(&heading, &bodies, NOW);
    bytes[0] = 2;
    assert_eq!(decode(&bytes, NOW), Err(CodecError::Version(2)));
    assert_eq!(super::heading(&bytes, NOW), Err(CodecError::Version(2)));
    assert!(decode(&[], NOW).is_err());
}

#[test]
fn a_field_that_is_not_known_is_passed_over() {
    let (heading, bodies) = sample();
    let bytes = encode(&heading, &bodies, NOW);
    // Behind the version is the heading's array, of six fields, since the last one says nothing: two more.
    let mut decoder = Decoder::new(&bytes[1..]);
    decoder.skip().unwrap();
    let end = 1 + decoder.position();
    assert_eq!(bytes[1], 0x86);
    let later = [&[bytes[0], 0x88], &bytes[2..end], &[0xf6, 0x82, 1, 0x61, b'x'], &bytes[end..]].concat();
    assert_eq!(decode(&later, NOW), decode(&bytes, NOW));
    // And one in a body: `Released` is [6, {0: "ops"}].
    let body = [0x82, 6, 0xa1, 0, 0x63, b'o', b'p', b's'];
    assert!(bytes.ends_with(&body));
    let mut later = bytes[..bytes.len() - body.len()].to_vec();
    later.extend_from_slice(&[0x82, 6, 0xa2, 9, 0xf5, 0, 0x63, b'o', b'p', b's']);
    assert_eq!(decode(&later, NOW), decode(&bytes, NOW));
}

#[test]
fn a_length_that_is_not_there_allocates_nothing() {
    let (heading, bodies) = sample();
    let bytes = encode(&heading, &bodies, NOW);
    // A text of 2^62 bytes in place of "ops".
    let mut long = bytes[..bytes.len() - 4].to_vec();
    long.extend_from_slice(&[0x7b, 0x40, 0, 0, 0, 0, 0, 0, 0]);
    assert!(matches!(decode(&long, NOW), Err(CodecError::Malformed(_))));
    let many = [&bytes[..bytes.len() - 9], &[0x9b, 0xff, 0, 0, 0, 0, 0, 0, 0]].concat();
    assert!(matches!(decode(&many, NOW), Err(CodecError::Malformed(_))));
}

/// Names as they are in production, of a step in the middle of a run.
pub(in crate::ledger) fn a_step(input: usize, output: usize) -> (Heading, Vec<Body>) {
    let run = RunId::from_bytes([0xa7; 16]);
    let whole = |bytes: usize| {
        let data = Bytes::from(vec![b'x'; bytes]);
        Payload { bytes: bytes as u64, digest: *blake3::hash(&data).as_bytes(), kept: Kept::Inline(data) }
    };
    let attempt = Attempt { logical: LogicalAttempt::MIN, physical: 1 };
    let (before, next) = (StepId::parse("create-invoice").unwrap(), StepId::parse("notify-customer").unwrap());
    let provider = Provider {
        send_state: SendState::Response,
        status: Some(200),
        message: None,
        request_id: Some("req_8jK2mN4pQ6rS8t".into()),
        correlation: Some("cor_01j9x4w2e5r7t9y1".into()),
    };
    let outcome = Outcome {
        step: before,
        attempt,
        result: ledger::Result::Done { output: whole(output) },
        provider: Some(provider),
    };
    let intent = Intent {
        effect: EffectKey::new(run, &next, attempt.logical),
        step: next,
        attempt,
        is_read_back: false,
        connection: Some(ConnectionId::parse("conn_stripe_main").unwrap()),
        input: whole(input),
    };
    let heading = Heading {
        tenant: TenantId::parse("customer-4711").unwrap(),
        run,
        first: 12,
        count: 2,
        lease: 5,
        at_unix_ms: 1_800_000_000_000,
        turn: Turn::None,
    };
    (heading, vec![Body::Outcome(outcome), Body::Intent(intent)])
}

/// Of the segment layer: 40 bytes a record, 96 a batch. Small payloads leave the most to see.
#[test]
fn a_step_costs_no_more_than_it_may() {
    for (input, output) in [(10, 10), (600, 900), (4096, 4096)] {
        let (heading, bodies) = a_step(input, output);
        let bytes = encode(&heading, &bodies, NOW).len();
        // Eight in a batch are few; alone it is padded to a block, whatever it holds.
        let stored = bytes + 40 + 96 / 8;
        assert!(stored <= 2 * (input + output) + 200, "{stored} bytes");
    }
}
