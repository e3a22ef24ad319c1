//! Where events are read from: the running appliance, which knows what is durable now, else its log's directory.

use std::path::{Path, PathBuf};

use super::super::args::Place;
use super::super::block_on;
use super::super::exit::{Failure, Outcome};
use super::super::settings;
use crate::control::client::{Client, ClientError};
use crate::control::wire::{EventLine, Find, Query};

/// A log that can be read.
#[derive(Debug)]
pub(crate) enum Source {
    Node(PathBuf),
}

impl Source {
    /// The running appliance; without one, the directory of its log.
    pub(crate) fn open(place: &Place) -> Outcome<Self> {
        let socket = socket(place.socket.as_deref(), &place.config)?;
        Ok(Self::Node(socket))
    }

    /// The running appliance and nothing else.
    pub(crate) fn open_live(place: &Place) -> Outcome<Self> {
        if place.log.is_some() {
            return Err(needs_node("--log reads a directory", "tail waits for what is committed"));
        }
        Ok(Self::Node(socket(place.socket.as_deref(), &place.config)?))
    }

    /// Gives each line that the query asks for to `take`.
    pub(crate) fn each(&self, query: &Query, take: &mut dyn FnMut(EventLine) -> Outcome<()>) -> Outcome<()> {
        match self {
            Self::Node(socket) => block_on(async {
                let mut client = Client::connect(socket).await.map_err(|error| unanswered(&error))?;
                let mut lines = client.stream("/v1/events", query).await.map_err(|error| unanswered(&error))?;
                while let Some(line) = lines.next().await.map_err(|error| unanswered(&error))? {
                    take(line)?;
                }
                Ok(())
            }),
        }
    }

    pub(crate) fn find(&self, find: &Find) -> Outcome<Option<EventLine>> {
        match self {
            Self::Node(socket) => block_on(async {
                let mut client = Client::connect(socket).await.map_err(|error| unanswered(&error))?;
                client.ask("/v1/event", find).await.map_err(|error| unanswered(&error))
            }),
        }
    }
}

/// The control socket: named, or as the configuration has it.
pub(crate) fn socket(named: Option<&Path>, config: &Path) -> Outcome<PathBuf> {
    match named {
        Some(path) => Ok(path.to_owned()),
        None => Ok(settings::appliance(config)?.admin.socket),
    }
}

pub(crate) fn needs_node(what: &str, why: &str) -> Failure {
    Failure::usage(format_args!("{what}, and {why}"), "leave --log out, and start the appliance with `tidegate run`")
}

/// Why the appliance did not answer, and what to do about it.
pub(crate) fn unanswered(error: &ClientError) -> Failure {
    let next = match error {
        ClientError::Absent { .. } => "start it with `tidegate run`; --socket or --config names another one",
        ClientError::Denied { .. } => "run this as the user that the appliance runs as, or as root",
        ClientError::Broken(_) => "see the appliance's log, and ask again",
        ClientError::Refused(_) => return Failure::plain(error),
    };
    Failure::failed(error, next)
}
