//! One database, open: what every engine in it stands on.

use std::fmt;
use std::sync::Arc;

use data_encoding::HEXLOWER;

use super::fault::Fault;
use super::pool::Pool;
use super::schema::{MigrateError, migrate_in};
use super::settings::PostgresSettings;

/// A database whose tables are as they are to be, with the connections that its engines share. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Database {
    pub(crate) pool: Arc<Pool>,
    id: LedgerId,
}

/// Which ledger a database holds: random, made with its tables. Whatever a node makes of a ledger is filed under it, so that
/// nothing of one is ever taken for another's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LedgerId([u8; 16]);

impl fmt::Display for LedgerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&HEXLOWER.encode(&self.0))
    }
}

const NAME: &str = "INSERT INTO tidegate_ledger (one, id) VALUES (1, $1) ON CONFLICT (one) DO NOTHING";
const READ: &str = "SELECT id FROM tidegate_ledger WHERE one = 1";
const ASK: &str = "SELECT 1";

impl Database {
    /// Opens it, and makes its tables what they are to be.
    ///
    /// # Errors
    /// The database cannot be reached, or its tables are newer.
    pub async fn open(settings: PostgresSettings) -> Result<Self, MigrateError> {
        let pool = Arc::new(Pool::new(settings));
        migrate_in(&pool).await?;
        let id = named(&pool).await?;
        Ok(Self { pool, id })
    }

    pub fn id(&self) -> LedgerId {
        self.id
    }

    /// Whether it answers.
    ///
    /// # Errors
    /// Why not, within the time for an answer.
    pub async fn ask(&self) -> Result<(), Fault> {
        self.pool.rows(ASK, &[]).await.map(drop)
    }
}

/// Of any number of processes that name it at once the first does.
async fn named(pool: &Pool) -> Result<LedgerId, Fault> {
    let mut new = [0_u8; 16];
    getrandom::fill(&mut new).map_err(|error| Fault::Refused(error.to_string().into()))?;
    if pool.rows(READ, &[]).await?.is_empty() {
        pool.rows(NAME, &[&new.as_slice()]).await?;
    }
    let rows = pool.rows(READ, &[]).await?;
    let id = rows.first().and_then(|row| row.try_get::<_, &[u8]>(0).ok()?.try_into().ok());
    id.map(LedgerId).ok_or_else(|| Fault::Refused("the database does not say which ledger it holds".into()))
}
