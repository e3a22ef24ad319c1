//! What every centre must do, as tests that run over any of them.
//!
//! A store joins by implementing [`Subject`] and expanding [`centre_conformance!`](crate::centre_conformance) in its
//! tests. Scenarios use nothing but the [`Centre`] trait, each an application of its own, and only spans of time: a store
//! whose clock is the machine's lets it go on by waiting. Where a store may grant less than another (how large a block
//! is, within which slot of a window) they ask for what all promise.

#![allow(clippy::panic, reason = "a scenario fails by it, in the tests of another crate as well")]
#![allow(clippy::wildcard_enum_match_arm, reason = "whatever else is answered fails the scenario, and is shown")]

pub mod asks;
mod counting;
mod fencing;
mod sharing;

use std::sync::Arc;

use async_trait::async_trait;

pub use asks::Asks;
pub use counting::*;
pub use fencing::*;
pub use sharing::*;

use super::centre::Centre;
use super::name::Name;

/// A centre under test.
#[async_trait]
pub trait Subject: Send {
    fn centre(&self) -> Arc<dyn Centre>;

    /// An application that the store has not seen yet.
    fn application(&mut self) -> Name;

    /// Lets so many ms of the centre's clock pass.
    async fn pass(&mut self, ms: u64);

    /// Another one takes over that has not heard of the newest `lost` operations. No if that cannot be had here.
    async fn fail_over(&mut self, lost: usize) -> bool;
}

/// Expands to one test per scenario over the subject that the expression makes; with `@any_clock` without those that need
/// a clock of the test's own, or a fail-over.
#[macro_export]
macro_rules! centre_conformance {
    ($subject:expr) => {
        $crate::centre_conformance! { @any_clock $subject }
        $crate::centre_conformance! { @each $subject;
            a_failover_learns_and_heals,
            a_hog_leaves_the_others_their_share,
        }
    };
    (@any_clock $subject:expr) => {
        $crate::centre_conformance! { @each $subject;
            the_same_acquire_is_granted_once,
            what_is_late_is_stale,
            all_legs_or_none,
            units_come_back_once,
            what_does_not_match_its_lease_does_not_come_back,
            unspent_units_are_counted_once,
            a_park_stops_everything_and_the_later_one_holds,
            calls_under_way_together_are_one_penalty,
            a_release_is_paced,
            a_release_of_a_long_window_does_not_go_by_its_average,
            an_operator_releases_and_resets,
            headers_only_lower,
            slots_are_kept_by_renewal_and_come_back_without,
            a_fixed_window_grants_its_cap_and_the_next_begins_anew,
            a_sliding_window_grants_its_cap_in_any_span,
            a_bucket_refills,
            a_settlement_is_counted_once,
            a_change_of_rule_resets_nothing,
            what_breaks_the_protocol_is_named,
            buckets_are_described_page_by_page,
            a_block_is_a_small_part_and_enough_for_the_call,
            a_part_is_kept_for_interactive_calls,
        }
    };
    (@each $subject:expr; $($scenario:ident,)*) => {
        $(
            #[tokio::test]
            async fn $scenario() {
                let mut subject = $subject;
                $crate::quota::conformance::$scenario(&mut subject).await;
            }
        )*
    };
}

#[cfg(test)]
mod tests;
