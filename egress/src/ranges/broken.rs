//! The rules, as what they say to whoever would break one: what, a word for machines, and what to do next.

use std::net::IpAddr;

use super::change::At;
use super::prefix::Prefix;
use super::range::State;
use super::words::{Country, Region};

/// Changes of one book: a range a week, there and back, for ten years. Its documents stay below 1 MiB.
pub(super) const CHANGES_MAX: usize = 4096;

/// Ranges that are not retired: more than any firewall takes gladly.
pub(super) const LIVE_MAX: usize = 512;

/// Why a change is against the rules.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Broken {
    #[error("{0} is not in the book")]
    Unknown(Prefix),
    #[error("{prefix} is not in the book; {near} is")]
    Near { prefix: Prefix, near: Prefix },
    #[error("{prefix} overlaps with {other}, which is {state}")]
    Overlaps { prefix: Prefix, other: Prefix, state: State },
    #[error("{prefix} is not public: {around} is {name}")]
    Special { prefix: Prefix, around: ipnet::IpNet, name: String },
    #[error("{prefix} is {is}, and only what is {needs} can be {done}")]
    State { prefix: Prefix, is: State, needs: State, done: &'static str },
    #[error("{prefix} was promised not to be active before {from}")]
    ActiveTooEarly { prefix: Prefix, from: At },
    #[error("{prefix} was promised to stay ours until {from}")]
    RetiredTooEarly { prefix: Prefix, from: At },
    #[error("{prefix} holds {address}, from which the pool \"{pool}\" leaves")]
    StillUsed { prefix: Prefix, address: IpAddr, pool: Box<str> },
    #[error("{prefix} is the last active {} range of the pool \"{pool}\", which has calls leave from {address}", prefix.family())]
    LastActive { prefix: Prefix, address: IpAddr, pool: Box<str> },
    #[error("the region {region} is not in {country}")]
    Region { region: Region, country: Country },
    #[error("a region or a city is told with its country")]
    NoCountry,
    #[error("taking back an announcement is told with a reason")]
    NoReason,
    #[error("the clock says {now}, and the last change was at {last}")]
    Clock { now: At, last: At },
    #[error("the book has {max} changes, which is as many as it takes", max = CHANGES_MAX)]
    Full,
    #[error("the book has {max} ranges that are not retired, which is as many as it takes", max = LIVE_MAX)]
    Many,
    #[error("the book is empty: there is nothing to renew")]
    Empty,
}

impl Broken {
    /// A word for machines.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Unknown(_) | Self::Near { .. } => "range-unknown",
            Self::Overlaps { .. } => "range-overlaps",
            Self::Special { .. } => "range-not-public",
            Self::State { .. } => "range-state",
            Self::ActiveTooEarly { .. } => "notice-not-over",
            Self::RetiredTooEarly { .. } => "drain-not-over",
            Self::StillUsed { .. } => "range-in-use",
            Self::LastActive { .. } => "range-last-active",
            Self::Region { .. } | Self::NoCountry => "place-unclear",
            Self::NoReason => "reason-missing",
            Self::Clock { .. } => "clock-behind",
            Self::Full | Self::Many => "book-full",
            Self::Empty => "book-empty",
        }
    }

    /// What to do next.
    pub fn next(&self) -> String {
        const RANGES: &str = "tidegate egress ranges";
        match self {
            Self::Unknown(_) => format!("`{RANGES} list` shows what is; `{RANGES} announce` begins"),
            Self::Near { near, .. } => format!("a range changes as the whole that it was announced as: name {near}"),
            Self::Overlaps { other, .. } => {
                format!("nothing has to be said twice; to divide {other}, drain and retire it first")
            }
            Self::Special { .. } => {
                "no provider sees calls from there: publish what the translator makes of it, or say private = true of the pool"
                    .into()
            }
            Self::State { prefix, is, .. } => match is {
                State::Announced => format!("`{RANGES} activate {prefix}` when its notice is over"),
                State::Active => format!("`{RANGES} drain {prefix}` comes next"),
                State::Draining => format!("`{RANGES} retire {prefix}` comes next"),
                State::Retired => format!("`{RANGES} announce {prefix}` begins anew"),
            },
            Self::ActiveTooEarly { .. } | Self::RetiredTooEarly { .. } => {
                "wait, or use --force with a --reason; everybody can read both in the document".into()
            }
            Self::StillUsed { address, .. } => {
                format!("take {address} out of the configuration first, and reload every node")
            }
            Self::LastActive { .. } => {
                "announce and activate another range for the pool first, or take its addresses out of the configuration".into()
            }
            Self::Region { .. } => "a region begins with its country, as US-CA does with US".into(),
            Self::NoCountry => "add --country".into(),
            Self::NoReason => "add --reason: who has put the range into a firewall wants to know".into(),
            Self::Clock { .. } => "set the clock of this machine right".into(),
            Self::Full => "begin another book in another file, and say so to those who read this one".into(),
            Self::Many => "announce fewer and wider ranges".into(),
            Self::Empty => format!("`{RANGES} announce` begins"),
        }
    }
}
