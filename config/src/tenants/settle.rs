//! Who is in force, once every file was read: last good versions for faulty files, and one owner for everything that
//! can have only one.
//!
//! Who was there first stays: files that did not change and last good versions claim first, then every file that
//! changed claims what it had before and keeps, and only then what is new. So a newcomer that names somebody else's
//! endpoint is the faulty one and holds up nobody's update, and an endpoint moves between two tenants when both files
//! say so in one push.

use std::sync::Arc;

use domain::TenantId;

use super::claims::{Claims, Conflict, Owner};
use super::{Bad, Judged, Known, Unavailable};
use crate::fault::Fault;
use crate::tenant::Tenant;

/// One file while it is being settled.
#[derive(Debug)]
pub(crate) struct Slot<C> {
    pub(crate) id: TenantId,
    pub(crate) faults: Vec<Fault>,
    /// The file's text in the spool, where it has to be kept.
    pub(crate) text: Option<Text>,
    /// The version in force without the secrets that are gone, and what has none left.
    pub(crate) revoked: Option<Box<(Arc<C>, Unavailable)>>,
    /// In force before this load.
    before: Option<Arc<C>>,
    state: State<C>,
}

#[derive(Debug)]
enum State<C> {
    /// As it was at the load before.
    Unchanged(Known<C>),
    /// Good by itself. An incumbent was there before this process was.
    Good { tenant: Arc<C>, incumbent: bool },
    /// Faulty, and what is in force instead. Few are: boxed, so that a hundred thousand good ones are small.
    Faulty(Box<Faulty<C>>),
}

#[derive(Debug)]
struct Faulty<C> {
    digest: [u8; 16],
    fallback: Option<Arc<C>>,
    unavailable: Unavailable,
    /// Whether what is unavailable are endpoints of the fallback.
    partial: bool,
    contested: bool,
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

/// A version to fall back to.
pub(crate) enum Candidate<C> {
    None,
    Unusable(String),
    Usable(Arc<C>),
    /// Without the secrets that are gone; what has none left.
    Revoked(Arc<C>, Unavailable),
}

impl<C: Judged> Slot<C> {
    pub(crate) fn unchanged(id: TenantId, known: Known<C>) -> Self {
        let faults = known.bad.as_ref().map_or_else(Vec::new, |bad| bad.faults.clone());
        Self { id, faults, text: None, revoked: None, before: known.tenant.clone(), state: State::Unchanged(known) }
    }

    pub(crate) fn good(
        id: TenantId,
        before: Option<Arc<C>>,
        tenant: Arc<C>,
        faults: Vec<Fault>,
        incumbent: bool,
    ) -> Self {
        Self { id, faults, text: None, revoked: None, before, state: State::Good { tenant, incumbent } }
    }

    pub(crate) fn faulty(
        id: TenantId,
        before: Option<Arc<C>>,
        digest: [u8; 16],
        faults: Vec<Fault>,
        unavailable: Unavailable,
    ) -> Self {
        let state =
            State::Faulty(Box::new(Faulty { digest, fallback: None, unavailable, partial: false, contested: false }));
        Self { id, faults, text: None, revoked: None, before, state }
    }

    /// Whether the file itself is in force.
    pub(crate) fn is_good(&self) -> bool {
        match &self.state {
            State::Unchanged(known) => known.bad.is_none(),
            State::Good { .. } => true,
            State::Faulty(_) => false,
        }
    }

    pub(crate) fn in_force(&self) -> Option<&Arc<C>> {
        match &self.state {
            State::Unchanged(known) => known.tenant.as_ref(),
            State::Good { tenant, .. } => Some(tenant),
            State::Faulty(faulty) => faulty.fallback.as_ref(),
        }
    }

    /// Whether anything of it answers 503.
    pub(crate) fn has_unavailable(&self) -> bool {
        match &self.state {
            State::Unchanged(known) => known.bad.as_ref().is_some_and(|bad| bad.unavailable.is_some()),
            State::Good { .. } => false,
            State::Faulty(faulty) => faulty.partial || faulty.fallback.is_none(),
        }
    }

    pub(crate) fn changed(&self) -> bool {
        match (&self.before, self.in_force()) {
            (Some(before), Some(now)) => !Arc::ptr_eq(before, now),
            (None, None) => !matches!(self.state, State::Unchanged(_)),
            (None, Some(_)) | (Some(_), None) => true,
        }
    }

    /// The text to be kept as the tenant's last good version.
    pub(crate) fn to_keep(&self) -> Option<Text> {
        self.text.filter(|_| self.is_good())
    }

    pub(crate) fn into_known(self) -> Known<C> {
        match self.state {
            State::Unchanged(known) => known,
            State::Good { tenant, .. } => Known { tenant: Some(tenant), bad: None },
            State::Faulty(faulty) => {
                let Faulty { digest, fallback, unavailable, partial, contested } = *faulty;
                let unavailable = (partial || fallback.is_none()).then_some(unavailable);
                let bad = Bad { id: self.id, digest, faults: self.faults, unavailable, contested };
                Known { tenant: fallback, bad: Some(Box::new(bad)) }
            }
        }
    }

    /// Turns a good file that is in conflict with somebody into a faulty one.
    fn contest(&mut self, faults: Vec<Fault>, fallback: Candidate<C>) {
        let State::Good { tenant, .. } = &self.state else { return };
        let tenant = tenant.tenant();
        let ids = tenant.endpoints.iter().map(|endpoint| endpoint.id.clone()).collect();
        let aliases = tenant.endpoints.iter().flat_map(|endpoint| endpoint.aliases().iter().cloned()).collect();
        let unavailable = Unavailable { file: tenant.file(), endpoints: ids, aliases };
        let digest = tenant.digest;
        self.faults.extend(faults);
        self.state =
            State::Faulty(Box::new(Faulty { digest, fallback: None, unavailable, partial: false, contested: true }));
        self.fall_back(fallback);
    }

    fn fall_back(&mut self, candidate: Candidate<C>) {
        let State::Faulty(faulty) = &mut self.state else { return };
        match candidate {
            Candidate::None => {}
            Candidate::Unusable(message) => self.faults.push(Fault::error(&faulty.unavailable.file, "", message)),
            Candidate::Usable(tenant) => faulty.fallback = Some(tenant),
            Candidate::Revoked(tenant, gone) => {
                let ids: Vec<_> = gone.endpoints.iter().take(20).map(ToString::to_string).collect();
                let without = match ids.as_slice() {
                    [] => String::new(),
                    ids => format!("; without any, these endpoints answer 503: {}", ids.join(", ")),
                };
                let message = format!("what is in force has lost the secrets that are not there any more{without}");
                self.faults.push(Fault::error(&gone.file, "", message));
                faulty.fallback = Some(tenant);
                faulty.unavailable = gone;
                faulty.partial = true;
            }
        }
    }

    /// What a version had that cannot be used any more is unavailable, and not unknown.
    fn is_unavailable(&mut self, had: Option<&Tenant>) {
        let (State::Faulty(faulty), Some(had)) = (&mut self.state, had) else { return };
        for endpoint in had.endpoints.iter().filter(|endpoint| endpoint.enabled) {
            faulty.unavailable.endpoints.push(endpoint.id.clone());
            faulty.unavailable.aliases.extend(endpoint.aliases().iter().cloned());
        }
        faulty.unavailable.endpoints.sort_unstable();
        faulty.unavailable.endpoints.dedup();
        faulty.unavailable.aliases.sort_unstable();
        faulty.unavailable.aliases.dedup();
    }

    fn drop_fallback(&mut self, message: String) {
        if let State::Faulty(faulty) = &mut self.state {
            faulty.fallback = None;
            faulty.partial = false;
            faulty.contested = true;
            self.faults.push(Fault::error(&faulty.unavailable.file, "", message));
        }
    }

    fn is_candidate(&self) -> bool {
        matches!(self.state, State::Good { .. })
    }
}

/// Where versions that are not in memory are looked up: the state directory.
pub(crate) trait Past<C> {
    /// The last good version, if it can still be used.
    fn last_good(&mut self, id: &TenantId) -> Candidate<C>;
    /// What the last good version has, whether it can still be used or not: its secrets are stand-ins.
    fn had(&mut self, id: &TenantId) -> Option<Tenant>;
}

/// Settles who is in force.
pub(crate) fn settle<C: Judged>(mut slots: Vec<Slot<C>>, past: &mut dyn Past<C>) -> Vec<Slot<C>> {
    let endpoints = slots.iter().filter_map(Slot::in_force).map(|made| made.tenant().endpoints.len()).sum();
    let mut claims = Claims::with_capacity(endpoints);
    let fall_back = |slot: &Slot<C>, past: &mut dyn Past<C>| match (slot.revoked.as_deref(), &slot.before) {
        (Some((revoked, gone)), _) => Candidate::Revoked(Arc::clone(revoked), gone.clone()),
        (None, Some(before)) => Candidate::Usable(Arc::clone(before)),
        (None, None) => past.last_good(&slot.id),
    };
    // First those who were there: unchanged files, last good versions, and what the state directory has as it is.
    for owner in 0..slots.len() {
        if matches!(slots[owner].state, State::Faulty(_)) {
            let candidate = fall_back(&slots[owner], past);
            if matches!(candidate, Candidate::Unusable(_)) {
                let had = past.had(&slots[owner].id);
                slots[owner].is_unavailable(had.as_ref());
            }
            slots[owner].fall_back(candidate);
        }
        let first = !matches!(slots[owner].state, State::Good { incumbent: false, .. });
        if let Some(made) = slots[owner].in_force().filter(|_| first).cloned() {
            let tenant = made.tenant();
            let conflicts = claims.conflicts(owner, tenant);
            if conflicts.is_empty() {
                claims.claim(owner, tenant);
            } else {
                // Only a state directory that somebody edited, or two files that were swapped while nobody looked.
                let faults = said(&conflicts, tenant, &slots);
                slots[owner].contest(faults, Candidate::None);
                slots[owner]
                    .drop_fallback("the last good version cannot be used: another tenant has its endpoints".into());
            }
        }
    }
    // Then what those who changed had before and keep: it is nobody else's, whoever comes first by name.
    for (owner, slot) in slots.iter().enumerate() {
        let State::Good { tenant, incumbent: false } = &slot.state else { continue };
        if let Some(before) = &slot.before {
            claims.claim_kept(owner, tenant.tenant(), before.tenant());
        } else if let Some(had) = past.had(&slot.id) {
            claims.claim_kept(owner, tenant.tenant(), &had);
        }
    }
    // Then the newcomers, by name; one that fails puts its last good version back, which was there before them all.
    let mut failing = Vec::new();
    for owner in 0..slots.len() {
        let State::Good { tenant, incumbent: false } = &slots[owner].state else { continue };
        let made = Arc::clone(tenant);
        let tenant = made.tenant();
        let conflicts = claims.conflicts(owner, tenant);
        if conflicts.is_empty() {
            claims.claim(owner, tenant);
            continue;
        }
        failing.push((owner, said(&conflicts, tenant, &slots)));
        while let Some((owner, faults)) = failing.pop() {
            let candidate = fall_back(&slots[owner], past);
            if let Some(made) = slots[owner].in_force() {
                claims.release(owner, made.tenant());
            }
            slots[owner].contest(faults, candidate);
            put_back(owner, &mut slots, &mut claims, &mut failing);
        }
    }
    slots
}

/// Claims for a last good version again what newcomers took meanwhile; they fail in turn, each at most once.
fn put_back<C: Judged>(
    owner: Owner,
    slots: &mut [Slot<C>],
    claims: &mut Claims,
    failing: &mut Vec<(Owner, Vec<Fault>)>,
) {
    let Some(made) = slots[owner].in_force().cloned() else { return };
    let fallback = made.tenant();
    let conflicts = claims.conflicts(owner, fallback);
    if conflicts.iter().any(|conflict| !slots[conflict.owner].is_candidate()) {
        slots[owner].drop_fallback("the last good version cannot be used: another tenant has its endpoints".into());
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
        failing.push((other, said(&conflicts, taken, slots)));
    }
    claims.claim(owner, fallback);
}

fn said<C>(conflicts: &[Conflict<'_>], tenant: &Tenant, slots: &[Slot<C>]) -> Vec<Fault> {
    let faults = conflicts.iter().map(|conflict| {
        let line = conflict.endpoint.line;
        let index = tenant.endpoints.iter().position(|endpoint| std::ptr::eq(endpoint, conflict.endpoint)).unwrap_or(0);
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
