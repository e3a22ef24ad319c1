//! The journal as its users see it, on the machine's own files and in memory.

mod basics;
pub(super) mod rig;
