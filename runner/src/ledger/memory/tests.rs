use std::time::Duration;

use domain::ManualClock;

use super::*;
use crate::ledger::conformance::Subject;
use crate::ledger::conformance::made::*;

#[derive(Debug)]
struct Memory {
    store: MemoryLedgerStore,
    clock: Option<Arc<ManualClock>>,
    numbers: u64,
}

impl Memory {
    fn new(clock: Option<Arc<ManualClock>>) -> Self {
        Self { store: MemoryLedgerStore::default(), clock, numbers: 0 }
    }
}

#[async_trait::async_trait]
impl Subject for Memory {
    async fn open(&mut self) -> Arc<dyn LedgerStore> {
        Arc::new(match &self.clock {
            Some(clock) => MemoryLedger::shared(&self.store, Arc::clone(clock) as Arc<dyn Clock>),
            None => MemoryLedger::of_one_process(&self.store),
        })
    }

    async fn pass(&mut self, ms: u64) {
        self.clock.as_ref().expect("scenarios of time are for shared ledgers").advance(Duration::from_millis(ms));
    }

    fn number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    fn schedules(&self) -> u32 {
        512
    }
}

mod shared {
    use super::*;

    crate::ledger_conformance! { @shared Memory::new(Some(ManualClock::at_unix_ms(WRITTEN_UNIX_MS))) }
}

mod of_one_process {
    use super::*;

    crate::ledger_conformance! { Memory::new(None) }
}

fn ledger() -> MemoryLedger {
    MemoryLedger::shared(&MemoryLedgerStore::default(), ManualClock::at_unix_ms(WRITTEN_UNIX_MS))
}

fn count(ledger: &MemoryLedger) -> usize {
    ledger.records().len()
}

#[tokio::test(start_paused = true)]
async fn each_fault_is_suffered_once_and_in_order() {
    let ledger = ledger();
    ledger.next(Fault::FailBefore);
    ledger.next(Fault::FailAfter);
    ledger.next(Fault::Refuse(AppendError::Full));
    let unavailable = |appended| assert!(matches!(appended, Err(AppendError::Unavailable(_))));
    unavailable(ledger.append(admission(run(1))).await);
    assert_eq!(count(&ledger), 0);
    unavailable(ledger.append(admission(run(1))).await);
    assert_eq!(count(&ledger), 1);
    assert_eq!(ledger.append(admission(run(2))).await, Err(AppendError::Full));
    assert_eq!(ledger.append(admission(run(1))).await, Err(AppendError::Conflict { seq: 1 }));
    assert_eq!((count(&ledger), ledger.faults_left()), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn replies_are_lost_and_late() {
    let ledger = ledger();
    ledger.next(Fault::NoReply);
    let lost = ledger.append(admission(run(1)));
    assert!(tokio::time::timeout(Duration::from_hours(1), lost).await.is_err());
    assert_eq!(count(&ledger), 1);
    ledger.next(Fault::LateReply(Duration::from_secs(9)));
    let late = ledger.append(admission(run(2)));
    assert_eq!(count(&ledger), 2);
    assert_eq!(late.await, Ok(Committed { seq: 1, lease: 0 }));
}

#[tokio::test(start_paused = true)]
async fn what_is_late_lets_others_come_between_and_is_not_withdrawn() {
    let ledger = ledger();
    ledger.next(Fault::Late(Duration::from_secs(9)));
    ledger.next(Fault::Late(Duration::from_secs(9)));
    let late = ledger.append(admission(run(1)));
    drop(ledger.append(admission(run(2))));
    assert_eq!(ledger.append(admission(run(1))).await, Ok(Committed { seq: 1, lease: 0 }));
    assert_eq!(late.await, Err(AppendError::Conflict { seq: 1 }));
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(count(&ledger), 2, "it is appended though nobody waits for it");
}

#[tokio::test]
async fn what_is_trimmed_is_named_and_runs_stay_whole() {
    let ledger = ledger();
    let first = ledger.tail(TailPosition::start(), 1).await.unwrap().next;
    for number in 0..5 {
        ledger.append(admission(run(number))).await.unwrap();
    }
    ledger.trim(2);
    assert_eq!(ledger.tail(first, 9).await, Err(ReadError::Trimmed));
    assert_eq!(ledger.tail(TailPosition::start(), 9).await.unwrap().records.len(), 2);
    assert_eq!(ledger.read(&tenant("acme"), run(0)).await.unwrap().len(), 1);
}

#[tokio::test]
async fn reads_fail_while_they_are_to() {
    let ledger = ledger();
    ledger.unreadable(Some(ReadError::Unavailable("away".into())));
    assert!(ledger.read(&tenant("acme"), run(0)).await.is_err());
    assert!(ledger.tail(TailPosition::start(), 1).await.is_err());
    assert!(ledger.claimable(0, 1).await.is_err());
    ledger.unreadable(None);
    assert!(ledger.read(&tenant("acme"), run(0)).await.is_ok());
}
