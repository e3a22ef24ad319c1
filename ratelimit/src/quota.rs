//! Leases of other companies' limits.
//!
//! A provider counts the platform at several levels at once: the connection, the application that tenants share, a
//! region, a source address. Each limit is a **bucket**. A node holds **leases**, blocks of units of buckets, and
//! spends one unit of every level for a call without asking anybody; a **centre** grants leases.
//!
//! What is here is the protocol between the two and the centre; holders are elsewhere. The words:
//!
//! | word | meaning |
//! |---|---|
//! | bucket | one limit of one application: [`BucketKey`], counted by a [`Rule`] |
//! | holder | one start of one process ([`HolderId`]); a **lessee** is a holder on behalf of a tenant |
//! | lease | units that a lessee may spend for a while: [`Lease`] |
//! | `seq` | fence against operations that arrive twice or late, per lessee and bucket |
//! | `gen` | fence against leases from before a park, a cut of the cap or a reset, per bucket |
//! | `wid` | which window a lease is of |
//! | tally | what a lessee was granted in a window, kept by the holder: [`Tally`] |
//! | park | until when nothing is granted |
//! | λ | units per second and weight that each tenant may have of an application while more is wanted than there is |

mod answer;
mod centre;
#[cfg(any(test, feature = "test-util"))]
pub mod conformance;
mod core;
pub mod holder;
mod in_process;
mod journal;
mod key;
mod name;
mod op;
#[cfg(feature = "redis")]
pub mod redis;
mod rule;
#[cfg(any(test, feature = "test-util"))]
pub mod sim;

pub use answer::{
    Answer, AskError, BucketView, Denial, HOLDERS_SHOWN_MAX, HolderView, Lease, Malformed, ParkView, RefusalView, Reply,
};
pub use centre::Centre;
pub use core::{BUCKETS_MAX, Change, Core, Epoch, JOURNALLED_MS, Memory, SweepCursor, Touched, is_journalled};
pub use in_process::{InProcess, Life};
pub use journal::{NOTE_KEY_BYTES_MAX, NOTE_VALUE_BYTES_MAX, NOTES_MAX, NoteBytes, NoteError, NoteKind, OpenError};
pub use key::{Application, BucketKey, BucketName, InvalidBucket, Level};
pub use name::{HolderId, InvalidName, NAME_BYTES_MAX, Name};
pub use op::{
    Acquire, Body, Class, DEMAND_MILLI_MAX, Describe, GiveBack, LEGS_MAX, Leg, Lessee, Metered, Observe, Op, PAGE_MAX,
    PARK_MS_MAX, Penalise, Renew, Settle, Share, Slots, Tally, Unspent, WEIGHT_MAX, Why,
};
pub use rule::{
    CAP_MAX, GUARD_MS_MAX, InvalidRule, Kind, LEASE_MS_MAX, Pace, Rule, RuleSpec, SLOTS_MAX, WINDOW_MS_MAX,
};
