//! What was promised, and what came of it.

use super::fleet::Who;
use super::held::{Pattern, Row as Held};
use super::steady::{Limit, Row as Steady, Who as Decides};
use super::{Report, fleet};
use crate::report::Verdict;

/// Operations for a hundred calls, in steady state: blocks of fifty calls.
const OPERATIONS_MAX: f64 = 2.0;

pub(super) fn of(report: &Report) -> Vec<Verdict> {
    let mut verdicts = Vec::new();
    held(&report.held, &mut verdicts);
    for (place, row) in [("the node", report.memory_node), ("the centre in the process", report.memory_in_process)] {
        let Some(row) = row else { continue };
        verdicts.push(Verdict::at_most(format!("an idle bucket of {place}"), row.idle_bytes, 200.0, "bytes"));
        verdicts.push(Verdict::at_most(format!("buckets that {place} remembers in the end"), row.left as f64, 0.0, ""));
    }
    if let Some(row) = &report.memory_redis {
        verdicts.push(Verdict::at_most("keys of Redis without an end", row.endless as f64, 0.0, ""));
    }
    for row in report.acquire.iter().filter(|row| row.what == "acquire" && row.levels == 3) {
        let what = format!("Redis, acquire of 3 levels, {} asker(s)", row.askers);
        verdicts.push(Verdict::at_most(what, row.cpu_us, 40.0, "µs"));
    }
    steady(&report.steady, &mut verdicts);
    fleet(&report.fleet, &mut verdicts);
    verdicts
}

fn held(rows: &[Held], verdicts: &mut Vec<Verdict>) {
    for pattern in [Pattern::Hot, Pattern::HotShared, Pattern::Cold] {
        for threads in [1, 2] {
            let same: Vec<&Held> = rows.iter().filter(|row| (row.pattern, row.threads) == (pattern, threads)).collect();
            let Some((first, last)) = same.first().zip(same.last()) else { continue };
            let worst = same.iter().map(|row| row.cpu_ns).fold(0.0, f64::max);
            let what = format!("a call within blocks, {}, {threads} thread(s)", pattern.label());
            verdicts.push(Verdict::at_most(what.clone(), worst / 1e3, 1.0, "µs"));
            if first.buckets < last.buckets {
                let what = format!("{what}: with {} buckets, of that with {}", last.buckets, first.buckets);
                // Half as much again is a step of the caches' and not of anything that is searched.
                verdicts.push(Verdict::at_most(what, last.cpu_ns / first.cpu_ns, 1.5, "×"));
            }
        }
    }
}

fn steady(rows: &[Steady], verdicts: &mut Vec<Verdict>) {
    for row in rows.iter().filter(|row| row.who == Decides::Leases) {
        let limit = if row.limit == Some(Limit::Narrow) { "narrow" } else { "wide" };
        let least = row.operations_least.unwrap_or(0.0) * 100.0;
        let why = if least > OPERATIONS_MAX {
            format!("; no less than {least:.1} by the largest blocks here")
        } else {
            String::new()
        };
        let what = format!(
            "operations for 100 calls: {} level(s), {limit} limit, {}/s per bucket, {} node(s){why}",
            row.levels, row.per_second_each, row.nodes
        );
        verdicts.push(Verdict::at_most(what, row.operations_per_call * 100.0, OPERATIONS_MAX, ""));
    }
}

fn fleet(rows: &[fleet::Row], verdicts: &mut Vec<Verdict>) {
    for row in rows.iter().filter(|row| row.who == Who::Leases) {
        let of = format!(
            "fleet, {}, {}/s, skew {} s{}{}",
            row.provider,
            row.per_second,
            row.skew_ms / 1_000,
            if row.is_tilted { ", uneven" } else { "" },
            if row.are_refused_counted { ", refusals count" } else { "" },
        );
        let least = match row.provider {
            "sliding" => 83.0,
            "concurrent" => 90.0,
            _ => 95.0,
        };
        verdicts.push(Verdict::at_most(format!("{of}: calls that saw a 429"), row.saw_429.worst * 100.0, 0.1, "%"));
        verdicts.push(Verdict::at_least(format!("{of}: of the limit"), row.throughput.worst * 100.0, least, "%"));
    }
}
