//! Which of a profile's caps hold for whom: the operator's word, and below it the tenant's.
//!
//! The operator's file may set any tier and any cap. A tenant's connection may name a tier and caps of its own: what is
//! lower than what would hold anyhow counts, what is higher only if the operator's file says so. Limits of an
//! application are shared by all its tenants, so no tenant's file changes one.

use std::collections::BTreeMap;
use std::path::Path;

use domain::ConnectorId;

use super::{QuotaLevel, QuotaProfile};
use crate::connector::Catalogue;
use crate::egress::connector_id;
use crate::fault::Fault;
use crate::form::{AtLine, Count, Form, Lined, List, Maybe, Table, needed, settings};
use crate::settings::{Appliance, class_name};

/// As that of a profile's limit.
const CAP_MAX: u64 = 1 << 30;

settings! {
    /// What the operator knows of the plans at a provider.
    pub struct QuotaChoiceTable {
        /// The connector.
        connector: Option<AtLine<ConnectorId>> = None, needed(Maybe(Lined(connector_id()))), live,
            "Tiers and limits are those of its profile (`docs/connectors.md`).";
        /// The tier of the application, and of connections that name none.
        tier: Option<AtLine<String>> = None, Maybe(Lined(class_name())), live,
            "Without it, the profile's first, which allows least.";
        /// Tiers that a tenant's connection may name although they allow more than `tier`.
        tenant_tiers: Vec<AtLine<String>> = Vec::new(), List(Lined(class_name()), 0..=16), live,
            "None: what a provider allows the platform is not for a tenant to say.";
        /// Caps in place of the tier's, higher or lower; they hold whatever tier a connection names.
        cap: Vec<CapTable> = Vec::new(), caps(), live, "";
    }

    /// The cap of one limit.
    pub struct CapTable {
        /// Name of the limit.
        limit: AtLine<String> = AtLine::default(), needed(Lined(class_name())), live, "One of the connector's profile.";
        /// Units in its window, or at once of what is concurrent.
        cap: u64 = 1, needed(Count(1..=CAP_MAX)), live, "Nothing less than one call: `egress.deny` stops them all.";
    }
}

/// How caps are listed, in both kinds of file.
pub(crate) const fn caps() -> impl Form<Vec<CapTable>> {
    List(Table, 0..=64)
}

/// What a tenant's connection says of its quota.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ConnectionQuota {
    pub tier: Option<AtLine<Box<str>>>,
    pub caps: Box<[CapChoice]>,
}

/// The cap that a connection names for a limit.
#[derive(Debug, Clone, PartialEq)]
pub struct CapChoice {
    pub limit: AtLine<Box<str>>,
    pub cap: u64,
}

/// What the operator's file says of one connector's quota. The default is that it says nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ceiling {
    tier: u8,
    tenant_tiers: Box<[u8]>,
    /// Places of limits, and caps.
    caps: Box<[(u16, u64)]>,
}

impl Ceiling {
    /// What the appliance's file says, by connector, and what is wrong with it. `file` is its name in faults.
    pub fn all(appliance: &Appliance, file: &Path, catalogue: &Catalogue) -> (BTreeMap<ConnectorId, Self>, Vec<Fault>) {
        let (mut all, mut faults) = (BTreeMap::new(), Vec::new());
        for choice in &appliance.egress.quota {
            let Some(AtLine { value: connector, line }) = &choice.connector else { continue };
            let mut say = |line, key: &str, message| {
                faults.push(Fault::error(file, format!("egress.quota.{key}"), message).at(line));
            };
            let Some(manifest) = catalogue.get(connector) else {
                say(*line, "connector", format!("\"{connector}\" is no connector; docs/connectors.md lists them"));
                continue;
            };
            let ceiling = Self::of(choice, &manifest.quota, &mut say);
            if all.insert(connector.clone(), ceiling).is_some() {
                say(*line, "connector", format!("\"{connector}\" has an [[egress.quota]] before; write one"));
            }
        }
        (all, faults)
    }

    fn of(choice: &QuotaChoiceTable, profile: &QuotaProfile, say: &mut impl FnMut(u32, &str, String)) -> Self {
        let mut tier = |key: &str, named: &AtLine<String>| {
            let found = profile.tier(&named.value);
            if found.is_none() {
                say(named.line, key, profile.no_tier(&named.value));
            }
            found
        };
        let own = choice.tier.as_ref().and_then(|named| tier("tier", named)).unwrap_or_default();
        let tenant_tiers = choice.tenant_tiers.iter().filter_map(|named| tier("tenant_tiers", named)).collect();
        let caps = choice.cap.iter().filter_map(|CapTable { limit, cap }| {
            let found = profile.limit(&limit.value);
            if found.is_none() {
                say(limit.line, "cap.limit", profile.no_limit(&limit.value));
            }
            Some((found?.0, *cap))
        });
        Self { tier: own, tenant_tiers, caps: caps.collect() }
    }

    fn cap(&self, limit: u16) -> Option<u64> {
        // The last one counts, as of keys that are written twice elsewhere the whole file would be refused.
        self.caps.iter().rev().find(|(place, _)| *place == limit).map(|(_, cap)| *cap)
    }
}

impl QuotaProfile {
    /// Cap and burst of a limit (by its place) that hold for a connection, or for the application without one.
    pub fn cap(
        &self,
        limit: u16,
        ceiling: &Ceiling,
        connection: Option<&ConnectionQuota>,
    ) -> Option<(u64, Option<u64>)> {
        let place = limit;
        let limit = self.limits.get(usize::from(place))?;
        let own = limit.level == QuotaLevel::Connection;
        let connection = connection.filter(|_| own);
        let (allowed, mut burst) = limit.of_tier(ceiling.tier);
        let mut cap = allowed;
        if let Some(tier) = connection.and_then(|connection| self.tier(&connection.tier.as_ref()?.value)) {
            let (named, burst_named) = limit.of_tier(tier);
            if named <= allowed || ceiling.tenant_tiers.contains(&tier) {
                (cap, burst) = (named, burst_named);
            }
        }
        let mut lower_or_set = |to: u64| {
            // A burst keeps its proportion to the rate.
            let scaled = burst.map(|burst| u128::from(burst) * u128::from(to) / u128::from(cap.max(1)));
            burst = scaled.map(|burst| u64::try_from(burst).unwrap_or(u64::MAX).max(1));
            cap = to;
        };
        if let Some(to) = ceiling.cap(place) {
            lower_or_set(to);
        }
        let narrowed = connection.into_iter().flat_map(|connection| &connection.caps);
        let narrowed = narrowed.filter(|choice| *choice.limit.value == *limit.name).map(|choice| choice.cap).min();
        if let Some(to) = narrowed.filter(|to| *to < self.before_tenant(place, ceiling, connection)) {
            lower_or_set(to);
        }
        Some((cap, burst))
    }

    /// The cap that holds without the tenant's own caps.
    fn before_tenant(&self, limit: u16, ceiling: &Ceiling, connection: Option<&ConnectionQuota>) -> u64 {
        let tier = connection.and_then(|connection| connection.tier.clone());
        let alone = ConnectionQuota { tier, caps: Box::default() };
        self.cap(limit, ceiling, Some(&alone)).map_or(0, |(cap, _)| cap)
    }

    /// What is wrong with what a connection says: line, key, and a sentence each.
    pub fn judge(&self, ceiling: &Ceiling, connection: &ConnectionQuota) -> Vec<(u32, &'static str, String)> {
        let mut found = Vec::new();
        if let Some(named) = &connection.tier {
            match self.tier(&named.value) {
                None => found.push((named.line, "quota_tier", self.no_tier(&named.value))),
                Some(tier) => {
                    let higher = self.limits.iter().filter(|limit| limit.level == QuotaLevel::Connection);
                    let higher = higher.filter(|limit| limit.of_tier(tier).0 > limit.of_tier(ceiling.tier).0).count();
                    if higher > 0 && !ceiling.tenant_tiers.contains(&tier) {
                        let message = format!(
                            "\"{}\" allows more than the operator's file does; it has to list it in tenant_tiers of [[egress.quota]]",
                            named.value
                        );
                        found.push((named.line, "quota_tier", message));
                    }
                }
            }
        }
        for CapChoice { limit, cap } in &connection.caps {
            let message = match self.limit(&limit.value) {
                None => Some(self.no_limit(&limit.value)),
                Some((_, known)) if known.level != QuotaLevel::Connection => {
                    Some(format!("\"{}\" is shared with other tenants; only the operator's file sets it", limit.value))
                }
                Some((place, _)) => {
                    let allowed = self.before_tenant(place, ceiling, Some(connection));
                    (*cap > allowed)
                        .then(|| format!("is {cap} where {allowed} is allowed; the operator's file can raise it"))
                }
            };
            found.extend(message.map(|message| (limit.line, "quota", message)));
        }
        found
    }

    fn no_tier(&self, name: &str) -> String {
        if self.tiers.is_empty() {
            return format!("\"{name}\" is no tier: this connector's profile has none");
        }
        format!("\"{name}\" is no tier of this connector; known: {}", self.tiers.join(", "))
    }

    fn no_limit(&self, name: &str) -> String {
        let known: Vec<_> = self.limits.iter().map(|limit| &*limit.name).collect();
        let known =
            if known.is_empty() { "its profile has none".into() } else { format!("known: {}", known.join(", ")) };
        format!("\"{name}\" is no limit of this connector; {known}")
    }
}
