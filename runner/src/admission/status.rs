//! What an operator sees of admission: plain numbers.

use eventlog::Cursor;

use super::admit::Begun;
use crate::schedule::Waits;

/// Everything at one moment. Counters count from the start of the process.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Status {
    /// Why nothing is read, if so.
    pub halt: Option<Halt>,
    /// Where the reader is, and what was committed last.
    pub read: Cursor,
    pub committed: Cursor,
    /// Events in memory that are not through, and those of them that are under way.
    pub waiting: u64,
    pub under_way: u64,
    /// Receive time of the oldest event in memory, in milliseconds since the Unix epoch.
    pub oldest_unix_ms: Option<u64>,
    /// Tenants whose further events wait in the log, and tenants that cannot be admitted for the moment.
    pub skipped_tenants: u64,
    pub delayed_tenants: u64,
    pub events: u64,
    pub begun: Begun,
    /// Times that an event could not be admitted and was kept for later.
    pub failures: u64,
    /// Events that wait alone, since they could not be admitted; and dead letters: all that are kept, and those of this
    /// process' life.
    pub aside: u64,
    pub letters: u64,
    pub letters_made: u64,
    /// Places that were trimmed before they were read: events were lost.
    pub trimmed: u64,
    /// Damaged places that an operator let be passed.
    pub damage_skipped: u64,
    /// From an event's receipt to its runs' admission.
    pub delays: Waits,
}

/// Why nothing is read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Halt {
    pub reason: Box<str>,
    /// An operator has to do something; otherwise it is tried again.
    pub needs_operator: bool,
}
