//! How a command ends: four exit codes that scripts can rely on, and errors that say what to do next.

use std::fmt;
use std::io;
use std::process::ExitCode;

/// What a command answered. The numbers are part of the stable face.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    /// Yes: done, it verifies, nothing is wrong.
    Yes,
    /// No: a refusal, a fault found, a delivery that does not verify.
    No,
    /// The command line makes no sense.
    Usage,
    /// The question could not be answered: a file, a socket or a server was not there.
    Failed,
}

impl Exit {
    pub(crate) fn code(self) -> u8 {
        match self {
            Self::Yes => 0,
            Self::No => 1,
            Self::Usage => 2,
            Self::Failed => 3,
        }
    }

    /// Yes if nothing was found, no otherwise.
    pub(crate) fn yes_if(good: bool) -> Self {
        if good { Self::Yes } else { Self::No }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.code())
    }
}

/// Why a command stopped early.
#[derive(Debug)]
pub(crate) enum Failure {
    /// Whoever read our output has gone (`tidegate events list | head`). Nothing to say, and nobody to say it to.
    PipeClosed,
    /// The command line makes no sense in a way that the argument parser cannot see.
    Usage(Complaint),
    /// Something that was needed was not there or did not work.
    Failed(Complaint),
}

/// What went wrong, and what to do about it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Complaint {
    pub(crate) what: String,
    pub(crate) next: Option<String>,
}

/// What every command returns.
pub(crate) type Outcome<T = Exit> = Result<T, Failure>;

impl Failure {
    pub(crate) fn usage(what: impl fmt::Display, next: impl fmt::Display) -> Self {
        Self::Usage(Complaint { what: what.to_string(), next: Some(next.to_string()) })
    }

    pub(crate) fn failed(what: impl fmt::Display, next: impl fmt::Display) -> Self {
        Self::Failed(Complaint { what: what.to_string(), next: Some(next.to_string()) })
    }

    /// For what speaks for itself.
    pub(crate) fn plain(what: impl fmt::Display) -> Self {
        Self::Failed(Complaint { what: what.to_string(), next: None })
    }

    /// An error of our own output stream.
    pub(crate) fn writing(error: &io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            Self::PipeClosed
        } else {
            Self::failed(format_args!("could not write the answer: {error}"), "is the disk of the output full?")
        }
    }

    pub(crate) fn exit(&self) -> Exit {
        match self {
            Self::PipeClosed => Exit::Yes,
            Self::Usage(_) => Exit::Usage,
            Self::Failed(_) => Exit::Failed,
        }
    }

    pub(crate) fn complaint(&self) -> Option<&Complaint> {
        match self {
            Self::PipeClosed => None,
            Self::Usage(complaint) | Self::Failed(complaint) => Some(complaint),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_the_stable_face() {
        let codes = [Exit::Yes, Exit::No, Exit::Usage, Exit::Failed].map(Exit::code);
        assert_eq!(codes, [0, 1, 2, 3]);
    }

    #[test]
    fn a_closed_pipe_is_quiet_and_a_full_disk_is_not() {
        let closed = Failure::writing(&io::Error::from(io::ErrorKind::BrokenPipe));
        assert_eq!((closed.exit(), closed.complaint()), (Exit::Yes, None));
        let full = Failure::writing(&io::Error::from(io::ErrorKind::StorageFull));
        assert_eq!(full.exit(), Exit::Failed);
        assert!(full.complaint().is_some());
    }
}
