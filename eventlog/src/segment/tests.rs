//! The journal as its users see it, on the machine's own files and in memory.

mod basics;
mod crash;
mod damage;
pub(super) mod rig;
mod space;
mod trimming;
