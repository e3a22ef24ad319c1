//! Exit ranges: which addresses calls leave from, said in public before it is so.
//!
//! ```text
//! command ─▶ book (rules, one entry a change) ─▶ document, text, geofeed, signature ─▶ listener, files
//!            book.rs, change.rs, file.rs          document.rs, published.rs              serve.rs
//!              └─▶ configuration: no exit address that is not published                  check.rs
//! ```
//!
//! **The book** is the source of truth, and it is the operator's: one file, in which each change is one line, from the
//! first to the last. Its state is what the changes come to, so nothing is in force that is not in its history. It is
//! written in one place and copied to every node of a fleet, which only read it. What was published with each version
//! is signed where the change is made and the signature stands in the line: nodes need no private key, and all of them
//! answer the same bytes.
//!
//! **The document** of a version follows from the entries up to it and from nothing else: no clock, no configuration, no
//! node. `announced ─▶ active ─▶ draining ─▶ retired`, each step not before the date that the document has named.

mod book;
mod broken;
mod change;
mod check;
mod document;
pub mod file;
mod metrics;
mod prefix;
mod published;
mod range;
mod serve;
mod uses;
mod verify;
mod words;

pub use book::{Book, Damage, Draft, Terms};
pub use broken::Broken;
pub use change::{At, Change, Entry, Policy};
pub use check::{BookFound, check, check_machine, needs_pool};
pub use document::{Document, Past};
pub use metrics::RangesMetrics;
pub use prefix::{Prefix, PrefixFault};
pub use published::{Label, Page, Published, Shelf, Unpublished};
pub use range::{Range, State};
pub use serve::{PublicSite, bounds};
pub use uses::Uses;
pub use verify::{Checked, DOCUMENT_BYTES_MAX, VerifyFault, verify};
pub use words::{City, Country, NoWord, PoolName, Reason, Region};

#[cfg(test)]
mod tests;
