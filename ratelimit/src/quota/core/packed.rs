//! Buckets as bytes: how idle ones are kept, and how a journal writes them.
//!
//! Shares are not part of it: who wants how much is said again with the next ask.

use std::sync::Arc;

use crate::quota::key::{BucketKey, Level};
use crate::quota::name::{HolderId, Name};
use crate::quota::op::{Tally, Why};
use crate::quota::rule::{Kind, Rule, RuleSpec};

use super::bucket::Bucket;
use super::bytes::{Reader, Writer};
use super::entry::Entry;
use super::meter::{Debt, Meter, Window};
use super::release::Release;
use super::slots::{Slot, Slots};

/// The form of the bytes. Another form is another number.
const VERSION: u64 = 1;

/// A bucket's key as bytes that sort as keys do.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct PackedKey(Box<[u8]>);

/// A bucket in use, or one that waits to be used or forgotten.
#[derive(Debug, Clone)]
pub(super) enum Kept {
    Live(Box<Bucket>),
    Idle(Box<[u8]>),
}

impl PackedKey {
    pub(super) fn of(key: &BucketKey) -> Self {
        let (scope, policy) = (key.scope.as_str().as_bytes(), key.policy.as_str().as_bytes());
        let mut bytes = Vec::with_capacity(scope.len() + policy.len() + 2);
        bytes.push(level_number(key.level));
        bytes.extend_from_slice(scope);
        // No name has this byte, and it is before all that names have.
        bytes.push(0);
        bytes.extend_from_slice(policy);
        Self(bytes.into_boxed_slice())
    }

    pub(super) fn unpack(&self) -> Option<BucketKey> {
        let (&level, names) = self.0.split_first()?;
        let at = names.iter().position(|&byte| byte == 0)?;
        let name = |bytes| Name::parse(str::from_utf8(bytes).ok()?).ok();
        Some(BucketKey { level: level_of(level)?, scope: name(&names[..at])?, policy: name(&names[at + 1..])? })
    }
}

impl Kept {
    pub(super) fn live(&mut self) -> Option<&mut Bucket> {
        if let Self::Idle(bytes) = self {
            *self = Self::Live(Box::new(unpack(bytes)?));
        }
        match self {
            Self::Live(bucket) => Some(bucket),
            Self::Idle(_) => None,
        }
    }

    pub(super) fn copy(&self) -> Option<Bucket> {
        match self {
            Self::Live(bucket) => Some(Bucket::clone(bucket)),
            Self::Idle(bytes) => unpack(bytes),
        }
    }

    /// Before this moment it cannot be forgotten; of one in use nothing is said.
    pub(super) fn due_ms(&self) -> u64 {
        match self {
            Self::Live(_) => 0,
            Self::Idle(bytes) => Reader::of(bytes).int().unwrap_or(0),
        }
    }

    /// Packs a bucket that nobody uses.
    pub(super) fn rest(&mut self) {
        if let Self::Live(bucket) = self {
            // Copied: an allocator that shrinks in place would keep all that the buffer has grown to.
            *self = Self::Idle(Box::from(pack(bucket, &bucket.entries).as_slice()));
        }
    }
}

/// The bucket with these of its lessees.
pub(super) fn pack<'a>(bucket: &Bucket, entries: impl IntoIterator<Item = &'a Entry>) -> Vec<u8> {
    let mut out = Writer::default();
    // First, so that a look at it is all that a sweep needs.
    out.int(bucket.due_ms());
    out.int(VERSION);
    out.int(u64::from(level_number(bucket.level)));
    pack_rule(&mut out, &bucket.rule);
    // Most times are near to this one, and take few bytes as the difference.
    out.int(bucket.generation);
    out.near = bucket.generation;
    pack_meter(&mut out, &bucket.meter);
    for value in [bucket.interactive_ms, bucket.touched_ms] {
        out.near(value);
    }
    let (seen, until_ms) = bucket.limit_seen.map_or((0, 0), |(seen, until_ms)| (u64::from(seen) + 1, until_ms));
    out.int(seen);
    out.int(until_ms);
    match bucket.release.as_deref() {
        None => out.int(0),
        Some(release) => {
            out.int(1 + why_number(release.why));
            for value in [release.park_until_ms, release.clean_since_ms, release.paced_until_ms] {
                out.int(value);
            }
            out.int(u64::from(release.alpha_milli));
        }
    }
    for entry in entries {
        pack_entry(&mut out, entry);
    }
    out.bytes
}

/// The bucket that these bytes are of; none if no bucket was packed to them.
pub(super) fn unpack(bytes: &[u8]) -> Option<Bucket> {
    let mut input = Reader::of(bytes);
    input.int()?;
    if input.int()? != VERSION {
        return None;
    }
    let level = level_of(input.small()?)?;
    let rule = Arc::new(unpack_rule(&mut input)?);
    let generation = input.int()?;
    input.near = generation;
    let meter = unpack_meter(&mut input, &rule)?;
    let [interactive_ms, touched_ms] = [input.near()?, input.near()?];
    let limit_seen = match (input.small::<u32>()?, input.int()?) {
        (0, _) => None,
        (seen, until_ms) => Some((seen - 1, until_ms)),
    };
    let release = match input.int()? {
        0 => None,
        why => Some(Box::new(unpack_release(&mut input, why - 1)?)),
    };
    let mut entries = Vec::new();
    while !input.is_empty() {
        entries.push(unpack_entry(&mut input)?);
    }
    Some(Bucket {
        level,
        rule,
        meter,
        generation,
        release,
        limit_seen,
        entries,
        shares: None,
        interactive_ms,
        touched_ms,
    })
}

fn unpack_release(input: &mut Reader<'_>, why: u64) -> Option<Release> {
    Some(Release {
        why: why_of(why)?,
        park_until_ms: input.int()?,
        clean_since_ms: input.int()?,
        paced_until_ms: input.int()?,
        alpha_milli: input.small()?,
    })
}

fn pack_rule(out: &mut Writer, rule: &Rule) {
    let (kind, figures) = match rule.kind {
        Kind::Fixed { window_ms, offset_ms } => (0, [window_ms, offset_ms, 0]),
        Kind::Anchored { window_ms, slots } => (1, [window_ms, u64::from(slots), 0]),
        Kind::Calendar { bounds_ms } => (2, bounds_ms),
        Kind::Sliding { window_ms, slots } => (3, [window_ms, u64::from(slots), 0]),
        Kind::Bucket { window_ms, burst } => (4, [window_ms, u64::from(burst), 0]),
        Kind::Concurrency => (5, [0; 3]),
    };
    out.int(kind);
    for value in figures {
        out.int(value);
    }
    for value in [rule.cfgver, rule.cap, rule.lease_ms, rule.guard_ms, rule.skew_ms] {
        out.int(u64::from(value));
    }
}

fn unpack_rule(input: &mut Reader<'_>) -> Option<Rule> {
    let number = input.int()?;
    let [one, two, three] = [input.int()?, input.int()?, input.int()?];
    let kind = match number {
        0 => Kind::Fixed { window_ms: one, offset_ms: two },
        1 => Kind::Anchored { window_ms: one, slots: u16::try_from(two).ok()? },
        2 => Kind::Calendar { bounds_ms: [one, two, three] },
        3 => Kind::Sliding { window_ms: one, slots: u16::try_from(two).ok()? },
        4 => Kind::Bucket { window_ms: one, burst: u32::try_from(two).ok()? },
        5 => Kind::Concurrency,
        _ => return None,
    };
    let [cfgver, cap, lease_ms, guard_ms, skew_ms] =
        [input.small()?, input.small()?, input.small()?, input.small()?, input.small()?];
    Rule::checked(RuleSpec { cfgver, kind, cap, lease_ms, guard_ms, skew_ms }).ok()
}

fn pack_meter(out: &mut Writer, meter: &Meter) {
    match meter {
        Meter::Window(window) => {
            out.near(window.start_ms);
            out.int(window.end_ms.saturating_sub(window.start_ms));
            out.int(window.used);
        }
        Meter::Debt(debt) => {
            out.near(debt.clear_ms);
            out.near(debt.at_ms);
            out.int(debt.owed);
            out.int(debt.unit);
        }
        Meter::Slots(slots) => {
            for slot in &slots.parts {
                out.int(slot.end_ms);
                out.int(slot.units);
            }
            for value in [0, slots.previous_end_ms, slots.end_ms] {
                out.int(value);
            }
        }
        Meter::Held => {}
    }
}

fn unpack_meter(input: &mut Reader<'_>, rule: &Rule) -> Option<Meter> {
    Some(match Meter::new(rule) {
        Meter::Window(_) => {
            let start_ms = input.near()?;
            Meter::Window(Window { start_ms, end_ms: start_ms.checked_add(input.int()?)?, used: input.int()? })
        }
        Meter::Debt(_) => {
            let [clear_ms, at_ms] = [input.near()?, input.near()?];
            Meter::Debt(Debt { clear_ms, at_ms, owed: input.int()?, unit: input.int()? })
        }
        Meter::Slots(_) => {
            let mut slots = Slots::default();
            loop {
                match input.int()? {
                    0 => break,
                    end_ms => slots.parts.push(Slot { end_ms, units: input.int()? }),
                }
            }
            (slots.previous_end_ms, slots.end_ms) = (input.int()?, input.int()?);
            Meter::Slots(Box::new(slots))
        }
        Meter::Held => Meter::Held,
    })
}

fn pack_entry(out: &mut Writer, entry: &Entry) {
    out.wide(entry.holder.0);
    out.name(&entry.tenant);
    for value in [entry.generation, entry.granted_ms, entry.tally.wid] {
        out.near(value);
    }
    for value in [
        entry.seq,
        entry.settle_seq,
        u64::from(entry.units),
        u64::from(entry.is_closed),
        u64::from(entry.ttl_ms),
        entry.tally.units,
        entry.tally.before,
        entry.credited,
    ] {
        out.int(value);
    }
}

fn unpack_entry(input: &mut Reader<'_>) -> Option<Entry> {
    let (holder, tenant) = (HolderId(input.wide()?), input.name()?);
    let [generation, granted_ms, wid] = [input.near()?, input.near()?, input.near()?];
    Some(Entry {
        holder,
        tenant,
        generation,
        granted_ms,
        seq: input.int()?,
        settle_seq: input.int()?,
        units: input.small()?,
        is_closed: input.int()? != 0,
        ttl_ms: input.small()?,
        tally: Tally { wid, units: input.int()?, before: input.int()? },
        credited: input.int()?,
    })
}

fn level_number(level: Level) -> u8 {
    match level {
        Level::App => 1,
        Level::Connection => 2,
        Level::Region => 3,
        Level::Source => 4,
    }
}

fn level_of(number: u8) -> Option<Level> {
    Level::ALL.into_iter().find(|&level| level_number(level) == number)
}

fn why_number(why: Why) -> u64 {
    match why {
        Why::Provider => 0,
        Why::Exhausted => 1,
        Why::Operator => 2,
    }
}

fn why_of(number: u64) -> Option<Why> {
    Why::ALL.into_iter().find(|&why| why_number(why) == number)
}
