//! What only an operator may do.

use async_trait::async_trait;
use runner::api::{Asker, No, Operations, StatusWord};
use runner::index::Following;
use runner::ledger::RunStatus;
use runner::view;
use serde_json::{Value, json};

use super::{OpenDesk, errors};

/// Open runs that are looked through for those that are quarantined.
const OPEN_MAX: usize = 1_000_000;

#[async_trait]
impl Operations for OpenDesk {
    async fn stat(&self) -> Result<Value, No> {
        let live = self.live()?;
        let seen = live.scheduler.snapshot();
        let index = live.index.stat().await.map_err(errors::index)?;
        let following = match &index.following {
            Following::CatchingUp => "catching-up".to_owned(),
            Following::AtEnd => "at-end".to_owned(),
            Following::Failing(why) => format!("failing: {why}"),
            Following::Halted(why) => format!("halted: {why}"),
        };
        let counts = &seen.counts;
        let admission = live.admission.as_ref().map(|admission| {
            let status = admission.status();
            json!({
                "waiting": status.waiting,
                "events": status.events,
                "runs": status.begun.runs,
                "failures": status.failures,
                "waitingAlone": status.aside,
                "setAside": status.letters,
                "halted": status.halt.map(|halt| halt.reason),
                "delayP99Ms": status.delays.quantile_ms(990),
            })
        });
        Ok(json!({
            "ledger": live.ledger_stat().await,
            "scheduler": {
                "slots": seen.slots,
                "running": counts.running,
                "queued": counts.queued,
                "parked": counts.parked,
                "waitAloneP99Ms": seen.waits_alone.quantile_ms(990),
                "crashed": seen.turns.crashed,
            },
            "admission": admission,
            "index": {
                "following": following,
                "records": index.records,
                "diskBytes": index.disk_bytes,
                "lagMs": live.seen().index_lag_ms,
            },
        }))
    }

    async fn quarantined(&self, limit: usize) -> Result<Vec<Value>, No> {
        let live = self.live()?;
        let (mut after, mut looked, mut found) = (None, 0, Vec::new());
        while found.len() < limit && looked < OPEN_MAX {
            let (page, next) = live.index.open_runs(after, 1_000).await.map_err(errors::index)?;
            looked += page.len();
            for run in page.iter().filter(|run| run.status == RunStatus::Quarantined) {
                let Some(row) = live.index.get(&run.tenant, run.run).await.map_err(errors::index)? else { continue };
                let mut line = serde_json::to_value(view::line(&row)).map_err(|_| No::Internal)?;
                line["tenant"] = row.tenant.as_str().into();
                line["status"] = StatusWord::of(row.status).into();
                found.push(line);
            }
            after = next;
            if after.is_none() {
                break;
            }
        }
        found.truncate(limit);
        Ok(found)
    }

    async fn release(&self, asker: &Asker, run: runner::ids::RunId) -> Result<(), No> {
        self.live()?.acts.release(&asker.tenant, run, &asker.by).await.map_err(|error| errors::act(&error))?;
        tracing::info!(tenant = %asker.tenant, %run, by = %asker.by, "a run was released");
        Ok(())
    }

    async fn pass_damage(&self) -> Result<(), No> {
        let live = self.live()?;
        let is_halted = live.admission.as_ref().is_some_and(runner::admission::Handle::skip_damage);
        if !is_halted {
            return Err(No::State("admission is not halted at a damaged place".into()));
        }
        tracing::warn!("admission passes a damaged place of the event log: what is there begins no run");
        Ok(())
    }

    async fn set_aside(&self, limit: usize) -> Result<Vec<Value>, No> {
        let live = self.live()?;
        let letters = live.admission.as_ref().map(|admission| admission.letters(limit)).unwrap_or_default();
        let line = |letter: runner::admission::Letter| {
            json!({
                "event": letter.event.to_string(),
                "tenant": letter.tenant.as_str(),
                "endpoint": letter.endpoint.as_str(),
                "why": &*letter.why,
                "tries": letter.tries,
                "at": runner::automation::format_rfc3339(letter.at_unix_ms),
            })
        };
        Ok(letters.into_iter().map(line).collect())
    }

    async fn try_set_aside(&self) -> Result<usize, No> {
        let count = self.live()?.admission.as_ref().map_or(0, runner::admission::Handle::try_letters);
        tracing::info!(count, "events that were set aside are tried again");
        Ok(count)
    }

    async fn rebuild(&self) -> Result<Value, No> {
        let made = self.live()?.index.rebuild().await.map_err(errors::rebuild)?;
        let took = u64::try_from(made.duration.as_millis()).unwrap_or(u64::MAX);
        Ok(json!({ "records": made.records, "orphans": made.orphans, "tookMs": took }))
    }
}
