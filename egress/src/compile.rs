//! From files to policy: what configuration read, judged by the one parser of destinations.
//!
//! Configuration knows shapes: a text, a list, a line. What a host is, which networks can be opened and what a NAT64
//! prefix is, the crate below says; so this is where those keys are judged, each with the file and line where it stands.
//! The appliance's file is compiled once and each tenant's against it. All faults are said; what is faulty is left out,
//! so whoever puts in force what has errors puts less in force than somebody wrote. Nobody does: [`config`] keeps the
//! last good version of a file with errors.

mod connections;
mod rules;

use std::collections::{BTreeMap, HashMap};
use std::fmt::{self, Display};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use config::connector::quota::Ceiling;
use config::connector::{Catalogue, Manifest};
use config::{Appliance, AtLine, Fault, Tenant, TenantEgress};
use domain::{ConnectorId, TenantId};
use outbound::{AddressTable, HostPattern, Nat64Prefix, Opening, Own};

use crate::governed::Connector;
use crate::policy::{ConnectorHost, Everybody, HostIndex, Mode, Place, Policy, RolePolicy, Rule, Rules, TenantPolicy};
use rules::RuleFile;

pub use connections::Written;

/// The appliance's file, compiled.
#[derive(Debug)]
pub struct Compiled {
    everybody: Arc<Everybody>,
    mode: Mode,
    nat64: Vec<Nat64Prefix>,
    table: Arc<AddressTable>,
    openings: HashMap<TenantId, Vec<TenantOpening>>,
    connectors: BTreeMap<ConnectorId, Arc<Connector>>,
    ceilings: BTreeMap<ConnectorId, Ceiling>,
    /// Of tenants whose files say nothing of a way out: the appliance's own rules.
    bare: Arc<TenantPolicy>,
}

/// One tenant's file, compiled.
#[derive(Debug)]
pub struct TenantOut {
    /// Its rules.
    pub policy: Arc<TenantPolicy>,
    /// Its connections, in the order of the file.
    pub connections: Box<[Written]>,
}

#[derive(Debug)]
struct TenantOpening {
    /// None: of every role.
    role: Option<Box<str>>,
    opening: Opening,
    rule: Arc<Rule>,
}

/// The connectors that come with the program, and those of the appliance's directory.
pub fn catalogue(appliance: &Appliance) -> (Option<Catalogue>, Vec<Fault>) {
    let shipped = match Catalogue::shipped() {
        Ok(shipped) => shipped,
        Err(faults) => return (None, faults),
    };
    match &appliance.connectors.directory {
        Some(directory) => shipped.with_directory(directory),
        None => (Some(shipped), Vec::new()),
    }
}

/// Everything that is the appliance itself: its listeners, its exit addresses, what the file says is the fleet's, and
/// `interfaces`, the addresses of this machine but those of loopback.
pub fn own(appliance: &Appliance, interfaces: impl IntoIterator<Item = IpAddr>) -> Own {
    let egress = &appliance.egress;
    let exits = egress.pool.iter().flat_map(|pool| &pool.addresses);
    let exits = exits.flat_map(|exit| [exit.value.v4.map(IpAddr::V4), exit.value.v6.map(IpAddr::V6)]).flatten();
    let addresses = interfaces.into_iter().chain(exits).chain(egress.own_addresses.iter().copied());
    let listeners = appliance.gateway.listen.iter().chain(&egress.listen).chain(&egress.tls.listen);
    let listeners = listeners.chain(&egress.ranges.listen).copied();
    Own::new(addresses, listeners.chain([appliance.admin.listen]))
}

impl Compiled {
    /// Compiles the appliance's file, and says everything that is wrong with it. `file` is its name in faults.
    pub fn new(appliance: &Appliance, file: &Path, catalogue: &Catalogue) -> (Self, Vec<Fault>) {
        let egress = &appliance.egress;
        let mut faults = Vec::new();
        let table = Arc::new(AddressTable::shipped());
        let mut say = |line: u32, key: &str, message: String| faults.push(Fault::error(file, key, message).at(line));
        let nat64 = egress.nat64.iter().filter_map(|prefix| {
            let parsed: Result<Nat64Prefix, _> = prefix.value.parse();
            parsed.map_err(|fault| say(prefix.line, "egress.nat64", format!("\"{}\": {fault}", prefix.value))).ok()
        });
        let nat64 = nat64.collect();
        let rules = RuleFile::new(file);
        let mut openings: HashMap<TenantId, Vec<TenantOpening>> = HashMap::new();
        for opening in &egress.opening {
            let line = opening.host.line;
            // Without a tenant it has said so itself.
            let Some(tenant) = opening.tenant.clone() else { continue };
            match compile_opening(opening, &rules, &table) {
                Ok(compiled) => openings.entry(tenant).or_default().push(compiled),
                Err(fault) => say(line, "egress.opening", fault),
            }
        }
        let allow = rules.list(&egress.allow, "egress.allow", &mut say);
        let deny = rules.list(&egress.deny, "egress.deny", &mut say);
        let connectors = compile_connectors(appliance, catalogue, &mut faults);
        let (ceilings, more) = Ceiling::all(appliance, file, catalogue);
        faults.extend(more);
        let hosts = connectors.values().flat_map(|connector| {
            connector.hosts().iter().map(|hosts| ConnectorHost {
                hosts: hosts.clone(),
                connector: connector.manifest().connector.clone(),
                takes_tunnels: connector.manifest().tunnel,
            })
        });
        let everybody = Everybody {
            allow,
            deny,
            connect_ports: egress.connect_ports.as_slice().into(),
            ports: egress.ports.as_slice().into(),
            connectors: HostIndex::new(hosts),
        };
        let bare = RolePolicy { mode: egress.mode, ..RolePolicy::default() };
        let bare = Arc::new(TenantPolicy { own: bare, ..TenantPolicy::default() });
        let everybody = Arc::new(everybody);
        (Self { everybody, mode: egress.mode, nat64, table, openings, connectors, ceilings, bare }, faults)
    }

    /// What tenants' files are judged by: where it differs, each is judged anew.
    pub fn basis(&self) -> impl fmt::Debug + '_ {
        (self.mode, &self.connectors, &self.ceilings)
    }

    /// By what addresses are vetted; [`own`] says what is the appliance's own.
    pub fn vetting(&self, own: Own) -> outbound::Rules {
        outbound::Rules { table: Arc::clone(&self.table), own, nat64: self.nat64.clone() }
    }

    /// Compiles a tenant's file, and says everything that is wrong with it. Nothing where neither it nor an opening of
    /// the appliance's file says anything of the tenant's way out.
    pub fn tenant(&self, tenant: &Tenant) -> (Option<Arc<TenantOut>>, Vec<Fault>) {
        let opened = self.openings.get(&tenant.id).map_or(&[][..], Vec::as_slice);
        let nothing = TenantEgress::default();
        let egress = match tenant.egress() {
            None if opened.is_empty() => return (None, Vec::new()),
            egress => egress.unwrap_or(&nothing),
        };
        let (file, mut faults) = (tenant.file(), Vec::new());
        let connections = connections::compile(egress, &self.connectors, &self.ceilings, tenant, &mut faults);
        let policy = Arc::new(self.tenant_policy(egress, opened, &connections, tenant, &file, &mut faults));
        connections::warn_of_denied(&connections, &self.everybody, &policy, tenant, &mut faults);
        (Some(Arc::new(TenantOut { policy, connections })), faults)
    }

    fn tenant_policy(
        &self,
        egress: &TenantEgress,
        opened: &[TenantOpening],
        connections: &[Written],
        tenant: &Tenant,
        file: &Path,
        faults: &mut Vec<Fault>,
    ) -> TenantPolicy {
        let rules = RuleFile::new(file);
        let mut say = |line: u32, key: &str, message: String| faults.push(tenant.fault(line, key, message));
        let (mode, sni) = (egress.mode.unwrap_or(self.mode), egress.sni.unwrap_or_default());
        let allow = Arc::new(rules.list(&egress.allow, "egress.allow", &mut say));
        let led_to = Arc::new(Rules::new(connections.iter().flat_map(|connection| connection.rules(&rules))));
        let deny = rules.list(&egress.deny, "egress.deny", &mut say);
        let own = RolePolicy {
            deny: Rules::default(),
            allow: Arc::clone(&allow),
            connections: Arc::clone(&led_to),
            mode,
            sni,
            ..of_role(opened, None)
        };
        let role = |role: &config::EgressRole| {
            let own_list = role.allow.as_ref().map(|list| Arc::new(rules.list(list, "egress.role.allow", &mut say)));
            let connections = if own_list.is_none() { Arc::clone(&led_to) } else { Arc::default() };
            let policy = RolePolicy {
                deny: rules.list(&role.deny, "egress.role.deny", &mut say),
                allow: own_list.unwrap_or_else(|| Arc::clone(&allow)),
                connections,
                mode: role.mode.unwrap_or(mode),
                sni: role.sni.unwrap_or(sni),
                ..of_role(opened, Some(&role.name))
            };
            (role.name.clone(), policy)
        };
        let roles: HashMap<Box<str>, RolePolicy> = egress.roles.iter().map(role).collect();
        for role in opened.iter().filter_map(|opened| opened.role.as_ref()).filter(|role| !roles.contains_key(*role)) {
            let message = format!(
                "egress.opening of the appliance's file opens something to the role \"{role}\", which is not here"
            );
            faults.push(Fault::warning(file, "egress.role", message));
        }
        TenantPolicy { deny, own, roles, pool: egress.pool.clone() }
    }

    /// The whole policy: every tenant there is, with what [`Self::tenant`] made of it.
    pub fn policy<'t>(&self, tenants: impl IntoIterator<Item = (&'t TenantId, Option<&'t Arc<TenantOut>>)>) -> Policy {
        let policy =
            |out: Option<&Arc<TenantOut>>| out.map_or_else(|| Arc::clone(&self.bare), |out| Arc::clone(&out.policy));
        let tenants = tenants.into_iter().map(|(id, out)| (id.clone(), policy(out))).collect();
        Policy::new(Arc::clone(&self.everybody), tenants)
    }
}

/// What the appliance's file opens to a role, and the rules that say so.
fn of_role(opened: &[TenantOpening], role: Option<&str>) -> RolePolicy {
    let is_its = |opened: &&TenantOpening| opened.role.is_none() || opened.role.as_deref() == role;
    let its: Vec<&TenantOpening> = opened.iter().filter(is_its).collect();
    RolePolicy {
        openings: its.iter().map(|opened| opened.opening.clone()).collect(),
        opened: Arc::new(Rules::new(its.iter().map(|opened| Arc::clone(&opened.rule)))),
        ..RolePolicy::default()
    }
}

fn compile_opening(opening: &config::Opening, rules: &RuleFile, table: &AddressTable) -> Result<TenantOpening, String> {
    let (host, line) = (&opening.host.value, opening.host.line);
    let hosts = HostPattern::parse(host).map_err(|fault| no_host(host, &fault))?;
    let (networks, ports) = (opening.networks.clone(), opening.ports.clone());
    let compiled = Opening::new(host, networks, ports, table).map_err(|fault| format!("\"{host}\": {fault}"))?;
    let rule = Rule {
        place: Some(Place { file: Arc::clone(&rules.file), line }),
        ports: Some(opening.ports.as_slice().into()),
        ..Rule::hosts(hosts)
    };
    Ok(TenantOpening { role: opening.role.as_deref().map(Into::into), opening: compiled, rule: Arc::new(rule) })
}

fn compile_connectors(
    appliance: &Appliance,
    catalogue: &Catalogue,
    faults: &mut Vec<Fault>,
) -> BTreeMap<ConnectorId, Arc<Connector>> {
    let mut connectors = BTreeMap::new();
    for manifest in catalogue.manifests() {
        let file = manifest_file(appliance, manifest);
        let mut hosts = |texts: &[AtLine<String>], key: &str| -> Arc<[HostPattern]> {
            let judged = texts.iter().filter_map(|text| {
                let say = |fault| faults.push(Fault::error(&file, key, no_host(&text.value, &fault)).at(text.line));
                HostPattern::parse(&text.value).map_err(say).ok()
            });
            judged.collect()
        };
        let (own, elsewhere) = (hosts(&manifest.hosts, "hosts"), hosts(&manifest.redirects.hosts, "redirects.hosts"));
        let connector = Connector::of(Arc::clone(manifest), own, elsewhere);
        connectors.insert(manifest.connector.clone(), Arc::new(connector));
    }
    connectors
}

/// Where a manifest stands: the operator's takes the place of the one inside the program.
fn manifest_file(appliance: &Appliance, manifest: &Manifest) -> PathBuf {
    let name = format!("{}.toml", manifest.connector);
    let own = appliance.connectors.directory.as_ref().map(|directory| directory.join(&name));
    own.filter(|path| path.exists()).unwrap_or_else(|| name.into())
}

fn no_host(text: &str, fault: &impl Display) -> String {
    format!("\"{text}\" is no host: {fault}")
}

#[cfg(test)]
mod tests;
