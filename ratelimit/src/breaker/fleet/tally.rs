//! Counts of one provider's calls in one window of one holder.

use crate::breaker::outcome::Weight;
use crate::pair::{PairKey, ProviderKey};
use crate::shards::spread;

const WORDS: usize = 4;

/// Some tenants, by 256 bits.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Tenants([u64; WORDS]);

impl Tenants {
    fn insert(&mut self, tenant: u64) {
        let bit = spread(tenant) % 256;
        self.0[(bit / 64) as usize] |= 1 << (bit % 64);
    }

    fn join(&mut self, other: &Self) {
        for (word, other) in self.0.iter_mut().zip(other.0) {
            *word |= other;
        }
    }

    fn count(&self) -> u32 {
        self.0.iter().map(|word| word.count_ones()).sum()
    }

    fn is_within(&self, other: &Self) -> bool {
        self.0.iter().zip(other.0).all(|(own, other)| own & !other == 0)
    }

    fn pack(&self, bytes: &mut Vec<u8>) {
        match u8::try_from(self.count()) {
            Ok(count) if count < LISTED_MAX => {
                bytes.push(count);
                bytes.extend((0..=u8::MAX).filter(|bit| self.0[usize::from(bit / 64)] >> (bit % 64) & 1 == 1));
            }
            _ => {
                bytes.push(WHOLE);
                bytes.extend(self.0.iter().flat_map(|word| word.to_le_bytes()));
            }
        }
    }

    fn unpack(rest: &mut &[u8]) -> Option<Self> {
        let [count] = take(rest)?;
        let mut set = Self::default();
        if count == WHOLE {
            for word in &mut set.0 {
                *word = u64::from_le_bytes(take(rest)?);
            }
            return Some(set);
        }
        for _ in 0..count {
            let [bit] = take(rest)?;
            set.0[usize::from(bit / 64)] |= 1 << (bit % 64);
        }
        Some(set)
    }
}

/// Below so many tenants a set is shorter as a list.
const LISTED_MAX: u8 = 32;
const WHOLE: u8 = u8::MAX;

/// Takes so many bytes off the front.
pub(super) fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (taken, left) = rest.split_first_chunk()?;
    *rest = left;
    Some(*taken)
}

/// Calls, faults, and whose they were.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tally {
    calls: u32,
    faults: u32,
    calling: Tenants,
    failing: Tenants,
}

impl Tally {
    /// Counts a call. One that says nothing about the provider is none.
    pub fn count(&mut self, key: PairKey, weight: Weight) {
        if weight == Weight::Nothing {
            return;
        }
        self.calls = self.calls.saturating_add(1);
        self.calling.insert(key.tenant());
        if weight == Weight::Bad {
            self.faults = self.faults.saturating_add(1);
            self.failing.insert(key.tenant());
        }
    }

    /// Another report of the same window of the same holder: the later one is nowhere smaller.
    pub fn join(&mut self, other: &Self) {
        self.calls = self.calls.max(other.calls);
        self.faults = self.faults.max(other.faults);
        self.calling.join(&other.calling);
        self.failing.join(&other.failing);
    }

    /// Another window, or another holder's.
    pub fn add(&mut self, other: &Self) {
        self.calls = self.calls.saturating_add(other.calls);
        self.faults = self.faults.saturating_add(other.faults);
        self.calling.join(&other.calling);
        self.failing.join(&other.failing);
    }

    pub fn calls(&self) -> u32 {
        self.calls
    }

    pub fn faults(&self) -> u32 {
        self.faults
    }

    /// Appends it, short where few tenants are in it:
    /// `0`, or `1 | calls 4 | faults 4 | calling | failing`, a set being `n | n bits of 1` or `255 | 32`.
    pub(super) fn pack(&self, bytes: &mut Vec<u8>) {
        if *self == Self::default() {
            return bytes.push(0);
        }
        bytes.push(1);
        bytes.extend(self.calls.to_le_bytes());
        bytes.extend(self.faults.to_le_bytes());
        self.calling.pack(bytes);
        self.failing.pack(bytes);
    }

    /// Takes one off the front. `None` for what cannot be: what joins of reports keep true is looked at, no more.
    pub(super) fn unpack(rest: &mut &[u8]) -> Option<Self> {
        match take::<1>(rest)? {
            [0] => return Some(Self::default()),
            [1] => {}
            [_] => return None,
        }
        let (calls, faults) = (u32::from_le_bytes(take(rest)?), u32::from_le_bytes(take(rest)?));
        let (calling, failing) = (Tenants::unpack(rest)?, Tenants::unpack(rest)?);
        (faults <= calls && failing.is_within(&calling)).then_some(Self { calls, faults, calling, failing })
    }

    /// Distinct tenants that called; never too many.
    pub fn calling(&self) -> u32 {
        self.calling.count()
    }

    /// Distinct tenants that had a fault; never too many.
    pub fn failing(&self) -> u32 {
        self.failing.count()
    }
}

/// What a holder sends: one window of one provider, as it is so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Report {
    pub provider: ProviderKey,
    /// The node's boot, never used again by another: a restarted node numbers its windows anew.
    pub holder: u64,
    /// Counts upwards by one a window.
    pub window: u64,
    pub tally: Tally,
}

/// Bytes of a report.
pub const REPORT_BYTES: usize = 1 + 3 * 8 + 2 * 4 + 2 * WORDS * 8;

const VERSION: u8 = 1;

/// Why bytes are no report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadReport {
    #[error("a report has {REPORT_BYTES} bytes, not {0}")]
    Length(usize),
    #[error("a report of version {0} is not known")]
    Version(u8),
    #[error("a report has more faults than calls, or more failing tenants than faults or calling ones")]
    Counts,
}

impl Report {
    /// `version 1 | provider 8 | holder 8 | window 8 | calls 4 | faults 4 | calling 32 | failing 32`, little-endian.
    pub fn to_bytes(&self) -> [u8; REPORT_BYTES] {
        let mut bytes = Vec::with_capacity(REPORT_BYTES);
        bytes.push(VERSION);
        for number in [self.provider.as_u64(), self.holder, self.window] {
            bytes.extend(number.to_le_bytes());
        }
        bytes.extend(self.tally.calls.to_le_bytes());
        bytes.extend(self.tally.faults.to_le_bytes());
        for word in self.tally.calling.0.iter().chain(&self.tally.failing.0) {
            bytes.extend(word.to_le_bytes());
        }
        bytes.try_into().expect("the fields above are as long as a report")
    }

    /// Refuses what no node can have counted. A window of the last number is refused with it: nothing could follow.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, BadReport> {
        if bytes.len() != REPORT_BYTES {
            return Err(BadReport::Length(bytes.len()));
        }
        let (version, mut rest) = (bytes[0], &bytes[1..]);
        if version != VERSION {
            return Err(BadReport::Version(version));
        }
        let provider = ProviderKey::from_u64(long(&mut rest));
        let (holder, window) = (long(&mut rest), long(&mut rest));
        let (calls, faults) = (short(&mut rest), short(&mut rest));
        let calling = Tenants(std::array::from_fn(|_| long(&mut rest)));
        let failing = Tenants(std::array::from_fn(|_| long(&mut rest)));
        let is_subset = failing.is_within(&calling);
        let is_counted = faults <= calls && failing.count() <= faults && calling.count() <= calls;
        if !is_subset || !is_counted || window == u64::MAX {
            return Err(BadReport::Counts);
        }
        Ok(Self { provider, holder, window, tally: Tally { calls, faults, calling, failing } })
    }
}

/// The next number of a report whose whole length was checked.
fn long(rest: &mut &[u8]) -> u64 {
    u64::from_le_bytes(take(rest).expect("a report's fields are as long as a report"))
}

fn short(rest: &mut &[u8]) -> u32 {
    u32::from_le_bytes(take(rest).expect("a report's fields are as long as a report"))
}
