use std::sync::Mutex;

use domain::SystemClock;
use prometheus_client::registry::Registry;

use super::*;

#[derive(Debug, Default)]
struct Kept(Mutex<Vec<Record>>);

impl Recorder for Kept {
    fn record(&self, record: Record) {
        self.0.lock().unwrap().push(record);
    }
}

impl Kept {
    fn outcomes(&self) -> Vec<(String, SendState)> {
        let records = self.0.lock().unwrap();
        records.iter().map(|record| (record.outcome.to_string(), record.send_state)).collect()
    }
}

fn begin() -> (Trace, Arc<Kept>) {
    let kept = Arc::<Kept>::default();
    let ends = Ends {
        clock: SystemClock::shared(),
        recorder: Arc::clone(&kept) as _,
        metrics: Arc::new(Metrics::register(&mut Registry::default())),
        cut_at: OnceLock::new(),
    };
    let correlation = CorrelationId::new(1, domain::NodeId(1), [0; 8]);
    (Trace::begin(correlation, "192.0.2.1:9".parse().unwrap(), Arc::new(ends)), kept)
}

fn gone(state: SendState) -> Vec<(String, SendState)> {
    vec![("caller-gone".to_owned(), state)]
}

#[test]
fn a_call_that_is_dropped_is_written_with_how_far_it_got() {
    let (trace, kept) = begin();
    drop(trace);
    assert_eq!(kept.outcomes(), gone(SendState::NotSent));

    let (mut trace, kept) = begin();
    trace.is_sending(&Arc::default());
    drop(trace);
    assert_eq!(kept.outcomes(), gone(SendState::SentNoResponse));
}

#[test]
fn what_carried_on_elsewhere_is_written_there_and_once() {
    let (mut trace, kept) = begin();
    trace.record_mut().send_state = SendState::Response;
    let there = trace.carry_on();
    drop(trace);
    assert_eq!(kept.outcomes(), []);
    drop(there);
    assert_eq!(kept.outcomes(), gone(SendState::Response));
}

#[test]
fn what_has_ended_is_not_written_again() {
    let (trace, kept) = begin();
    trace.ended("done", "");
    assert_eq!(kept.outcomes(), [("done".to_owned(), SendState::NotSent)]);

    let (mut trace, kept) = begin();
    trace.refused(&No::new(Refusal::CallerUnknown, "nobody"));
    drop(trace);
    assert_eq!(kept.outcomes(), [("caller-unknown".to_owned(), SendState::NotSent)]);

    // Of two hops the first is written when the second begins.
    let (mut trace, kept) = begin();
    trace.record_mut().send_state = SendState::Response;
    trace.next_hop();
    drop(trace);
    let expected = [("done".to_owned(), SendState::Response), ("caller-gone".to_owned(), SendState::NotSent)];
    assert_eq!(kept.outcomes(), expected);
}

#[test]
fn a_panic_is_written_as_ours() {
    let (trace, kept) = begin();
    let broken = std::thread::spawn(move || {
        let _trace = trace;
        std::panic::resume_unwind(Box::new("a test"));
    });
    assert!(broken.join().is_err());
    assert_eq!(kept.outcomes(), [(Refusal::Internal.code().to_owned(), SendState::NotSent)]);
}

#[test]
fn who_is_cut_off_by_a_drain_did_not_hang_up() {
    let (trace, kept) = begin();
    trace.ends().drain(Duration::from_hours(1));
    trace.lost("the caller hung up");
    assert_eq!(kept.outcomes(), gone(SendState::NotSent), "the drain's time is not up yet");

    let cut = |end: fn(Trace)| {
        let (trace, kept) = begin();
        trace.ends().drain(Duration::ZERO);
        trace.ends().drain(Duration::from_hours(1));
        end(trace);
        let record = kept.0.lock().unwrap().pop().unwrap();
        (record.outcome.to_string(), record.detail.to_string())
    };
    let drained = ("overloaded".to_owned(), "drain-deadline".to_owned());
    assert_eq!(cut(|trace| trace.lost("the caller hung up")), drained);
    assert_eq!(cut(drop), drained);
}
