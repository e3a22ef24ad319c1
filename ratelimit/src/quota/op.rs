//! What is asked of a centre.

use std::sync::Arc;

use super::key::{Application, BucketKey};
use super::name::{HolderId, Name};
use super::rule::Rule;

/// Most buckets that one call has to hold units of.
pub const LEGS_MAX: usize = 8;
/// Longest park: what a provider says beyond it is taken for a mistake, and asked again then.
pub const PARK_MS_MAX: u64 = 26 * 3_600_000;
/// Largest weight of a tenant.
pub const WEIGHT_MAX: u16 = 1_000;
/// Largest demand, in thousandths of a unit per second.
pub const DEMAND_MILLI_MAX: u64 = 1 << 40;
/// Most buckets that one [`Describe`] answers with.
pub const PAGE_MAX: u16 = 100;

/// One operation on one application.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Op {
    pub application: Application,
    pub body: Body,
}

/// What to do. Each kind has answers of its own in [`super::Answer`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Body {
    Acquire(Acquire),
    GiveBack(GiveBack),
    Renew(Renew),
    Penalise(Penalise),
    Observe(Observe),
    Settle(Settle),
    /// An operator ends a park. What was lowered by it stays lowered, and releases are still paced.
    Release(BucketKey),
    /// An operator forgets everything about a bucket but its fences: `gen` grows, outstanding leases are void.
    Reset(BucketKey),
    Describe(Describe),
}

/// A bucket and the rule that the asker has for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Metered {
    pub key: Arc<BucketKey>,
    pub rule: Arc<Rule>,
}

/// Whose lease it is. Each holder leases for each tenant apart, so that one tenant's block is never another's.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Lessee {
    pub holder: HolderId,
    pub tenant: Name,
}

/// Which of a tenant's calls this is for. A part of a tenant's share is kept for interactive ones while there are any.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Class {
    Interactive,
    Bulk,
}

/// What a tenant is worth at the application's buckets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Share {
    /// 1..=[`WEIGHT_MAX`].
    pub weight: u16,
    /// At least so many thousandths of a bucket's rate, while they are wanted.
    pub floor_permille: u16,
    /// At most so many thousandths of a bucket's rate; 1000 is no bound, and it is not under the floor.
    pub ceiling_permille: u16,
}

/// Leases of several buckets of an application, all or none.
///
/// Sent again with the same `seq` in every leg it is the same lease, however often: a holder that got no answer sends
/// it again, or gives it up and counts it as spent. Each leg's answer replaces the holder's lease of that bucket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Acquire {
    pub lessee: Lessee,
    pub class: Class,
    pub share: Share,
    /// 1..=[`LEGS_MAX`], no bucket twice.
    pub legs: Vec<Leg>,
}

/// One bucket's part of an acquire.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leg {
    pub bucket: Metered,
    /// Grows with each new acquire or renewal of this lessee in this bucket, from 1.
    pub seq: u64,
    /// Units without which the call that waits cannot go; 0 where none waits.
    pub least: u32,
    /// Units that the new lease is to have, with what is unspent: at least `least` are granted, or none. Not less than
    /// `least` and `unspent`.
    pub want: u32,
    /// What is left of the last lease of this bucket; of concurrency, all slots that are held, in use or not. It is
    /// counted anew, at this moment, and is part of the new lease; the rest of the old one counts as spent. It may go
    /// on to be spent while the answer is under way, and stays as it was if the answer is no.
    pub unspent: u32,
    /// What this holder's calls of the tenant would use of the bucket now, in thousandths of a unit per second: what
    /// arrives, and what is queued over the length of a slot. Of concurrency, thousandths of a slot.
    pub demand_milli: u64,
    /// As last answered: see [`Tally`].
    pub tally: Tally,
    /// The bucket's highest generation that the holder has heard of. A centre that knows of a lower one has lost
    /// something, and goes on from this one.
    pub heard: u64,
}

/// What a lessee was ever granted in a window and the one before. The holder keeps what the last answer said and sends
/// it with each acquire; a centre that knows of less has lost it, and counts the difference.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tally {
    /// Of a window: its beginning as Unix ms where the provider's windows are known, else the count of spans of
    /// [`Rule::memory_ms`]. Only equality and order matter to a holder.
    pub wid: u64,
    pub units: u64,
    /// In window `wid − 1`, where windows are counted; else 0.
    pub before: u64,
}

/// Units that will not be spent. Credited only if all of it matches the lease as it stands, and once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GiveBack {
    pub lessee: Lessee,
    pub legs: Vec<Unspent>,
}

/// One lease's part of a give-back: as the lease was granted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unspent {
    pub key: Arc<BucketKey>,
    pub seq: u64,
    pub generation: u64,
    pub wid: u64,
    /// Of concurrency: slots that are free again, whatever the gen.
    pub units: u32,
}

/// The heartbeat of concurrency: these slots are held, and no others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Renew {
    pub lessee: Lessee,
    pub legs: Vec<Slots>,
}

/// Slots of one bucket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Slots {
    pub bucket: Metered,
    pub seq: u64,
    pub held: u32,
    /// As in a [`Leg`].
    pub heard: u64,
}

/// A provider said stop. A time is always how long from now, never when: the provider's clock is its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Penalise {
    pub bucket: Metered,
    pub delta_ms: u64,
    /// The `gen` of the lease that the call was sent under. What was sent before the bucket's last park can only make
    /// that longer: ten calls that were under way together are one penalty.
    pub generation: Option<u64>,
    pub why: Why,
}

/// Why a bucket is parked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Why {
    /// The provider refused a call.
    Provider,
    /// The provider's headers say that nothing is left.
    Exhausted,
    Operator,
}

impl Why {
    pub const ALL: [Self; 3] = [Self::Provider, Self::Exhausted, Self::Operator];

    pub const fn word(self) -> &'static str {
        match self {
            Self::Provider => "provider",
            Self::Exhausted => "exhausted",
            Self::Operator => "operator",
        }
    }
}

/// What a response's headers say. It only ever lowers what is granted; the order of several does not matter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Observe {
    pub bucket: Metered,
    /// Of the lease that the call was sent under: what is said about one window says nothing about the next.
    pub wid: u64,
    pub limit: Option<u32>,
    pub remaining: Option<u32>,
    /// Until the provider's window ends, from when the response was received.
    pub reset_ms: Option<u64>,
}

/// What calls really cost, where that is known only afterwards.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settle {
    pub lessee: Lessee,
    pub key: Arc<BucketKey>,
    /// Grows with each settlement of this lessee in this bucket, from 1.
    pub seq: u64,
    pub wid: u64,
    /// Since before the lease was asked for that paid the estimate: how much of it has drained meanwhile.
    pub age_ms: u64,
    pub estimate: u32,
    pub actual: u32,
}

/// Buckets of the application, in the order of their keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Describe {
    /// Begins after this one; `None` begins at the first.
    pub after: Option<BucketKey>,
    /// 1..=[`PAGE_MAX`].
    pub limit: u16,
}

impl Describe {
    /// The description of this bucket alone, if it is there; else of the one behind it. No limit is called `-`, and none
    /// of that name can be asked for.
    pub fn only(key: &BucketKey) -> Option<Self> {
        let after = BucketKey { policy: key.policy.before()?, ..key.clone() };
        Some(Self { after: Some(after), limit: 1 })
    }
}
