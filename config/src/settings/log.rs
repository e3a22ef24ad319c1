//! `[log]` and `[holding]`: what is kept, where, how safely and for how long.

use std::path::PathBuf;
use std::time::Duration;

use crate::form::{Blocks, Bytes, Choice, Count, Flag, List, Span, Table, needed, path, settings, shown, text};
use crate::units::{GIB, KIB, MIB, TIB, days, seconds};

/// How an append is made durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SyncMode {
    /// `Direct` where the file system takes it, else `Fdatasync`.
    Auto,
    /// `O_DIRECT|O_DSYNC` writes into zeroed extents.
    Direct,
    /// Buffered writes and `fdatasync`.
    Fdatasync,
}

/// What happens when there is no room for another event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WhenFull {
    /// Deliveries are answered 503 and providers send them again.
    Refuse,
    /// The oldest segment goes, before its time.
    Trim,
}

settings! {
    /// The event log on this machine's disk.
    pub struct Log {
        /// Directory of the log's segments; best a file system of its own.
        directory: PathBuf = "/var/lib/tidegate/log".into(), path(), restart,
            "Where packages keep state. The control socket and the last good files of tenants go beside it.";
        /// Size of one segment file.
        segment_bytes: u64 = 64 * MIB, Blocks(MIB..=2 * GIB), restart,
            "Retention drops whole segments and a damaged one is set aside whole: small enough for both, large enough that opening the next one is rare.";
        /// Writers, each with a file of its own.
        shards: u16 = 1, Count(1..=64), restart,
            "One writer commits everything that waits in one write; a second one only helps where the disk takes parallel writes.";
        /// How an append is made durable.
        sync: SyncMode = SyncMode::Auto,
            Choice(&[("auto", SyncMode::Auto), ("direct", SyncMode::Direct), ("fdatasync", SyncMode::Fdatasync)]), restart,
            "Direct writes are the quickest durable ones where the file system takes them; both survive power loss.";
        /// What happens when there is no room.
        when_full: WhenFull = WhenFull::Refuse, Choice(&[("refuse", WhenFull::Refuse), ("trim", WhenFull::Trim)]), restart,
            "Providers send again what was refused; what was trimmed is gone although it was promised.";
        /// Bytes of the file system that are left free: below them the log counts as full.
        reserve_bytes: u64 = GIB, Bytes(0..=64 * TIB), restart,
            "A full file system stops more than the log; cleaning up needs room too.";
        /// Events that may wait for the writer.
        queue_records: u32 = 16_384, Count(16..=1_048_576), restart,
            "A quarter of a second at the peak of one core; behind a longer queue the provider has hung up before its turn.";
        /// Bytes of events that may wait for the writer.
        queue_bytes: u64 = 128 * MIB, Bytes(MIB..=64 * GIB), restart,
            "What a slow disk (100 MiB/s) writes in little more than a second.";
        /// Bytes of one durable write.
        batch_bytes_max: u32 = 4 << 20, Bytes(4 * KIB..=256 * MIB), restart,
            "Beyond a few MiB a write only gets longer, not more efficient, and everybody in it waits.";
        /// How long events are kept, by class. A tenant's file names one of them.
        retention: Vec<RetentionClass> = vec![RetentionClass { name: "default".into(), age: days(30) }],
            shown(List(Table, 1..=16), "one class, `default`, of `\"30d\"`"), restart,
            "30 days cover a month-end and the longest outage that anybody wants to replay. The first class is that of tenants that name none.";
    }

    /// One length of time for which events are kept. Each class has a log of its own.
    pub struct RetentionClass {
        /// Name of the class: letters, digits, `-` and `_`.
        name: String = String::new(), needed(class_name()), restart, "Tenants' files refer to it.";
        /// Age at which an event may go.
        age: Duration = Duration::ZERO, needed(Span(Duration::ZERO..=days(3660))), restart,
            "It is a promise to your tenants, so nobody else can choose it.";
    }

    /// Deliveries that failed verification, kept apart within a budget for a second look.
    pub struct Holding {
        /// Whether failed deliveries are kept at all.
        enabled: bool = true, Flag, restart,
            "A secret that was rotated on one side only is found out afterwards; what is held can then be promoted.";
        /// Held deliveries per endpoint.
        records_per_endpoint_max: u32 = 1_000, Count(0..=1_000_000), restart,
            "A busy endpoint's hour, and too few for a forger to fill anything.";
        /// Bytes of held deliveries per endpoint.
        bytes_per_endpoint_max: u64 = 8 * MIB, Bytes(0..=16 * GIB), restart,
            "1,000 deliveries of 8 KiB.";
        /// Bytes of held deliveries on the node.
        bytes_max: u64 = 256 * MIB, Bytes(0..=TIB), restart,
            "32 endpoints can go wrong at once and keep everything; on any disk it is small.";
        /// Age at which a held delivery goes.
        age: Duration = days(7), Span(seconds(60)..=days(365)), restart,
            "A fault of Friday night is still there on Monday.";
    }
}

pub(crate) const fn class_name() -> crate::form::Text<String> {
    text(
        "name",
        "default",
        |text| {
            domain::TenantId::parse(text).map(|_| text.to_owned()).map_err(|fault| format!("the name {text:?} {fault}"))
        },
        String::clone,
    )
}
