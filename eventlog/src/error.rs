//! What can go wrong, one enum per operation.

use domain::TenantId;

use crate::codec::DecodeError;
use crate::position::{Lane, Position};

/// Why an event was not acknowledged. It may be in the log all the same, except where the text says otherwise.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AppendError {
    /// As many appends wait as the settings allow. Nothing was stored.
    #[error("the queue of appends is full")]
    QueueFull,
    /// The disk is full, or its reserve is reached, and `when_full` says refuse. Nothing was stored.
    #[error("the disk that holds the log is full")]
    Full,
    /// Nothing can be committed at the moment.
    #[error("the log cannot commit: {reason}")]
    Unavailable { reason: String },
    /// The event is larger than a record may be. Nothing was stored, and nothing will be.
    #[error("the event is too large to store: {bytes} bytes of at most {bytes_max}")]
    TooLarge { bytes: u64, bytes_max: u64 },
    /// No such retention class in the settings. Nothing was stored.
    #[error("there is no retention class {class:?}")]
    UnknownRetention { class: String },
    /// The log was closed. Nothing was stored.
    #[error("the log is closed")]
    Closed,
}

impl AppendError {
    /// A bounded label for metrics.
    pub fn label(&self) -> &'static str {
        match self {
            Self::QueueFull => "queue-full",
            Self::Full => "disk-full",
            Self::Unavailable { .. } => "unavailable",
            Self::TooLarge { .. } => "too-large",
            Self::UnknownRetention { .. } => "unknown-retention",
            Self::Closed => "closed",
        }
    }
}

/// Why a read stopped. A reader that returned one of these is halted: it says the same again and yields nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// The record belongs to somebody else. It was not yielded.
    #[error("the record at {position} does not belong to the tenant {scope} that this read is for")]
    ScopeMismatch { position: Position, scope: TenantId },
    /// The index led to a record that does not say what the index says.
    #[error("the record at {position} is not the one that the index names")]
    IndexMismatch { position: Position },
    /// The bytes are intact, and are no event that this version can read.
    #[error("the record at {position} is no event: {fault}")]
    NotAnEvent { position: Position, fault: DecodeError },
    /// The log is damaged at this place. Records behind it may be readable: start behind it, on purpose.
    #[error("the log is damaged in lane {lane}, segment {segment}, offset {offset}: {reason}")]
    Damaged { lane: Lane, segment: String, offset: u64, reason: String },
    /// What was asked for has been trimmed: the retention is over, or the disk was full.
    #[error("{position} has been trimmed; what is left begins at {earliest}")]
    Trimmed { position: Position, earliest: Position },
    /// A place that this log never had: another log's, or one that was lost with a torn tail.
    #[error("{position} is not a place in this log")]
    NoSuchPlace { position: Position },
    /// The operating system said no.
    #[error("cannot read the log in lane {lane}: {reason}")]
    Unreadable { lane: Lane, reason: String },
}

/// Why a consumer's place was not committed or not read.
#[derive(Debug, thiserror::Error)]
pub enum GroupError {
    #[error("{0:?} is not a name of a consumer group: 1 to 64 letters, digits, '-' and '_'")]
    Name(String),
    #[error("there are {max} consumer groups already; remove one first")]
    TooMany { max: usize },
    #[error("the stored place of the group {group} is damaged: {reason}")]
    Damaged { group: String, reason: String },
    #[error("cannot keep the place of the group {group}")]
    Io { group: String, source: std::io::Error },
    #[error("cannot list consumer groups")]
    List { source: std::io::Error },
    /// This view of the log changes nothing.
    #[error("the log is open for reading only")]
    ReadOnly,
}

/// Why trimming failed. What was trimmed before stays trimmed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TrimError {
    #[error("cannot trim lane {lane}: {reason}")]
    Lane { lane: Lane, reason: String },
    #[error("the log is open for reading only")]
    ReadOnly,
}

/// Why the log did not close cleanly. Everything that was acknowledged is safe all the same.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("lane {lane} did not close cleanly: {reason}")]
pub struct CloseError {
    pub lane: Lane,
    pub reason: String,
}
