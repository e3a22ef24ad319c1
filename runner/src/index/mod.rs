//! What people look at: runs by tenant, automation, status, time and cause.
//!
//! The index is a projection of the ledger and never truth: it can be deleted, and is made anew. One follower tails the
//! ledger and folds each record on its run's [`RunRow`]; nothing else writes. Lists are keys beside the rows, and a row
//! says whether it is still on a list.
//!
//! - **Tenants**: every key begins with its tenant, and every row says whose it is; one that says otherwise is answered to
//!   nobody ([`IndexError::Tenant`]).
//! - **Crashes**: the place in the ledger reaches the disk behind what was taken in. What is read again changes nothing.
//! - **Cost**: runs lie in periods of their admission time. Only the newest are written to, so that a step costs the same
//!   however long the history is, and the oldest are dropped whole.
//! - **Dead letters** that nobody has put away stay beyond retention, in a store of their own that no rebuild touches.

mod batch;
mod error;
mod follow;
mod generation;
mod kept;
mod key;
mod query;
mod repair;
mod retention;
mod row;
mod row_codec;
mod service;
mod settings;
mod store;
#[cfg(test)]
mod tests;
mod word;

pub use error::IndexError;
pub use follow::Following;
pub use query::{CauseKind, Cursor, PAGE_MAX, Page, RunFilter, Tally};
pub use repair::{RepairGroup, RepairInbox, RepairWhy};
pub use retention::Swept;
pub use row::{Park, RunRow, is_over};
pub use service::{ActiveRun, Dismissal, Freshness, IndexStat, Rebuilt, RunIndex, delete};
pub use settings::IndexSettings;
pub use word::Word;
