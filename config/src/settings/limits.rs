//! `[limits]`: what a source that cannot prove itself may try, and how much tenants and endpoints may send.

use std::time::Duration;

use crate::form::{Bytes, Count, Maybe, Span, Table, bytes_rate, events_rate, settings};
use crate::rate::Rate;
use crate::units::{MIB, TIB, days, seconds};

settings! {
    /// Limits of the node, and what tenants and endpoints get that say nothing.
    pub struct NodeLimits {
        /// Failed verifications that a source address (IPv6: its /64) may cause.
        unauthenticated: Unauthenticated = Unauthenticated::default(), Table, restart, "";
        /// For each tenant that does not say otherwise.
        tenant: Limits = Limits::default(), Table, live, "";
        /// For each endpoint that does not say otherwise.
        endpoint: Limits = Limits::default(), Table, live, "";
    }

    /// The budget of sources that fail to prove themselves. Only failed verifications debit it.
    pub struct Unauthenticated {
        /// Failed verifications per minute and source, in the long run.
        failures_per_minute: u32 = 60, Count(1..=1_000_000), restart,
            "A provider with a wrong secret retries a few times an hour; one a second leaves room for hundreds of such endpoints behind one address.";
        /// Failed verifications of a source at once.
        burst: u32 = 120, Count(1..=1_000_000), restart,
            "A rotation that went wrong fails a burst before somebody notices.";
        /// The same for a source that was verified recently, in a bucket of its own.
        verified_failures_per_minute: u32 = 6_000, Count(1..=10_000_000), restart,
            "Many endpoints share a provider's addresses: one wrong secret among them must not shut out the rest.";
        /// Failed verifications at once of a source that was verified recently.
        verified_burst: u32 = 12_000, Count(1..=10_000_000), restart,
            "Two minutes' worth, as for everybody else.";
        /// How long a source counts as verified after a delivery that proved itself.
        verified_for: Duration = seconds(3600), Span(seconds(1)..=days(30)), restart,
            "Longer than the pauses of a provider that is in use.";
        /// Sources remembered at one time.
        sources_max: u32 = 65_536, Count(16..=16_777_216), restart,
            "About 100 bytes each, 6 MiB. At the bound nobody is forgotten: a newcomer is judged by the network around it.";
    }

    /// Events and bytes per second.
    pub struct Limits {
        /// Events per second, and how many at once.
        events: Option<Rate> = None, Maybe(events_rate()), live,
            "No limit that nobody chose: late bursts after a provider's outage are normal, and a limit would refuse them.";
        /// Bytes of bodies per second, and how many at once. A body above the burst passes only when nothing has been spent, and is then paid off.
        bytes: Option<Rate> = None, Maybe(bytes_rate()), live,
            "As for events; memory is bounded by `gateway.bytes_in_flight_max` all the same.";
        /// Bytes of a tenant that the log may hold. Of an endpoint it is refused: endpoints have no room of their own.
        stored_bytes_max: Option<u64> = None, Maybe(Bytes(MIB..=1024 * TIB)), live,
            "The disk's room is shared until an operator divides it.";
    }
}

impl Limits {
    /// Limits of nobody in particular: none.
    pub const NONE: Self = Self { events: None, bytes: None, stored_bytes_max: None };

    /// These limits, and for what they leave out those of `defaults`.
    #[must_use]
    pub fn or(&self, defaults: &Self) -> Self {
        Self {
            events: self.events.or(defaults.events),
            bytes: self.bytes.or(defaults.bytes),
            stored_bytes_max: self.stored_bytes_max.or(defaults.stored_bytes_max),
        }
    }

    pub fn is_none(&self) -> bool {
        *self == Self::NONE
    }
}
