//! How tunnels end.

use std::borrow::Cow;

use super::rule::Mismatch;
use crate::refusal::Refusal;

/// Why a tunnel ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum End {
    /// Both sides said that they were done, and everything was delivered.
    Finished,
    /// What it carried was not for its destination, which got none of it.
    Mismatch(Mismatch),
    /// Nothing passed in either direction for as long as that may be.
    Idle,
    /// The same, and what had come for one side was not taken by it.
    Stalled,
    /// It was as old as a tunnel may get.
    Lifetime,
    /// The caller's proof ran out.
    GrantExpired,
    /// It was ended from outside: the caller's proof was revoked, or a kill switch thrown.
    Revoked(Refusal),
    /// The appliance drains, and nothing was passing nor waiting for a reader.
    Drained,
    /// The appliance drains, and its deadline came while something was passing, or waiting for a reader.
    DrainDeadline,
    /// The client sent more than may be sent.
    SentTooMuch,
    /// The destination sent more than may come back.
    ReceivedTooMuch,
    /// The client's connection broke.
    ClientReset,
    /// The destination's connection broke.
    DestinationReset,
}

impl End {
    /// A stable word for records and metrics.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Finished => "finished",
            Self::Mismatch(_) => "mismatch",
            Self::Idle => "idle",
            Self::Stalled => "stalled",
            Self::Lifetime => "lifetime",
            Self::GrantExpired => "grant-expired",
            Self::Revoked(_) => "revoked",
            Self::Drained => "drained",
            Self::DrainDeadline => "drain-deadline",
            Self::SentTooMuch => "sent-too-much",
            Self::ReceivedTooMuch => "received-too-much",
            Self::ClientReset => "client-reset",
            Self::DestinationReset => "destination-reset",
        }
    }

    /// For the record: that word, or of a mismatch its own and what was shown.
    pub fn detail(&self) -> Cow<'static, str> {
        let Self::Mismatch(mismatch) = self else { return self.as_str().into() };
        format!("{}: {mismatch}", mismatch.reason()).into()
    }

    /// As a refusal; none where the tunnel did what it was there for, as long as it could. The caller has had its 200:
    /// this is for the record.
    pub fn refusal(&self) -> Option<Refusal> {
        match self {
            Self::Mismatch(Mismatch::Silent) => Some(Refusal::RequestTimeout),
            Self::Mismatch(_) => Some(Refusal::TunnelMismatch),
            Self::Idle | Self::Stalled => Some(Refusal::IdleTimeout),
            Self::GrantExpired => Some(Refusal::CallerUnknown),
            Self::Revoked(code) => Some(*code),
            Self::DrainDeadline => Some(Refusal::Overloaded),
            Self::SentTooMuch => Some(Refusal::BodyTooLarge),
            Self::ReceivedTooMuch => Some(Refusal::ResponseRefused),
            Self::Finished | Self::Lifetime | Self::Drained | Self::ClientReset | Self::DestinationReset => None,
        }
    }

    /// Whether something may have been cut off. A connection that ends so is reset where that can be done, since a clean
    /// end would look like the end of what was sent.
    pub fn is_abrupt(&self) -> bool {
        match self {
            // A pool that sees a clean end of an idle connection takes another one; a reset it may report as a fault.
            Self::Finished | Self::Idle | Self::Drained | Self::Mismatch(_) => false,
            Self::Stalled
            | Self::Lifetime
            | Self::GrantExpired
            | Self::Revoked(_)
            | Self::DrainDeadline
            | Self::SentTooMuch
            | Self::ReceivedTooMuch
            | Self::ClientReset
            | Self::DestinationReset => true,
        }
    }
}
