//! `tidegate egress ranges`: what is said in public of the addresses that calls leave from.
//!
//! Everything works on the book's file and needs no running appliance; one that runs takes the new version within a
//! second.

mod change;
mod export;
mod key;
mod read;
mod verify;

use std::path::Path;

use domain::text::Untrusted;
use egress::ranges::file::{self, BookFault};
use egress::ranges::{Book, Published};

use super::super::Shell;
use super::super::args::EgressRanges;
use super::super::exit::{Failure, Outcome};

pub(super) fn run(command: &EgressRanges, shell: &mut Shell<'_>) -> Outcome {
    match command {
        EgressRanges::Announce(args) => change::announce(args, shell),
        EgressRanges::Activate(args) => change::activate(args, shell),
        EgressRanges::Drain(args) => change::drain(args, shell),
        EgressRanges::Retire(args) => change::retire(args, shell),
        EgressRanges::Withdraw(args) => change::withdraw(args, shell),
        EgressRanges::Renew(args) => change::renew(args, shell),
        EgressRanges::List(args) => read::list(args, shell),
        EgressRanges::History(args) => read::history(args, shell),
        EgressRanges::Export(args) => export::run(args, shell),
        EgressRanges::Import(args) => read::import(args, shell),
        EgressRanges::Verify(args) => verify::run(args, shell),
        EgressRanges::Key(args) => key::run(args, shell),
    }
}

/// A book that cannot be read. What was promised is in it: nobody is told to delete it.
fn unread(fault: &BookFault) -> Failure {
    let next = match fault {
        BookFault::Io { .. } => "whoever runs the appliance owns it: run this as that user",
        BookFault::Damaged { .. } => {
            "put back a whole copy, of another node or of a backup; nothing was written over it"
        }
    };
    Failure::failed(Untrusted::with_limit(fault.to_string().as_bytes(), 1024), next)
}

fn book(path: &Path) -> Outcome<Option<Book>> {
    file::read(path).map_err(|fault| unread(&fault))
}

fn published(path: &Path) -> Outcome<Option<Published>> {
    Ok(book(path)?.and_then(Published::of))
}

fn shown(path: &Path) -> String {
    Untrusted::with_limit(path.as_os_str().as_encoded_bytes(), 1024).to_string()
}

#[cfg(test)]
mod tests;
