//! One tenant's file after the other: is it as it was, and if not, what does it say now?

use std::path::{Path, PathBuf};
use std::sync::Arc;

use domain::TenantId;

use super::digest::{Digester, References};
use super::fallback::Shelf;
use super::settle::{Slot, Spool};
use super::{InForce, Judge, Known, Unavailable, recover};
use crate::document::Text;
use crate::environment::Environment;
use crate::fault::Fault;
use crate::read;
use crate::secret::TenantSecrets;
use crate::settings::Appliance;
use crate::tenant::{Tenant, file_of};
use crate::tenant_file::{Names, Reading, Resolve, Rules};
use crate::variables::Neighbours;

/// Reads one file after the other.
pub(super) struct Reader<'a, 'j, C> {
    pub(super) appliance: &'a Appliance,
    pub(super) environment: &'a dyn Environment,
    /// Where variables are to be told apart.
    pub(super) neighbours: Option<&'a Neighbours>,
    pub(super) rules: Rules,
    pub(super) digester: &'a Digester,
    pub(super) names: Names,
    /// Where texts go that may have to be kept; none where nothing is.
    pub(super) spool: Option<Spool>,
    pub(super) unsaved: bool,
    pub(super) shelf: Shelf<'a>,
    /// Whether something could not be read that can be later on, though nobody changes it.
    pub(super) again: bool,
    pub(super) judge: &'a mut Judge<'j, C>,
}

impl<C: InForce> Reader<'_, '_, C> {
    pub(super) fn path(&self, id: &TenantId) -> PathBuf {
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
        let mut references = References::default();
        let (digest, passing, may_be_unchanged) = {
            let mut secrets = self.secrets(&id);
            let digest = self.digester.of(&bytes, &mut references, &mut |reference| secrets.resolve(reference));
            (digest, secrets.any_passing(), secrets.may_be_unchanged())
        };
        self.again |= passing;
        if may_be_unchanged && before.is_some() {
            let message = "names secrets that cannot be read for now; what was in force stays until they are";
            return self.not_now(id, before, Fault::error(&path, "", message));
        }
        match before {
            Some(known) if self.is_unchanged(&id, &known, digest) => {
                let mut slot = Slot::unchanged(id, known);
                if self.unsaved && slot.is_good() {
                    slot.text = self.spool.as_mut().and_then(|spool| spool.put(&bytes));
                }
                slot
            }
            Some(Known { tenant: Some(made), bad: Some(bad) }) if bad.is_over(made.tenant().digest == digest) => {
                // Its last good version again, which is in force already.
                let tenant = made.clone();
                let before = Known { tenant: Some(made), bad: Some(bad) };
                let mut slot = Slot::good(id, Some(before), tenant, Vec::new(), false);
                slot.text = self.spool.as_mut().filter(|_| self.unsaved).and_then(|spool| spool.put(&bytes));
                slot
            }
            before => {
                // What is no reference at all was not looked up before; what is wrong with it is said in one place.
                let (environment, appliance, directory) =
                    (self.environment, self.appliance, Arc::clone(&self.rules.directory));
                let (allowed, of) = (&appliance.tenants.allow_env, id.clone());
                let secrets = TenantSecrets::new(environment, allowed, &directory, of.as_str());
                let mut secrets = secrets.beside(self.neighbours);
                let resolve = &mut |it: &str| references.take(it).unwrap_or_else(|| secrets.resolve(it));
                self.parse(id, before, &path, &bytes, digest, resolve)
            }
        }
    }

    /// Whether nothing is to be done: the file is as it was, and so is what answers for it if it is faulty.
    fn is_unchanged(&self, id: &TenantId, known: &Known<C>, digest: [u8; 16]) -> bool {
        match (&known.bad, &known.tenant) {
            (Some(bad), _) => bad.digest == digest && !bad.contested && self.is_kept_unchanged(id, &bad.kept),
            (None, Some(made)) => made.tenant().digest == digest,
            (None, None) => false,
        }
    }

    /// What was before, until something can be read that cannot be now.
    fn not_now(&self, id: TenantId, before: Option<Known<C>>, fault: Fault) -> Slot<C> {
        let mut slot = self.unread(id, before);
        slot.faults.push(fault);
        slot
    }

    fn unreadable(&mut self, id: TenantId, before: Option<Known<C>>, path: &Path, fault: &read::Unreadable) -> Slot<C> {
        self.again |= fault.is_passing();
        let message = if fault.is_passing() {
            format!("{fault}; it is read again")
        } else {
            format!("{fault}; mend it, or take the file away to remove the tenant")
        };
        let digest = self.digester.of(message.as_bytes(), &mut References::default(), &mut |_| Err(String::new()));
        if let Some(known) = before.as_ref().filter(|known| known.bad.is_some())
            && self.is_unchanged(&id, known, digest)
        {
            return self.unread(id, before);
        }
        let mut unavailable = Unavailable::of(path);
        // Too large to be read whole, but its beginning says most of what would be 404 otherwise.
        if let Ok(start) = read::start(path, self.appliance.tenants.file_bytes_max) {
            (unavailable.endpoints, unavailable.aliases) = recover::recover(&start, self.rules.endpoints_max);
        }
        Slot::faulty(id, before, digest, vec![Fault::error(path, "", message)], unavailable)
    }

    fn parse(
        &mut self,
        id: TenantId,
        before: Option<Known<C>>,
        path: &Path,
        bytes: &[u8],
        digest: [u8; 16],
        resolve: &mut Resolve<'_>,
    ) -> Slot<C> {
        let text = Text::new(bytes);
        let mut reading = Reading::of(path, Some(&id), &text, &self.rules, &mut self.names, resolve);
        // Of a faulty file, too: everything is said at once.
        let (tenant, is_whole) = reading.take_tenant();
        let in_part = tenant.as_ref().filter(|_| self.spool.is_none()).map(|tenant| reading.in_part(tenant));
        let made = tenant.and_then(|tenant| {
            let (made, faults) = (self.judge)(Tenant { digest, ..tenant });
            reading.add(faults);
            made.filter(|_| is_whole)
        });
        let faults = reading.into_faults();
        let judged = made.filter(|_| !crate::fault::has_errors(&faults));
        let incumbent = self.shelf.index.is_some_and(|index| index.holds(&id, bytes));
        let recovered = |bytes: &[u8], max| {
            let (endpoints, aliases) = recover::recover(bytes, max);
            Unavailable { file: path.into(), endpoints, aliases }
        };
        let Some(tenant) = judged else {
            let unavailable = recovered(bytes, self.rules.endpoints_max);
            return Slot::faulty(id, before, digest, faults, unavailable).with_part(in_part);
        };
        let mut slot = Slot::good(id, before, tenant, faults, incumbent);
        if !incumbent || self.unsaved {
            slot.text = self.spool.as_mut().and_then(|spool| spool.put(bytes));
        }
        slot
    }
}
