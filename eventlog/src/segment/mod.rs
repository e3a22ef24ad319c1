//! The segment layer: durable batches of opaque records in segment files. It knows no events.
//!
//! **What it guarantees.** A record whose append resolved survives power loss, unaltered, in the order of appends.
//! Nothing is acknowledged that is not durable. Nothing that is damaged is read without an error that names segment
//! and offset, and nothing is skipped without being asked. An append that failed promises nothing: its record may
//! turn out to be there, if its process ended before it could go on elsewhere.
//!
//! **How.** One thread writes. It takes everything that waits, encodes one batch, makes it durable with one write
//! (`O_DIRECT | O_DSYNC` into blocks that were written before, or a write and `fdatasync`), and tells everybody.
//! There is no timer: the next batch gathers meanwhile. A second thread prepares the next segment, seals the last
//! one, and looks at the free space, so that none of that is on the way of an acknowledgement.
//!
//! **Epochs.** Every process writes segments of an epoch of its own, one more than any before, and never continues
//! another's. Its lock file is locked before it can be seen and until the process ends, so that two processes of one
//! upgrade live side by side: the younger one reads the elder's epoch up to the last batch but one that it saw when
//! it opened (that one is surely durable) and waits there until the elder has ended; then it judges the rest. A
//! reader thus never passes a place where something may still be added. Sequences of streams are dense within an
//! epoch, and begin anew with the next: two writers cannot share a counter.
//!
//! **Recovery** in `scan.rs` and `epoch.rs`: a torn tail is cut, damage is named. The chain of hashes over batches
//! crosses segments, so that a lost tail of one shows in the next, and a batch that was given up after a failed sync
//! shows as not being the predecessor of anything.

mod aligned;
mod beginning;
mod catalog;
mod cursor;
mod damage;
mod endfile;
mod entry;
mod epoch;
mod eras;
mod first;
mod format;
mod fresh;
mod helper;
mod journal;
mod look;
mod make;
mod names;
mod near;
mod observer;
mod options;
mod position;
mod queue;
mod recover;
mod scan;
mod seal;
mod settle;
mod shared;
mod side;
mod stat;
pub mod storage;
mod trim;
mod trim_clock;
mod trim_mark;
mod trim_time;
mod verify;
mod view;
mod window;
mod writer;

pub use beginning::{Beginning, Gone, ParseBeginningError};
pub use catalog::{SegmentInfo, SegmentState};
pub use cursor::{Cursor, ReadError, Record};
pub use damage::{Damage, DamageKind};
pub use entry::{Append, AppendError, Appended, Check, CheckContext, Entry, Payload, Rejected};
pub use epoch::Torn;
pub use format::RecordView;
pub use journal::Journal;
pub(crate) use names::{KEPT_TIME, Name, parse as parse_name};
pub use near::Near;
pub use observer::{SegmentObserver, SideFile};
pub use options::{Backoff, InvalidOptions, Options, SyncMode, WhenFull};
pub use position::{ParsePositionError, Position, SegmentId};
pub use recover::{OpenError, Recovery};
pub use side::{SideReader, open_side};
pub use stat::{Fault, Stat};
pub use storage::{RealStorage, Storage};
pub use trim::Trimmed;
pub use verify::{Report, SegmentReport};
pub use view::View;

#[cfg(test)]
mod tests;
