//! `tidegate log …`: the log's files.

mod stat;
mod verify;

pub(super) use stat::{bytes, stat};
pub(super) use verify::verify;
