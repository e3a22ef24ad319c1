//! The suites of all engines.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use domain::{Clock, ManualClock};
use tidegate_runner::automation::DefinitionStore;
use tidegate_runner::automation::postgres::PostgresDefinitions;
use tidegate_runner::ledger::LedgerStore;
use tidegate_runner::ledger::conformance::{Retaining, Subject, made};
use tidegate_runner::ledger::embedded::Ages;
use tidegate_runner::ledger::payloads::{PayloadStore, PostgresPayloads};
use tidegate_runner::ledger::postgres::PostgresLedger;
use tidegate_runner::postgres::Database;

use crate::place::Place;

struct Subjected {
    place: Place,
    /// What was opened, for a crash to wait for.
    opened: Vec<Arc<PostgresLedger>>,
    numbers: u64,
}

impl Subjected {
    async fn new() -> Option<Self> {
        Some(Self { place: Place::new().await?, opened: Vec::new(), numbers: 0 })
    }
}

#[async_trait]
impl Subject for Subjected {
    async fn open(&mut self) -> Arc<dyn LedgerStore> {
        let clock = ManualClock::at_unix_ms(made::WRITTEN_UNIX_MS) as Arc<dyn Clock>;
        let ledger = Arc::new(PostgresLedger::open(self.place.settings(), clock).await.unwrap());
        self.opened.push(Arc::clone(&ledger));
        ledger
    }

    /// All sessions are ended by the server, in the middle of whatever they do.
    async fn crash(&mut self, last: Arc<dyn LedgerStore>) -> Arc<dyn LedgerStore> {
        self.place.run(
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity \
             WHERE datname = current_database() AND pid <> pg_backend_pid()",
        );
        drop(last);
        for ledger in self.opened.drain(..) {
            ledger.close().await;
        }
        self.open().await
    }

    async fn pass(&mut self, ms: u64) {
        tokio::time::sleep(Duration::from_millis(ms)).await;
    }

    fn number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    fn schedules(&self) -> u32 {
        16
    }
}

/// Definitions.
struct Defined(Place);

#[async_trait]
impl tidegate_runner::automation::conformance::Subject for Defined {
    async fn open(&mut self) -> Arc<dyn DefinitionStore> {
        Arc::new(PostgresDefinitions::open(self.0.settings()).await.unwrap())
    }
}

mod definitions {
    use super::{Defined, Place};

    tidegate_runner::definitions_conformance! { match Place::new().await { Some(place) => Defined(place), None => return } }
}

tidegate_runner::ledger_conformance! { @shared match Subjected::new().await { Some(subject) => subject, None => return } }

/// Retention: ages are counted by the database's clock, so what is there is made older instead.
struct Old {
    place: Place,
    database: Database,
    ledger: Option<Arc<PostgresLedger>>,
}

impl Old {
    async fn new() -> Option<Self> {
        let place = Place::new().await?;
        let database = Database::open(place.settings()).await.unwrap();
        Some(Self { place, database, ledger: None })
    }
}

#[async_trait]
impl Retaining for Old {
    async fn open(&mut self) -> Arc<dyn LedgerStore> {
        let clock = ManualClock::at_unix_ms(made::WRITTEN_UNIX_MS) as Arc<dyn Clock>;
        let ledger = Arc::new(PostgresLedger::on(&self.database, clock).await.unwrap());
        self.ledger = Some(Arc::clone(&ledger));
        ledger
    }

    fn payloads(&self) -> Arc<dyn PayloadStore> {
        Arc::new(PostgresPayloads::on(&self.database))
    }

    async fn grow_old(&mut self, by: Duration) {
        let by = by.as_millis();
        self.place.run(&format!(
            "UPDATE tidegate_run_heads SET admitted_at = admitted_at - {by}, \
               over_at = CASE WHEN over_at > 0 THEN over_at - {by} ELSE 0 END; \
             UPDATE tidegate_blobs SET kept_at = kept_at - {by}"
        ));
    }

    async fn retain(&mut self) {
        self.ledger.as_ref().unwrap().retain(&Ages::default()).await.unwrap();
    }
}

mod retention {
    use super::Old;

    tidegate_runner::retention_conformance! { match Old::new().await { Some(subject) => subject, None => return } }
}
