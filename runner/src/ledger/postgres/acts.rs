//! What somebody has said of runs that he does not work on: cancellations, choices, releases, re-runs, late evidence. A node
//! follows them, so that a run that is under way or parked here hears of what was said on another node.

use std::sync::Arc;

use domain::TenantId;
use tokio_postgres::types::ToSql;

use super::PostgresLedger;
use super::batch::run_id;
use super::reading::unavailable;
use super::sql;
use crate::ids::RunId;
use crate::ledger::store::ReadError;
use crate::postgres::{Pool, SHARDS};

/// Of each shard in one look; the rest is seen in the next.
const LOOK_MAX: i64 = 256;

/// Follows the acts of all nodes, from where the ledger was when it was made.
#[derive(Debug)]
pub struct Acts {
    pool: Arc<Pool>,
    places: [i64; SHARDS as usize],
}

impl PostgresLedger {
    /// From here on.
    ///
    /// # Errors
    /// The database does not answer.
    pub async fn acts(&self) -> Result<Acts, ReadError> {
        let rows = self.pool.rows(sql::PLACES, &[]).await.map_err(|fault| unavailable(&fault))?;
        let mut places = [0; SHARDS as usize];
        for row in &rows {
            let odd = |_| ReadError::Damaged("a shard of the table is none".into());
            let shard = usize::try_from(row.try_get::<_, i16>(0).map_err(odd)?).unwrap_or(usize::MAX);
            if let Some(place) = places.get_mut(shard) {
                *place = row.try_get(1).map_err(odd)?;
            }
        }
        Ok(Acts { pool: Arc::clone(&self.pool), places })
    }
}

impl Acts {
    /// Runs of which something was said since, in each shard in the order of what was said. Empty at the end.
    ///
    /// # Errors
    /// The database does not answer; the next look goes on where this one was.
    pub async fn next(&mut self) -> Result<Vec<(TenantId, RunId)>, ReadError> {
        let shards: Vec<i16> = (0..i16::from(SHARDS)).collect();
        let params: Vec<[&(dyn ToSql + Sync); 3]> =
            shards.iter().zip(&self.places).map(|(shard, place)| [shard as _, place as _, &LOOK_MAX as _]).collect();
        let params: Vec<&[&(dyn ToSql + Sync)]> = params.iter().map(<[_; 3]>::as_slice).collect();
        let pages = self.pool.rows_of_each(sql::ACTS, &params).await.map_err(|fault| unavailable(&fault))?;
        let mut said = Vec::new();
        for (page, place) in pages.iter().zip(&mut self.places) {
            for row in page {
                let of = TenantId::parse(row.try_get(0).unwrap_or_default())
                    .ok()
                    .zip(run_id(row.try_get(1).unwrap_or_default()));
                let (of, at) = of
                    .zip(row.try_get(2).ok())
                    .ok_or_else(|| ReadError::Damaged("an act of the table is none".into()))?;
                said.push(of);
                *place = at;
            }
        }
        Ok(said)
    }
}
