use serde_json::json;

use super::super::testing::TestAction;
use super::*;

fn tried(is_read_back: bool, physical: u32) -> Tried {
    Tried {
        is_read_back,
        safety: ReplaySafety::Checkable,
        is_harmless: false,
        physical,
        tries: 0,
        attempts_max: 4,
        is_in_doubt: is_read_back,
        read_backs: 0,
        deferrals: 3,
        unavailable_ms: 1_000,
        now_unix_ms: 7,
    }
}

/// A provider that always says "later" fills no ledger.
#[test]
fn what_is_put_off_again_and_again_comes_to_an_end() {
    let (action, input) = (TestAction(ReplaySafety::Checkable), json!({}));
    let asked = Asked { action: &action, input: &input, effect: EffectKey::from_bytes([0; 16]) };
    let reply = Reply::Parked { release_unix_ms: 9, source: ParkSource::Provider, status: Some(429) };
    let later = Answer { send_state: SendState::Response, correlation: None, reply };
    for is_read_back in [false, true] {
        let (came, _) = judge(&later, &asked, &tried(is_read_back, PHYSICAL_MAX - 1));
        let deferred = StepResult::Deferred { until_unix_ms: 7 + 80, reason: ParkReason::Provider };
        assert_eq!(came, Came::Other(deferred), "each time it waits longer");
    }
    let (came, _) = judge(&later, &asked, &tried(false, PHYSICAL_MAX));
    assert!(matches!(came, Came::Other(StepResult::Failed { class: FailureClass::AttemptsExhausted, .. })), "{came:?}");
    let (came, _) = judge(&later, &asked, &tried(true, PHYSICAL_MAX));
    assert_eq!(came, Came::Other(StepResult::Ambiguous(Ambiguity::ReadBack)), "somebody is asked");
}
