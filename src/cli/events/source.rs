//! Where events are read from: the running appliance, which knows what is durable now, else its log's directory.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use domain::text::Untrusted;
use domain::{Clock, NodeId};
use eventlog::{EmbeddedLog, EventLog};

use super::super::Shell;
use super::super::args::Place;
use super::super::block_on;
use super::super::exit::{Failure, Outcome};
use super::super::running::{self, Reach};
use crate::control::client::{Client, ClientError};
use crate::control::read::{self, Ended, Sink};
use crate::control::socket::knock;
use crate::control::wire::{Aside, EventLine, Find, LogStat, Query, Said, Stat};

/// A log that can be read.
#[derive(Debug)]
pub(crate) enum Source {
    Node(PathBuf),
    Directory(EmbeddedLog),
}

impl Source {
    /// The running appliance; without one, the directory of its log, and a remark that says so.
    pub(crate) fn open(place: &Place, shell: &mut Shell<'_>) -> Outcome<Self> {
        if let Some(directory) = &place.log {
            return open_directory(directory, &shell.clock);
        }
        let socket = place.socket.as_deref();
        match running::reach(socket, &place.config, |places| places.log_directory.as_ref(), shell)? {
            Reach::Node(socket) => Ok(Self::Node(socket)),
            Reach::Directory(directory) => open_directory(&directory, &shell.clock),
        }
    }

    /// The running appliance and nothing else.
    pub(crate) fn open_live(place: &Place, shell: &mut Shell<'_>) -> Outcome<Self> {
        if place.log.is_some() {
            return Err(needs_node("--log reads a directory", "tail waits for what is committed"));
        }
        Ok(Self::Node(running::socket(place.socket.as_deref(), &place.config, shell)?))
    }

    /// Gives each line that the query asks for to `take`, and each remark on them.
    pub(crate) fn each(&self, query: &Query, take: &mut dyn FnMut(Said<EventLine>) -> Outcome<()>) -> Outcome<()> {
        match self {
            Self::Node(socket) => block_on(async {
                let mut client = Client::connect(socket).await.map_err(|error| unanswered(&error))?;
                let mut lines = client.stream("/v1/events", query).await.map_err(|error| unanswered(&error))?;
                while let Some(said) = lines.next_said().await.map_err(|error| unanswered(&error))? {
                    take(said)?;
                }
                Ok(())
            }),
            Self::Directory(_) if query.held => Err(holding_needs_node()),
            Self::Directory(log) => match read::events(log, query, &mut Take(take)) {
                Ok(()) => Ok(()),
                Err(Ended::Stopped(failure)) => Err(failure),
                Err(Ended::Unreadable(fault)) => Err(unreadable(&fault)),
            },
        }
    }

    pub(crate) fn find(&self, find: &Find) -> Outcome<Option<EventLine>> {
        match self {
            Self::Node(socket) => block_on(async {
                let mut client = Client::connect(socket).await.map_err(|error| unanswered(&error))?;
                client.ask("/v1/event", find).await.map_err(|error| unanswered(&error))
            }),
            Self::Directory(_) if find.held => Err(holding_needs_node()),
            Self::Directory(log) => read::find(log, find).map_err(|fault| unreadable(&fault)),
        }
    }

    pub(crate) fn stat(&self) -> Outcome<LogStat> {
        match self {
            Self::Node(socket) => block_on(async {
                let mut client = Client::connect(socket).await.map_err(|error| unanswered(&error))?;
                let stat: Stat = client.get("/v1/stat").await.map_err(|error| unanswered(&error))?;
                stat.log.ok_or_else(|| Failure::plain("this node takes no deliveries: its file has no [gateway] table"))
            }),
            Self::Directory(log) => Ok(log.stat().into()),
        }
    }
}

/// Lines to a closure.
struct Take<'a>(&'a mut dyn FnMut(Said<EventLine>) -> Outcome<()>);

impl Sink for Take<'_> {
    type Stop = Failure;

    fn take(&mut self, line: EventLine) -> Outcome<()> {
        (self.0)(Said::Item(line))
    }

    fn aside(&mut self, aside: Aside) -> Outcome<()> {
        (self.0)(Said::Aside(aside))
    }

    fn caught_up(&mut self) -> Outcome<()> {
        Err(needs_node("a directory is read as it is now", "following waits for what is committed"))
    }
}

fn open_directory(directory: &Path, clock: &Arc<dyn Clock>) -> Outcome<Source> {
    // Which node reads says nothing about which node wrote: records carry their own.
    let next = "name its directory with --log or its configuration with --config, as a user that may read it";
    let log = EmbeddedLog::open_read_only(directory, NodeId::default(), Arc::clone(clock)).map_err(|error| {
        Failure::failed(format_args!("could not open the log in {}: {error}", shown(directory)), next)
    })?;
    // Somebody else's directory has no lanes, and to say that no events are in it would mislead.
    if log.stat().lanes.is_empty() {
        return Err(Failure::failed(format_args!("there is no log in {}", shown(directory)), next));
    }
    Ok(Source::Directory(log))
}

/// Is nobody behind this socket? Whatever else may be wrong with it is said by whoever uses it.
pub(crate) fn is_absent(socket: &Path) -> bool {
    let probe = knock(socket).map_err(|error| io::Error::from(error).kind());
    matches!(probe, Err(io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused))
}

pub(crate) fn needs_node(what: &str, why: &str) -> Failure {
    Failure::usage(format_args!("{what}, and {why}"), "leave --log out, and start the appliance with `tidegate run`")
}

fn holding_needs_node() -> Failure {
    Failure::failed("what is held is known to a running appliance only", "start it with `tidegate run`")
}

fn unreadable(fault: &str) -> Failure {
    Failure::failed(fault, "`tidegate log verify` says what is damaged and where")
}

pub(crate) fn shown(path: &Path) -> String {
    Untrusted::with_limit(path.as_os_str().as_encoded_bytes(), 1024).to_string()
}

/// Why the appliance did not answer, and what to do about it.
pub(crate) fn unanswered(error: &ClientError) -> Failure {
    let next = match error {
        ClientError::Absent { .. } => "start it with `tidegate run`; --socket or --config names another one",
        ClientError::Denied { .. } => "run this as the user that the appliance runs as, or as root",
        ClientError::Busy { .. } => "ask again in a minute, and end commands that nobody reads, such as stopped tails",
        ClientError::Unreachable { .. } => "--socket or --config names another one",
        ClientError::Broken(_) => "see the appliance's log, and ask again",
        ClientError::Refused(_) => return Failure::plain(error),
    };
    Failure::failed(error, next)
}
