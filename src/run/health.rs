//! What the appliance says about itself: metrics, and whether a balancer should send it traffic.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use eventlog::EventLog;
use prometheus_client::registry::Registry;

/// State that the admin listener reads and others write.
#[derive(Debug)]
pub(crate) struct Health {
    registry: Registry,
    /// None where this node takes no deliveries.
    log: Option<Arc<dyn EventLog>>,
    /// What else can be wrong, asked each time: sentences, of which there are none while all is well.
    alarms: Alarms,
    draining: AtomicBool,
    /// Why the configuration that is served is not the one in the files; empty while it is.
    degraded: Mutex<Vec<String>>,
}

/// Says what is wrong with one part of the node.
pub(crate) type Alarm = Box<dyn Fn() -> Vec<String> + Send + Sync>;

#[derive(Default)]
struct Alarms(Vec<Alarm>);

impl std::fmt::Debug for Alarms {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} alarms", self.0.len())
    }
}

/// As many of each kind as somebody reads before asking the command that says all.
const REASONS_SHOWN: usize = 20;

impl Health {
    pub(crate) fn new(registry: Registry, log: Option<Arc<dyn EventLog>>) -> Self {
        Self { registry, log, alarms: Alarms::default(), draining: AtomicBool::new(false), degraded: Mutex::default() }
    }

    /// Tells also what these say.
    pub(crate) fn with_alarms(self, alarms: Vec<Alarm>) -> Self {
        Self { alarms: Alarms(alarms), ..self }
    }

    pub(crate) fn set_draining(&self) {
        self.draining.store(true, Ordering::Release);
    }

    pub(crate) fn set_degraded(&self, reasons: Vec<String>) {
        *self.degraded.lock().unwrap_or_else(PoisonError::into_inner) = reasons;
    }

    pub(crate) fn metrics(&self) -> String {
        let mut text = String::new();
        match prometheus_client::encoding::text::encode(&mut text, &self.registry) {
            Ok(()) => text,
            Err(std::fmt::Error) => String::from("# EOF\n"),
        }
    }

    /// Ready, and why or why not. A bad configuration file never makes a node unready: a bad push to a fleet would
    /// drain all of it.
    pub(crate) fn ready(&self) -> (bool, String) {
        if self.draining.load(Ordering::Acquire) {
            return (false, "draining\n".to_owned());
        }
        let lanes = self.log.as_ref().map(|log| log.stat().lanes).unwrap_or_default();
        let mut active = lanes.iter().filter(|lane| lane.active);
        if let Some((lane, reason)) = active.find_map(|lane| Some((lane, lane.cannot_commit()?))) {
            return (false, format!("cannot commit: log {}/{}: {reason}\n", lane.class, lane.shard));
        }
        let reasons = self.degraded.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let damage = lanes.iter().flat_map(|lane| {
            lane.damage.iter().map(move |damage| format!("damage: log {}/{}: {damage}", lane.class, lane.shard))
        });
        let alarms: Vec<String> = self.alarms.0.iter().flat_map(|alarm| alarm()).collect();
        (true, state(&reasons, &damage.collect::<Vec<_>>(), &alarms))
    }
}

/// What is wrong with a node that works all the same: first with its files, then with what is stored already, then with
/// the records of its calls.
fn state(faults: &[String], damage: &[String], records: &[String]) -> String {
    if faults.is_empty() && damage.is_empty() && records.is_empty() {
        return "ready\n".to_owned();
    }
    let mut lines = vec!["degraded".to_owned()];
    for (reasons, command) in [(faults, "tidegate check"), (damage, "tidegate log verify")] {
        lines.extend(reasons.iter().take(REASONS_SHOWN).cloned());
        if reasons.len() > REASONS_SHOWN {
            lines.push(format!("and {} more; `{command}` says them all", reasons.len() - REASONS_SHOWN));
        }
    }
    // A few kinds, and of damage as many as are named at all.
    lines.extend(records.iter().take(REASONS_SHOWN).cloned());
    lines.join("\n") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_is_said_in_bounds() {
        let [one, many] = [1, 25].map(|count| (0..count).map(|n| format!("reason {n}")).collect::<Vec<_>>());
        assert_eq!(state(&[], &[], &[]), "ready\n");
        assert_eq!(state(&[], &one, &[]), "degraded\nreason 0\n");
        assert_eq!(state(&one, &one, &[]), "degraded\nreason 0\nreason 0\n");
        let text = state(&many, &many, &[]);
        assert_eq!(state(&[], &[], &one), "degraded\nreason 0\n");
        assert_eq!(text.lines().count(), 1 + 2 * (REASONS_SHOWN + 1));
        assert!(
            text.contains("and 5 more; `tidegate check`") && text.ends_with("`tidegate log verify` says them all\n")
        );
    }
}
