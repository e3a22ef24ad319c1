//! The journal as its users see it, on the machine's own files and in memory.

mod basics;
mod crash;
mod damage;
mod full_start;
pub(super) mod rig;
mod space;
mod trimming;
