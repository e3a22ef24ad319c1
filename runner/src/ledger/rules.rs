//! What every engine refuses, and what a commit makes of its run: pure, so that all engines do the same.
//!
//! An engine keeps one [`Head`] per run. A [`Change`] is what a commit asks of the head and makes of it, known from the
//! commit alone, so that an engine whose heads are elsewhere can say it in one statement; [`Head::after`] is the same for an
//! engine that has the head at hand.
//!
//! Where a commit breaks more than one rule, the first of these is told: its form ([`check`]), [`AppendError::Tenant`],
//! [`AppendError::Fenced`], [`AppendError::Conflict`], and [`AppendError::Invalid`] for a run that is over. A worker that was
//! fenced so learns that first, and may still leave a late outcome as [`Writer::Anyone`].

mod size;

use domain::TenantId;

pub use size::commit_bytes;

use super::record::{Body, Lease, Record};
use super::store::{AppendError, Commit, Committed, Writer};

/// Most bodies of a commit.
pub const BODIES_MAX: usize = 256;

/// Largest commit, by [`commit_bytes`]: payloads that are larger belong in the store of payloads.
pub const COMMIT_BYTES_MAX: u64 = 4 << 20;

/// Whether somebody can work on a run at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    Open,
    /// Until an operator does something about it.
    Quarantined,
    Terminal,
}

/// Since when a run can go on, as far as its own records say, in milliseconds since the Unix epoch. It is not the step that
/// is parked but the run: a [`Body::Parked`] without a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Wake {
    At(u64),
    /// Only when somebody acts.
    Never,
}

impl Wake {
    const NOW: Self = Self::At(0);
}

/// Where a run is: all that an engine has to know of it to take or refuse a commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Head {
    pub tenant: TenantId,
    /// Of the last record.
    pub seq: u64,
    /// The highest ever taken; 0 before the first. It stays in force when it has lapsed, until a higher one is taken.
    pub lease: u64,
    /// Who took it.
    pub owner: Box<str>,
    /// When another may take a higher one; 0: at once. By the store's clock.
    pub lease_until_unix_ms: u64,
    pub wake: Wake,
    pub standing: Standing,
}

/// Who judges whether a lease has lapsed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lapse {
    /// The store, by its clock: many processes use it.
    At(u64),
    /// Whoever takes a higher one knows that the last is void: a store of one process.
    Known,
}

/// What a commit asks of its run's head, and makes of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change<'a> {
    /// It is the run's first.
    pub admits: bool,
    /// The lease that it takes.
    pub takes: Option<&'a Lease>,
    /// It says something that nobody may say of a run that is over.
    pub needs_unfinished: bool,
    /// None: as it was.
    pub standing: Option<Standing>,
    /// None: as it was.
    pub wake: Option<Wake>,
    /// Nobody works on the run after it: the lease lapses at once.
    pub lets_go: bool,
}

/// Is it a commit at all? Engines ask this before anything else.
///
/// # Errors
/// [`AppendError::Invalid`] and [`AppendError::TooLarge`], with the rule that is broken.
pub fn check(commit: &Commit) -> Result<(), AppendError> {
    let invalid = |why| Err(AppendError::Invalid(why));
    if commit.bodies.is_empty() {
        return invalid("it has no body");
    }
    if commit.bodies.len() > BODIES_MAX {
        return invalid("it has more than 256 bodies");
    }
    // Sequences and leases are numbers of 63 bits in some engines.
    if commit.expected > i64::MAX as u64 - BODIES_MAX as u64 {
        return invalid("its sequence is out of range");
    }
    if let Writer::Lease(lease) = commit.writer
        && !(1..=i64::MAX as u64).contains(&lease)
    {
        return invalid("its lease is out of range");
    }
    let bytes = commit_bytes(commit);
    if bytes > COMMIT_BYTES_MAX {
        return Err(AppendError::TooLarge { bytes, bytes_max: COMMIT_BYTES_MAX });
    }
    let mut is_over = false;
    for (at, body) in commit.bodies.iter().enumerate() {
        check_body(commit, at, body)?;
        if matches!(body, Body::Rerun(_)) {
            is_over = false;
        } else if is_over && !matches!(body, Body::LateOutcome(_) | Body::Dismissed(_)) {
            return invalid("only a late outcome, a dismissal or a re-run follows a terminal record");
        }
        is_over |= matches!(body, Body::Terminal(_));
    }
    Ok(())
}

fn check_body(commit: &Commit, at: usize, body: &Body) -> Result<(), AppendError> {
    let invalid = |why| Err(AppendError::Invalid(why));
    let is_first = at == 0 && commit.expected == 0;
    if is_first != matches!(body, Body::Admitted(_)) {
        return invalid("an admission is the first record of a run, and the first record is an admission");
    }
    match (body, commit.writer) {
        (Body::Admitted(_), Writer::Lease(_)) => invalid("no lease is there before the admission"),
        (Body::Lease(_), _) if at > 0 => invalid("a lease is taken by the first body"),
        (Body::Lease(taken), Writer::Lease(lease)) if taken.lease != lease => {
            invalid("a lease is taken by whoever will hold it")
        }
        (body, Writer::Anyone) if !is_for_anyone(body) => invalid("this body needs a lease"),
        _ => Ok(()),
    }
}

/// What may be said of a run without working on it.
pub fn is_for_anyone(body: &Body) -> bool {
    match body {
        Body::Admitted(_)
        | Body::LateOutcome(_)
        | Body::Released(_)
        | Body::Resolved(_)
        | Body::Rerun(_)
        | Body::CancelRequested(_)
        | Body::Dismissed(_) => true,
        Body::Lease(_)
        | Body::Intent(_)
        | Body::Outcome(_)
        | Body::Parked(_)
        | Body::Quarantined(_)
        | Body::Terminal(_) => false,
    }
}

impl<'a> Change<'a> {
    /// Of a commit that [`check`] has let pass.
    pub fn of(commit: &'a Commit) -> Self {
        let mut change =
            Self { admits: false, takes: None, needs_unfinished: false, standing: None, wake: None, lets_go: false };
        for body in &commit.bodies {
            change.add(body);
        }
        change
    }

    fn add(&mut self, body: &'a Body) {
        // A late outcome may be said at any time, a dismissal is of a run that is over, and a re-run opens the run for what
        // follows it.
        let is_opened_here = self.standing.is_some();
        if !matches!(body, Body::LateOutcome(_) | Body::Rerun(_) | Body::Dismissed(_)) && !is_opened_here {
            self.needs_unfinished = true;
        }
        match body {
            Body::Admitted(_) => {
                self.admits = true;
                self.set(Standing::Open, Wake::NOW);
            }
            Body::Lease(lease) => {
                self.takes = Some(lease);
                self.wake = Some(Wake::NOW);
                self.lets_go = false;
            }
            Body::Intent(_) | Body::Outcome(_) => {
                self.wake = Some(Wake::NOW);
                self.lets_go = false;
            }
            // It may say what a run waits for.
            Body::LateOutcome(_) => self.wake = Some(Wake::NOW),
            // A step waits, and others may go on: only who says that the run waits leaves it.
            Body::Parked(parked) if parked.step.is_some() => {}
            Body::Parked(parked) => {
                self.wake = Some(parked.until_unix_ms.map_or(Wake::Never, Wake::At));
                self.lets_go = true;
            }
            Body::Released(_) | Body::Resolved(_) | Body::Rerun(_) | Body::CancelRequested(_) => {
                self.set(Standing::Open, Wake::NOW);
            }
            Body::Quarantined(_) => {
                self.set(Standing::Quarantined, Wake::Never);
                self.lets_go = true;
            }
            Body::Terminal(_) => {
                self.set(Standing::Terminal, Wake::Never);
                self.lets_go = true;
            }
            // It changes nothing of what can be done with the run.
            Body::Dismissed(_) => {}
        }
    }

    fn set(&mut self, standing: Standing, wake: Wake) {
        (self.standing, self.wake) = (Some(standing), Some(wake));
    }

    /// Until when the lease holds after it, by a clock that shows `now_unix_ms`; none: as it was. Spans are what writer and
    /// store agree on, not times: their clocks may differ.
    pub fn lease_until(&self, commit: &Commit, now_unix_ms: u64) -> Option<u64> {
        if self.lets_go {
            return Some(0);
        }
        let span = self.takes?.until_unix_ms.saturating_sub(commit.at_unix_ms);
        Some(now_unix_ms.saturating_add(span))
    }
}

impl Head {
    /// The head after the commit, which [`check`] has let pass. `now_unix_ms` is the store's clock where it has one, else the
    /// commit's own.
    ///
    /// # Errors
    /// Why it is refused, and then nothing has changed.
    pub fn after(head: Option<&Self>, commit: &Commit, lapse: Lapse) -> Result<Self, AppendError> {
        let change = Change::of(commit);
        let now_unix_ms = match lapse {
            Lapse::At(now_unix_ms) => now_unix_ms,
            Lapse::Known => commit.at_unix_ms,
        };
        let Some(head) = head else {
            if !change.admits {
                return Err(AppendError::Conflict { seq: 0 });
            }
            return Ok(Self::admitted(commit, &change, now_unix_ms));
        };
        head.allows(commit, &change, lapse)?;
        let mut after = head.clone();
        after.seq += commit.bodies.len() as u64;
        if let Some(lease) = change.takes {
            (after.lease, after.owner) = (lease.lease, lease.owner.clone());
        }
        after.lease_until_unix_ms = change.lease_until(commit, now_unix_ms).unwrap_or(after.lease_until_unix_ms);
        after.standing = change.standing.unwrap_or(after.standing);
        after.wake = change.wake.unwrap_or(after.wake);
        Ok(after)
    }

    fn admitted(commit: &Commit, change: &Change<'_>, now_unix_ms: u64) -> Self {
        Self {
            tenant: commit.tenant.clone(),
            seq: commit.bodies.len() as u64,
            lease: 0,
            owner: Box::default(),
            lease_until_unix_ms: change.lease_until(commit, now_unix_ms).unwrap_or(0),
            wake: change.wake.unwrap_or(Wake::NOW),
            standing: change.standing.unwrap_or(Standing::Open),
        }
    }

    /// May it be appended to this run?
    ///
    /// # Errors
    /// Why not.
    pub fn allows(&self, commit: &Commit, change: &Change<'_>, lapse: Lapse) -> Result<(), AppendError> {
        if self.tenant != commit.tenant {
            return Err(AppendError::Tenant);
        }
        if self.fences(commit.writer, change, lapse) {
            return Err(AppendError::Fenced { lease: self.lease });
        }
        if self.seq != commit.expected {
            return Err(AppendError::Conflict { seq: self.seq });
        }
        if let Writer::Lease(lease) = commit.writer
            && change.takes.is_none()
            && lease != self.lease
        {
            return Err(AppendError::Invalid("nobody has taken this lease"));
        }
        if self.standing == Standing::Terminal && change.needs_unfinished {
            return Err(AppendError::Invalid("the run is over"));
        }
        Ok(())
    }

    fn fences(&self, writer: Writer, change: &Change<'_>, lapse: Lapse) -> bool {
        let Writer::Lease(lease) = writer else { return false };
        let Some(taken) = change.takes else { return lease < self.lease };
        let is_held = match lapse {
            Lapse::At(now_unix_ms) => now_unix_ms < self.lease_until_unix_ms && taken.owner != self.owner,
            Lapse::Known => false,
        };
        lease <= self.lease || is_held
    }

    /// Holds on to the lease until then, by the store's clock; a time that is past lets go of it.
    ///
    /// # Errors
    /// [`AppendError::Fenced`] where a higher one was taken, and [`AppendError::Invalid`] where nobody has taken it.
    pub fn renew(&mut self, lease: u64, until_unix_ms: u64) -> Result<(), AppendError> {
        if lease < self.lease {
            return Err(AppendError::Fenced { lease: self.lease });
        }
        if lease > self.lease || lease == 0 {
            return Err(AppendError::Invalid("nobody has taken this lease"));
        }
        self.lease_until_unix_ms = until_unix_ms;
        Ok(())
    }

    /// Could it go on, and does nobody work on it?
    pub fn is_claimable(&self, lease_clock_unix_ms: u64, now_unix_ms: u64) -> bool {
        self.standing == Standing::Open
            && self.lease_until_unix_ms <= lease_clock_unix_ms
            && self.wake <= Wake::At(now_unix_ms)
    }

    /// What is answered for a commit that has made this head.
    pub fn committed(&self) -> Committed {
        Committed { seq: self.seq, lease: self.lease }
    }
}

/// The records of a commit that was taken; `lease` is the one in force after it.
pub fn records(commit: &Commit, lease: u64) -> impl Iterator<Item = Record> + '_ {
    commit.bodies.iter().zip(commit.expected + 1..).map(move |(body, seq)| Record {
        run: commit.run,
        tenant: commit.tenant.clone(),
        seq,
        lease,
        at_unix_ms: commit.at_unix_ms,
        body: body.clone(),
    })
}

#[cfg(test)]
mod tests;
