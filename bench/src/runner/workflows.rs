//! The same three steps on Restate: a handler in node.js that does three `ctx.run`, none of which does anything but give
//! two hundred bytes, called over its ingress, which answers when the workflow is over. Fully loaded, and at half of that.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::noop::{INPUT_BYTES, STEPS};
use crate::hook::Ring;
use crate::load::{self, Pace, Plan};
use crate::server::restate;
use crate::{Result, peers, process};

const CONNECTIONS: usize = 256;

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Row {
    pub version: String,
    pub load: String,
    pub connections: usize,
    pub workflows_per_second: f64,
    pub steps_per_second: f64,
    /// Of server and handler, per step.
    pub cpu_us_per_step: f64,
    pub cpus: f64,
    pub p50_ms: f64,
    pub p99_ms: f64,
}

pub fn measure(scratch: &Path, peers: &Path, seconds: u64) -> Result<Vec<Row>> {
    let modules = peers::restate(peers)?;
    let server = restate::start_workflow(&modules, scratch)?;
    let requests = Arc::new(Ring::signed(1_000, &server.targets, &server.address.to_string(), INPUT_BYTES));
    let mut rows: Vec<Row> = Vec::new();
    for label in ["full", "half"] {
        let pace = rows.first().map_or(Pace::Closed, |full| Pace::Open { per_second: full.workflows_per_second / 2.0 });
        let plan = Plan {
            target: server.address,
            connections: CONNECTIONS,
            threads: 1,
            pace,
            warm_up: Duration::from_secs(3),
            measured: Duration::from_secs(seconds),
            requests: Arc::<Ring>::clone(&requests),
            tls: None,
        };
        let mut cpu = Vec::with_capacity(2);
        let outcome = load::run(&plan, || {
            let used = server.pids().map(process::usage).map(|usage| usage.map_or(0.0, |usage| usage.cpu_seconds));
            cpu.push(used.sum::<f64>());
        })?;
        outcome.check("restate")?;
        let used = cpu.last().copied().unwrap_or_default() - cpu.first().copied().unwrap_or_default();
        let workflows = outcome.acknowledged as f64;
        rows.push(Row {
            version: restate::version(&modules),
            load: label.into(),
            connections: CONNECTIONS,
            workflows_per_second: outcome.per_second(),
            steps_per_second: outcome.per_second() * STEPS as f64,
            cpu_us_per_step: used * 1e6 / (workflows * STEPS as f64),
            cpus: used / outcome.elapsed.as_secs_f64(),
            p50_ms: outcome.latency_ms(0.5),
            p99_ms: outcome.latency_ms(0.99),
        });
    }
    Ok(rows)
}

pub(super) fn print(rows: &[Row]) {
    println!("\nthe same three steps on Restate");
    println!(
        "{:<6} {:>11} {:>12} {:>9} {:>8} {:>5} {:>16}  version",
        "load", "connections", "workflows/s", "steps/s", "CPU µs", "CPUs", "p50, p99 ms"
    );
    for row in rows {
        println!(
            "{:<6} {:>11} {:>12.0} {:>9.0} {:>8.0} {:>5.2} {:>16}  {}",
            row.load,
            row.connections,
            row.workflows_per_second,
            row.steps_per_second,
            row.cpu_us_per_step,
            row.cpus,
            format!("{:.1}, {:.1}", row.p50_ms, row.p99_ms),
            row.version
        );
    }
}
