//! The tables, and how they come to be.

use tokio_postgres::Row;

use super::fault::Fault;
use super::pool::{Pool, Session, Tries};
use super::settings::PostgresSettings;

/// Places of the tail are counted in so many parts: runs are spread over them by their ids. Never changed: a place says how
/// far a reader is in each.
pub(crate) const SHARDS: u8 = 8;

/// Each step makes one more version of the tables.
const STEPS: &[&str] = &[include_str!("schema/1.sql")];

const VERSIONS: &str =
    "CREATE TABLE IF NOT EXISTS tidegate_schema (version bigint PRIMARY KEY, applied_at timestamptz NOT NULL)";

/// Why the tables are not as they are to be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MigrateError {
    /// A later version of Tidegate was here: this one would not know what it reads.
    #[error("the tables are of version {found}, and this program knows versions up to {known}")]
    Newer { found: i64, known: i64 },
    #[error("the tables cannot be made: {0}")]
    Database(#[from] Fault),
}

/// Makes the tables what they are to be. Any number of processes may do so at once: each step is one transaction, which
/// begins by putting its number where it can be only once. Where there is nothing to do, no right to make tables is needed.
///
/// # Errors
/// The tables are newer, or a step does not work.
pub async fn migrate(settings: &PostgresSettings) -> Result<(), MigrateError> {
    migrate_in(&Pool::new(settings.clone())).await
}

pub(crate) async fn migrate_in(pool: &Pool) -> Result<(), MigrateError> {
    let mut tries = Tries::new(pool.settings.answer_within);
    loop {
        match step(pool).await {
            Ok(true) => return Ok(()),
            Ok(false) => {}
            // Another process is at the same step: what it makes is there when it has.
            Err(MigrateError::Database(fault)) if may_pass(&fault) => tries.again_after(fault).await?,
            Err(error) => return Err(error),
        }
    }
}

fn may_pass(fault: &Fault) -> bool {
    match fault {
        Fault::Undone(_) | Fault::Unknown(_) | Fault::Duplicate { .. } => true,
        // "There already", said of a table and of a type.
        Fault::Refused(why) => why.starts_with("42P07") || why.starts_with("42710"),
        Fault::Full(_) => false,
    }
}

/// One step; says whether none was left.
async fn step(pool: &Pool) -> Result<bool, MigrateError> {
    let session = pool.session().await?;
    let found = version(&session).await?;
    let known = i64::try_from(STEPS.len()).unwrap_or(i64::MAX);
    if found > known {
        return Err(MigrateError::Newer { found, known });
    }
    let Some(sql) = usize::try_from(found).ok().and_then(|found| STEPS.get(found)) else {
        session.give_back();
        return Ok(true);
    };
    let next = found + 1;
    let transaction = format!("BEGIN; INSERT INTO tidegate_schema VALUES ({next}, now()); {sql}; COMMIT");
    let made = session.client().batch_execute(&transaction).await;
    made.map_err(|error| Fault::of(&error))?;
    session.give_back();
    tracing::info!(version = next, "the tables of the runner were brought up");
    Ok(false)
}

async fn version(session: &Session<'_>) -> Result<i64, Fault> {
    const READ: &str = "SELECT coalesce(max(version), 0) FROM tidegate_schema";
    let found = match session.client().query_one(READ, &[]).await {
        Ok(row) => Ok(row),
        // Undefined table: the first of all.
        Err(error) if error.code().is_some_and(|code| code.code() == "42P01") => {
            session.client().batch_execute(VERSIONS).await.map_err(|error| Fault::of(&error))?;
            session.client().query_one(READ, &[]).await
        }
        Err(error) => Err(error),
    };
    let row: Row = found.map_err(|error| Fault::of(&error))?;
    row.try_get(0).map_err(|error| Fault::of(&error))
}
