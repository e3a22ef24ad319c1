//! What an error of the server or of the way to it says about what was asked.

use domain::text::Untrusted;
use tokio_postgres::Error;

/// Why there is no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// Nothing was done, and the same may work in a moment.
    #[error("{0}")]
    Undone(Box<str>),
    /// Nobody knows whether it was done.
    #[error("{0}")]
    Unknown(Box<str>),
    /// Nothing was done: the server has no room.
    #[error("{0}")]
    Full(Box<str>),
    /// Nothing was done: a value that has to be unique is there already.
    #[error("{constraint} is there already")]
    Duplicate { constraint: Box<str> },
    /// Nothing was done, and nothing will be: a right or a table is missing.
    #[error("{0}")]
    Refused(Box<str>),
}

impl Fault {
    /// Of a statement, or of all that a transaction consists of.
    pub(crate) fn of(error: &Error) -> Self {
        let Some(said) = error.as_db_error() else {
            // The library tells what its own side did not like by other errors than what the way broke with, but not
            // whether anything had been sent by then.
            return Self::Unknown(shown(error));
        };
        let why = format!("{}: {}", said.code().code(), Untrusted::new(said.message().as_bytes())).into();
        match said.code().code() {
            "23505" => Self::Duplicate { constraint: said.constraint().unwrap_or_default().into() },
            // The disk, and a quota on it.
            "53100" => Self::Full(why),
            // A lock or a statement that took too long, a server that starts or stops, one that only reads.
            "55P03" | "57014" | "57P03" | "25006" => Self::Undone(why),
            // The session was ended, perhaps while it committed; the last is what CockroachDB says of such a commit.
            "57P01" | "57P02" | "57P04" | "57P05" | "25P03" | "40003" => Self::Unknown(why),
            code if code.starts_with("08") => Self::Unknown(why),
            // Serialization failures and deadlocks; connections or memory that are used up.
            code if code.starts_with("40") || code.starts_with("53") => Self::Undone(why),
            _ => Self::Refused(why),
        }
    }

    /// The same of what did nothing, so that its end is known whatever broke.
    pub(crate) fn of_nothing(error: &Error) -> Self {
        match Self::of(error) {
            Self::Unknown(why) => Self::Undone(why),
            known @ (Self::Undone(_) | Self::Full(_) | Self::Duplicate { .. } | Self::Refused(_)) => known,
        }
    }

    /// The connection could not be had, so that nothing was sent.
    pub(super) fn unreached(error: &dyn std::error::Error) -> Self {
        Self::Undone(shown(error))
    }
}

/// An error with its cause, bounded: some quote the server.
fn shown(error: &dyn std::error::Error) -> Box<str> {
    let text = match error.source() {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    };
    Untrusted::new(text.as_bytes()).to_string().into()
}
