//! The one place that knows how much of each limit is left.

use async_trait::async_trait;

use super::answer::{AskError, Reply};
use super::key::Application;
use super::op::Op;

/// Decides about the buckets of applications. One process alone has [`super::InProcess`]; several share a store.
///
/// # Contract
///
/// - **One at a time.** Operations on one application happen one after the other, each as a whole.
/// - **Its own clock.** A centre takes the time once per operation, from a clock that never goes back, in ms. No time
///   of an asker is ever used; what an asker says about time is how long something is.
/// - **Leases are relative.** `ttl_ms` counts from before the operation was sent, so that the holder stops first.
/// - **All or none.** An acquire that is refused in one leg leaves every bucket's units and fences as they were. What it
///   said about demand is kept, and what its tallies tell is counted.
/// - **Once.** The same acquire is granted once, however often and late it arrives; a give-back or settlement is
///   credited once; penalties and observations merge, whatever their order.
/// - **Never more.** Units that are granted and not credited never exceed the rule; see [`super::Kind`] for the bound
///   that each has. What settlement and observation count beyond it is a debt.
/// - **Forgetting is noticed.** A centre that may have lost a suffix of what it granted answers [`super::Answer::Learning`]
///   for as long as a lease lasts and counts what holders' tallies tell. One that lost more waits for as long as
///   what it lost could matter.
/// - **A crash of a holder** forfeits units of rates; slots of concurrency come back after `lease_ms`.
/// - `seq`, `gen` and `cfgver` never fall.
/// - **An error** is returned within the store's own time limit. Unless its variant says that nothing was done, the
///   operation may be done, or be done later.
#[async_trait]
pub trait Centre: Send + Sync + std::fmt::Debug {
    /// Does one operation.
    async fn ask(&self, op: &Op) -> Result<Reply, AskError>;

    /// This node wants to hear at once what happens to the application, where the centre has a way to say it unasked.
    /// What is not heard is found out later, by the answers to asks.
    fn watch(&self, _application: &Application) {}
}
