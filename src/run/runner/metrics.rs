//! What the runner says about itself, read at each scrape. Labels come from closed sets: no tenant, no automation, no run.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::ArcSwapOption;
use domain::Clock;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Unit;
use runner::engine::Notice;
use runner::failure::FailureClass;
use runner::index::Following;
use runner::schedule::Waits;

use super::live::Live;
use super::metered::{BOUNDS_MS, Counts, ENDS, PARKS};

/// Answers of the API, by the first digit of their status.
#[derive(Debug, Default)]
pub(crate) struct ApiMetrics {
    answers: [AtomicU64; 4],
}

const ANSWERS: [&str; 4] = ["2xx", "3xx", "4xx", "5xx"];

impl ApiMetrics {
    pub(super) fn answered(&self, status: u16) {
        let place = usize::from(status / 100).saturating_sub(2);
        if let Some(counter) = self.answers.get(place) {
            counter.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// What is counted whether the runner is open or not.
#[derive(Debug, Default)]
pub(crate) struct RunnerMetrics {
    pub(super) counts: Arc<Counts>,
    pub(super) api: Arc<ApiMetrics>,
    needs_reconnect: AtomicU64,
    ambiguous: AtomicU64,
    quarantined: AtomicU64,
}

impl RunnerMetrics {
    pub(super) fn noticed(&self, notice: &Notice) {
        let counter = match notice {
            Notice::NeedsReconnect { .. } => &self.needs_reconnect,
            Notice::Ambiguous { .. } => &self.ambiguous,
            Notice::Quarantined { .. } => &self.quarantined,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }
}

/// Both, for scrapes.
#[derive(Debug)]
pub(super) struct Scrape {
    pub(super) metrics: Arc<RunnerMetrics>,
    /// None while the ledger is not open.
    pub(super) live: Arc<ArcSwapOption<Live>>,
    pub(super) clock: Arc<dyn Clock>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ClassOf {
    class: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReasonOf {
    reason: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OutcomeOf {
    outcome: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StatusOf {
    status: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct KindOf {
    kind: &'static str,
}

/// In the order of `QueueClass`.
const QUEUES: [&str; 4] = ["interactive", "retry", "parked-release", "bulk"];

impl Collector for Scrape {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let live = self.live.load_full();
        let encoder = &mut encoder;
        gauge(encoder, "open", "1 while the ledger is open and runs are performed", u64::from(live.is_some()))?;
        self.counted(encoder)?;
        if let Some(live) = live {
            scheduled(encoder, &live)?;
            self.admitted(encoder, &live)?;
            indexed(encoder, &live)?;
        }
        Ok(())
    }
}

impl Scrape {
    fn counted(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let counts = &*self.metrics.counts;
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        for (name, help, value) in [
            ("admitted", "Runs that were admitted, by events, replays and by hand", read(&counts.admitted)),
            ("attempts", "Calls that were begun", read(&counts.attempts)),
            ("read_backs", "Calls that asked whether an effect had happened", read(&counts.read_backs)),
            ("late_outcomes", "Outcomes that came after their worker had lost its lease", read(&counts.late)),
            ("resolved", "Choices about ambiguous effects", read(&counts.resolved)),
            ("reruns", "Nodes that somebody asked for again", read(&counts.reruns)),
            ("cancellations", "Runs that somebody cancelled", read(&counts.cancels)),
            ("quarantined", "Runs that were set aside since workers were lost over them", read(&counts.quarantined)),
            ("ledger_conflicts", "Commits that came too late: the run had gone on", read(&counts.conflicts)),
            (
                "ledger_failures",
                "Commits that the ledger did not take, or of which nobody knows",
                read(&counts.failures),
            ),
        ] {
            counter(encoder, name, help, value)?;
        }
        outcomes(encoder, counts)?;
        let help = "Times that a run was parked, by why";
        let mut family = encoder.encode_descriptor("parks", help, None, MetricType::Counter)?;
        for ((_, reason), count) in PARKS.iter().zip(&counts.parked) {
            ConstCounter::new(read(count)).encode(family.encode_family(&ReasonOf { reason })?)?;
        }
        let mut family = encoder.encode_descriptor("ended", "Runs that ended, by how", None, MetricType::Counter)?;
        for ((_, status), count) in ENDS.iter().zip(&counts.ended) {
            ConstCounter::new(read(count)).encode(family.encode_family(&StatusOf { status })?)?;
        }
        let help = "What somebody was told to do something about";
        let mut family = encoder.encode_descriptor("notices", help, None, MetricType::Counter)?;
        let metrics = &self.metrics;
        for (kind, count) in [
            ("needs-reconnect", &metrics.needs_reconnect),
            ("ambiguous", &metrics.ambiguous),
            ("quarantined", &metrics.quarantined),
        ] {
            ConstCounter::new(read(count)).encode(family.encode_family(&KindOf { kind })?)?;
        }
        let mut family = encoder.encode_descriptor("api_answers", "Answers of the API", None, MetricType::Counter)?;
        for (status, count) in ANSWERS.iter().zip(&metrics.api.answers) {
            ConstCounter::new(read(count)).encode(family.encode_family(&StatusOf { status })?)?;
        }
        let buckets: Vec<u64> = counts.appends.iter().map(read).collect();
        let sum_ms = read(&counts.append_sum_us) / 1_000;
        let help = "Commits, by how long it took until they were durable";
        histogram(encoder, "ledger_append", help, &BOUNDS_MS, &buckets, sum_ms)
    }

    fn admitted(&self, encoder: &mut DescriptorEncoder<'_>, live: &Live) -> fmt::Result {
        let Some(admission) = &live.admission else { return Ok(()) };
        let status = admission.status();
        let lag_ms = status.oldest_unix_ms.map_or(0, |oldest| self.clock.unix_ms().saturating_sub(oldest));
        let help = "Age of the oldest event that waits to be admitted";
        seconds(encoder, "admission_lag", help, lag_ms)?;
        gauge(encoder, "admission_waiting", "Events that were read and wait for their turn", status.waiting)?;
        let help = "1 while admission is halted";
        gauge(encoder, "admission_halted", help, u64::from(status.halt.is_some()))?;
        counter(encoder, "admission_events", "Events that were looked at", status.events)?;
        let help = "Times that an event could not be admitted and was kept for later";
        counter(encoder, "admission_failures", help, status.failures)?;
        let help = "Events that wait alone, since they could not be admitted";
        gauge(encoder, "admission_aside", help, status.aside)?;
        let help = "Events that are dead letters: they begin no run until they are tried again";
        gauge(encoder, "admission_dead_letters", help, status.letters)?;
        let help = "Events that became dead letters";
        counter(encoder, "admission_dead_letters_made", help, status.letters_made)?;
        counter(
            encoder,
            "admission_trimmed",
            "Places of the log that were gone before they were read",
            status.trimmed,
        )?;
        let begun = status.begun;
        let help = "What events came to, for each automation of their endpoint";
        let mut family = encoder.encode_descriptor("admission_outcomes", help, None, MetricType::Counter)?;
        for (outcome, count) in [
            ("begun", begun.runs),
            ("already", begun.already),
            ("not-meant", begun.not),
            ("older", begun.older),
            ("when-failed", begun.when_failed),
            ("event-gone", begun.gone),
            ("refused", begun.refused),
            ("no-automation", begun.events_without),
        ] {
            ConstCounter::new(count).encode(family.encode_family(&OutcomeOf { outcome })?)?;
        }
        waits(encoder, "admission_delay", "From an event's receipt to the admission of its runs", &status.delays)
    }
}

fn scheduled(encoder: &mut DescriptorEncoder<'_>, live: &Live) -> fmt::Result {
    let seen = live.scheduler.snapshot();
    let counts = &seen.counts;
    gauge(encoder, "slots", "Runs that can be worked on at one time", u64::from(seen.slots))?;
    gauge(encoder, "running", "Runs that are worked on", counts.running)?;
    gauge(encoder, "parked", "Runs that wait for a time, in memory", counts.parked)?;
    let help = "Runs that wait for a slot, by queue";
    let mut family = encoder.encode_descriptor("queued", help, None, MetricType::Gauge)?;
    for (class, queued) in QUEUES.iter().zip(counts.queued) {
        ConstGauge::new(queued).encode(family.encode_family(&ClassOf { class })?)?;
    }
    gauge(encoder, "scheduler_bytes", "What queues and timers have allocated", seen.memory_bytes as u64)?;
    counter(encoder, "workers_crashed", "Workers that panicked over a run", seen.turns.crashed)?;
    counter(encoder, "workers_fenced", "Turns that ended since another worker had the run", seen.turns.fenced)?;
    let help = "Runs that were taken up since the ledger said that nobody works on them";
    counter(encoder, "claimed", help, seen.claimed)?;
    let help = "Turns that ended since the ledger did not answer";
    counter(encoder, "turns_unavailable", help, seen.turns.unavailable)?;
    waits(encoder, "wait_alone", "Waits for a slot of runs that were all that their tenant had", &seen.waits_alone)?;
    let mut all = Waits::default();
    for wait in &seen.waits {
        all.sum_ms += wait.sum_ms;
        all.buckets.iter_mut().zip(wait.buckets).for_each(|(sum, count)| *sum += count);
    }
    waits(encoder, "wait", "Waits for a slot", &all)
}

fn indexed(encoder: &mut DescriptorEncoder<'_>, live: &Live) -> fmt::Result {
    let (following, seen) = (live.index.following(), live.seen());
    let state = following.borrow().clone();
    let is_behind = !matches!(state, Following::AtEnd);
    gauge(encoder, "index_behind", "1 while lists may miss what is in the ledger", u64::from(is_behind))?;
    seconds(encoder, "index_lag", "How far the index is behind the ledger", seen.index_lag_ms)?;
    gauge(encoder, "ledger_runs_open", "Runs that are not over", seen.open_runs)?;
    gauge(encoder, "ledger_bytes", "Bytes of the ledger's files", seen.ledger_bytes)
}

/// Everything that steps came to, and the part of failures that no rule knows.
fn outcomes(encoder: &mut DescriptorEncoder<'_>, counts: &Counts) -> fmt::Result {
    let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    let help = "What steps came to; failures by class";
    let mut family = encoder.encode_descriptor("step_outcomes", help, None, MetricType::Counter)?;
    for (class, count) in [
        ("done", &counts.done),
        ("skipped", &counts.skipped),
        ("deferred", &counts.deferred),
        ("ambiguous", &counts.ambiguous),
    ] {
        ConstCounter::new(read(count)).encode(family.encode_family(&ClassOf { class })?)?;
    }
    let (mut failed, mut unclassified) = (0, 0);
    for (class, count) in FailureClass::ALL.iter().zip(&counts.failed) {
        let count = read(count);
        failed += count;
        if *class == FailureClass::Unclassified {
            unclassified = count;
        }
        // A class that an outcome has no word of its own for.
        let class = if *class == FailureClass::Ambiguous { "ambiguous-ended" } else { class.code() };
        ConstCounter::new(count).encode(family.encode_family(&ClassOf { class })?)?;
    }
    let share = if failed == 0 { 0.0 } else { ratio(unclassified, failed) };
    let gauge = ConstGauge::new(share);
    let help = "Part of the failures that no rule of a connector knows";
    gauge.encode(encoder.encode_descriptor("unclassified_ratio", help, None, gauge.metric_type())?)
}

#[expect(clippy::cast_precision_loss, reason = "a ratio of counts that a double holds for 2^53 of them")]
fn ratio(part: u64, whole: u64) -> f64 {
    part as f64 / whole as f64
}

fn counter(encoder: &mut DescriptorEncoder<'_>, name: &str, help: &str, value: u64) -> fmt::Result {
    let counter = ConstCounter::new(value);
    counter.encode(encoder.encode_descriptor(name, help, None, counter.metric_type())?)
}

fn gauge(encoder: &mut DescriptorEncoder<'_>, name: &str, help: &str, value: u64) -> fmt::Result {
    let gauge = ConstGauge::new(value);
    gauge.encode(encoder.encode_descriptor(name, help, None, gauge.metric_type())?)
}

fn seconds(encoder: &mut DescriptorEncoder<'_>, name: &str, help: &str, ms: u64) -> fmt::Result {
    let gauge = ConstGauge::new(ratio(ms, 1_000));
    gauge.encode(encoder.encode_descriptor(name, help, Some(&Unit::Seconds), gauge.metric_type())?)
}

fn waits(encoder: &mut DescriptorEncoder<'_>, name: &str, help: &str, waits: &Waits) -> fmt::Result {
    histogram(encoder, name, help, &Waits::BOUNDS_MS, &waits.buckets, waits.sum_ms)
}

/// Bounds in milliseconds, told in seconds; `buckets` has one more, for what is above them all.
fn histogram(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    bounds_ms: &[u64],
    buckets: &[u64],
    sum_ms: u64,
) -> fmt::Result {
    let bounds = bounds_ms.iter().map(|bound| ratio(*bound, 1_000)).chain([f64::MAX]);
    let told: Vec<(f64, u64)> = bounds.zip(buckets.iter().copied()).collect();
    let count = buckets.iter().sum();
    let mut metric = encoder.encode_descriptor(name, help, Some(&Unit::Seconds), MetricType::Histogram)?;
    metric.encode_histogram::<NoLabelSet>(ratio(sum_ms, 1_000), count, &told, None)
}
