//! What a centre answers. A refusal is an answer; that nobody could be asked is an [`AskError`].

use super::key::BucketKey;
use super::name::HolderId;
use super::op::{Tally, Why};
use super::rule::Rule;

/// What comes back for an [`super::Op`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    /// Which life of the centre answered: a number that is another one whenever the centre may have forgotten
    /// something. A holder that sees it change reports its tallies of every bucket of the application that it had a
    /// lease of lately, by an acquire of what it has (`want = unspent`, 0 if nothing).
    pub epoch: u64,
    pub answer: Answer,
}

/// The answer to an [`super::Op`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// To an acquire: one lease per leg, in the order of the legs.
    Granted(Vec<Lease>),
    /// The same acquire was granted before, and this is what is left of its time.
    Replayed(Vec<Lease>),
    /// To an acquire or renewal: this leg's `seq` is behind, or what was granted under it is void. A new `seq` may be
    /// asked under; `seq` is the last one that was taken.
    Stale {
        leg: u8,
        seq: u64,
    },
    /// Not now: this leg, the one that takes longest, has no room. Nothing was taken in any bucket.
    Denied {
        leg: u8,
        retry_ms: u64,
        why: Denial,
    },
    /// This leg's bucket is parked, the longest of several.
    Parked {
        leg: u8,
        ms: u64,
        why: Why,
    },
    /// The centre may have forgotten something about this leg's bucket and listens until it would know.
    Learning {
        leg: u8,
        ms: u64,
    },
    /// To a renewal: one per leg.
    Renewed(Vec<Lease>),
    /// To what has no other answer: units credited or counted, where there are any.
    Done {
        units: u32,
    },
    /// To a penalty: the park as it stands, merged with others.
    ParkedFor {
        ms: u64,
        generation: u64,
    },
    /// To an operator's word about a bucket that is not there: it holds nothing and is not parked.
    NoBucket,
    /// The operation breaks a bound of the protocol. The asker's mistake, not a lack of anything.
    Malformed(Malformed),
    Buckets(Vec<BucketView>),
}

/// Units that may be spent, under three conditions that are checked right before a request is written: the time is
/// not over, `gen` is the bucket's newest that the holder has heard of, and no later lease has taken its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lease {
    /// What was stated as unspent included, of which the holder takes off what it has spent since it sent that. Of
    /// concurrency: how many slots may be in use when another call starts; those that are held count even where it
    /// is fewer, because a park or a fair share asks for some of them.
    pub units: u32,
    /// Counted by the holder from before it sent the operation, on a clock that runs while the machine sleeps.
    pub ttl_ms: u32,
    pub generation: u64,
    /// To be sent with the next acquire of this bucket. Its `wid` is the lease's.
    pub tally: Tally,
}

/// Why nothing was granted although nothing is parked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Denial {
    /// The limit is used up.
    Exhausted,
    /// The tenant has had its share of the application for this slot.
    Share,
    /// What is left is kept for interactive calls.
    Reserved,
    /// After a park the bucket is released step by step.
    Paced,
    /// Between two windows: too near to the end of one, or too early in one, for clocks that differ.
    Guard,
    /// More units than the bucket ever has: no waiting helps.
    OverCap,
    /// The rule's days do not include this one.
    NoWindow,
    /// The centre has as many buckets or lessees as it may have.
    Full,
}

impl Denial {
    pub const ALL: [Self; 8] = [
        Self::Exhausted,
        Self::Share,
        Self::Reserved,
        Self::Paced,
        Self::Guard,
        Self::OverCap,
        Self::NoWindow,
        Self::Full,
    ];

    pub const fn word(self) -> &'static str {
        match self {
            Self::Exhausted => "exhausted",
            Self::Share => "share",
            Self::Reserved => "reserved",
            Self::Paced => "paced",
            Self::Guard => "guard",
            Self::OverCap => "over-cap",
            Self::NoWindow => "no-window",
            Self::Full => "full",
        }
    }
}

/// Which bound an operation breaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Malformed {
    #[error("no leg, or more than are allowed")]
    Legs,
    #[error("a bucket stands in two legs")]
    Twice,
    #[error("a seq is 0 or over 2^53")]
    Seq,
    #[error("less is wanted than is needed")]
    Want,
    #[error("a count is over its bound")]
    Count,
    #[error("a weight, demand, floor or ceiling is out of bounds")]
    Share,
    #[error("only slots of concurrency are renewed")]
    Renewal,
    #[error("a page is empty or too long")]
    Page,
}

/// A bucket as an operator sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BucketView {
    pub key: BucketKey,
    pub rule: Rule,
    /// Units that count against the cap now.
    pub used: u64,
    /// Units that could be granted now, if nobody's share, no reserve and no park stood against it.
    pub room: u64,
    pub generation: u64,
    /// The limit that the provider's headers told, where that is lower than the rule's.
    pub limit_seen: Option<u32>,
    pub park: Option<ParkView>,
    /// Thousandths of the rate that are released; 1000 unless a park was not long ago.
    pub alpha_milli: u16,
    /// Thousandths of a unit per second and weight; `None` while nobody wants more than there is.
    pub lambda_milli: Option<u64>,
    pub tenants: u32,
    pub learning_ms: Option<u64>,
    /// Who holds live leases, the largest first; at most [`HOLDERS_SHOWN_MAX`].
    pub holders: Vec<HolderView>,
    /// Why one unit would be refused now to a tenant that has had nothing, if it would be.
    pub refusal: Option<RefusalView>,
}

/// Most holders of one bucket in a view.
pub const HOLDERS_SHOWN_MAX: usize = 32;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ParkView {
    pub ms: u64,
    pub why: Why,
}

/// What one holder has of a bucket, over all tenants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HolderView {
    pub holder: HolderId,
    pub units: u64,
    /// Until the last of its leases ends.
    pub ttl_ms: u64,
}

/// Why a call would be refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RefusalView {
    Parked { ms: u64, why: Why },
    Learning { ms: u64 },
    Denied { retry_ms: u64, why: Denial },
}

/// Nobody could be asked. Whether the operation was done is unknown, unless the variant says that it was not: the
/// holder sends it again with the same `seq`, or counts what it asked for as spent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AskError {
    #[error("no answer in time")]
    Timeout,
    #[error("connection to the store is gone")]
    Gone,
    /// Not done: the store refuses writes, because it is a replica, or cannot make them durable.
    #[error("the store takes no writes")]
    ReadOnly,
    /// Not done: the store speaks another version of the protocol, or an answer cannot be read.
    #[error("the store speaks another version")]
    Version,
    /// Not done: too many operations wait already.
    #[error("too many operations wait for the store")]
    Busy,
    /// The store is out of memory, disk or order, in its own words; bounded, not for a label.
    #[error("the store failed: {0}")]
    Store(&'static str),
}
