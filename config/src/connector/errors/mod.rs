//! What a provider's answers mean, as data: which of them are failures of which class, which of them say that the
//! credential is dead, and where the provider's own words stand.

mod build;
mod tables;

use super::action::StatusRange;
use super::quota::{HeaderIs, JsonPath};

pub(super) use build::build;
pub(super) use tables::ErrorsTable;

/// Of one provider. Empty where its answers mean no more than their status.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ErrorRules {
    /// When it was last compared with its sources: `YYYY-MM-DD`; may be empty.
    pub checked: Box<str>,
    pub sources: Box<[Box<str>]>,
    /// What of it no source says, in sentences.
    pub recalled: Box<[Box<str>]>,
    /// Where the provider's own words are: the first place that has some.
    pub message: Box<[JsonPath]>,
    /// Where more of them are: all that is there.
    pub details: Box<[JsonPath]>,
    /// The first that matches counts. Those that say that the credential is dead come first.
    pub rules: Box<[ErrorRule]>,
}

/// An answer that is a failure: all that it says must hold.
#[derive(Debug, Clone, PartialEq)]
pub struct ErrorRule {
    /// One of these; empty: any status of 400 and above.
    pub statuses: Box<[StatusRange]>,
    pub header: Option<HeaderIs>,
    pub body: Option<BodyTest>,
    pub class: ErrorClass,
}

impl ErrorRule {
    /// Whether it can be of an answer of this status.
    pub fn is_of(&self, status: u16) -> bool {
        if self.statuses.is_empty() { status >= 400 } else { self.statuses.iter().any(|range| range.holds(status)) }
    }
}

/// A place of a JSON body has something.
#[derive(Debug, Clone, PartialEq)]
pub struct BodyTest {
    pub path: JsonPath,
    /// The text, number or truth value there is one of these, or has one of `contains` in it without regard to case.
    /// Both empty: whatever it is, other than `null`, `false`, and an empty text, list or object.
    pub values: Box<[Box<str>]>,
    pub contains: Box<[Box<str>]>,
}

macro_rules! classes {
    ($($(#[$doc:meta])* $name:ident = $code:literal;)+) => {
        /// What an answer of a provider can mean. The codes are those of the runner's failures, whose document,
        /// `docs/failures.md`, says more.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum ErrorClass {
            $($(#[$doc])* $name,)+
        }

        impl ErrorClass {
            pub const ALL: &'static [Self] = &[$(Self::$name,)+];

            /// As it is written in manifests.
            pub fn code(self) -> &'static str {
                match self { $(Self::$name => $code,)+ }
            }
        }

        const fn class() -> crate::form::Choice<ErrorClass> {
            crate::form::Choice(&[$(($code, ErrorClass::$name),)+])
        }
    };
}
classes! {
    /// It failed, and may work later.
    ProviderUnavailable = "provider-unavailable";
    /// It took the provider too long.
    Timeout = "timeout";
    /// Something else was changing the same object.
    Contended = "contended";
    /// The request is not one that it takes.
    InvalidRequest = "invalid-request";
    /// What it names is not there.
    NotFound = "not-found";
    /// The credential is good, and may not do this.
    PermissionDenied = "permission-denied";
    /// It is there already, or has changed.
    Conflict = "conflict";
    TooLarge = "too-large";
    /// A plan, a balance or an allowance does not have it.
    PlanLimit = "plan-limit";
    /// Part of it was done.
    PartlyDone = "partly-done";
    /// The credential is dead.
    AuthenticationExpired = "authentication-expired";
}
