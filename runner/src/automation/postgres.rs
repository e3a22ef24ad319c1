//! Definitions as rows of PostgreSQL, which many processes share.

mod sql;

use std::sync::Arc;

use domain::{ConnectionId, EndpointId, TenantId};
use tokio::time::timeout_at;
use tokio_postgres::types::{FromSql, ToSql};
use tokio_postgres::{Client, Error, Row};

use super::store::{ConnectionState, DefinitionStore, Listed, StoreError, Stored};
use crate::ids::{AutomationId, Version};
use crate::ledger::BoxFuture;
use crate::postgres::{Database, Fault, MigrateError, Pool, PostgresSettings, Tries};

/// Definitions in PostgreSQL.
#[derive(Debug)]
pub struct PostgresDefinitions {
    pool: Arc<Pool>,
}

impl PostgresDefinitions {
    /// Opens them, and makes the tables what they are to be.
    ///
    /// # Errors
    /// The database cannot be reached, or its tables are newer.
    pub async fn open(settings: PostgresSettings) -> Result<Self, MigrateError> {
        Ok(Self::on(&Database::open(settings).await?))
    }

    /// On a database that is open, whose connections others use too.
    pub fn on(database: &Database) -> Self {
        Self { pool: Arc::clone(&database.pool) }
    }

    /// Whether a statement that says so has changed anything. A try of unknown end is not followed by another, whose answer
    /// would be of no use: whoever asked is told that nobody knows.
    fn change(
        &self,
        sql: &'static str,
        params: Vec<Box<dyn ToSql + Sync + Send>>,
    ) -> BoxFuture<'static, Result<bool, StoreError>> {
        let pool = Arc::clone(&self.pool);
        Box::pin(async move {
            let params: Vec<&(dyn ToSql + Sync)> = params.iter().map(|param| &**param as _).collect();
            let rows = pool.rows_once(sql, &params).await.map_err(|fault| unavailable(&fault))?;
            Ok(!rows.is_empty())
        })
    }

    /// Rows of a statement, each as what it says.
    fn ask<T: Send + 'static>(
        &self,
        sql: &'static str,
        params: Vec<Box<dyn ToSql + Sync + Send>>,
        read: impl Fn(&Row) -> Result<T, StoreError> + Send + 'static,
    ) -> BoxFuture<'static, Result<Vec<T>, StoreError>> {
        let pool = Arc::clone(&self.pool);
        Box::pin(async move {
            let params: Vec<&(dyn ToSql + Sync)> = params.iter().map(|param| &**param as _).collect();
            let rows = pool.rows(sql, &params).await.map_err(|fault| unavailable(&fault))?;
            rows.iter().map(read).collect()
        })
    }
}

impl DefinitionStore for PostgresDefinitions {
    fn put(&self, stored: Stored) -> BoxFuture<'static, Result<(), StoreError>> {
        let pool = Arc::clone(&self.pool);
        Box::pin(async move { put(&pool, &stored).await })
    }

    fn delete(&self, tenant: &TenantId, id: AutomationId, by: &str) -> BoxFuture<'static, Result<bool, StoreError>> {
        let params: Vec<Box<dyn ToSql + Sync + Send>> = vec![bytes(id), text(tenant), Box::new(by.as_bytes().to_vec())];
        self.change(sql::DELETE, params)
    }

    fn get(
        &self,
        tenant: &TenantId,
        id: AutomationId,
        version: Option<Version>,
    ) -> BoxFuture<'static, Result<Option<Stored>, StoreError>> {
        let version = version.map(|version| i64::from(version.get()));
        let asked = tenant.clone();
        let found = self
            .ask(sql::GET, vec![bytes(id), text(tenant), Box::new(version)], move |row| read_stored(row, &asked, id));
        Box::pin(async move { Ok(found.await?.pop()) })
    }

    fn by_name(&self, tenant: &TenantId, name: &str) -> BoxFuture<'static, Result<Option<AutomationId>, StoreError>> {
        let found =
            self.ask(sql::BY_NAME, vec![text(tenant), Box::new(name.as_bytes().to_vec())], |row| read_id(row, 0));
        Box::pin(async move { Ok(found.await?.pop()) })
    }

    fn list(
        &self,
        tenant: &TenantId,
        after: Option<AutomationId>,
        max: usize,
    ) -> BoxFuture<'static, Result<Vec<Listed>, StoreError>> {
        // No id is empty, and nothing is before it.
        let after = after.map(|after| after.as_bytes().to_vec()).unwrap_or_default();
        let max = i64::try_from(max).unwrap_or(i64::MAX);
        self.ask(sql::LIST, vec![text(tenant), Box::new(after), Box::new(max)], read_listed)
    }

    fn triggered_by(
        &self,
        tenant: &TenantId,
        endpoint: &EndpointId,
    ) -> BoxFuture<'static, Result<Vec<(AutomationId, Version)>, StoreError>> {
        let params: Vec<Box<dyn ToSql + Sync + Send>> = vec![text(tenant), Box::new(endpoint.to_string())];
        self.ask(sql::TRIGGERED_BY, params, |row| Ok((read_id(row, 0)?, read_version(row, 1)?)))
    }

    fn connection_state(
        &self,
        tenant: &TenantId,
        connection: &ConnectionId,
    ) -> BoxFuture<'static, Result<ConnectionState, StoreError>> {
        let params: Vec<Box<dyn ToSql + Sync + Send>> = vec![text(tenant), Box::new(connection.to_string())];
        let dead = self.ask(sql::CONNECTION, params, |row| read_dead(row, 0));
        Box::pin(async move { Ok(dead.await?.pop().unwrap_or(ConnectionState::Connected)) })
    }

    fn set_connection_state(
        &self,
        tenant: &TenantId,
        connection: &ConnectionId,
        state: ConnectionState,
    ) -> BoxFuture<'static, Result<bool, StoreError>> {
        let mut params: Vec<Box<dyn ToSql + Sync + Send>> = vec![text(tenant), Box::new(connection.to_string())];
        let sql = match state {
            ConnectionState::Connected => sql::RECONNECTED,
            ConnectionState::NeedsReconnect { since_unix_ms, reason } => {
                params.push(Box::new(i64::try_from(since_unix_ms).unwrap_or(i64::MAX)));
                params.push(Box::new(reason.as_bytes().to_vec()));
                sql::DIED
            }
        };
        self.change(sql, params)
    }

    fn needing_reconnect(
        &self,
        tenant: &TenantId,
    ) -> BoxFuture<'static, Result<Vec<(ConnectionId, ConnectionState)>, StoreError>> {
        self.ask(sql::DEAD, vec![text(tenant)], |row| {
            let connection = column::<&str>(row, 2)?;
            let connection = ConnectionId::parse(connection).map_err(|_| damaged("a connection"))?;
            Ok((connection, read_dead(row, 0)?))
        })
    }
}

/// Looks and writes in one transaction, tried again where it is known to have left nothing.
async fn put(pool: &Pool, stored: &Stored) -> Result<(), StoreError> {
    let mut tries = Tries::new(pool.settings.answer_within);
    loop {
        let fault = match timeout_at(tries.until, try_put(pool, stored)).await {
            Ok(Ok(result)) => return result,
            Ok(Err(Fault::Duplicate { constraint })) if constraint.contains("by_name") => {
                return Err(StoreError::NameTaken);
            }
            // Another was first with this version: the next look finds it.
            Ok(Err(fault @ (Fault::Undone(_) | Fault::Duplicate { .. }))) => fault,
            Ok(Err(fault)) => return Err(unavailable(&fault)),
            Err(_) => return Err(unavailable(&tries.given_up())),
        };
        tries.again_after(fault).await.map_err(|fault| unavailable(&fault))?;
    }
}

async fn try_put(pool: &Pool, stored: &Stored) -> Result<Result<(), StoreError>, Fault> {
    let session = pool.session().await?;
    let put = in_transaction(session.client(), stored).await.map_err(|error| Fault::of_nothing(&error))?;
    let end = if put.is_ok() { "COMMIT" } else { "ROLLBACK" };
    session.client().batch_execute(end).await.map_err(|error| Fault::of(&error))?;
    session.give_back();
    Ok(put)
}

async fn in_transaction(client: &Client, stored: &Stored) -> Result<Result<(), StoreError>, Error> {
    client.batch_execute("BEGIN").await?;
    let id = stored.id.as_bytes().as_slice();
    let (tenant, name) = (stored.tenant.as_str(), stored.name.as_bytes());
    let version = i64::from(stored.version.get());
    let at = i64::try_from(stored.at_unix_ms).unwrap_or(i64::MAX);
    let last = match client.query_opt(sql::LOCK, &[&id]).await? {
        Some(row) if row.try_get::<_, &str>(0)? != tenant => return Ok(Err(StoreError::Tenant)),
        Some(row) if row.try_get(2)? => return Ok(Err(StoreError::Deleted)),
        Some(row) => row.try_get::<_, i64>(1)?,
        None => 0,
    };
    if version != last + 1 {
        return Ok(Err(StoreError::Conflict { last: u32::try_from(last).unwrap_or(u32::MAX) }));
    }
    let head = if last == 0 { sql::MAKE } else { sql::EDIT };
    client.execute(head, &[&id, &tenant, &version, &name, &stored.is_enabled, &at]).await?;
    let endpoints: Vec<&str> = stored.endpoints.iter().map(EndpointId::as_str).collect();
    let (json, digest, by) = (stored.json.as_bytes(), stored.digest.as_slice(), stored.by.as_bytes());
    client
        .execute(sql::KEEP, &[&id, &version, &tenant, &name, &json, &digest, &endpoints, &stored.is_enabled, &at, &by])
        .await?;
    client.execute(sql::UNLISTEN, &[&id]).await?;
    if stored.is_enabled && !endpoints.is_empty() {
        client.execute(sql::LISTEN, &[&tenant, &id, &endpoints]).await?;
    }
    Ok(Ok(()))
}

fn bytes(id: AutomationId) -> Box<dyn ToSql + Sync + Send> {
    Box::new(id.as_bytes().to_vec())
}

fn text(tenant: &TenantId) -> Box<dyn ToSql + Sync + Send> {
    Box::new(tenant.to_string())
}

fn unavailable(fault: &Fault) -> StoreError {
    StoreError::Unavailable(fault.to_string().into())
}

fn damaged(what: &str) -> StoreError {
    StoreError::Damaged(format!("{what} of the table is none").into())
}

fn column<'a, T: FromSql<'a>>(row: &'a Row, at: usize) -> Result<T, StoreError> {
    row.try_get(at).map_err(|_| damaged("a column"))
}

fn read_id(row: &Row, at: usize) -> Result<AutomationId, StoreError> {
    let id = column::<&[u8]>(row, at)?.try_into().map_err(|_| damaged("an id"))?;
    Ok(AutomationId::from_bytes(id))
}

fn read_version(row: &Row, at: usize) -> Result<Version, StoreError> {
    let version = u32::try_from(column::<i64>(row, at)?).ok().and_then(Version::new);
    version.ok_or_else(|| damaged("a version"))
}

fn read_time(row: &Row, at: usize) -> Result<u64, StoreError> {
    u64::try_from(column::<i64>(row, at)?).map_err(|_| damaged("a time"))
}

fn read_text(row: &Row, at: usize) -> Result<Box<str>, StoreError> {
    str::from_utf8(column(row, at)?).map(Into::into).map_err(|_| damaged("a text"))
}

fn read_stored(row: &Row, asked: &TenantId, id: AutomationId) -> Result<Stored, StoreError> {
    // The statement asks for the automation's; the version has a tenant of its own, which is to be the same.
    if column::<&str>(row, 0)? != asked.as_str() {
        return Err(StoreError::Tenant);
    }
    let endpoint = |name: &&str| EndpointId::parse(name).map_err(|_| damaged("an endpoint"));
    let json = read_text(row, 3)?;
    let digest: [u8; 32] = column::<&[u8]>(row, 4)?.try_into().map_err(|_| damaged("a digest"))?;
    if *blake3::hash(json.as_bytes()).as_bytes() != digest {
        return Err(StoreError::Damaged(format!("automation {id} is not what it was when it was stored").into()));
    }
    Ok(Stored {
        tenant: asked.clone(),
        id,
        version: read_version(row, 1)?,
        name: read_text(row, 2)?,
        json,
        digest,
        endpoints: column::<Vec<&str>>(row, 5)?.iter().map(endpoint).collect::<Result<_, _>>()?,
        is_enabled: column(row, 6)?,
        is_deleted: column(row, 9)?,
        at_unix_ms: read_time(row, 7)?,
        by: read_text(row, 8)?,
    })
}

fn read_listed(row: &Row) -> Result<Listed, StoreError> {
    Ok(Listed {
        id: read_id(row, 0)?,
        name: read_text(row, 1)?,
        version: read_version(row, 2)?,
        is_enabled: column(row, 3)?,
        is_deleted: column(row, 4)?,
        at_unix_ms: read_time(row, 5)?,
    })
}

fn read_dead(row: &Row, at: usize) -> Result<ConnectionState, StoreError> {
    Ok(ConnectionState::NeedsReconnect { since_unix_ms: read_time(row, at)?, reason: read_text(row, at + 1)? })
}
