//! Commits and bodies to make scenarios of.

use bytes::Bytes;
use domain::{EndpointId, EventId, NodeId, Slot, TenantId};

use crate::failure::FailureClass;
use crate::ids::{AutomationId, EffectKey, LogicalAttempt, RunId, StepId, Version};
use crate::ledger::record::{
    Admitted, Attempt, Body, CancelRequested, Cause, Choice, Dismissed, Intent, Kept, Lease, Outcome, ParkReason,
    Parked, Payload, Provider, Quarantined, QueueClass, Released, Rerun, Resolved, Result, RunStatus, SendState,
    Terminal,
};
use crate::ledger::store::{Commit, Writer};

/// The wall clock of whoever writes in scenarios. A store's own may show anything else.
pub const WRITTEN_UNIX_MS: u64 = 1_800_000_000_000;

pub fn tenant(name: &str) -> TenantId {
    TenantId::parse(name).expect("scenarios use valid names")
}

pub fn step(name: &str) -> StepId {
    StepId::parse(name).expect("scenarios use valid names")
}

/// Runs spread as hashes do.
pub fn run(number: u64) -> RunId {
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&blake3::hash(&number.to_be_bytes()).as_bytes()[..16]);
    RunId::from_bytes(bytes)
}

pub fn commit(tenant_name: &str, run: RunId, expected: u64, writer: Writer, bodies: Vec<Body>) -> Commit {
    Commit { tenant: tenant(tenant_name), run, expected, writer, at_unix_ms: WRITTEN_UNIX_MS, bodies }
}

/// The first commit of a run of `acme`.
pub fn admission(run: RunId) -> Commit {
    commit("acme", run, 0, Writer::Anyone, vec![admitted()])
}

pub fn admitted() -> Body {
    let endpoint = EndpointId::parse("wh_1").expect("a valid name");
    let event = EventId::new(WRITTEN_UNIX_MS, Slot::of("wh_1"), NodeId(7), [0, 1, 2, 3, 4, 5]);
    Body::Admitted(Admitted {
        automation: AutomationId::from_bytes([3; 16]),
        version: Version::MIN,
        cause: Cause::Event { event, endpoint },
        class: QueueClass::Interactive,
        deadline_unix_ms: WRITTEN_UNIX_MS + 3_600_000,
        input: None,
    })
}

/// A lease that lasts so long from when it is written.
pub fn lease(lease: u64, owner: &str, for_ms: u64) -> Body {
    Body::Lease(Lease { lease, owner: owner.into(), until_unix_ms: WRITTEN_UNIX_MS + for_ms })
}

pub fn attempt(physical: u32) -> Attempt {
    Attempt { logical: LogicalAttempt::MIN, physical }
}

pub fn payload(bytes: Vec<u8>) -> Payload {
    Payload {
        bytes: bytes.len() as u64,
        digest: *blake3::hash(&bytes).as_bytes(),
        kept: Kept::Inline(Bytes::from(bytes)),
    }
}

pub fn intent(name: &str, physical: u32) -> Body {
    Body::Intent(Intent {
        step: step(name),
        attempt: attempt(physical),
        effect: EffectKey::new(run(1), &step(name), LogicalAttempt::MIN),
        is_read_back: physical.is_multiple_of(2),
        connection: Some(domain::ConnectionId::parse("conn_1").expect("a valid name")),
        input: payload(b"{\"amount\":1}".to_vec()),
    })
}

pub fn outcome_of(name: &str, physical: u32, output: Vec<u8>) -> Body {
    Body::Outcome(Outcome {
        step: step(name),
        attempt: attempt(physical),
        result: Result::Done { output: payload(output) },
        provider: None,
    })
}

pub fn outcome(name: &str, physical: u32) -> Body {
    outcome_of(name, physical, format!("{{\"of\":\"{name}\",\"try\":{physical}}}\0\u{e4}").into_bytes())
}

pub fn late_outcome(name: &str, physical: u32) -> Body {
    Body::LateOutcome(Outcome {
        step: step(name),
        attempt: attempt(physical),
        result: Result::Failed { class: FailureClass::ProviderUnavailable, detail: "after all".into() },
        provider: Some(Provider {
            send_state: SendState::Response,
            status: Some(503),
            message: Some("come back later".into()),
            request_id: Some("req_1".into()),
            correlation: None,
        }),
    })
}

pub fn parked(of: Option<&str>, until_unix_ms: Option<u64>) -> Body {
    Body::Parked(Parked { reason: ParkReason::Provider, step: of.map(step), until_unix_ms })
}

pub fn released() -> Body {
    Body::Released(Released { by: "timer".into() })
}

pub fn resolved(name: &str, physical: u32) -> Body {
    Body::Resolved(Resolved {
        step: step(name),
        attempt: attempt(physical),
        choice: Choice::ContinueAcceptGap,
        by: "ann@example.com".into(),
    })
}

pub fn rerun(name: &str, logical: u32) -> Body {
    let logical = LogicalAttempt::new(logical).expect("they count from 1");
    Body::Rerun(Rerun { step: step(name), logical, input: Some(payload(b"{}".to_vec())), by: "ann".into() })
}

pub fn cancel_requested() -> Body {
    Body::CancelRequested(CancelRequested { by: "ann".into() })
}

pub fn quarantined() -> Body {
    Body::Quarantined(Quarantined { crashes: 3, reason: "it crashed its workers".into() })
}

pub fn terminal(status: RunStatus) -> Body {
    let class = (status == RunStatus::Failed).then_some(FailureClass::Unclassified);
    Body::Terminal(Terminal { status, failed_at: class.map(|_| step("a")), class })
}

pub fn dismissed() -> Body {
    Body::Dismissed(Dismissed { by: "ann".into(), reason: "the customer was called".into() })
}

/// One of each, in the order of the enum.
pub fn one_of_each() -> Vec<Body> {
    vec![
        admitted(),
        lease(1, "one", 1000),
        intent("a", 1),
        outcome("a", 1),
        late_outcome("a", 1),
        parked(Some("a"), Some(WRITTEN_UNIX_MS + 1)),
        released(),
        resolved("a", 1),
        rerun("a", 2),
        cancel_requested(),
        quarantined(),
        terminal(RunStatus::Failed),
        dismissed(),
    ]
}
