//! What is between an asker and an answer.

use redis::{ErrorKind, RedisError, RedisResult, Value};

use crate::quota::answer::AskError;

/// Why a Redis gave no answer: a closed list, each with a sentence for who operates it. What the server said in its own
/// words is not part of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Fault {
    #[error("no connection to Redis: nothing listens there, or the network does not reach it")]
    NotReached,
    #[error("Redis did not answer within the budget")]
    Slow,
    #[error("the connection to Redis was silent for too long and was given up")]
    Stalled,
    #[error("the connection to Redis was lost")]
    Lost,
    #[error("as many operations as are allowed wait for Redis already")]
    Busy,
    #[error("TLS with Redis failed: check its certificate, its name and who signed it")]
    Tls,
    #[error("Redis refuses the user or the password")]
    WrongPassword,
    #[error("the user may not do what quota needs: see the list of commands in the documentation")]
    NoPermission,
    #[error("this Redis is a replica: a failover is under way, or the address is that of a replica")]
    ReadOnly,
    #[error("Redis has fewer replicas in reach than min-replicas-to-write asks for")]
    NoReplicas,
    #[error("Redis is still loading its data")]
    Loading,
    #[error("Redis has reached maxmemory: give it more")]
    OutOfMemory,
    #[error("Redis may drop keys: set maxmemory-policy to noeviction")]
    Evicts,
    #[error("Redis cannot write to its disk")]
    Disk,
    #[error("another script keeps Redis busy")]
    Script,
    #[error("the replica has lost its primary")]
    MasterDown,
    #[error("the cluster does not serve this application's slot")]
    ClusterDown,
    #[error("the application's slot is being moved to another node of the cluster")]
    Moving,
    #[error("no sentinel knows the primary of that name")]
    NoPrimary,
    #[error("the function library was missing and is being loaded")]
    NoLibrary,
    #[error("the function library was of an older revision and is being replaced")]
    OldLibrary,
    #[error("Redis takes no function library: it is older than 7.0, or another library has its names")]
    NotLoaded,
    #[error("an answer cannot be read")]
    Unreadable,
    #[error("Redis failed in a way that has no name here")]
    Other,
}

impl Fault {
    /// What the crate and the server say, as one of ours.
    pub(super) fn of(error: &RedisError) -> Self {
        let kind = error.kind();
        if kind == ErrorKind::Io {
            return if error.is_timeout() { Self::Slow } else { Self::Lost };
        }
        if matches!(kind, ErrorKind::Parse | ErrorKind::UnexpectedReturnType) {
            return Self::Unreadable;
        }
        if kind == ErrorKind::RESP3NotSupported {
            return Self::NotLoaded;
        }
        match error.code().unwrap_or_default() {
            "READONLY" => Self::ReadOnly,
            "NOREPLICAS" => Self::NoReplicas,
            "LOADING" => Self::Loading,
            "OOM" => Self::OutOfMemory,
            "MISCONF" => Self::Disk,
            "BUSY" => Self::Script,
            "MASTERDOWN" => Self::MasterDown,
            "CLUSTERDOWN" => Self::ClusterDown,
            "MOVED" | "ASK" | "TRYAGAIN" => Self::Moving,
            "WRONGPASS" | "NOAUTH" => Self::WrongPassword,
            "NOPERM" => Self::NoPermission,
            "TGREVISION" => Self::OldLibrary,
            "TGEVICTS" => Self::Evicts,
            "ERR" if error.detail().is_some_and(|detail| detail.contains("Function not found")) => Self::NoLibrary,
            "ERR" if error.detail().is_some_and(|detail| detail.contains("unknown command")) => Self::NotLoaded,
            "ERR" if error.detail().is_some_and(is_about_permission) => Self::NoPermission,
            _ if kind == ErrorKind::AuthenticationFailed => Self::WrongPassword,
            _ => Self::Other,
        }
    }

    /// What a command was answered: an error of the server's may come as a value.
    pub(super) fn check(result: RedisResult<Value>) -> Result<Value, Self> {
        match result {
            Ok(Value::ServerError(error)) => Err(Self::of(&error.into())),
            result => result.map_err(|error| Self::of(&error)),
        }
    }

    /// Whether the connection is of no use any more, or leads to the wrong server.
    pub(super) fn ends_connection(self) -> bool {
        match self {
            Self::NotReached
            | Self::Stalled
            | Self::Lost
            | Self::Tls
            | Self::WrongPassword
            | Self::ReadOnly
            | Self::NoReplicas
            | Self::MasterDown
            | Self::Unreadable => true,
            Self::Slow
            | Self::Busy
            | Self::NoPermission
            | Self::Loading
            | Self::OutOfMemory
            | Self::Evicts
            | Self::Disk
            | Self::Script
            | Self::ClusterDown
            | Self::Moving
            | Self::NoPrimary
            | Self::NoLibrary
            | Self::OldLibrary
            | Self::NotLoaded
            | Self::Other => false,
        }
    }

    /// For who asked. What says that nothing was done was refused before anything was.
    pub(super) fn ask_error(self) -> AskError {
        match self {
            Self::Slow | Self::Stalled => AskError::Timeout,
            Self::NotReached | Self::Lost => AskError::Gone,
            Self::Busy => AskError::Busy,
            Self::ReadOnly | Self::NoReplicas | Self::MasterDown => AskError::ReadOnly,
            Self::NoLibrary | Self::OldLibrary | Self::NotLoaded => AskError::Version,
            // An operation whose answer cannot be read may have been done.
            Self::Unreadable => AskError::Store("an answer of Redis cannot be read"),
            Self::Tls => AskError::Store("TLS with Redis failed"),
            Self::WrongPassword => AskError::Store("Redis refuses the user or the password"),
            Self::NoPermission => AskError::Store("the user of Redis may not do what quota needs"),
            Self::Loading => AskError::Store("Redis is still loading its data"),
            Self::OutOfMemory => AskError::Store("Redis has reached maxmemory"),
            Self::Evicts => AskError::Store("Redis may drop keys: maxmemory-policy is not noeviction"),
            Self::Disk => AskError::Store("Redis cannot write to its disk"),
            Self::Script => AskError::Store("another script keeps Redis busy"),
            Self::ClusterDown => AskError::Store("the cluster does not serve this slot"),
            Self::Moving => AskError::Store("the slot is being moved to another node"),
            Self::NoPrimary => AskError::Store("no sentinel knows the primary"),
            Self::Other => AskError::Store("Redis failed"),
        }
    }
}

/// The function may be called, and a command in it may not: as Redis 7.0 says it, and as later ones do.
fn is_about_permission(detail: &str) -> bool {
    detail.contains("user executing the script can't run") || detail.contains("ACL failure in script")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_that_cannot_be_read_is_not_said_to_be_undone() {
        assert_eq!(Fault::Unreadable.ask_error(), AskError::Store("an answer of Redis cannot be read"));
        assert_eq!(Fault::NoLibrary.ask_error(), AskError::Version);
    }
}
