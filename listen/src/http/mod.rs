//! HTTP/1 as pure functions over bytes: no I/O, no clock, no allocation per field. The gate drives them; fuzzing
//! and property tests drive them too.

mod authority;
mod chunked;
pub(crate) mod field;
mod head;
mod parse;
mod target;

pub use authority::{Authority, parse_authority};
pub use chunked::{ChunkScan, TrailerLimits};
pub use head::{Head, HeadParts, Version};
pub use parse::{HeadLimits, HeadParser, Progress};
pub use target::{Form, Forms};

#[cfg(test)]
mod tests;
