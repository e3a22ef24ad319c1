//! One tenant's file after the other: is it as it was, and if not, what does it say now?

use std::path::{Path, PathBuf};
use std::sync::Arc;

use domain::TenantId;

use super::digest::{self, Digester, References};
use super::last_good::Index;
use super::settle::{Candidate, Past, Slot, Spool};
use super::{Judge, Judged, Known, Unavailable, recover};
use crate::environment::Environment;
use crate::fault::Fault;
use crate::read;
use crate::secret::{ResolvedSecret, TenantSecrets};
use crate::settings::Appliance;
use crate::tenant::{Tenant, file_of};
use crate::tenant_file::{self, Names, Resolve, Rules};

/// Reads one file after the other.
pub(super) struct Reader<'a, 'j, C> {
    pub(super) appliance: &'a Appliance,
    pub(super) environment: &'a dyn Environment,
    pub(super) rules: Rules,
    pub(super) digester: &'a Digester,
    pub(super) names: Names,
    /// Where texts go that may have to be kept; none where nothing is.
    pub(super) spool: Option<Spool>,
    pub(super) unsaved: bool,
    pub(super) index: Option<&'a Index>,
    pub(super) judge: &'a mut Judge<'j, C>,
}

impl<C: Judged> Reader<'_, '_, C> {
    fn path(&self, id: &TenantId) -> PathBuf {
        file_of(&self.rules.directory, id.as_str())
    }

    /// A file that could not even be looked for: what was in force stays.
    pub(super) fn unread(&self, id: TenantId, before: Option<Known<C>>) -> Slot<C> {
        match before {
            Some(known) => Slot::unchanged(id, known),
            None => Slot::faulty(id, None, [0; 16], Vec::new(), Unavailable::of(&self.rules.directory)),
        }
    }

    pub(super) fn is_there(&self, id: &TenantId) -> bool {
        std::fs::symlink_metadata(self.path(id)).is_ok()
    }

    pub(super) fn read(&mut self, id: TenantId, before: Option<Known<C>>) -> Slot<C> {
        let path = self.path(&id);
        let bytes = match read::file(&path, self.appliance.tenants.file_bytes_max) {
            Ok((bytes, _)) => bytes,
            Err(fault) => return self.unreadable(id, before, &path, &fault),
        };
        let mut secrets =
            TenantSecrets::new(self.environment, &self.appliance.tenants.allow_env, &self.rules.directory, id.as_str());
        let mut references = References::default();
        let digest = self.digester.of(&bytes, &mut references, &mut |reference| secrets.resolve(reference));
        let unchanged = before.as_ref().is_some_and(|known| match (&known.bad, &known.tenant) {
            (Some(bad), _) => bad.digest == digest && !bad.contested,
            (None, Some(made)) => made.tenant().digest == digest,
            (None, None) => false,
        });
        match before {
            Some(known) if unchanged => {
                let mut slot = Slot::unchanged(id, known);
                if self.unsaved && slot.is_good() {
                    slot.text = self.spool.as_mut().and_then(|spool| spool.put(&bytes));
                }
                slot
            }
            before => {
                // What is no reference at all was not looked up before; what is wrong with it is said in one place.
                let resolve = &mut |it: &str| references.take(it).unwrap_or_else(|| secrets.resolve(it));
                let before = before.and_then(|known| known.tenant);
                let in_force = before.as_ref().is_some_and(|made| digest::is_same_text(&made.tenant().digest, &digest));
                let mut slot = self.parse(id, before, &path, &bytes, digest, resolve);
                if in_force && !slot.is_good() {
                    slot.revoked = self.without_missing(&slot.id, &bytes, digest, &mut secrets).map(Box::new);
                }
                slot
            }
        }
    }

    /// A version without those of its secrets whose files were taken away, and the endpoints that have none left: they
    /// are disabled in it. None where nothing is missing, or where more than that is wrong.
    fn without_missing(
        &mut self,
        id: &TenantId,
        bytes: &[u8],
        digest: [u8; 16],
        secrets: &mut TenantSecrets<'_>,
    ) -> Option<(Arc<C>, Unavailable)> {
        if !secrets.any_missing() {
            return None;
        }
        let path = self.path(id);
        // No secret is empty: this one stands for those that are missing until they are taken out.
        let missing = || ResolvedSecret { secret: domain::Secret::new(*b""), warning: None };
        let resolve = &mut |it: &str| match secrets.resolve(it) {
            Err(_) if secrets.is_missing(it) => Ok(missing()),
            other => other,
        };
        let (tenant, _) = tenant_file::parse(&path, Some(id), bytes, &self.rules, &mut self.names, resolve);
        let mut tenant = tenant?;
        let mut gone = Unavailable::of(&path);
        for endpoint in &mut tenant.endpoints {
            let left = endpoint.secrets.iter().filter(|entry| !entry.secret.expose().is_empty()).cloned();
            endpoint.secrets = left.collect();
            if endpoint.enabled && endpoint.secrets.is_empty() {
                endpoint.enabled = false;
                gone.endpoints.push(endpoint.id.clone());
                gone.aliases.extend(endpoint.aliases().iter().cloned());
            }
        }
        tenant.digest = digest;
        let (made, _) = (self.judge)(tenant);
        Some((Arc::new(made?), gone))
    }

    fn unreadable(&self, id: TenantId, before: Option<Known<C>>, path: &Path, fault: &read::Unreadable) -> Slot<C> {
        let message = format!("{fault}; mend it, or take the file away to remove the tenant");
        let mut unavailable = Unavailable::of(path);
        // Too large to be read whole, but its beginning says most of what would be 404 otherwise.
        if let Ok(start) = read::start(path, self.appliance.tenants.file_bytes_max) {
            (unavailable.endpoints, unavailable.aliases) = recover::recover(&start, self.rules.endpoints_max);
        }
        let digest = self.digester.of(message.as_bytes(), &mut References::default(), &mut |_| Err(String::new()));
        let before = before.and_then(|known| known.tenant);
        Slot::faulty(id, before, digest, vec![Fault::error(path, "", message)], unavailable)
    }

    /// What the judge made of a tenant that parsed; none where anything is an error.
    fn judged(&mut self, tenant: Tenant, faults: &mut Vec<Fault>) -> Option<Arc<C>> {
        let (made, more) = (self.judge)(tenant);
        faults.extend(more);
        made.filter(|_| !crate::fault::has_errors(faults)).map(Arc::new)
    }

    fn parse(
        &mut self,
        id: TenantId,
        before: Option<Arc<C>>,
        path: &Path,
        bytes: &[u8],
        digest: [u8; 16],
        resolve: &mut Resolve<'_>,
    ) -> Slot<C> {
        let (tenant, mut faults) = tenant_file::parse(path, Some(&id), bytes, &self.rules, &mut self.names, resolve);
        let judged = tenant.and_then(|tenant| self.judged(Tenant { digest, ..tenant }, &mut faults));
        let incumbent = self.index.is_some_and(|index| index.holds(&id, bytes));
        let recovered = |bytes: &[u8], max| {
            let (endpoints, aliases) = recover::recover(bytes, max);
            Unavailable { file: path.into(), endpoints, aliases }
        };
        match judged {
            Some(tenant) => {
                let mut slot = Slot::good(id, before, tenant, faults, incumbent);
                if !incumbent || self.unsaved {
                    slot.text = self.spool.as_mut().and_then(|spool| spool.put(bytes));
                }
                slot
            }
            None => Slot::faulty(id, before, digest, faults, recovered(bytes, self.rules.endpoints_max)),
        }
    }
}

impl<C: Judged> Past<C> for Reader<'_, '_, C> {
    fn last_good(&mut self, id: &TenantId) -> Candidate<C> {
        let Some(index) = self.index else { return Candidate::None };
        let bytes = match index.read_one(id) {
            Ok(Some(bytes)) => bytes,
            Ok(None) => return Candidate::None,
            Err(fault) => return Candidate::Unusable(format!("the last good version cannot be read: {fault}")),
        };
        let path = self.path(id);
        let mut secrets =
            TenantSecrets::new(self.environment, &self.appliance.tenants.allow_env, &self.rules.directory, id.as_str());
        let parsed = tenant_file::parse(&path, Some(id), &bytes, &self.rules, &mut self.names, &mut |reference| {
            secrets.resolve(reference)
        });
        let (tenant, mut faults) = parsed;
        if let Some(made) = tenant.and_then(|tenant| self.judged(tenant, &mut faults)) {
            return Candidate::Usable(made);
        }
        if let Some((tenant, gone)) = self.without_missing(id, &bytes, [0; 16], &mut secrets) {
            return Candidate::Revoked(tenant, gone);
        }
        let first =
            faults.iter().find(|fault| fault.is_error()).map_or_else(String::new, |fault| fault.message.clone());
        Candidate::Unusable(format!("the last good version cannot be used either: {first}"))
    }

    fn had(&mut self, id: &TenantId) -> Option<Tenant> {
        let bytes = self.index?.read_one(id).ok()??;
        let stand_in = &mut |_: &str| Ok(ResolvedSecret { secret: domain::Secret::new(*b"any"), warning: None });
        let (tenant, _) = tenant_file::parse(&self.path(id), Some(id), &bytes, &self.rules, &mut self.names, stand_in);
        tenant
    }
}
