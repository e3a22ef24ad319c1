//! What the control socket needs of a running node. The composition root fills it.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use egress::CorrelationId;
use eventlog::records::RecordStore;
use eventlog::{EventLog, HoldingStore};
use tokio::sync::mpsc;

use super::quota::Desk;
use super::runner::RunnerDesk;
use super::top::{Closed, Top, TopQuery};
use super::wire::{Judged, Reloaded, Reverify};

/// Handles of a running node.
#[async_trait]
pub(crate) trait Node: Send + Sync + fmt::Debug + 'static {
    /// Absent where the node takes no deliveries.
    fn log(&self) -> Option<&Arc<dyn EventLog>>;

    /// Absent where the holding stream is switched off.
    fn holding(&self) -> Option<&Arc<HoldingStore>>;

    /// Decision records of calls, and whether all are there that were made before this was asked; absent without the role.
    /// Blocks for as long as the newest of them take to the disk, a second or two at most.
    fn egress_records(&self) -> Option<(&RecordStore, bool)> {
        None
    }

    /// What calls are under way; absent without the role.
    fn egress_top(&self, _query: &TopQuery) -> Option<Top> {
        None
    }

    /// Ends the tunnel of this id; absent without the role.
    fn egress_close(&self, _id: CorrelationId) -> Option<Closed> {
        None
    }

    /// What an operator sees of quota and decides about it; absent without the role.
    fn quota(&self) -> Option<&Desk> {
        None
    }

    /// The runner, for any tenant; absent without the role, and while its ledger is not open.
    fn runner(&self) -> Option<RunnerDesk> {
        None
    }

    /// Judges held deliveries again and reports on each as soon as it is known. Returns when all are done, or
    /// when nobody takes reports any more; an error says why the rest could not be judged.
    async fn reverify(&self, ask: Reverify, report: mpsc::Sender<Judged>) -> Result<(), String>;

    /// Reads the configuration again and puts it in force; the faults keep the last good version of what they touch.
    async fn reload(&self) -> Reloaded;

    /// The state of the node, for people and for machines: version, uptime, what is down.
    fn stat(&self) -> serde_json::Value;
}
