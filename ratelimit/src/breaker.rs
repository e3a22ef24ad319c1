//! Circuit breakers: who stops calling what does not work, and how calling begins again.
//!
//! **The words.** *Closed* admits, *Open* refuses, *`HalfOpen`* admits one probe at a time. A breaker belongs to a pair:
//! a tenant and a provider (a connector, or for ungoverned calls an authority). One more, for the fleet, belongs to a
//! provider alone ([`fleet`]).
//!
//! **What is guaranteed**
//!
//! - One tenant's broken destination never opens another's breaker: nothing is shared but the room in the table,
//!   and of that a tenant takes only its own part ([`Bounds`](crate::Bounds)).
//! - A breaker opens when at least `volume_min` calls were counted in the rolling window and `fault_percent` of them
//!   were faults, or at `consecutive_faults` in a row. Never by a park, a throttle, a 4xx or a caller that gave up.
//! - While Open, nobody calls; afterwards at most one probe is out at any time. A probe whose holder vanished is given
//!   up when its lease ends, so that nothing wedges: after any loss a pair is asked again within `open_max_ms` plus
//!   `probe_lease_ms`.
//! - Open survives a restart, whatever the wall clock did meanwhile ([`Breakers::record`], [`Breakers::restore`]).
//!
//! **Why entries begin with a fault.** The obvious design counts every call of every pair. With 100,000 tenants that
//! is a table of what works, which is nearly everything. Here a pair has no entry until its first counted fault, and
//! loses it again when nothing went wrong for `memory_ms`: memory is what fails now, a healthy pair costs one failed
//! look-up, and a handler that calls nobody costs nothing. The price: the ratio is *of the calls since the first
//! fault* in the window, not of those before it, so that for one window's length a busy pair is judged by fewer calls
//! than it made; `volume_min` still holds. Whether an entry was swept or is still there changes no answer.
//!
//! **Why late outcomes do not count.** A call that was admitted before the breaker opened ends when it is Open or
//! already `HalfOpen`; counting it would let an old timeout fail a probe that never ran, or close on an old success. Each
//! admission is a [`Ticket`], and only those of the present Closed period, or the very probe that is out, are heard.
//!
//! **Time.** All of it on the monotonic clock, in milliseconds; no timer runs, a state is worked out when asked. Callers
//! on several threads may come with slightly older moments: each difference saturates at zero, which prolongs a wait by
//! as much and no more.
//!
//! **At the bound.** A tenant with more broken destinations than it has room for loses its own closed entry with the
//! oldest fault; if all are open or probing, or the whole table is full, the new pair has no breaker and its calls
//! pass, counted in [`Breakers::untracked`]: a breaker spares waiting, it is no safety device.

pub mod fleet;
mod gate;
mod outcome;
mod record;
mod rules;
mod table;
mod window;

pub use gate::{Phase, Refused, Ticket};
pub use outcome::{Fault, Faults, Outcome, Weight};
pub use record::{BadRecord, RECORD_BYTES};
pub use rules::{BadRules, Rules};
pub use table::{Breakers, Change, Restored, View};

#[cfg(test)]
mod tests;
