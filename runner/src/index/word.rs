//! Numbers and words of the ledger's enums: numbers for rows and keys on disk, words for people and their scripts.
//! Both are for ever.

use crate::ledger::{Ambiguity, Choice, ParkReason, QueueClass, RunStatus, SendState};

macro_rules! words {
    ($($name:ident { $($variant:ident = $number:literal $word:literal),+ $(,)? })+) => {
        $(impl Word for $name {
            const ALL: &'static [Self] = &[$(Self::$variant),+];

            fn word(self) -> &'static str {
                match self { $(Self::$variant => $word),+ }
            }

            fn number(self) -> u8 {
                match self { $(Self::$variant => $number),+ }
            }
        })+
    };
}

/// A closed set of values, each with a number and a word that never change.
pub trait Word: Copy + 'static {
    const ALL: &'static [Self];

    /// Kebab-case.
    fn word(self) -> &'static str;

    fn number(self) -> u8;

    fn from_word(word: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|value| value.word() == word)
    }

    fn from_number(number: u8) -> Option<Self> {
        Self::ALL.iter().copied().find(|value| value.number() == number)
    }
}

words! {
    RunStatus {
        Queued = 1 "queued",
        Running = 2 "running",
        Parked = 3 "parked",
        NeedsAttention = 4 "needs-attention",
        Quarantined = 5 "quarantined",
        Succeeded = 6 "succeeded",
        Failed = 7 "failed",
        Cancelled = 8 "cancelled",
        TimedOut = 9 "timed-out",
        EndedAmbiguous = 10 "ended-ambiguous",
    }
    QueueClass {
        Interactive = 1 "interactive",
        Retry = 2 "retry",
        ParkedRelease = 3 "parked-release",
        Bulk = 4 "bulk",
    }
    ParkReason {
        Delay = 1 "delay",
        Backoff = 2 "backoff",
        Provider = 3 "provider",
        Quota = 4 "quota",
        Breaker = 5 "breaker",
        NeedsReconnect = 6 "needs-reconnect",
        Ambiguous = 7 "ambiguous",
        Unavailable = 8 "unavailable",
        Restart = 9 "restart",
    }
    SendState {
        NotSent = 1 "not-sent",
        PartiallySent = 2 "partially-sent",
        SentNoResponse = 3 "sent-no-response",
        Response = 4 "response",
    }
    Ambiguity {
        WorkerLost = 1 "worker-lost",
        NoAnswer = 2 "no-answer",
        ReadBack = 3 "read-back",
    }
    Choice {
        ContinueAcceptGap = 1 "continue-accept-gap",
        RetryAcceptDuplicate = 2 "retry-accept-duplicate",
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn check<W: Word + PartialEq + std::fmt::Debug>() {
        for value in W::ALL {
            assert_eq!(W::from_word(value.word()), Some(*value));
            assert_eq!(W::from_number(value.number()), Some(*value));
            assert!(value.word().bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-'), "{value:?}");
        }
        assert_eq!(W::ALL.iter().map(|value| value.word()).collect::<BTreeSet<_>>().len(), W::ALL.len());
        assert_eq!(W::from_number(0), None);
        assert_eq!(W::from_word("no such word"), None);
    }

    #[test]
    fn every_word_and_number_has_one_meaning() {
        check::<RunStatus>();
        check::<QueueClass>();
        check::<ParkReason>();
        check::<SendState>();
        check::<Ambiguity>();
        check::<Choice>();
    }
}
