//! Keys. Each begins with its tenant, behind the tenant's length, so that no tenant's keys are another's prefix; times are
//! big-endian, so that keys sort as time does.
//!
//! ```text
//! rows-N   tenant run                                   -> the row
//! lists-N  tenant list [what it is a list of] time run  -> nothing: the row says whether it still is one of them
//! open     tenant run                                   -> N
//! ```
//!
//! N is a period of admission times. A run is in one period for ever; the newest are written to, the older ones lie still,
//! and the oldest is dropped whole.

use domain::{EventId, TenantId};

use super::row::{Park, RunRow, is_over};
use super::word::Word as _;
use crate::failure::FailureClass;
use crate::ids::{AutomationId, RunId};
use crate::ledger::{ParkReason, RunStatus};

/// What a list is a list of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum List {
    All,
    Automation(AutomationId),
    /// Of every status but `Succeeded`, which is nearly all.
    Status(RunStatus),
    AutomationStatus(AutomationId, RunStatus),
    Failure(FailureClass),
    Event(EventId),
    /// By a hash of the replay's name.
    Replay([u8; 16]),
    /// All of those: no list of its own, but where they begin.
    Replays,
    DeadLetters,
    /// One group of the repair inbox. Its time is when the park began.
    Repair(Group),
    /// All groups: no list of its own, but where they begin.
    Repairs,
}

/// What the repair inbox puts together: the same cause, at the same place.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Group(pub(super) Box<[u8]>);

impl Group {
    pub(super) fn new(reason: u8, automation: AutomationId, connection: &str, step: &str) -> Self {
        let mut bytes = Vec::with_capacity(20 + connection.len() + step.len());
        bytes.push(reason);
        bytes.extend_from_slice(automation.as_bytes());
        for text in [connection, step] {
            bytes.push(u8::try_from(text.len()).expect("names and step ids are 200 bytes at most"));
            bytes.extend_from_slice(text.as_bytes());
        }
        Self(bytes.into())
    }

    /// Reason, automation, connection and step of a group's bytes, and how many bytes it has.
    pub(super) fn read(bytes: &[u8]) -> Option<(u8, AutomationId, &str, &str, usize)> {
        let (reason, rest) = bytes.split_first()?;
        let (automation, mut rest) = rest.split_first_chunk::<16>()?;
        let mut text = || {
            let (length, behind) = rest.split_first()?;
            let (text, behind) = behind.split_at_checked(usize::from(*length))?;
            rest = behind;
            str::from_utf8(text).ok()
        };
        let (connection, step) = (text()?, text()?);
        let length = 19 + connection.len() + step.len();
        Some((*reason, AutomationId::from_bytes(*automation), connection, step, length))
    }
}

/// The number of the group of runs that were set aside: parks have those of their reasons.
pub(super) const QUARANTINED: u8 = 0;

/// The tenant, as every key begins.
pub(super) fn tenant(tenant: &TenantId, room: usize) -> Vec<u8> {
    let name = tenant.as_bytes();
    let mut key = Vec::with_capacity(1 + name.len() + room);
    key.push(u8::try_from(name.len()).expect("names are 64 bytes at most"));
    key.extend_from_slice(name);
    key
}

/// The tenant and run of a key of `open`.
pub(super) fn read_run(key: &[u8]) -> Option<(TenantId, RunId)> {
    let (length, rest) = key.split_first()?;
    let (name, run) = rest.split_at_checked(usize::from(*length))?;
    let tenant = TenantId::parse(str::from_utf8(name).ok()?).ok()?;
    Some((tenant, RunId::from_bytes(run.try_into().ok()?)))
}

pub(super) fn row(of: &TenantId, run: RunId) -> Vec<u8> {
    let mut key = tenant(of, 16);
    key.extend_from_slice(run.as_bytes());
    key
}

impl List {
    /// What all keys of the list begin with.
    pub(super) fn prefix(&self, of: &TenantId) -> Vec<u8> {
        let mut key = tenant(of, 64);
        match self {
            Self::All => key.push(b'T'),
            Self::Automation(automation) => {
                key.push(b'A');
                key.extend_from_slice(automation.as_bytes());
            }
            Self::Status(status) => key.extend_from_slice(&[b'S', status.number()]),
            Self::AutomationStatus(automation, status) => {
                key.push(b'B');
                key.extend_from_slice(automation.as_bytes());
                key.push(status.number());
            }
            Self::Failure(class) => key.extend_from_slice(&[b'F', class.number()]),
            Self::Event(event) => {
                key.push(b'E');
                key.extend_from_slice(event.as_bytes());
            }
            Self::Replay(hash) => {
                key.push(b'R');
                key.extend_from_slice(hash);
            }
            Self::Replays => key.push(b'R'),
            Self::DeadLetters => key.push(b'D'),
            Self::Repair(group) => {
                key.push(b'G');
                key.extend_from_slice(&group.0);
            }
            Self::Repairs => key.push(b'G'),
        }
        key
    }

    pub(super) fn key(&self, of: &TenantId, time: u64, run: RunId) -> Vec<u8> {
        let mut key = self.prefix(of);
        key.extend_from_slice(&time.to_be_bytes());
        key.extend_from_slice(run.as_bytes());
        key
    }
}

/// Time and run at the end of a list's key.
pub(super) fn read_tail(key: &[u8]) -> Option<(u64, RunId)> {
    let (rest, run) = key.split_last_chunk::<16>()?;
    let (_, time) = rest.split_last_chunk::<8>()?;
    Some((u64::from_be_bytes(*time), RunId::from_bytes(*run)))
}

/// A replay, by its name.
pub(super) fn replay(name: &str) -> [u8; 16] {
    let mut hash = [0; 16];
    hash.copy_from_slice(&blake3::hash(name.as_bytes()).as_bytes()[..16]);
    hash
}

/// Why somebody should look at a run, if anybody should, and since when: no delay and no wait before the next try.
fn group(row: &RunRow) -> Option<(Group, u64)> {
    if let Some(since) = row.quarantined_unix_ms {
        return Some((Group::new(QUARANTINED, row.automation, "", ""), since));
    }
    // A step whose effect is in doubt before one whose connection is dead: the second may hold up many, the first has to be
    // looked at by itself.
    let wait = row.waits.iter().find(|wait| wait.reason == ParkReason::Ambiguous).or_else(|| row.waits.first());
    let is_worth_a_look = |park: &&Park| !matches!(park.reason, ParkReason::Delay | ParkReason::Backoff);
    let park = wait.or(row.park.as_ref()).filter(is_worth_a_look)?;
    let connection = park.connection.as_ref().map_or("", |connection| connection.as_str());
    let step = park.step.as_ref().map_or("", |step| step.as_str());
    Some((Group::new(park.reason.number(), row.automation, connection, step), park.since_unix_ms))
}

/// The keys of all lists that a row is in.
pub(super) fn lists(row: &RunRow) -> Vec<Vec<u8>> {
    let mut keys = Vec::with_capacity(6);
    let mut add = |list: List, time| keys.push(list.key(&row.tenant, time, row.run));
    let at = row.admitted_unix_ms;
    add(List::All, at);
    add(List::Automation(row.automation), at);
    if row.status != RunStatus::Succeeded {
        add(List::Status(row.status), at);
        add(List::AutomationStatus(row.automation, row.status), at);
    }
    if let Some(class) = row.failure {
        add(List::Failure(class), at);
    }
    if let Some(event) = row.event() {
        add(List::Event(event), at);
    }
    if let Some(name) = row.replay() {
        add(List::Replay(replay(name)), at);
    }
    if row.is_dead_letter() {
        add(List::DeadLetters, at);
    }
    if !is_over(row.status)
        && let Some((group, since)) = group(row)
    {
        add(List::Repair(group), since);
    }
    keys
}
