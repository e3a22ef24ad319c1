//! Payloads as rows of PostgreSQL, which every node of a fleet reads.

use std::sync::Arc;

use bytes::Bytes;
use data_encoding::HEXLOWER;
use domain::TenantId;

use super::{Bounds, Fetched, PayloadError, PayloadStore, without_store};
use crate::ledger::record::{Kept, Payload};
use crate::ledger::store::BoxFuture;
use crate::postgres::{Blob, Database, Fault, Kind, Missing, Pool, blobs};

/// A store of payloads in PostgreSQL.
#[derive(Debug, Clone)]
pub struct PostgresPayloads {
    pool: Arc<Pool>,
}

impl PostgresPayloads {
    pub fn on(database: &Database) -> Self {
        Self { pool: Arc::clone(&database.pool) }
    }
}

fn name<'a>(tenant: &'a TenantId, digest: &'a [u8; 32]) -> Blob<'a> {
    Blob { tenant, kind: Kind::Payload, name: digest }
}

/// Longer ones take longer to hash than what waits on this thread should wait.
const HASHED_HERE: usize = 64 << 10;

impl PayloadStore for PostgresPayloads {
    fn keep(
        &self,
        tenant: TenantId,
        bytes: Bytes,
        bounds: Bounds,
    ) -> BoxFuture<'static, Result<Payload, PayloadError>> {
        let pool = Arc::clone(&self.pool);
        Box::pin(async move {
            let (without, digest) = if bytes.len() <= HASHED_HERE {
                hashed(&bytes, bounds)
            } else {
                let of = bytes.clone();
                let hashing = tokio::task::spawn_blocking(move || hashed(&of, bounds)).await;
                hashing.map_err(|_| PayloadError::Unavailable("its thread ended".into()))?
            };
            if let Some(payload) = without {
                return Ok(payload);
            }
            let name = name(&tenant, &digest);
            if !blobs::touch(&pool, name).await.map_err(|fault| failed(&fault))? {
                blobs::keep(&pool, name, &bytes).await.map_err(|fault| failed(&fault))?;
            }
            Ok(Payload { bytes: bytes.len() as u64, digest, kept: Kept::Stored })
        })
    }

    fn keep_longer(&self, tenant: TenantId, payload: &Payload) -> BoxFuture<'static, Result<bool, PayloadError>> {
        if !matches!(payload.kept, Kept::Stored) {
            let is_there = !matches!(payload.kept, Kept::Expired);
            return Box::pin(std::future::ready(Ok(is_there)));
        }
        let (pool, digest) = (Arc::clone(&self.pool), payload.digest);
        Box::pin(async move { blobs::touch(&pool, name(&tenant, &digest)).await.map_err(|fault| failed(&fault)) })
    }

    fn fetch(&self, tenant: TenantId, payload: &Payload) -> BoxFuture<'static, Result<Fetched, PayloadError>> {
        let (bytes, digest) = (payload.bytes, payload.digest);
        match &payload.kept {
            Kept::Inline(bytes) => return ready(Fetched::Whole(bytes.clone())),
            Kept::Truncated(bytes) | Kept::Beginning(bytes) => return ready(Fetched::Truncated(bytes.clone())),
            Kept::Expired => return ready(Fetched::Expired),
            Kept::Stored => {}
        }
        let pool = Arc::clone(&self.pool);
        Box::pin(async move {
            let damaged = || PayloadError::Damaged(HEXLOWER.encode(&digest).into());
            let found = match blobs::fetch(&pool, name(&tenant, &digest), bytes).await {
                Ok(found) => found,
                Err(Missing::Gone) => return Ok(Fetched::Expired),
                Err(Missing::Damaged) => return Err(damaged()),
                Err(Missing::Fault(fault)) => return Err(failed(&fault)),
            };
            let of = found.clone();
            let hash = if of.len() <= HASHED_HERE {
                blake3::hash(&of)
            } else {
                let hashing = tokio::task::spawn_blocking(move || blake3::hash(&of)).await;
                hashing.map_err(|_| PayloadError::Unavailable("its thread ended".into()))?
            };
            if found.len() as u64 != bytes || *hash.as_bytes() != digest {
                return Err(damaged());
            }
            Ok(Fetched::Whole(found))
        })
    }
}

fn ready(fetched: Fetched) -> BoxFuture<'static, Result<Fetched, PayloadError>> {
    Box::pin(std::future::ready(Ok(fetched)))
}

/// The payload as far as it needs no store, and its digest.
fn hashed(bytes: &Bytes, bounds: Bounds) -> (Option<Payload>, [u8; 32]) {
    match without_store(bytes, bounds) {
        Some(payload) => {
            let digest = payload.digest;
            (Some(payload), digest)
        }
        None => (None, *blake3::hash(bytes).as_bytes()),
    }
}

fn failed(fault: &Fault) -> PayloadError {
    match fault {
        Fault::Full(_) => PayloadError::Full,
        Fault::Undone(_) | Fault::Unknown(_) | Fault::Duplicate { .. } | Fault::Refused(_) => {
            PayloadError::Unavailable(fault.to_string().into())
        }
    }
}
