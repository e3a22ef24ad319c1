//! Runaways: a connection or an automation that suddenly wants ten times what it ever wanted.
//!
//! **What is guaranteed.** Whoever wants more than ten times its own baseline is throttled to twice that baseline
//! within 60 seconds, and paused when it still wants that much ten minutes later, until an operator resumes it. Growth
//! that its own history explains, an hour that is busy every day, and a spike that was announced are left alone.
//!
//! **Wanted, not granted.** What is counted is attempts, before any limiter had its say. Counting grants would let the
//! throttle hide what it throttles: two samples later the runaway would look cured, be let go, and run away again.
//!
//! **Samples.** The monotonic clock is cut into pieces of 20 seconds. A piece is *over* when three times its count is
//! above the trigger, which is what a minute at that pace would have. Two pieces over in a row throttle; the second need not
//! end first, since a count that is over only grows. From any beginning it takes a part of a piece that may show nothing
//! and two whole ones, hence 60 seconds; a trailing minute, the obvious other way, would need 80.
//!
//! **The baseline** of a key, per minute, is the largest of
//!
//! - the median of the counts at this hour of the day on the last seven days: a nightly export is no runaway;
//! - the mean of all hours that are known of the last seven days;
//! - the floor, 60 a minute: nobody is throttled for less than ten calls a second.
//!
//! Before 24 hours are known, the plan's default stands in for it, and the floor holds as well. An hour in which the key
//! was throttled, paused, or announced as a spike is not learned, else a runaway would raise what it is measured by.
//! Nor is one of which only a part was seen.
//!
//! **Cost.** A key is some 250 bytes ([`baseline`] has each hour in one); an attempt is one look-up and a few
//! comparisons; the baseline is worked out once an hour, at the first attempt in it. No timer runs. A key that has not
//! been seen for seven days is forgotten, and so is one that makes room for its tenant's newest: the one that was silent
//! for longest, never a throttled, paused or announced one. A key without room is not watched, and counted.
//!
//! **Clocks.** Samples, the throttle's ten minutes and silence go by the monotonic clock. The hour of the week goes by the
//! wall clock. Where it moves by more than a minute otherwise than the monotonic clock, it has stepped: the hour in progress
//! is not learned, and hours that it skipped are unknown instead of idle, so that no step can lower a baseline. An
//! announcement ends by the wall clock, whatever that does.
//!
//! **Restarts.** A record ([`Runaways::record`]) holds the hours, the part of the present one, the throttle or pause and the
//! announcement; the two samples begin anew. Each node watches what passes through it, against what passed through it.
//!
//! **The caller's part** is to ask at each attempt, to enforce the rate of [`Verdict::Throttled`] (a
//! [`Rate`](crate::Rate) for its limiter), to refuse under [`Verdict::Paused`], and to log each [`Event`]: each comes once.

pub mod baseline;
mod record;
mod table;
mod watch;

pub use record::{BadRecord, RECORD_BYTES};
pub use table::{BadSpike, Restored, Runaways, Seen, Spike, View};
pub use watch::{Event, Rules, Verdict};

#[cfg(test)]
mod tests;
