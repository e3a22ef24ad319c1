//! A few connections, each used by one task at a time, and again only if its work ended well.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use futures_util::future::try_join_all;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout, timeout_at};
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, NoTls, Row};

use super::fault::Fault;
use super::settings::PostgresSettings;

/// Between tries, at first and at most.
const PAUSE_MIN: Duration = Duration::from_millis(10);
const PAUSE_MAX: Duration = Duration::from_millis(500);

#[derive(Debug)]
pub(crate) struct Pool {
    pub(crate) settings: PostgresSettings,
    idle: Mutex<Vec<Link>>,
    slots: Semaphore,
}

/// A session of the server's.
#[derive(Debug)]
struct Link {
    client: Client,
    prepared: HashMap<&'static str, tokio_postgres::Statement>,
    driver: JoinHandle<()>,
}

impl Drop for Link {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

/// A session for one piece of work. Whoever does not give it back has closed it.
#[derive(Debug)]
pub(crate) struct Session<'a> {
    link: Link,
    pool: &'a Pool,
    _slot: SemaphorePermit<'a>,
}

impl Pool {
    pub(crate) fn new(settings: PostgresSettings) -> Self {
        let slots = Semaphore::new(settings.connections.max(1));
        Self { settings, idle: Mutex::default(), slots }
    }

    /// One that is idle, or a new one.
    pub(crate) async fn session(&self) -> Result<Session<'_>, Fault> {
        let slot = self.slots.acquire().await.map_err(|closed| Fault::unreached(&closed))?;
        while let Some(link) = self.take_idle() {
            if !link.client.is_closed() {
                return Ok(Session { link, pool: self, _slot: slot });
            }
        }
        let opened = timeout(self.settings.connect_within, self.open()).await;
        let link = opened.map_err(|elapsed| Fault::unreached(&elapsed))??;
        Ok(Session { link, pool: self, _slot: slot })
    }

    fn take_idle(&self) -> Option<Link> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop()
    }

    async fn open(&self) -> Result<Link, Fault> {
        let stream = self.settings.dial.dial().await.map_err(|error| Fault::unreached(&error))?;
        let opened = self.settings.config().connect_raw(stream, NoTls).await;
        let (client, connection) = opened.map_err(|error| Fault::unreached(&error))?;
        let driver = tokio::spawn(async move {
            // Its end is what everybody who waits for an answer hears of.
            if let Err(error) = connection.await {
                tracing::debug!(%error, "a connection to the database has ended");
            }
        });
        let link = Link { client, prepared: HashMap::new(), driver };
        let begun = link.client.batch_execute(&self.settings.session_sql()).await;
        begun.map_err(|error| Fault::unreached(&error))?;
        Ok(link)
    }

    /// Rows of a statement that may be done twice: it is tried until it works, or its time is up.
    pub(crate) async fn rows(&self, sql: &'static str, params: &[&(dyn ToSql + Sync)]) -> Result<Vec<Row>, Fault> {
        Ok(self.rows_of_each(sql, &[params]).await?.pop().unwrap_or_default())
    }

    /// The same for many parameters, in one flight.
    pub(crate) async fn rows_of_each(
        &self,
        sql: &'static str,
        params: &[&[&(dyn ToSql + Sync)]],
    ) -> Result<Vec<Vec<Row>>, Fault> {
        self.tried(sql, params, true).await
    }

    /// Rows of a statement that tells what it has done: it is tried again only where it is known to have done nothing.
    pub(crate) async fn rows_once(&self, sql: &'static str, params: &[&(dyn ToSql + Sync)]) -> Result<Vec<Row>, Fault> {
        Ok(self.tried(sql, &[params], false).await?.pop().unwrap_or_default())
    }

    async fn tried(
        &self,
        sql: &'static str,
        params: &[&[&(dyn ToSql + Sync)]],
        may_repeat: bool,
    ) -> Result<Vec<Vec<Row>>, Fault> {
        let mut tries = Tries::new(self.settings.answer_within);
        loop {
            let fault = match timeout_at(tries.until, self.try_rows(sql, params)).await {
                Ok(Ok(rows)) => return Ok(rows),
                Ok(Err(fault @ Fault::Undone(_))) => fault,
                Ok(Err(fault @ Fault::Unknown(_))) if may_repeat => fault,
                Ok(Err(fault)) => return Err(fault),
                Err(_) => return Err(tries.given_up()),
            };
            tries.again_after(fault).await?;
        }
    }

    async fn try_rows(&self, sql: &'static str, params: &[&[&(dyn ToSql + Sync)]]) -> Result<Vec<Vec<Row>>, Fault> {
        let mut session = self.session().await?;
        let statement = session.prepare(sql).await?;
        let client = session.client();
        let asked = try_join_all(params.iter().map(|params| client.query(&statement, params))).await;
        let rows = asked.map_err(|error| Fault::of(&error))?;
        session.give_back();
        Ok(rows)
    }
}

impl Session<'_> {
    pub(crate) fn client(&self) -> &Client {
        &self.link.client
    }

    /// The statement of this text, which the session knows from the first time on.
    pub(crate) async fn prepare(&mut self, sql: &'static str) -> Result<tokio_postgres::Statement, Fault> {
        if let Some(statement) = self.link.prepared.get(sql) {
            return Ok(statement.clone());
        }
        let prepared = self.link.client.prepare(sql).await;
        let statement = prepared.map_err(|error| Fault::of_nothing(&error))?;
        self.link.prepared.insert(sql, statement.clone());
        Ok(statement)
    }

    /// Its work has ended well, and nothing of it is left open.
    pub(crate) fn give_back(self) {
        let Self { link, pool, _slot } = self;
        pool.idle.lock().unwrap_or_else(PoisonError::into_inner).push(link);
    }
}

/// How often, and until when.
#[derive(Debug)]
pub(crate) struct Tries {
    pub(crate) until: Instant,
    pause: Duration,
    last: Option<Fault>,
}

impl Tries {
    pub(crate) fn new(within: Duration) -> Self {
        Self { until: Instant::now() + within, pause: PAUSE_MIN, last: None }
    }

    /// Waits a little.
    ///
    /// # Errors
    /// The fault, when the time is up.
    pub(crate) async fn again_after(&mut self, fault: Fault) -> Result<(), Fault> {
        if Instant::now() + self.pause >= self.until {
            return Err(fault);
        }
        self.last = Some(fault);
        sleep(self.pause).await;
        self.pause = (self.pause * 2).min(PAUSE_MAX);
        Ok(())
    }

    /// The time is up in the middle of a try.
    pub(crate) fn given_up(&mut self) -> Fault {
        let last = self.last.take().map_or_else(String::new, |fault| format!(", and before: {fault}"));
        Fault::Unknown(format!("no answer in time{last}").into())
    }
}
