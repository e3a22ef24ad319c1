//! `[egress.ranges]`: the book of exit ranges, by what terms it changes, and where it is published.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::issuer::{absolute, operator_reference};
use crate::form::{AtLine, Flag, Lined, List, Maybe, Span, address, path, settings, shown};
use crate::units::days;

settings! {
    /// What is said in public of the addresses that calls leave from.
    pub struct EgressRanges {
        /// The book: every exit range, its state, and how it came to it. `tidegate egress ranges` writes it, and nodes of a fleet have copies of one.
        book: PathBuf = "/var/lib/tidegate/state/egress-ranges.book".into(),
            shown(path(), "`egress-ranges.book` in `tenants.state_directory`"), restart,
            "One machine needs no other place. Where configuration is managed, name a file beside this one, so that every node publishes the same.";
        /// Whether the appliance refuses to let calls out where there is no book. Where there is one, every exit address has to be in a range of it that is active or draining, and there has to be a pool, whatever this says.
        required: bool = false, Flag, live,
            "Before the first range is announced there is nothing to hold anybody to. Set it afterwards: then a book that is lost is a fault and not a freedom.";
        /// Addresses on which the published document is served, and nothing else.
        listen: Vec<SocketAddr> = Vec::new(), List(address(), 0..=64), restart,
            "Nowhere: `tidegate egress ranges export` writes files for any web host.";
        /// How long a range is announced before a call may leave from it.
        notice: Duration = days(30), Span(Duration::ZERO..=days(366)), live,
            "Companies change their firewalls monthly, and some are told by a person.";
        /// How long a range is draining before it may be retired: for so long it is still ours.
        drain: Duration = days(30), Span(Duration::ZERO..=days(366)), live,
            "Who allows a range that we gave away lets strangers in, so the time to take it out is as long as that to put it in.";
        /// How long a document is valid. `tidegate egress ranges renew` makes another one of the same content.
        validity: Duration = days(180), Span(days(1)..=days(3660)), live,
            "Whoever gets an old document from somewhere else finds that out by then. It is renewed by a command a month, or by any change.";
        /// Reference to the private key that signs the document: `env:NAME`, `file:PATH` or `systemd-credential:NAME`.
        signing_key: Option<AtLine<String>> = None, Maybe(Lined(operator_reference())), live,
            "`egress-ranges.key.pem` in `tenants.state_directory`, which `tidegate egress ranges key --make` makes. Only the machine where the book is written needs it.";
    }
}

impl EgressRanges {
    /// References to files are meant relative to the file that they stand in.
    pub(crate) fn resolve_paths(&mut self, directory: &Path) {
        if self.book.is_relative() {
            self.book = directory.join(&self.book);
        }
        if let Some(key) = &mut self.signing_key {
            absolute(&mut key.value, directory);
        }
    }
}
