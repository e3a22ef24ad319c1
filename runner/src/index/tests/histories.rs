//! Histories as a ledger takes them: arbitrary bodies are offered, and what it refuses did not happen.

use std::collections::HashMap;
use std::sync::Arc;

use domain::{ConnectionId, EndpointId, EventId, NodeId, Slot, TenantId};
use proptest::prelude::*;

use crate::failure::FailureClass;
use crate::ids::{AutomationId, RunId, Version};
use crate::index::Word as _;
use crate::ledger::conformance::made::{self, step};
use crate::ledger::memory::{MemoryLedger, MemoryLedgerStore};
use crate::ledger::{
    Admitted, Body, Cause, Commit, LedgerStore, ParkReason, Parked, QueueClass, Record, RunStatus, Terminal, Writer,
};

pub(super) const BEGIN_UNIX_MS: u64 = 1_800_000_000_000;

/// One thing that somebody tries to write.
#[derive(Debug, Clone)]
pub(super) struct Offer {
    pub(super) run: u8,
    pub(super) body: u8,
    pub(super) detail: u8,
    /// Until the next.
    pub(super) later_ms: u32,
}

pub(super) fn offers(count: usize) -> impl Strategy<Value = Vec<Offer>> {
    let later = prop_oneof![Just(0_u32), 1..50_u32, 1_000..5_000_u32];
    let offer = (0..12_u8, 0..17_u8, any::<u8>(), later);
    proptest::collection::vec(
        offer.prop_map(|(run, body, detail, later_ms)| Offer { run, body, detail, later_ms }),
        1..count,
    )
}

pub(super) struct World {
    pub(super) ledger: Arc<MemoryLedger>,
    pub(super) now: u64,
    /// Sequence and lease.
    heads: HashMap<RunId, (u64, u64)>,
}

pub(super) fn tenant_of(run: u8) -> TenantId {
    made::tenant(["acme", "acm", "b"][usize::from(run % 3)])
}

pub(super) fn event_of(run: u8) -> EventId {
    EventId::new(BEGIN_UNIX_MS, Slot::of("wh_1"), NodeId(7), [run / 2; 6])
}

pub(super) fn automation_of(run: u8) -> AutomationId {
    AutomationId::from_bytes([run % 4; 16])
}

impl World {
    pub(super) fn new() -> Self {
        let disk = MemoryLedgerStore::default();
        let ledger = Arc::new(MemoryLedger::of_one_process(&disk));
        Self { ledger, now: BEGIN_UNIX_MS, heads: HashMap::new() }
    }

    pub(super) fn ledger(&self) -> Arc<dyn LedgerStore> {
        Arc::clone(&self.ledger) as Arc<dyn LedgerStore>
    }

    pub(super) async fn offer(&mut self, offer: &Offer) {
        self.now += u64::from(offer.later_ms);
        let run = made::run(u64::from(offer.run));
        let (seq, lease) = self.heads.get(&run).copied().unwrap_or_default();
        let body = self.body(offer, seq, lease);
        let writer = match &body {
            Body::Lease(taken) => Writer::Lease(taken.lease),
            Body::Admitted(_)
            | Body::LateOutcome(_)
            | Body::Released(_)
            | Body::Resolved(_)
            | Body::Rerun(_)
            | Body::CancelRequested(_)
            | Body::Dismissed(_) => Writer::Anyone,
            Body::Intent(_) | Body::Outcome(_) | Body::Parked(_) | Body::Quarantined(_) | Body::Terminal(_) => {
                Writer::Lease(lease)
            }
        };
        let commit = Commit {
            tenant: tenant_of(offer.run),
            run,
            expected: seq,
            writer,
            at_unix_ms: self.now,
            bodies: vec![body],
        };
        if let Ok(committed) = self.ledger.append(commit).await {
            self.heads.insert(run, (committed.seq, committed.lease));
        }
    }

    fn body(&self, offer: &Offer, seq: u64, lease: u64) -> Body {
        let name = ["a", "b", "c/d"][usize::from(offer.detail % 3)];
        let physical = u32::from(offer.detail % 5) + 1;
        if seq == 0 {
            return self.admission(offer);
        }
        match offer.body {
            0 | 1 => made::lease(lease + 1, "one", 1_000),
            2 => made::lease(lease + 1, "two", 1_000),
            3 | 4 => intent(name, physical, offer.detail),
            5 => made::outcome(name, physical),
            6 => made::late_outcome(name, physical),
            7 | 8 => Body::Parked(Parked {
                reason: ParkReason::ALL[usize::from(offer.detail) % ParkReason::ALL.len()],
                step: offer.detail.is_multiple_of(4).then(|| step(name)),
                until_unix_ms: (!offer.detail.is_multiple_of(3)).then_some(self.now + 10),
            }),
            9 => made::released(),
            10 => made::resolved(name, physical),
            11 => made::rerun(name, u32::from(offer.detail % 7) + 2),
            12 => made::cancel_requested(),
            13 => made::quarantined(),
            14 => made::dismissed(),
            _ => terminal(offer.detail),
        }
    }

    fn admission(&self, offer: &Offer) -> Body {
        let (event, endpoint) = (event_of(offer.run), EndpointId::parse("wh_1").unwrap());
        let again = format!("replay {}", offer.run / 6);
        let cause = match offer.run % 3 {
            0 => Cause::Event { event, endpoint },
            1 => Cause::Replay { event, endpoint, replay: again.into() },
            _ if offer.run.is_multiple_of(2) => {
                Cause::Again { of: made::run(0), replay: again.into(), by: "ann".into() }
            }
            _ => Cause::Manual { by: "ann".into() },
        };
        Body::Admitted(Admitted {
            automation: automation_of(offer.run),
            version: Version::new(u32::from(offer.detail) + 1).unwrap(),
            cause,
            class: QueueClass::ALL[usize::from(offer.detail) % QueueClass::ALL.len()],
            deadline_unix_ms: self.now + 60_000,
            input: None,
        })
    }

    /// All records of each run that is there.
    pub(super) fn histories(&self) -> HashMap<RunId, Vec<Record>> {
        let mut runs: HashMap<RunId, Vec<Record>> = HashMap::new();
        for record in self.ledger.records() {
            runs.entry(record.run).or_default().push(record);
        }
        runs
    }
}

fn intent(name: &str, physical: u32, detail: u8) -> Body {
    let mut body = made::intent(name, physical);
    if let Body::Intent(intent) = &mut body {
        intent.connection = detail.is_multiple_of(2).then(|| ConnectionId::parse("conn_x").unwrap());
    }
    body
}

fn terminal(detail: u8) -> Body {
    let status = RunStatus::ALL[5 + usize::from(detail) % 5];
    let is_failure = matches!(status, RunStatus::Failed | RunStatus::TimedOut);
    let class = is_failure.then(|| FailureClass::ALL[usize::from(detail / 8) % FailureClass::ALL.len()]);
    Body::Terminal(Terminal { status, failed_at: class.map(|_| step("a")), class })
}
