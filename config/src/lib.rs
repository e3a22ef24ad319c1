//! Files to a validated snapshot: every fault at once, with file and line

pub mod scheme;
