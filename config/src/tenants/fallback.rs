//! What answers for a tenant whose file is faulty: its last good version, with its secrets as they are now.
//!
//! It is made of the last good version's text and of what the text refers to, and of nothing else: so it is the same in
//! a process that runs and in one that starts. What the text names and cannot be used now (a file that was taken away,
//! is empty, or holds no key of its scheme) is not used; an endpoint that has nothing left answers 503. Only where
//! something cannot be read for now, such as while too many files are open, what was in force stays until it can be.

use std::sync::Arc;

use domain::{ConnectionId, Secret, TenantId};

use super::digest::{self, References};
use super::last_good::{Index, LastGood, Which};
use super::reader::Reader;
use super::settle::Past;
use super::{Bad, InForce, Unavailable};
use crate::fault::has_errors;
use crate::read;
use crate::secret::{ResolvedSecret, TenantSecrets};
use crate::tenant::{Endpoint, Tenant};
use crate::tenant_file;

/// Endpoints that are named in a fault; the rest is many.
const NAMED_MAX: usize = 20;

const LOST: &str = "its last good version is not in tenants.state_directory any more, so its secrets cannot be read anew: its endpoints answer 503";

/// The text of the last good version, of a tenant whose file is faulty. It is kept in memory for as long as that lasts:
/// it is looked through at every load.
#[derive(Debug, Clone)]
pub(crate) enum Kept {
    /// Nobody has looked for it.
    Unknown,
    /// It is not in this file of the state directory.
    Nothing(Which),
    /// And its digest when it was looked through.
    Text(Arc<[u8]>, [u8; 16]),
}

impl Kept {
    pub(super) fn text(&self) -> Option<&[u8]> {
        match self {
            Self::Unknown | Self::Nothing(_) => None,
            Self::Text(text, _) => Some(text),
        }
    }
}

/// What answers for a faulty file.
#[derive(Debug)]
pub(crate) struct Fallback<C> {
    pub(super) made: Option<C>,
    /// What the last good version had and cannot answer for now.
    pub(super) gone: Unavailable,
    /// What is wrong with it, if anything is.
    pub(super) why: Option<String>,
    pub(super) kept: Kept,
    /// Whether nothing is made for now only because the state directory cannot be read, which passes.
    pub(super) unread: bool,
}

impl<C> Fallback<C> {
    pub(super) fn none() -> Self {
        Self { made: None, gone: Unavailable::default(), why: None, kept: Kept::Unknown, unread: false }
    }
}

/// Texts that are not in memory: where they are, and what was found there.
#[derive(Debug)]
pub(super) struct Shelf<'a> {
    /// As it was when the process started.
    pub(super) index: Option<&'a Index>,
    /// Texts of this process that could not be written.
    pub(super) unkept: &'a std::collections::HashMap<TenantId, Box<[u8]>>,
    /// Tenants whose removal could not be written: what the file has of them does not count.
    pub(super) gone: &'a std::collections::BTreeSet<TenantId>,
    pub(super) last_good: Option<&'a LastGood>,
    pub(super) which: Which,
    /// As it is now: read once in a load, and only where somebody needs it.
    pub(super) now: Option<Result<Index, (String, bool)>>,
}

impl<'a> Shelf<'a> {
    pub(super) fn new(
        index: Option<&'a Index>,
        unkept: &'a std::collections::HashMap<TenantId, Box<[u8]>>,
        gone: &'a std::collections::BTreeSet<TenantId>,
        last_good: Option<&'a LastGood>,
    ) -> Self {
        Self { index, unkept, gone, last_good, which: last_good.and_then(LastGood::which), now: None }
    }

    /// A tenant's last good text; a sentence, and whether it passes, where that cannot be said.
    fn text(&mut self, id: &TenantId) -> Result<Option<Vec<u8>>, (String, bool)> {
        if let Some(text) = self.unkept.get(id) {
            return Ok(Some(text.to_vec()));
        }
        if self.gone.contains(id) {
            return Ok(None);
        }
        let said = |fault: std::io::Error| (format!("the last good version cannot be read: {fault}"), passes(&fault));
        let index = match (self.index, self.last_good) {
            (Some(index), _) => index,
            (None, None) => return Ok(None),
            (None, Some(last_good)) => {
                let now = self.now.get_or_insert_with(|| last_good.look().map_err(said));
                now.as_ref().map_err(Clone::clone)?
            }
        };
        index.read_one(id).map_err(said)
    }

    /// What is looked at now, if it is damaged: what is written behind the damage is read by nobody.
    pub(super) fn damaged(&self) -> Option<&Index> {
        let now = self.now.as_ref().and_then(|now| now.as_ref().ok());
        self.index.or(now).filter(|index| index.damaged)
    }
}

/// Whether it may be read later on: what is no regular file stays so.
pub(super) fn passes(fault: &std::io::Error) -> bool {
    read::is_passing(fault) && fault.kind() != std::io::ErrorKind::Unsupported
}

impl<C: InForce> Reader<'_, '_, C> {
    pub(super) fn secrets<'s>(&'s self, id: &'s TenantId) -> TenantSecrets<'s> {
        let allowed = &self.appliance.tenants.allow_env;
        TenantSecrets::new(self.environment, allowed, &self.rules.directory, id.as_str()).beside(self.neighbours)
    }

    /// Whether the last good version of a faulty file, with all that it refers to, is as it was.
    pub(super) fn is_kept_unchanged(&self, id: &TenantId, kept: &Kept) -> bool {
        match kept {
            Kept::Unknown => false,
            Kept::Nothing(which) => *which == self.shelf.which,
            Kept::Text(text, digest) => {
                let mut secrets = self.secrets(id);
                let resolve = &mut |reference: &str| secrets.resolve(reference);
                let same = self.digester.of(text, &mut References::default(), resolve) == *digest;
                same && !secrets.any_passing()
            }
        }
    }

    /// A version without what of its secrets cannot be used, what has none left (it is disabled in it), and what is
    /// missing, if anything is. None where more than that is wrong, with the first fault.
    fn with_what_is_there(
        &mut self,
        id: &TenantId,
        text: &[u8],
        digest: [u8; 16],
        references: &References,
    ) -> Result<(C, Unavailable, Option<String>), String> {
        let path = self.path(id);
        // No secret is empty: this one stands for those that cannot be used until they are taken out.
        let none = || ResolvedSecret { secret: Secret::new(*b""), warning: None };
        let resolve = &mut |it: &str| references.take(it).unwrap_or(Ok(none())).or_else(|_| Ok(none()));
        let rules = self.rules.lenient();
        let (tenant, faults) = tenant_file::parse(&path, Some(id), text, &rules, &mut self.names, resolve);
        let first = |faults: &[crate::Fault]| {
            faults.iter().find(|fault| fault.is_error()).map_or_else(String::new, |fault| fault.message.clone())
        };
        let mut tenant = tenant.ok_or_else(|| first(&faults))?;
        tenant.digest = digest;
        let (mut gone, mut lost) = (Unavailable::of(&path), false);
        for endpoint in &mut tenant.endpoints {
            let left = endpoint.secrets.iter().filter(|entry| !entry.secret.expose().is_empty()).cloned();
            let left: Box<[_]> = left.collect();
            lost |= endpoint.enabled && left.len() < endpoint.secrets.len();
            endpoint.secrets = left;
            give_up_without_secrets(endpoint, &mut gone);
        }
        let calls = self.connections_lost(&tenant);
        let (made, faults) = (self.judge)(tenant.clone());
        if let Some(made) = made.filter(|_| !has_errors(&faults)) {
            return Ok((made, gone.clone(), (lost || !calls.is_empty()).then(|| lost_secrets(&gone, &calls))));
        }
        // Then it may be what is in the files: text that is no key of its scheme, or no certificate.
        let mut endpoints = std::mem::take(&mut tenant.endpoints);
        if !self.passes(&tenant, &[]) {
            if let Some(egress) = tenant.egress_mut() {
                egress.withdraw_tls();
            }
            if !self.passes(&tenant, &[]) {
                return Err(first(&faults));
            }
        }
        // Its way out was judged: not again with every endpoint.
        self.take_out_unfit(&tenant.without_egress(), &mut endpoints, &mut gone);
        tenant.endpoints = endpoints;
        let calls = self.connections_lost(&tenant);
        let (made, faults) = (self.judge)(tenant);
        let made = made.filter(|_| !has_errors(&faults)).ok_or_else(|| first(&faults))?;
        let why = lost_secrets(&gone, &calls);
        Ok((made, gone, Some(why)))
    }

    /// Connections that cannot be called for want of a secret.
    fn connections_lost(&self, tenant: &Tenant) -> Vec<ConnectionId> {
        let egress = tenant.egress().filter(|_| self.rules.takes_calls);
        let connections = egress.iter().flat_map(|egress| egress.connections.iter().map(|it| (*egress, it)));
        let lost = connections.filter(|(egress, connection)| {
            !connection.usable || egress.credential(connection).is_some_and(|credential| credential.value.is_none())
        });
        lost.map(|(_, connection)| connection.id.clone()).collect()
    }

    /// Takes out secrets that their endpoints' schemes refuse. It halves what it looks at, so that one among many costs
    /// a look at each of them and some more.
    fn take_out_unfit(&mut self, bare: &Tenant, endpoints: &mut [Endpoint], gone: &mut Unavailable) {
        if endpoints.is_empty() || self.passes(bare, endpoints) {
            return;
        }
        if let [endpoint] = endpoints {
            let secrets = std::mem::take(&mut endpoint.secrets);
            let fit = secrets.iter().filter(|entry| {
                let one = Endpoint { secrets: [(*entry).clone()].into(), ..endpoint.clone() };
                self.passes(bare, &[one])
            });
            endpoint.secrets = fit.cloned().collect();
            give_up_without_secrets(endpoint, gone);
            return;
        }
        let (one, other) = endpoints.split_at_mut(endpoints.len() / 2);
        self.take_out_unfit(bare, one, gone);
        self.take_out_unfit(bare, other, gone);
    }

    fn passes(&mut self, bare: &Tenant, endpoints: &[Endpoint]) -> bool {
        let (made, faults) = (self.judge)(Tenant { endpoints: endpoints.into(), ..bare.clone() });
        made.is_some() && !has_errors(&faults)
    }

    fn parse_with_stand_ins(&mut self, id: &TenantId, text: &[u8]) -> Option<Tenant> {
        let stand_in = &mut |_: &str| Ok(ResolvedSecret { secret: Secret::new(*b"any"), warning: None });
        tenant_file::parse(&self.path(id), Some(id), text, &self.rules.lenient(), &mut self.names, stand_in).0
    }
}

fn give_up_without_secrets(endpoint: &mut Endpoint, gone: &mut Unavailable) {
    if endpoint.enabled && endpoint.secrets.is_empty() {
        endpoint.enabled = false;
        gone.endpoints.push(endpoint.id.clone());
        gone.aliases.extend(endpoint.aliases().iter().cloned());
    }
}

impl<C: InForce> Past<C> for Reader<'_, '_, C> {
    fn fallback(&mut self, id: &TenantId, before: Option<&C>, was: Option<&Bad>) -> Fallback<C> {
        let kept = was.map_or(&Kept::Unknown, |was| &was.kept);
        // While it cannot be said what there is now, what was stays, also what of it answered 503.
        let mut gone = Unavailable::of(&self.path(id));
        if let Some(unavailable) = was.and_then(|was| was.unavailable.as_ref()) {
            gone.add_at_most(unavailable, 2 * self.rules.endpoints_max);
        }
        let as_it_was = |gone: &Unavailable, why: Option<String>, kept: Kept| {
            let why = why.or_else(|| was.and_then(|was| was.why.clone()));
            Fallback { made: before.cloned(), gone: gone.clone(), why, kept, unread: false }
        };
        let unusable = |mut gone: Unavailable, had: Option<&Tenant>, why: Option<String>, kept: Kept| {
            for had in before.map(InForce::tenant).into_iter().chain(had) {
                gone.add(&Unavailable::all_of(had));
            }
            Fallback { made: None, gone, why, kept, unread: false }
        };
        let text: Arc<[u8]> = match kept {
            Kept::Text(text, _) => Arc::clone(text),
            Kept::Nothing(which) if *which == self.shelf.which => {
                return unusable(gone, None, None, kept.clone());
            }
            Kept::Nothing(_) | Kept::Unknown => match self.shelf.text(id) {
                Ok(Some(text)) => text.into(),
                Ok(None) => {
                    let was_lost = was.is_some_and(|was| was.why.as_deref() == Some(LOST));
                    let why = (before.is_some() || was_lost).then(|| LOST.into());
                    // What is damaged is mended by this load: then somebody can say that there is nothing.
                    let damaged = self.shelf.damaged().is_some();
                    let kept = if damaged { Kept::Unknown } else { Kept::Nothing(self.shelf.which) };
                    return unusable(gone, None, why, kept);
                }
                Err((why, passes)) => {
                    self.again |= passes;
                    return if passes && before.is_some() {
                        as_it_was(&gone, Some(why), Kept::Unknown)
                    } else {
                        Fallback { unread: passes, ..unusable(gone, None, Some(why), Kept::Unknown) }
                    };
                }
            },
        };
        let mut references = References::default();
        let (digest, passing, may_be_unchanged) = {
            let mut secrets = self.secrets(id);
            let resolve = &mut |reference: &str| secrets.resolve(reference);
            let digest = self.digester.of(&text, &mut references, resolve);
            (digest, secrets.any_passing(), secrets.may_be_unchanged())
        };
        self.again |= passing;
        let kept = Kept::Text(Arc::clone(&text), digest);
        let same = before.filter(|made| made.tenant().digest == digest);
        if same.is_some() || may_be_unchanged && before.is_some() {
            return as_it_was(&gone, None, kept);
        }
        match self.with_what_is_there(id, &text, digest, &references) {
            Ok((made, gone, why)) => Fallback { made: Some(made), gone, why, kept, unread: false },
            // The settings that it is judged by are others, and what it says and refers to is the same.
            Err(_) if before.is_some_and(|made| digest::has_same_content(&made.tenant().digest, &digest)) => {
                as_it_was(&gone, None, kept)
            }
            Err(first) => {
                let had = self.parse_with_stand_ins(id, &text);
                let why = format!("the last good version cannot be used either: {first}");
                unusable(gone, had.as_ref(), Some(why), kept)
            }
        }
    }

    fn only_looks(&self) -> bool {
        self.spool.is_none()
    }

    fn had(&mut self, id: &TenantId, was: Option<&Bad>) -> Option<Tenant> {
        let text = match was.map(|was| &was.kept) {
            Some(Kept::Text(text, _)) => Arc::clone(text),
            _ => self.shelf.index?.read_one(id).ok()??.into(),
        };
        self.parse_with_stand_ins(id, &text)
    }
}

fn lost_secrets(gone: &Unavailable, calls: &[ConnectionId]) -> String {
    fn named(what: &str, ids: &[impl ToString]) -> String {
        let ids: Vec<_> = ids.iter().take(NAMED_MAX).map(ToString::to_string).collect();
        match ids.as_slice() {
            [] => String::new(),
            ids => format!("; without any, these {what} answer 503: {}", ids.join(", ")),
        }
    }
    let (endpoints, connections) = (named("endpoints", &gone.endpoints), named("connections", calls));
    format!(
        "what is in force has lost the secrets that are not there any more or cannot be used{endpoints}{connections}"
    )
}
