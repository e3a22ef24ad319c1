//! What was promised, and what was measured.

use super::Report;
use crate::report::Verdict;

pub(super) fn of(report: &Report) -> Vec<Verdict> {
    let mut verdicts = Vec::new();
    let noop = |load: &str, has_index| report.noop.iter().find(|row| row.load == load && row.has_index == has_index);
    for (has_index, with) in [(false, "without the index"), (true, "with the index")] {
        if let Some(full) = noop("full", has_index) {
            let what = format!("steps/s with two durable records each, {with}");
            verdicts.push(Verdict::at_least(what, full.steps_per_second, 12_000.0, "per second"));
        }
        if let Some(half) = noop("half", has_index) {
            let between = half.overheads.between;
            verdicts.push(Verdict::at_most(format!("step overhead p50 at half load, {with}"), between.p50, 5.0, "ms"));
            verdicts.push(Verdict::at_most(format!("step overhead p99 at half load, {with}"), between.p99, 50.0, "ms"));
        }
    }
    if let Some(full) = noop("full", true) {
        if let Some(takes) = full.index_catches_up_ms {
            verdicts.push(Verdict::at_most("until the index has what is durable, at full load", takes, 1_000.0, "ms"));
        }
        let bound = 2.0 * full.payload_bytes_per_step + 200.0;
        verdicts.push(Verdict::at_most("ledger bytes of a step", full.ledger_bytes_per_step, bound, "bytes"));
    }
    for row in report.egress.iter().filter(|row| row.load != "half") {
        let what = format!("steps/s through the way out, {}", row.load);
        verdicts.push(Verdict::at_least(what, row.steps_per_second, 3_000.0, "per second"));
    }
    if let Some(parked) = &report.parked {
        verdicts.push(Verdict::at_most("a parked run", parked.resident_bytes_each, 1_024.0, "bytes"));
        verdicts.push(Verdict::at_most("workers over parked runs", parked.running as f64, 0.0, "workers"));
    }
    for row in &report.neighbour {
        let what = format!("another's single runs beside a burst, provider {} ms, p99", row.provider_ms);
        verdicts.push(Verdict::at_most(what, row.meanwhile.p99, 1_000.0, "ms"));
        let what = format!("runs of a burst that are left in the end, provider {} ms", row.provider_ms);
        verdicts.push(Verdict::at_most(what, row.left as f64, 0.0, "runs"));
    }
    if let (Some(first), Some(last)) = (report.history.first(), report.history.last()) {
        let what = format!("CPU of a step with {} runs of history, of {} runs'", last.history_runs, first.history_runs);
        verdicts.push(Verdict::at_most(what, last.cpu_us_per_step / first.cpu_us_per_step * 100.0, 115.0, "%"));
    }
    verdicts
}
