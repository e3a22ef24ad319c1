//! The tenants' files as a set: loaded, and loaded again when something changed.
//!
//! What holds:
//! - A faulty file keeps its tenant's last good version. With none, what can be made out of it is `Unavailable`: 503,
//!   never 404; and what was so stays so until the file is good or gone.
//! - The secrets of a last good version are read anew like all others, and what cannot be used any more is not used:
//!   the version goes on without it, and an endpoint without any secret answers 503. A process that starts makes the
//!   same of it as one that runs.
//! - What cannot be read for a reason that passes stays as it was, and [`TenantsLoad::again`] says to look again.
//! - A faulty file touches nobody else. Who had an endpoint id or an alias keeps it against a newcomer. While the state
//!   directory cannot be read and will be, a newcomer does not get what a faulty file names: it may have had it.
//! - A file that did not change, and whose secrets did not, is not parsed again: what is in force of it is the same.
//! - A file that is gone takes its tenant with it, durably: so one look is not enough. It has to be missing in two
//!   listings, [`ABSENCE`] apart, and the tenant is served until then. A directory that cannot be listed, that has no
//!   tenant's file left (a volume that is not mounted), or that has too many entries takes nobody.

mod claims;
mod digest;
mod fallback;
mod judge;
mod last_good;
mod listing;
mod reader;
mod recover;
mod settle;

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use domain::{Clock, EndpointId, SystemClock, TenantId};

use crate::appliance::{ApplianceInPart, NamesRead};
use crate::environment::Environment;
use crate::fault::Fault;
use crate::settings::Appliance;
use crate::tenant::{Alias, Tenant};
use crate::tenant_file::{Names, Rules};
use crate::variables::Neighbours;

use digest::Digester;
use fallback::{Kept, Shelf};
pub use judge::{Both, InForce, Judge, Judged, Second, both};
use last_good::{Index, LastGood, Record};
use listing::Listing;
pub use listing::{files_passed_over, is_tenant_there};
use reader::Reader;
pub(crate) use settle::InPart;
use settle::{Slot, Spool};

/// How long a file is missing before its tenant is removed. Editors, `rsync --delete` and `git checkout` take a file
/// away for some milliseconds before they put the next one there.
pub const ABSENCE: Duration = Duration::from_secs(1);

/// Ten times as many removals as an appliance has tenants, while the state directory cannot be written: below 100 MB.
const GONE_MAX: usize = 1_000_000;

/// What the tenants' directory says now.
#[derive(Debug)]
pub struct TenantsLoad<C = Arc<Tenant>> {
    /// Every tenant in force, by id; the same as before where nothing changed.
    pub tenants: Vec<C>,
    /// Faulty files without a last good version.
    pub unavailable: Vec<Unavailable>,
    /// Everything that is wrong now. A warning about a file is said when the file is read, and not again.
    pub faults: Vec<Fault>,
    /// How many tenants are not what they were at the load before.
    pub changed: usize,
    /// Tenants whose files are gone since the load before.
    pub removed: Vec<TenantId>,
    /// Tenants that are served although their files are missing. The load that comes [`ABSENCE`] after this one removes
    /// them: see that there is one.
    pub missing: usize,
    /// Whether something could not be read for a reason that passes. No change is told when it has passed: look again.
    pub again: bool,
}

/// A faulty file without a last good version, or whose last good version has lost secrets: what it most likely has
/// answers 503 and never 404.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Unavailable {
    pub file: PathBuf,
    pub endpoints: Vec<EndpointId>,
    pub aliases: Vec<Alias>,
}

/// The tenants' files, and what is remembered of them between loads.
#[derive(Debug)]
pub struct TenantFiles<C = Arc<Tenant>> {
    known: Vec<Known<C>>,
    last_good: Option<LastGood>,
    /// Whether this process has loaded before: until then the state directory says who was there first.
    warm: bool,
    /// Whether the state directory could not be written: then everything is, the next time.
    unsaved: bool,
    /// Last good texts, while they cannot be written: no more than the files themselves.
    unkept: HashMap<TenantId, Box<[u8]>>,
    /// Removals that could not be written: until they are, a start would bring the tenants back.
    gone: BTreeSet<TenantId>,
    digester: Digester,
    /// Since when files are missing.
    missing: HashMap<TenantId, Duration>,
    /// Which names the appliance's settings have all of.
    names: NamesRead,
    /// Whether a file may name only variables that are no other tenant's by their names.
    apart: bool,
    clock: Arc<dyn Clock>,
}

/// One file between loads: for a good one 8 bytes beside what is in force.
#[derive(Debug)]
pub(crate) struct Known<C> {
    tenant: Option<C>,
    bad: Option<Box<Bad>>,
}

#[derive(Debug)]
pub(crate) struct Bad {
    id: TenantId,
    digest: [u8; 16],
    faults: Vec<Fault>,
    unavailable: Option<Unavailable>,
    /// Whether another file's change can mend it.
    contested: bool,
    /// What answers for it is made of this.
    kept: Kept,
    /// What is wrong with what answers for it.
    why: Option<String>,
}

impl Bad {
    /// Whether all is well again, if the file is what answers for it: nothing of that is missing or somebody else's.
    fn is_over(&self, same: bool) -> bool {
        same && !self.contested && self.unavailable.is_none() && self.why.is_none()
    }
}

impl<C: InForce> Known<C> {
    fn id(&self) -> Option<&TenantId> {
        self.bad.as_ref().map(|bad| &bad.id).or_else(|| self.tenant.as_ref().map(|made| &made.tenant().id))
    }
}

impl<C: InForce> TenantFiles<C> {
    /// Files whose last good versions are kept under `tenants.state_directory` of the appliance's file.
    pub fn new(appliance: &Appliance) -> Self {
        Self { last_good: Some(LastGood::new(&appliance.tenants.state_directory)), ..Self::without_state() }
    }

    /// Files as they are: nothing is kept and nothing falls back. For `tidegate check`.
    pub fn without_state() -> Self {
        Self {
            known: Vec::new(),
            last_good: None,
            warm: false,
            unsaved: false,
            unkept: HashMap::new(),
            gone: BTreeSet::new(),
            digester: Digester::new(),
            missing: HashMap::new(),
            names: NamesRead::ALL,
            apart: false,
            clock: SystemClock::shared(),
        }
    }

    /// The same for a faulty appliance's file: what may be said by what was not read is not said.
    #[must_use]
    pub fn judged_in_part(self, by: &ApplianceInPart) -> Self {
        Self { names: by.names, ..self }
    }

    /// The same where a file with an environment variable that by its name is another tenant's too is faulty. For
    /// `tidegate check`: where files are in force already, nobody loses a secret because another tenant came.
    #[must_use]
    pub fn with_variables_apart(self) -> Self {
        Self { apart: true, ..self }
    }

    /// The same with another clock to tell by how long a file is missing.
    #[must_use]
    pub fn with_clock(self, clock: Arc<dyn Clock>) -> Self {
        Self { clock, ..self }
    }

    /// What the judge judges by beside the tenant, such as connectors: when that changes, every file is judged again at
    /// the next load. Whatever its `Debug` shows counts.
    pub fn judged_by(&mut self, basis: &dyn fmt::Debug) {
        self.digester.judge_by(basis);
    }

    /// Loads the tenants' files, the first and every later time; only what changed since is parsed.
    #[expect(clippy::too_many_lines, reason = "one load, in the order in which it happens")]
    pub fn load<M: Into<C>>(
        &mut self,
        appliance: &Appliance,
        environment: &dyn Environment,
        judge: &mut Judge<'_, M>,
    ) -> TenantsLoad<C> {
        let judge = &mut |tenant| {
            let (made, faults) = judge(tenant);
            (made.map(Into::into), faults)
        };
        let mut faults = Vec::new();
        let (index, mut again) = self.read_index(&mut faults);
        self.unsaved |= self.warm && self.last_good.as_ref().is_some_and(|last_good| !last_good.is_there());
        let settings = &appliance.tenants;
        let was_there =
            |id: &TenantId| self.position(id).is_some() || index.as_ref().is_some_and(|index| index.has(id));
        let listed = listing::list(&settings.directory, settings.files_max as usize, was_there);
        let known = std::mem::take(&mut self.known);
        let indexed = index.iter().flat_map(Index::tenants);
        let were_there: BTreeSet<TenantId> = known.iter().filter_map(Known::id).chain(indexed).cloned().collect();
        let listing = match listed {
            Ok(listing) if listing.ids.is_empty() && !were_there.is_empty() => {
                let message = "has no tenant's file, as where a volume is not mounted: every tenant stays as it was. To remove the last tenant, take the endpoints out of its file and leave the file";
                faults.push(Fault::error(&settings.directory, "tenants.directory", message));
                Listing { ids: were_there.iter().cloned().collect(), unread: true, ..listing }
            }
            Ok(listing) => listing,
            Err((message, passing)) => {
                again |= passing;
                faults.push(Fault::error(&settings.directory, "tenants.directory", message));
                Listing { ids: were_there.iter().cloned().collect(), unread: true, ..Listing::default() }
            }
        };
        faults.extend(listing.faults.iter().cloned());

        let rules = Rules::of(appliance);
        let pools = rules.pools.clone().filter(|_| self.names.pools);
        let tiers = rules.tiers.clone().filter(|_| self.names.tiers);
        let rules = Rules { knows_classes: self.names.classes, pools, tiers, ..rules };
        self.digester.settle_on(&rules, &settings.allow_env);
        let neighbours = self.apart.then(|| Neighbours::new(&listing.ids));
        let mut reader = Reader {
            appliance,
            environment,
            neighbours: neighbours.as_ref(),
            rules,
            digester: &self.digester,
            names: Names::default(),
            spool: self.last_good.as_ref().map(|_| Spool::default()),
            unsaved: self.unsaved,
            shelf: Shelf::new(index.as_ref(), &self.unkept, &self.gone, self.last_good.as_ref()),
            again,
            judge,
        };
        let mut known: HashMap<TenantId, Known<C>> =
            known.into_iter().filter_map(|known| Some((known.id()?.clone(), known))).collect();
        let mut removed = Vec::new();
        let (mut ids, mut more) = (listing.ids, Vec::new());
        let were_missing = std::mem::take(&mut self.missing);
        let now = self.clock.monotonic();
        for id in were_there {
            if listing.unread || ids.binary_search(&id).is_ok() {
                continue;
            }
            if listing.capped && reader.is_there(&id) {
                more.push(id);
                continue;
            }
            let since = were_missing.get(&id).copied().filter(|_| !listing.capped);
            if since.is_some_and(|since| now.saturating_sub(since) >= ABSENCE) {
                removed.push(id);
            } else {
                self.missing.insert(id.clone(), since.unwrap_or(now));
                more.push(id);
            }
        }
        ids.append(&mut more);
        ids.sort_unstable();
        let slots = ids.into_iter().map(|id| {
            let before = known.remove(&id);
            let unread = listing.unread || self.missing.contains_key(&id);
            if unread { reader.unread(id, before) } else { reader.read(id, before) }
        });
        let slots: Vec<Slot<C>> = slots.collect();

        let slots = settle::settle(slots, &mut reader);
        let (spool, mut again) = (reader.spool.take().unwrap_or_default(), reader.again);
        let now = reader.shelf.now.take().and_then(Result::ok).filter(|now| now.damaged);
        self.keep(&slots, &spool, &removed, index.as_ref().or(now.as_ref()), &mut faults);
        if let Some(last_good) = self.last_good.as_ref().filter(|_| now.is_some()) {
            // Found too late for this load to have the texts at hand: the next one writes them.
            let message = "is damaged behind its last whole record; it is written anew from the files";
            faults.push(Fault::warning(last_good.path(), "", message));
            self.unsaved = true;
            again = true;
        }
        drop((index, now));
        drop(spool);
        let mut load = self.finish(slots, listing.strangers, removed);
        load.faults.splice(0..0, faults);
        // While not everything is listed, nobody is removed, however often somebody looks.
        load.missing = if listing.capped { 0 } else { self.missing.len() };
        load.again = again;
        self.warm = true;
        load
    }

    fn position(&self, id: &TenantId) -> Option<usize> {
        self.known.binary_search_by(|known| known.id().cmp(&Some(id))).ok()
    }

    /// What the state directory has at a cold start, and whether it may be read later on where it cannot be now.
    fn read_index(&mut self, faults: &mut Vec<Fault>) -> (Option<Index>, bool) {
        let Some(last_good) = self.last_good.as_mut().filter(|_| !self.warm) else { return (None, false) };
        match last_good.index() {
            Ok(index) => {
                if index.damaged {
                    let message = "is damaged behind its last whole record; it is written anew from the files";
                    faults.push(Fault::warning(last_good.path(), "", message));
                    self.unsaved = true;
                }
                (Some(index), false)
            }
            Err(fault) => {
                let message = format!("cannot be read: {fault}; faulty files have no last good version");
                faults.push(Fault::warning(last_good.path(), "", message));
                (None, fallback::passes(&fault))
            }
        }
    }

    /// Keeps what is new and good, and forgets what is gone.
    fn keep(
        &mut self,
        slots: &[Slot<C>],
        spool: &Spool,
        removed: &[TenantId],
        index: Option<&Index>,
        faults: &mut Vec<Fault>,
    ) {
        let Some(last_good) = &mut self.last_good else { return };
        let good = slots.iter().filter_map(|slot| Some(Record::Good(&slot.id, spool.get(slot.to_keep()?))));
        // What was in the state directory may not be there any more; of faulty files it is in memory too.
        let faulty =
            slots.iter().filter(|_| self.unsaved).filter_map(|slot| Some(Record::Good(&slot.id, slot.kept()?)));
        let unkept = self.unkept.iter().map(|(id, text)| Record::Good(id, text));
        // Of a tenant that came back, what is good comes last.
        let records = self.gone.iter().map(Record::Gone).chain(unkept).chain(good).chain(faulty);
        match last_good.append(records.chain(removed.iter().map(Record::Gone)), index) {
            Ok(()) => {
                self.unsaved = false;
                self.gone = BTreeSet::new();
                self.unkept = HashMap::new();
            }
            Err(fault) => {
                self.unsaved = true;
                let texts = slots.iter().filter_map(|slot| Some((slot.id.clone(), spool.get(slot.to_keep()?).into())));
                self.unkept.extend(texts);
                for id in removed {
                    self.unkept.remove(id);
                    if self.gone.len() < GONE_MAX {
                        self.gone.insert(id.clone());
                    }
                }
                let message = format!(
                    "cannot be written: {fault}; a file that is faulty at the next start will have no last good version. Make the directory writable, or set tenants.state_directory"
                );
                faults.push(Fault::warning(last_good.path(), "tenants.state_directory", message));
            }
        }
    }

    fn finish(
        &mut self,
        slots: Vec<Slot<C>>,
        strangers: Vec<(Fault, Unavailable)>,
        removed: Vec<TenantId>,
    ) -> TenantsLoad<C> {
        let mut load = TenantsLoad {
            tenants: Vec::with_capacity(slots.len()),
            unavailable: Vec::new(),
            faults: Vec::new(),
            changed: removed.len(),
            removed,
            missing: 0,
            again: false,
        };
        for id in &load.removed {
            tracing::info!(tenant = %id, "tenant removed: its file is gone");
        }
        let mut claims = claims::Claims::default();
        let any_unavailable = !strangers.is_empty() || slots.iter().any(Slot::has_unavailable);
        self.known = Vec::with_capacity(slots.len());
        for (owner, slot) in slots.into_iter().enumerate() {
            load.changed += usize::from(slot.changed());
            load.faults.extend(slot.faults.iter().cloned());
            if let Some(made) = slot.in_force() {
                if any_unavailable {
                    claims.claim(owner, made.tenant());
                }
                load.tenants.push(made.clone());
            }
            self.known.push(slot.into_known());
        }
        let of_known = self.known.iter().enumerate();
        let of_known = of_known.filter_map(|(at, known)| Some((Some(at), known.bad.as_ref()?.unavailable.clone()?)));
        let mut unavailable: Vec<(Option<claims::Owner>, Unavailable)> = of_known.collect();
        for (fault, recovered) in strangers {
            load.faults.push(fault);
            unavailable.push((None, recovered));
        }
        for (owner, one) in &mut unavailable {
            // A faulty file cannot make somebody else's endpoint unavailable by naming it.
            one.endpoints.retain(|id| !claims.has_id(*owner, id));
            one.aliases.retain(|alias| !claims.has_alias(*owner, alias));
        }
        load.unavailable = unavailable.into_iter().map(|(_, one)| one).collect();
        load
    }
}

impl Unavailable {
    fn of(file: &Path) -> Self {
        Self { file: file.into(), ..Self::default() }
    }

    /// Everything that a tenant answers for.
    fn all_of(tenant: &Tenant) -> Self {
        let enabled = || tenant.endpoints.iter().filter(|endpoint| endpoint.enabled);
        let endpoints = enabled().map(|endpoint| endpoint.id.clone()).collect();
        let aliases = enabled().flat_map(|endpoint| endpoint.aliases().iter().cloned()).collect();
        Self { file: tenant.file(), endpoints, aliases }
    }

    fn is_empty(&self) -> bool {
        self.endpoints.is_empty() && self.aliases.is_empty()
    }

    fn add(&mut self, other: &Self) {
        self.add_at_most(other, usize::MAX);
    }

    /// Adds at most so many endpoints and as many aliases.
    fn add_at_most(&mut self, other: &Self, max: usize) {
        self.endpoints.extend(other.endpoints.iter().take(max).cloned());
        self.endpoints.sort_unstable();
        self.endpoints.dedup();
        self.aliases.extend(other.aliases.iter().take(max).cloned());
        self.aliases.sort_unstable();
        self.aliases.dedup();
    }
}
