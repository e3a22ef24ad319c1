//! What was decided, and by what.

use std::fmt;
use std::sync::Arc;

use domain::ConnectorId;
use outbound::Opening;

use super::rule::Rule;
use super::{Mode, SniRule};
use crate::asked::Way;
use crate::refusal::Refusal;

/// Which list a rule stands in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum List {
    /// `egress.deny` of the appliance's file.
    DenyEverybody,
    /// `egress.deny` of the tenant's file.
    DenyTenant,
    /// `deny` of the tenant's role.
    DenyRole,
    /// `egress.allow` of the tenant's file.
    AllowTenant,
    /// `allow` of the role, in the place of the tenant's.
    AllowRole,
    /// The tenant's connections, where the list before does not speak of their hosts.
    Connections,
    /// The internal destinations that are open to the role, where the list before does not speak of them.
    Openings,
    /// `egress.allow` of the appliance's file.
    AllowEverybody,
}

impl List {
    /// For records and for `explain`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::DenyEverybody => "appliance deny",
            Self::DenyTenant => "tenant deny",
            Self::DenyRole => "role deny",
            Self::AllowTenant => "tenant allow",
            Self::AllowRole => "role allow",
            Self::Connections => "connection",
            Self::Openings => "opening",
            Self::AllowEverybody => "appliance allow",
        }
    }
}

/// What decided.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ruling {
    /// A rule.
    Rule {
        /// The list that it stands in.
        list: List,
        /// The rule itself.
        rule: Arc<Rule>,
    },
    /// No allow rule speaks of the destination: the mode of the tenant's or role's list.
    NoRule {
        /// What it says.
        mode: Mode,
    },
    /// The ports of a way in, where no rule names others.
    Ports {
        /// The way.
        way: Way,
    },
    /// The caller's grant names its destinations, and not this one.
    Grant,
    /// The host is a connector's, and no tunnel leads there.
    Connector(ConnectorId),
    /// The tenant has no role of this name.
    RoleUnknown,
    /// There is no tenant of this name.
    TenantUnknown,
}

impl fmt::Display for Ruling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rule { list, rule } => write!(f, "{}: {rule}", list.as_str()),
            Self::NoRule { mode } => write!(f, "no allow rule; mode {}", mode.as_str()),
            Self::Ports { way } => write!(f, "ports of {way}"),
            Self::Grant => f.write_str("destinations of the grant"),
            Self::Connector(connector) => write!(f, "host of connector {connector}"),
            Self::RoleUnknown => f.write_str("no such role"),
            Self::TenantUnknown => f.write_str("no such tenant"),
        }
    }
}

/// A yes to the name. The addresses are still to be vetted.
#[derive(Debug, Clone)]
pub struct Allowed {
    /// What allowed it.
    pub by: Ruling,
    /// What would have refused it and is in report mode, in the order in which it was asked.
    pub reported: Vec<Ruling>,
    /// Internal destinations that are open to this tenant and role.
    pub openings: Arc<[Opening]>,
    /// The exit pool; none is the default one.
    pub pool: Option<Arc<str>>,
    /// For tunnels.
    pub sni: SniRule,
}

/// A no.
#[derive(Debug, Clone)]
pub struct Denied {
    /// What the caller is told.
    pub refusal: Refusal,
    /// What refused it, for the record.
    pub by: Ruling,
    /// What would have refused it as well and is in report mode.
    pub reported: Vec<Ruling>,
}
