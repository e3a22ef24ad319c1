//! The decision on the name: may this caller ask this of that destination?
//!
//! Rules stand in three places: the appliance's file, for everybody; a tenant's file; a role of a tenant. They are
//! asked in this order, and the first no is the answer:
//!
//! 1. **Deny**, the appliance's, the tenant's and the role's. One that matches and enforces is a no, whatever allows.
//!    Where it cannot be seen whether a deny rule is meant (what a tunnel carries, a path with two readings), it is.
//! 2. **The grant's destinations**, where it names some. They narrow; they allow nothing.
//! 3. **Allow**: the role's list, which stands in the place of the tenant's, or the tenant's; then the appliance's.
//!    The first rule that takes the request allows it. A rule with ports, methods or paths refuses what does not fit,
//!    unless another takes it. Where no rule speaks of the host, the list's mode decides, over names only: the ports of
//!    the way in hold in every mode.
//! 4. **Connectors**: a tunnel to a connector's host is refused unless the connector takes tunnels, or the rule that
//!    allows it has `CONNECT` among its methods. A tunnel has no quota, no parks and no evidence.
//!
//! A tenant's connections allow the governed calls that they are for, and what is opened to a role is allowed to it; but
//! only where the tenant's or role's own list does not speak of the host, so that a list which bounds it bounds it. To a
//! role with a list of its own, the tenant's connections allow nothing.
//!
//! A rule's mode says what happens to what the rule would refuse. It forgives nothing else: not another rule, not the
//! ports of the way, and not addresses, which are judged elsewhere and have no mode.
//!
//! A decision costs the same with ten rules and with ten thousand, and one tenant's rules are never asked for another's
//! call: `index.rs`.

mod index;
mod path;
mod rule;
mod ruling;
mod witness;

use std::collections::HashMap;
use std::sync::Arc;

use domain::{ConnectorId, TenantId};
use outbound::{Host, HostPattern, Opening};

use crate::asked::{Asked, Way};
use crate::caller::Caller;
use crate::refusal::Refusal;

pub use config::{RuleMode as Mode, SniRule};
pub use index::{HostIndex, Indexed};
pub use path::{PathFault, PathPrefix, is_unclear};
pub use rule::{Fit, Place, Rule, parse_hosts};
pub use ruling::{Allowed, Denied, List, Ruling};
pub use witness::{Note, Unseen, Witness};

/// A list of rules.
pub type Rules = HostIndex<Arc<Rule>>;

/// What is true for everybody: the appliance's own file, and the connectors.
#[derive(Debug, Clone, Default)]
pub struct Everybody {
    /// Beside every tenant's own.
    pub allow: Rules,
    /// Before everything.
    pub deny: Rules,
    /// Of CONNECT, where a rule names none.
    pub connect_ports: Box<[u16]>,
    /// Of requests that are forwarded, where a rule names none.
    pub ports: Box<[u16]>,
    /// Whose hosts are whose.
    pub connectors: HostIndex<ConnectorHost>,
}

/// A host, or a zone, of a connector.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConnectorHost {
    /// It.
    pub hosts: HostPattern,
    /// Whose it is.
    pub connector: ConnectorId,
    /// Whether tunnels may lead there: its manifest says `tunnel = true`.
    pub takes_tunnels: bool,
}

impl Indexed for ConnectorHost {
    fn pattern(&self) -> &HostPattern {
        &self.hosts
    }
}

/// One tenant's rules.
#[derive(Debug, Clone, Default)]
pub struct TenantPolicy {
    /// For all of its roles.
    pub deny: Rules,
    /// Of callers without a role.
    pub own: RolePolicy,
    /// By name.
    pub roles: HashMap<Box<str>, RolePolicy>,
    /// The exit pool; none is the default one.
    pub pool: Option<Arc<str>>,
}

/// What a role may.
#[derive(Debug, Clone, Default)]
pub struct RolePolicy {
    /// Beside the tenant's.
    pub deny: Rules,
    /// Its own list. Shared by the roles that have none and so use the tenant's.
    pub allow: Arc<Rules>,
    /// Where connections lead that need no rule: asked for governed calls alone.
    pub connections: Arc<Rules>,
    /// Where its openings lead: they need no rule either.
    pub opened: Arc<Rules>,
    /// What happens to destinations that no allow rule speaks of.
    pub mode: Mode,
    /// For tunnels.
    pub sni: SniRule,
    /// Internal destinations that are open to it.
    pub openings: Arc<[Opening]>,
}

/// The whole of it, as one snapshot.
#[derive(Debug, Clone, Default)]
pub struct Policy {
    everybody: Arc<Everybody>,
    /// Every tenant there is. Those without rules share one policy.
    tenants: HashMap<TenantId, Arc<TenantPolicy>>,
}

impl Policy {
    /// Of these parts; what did not change may be the same `Arc` as before.
    pub fn new(everybody: Arc<Everybody>, tenants: HashMap<TenantId, Arc<TenantPolicy>>) -> Self {
        Self { everybody, tenants }
    }

    /// What is true for everybody.
    pub fn everybody(&self) -> &Everybody {
        &self.everybody
    }

    /// One tenant's rules.
    pub fn tenant(&self, tenant: &TenantId) -> Option<&Arc<TenantPolicy>> {
        self.tenants.get(tenant)
    }

    /// Whose host it is, if it is a connector's: the nearest of them.
    pub fn connector(&self, host: &Host) -> Option<&ConnectorHost> {
        self.everybody.connectors.covering(host).next()
    }

    /// Decides on the name. Addresses are vetted afterwards, and only for a yes.
    pub fn decide(&self, caller: &Caller, asked: &Asked, witness: &mut impl Witness) -> Result<Allowed, Denied> {
        let mut case = Case { everybody: &self.everybody, asked, witness, reported: Vec::new() };
        let Some(tenant) = self.tenants.get(&caller.tenant) else {
            return Err(case.no(Refusal::CallerUnknown, Ruling::TenantUnknown));
        };
        let role = match &caller.role {
            None => Some(&tenant.own),
            Some(name) => tenant.roles.get(name),
        };
        let Some(role) = role else {
            return Err(case.no(Refusal::DestinationNotAllowed, Ruling::RoleUnknown));
        };
        case.deny(List::DenyEverybody, &self.everybody.deny)?;
        case.deny(List::DenyTenant, &tenant.deny)?;
        case.deny(List::DenyRole, &role.deny)?;
        case.grant(caller)?;
        let own = if Arc::ptr_eq(&role.allow, &tenant.own.allow) { List::AllowTenant } else { List::AllowRole };
        let by = case.allow(own, role)?;
        case.tunnel(&by)?;
        let (openings, pool) = (Arc::clone(&role.openings), tenant.pool.clone());
        Ok(Allowed { by, reported: case.reported, openings, pool, sni: role.sni })
    }
}

/// One decision under way.
struct Case<'a, W> {
    everybody: &'a Everybody,
    asked: &'a Asked,
    witness: &'a mut W,
    reported: Vec<Ruling>,
}

impl<W: Witness> Case<'_, W> {
    fn no(&mut self, refusal: Refusal, by: Ruling) -> Denied {
        Denied { refusal, by, reported: std::mem::take(&mut self.reported) }
    }

    fn way_ports(&self) -> &[u16] {
        match self.asked.way {
            Way::Connect => &self.everybody.connect_ports,
            Way::Absolute | Way::Governed => &self.everybody.ports,
        }
    }

    fn note_list(&mut self, list: List, rules: &Rules) {
        self.witness.note(|| Note::List { list, rules: rules.len() });
        if W::READS {
            // Nothing hangs on it; but it is what people wonder about.
            for rule in rules.at_apex(self.asked.authority.host()) {
                self.witness.note(|| Note::Rule { list, rule: Arc::clone(rule), fit: Fit::Apex });
            }
        }
    }

    fn deny(&mut self, list: List, rules: &Rules) -> Result<(), Denied> {
        if rules.is_empty() {
            return Ok(());
        }
        self.note_list(list, rules);
        for rule in rules.covering(self.asked.authority.host()) {
            let fit = rule.denies(self.asked);
            self.witness.note(|| Note::Rule { list, rule: Arc::clone(rule), fit });
            if fit != Fit::Fits {
                continue;
            }
            let by = || Ruling::Rule { list, rule: Arc::clone(rule) };
            match rule.mode {
                Mode::Enforce if rule.is_about_requests() => return Err(self.no(Refusal::RequestNotAllowed, by())),
                Mode::Enforce => return Err(self.no(Refusal::DestinationNotAllowed, by())),
                Mode::Report => self.reported.push(by()),
                Mode::Open => {}
            }
        }
        Ok(())
    }

    fn grant(&mut self, caller: &Caller) -> Result<(), Denied> {
        let Some(destinations) = &caller.destinations else { return Ok(()) };
        let covers = destinations.iter().any(|pattern| pattern.covers(self.asked.authority.host()));
        self.witness.note(|| Note::Grant { covers });
        if covers { Ok(()) } else { Err(self.no(Refusal::DestinationNotAllowed, Ruling::Grant)) }
    }

    fn allow(&mut self, own: List, role: &RolePolicy) -> Result<Ruling, Denied> {
        let mut misfits = Misfits::default();
        if let Some(by) = self.admit(own, &role.allow, &mut misfits) {
            return Ok(by);
        }
        if misfits.none() {
            if self.asked.way == Way::Governed
                && let Some(by) = self.admit(List::Connections, &role.connections, &mut misfits)
            {
                return Ok(by);
            }
            if let Some(by) = self.admit(List::Openings, &role.opened, &mut misfits) {
                return Ok(by);
            }
        }
        if let Some(by) = self.admit(List::AllowEverybody, &self.everybody.allow, &mut misfits) {
            return Ok(by);
        }
        if let Some((refusal, by)) = misfits.refused {
            return Err(self.no(refusal, by));
        }
        if let Some(by) = misfits.forgiven {
            self.reported.append(&mut misfits.reported);
            return Ok(by);
        }
        self.witness.note(|| Note::NoRule { mode: role.mode });
        let by = Ruling::NoRule { mode: role.mode };
        if role.mode == Mode::Enforce {
            return Err(self.no(Refusal::DestinationNotAllowed, by));
        }
        if !self.way_ports().contains(&self.asked.authority.port()) {
            return Err(self.no(Refusal::PortNotAllowed, Ruling::Ports { way: self.asked.way }));
        }
        if role.mode == Mode::Report {
            self.reported.push(by.clone());
        }
        Ok(by)
    }

    /// The first rule of the list that takes the request; else what those say that speak of its host.
    fn admit(&mut self, list: List, rules: &Rules, misfits: &mut Misfits) -> Option<Ruling> {
        if rules.is_empty() {
            return None;
        }
        self.note_list(list, rules);
        for rule in rules.covering(self.asked.authority.host()) {
            let fit = rule.admits(self.asked, self.way_ports());
            self.witness.note(|| Note::Rule { list, rule: Arc::clone(rule), fit });
            let by = Ruling::Rule { list, rule: Arc::clone(rule) };
            let refusal = match fit {
                Fit::Fits | Fit::Apex => return Some(by),
                Fit::WayPort => {
                    misfits.refuse(Refusal::PortNotAllowed, Ruling::Ports { way: self.asked.way });
                    continue;
                }
                Fit::Port => Refusal::PortNotAllowed,
                Fit::Method | Fit::Path | Fit::Tunnel => Refusal::RequestNotAllowed,
            };
            match rule.mode {
                Mode::Enforce => misfits.refuse(refusal, by),
                Mode::Report => {
                    misfits.reported.push(by.clone());
                    misfits.forgiven.get_or_insert(by);
                }
                Mode::Open => {
                    misfits.forgiven.get_or_insert(by);
                }
            }
        }
        None
    }

    fn tunnel(&mut self, by: &Ruling) -> Result<(), Denied> {
        if self.asked.way != Way::Connect {
            return Ok(());
        }
        let Some(found) = self.everybody.connectors.covering(self.asked.authority.host()).next() else {
            return Ok(());
        };
        let takes_tunnels = found.takes_tunnels || matches!(by, Ruling::Rule { rule, .. } if rule.names_tunnels());
        self.witness.note(|| Note::Connector { connector: found.connector.clone(), takes_tunnels });
        if takes_tunnels {
            return Ok(());
        }
        Err(self.no(Refusal::TunnelNotAllowed, Ruling::Connector(found.connector.clone())))
    }
}

/// What allow rules say that speak of the host and do not take the request.
#[derive(Default)]
struct Misfits {
    /// The no of a rule that enforces: the nearest one, where several do.
    refused: Option<(Refusal, Ruling)>,
    reported: Vec<Ruling>,
    /// The first rule that refuses nothing.
    forgiven: Option<Ruling>,
}

impl Misfits {
    fn none(&self) -> bool {
        self.refused.is_none() && self.forgiven.is_none()
    }

    /// A rule that takes the port and not the request is nearer than one that does not take the port.
    fn refuse(&mut self, refusal: Refusal, by: Ruling) {
        let is_nearer = refusal == Refusal::RequestNotAllowed;
        if self.refused.as_ref().is_none_or(|(before, _)| is_nearer && *before != refusal) {
            self.refused = Some((refusal, by));
        }
    }
}

#[cfg(test)]
mod tests;
