//! Where decision records are read from: the running appliance, which has those that are not on the disk yet, else the
//! directory of their store.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use domain::Clock;
use egress::Record;
use eventlog::records::RecordStore;
use eventlog::segment::RealStorage;

use super::super::super::Shell;
use super::super::super::args::EgressLog;
use super::super::super::block_on;
use super::super::super::events::source::{shown, unanswered};
use super::super::super::exit::{Failure, Outcome};
use super::super::super::running::{self, Reach};
use crate::control::client::Client;
use crate::control::egress::{EgressQuery, Found, records};
use crate::control::wire::Said;

#[derive(Debug)]
pub(super) enum Source {
    Node(PathBuf),
    Directory(RecordStore),
}

impl Source {
    /// The running appliance; without one, the directory of its records, and a remark that says so.
    pub(super) fn open(args: &EgressLog, shell: &mut Shell<'_>) -> Outcome<Self> {
        if let Some(directory) = &args.records {
            return open_directory(directory, &shell.clock);
        }
        let socket = args.socket.as_deref();
        match running::reach(socket, &args.config, |places| places.records_directory.as_ref(), shell)? {
            Reach::Node(socket) => Ok(Self::Node(socket)),
            Reach::Directory(directory) => open_directory(&directory, &shell.clock),
        }
    }

    /// Gives each record that the query asks for to `take`, and each remark on them.
    pub(super) fn each(&self, query: &EgressQuery, take: &mut dyn FnMut(Said<Record>) -> Outcome<()>) -> Outcome<()> {
        match self {
            Self::Node(socket) => block_on(async {
                let mut client = Client::connect(socket).await.map_err(|error| unanswered(&error))?;
                let lines = client.stream("/v1/egress/log", query).await;
                let mut lines = lines.map_err(|error| unanswered(&error))?;
                while let Some(said) = lines.next_said().await.map_err(|error| unanswered(&error))? {
                    take(said)?;
                }
                Ok(())
            }),
            Self::Directory(store) => records(store, query, &mut |found| match found {
                Found::Record(record) => take(Said::Item(*record)),
                Found::Aside(aside) => take(Said::Aside(aside)),
                Found::NothingYet => Ok(()),
            }),
        }
    }
}

fn open_directory(directory: &Path, clock: &Arc<dyn Clock>) -> Outcome<Source> {
    let failed = |why: &dyn std::fmt::Display| {
        Failure::failed(
            format_args!("could not open the records in {}: {why}", shown(directory)),
            "name their directory with --records or the configuration with --config, as a user that may read it",
        )
    };
    if !directory.is_dir() {
        return Err(failed(&"there is no such directory"));
    }
    let store = RecordStore::open_read_only(directory, Arc::new(RealStorage), Arc::clone(clock));
    store.map(Source::Directory).map_err(|error| failed(&error))
}
