//! Not now: when, at which level, and because of whom.

use crate::quota::answer::Denial;
use crate::quota::key::Level;
use crate::quota::op::Why;

/// A call that has to come again later. It spent nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Parked {
    /// From now, at least 1, spread a little so that not everybody comes again at the same moment.
    pub release_ms: u64,
    pub level: Level,
    /// Its place in the route, see [`super::Route::key`].
    pub leg: usize,
    pub reason: Reason,
}

/// Who is the reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Source {
    /// The provider said so, or an operator in its place.
    Provider,
    /// The platform's own counting.
    Quota,
}

impl Source {
    pub const fn word(self) -> &'static str {
        match self {
            Self::Provider => "provider",
            Self::Quota => "quota",
        }
    }
}

/// Why a call is parked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Reason {
    /// The bucket is parked.
    Park(Why),
    /// The centre refused.
    Denied(Denial),
    /// The centre may have forgotten something and listens.
    Learning,
    /// No answer within the time that the call could wait.
    Slow,
    /// The centre cannot be asked, and what is held is spent.
    Gone,
    /// As many calls wait, operations are under way or leases are remembered as may be.
    Busy,
    /// The node is about to end.
    Closing,
    /// The lease was over, or void, when the request was about to be written.
    Spoilt,
}

impl Reason {
    pub const ALL: [Self; 17] = [
        Self::Park(Why::Provider),
        Self::Park(Why::Exhausted),
        Self::Park(Why::Operator),
        Self::Denied(Denial::Exhausted),
        Self::Denied(Denial::Share),
        Self::Denied(Denial::Reserved),
        Self::Denied(Denial::Paced),
        Self::Denied(Denial::Guard),
        Self::Denied(Denial::OverCap),
        Self::Denied(Denial::NoWindow),
        Self::Denied(Denial::Full),
        Self::Learning,
        Self::Slow,
        Self::Gone,
        Self::Busy,
        Self::Closing,
        Self::Spoilt,
    ];

    /// The word in metrics and answers.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Park(why) => why.word(),
            Self::Denied(denial) => denial.word(),
            Self::Learning => "learning",
            Self::Slow => "slow",
            Self::Gone => "gone",
            Self::Busy => "busy",
            Self::Closing => "closing",
            Self::Spoilt => "spoilt",
        }
    }

    /// Its place in [`Self::ALL`].
    pub(super) const fn index(self) -> usize {
        match self {
            Self::Park(Why::Provider) => 0,
            Self::Park(Why::Exhausted) => 1,
            Self::Park(Why::Operator) => 2,
            Self::Denied(Denial::Exhausted) => 3,
            Self::Denied(Denial::Share) => 4,
            Self::Denied(Denial::Reserved) => 5,
            Self::Denied(Denial::Paced) => 6,
            Self::Denied(Denial::Guard) => 7,
            Self::Denied(Denial::OverCap) => 8,
            Self::Denied(Denial::NoWindow) => 9,
            Self::Denied(Denial::Full) => 10,
            Self::Learning => 11,
            Self::Slow => 12,
            Self::Gone => 13,
            Self::Busy => 14,
            Self::Closing => 15,
            Self::Spoilt => 16,
        }
    }

    /// For `source=` of the answer to the caller.
    pub const fn source(self) -> Source {
        match self {
            Self::Park(_) => Source::Provider,
            Self::Denied(_) | Self::Learning | Self::Slow | Self::Gone | Self::Busy | Self::Closing | Self::Spoilt => {
                Source::Quota
            }
        }
    }
}

impl Parked {
    pub fn source(&self) -> Source {
        self.reason.source()
    }
}
