//! Who looks on while it is decided: nobody on the path, `explain` at the command line.

use std::sync::Arc;

use domain::ConnectorId;

use super::Mode;
use super::rule::{Fit, Rule};
use super::ruling::List;

/// One thing that was looked at, in the order in which it was.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Note {
    /// A list, before its rules.
    List {
        /// Which one.
        list: List,
        /// How many rules it has; of those, the ones about other hosts are not looked at.
        rules: usize,
    },
    /// A rule whose hosts cover the one that is asked for, or whose zone it is.
    Rule {
        /// Where it stands.
        list: List,
        /// The rule.
        rule: Arc<Rule>,
        /// How it goes together with what is asked.
        fit: Fit,
    },
    /// The destinations of the grant.
    Grant {
        /// Whether one of them covers the host.
        covers: bool,
    },
    /// No allow rule speaks of the host: the list's mode decides.
    NoRule {
        /// It.
        mode: Mode,
    },
    /// A tunnel to a connector's host is asked for.
    Connector {
        /// Whose host it is.
        connector: ConnectorId,
        /// Whether the connector, or the rule that allows, takes tunnels.
        takes_tunnels: bool,
    },
}

/// Takes notes.
pub trait Witness {
    /// Whether notes are wanted at all: what is noted only for the reader is not looked up for nobody.
    const READS: bool = true;

    /// Takes one.
    fn note(&mut self, note: impl FnOnce() -> Note);
}

/// Takes none, and costs nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct Unseen;

impl Witness for Unseen {
    const READS: bool = false;

    fn note(&mut self, _: impl FnOnce() -> Note) {}
}

impl Witness for Vec<Note> {
    fn note(&mut self, note: impl FnOnce() -> Note) {
        self.push(note());
    }
}
