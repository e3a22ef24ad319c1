//! The book: its state, and the rules by which it changes.
//!
//! ```text
//!                      notice is over                     drain is over
//! (none) ─announce─▶ announced ─activate─▶ active ─drain─▶ draining ─retire─▶ retired ─announce─▶ announced …
//!                        └──────────withdraw, with a reason──────────────────────┘
//! ```
//!
//! The same function judges a change that is asked for and one that is read, so a file cannot hold what a command would
//! have refused. What only a command can know, the pools of the configuration and the table of special addresses, is
//! asked when a change is drafted and never again.

use std::collections::BTreeMap;
use std::net::IpAddr;

use data_encoding::{BASE64, HEXLOWER};
use outbound::AddressTable;
use ring::digest::{SHA256, digest};
use ring::error::Unspecified;
use ring::rand::{SecureRandom, SystemRandom};

use super::broken::{Broken, CHANGES_MAX, LIVE_MAX};
use super::change::{At, Change, Entry, Policy};
use super::document::Document;
use super::prefix::Prefix;
use super::range::{Range, State};
use super::uses::{Use, Uses};
use super::words::Reason;
use crate::caller::{PublicKey, SigningKey};

/// What a line of a book holds that cannot be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("entry {serial}: {what}")]
pub struct Damage {
    /// Which entry, counted from 1.
    pub serial: usize,
    /// What is wrong with it.
    pub what: String,
}

/// Every range there was, and every change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Book {
    id: Box<str>,
    entries: Vec<Entry>,
    ranges: BTreeMap<Prefix, Range>,
}

impl Book {
    /// An empty one, with an id that no other has.
    ///
    /// # Errors
    /// The operating system gives no randomness.
    pub fn found() -> Result<Self, Unspecified> {
        let mut bytes = [0; 16];
        SystemRandom::new().fill(&mut bytes)?;
        Ok(Self::empty(&HEXLOWER.encode(&bytes)))
    }

    fn empty(id: &str) -> Self {
        Self { id: id.into(), entries: Vec::new(), ranges: BTreeMap::new() }
    }

    /// What these entries come to. That each follows from the one before is checked, and that the last one's document
    /// is what was signed: each entry holds a digest of the one before and the document holds the last of these, so no
    /// earlier entry can have changed either.
    ///
    /// # Errors
    /// Names the first entry that cannot be.
    pub fn of(id: &str, entries: Vec<Entry>) -> Result<Self, Damage> {
        let whole = entries.len();
        let book = Self::folded(id, entries)?;
        let damaged = |what: String| Damage { serial: whole, what };
        if let Some(last) = book.entries.last() {
            let bytes = Document::of(&book).to_bytes();
            let key = PublicKey::parse(last.key.as_bytes()).map_err(|fault| damaged(format!("its key {fault}")))?;
            let signature = BASE64.decode(last.signature.as_bytes()).unwrap_or_default();
            if last.sha256 != sha256(&bytes) || !key.verifies(&bytes, &signature) {
                return Err(damaged("what was signed is not what the entries come to: one of them was changed".into()));
            }
        }
        Ok(book)
    }

    fn folded(id: &str, entries: Vec<Entry>) -> Result<Self, Damage> {
        if id.len() != 32 || HEXLOWER.decode(id.as_bytes()).is_err() {
            return Err(Damage { serial: 0, what: "the book's id is none".into() });
        }
        let mut book = Self::empty(id);
        for (entry, serial) in entries.into_iter().zip(1_usize..) {
            let damaged = |what: String| Damage { serial, what };
            if entry.serial != serial as u64 {
                return Err(damaged(format!("is numbered {}", entry.serial)));
            }
            let forced = book.judge(&entry.what, entry.at, entry.forced, entry.reason.as_ref());
            let forced = forced.map_err(|broken| damaged(broken.to_string()))?;
            if entry.previous != book.last().map(digest_of) {
                return Err(damaged("follows another entry than the one before it".into()));
            }
            if forced != entry.forced {
                return Err(damaged("says that it was forced, and it was not".into()));
            }
            book.apply(entry);
        }
        Ok(book)
    }

    /// As it was with version `serial`; none where there was none.
    pub fn at(&self, serial: u64) -> Option<Self> {
        let count = usize::try_from(serial).ok().filter(|count| (1..=self.entries.len()).contains(count))?;
        let mut book = Self::empty(&self.id);
        self.entries.iter().take(count).for_each(|entry| book.apply(entry.clone()));
        Some(book)
    }

    /// Whether it is `before` and what came after.
    pub fn continues(&self, before: &Self) -> bool {
        self.id == before.id && self.entries.starts_with(&before.entries)
    }

    /// Which book it is: the same in all its versions.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Every change, the first one first.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// The last change.
    pub fn last(&self) -> Option<&Entry> {
        self.entries.last()
    }

    /// The key that signed the last version, and with it every line before: each version's document holds the digest of
    /// the line before it.
    pub fn signer(&self) -> Option<PublicKey> {
        self.last().and_then(|last| PublicKey::parse(last.key.as_bytes()).ok())
    }

    /// The number of the last version; 0 where there is none.
    pub fn serial(&self) -> u64 {
        self.entries.len() as u64
    }

    /// Every range there is or was, IPv4 first.
    pub fn ranges(&self) -> impl Iterator<Item = &Range> {
        self.ranges.values()
    }

    /// Those that are not retired.
    pub fn live(&self) -> impl Iterator<Item = &Range> {
        self.ranges().filter(|range| range.state != State::Retired)
    }

    /// The range that an address is in: one that is not retired before one that is.
    pub fn range_of(&self, address: IpAddr) -> Option<&Range> {
        let within = |range: &&Range| range.prefix.has(address);
        self.live().find(within).or_else(|| self.ranges().find(within))
    }

    /// Until when the document of the last version is valid.
    pub fn valid_until(&self) -> Option<At> {
        self.last().map(|last| last.at.plus(last.policy.validity_seconds))
    }

    /// Drafts a change.
    ///
    /// # Errors
    /// It is against the rules.
    pub fn draft(&self, change: Change, terms: Terms<'_>) -> Result<Draft, Broken> {
        let Terms { at, force, reason, policy, uses, table } = terms;
        let forced = self.judge(&change, at, force, reason.as_ref())?;
        self.outside(&change, uses, table)?;
        if self.entries.len() >= CHANGES_MAX {
            return Err(Broken::Full);
        }
        let entry = Entry {
            serial: self.serial() + 1,
            at,
            what: change,
            forced,
            reason,
            policy,
            previous: self.last().map(digest_of),
            key: String::new(),
            sha256: String::new(),
            signature: String::new(),
        };
        let mut book = self.clone();
        book.apply(entry);
        Ok(Draft(book))
    }

    /// The rules about what is outside of the book.
    fn outside(&self, change: &Change, uses: &Uses, table: &AddressTable) -> Result<(), Broken> {
        match *change {
            Change::Announce { prefix, .. } => match prefix.special(table) {
                Some((around, name)) => Err(Broken::Special { prefix, around, name: name.to_owned() }),
                None => Ok(()),
            },
            Change::Retire { prefix } | Change::Withdraw { prefix } => uses.within(prefix).map_or(Ok(()), |used| {
                Err(Broken::StillUsed { prefix, address: used.address, pool: used.pool.clone() })
            }),
            Change::Drain { prefix } => {
                let active = |range: &&Range| range.state == State::Active;
                let left: Vec<Prefix> =
                    self.live().filter(active).map(|range| range.prefix).filter(|other| *other != prefix).collect();
                // Of the same family: an IPv6 range is no way to destinations that have IPv4 alone.
                let is_left = |gone: &Use| {
                    let same =
                        |used: &&Use| *used.pool == *gone.pool && used.address.is_ipv4() == gone.address.is_ipv4();
                    uses.iter().filter(same).any(|used| left.iter().any(|other| other.has(used.address)))
                };
                let last = uses.iter().find(|used| prefix.has(used.address) && !is_left(used));
                last.map_or(Ok(()), |used| {
                    Err(Broken::LastActive { prefix, address: used.address, pool: used.pool.clone() })
                })
            }
            Change::Activate { .. } | Change::Renew => Ok(()),
        }
    }

    /// Whether the change may be made then, and whether it needs force.
    fn judge(&self, change: &Change, at: At, force: bool, reason: Option<&Reason>) -> Result<bool, Broken> {
        if let Some(last) = self.last().filter(|last| at < last.at) {
            return Err(Broken::Clock { now: at, last: last.at });
        }
        match change {
            Change::Announce { prefix, country, region, city, .. } => {
                self.may_begin(*prefix)?;
                match (country, region, city) {
                    (None, Some(_), _) | (None, _, Some(_)) => Err(Broken::NoCountry),
                    (Some(country), Some(region), _) if !region.as_str().starts_with(country.as_str()) => {
                        Err(Broken::Region { region: region.clone(), country: country.clone() })
                    }
                    (_, _, _) => Ok(false),
                }
            }
            Change::Activate { prefix } => {
                let from = self.which(*prefix, State::Announced, "activated")?.active_from;
                due(at, from, force).ok_or(Broken::ActiveTooEarly { prefix: *prefix, from })
            }
            Change::Drain { prefix } => self.which(*prefix, State::Active, "drained").map(|_| false),
            Change::Retire { prefix } => {
                let from = self.which(*prefix, State::Draining, "retired")?.retire_from.unwrap_or(at);
                due(at, from, force).ok_or(Broken::RetiredTooEarly { prefix: *prefix, from })
            }
            Change::Withdraw { prefix } => {
                self.which(*prefix, State::Announced, "withdrawn")?;
                reason.map(|_| false).ok_or(Broken::NoReason)
            }
            Change::Renew => self.last().map(|_| false).ok_or(Broken::Empty),
        }
    }

    fn may_begin(&self, prefix: Prefix) -> Result<(), Broken> {
        if let Some(other) = self.live().find(|range| range.prefix.overlaps(prefix)) {
            return Err(Broken::Overlaps { prefix, other: other.prefix, state: other.state });
        }
        if self.live().count() < LIVE_MAX { Ok(()) } else { Err(Broken::Many) }
    }

    /// The range, if it is in the state that it needs to be in.
    fn which(&self, prefix: Prefix, needs: State, done: &'static str) -> Result<&Range, Broken> {
        let Some(range) = self.ranges.get(&prefix) else {
            let near = self.live().find(|range| range.prefix.overlaps(prefix)).map(|range| range.prefix);
            return Err(near.map_or(Broken::Unknown(prefix), |near| Broken::Near { prefix, near }));
        };
        if range.state == needs { Ok(range) } else { Err(Broken::State { prefix, is: range.state, needs, done }) }
    }

    /// Makes a change that was judged.
    fn apply(&mut self, entry: Entry) {
        let at = entry.at;
        match &entry.what {
            Change::Announce { prefix, pool, country, region, city } => {
                let range = Range {
                    prefix: *prefix,
                    state: State::Announced,
                    pool: pool.clone(),
                    country: country.clone(),
                    region: region.clone(),
                    city: city.clone(),
                    announced: at,
                    active_from: at.plus(entry.policy.notice_seconds),
                    active: None,
                    draining: None,
                    retire_from: None,
                    retired: None,
                };
                self.ranges.insert(*prefix, range);
            }
            Change::Renew => {}
            Change::Activate { prefix }
            | Change::Drain { prefix }
            | Change::Retire { prefix }
            | Change::Withdraw { prefix } => {
                if let Some(range) = self.ranges.get_mut(prefix) {
                    range.step(&entry);
                }
            }
        }
        self.entries.push(entry);
    }
}

/// Whether force is needed; none where it is needed and not there.
fn due(at: At, from: At, force: bool) -> Option<bool> {
    if at >= from { Some(false) } else { force.then_some(true) }
}

/// By what a change is drafted.
#[derive(Debug)]
pub struct Terms<'a> {
    /// Now.
    pub at: At,
    /// Do not wait for a notice.
    pub force: bool,
    /// Why.
    pub reason: Option<Reason>,
    /// The terms of the configuration.
    pub policy: Policy,
    /// What the configuration leaves from.
    pub uses: &'a Uses,
    /// Which addresses are public.
    pub table: &'a AddressTable,
}

/// A book with a change that nobody has signed.
#[derive(Debug)]
pub struct Draft(Book);

impl Draft {
    /// Signs the document that the change makes.
    pub fn sign(self, key: &SigningKey) -> Book {
        let Self(mut book) = self;
        if let Some(last) = book.entries.last_mut() {
            last.key = key.public().to_string();
        }
        let bytes = Document::of(&book).to_bytes();
        if let Some(last) = book.entries.last_mut() {
            last.sha256 = sha256(&bytes);
            last.signature = BASE64.encode(&key.sign(&bytes));
        }
        book
    }
}

fn digest_of(entry: &Entry) -> String {
    sha256(&serde_json::to_vec(entry).unwrap_or_default())
}

pub(super) fn sha256(bytes: &[u8]) -> String {
    HEXLOWER.encode(digest(&SHA256, bytes).as_ref())
}
