//! Who is in force, once every file was read: last good versions for faulty files, and one owner for everything that
//! can have only one.
//!
//! Who was there first stays: files that did not change and last good versions claim first, then every file that
//! changed claims what it had before and keeps, and only then what is new. Unchanged files are the first of all: two
//! tenants never answer for one endpoint, also where a last good version is found late. So a newcomer that names somebody else's
//! endpoint is the faulty one and holds up nobody's update, and an endpoint moves between two tenants when both files
//! say so in one push.

use domain::TenantId;

use super::claims::{Claims, Conflict, Owner};
use super::fallback::{Fallback, Kept};
use super::{Bad, InForce, Known, Unavailable};
use crate::fault::Fault;
use crate::tenant::{Endpoint, Tenant};

/// One file while it is being settled.
#[derive(Debug)]
pub(crate) struct Slot<C> {
    pub(crate) id: TenantId,
    pub(crate) faults: Vec<Fault>,
    /// The file's text in the spool, where it has to be kept.
    pub(crate) text: Option<Text>,
    /// In force before this load.
    before: Option<C>,
    /// What was wrong before this load.
    was: Option<Box<Bad>>,
    state: State<C>,
}

#[derive(Debug)]
enum State<C> {
    /// As it was at the load before.
    Unchanged(Known<C>),
    /// Good by itself. An incumbent was there before this process was.
    Good { tenant: C, incumbent: bool },
    /// Faulty, and what is in force instead. Few are: boxed, so that a hundred thousand good ones are small.
    Faulty(Box<Faulty<C>>),
}

#[derive(Debug)]
struct Faulty<C> {
    digest: [u8; 16],
    fallback: Fallback<C>,
    /// What answers 503, since nothing else answers for it.
    unavailable: Unavailable,
    contested: bool,
    /// What was read of it, where nothing else answers for it: whether it is somebody's else is said all the same.
    in_part: Option<InPart>,
}

/// A tenant with those of its endpoints whose ids were read.
#[derive(Debug)]
pub(crate) struct InPart {
    pub(crate) tenant: Tenant,
    /// Where each endpoint stands in the file.
    pub(crate) indexes: Vec<usize>,
}

impl<C> Faulty<C> {
    fn has_unavailable(&self) -> bool {
        self.fallback.made.is_none() || !self.fallback.gone.is_empty()
    }

    fn new(digest: [u8; 16], unavailable: Unavailable, contested: bool) -> Box<Self> {
        Box::new(Self { digest, fallback: Fallback::none(), unavailable, contested, in_part: None })
    }
}

/// Texts that may have to be kept, one behind the other: one large block that goes back as a whole, not a hundred
/// thousand holes between what stays.
#[derive(Debug, Default)]
pub(crate) struct Spool(Vec<u8>);

#[derive(Debug, Clone, Copy)]
pub(crate) struct Text {
    start: usize,
    bytes: u32,
}

impl Spool {
    /// None for a text that no file of bounded size can be.
    pub(crate) fn put(&mut self, text: &[u8]) -> Option<Text> {
        let (start, bytes) = (self.0.len(), u32::try_from(text.len()).ok()?);
        self.0.extend_from_slice(text);
        Some(Text { start, bytes })
    }

    pub(crate) fn get(&self, text: Text) -> &[u8] {
        &self.0[text.start..text.start + text.bytes as usize]
    }
}

impl<C: InForce> Slot<C> {
    pub(crate) fn unchanged(id: TenantId, known: Known<C>) -> Self {
        let faults = known.bad.as_ref().map_or_else(Vec::new, |bad| bad.faults.clone());
        Self { id, faults, text: None, before: known.tenant.clone(), was: None, state: State::Unchanged(known) }
    }

    pub(crate) fn good(id: TenantId, before: Option<Known<C>>, tenant: C, faults: Vec<Fault>, incumbent: bool) -> Self {
        let (before, was) = before.map_or((None, None), |known| (known.tenant, known.bad));
        Self { id, faults, text: None, before, was, state: State::Good { tenant, incumbent } }
    }

    pub(crate) fn faulty(
        id: TenantId,
        before: Option<Known<C>>,
        digest: [u8; 16],
        faults: Vec<Fault>,
        unavailable: Unavailable,
    ) -> Self {
        let (before, was) = before.map_or((None, None), |known| (known.tenant, known.bad));
        Self { id, faults, text: None, before, was, state: State::Faulty(Faulty::new(digest, unavailable, false)) }
    }

    /// The same with what was read of it.
    pub(crate) fn with_part(mut self, in_part: Option<InPart>) -> Self {
        if let State::Faulty(faulty) = &mut self.state {
            faulty.in_part = in_part;
        }
        self
    }

    /// Whether the file itself is in force.
    pub(crate) fn is_good(&self) -> bool {
        match &self.state {
            State::Unchanged(known) => known.bad.is_none(),
            State::Good { .. } => true,
            State::Faulty(_) => false,
        }
    }

    pub(crate) fn in_force(&self) -> Option<&C> {
        match &self.state {
            State::Unchanged(known) => known.tenant.as_ref(),
            State::Good { tenant, .. } => Some(tenant),
            State::Faulty(faulty) => faulty.fallback.made.as_ref(),
        }
    }

    /// Whether anything of it answers 503.
    pub(crate) fn has_unavailable(&self) -> bool {
        match &self.state {
            State::Unchanged(known) => known.bad.as_ref().is_some_and(|bad| bad.unavailable.is_some()),
            State::Good { .. } => false,
            State::Faulty(faulty) => faulty.has_unavailable(),
        }
    }

    pub(crate) fn changed(&self) -> bool {
        match (&self.before, self.in_force()) {
            (Some(before), Some(now)) => !before.is(now),
            (None, None) => match (&self.state, &self.was) {
                (State::Unchanged(_), _) => false,
                // Looked through again, and the same answers 503.
                (State::Faulty(now), Some(was)) => {
                    was.digest != now.digest || was.unavailable.as_ref() != Some(&now.unavailable)
                }
                (State::Faulty(_) | State::Good { .. }, _) => true,
            },
            (None, Some(_)) | (Some(_), None) => true,
        }
    }

    /// The text to be kept as the tenant's last good version.
    pub(crate) fn to_keep(&self) -> Option<Text> {
        self.text.filter(|_| self.is_good())
    }

    /// The last good version's text, of a file that is faulty.
    pub(crate) fn kept(&self) -> Option<&[u8]> {
        let kept = match &self.state {
            State::Unchanged(known) => known.bad.as_ref().map(|bad| &bad.kept),
            State::Good { .. } => None,
            State::Faulty(faulty) => Some(&faulty.fallback.kept),
        };
        kept.and_then(Kept::text)
    }

    pub(crate) fn into_known(self) -> Known<C> {
        match self.state {
            State::Unchanged(known) => known,
            State::Good { tenant, .. } => Known { tenant: Some(tenant), bad: None },
            State::Faulty(faulty) => {
                let has_unavailable = faulty.has_unavailable();
                let Faulty { digest, fallback, unavailable, contested, in_part: _ } = *faulty;
                let Fallback { made, kept, why, .. } = fallback;
                let unavailable = has_unavailable.then_some(unavailable);
                let bad = Bad { id: self.id, digest, faults: self.faults, unavailable, contested, kept, why };
                Known { tenant: made, bad: Some(Box::new(bad)) }
            }
        }
    }

    /// Turns a good file that is in conflict with somebody into a faulty one.
    fn contest(&mut self, faults: Vec<Fault>, fallback: Fallback<C>) {
        let State::Good { tenant, .. } = &self.state else { return };
        let tenant = tenant.tenant();
        let unavailable = Unavailable::all_of(tenant);
        let digest = tenant.digest;
        let endpoints = tenant.endpoints.iter().map(|it| Endpoint { secrets: Box::default(), ..it.clone() }).collect();
        let in_part =
            InPart { indexes: (0..tenant.endpoints.len()).collect(), tenant: Tenant { endpoints, ..tenant.clone() } };
        self.faults.extend(faults);
        self.state =
            State::Faulty(Box::new(Faulty { in_part: Some(in_part), ..*Faulty::new(digest, unavailable, true) }));
        self.fall_back(fallback);
    }

    fn fall_back(&mut self, fallback: Fallback<C>) {
        let State::Faulty(faulty) = &mut self.state else { return };
        if fallback.made.is_some() {
            // What answers in the last good version is there; what it has lost is not, and nothing else was known.
            faulty.unavailable = fallback.gone.clone();
        } else {
            faulty.unavailable.add(&fallback.gone);
        }
        if let Some(why) = &fallback.why {
            self.faults.push(Fault::error(&faulty.unavailable.file, "", why.as_str()));
        }
        faulty.fallback = fallback;
    }

    fn drop_fallback(&mut self) {
        let State::Faulty(faulty) = &mut self.state else { return };
        // What nobody else has of it is unavailable, and not unknown.
        if let Some(made) = faulty.fallback.made.take() {
            faulty.unavailable.add(&Unavailable::all_of(made.tenant()));
        }
        faulty.contested = true;
        let message = "the last good version cannot be used: another tenant has its endpoints";
        self.faults.push(Fault::error(&faulty.unavailable.file, "", message));
    }

    fn is_candidate(&self) -> bool {
        matches!(self.state, State::Good { .. })
    }
}

/// Where last good versions are looked up.
pub(crate) trait Past<C> {
    /// The last good version as far as it can be used now, with its secrets as they are now.
    fn fallback(&mut self, id: &TenantId, before: Option<&C>, was: Option<&Bad>) -> Fallback<C>;
    /// Whether faulty files have no last good versions, and everything is only looked at.
    fn only_looks(&self) -> bool;
    /// What the last good version has, whether it can still be used or not: its secrets are stand-ins.
    fn had(&mut self, id: &TenantId, was: Option<&Bad>) -> Option<Tenant>;
}

/// Settles who is in force.
pub(crate) fn settle<C: InForce>(mut slots: Vec<Slot<C>>, past: &mut dyn Past<C>) -> Vec<Slot<C>> {
    let endpoints = slots.iter().filter_map(Slot::in_force).map(|made| made.tenant().endpoints.len()).sum();
    let mut claims = Claims::with_capacity(endpoints);
    let fall_back =
        |slot: &Slot<C>, past: &mut dyn Past<C>| past.fallback(&slot.id, slot.before.as_ref(), slot.was.as_deref());
    // First those who were there: unchanged files, which nobody can be put before…
    for (owner, slot) in slots.iter().enumerate() {
        if let State::Unchanged(Known { tenant: Some(made), .. }) = &slot.state {
            claims.claim(owner, made.tenant());
        }
    }
    // … then last good versions, and what the state directory has as it is.
    for owner in 0..slots.len() {
        if matches!(slots[owner].state, State::Unchanged(_)) {
            continue;
        }
        if matches!(slots[owner].state, State::Faulty(_)) {
            let fallback = fall_back(&slots[owner], past);
            slots[owner].fall_back(fallback);
        }
        let first = !matches!(slots[owner].state, State::Good { incumbent: false, .. });
        if let Some(made) = slots[owner].in_force().filter(|_| first).cloned() {
            let tenant = made.tenant();
            let conflicts = claims.conflicts(owner, tenant);
            if conflicts.is_empty() {
                claims.claim(owner, tenant);
            } else {
                // Only a state directory that somebody edited, or two files that were swapped while nobody looked.
                let faults = said(&conflicts, tenant, None, &slots);
                slots[owner].contest(faults, Fallback::none());
                slots[owner].drop_fallback();
            }
        }
    }
    // Then what those who changed had before and keep: it is nobody else's, whoever comes first by name.
    for (owner, slot) in slots.iter().enumerate() {
        let State::Good { tenant, incumbent: false } = &slot.state else { continue };
        if let Some(before) = &slot.before {
            claims.claim_kept(owner, tenant.tenant(), before.tenant());
        } else if let Some(had) = past.had(&slot.id, slot.was.as_deref()) {
            claims.claim_kept(owner, tenant.tenant(), &had);
        }
    }
    let mut unread = Claims::default();
    // What was in force of a faulty file cannot be said while the state directory cannot be read. What its text names is
    // kept free of newcomers until then: who takes it would keep it.
    for (owner, slot) in slots.iter().enumerate() {
        if let State::Faulty(faulty) = &slot.state
            && faulty.fallback.unread
        {
            unread.claim_named(owner, &faulty.unavailable, &claims);
        }
    }
    // Then the newcomers, by name; one that fails puts its last good version back, which was there before them all.
    let mut failing = Vec::new();
    for owner in 0..slots.len() {
        let State::Good { tenant, incumbent: false } = &slots[owner].state else { continue };
        let made = tenant.clone();
        let tenant = made.tenant();
        let mut conflicts = claims.conflicts(owner, tenant);
        if conflicts.is_empty() {
            conflicts = unread.conflicts(owner, tenant);
        }
        if conflicts.is_empty() {
            claims.claim(owner, tenant);
            continue;
        }
        failing.push((owner, said(&conflicts, tenant, None, &slots)));
        while let Some((owner, faults)) = failing.pop() {
            let fallback = fall_back(&slots[owner], past);
            if let Some(made) = slots[owner].in_force() {
                claims.release(owner, made.tenant());
            }
            slots[owner].contest(faults, fallback);
            put_back(owner, &mut slots, &mut claims, &mut failing);
        }
    }
    if past.only_looks() {
        say_the_rest(&mut slots, &mut claims);
    }
    slots
}

/// Says of faulty files, too, what of theirs is somebody else's: who mends them need not hear it afterwards.
fn say_the_rest<C: InForce>(slots: &mut [Slot<C>], claims: &mut Claims) {
    for owner in 0..slots.len() {
        let State::Faulty(faulty) = &mut slots[owner].state else { continue };
        let Some(InPart { tenant, indexes }) = faulty.in_part.take() else { continue };
        let conflicts = claims.conflicts(owner, &tenant);
        let faults = said(&conflicts, &tenant, Some(&indexes), slots);
        let new: Vec<_> = faults.into_iter().filter(|fault| !slots[owner].faults.contains(fault)).collect();
        slots[owner].faults.extend(new);
        claims.claim_kept(owner, &tenant, &tenant);
    }
}

/// Claims for a last good version again what newcomers took meanwhile; they fail in turn, each at most once.
fn put_back<C: InForce>(
    owner: Owner,
    slots: &mut [Slot<C>],
    claims: &mut Claims,
    failing: &mut Vec<(Owner, Vec<Fault>)>,
) {
    let Some(made) = slots[owner].in_force().cloned() else { return };
    let fallback = made.tenant();
    let conflicts = claims.conflicts(owner, fallback);
    if conflicts.iter().any(|conflict| !slots[conflict.owner].is_candidate()) {
        slots[owner].drop_fallback();
        return;
    }
    let mut others: Vec<Owner> = conflicts.iter().map(|conflict| conflict.owner).collect();
    others.sort_unstable();
    others.dedup();
    for other in others {
        let Some(made) = slots[other].in_force() else { continue };
        let taken = made.tenant();
        claims.release(other, taken);
        claims.claim(owner, fallback);
        let conflicts = claims.conflicts(other, taken);
        failing.push((other, said(&conflicts, taken, None, slots)));
    }
    claims.claim(owner, fallback);
}

/// What is in conflict, in sentences. `indexes` says where endpoints stand in the file, if not one behind the other.
fn said<C>(conflicts: &[Conflict<'_>], tenant: &Tenant, indexes: Option<&[usize]>, slots: &[Slot<C>]) -> Vec<Fault> {
    let faults = conflicts.iter().map(|conflict| {
        let line = conflict.endpoint.line;
        let index = tenant.endpoints.iter().position(|endpoint| std::ptr::eq(endpoint, conflict.endpoint)).unwrap_or(0);
        let index = indexes.and_then(|indexes| indexes.get(index)).copied().unwrap_or(index);
        let other = &slots[conflict.owner].id;
        match conflict.alias {
            None => {
                let message = format!(
                    "\"{}\" is an endpoint of {other}.toml already; choose another id, or take it out there in the same push",
                    conflict.endpoint.id
                );
                tenant.fault(line, format!("endpoint[{index}].id"), message)
            }
            Some(alias) => {
                let message = format!("\"{alias}\" leads to an endpoint of {other}.toml already; a place leads to one endpoint");
                tenant.fault(line, format!("endpoint[{index}].aliases"), message)
            }
        }
    });
    // One file of 10,000 stolen ids says enough with its first ones.
    faults.take(20).collect()
}
