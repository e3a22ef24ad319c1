//! Words of the ledger that are numbers in its records, for ever.

use super::CodecError;
use crate::ledger::record::{Ambiguity, Choice, ParkReason, QueueClass, RunStatus, SendState};

/// A word of the ledger that is a number in its records.
pub(super) trait Number: Sized {
    fn number(self) -> u8;
    fn from_number(number: u8) -> Option<Self>;

    fn read(number: u8) -> Result<Self, CodecError> {
        Self::from_number(number).ok_or_else(|| CodecError::malformed("it has a number that means nothing"))
    }
}

macro_rules! numbers {
    ($($name:ident { $($variant:ident = $number:literal),+ $(,)? })+) => {$(
        impl Number for $name {
            fn number(self) -> u8 {
                match self { $(Self::$variant => $number,)+ }
            }

            fn from_number(number: u8) -> Option<Self> {
                match number { $($number => Some(Self::$variant),)+ _ => None }
            }
        }
    )+};
}

numbers! {
    QueueClass { Interactive = 0, Retry = 1, ParkedRelease = 2, Bulk = 3 }
    SendState { NotSent = 0, PartiallySent = 1, SentNoResponse = 2, Response = 3 }
    Ambiguity { WorkerLost = 0, NoAnswer = 1, ReadBack = 2 }
    ParkReason {
        Delay = 0, Backoff = 1, Provider = 2, Quota = 3, Breaker = 4, NeedsReconnect = 5, Ambiguous = 6,
        Unavailable = 7, Restart = 8,
    }
    Choice { ContinueAcceptGap = 0, RetryAcceptDuplicate = 1 }
    RunStatus {
        Queued = 0, Running = 1, Parked = 2, NeedsAttention = 3, Quarantined = 4, Succeeded = 5, Failed = 6,
        Cancelled = 7, TimedOut = 8, EndedAmbiguous = 9,
    }
}
