//! What an operator sees of quota, and decides about it: buckets as whoever counts them has them, what this node holds,
//! breakers, runaways.
//!
//! Buckets are the centre's, which is asked; what is done about one reaches every node by it, and this one at once.
//! Breakers and runaways are this node's own. All answers are bounded: lists come page by page, and a page takes a number
//! of questions and a time that do not grow with how much there is.

mod acts;
mod buckets;
mod explain;
mod guards;
mod line;
#[cfg(test)]
pub(crate) mod tests;
pub(crate) mod wire;

use std::sync::Arc;

use arc_swap::ArcSwap;
use egress::Snapshot;
use egress::quota::Quota;
use ratelimit::quota::{Answer, Application, AskError, Body, BucketName, BucketView, Centre, Describe, Op};

/// Who is behind a connection to the control socket, as the kernel says it; none where it does not.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Peer {
    pub(crate) uid: Option<u32>,
}

/// What there is to look at and to act on. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Desk {
    pub(crate) centre: Arc<dyn Centre>,
    pub(crate) quota: Arc<Quota>,
    pub(crate) snapshot: Arc<ArcSwap<Snapshot>>,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DeskError {
    /// Nothing is known of whether it was done.
    #[error("whoever counts quota cannot be asked: {0}")]
    Centre(#[from] AskError),
    #[error("whoever counts quota answered something else than was asked")]
    Odd,
    #[error("{0}")]
    Refused(String),
}

impl Desk {
    async fn ask(&self, application: &Application, body: Body) -> Result<Answer, DeskError> {
        let op = Op { application: application.clone(), body };
        Ok(self.centre.ask(&op).await?.answer)
    }

    /// One bucket, if it is there.
    async fn bucket(&self, name: &BucketName) -> Result<Option<BucketView>, DeskError> {
        let Some(describe) = Describe::only(&name.key) else { return Ok(None) };
        let Answer::Buckets(views) = self.ask(&name.application, Body::Describe(describe)).await? else {
            return Err(DeskError::Odd);
        };
        Ok(views.into_iter().find(|view| view.key == name.key))
    }

    fn now_unix_ms(&self) -> u64 {
        self.quota.clock.unix_ms()
    }
}

/// Reads a bucket's name as it came.
fn bucket_named(text: &str) -> Result<BucketName, DeskError> {
    text.parse().map_err(|fault| DeskError::Refused(format!("the bucket's name {fault}")))
}
