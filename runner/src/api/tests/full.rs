//! Answers that have everything that an answer can have. Each form is written out, so that a field that comes to it has to be
//! written here, and in the document.

use serde_json::{Value, json};

use crate::view::{
    AttemptView, By, CauseView, ChoiceView, DismissedView, ExecutionView, GroupView, LineView, NextAct, NodeOfRun,
    NodeView, ParkView, PayloadView, QuarantineView,
};

const AT: &str = "2026-01-01T00:00:00Z";

#[expect(clippy::unnecessary_wraps, reason = "every field that may be none is there")]
fn some(text: &str) -> Option<String> {
    Some(text.to_owned())
}

fn cause() -> CauseView {
    CauseView {
        kind: "replay".into(),
        event: some("evt_1"),
        endpoint: some("wh_1"),
        replay: some("rep_1"),
        of: some("run_1"),
        by: some("token:test"),
    }
}

fn park() -> ParkView {
    ParkView { reason: "provider".into(), since: AT.into(), until: some(AT) }
}

/// The three forms in which a payload is shown, of which a real one has one.
fn payload() -> PayloadView {
    PayloadView {
        bytes: 3,
        digest: format!("blake3:{}", "0".repeat(64)),
        unfinished: true,
        truncated: true,
        because: some("not-shown"),
        value: Some(json!([1])),
        text: some("[1"),
        base64: some("WzE="),
    }
}

fn attempt() -> AttemptView {
    AttemptView {
        attempt: "1.1".into(),
        why: "first".into(),
        result: "failed".into(),
        at: some(AT),
        ended_at: some(AT),
        duration_ms: Some(3),
        effect_key: some("eff_1"),
        error_class: some("invalid-request"),
        detail: some("no"),
        send_state: some("response"),
        provider_status: Some(400),
        provider_message: some("no"),
        provider_request_id: some("req_1"),
        correlation_id: some("tg_1"),
        next_attempt_at: some(AT),
    }
}

fn node() -> NodeView {
    NodeView {
        id: "send".into(),
        kind: some("call"),
        action: some("http.request"),
        status: "failed".into(),
        after: vec!["decide.yes".into()],
        chosen: some("yes"),
        started_at: some(AT),
        ended_at: some(AT),
        duration_ms: Some(3),
        input: Some(payload()),
        output: Some(payload()),
        error_class: some("invalid-request"),
        error: some("no"),
        error_detail: some("no"),
        connection: some("conn_a"),
        provider: some("http"),
        provider_message: some("no"),
        user_action: some("look"),
        parked: Some(park()),
        attempts: vec![attempt()],
        attempts_omitted: 0,
        late_outcomes: vec![attempt()],
        choices: vec![ChoiceView { choice: "rerun".into(), attempt: "2.0".into(), by: "ann".into(), at: AT.into() }],
    }
}

pub(super) fn run(id: &str) -> Value {
    crate::view::json(&ExecutionView {
        id: id.to_owned(),
        execution_id: some("ex_1"),
        automation: "aut_1".into(),
        automation_name: some("mail"),
        version: 1,
        status: "failed".into(),
        summary: "It failed.".into(),
        next: vec![NextAct {
            act: "resolve".into(),
            node: some("send"),
            connection: some("conn_a"),
            choices: vec!["continue-accept-gap".into()],
        }],
        cause: cause(),
        class: "bulk".into(),
        admitted_at: AT.into(),
        ended_at: some(AT),
        duration_ms: 3,
        deadline: AT.into(),
        failed_at: some("send"),
        error_class: some("invalid-request"),
        parked: Some(park()),
        cancel_requested: Some(By { by: "ann".into(), at: AT.into() }),
        quarantined: Some(QuarantineView { reason: "it crashes".into(), crashes: 5, at: AT.into() }),
        dismissed: Some(DismissedView { by: "ann".into(), reason: "called them".into(), at: AT.into() }),
        is_dead_letter: true,
        crashes: 1,
        input: Some(payload()),
        nodes: vec![node()],
        nodes_omitted: 0,
        records: 9,
        is_expired: false,
    })
}

pub(super) fn node_of(id: &str) -> Value {
    crate::view::json(&NodeOfRun { run_id: id.to_owned(), run_status: "failed".into(), node: node() })
}

pub(super) fn line(id: &str) -> Value {
    crate::view::json(&LineView {
        id: id.to_owned(),
        execution_id: some("ex_1"),
        automation: "aut_1".into(),
        automation_name: some("mail"),
        version: 1,
        status: "failed".into(),
        cause: cause(),
        class: "bulk".into(),
        admitted_at: AT.into(),
        ended_at: some(AT),
        duration_ms: Some(3),
        failed_at: some("send"),
        error_class: some("invalid-request"),
        parked: Some(park()),
        waiting_nodes: vec!["send".into()],
        attempts: 1,
        crashes: 0,
        is_dead_letter: true,
    })
}

pub(super) fn group() -> Value {
    crate::view::json(&GroupView {
        why: "ambiguous".into(),
        automation: "aut_1".into(),
        automation_name: some("mail"),
        connection: some("conn_a"),
        node: some("send"),
        count: 1,
        oldest_since: AT.into(),
        newest_since: AT.into(),
        runs: vec!["run_1".into()],
        user_action: "look".into(),
    })
}
