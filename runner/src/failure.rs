//! The taxonomy of failures: small, stable, and each class says what to do next.

use std::fmt::Write;

macro_rules! classes {
    ($($(#[$doc:meta])* $name:ident = $number:literal, $code:literal, $remedy:ident, $title:literal, $action:literal;)+) => {
        /// Why a step failed. Codes and numbers are for ever.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum FailureClass {
            $($(#[$doc])* $name = $number,)+
        }

        impl FailureClass {
            pub const ALL: &'static [Self] = &[$(Self::$name,)+];

            /// As people script against it: kebab-case, never changed.
            pub fn code(self) -> &'static str {
                match self { $(Self::$name => $code,)+ }
            }

            /// As records have it.
            pub fn number(self) -> u8 {
                self as u8
            }

            pub fn remedy(self) -> Remedy {
                match self { $(Self::$name => Remedy::$remedy,)+ }
            }

            /// What happened, in a sentence.
            pub fn title(self) -> &'static str {
                match self { $(Self::$name => $title,)+ }
            }

            /// What to do next, in a sentence to the author.
            pub fn action(self) -> &'static str {
                match self { $(Self::$name => $action,)+ }
            }
        }
    };
}

/// What the engine does about a failure of this class.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Remedy {
    /// Tries again by itself, where that is safe.
    Retry,
    /// Nothing: the same request would fail again.
    Stop,
    /// Parks until the connection is made anew.
    Reconnect,
}

classes! {
    /// 5xx, or the provider's own word for it.
    ProviderUnavailable = 1, "provider-unavailable", Retry, "The provider failed.", "Wait; it is tried again. If it lasts, look at the provider's status page.";
    /// DNS, connecting, TLS.
    Unreachable = 2, "unreachable", Retry, "The provider could not be reached.", "Check the connection's address; it is tried again.";
    /// No answer in time.
    Timeout = 3, "timeout", Retry, "No answer came in time.", "Raise the node's timeout if the provider is slow by nature.";
    /// An answer that is not whole or makes no sense as HTTP.
    BrokenAnswer = 4, "broken-answer", Retry, "The answer broke off or was malformed.", "It is tried again; if it lasts, tell the provider, with the request id.";
    /// The provider says try again, in a way that is no throttle: a lock, a conflict of two writers.
    ContendedProvider = 5, "contended", Retry, "Something else was changing the same object.", "It is tried again; if it lasts, run fewer of these at once.";
    /// 400, 422, or the provider's word for it.
    InvalidRequest = 16, "invalid-request", Stop, "The provider did not accept the request.", "Compare the node's input with the provider's message, correct it, and re-run the node.";
    /// 404, 410.
    NotFound = 17, "not-found", Stop, "What the request names is not there.", "Check the id that the node used; it may have been deleted.";
    /// 403 that is no throttle.
    PermissionDenied = 18, "permission-denied", Stop, "The connection may not do this.", "Give the connection the right that the provider's message names, or use another connection.";
    /// 409, 412 for good.
    Conflict = 19, "conflict", Stop, "It is already there, or has changed meanwhile.", "Look whether the effect is there already; if so, nothing is left to do.";
    /// 413, 414, 431 or a limit of the provider's on size.
    TooLarge = 20, "too-large", Stop, "The request is larger than the provider takes.", "Send less, or in parts.";
    /// 402, or a plan that does not have it.
    PlanLimit = 21, "plan-limit", Stop, "The account's plan or balance does not allow it.", "Change the plan or the balance at the provider, then re-run the node.";
    /// 207, or a batch of which some entries were refused.
    PartlyDone = 22, "partly-done", Stop, "Part of it was done, and the rest was refused.", "The message says which part; do that part alone again, since a re-run of the whole node repeats what was done.";
    /// A success by its status that the connector's rules may call a failure by its body, of which only the beginning is kept.
    AnswerTooLarge = 23, "answer-too-large", Stop, "The answer is larger than is kept, and its connector tells success from failure by all of it.", "Ask the provider for less at a time. Whether it has done what it was asked for, look there.";
    /// 401 and the provider's codes for a dead credential.
    AuthenticationExpired = 32, "authentication-expired", Reconnect, "The connection's authentication is no longer good.", "Connect the account anew; the run goes on by itself then.";
    /// Egress refused it: a rule, a switch, a grant.
    PolicyRefused = 48, "policy-refused", Stop, "The way out does not allow this call.", "Ask the operator; `tidegate explain` with this URL says which rule it is.";
    /// The connection, action or automation that is named is not there any more.
    ConfigurationMissing = 49, "configuration-missing", Stop, "Something that the automation names is not configured.", "Put it back, or edit the automation.";
    /// A CEL expression failed, or gave what cannot be used there.
    ExpressionFailed = 50, "expression-failed", Stop, "An expression of the automation failed.", "Correct the expression; the message says where and with what.";
    /// The input does not fit the action's schema.
    InputInvalid = 51, "input-invalid", Stop, "The node's input does not fit the action.", "Correct the input; the message names the field.";
    /// A transient failure, as often as it may be tried.
    AttemptsExhausted = 52, "attempts-exhausted", Stop, "It was tried as often as it may be.", "Look at the attempts' own failures, then re-run the node.";
    /// The node's or the run's time was up.
    DeadlineExceeded = 53, "deadline-exceeded", Stop, "The deadline came first.", "Raise the deadline, or find out what took so long.";
    /// The event or the payload that it needs is past its retention.
    InputExpired = 54, "input-expired", Stop, "What the step needs is not kept any more, or was too large to be kept whole.", "Replay from a newer event, or raise the retention; of what is too large, ask the provider for less at a time.";
    /// Nobody knows whether the effect has happened.
    Ambiguous = 55, "ambiguous", Stop, "Nobody knows whether the effect has happened.", "Look at the provider, then choose: continue and accept a gap, or retry and accept a duplicate.";
    /// Authorisation, asked again, says no.
    NoLongerAuthorised = 56, "no-longer-authorised", Stop, "The run may not do this any more.", "Ask whoever took the right away; then re-run the node.";
    /// An answer that no rule knows.
    Unclassified = 255, "unclassified", Stop, "The provider answered in a way that is not known.", "Read the provider's message; tell us, so that its connector learns it.";
}

impl FailureClass {
    /// Whether an answer of this class leaves it open if the effect has happened: the provider took the request and failed
    /// on the way, or nobody knows what its answer means. Any other answer is the provider's word that nothing was done,
    /// or of [`FailureClass::PartlyDone`] that something was.
    pub fn leaves_doubt(self) -> bool {
        matches!(
            self,
            Self::ProviderUnavailable | Self::Timeout | Self::BrokenAnswer | Self::AnswerTooLarge | Self::Unclassified
        )
    }

    /// The class that a record has the number of.
    pub fn from_number(number: u8) -> Option<Self> {
        Self::ALL.iter().copied().find(|class| class.number() == number)
    }
}

/// The text of `docs/failures.md`.
pub fn failures_markdown() -> String {
    let mut out = INTRODUCTION.to_owned();
    for class in FailureClass::ALL {
        // Writing to a string does not fail.
        let _written = writeln!(
            out,
            "| [`{}`](#{}) | {} | {} |",
            class.code(),
            class.code(),
            class.title(),
            class.remedy().words()
        );
    }
    for class in FailureClass::ALL {
        let doubt = if class.leaves_doubt() {
            "\n\nAs an answer it leaves open whether the effect has happened: an unsafe action is not tried again for it."
        } else {
            ""
        };
        let _written = write!(
            out,
            "\n## {}\n\n**What happened.** {}\n\n**What the runner does.** {}\n\n**What to do.** {}{doubt}\n",
            class.code(),
            class.title(),
            class.remedy().sentence(),
            class.action(),
        );
    }
    out
}

const INTRODUCTION: &str = "\
# Failures

<!-- Made from runner/src/failure.rs; `TIDEGATE_BLESS=1 cargo test -p tidegate-runner failure` writes it anew. -->

Why a step failed has one of these classes. A class never changes its meaning, and its code is what scripts and filters may
rely on. Beside it stands the provider's own message, without secrets and at most 1 KiB of it.

A class comes from the connector's rules first ([connectors](connectors.md)), and then from the status of the answer. An
answer that neither knows is `unclassified`; how many are is in the metrics.

| code | what happened | what the runner does |
|---|---|---|
";

impl Remedy {
    fn words(self) -> &'static str {
        match self {
            Self::Retry => "tries again, where that is safe",
            Self::Stop => "stops",
            Self::Reconnect => "waits for a new connection",
        }
    }

    fn sentence(self) -> &'static str {
        match self {
            Self::Retry => {
                "It tries again by itself, with growing pauses, if the action is safe to do again or nothing was sent."
            }
            Self::Stop => {
                "Nothing: the same request would fail again. The run ends here, unless the node says `onFailure: continue`."
            }
            Self::Reconnect => {
                "It parks the run and marks the connection, tells once, and goes on when the account is connected anew."
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_and_numbers_are_distinct_and_read_back() {
        for (index, class) in FailureClass::ALL.iter().enumerate() {
            assert!(class.code().bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-'), "{class:?}");
            assert_eq!(FailureClass::from_number(class.number()), Some(*class));
            let others = &FailureClass::ALL[index + 1..];
            assert!(others.iter().all(|other| other.code() != class.code() && other.number() != class.number()));
            for sentence in [class.title(), class.action()] {
                assert!(sentence.ends_with('.') && sentence.len() > 10, "{class:?}: {sentence}");
            }
        }
        assert_eq!(FailureClass::from_number(0), None);
    }

    /// What is tried again is what may work later, and what leaves doubt is no word of the provider's that nothing was done.
    #[test]
    fn what_leaves_doubt_is_no_refusal() {
        for class in FailureClass::ALL.iter().filter(|class| class.leaves_doubt()) {
            // Two are answers that would be the same again, and are no word that nothing was done either.
            let is_unread = matches!(class, FailureClass::Unclassified | FailureClass::AnswerTooLarge);
            assert!(class.remedy() == Remedy::Retry || is_unread, "{class:?}");
        }
        assert!(!FailureClass::Unreachable.leaves_doubt() && !FailureClass::ContendedProvider.leaves_doubt());
    }

    #[test]
    fn the_document_is_what_the_code_says() {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).with_file_name("docs/failures.md");
        let made = failures_markdown();
        if std::env::var_os("TIDEGATE_BLESS").is_some() {
            std::fs::write(&path, &made).unwrap();
        }
        let written = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(
            written == made,
            "docs/failures.md is not what the code says: run TIDEGATE_BLESS=1 cargo test -p tidegate-runner failure"
        );
    }
}
