//! Whose environment variables are whose, by their names: those that begin with a tenant's own name are its own.
//!
//! Names of tenants become names of variables in capitals and with `_` for `-`, so that two tenants can share some:
//! `acme-eu` and `acme_eu` all of them, and what is `acme-eu`'s begins with the name of `acme` as well. A running node
//! lets both name them. To take a variable from the one because of the other's file would let a new tenant take secrets
//! from one that is there; so it is said before files go live.

use std::collections::HashMap;

use domain::TenantId;

/// Stands for the tenant's own name in a pattern of `tenants.allow_env`.
pub(crate) const OWN_NAME: &str = "{TENANT}";

/// A tenant's id as variables are named: `acme-eu` is `ACME_EU`.
pub(crate) fn own_name(tenant: &str) -> String {
    tenant.to_ascii_uppercase().replace('-', "_")
}

/// Whether a pattern allows a tenant of this own name to name a variable.
pub(crate) fn allows(pattern: &str, own_name: &str, variable: &str) -> bool {
    let pattern = pattern.replace(OWN_NAME, own_name);
    pattern.strip_suffix('*').map_or(variable == pattern, |stem| variable.starts_with(stem))
}

/// Every tenant by its own name.
#[derive(Debug)]
pub(crate) struct Neighbours(HashMap<String, Vec<TenantId>>);

impl Neighbours {
    pub(crate) fn new(tenants: &[TenantId]) -> Self {
        let mut by_name: HashMap<String, Vec<TenantId>> = HashMap::with_capacity(tenants.len());
        for tenant in tenants {
            by_name.entry(own_name(tenant.as_str())).or_default().push(tenant.clone());
        }
        Self(by_name)
    }

    /// Another tenant whose own a variable is, of those that `tenant` may name: one of the same name, or of a longer one,
    /// which says more of whose it is. A variable that the operator names without anybody's name is meant for all.
    pub(crate) fn other_owner(&self, allow_env: &[String], tenant: &str, variable: &str) -> Option<&TenantId> {
        let name = own_name(tenant);
        let allowing = || allow_env.iter().filter(|pattern| allows(pattern, &name, variable));
        if allowing().any(|pattern| !pattern.contains(OWN_NAME)) {
            return None;
        }
        allowing().find_map(|pattern| {
            let (before, _) = pattern.split_once(OWN_NAME)?;
            let rest = variable.strip_prefix(before)?;
            let names = (name.len()..=rest.len()).filter_map(|end| rest.get(..end));
            let owners = names.filter(|name| allows(pattern, name, variable)).filter_map(|name| self.0.get(name));
            owners.flatten().find(|owner| owner.as_str() != tenant)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_variable_is_whose_name_says_most_of_it() {
        let tenants = ["acme", "acme-eu", "acme_eu", "acme-eu-2", "acmes", "Beta", "beta", "gamma"];
        let neighbours = Neighbours::new(&tenants.map(|id| TenantId::parse(id).unwrap()));
        let owner = |allow_env: &[&str], tenant: &str, variable: &str| {
            let allow_env: Vec<String> = allow_env.iter().map(ToString::to_string).collect();
            neighbours.other_owner(&allow_env, tenant, variable).map(ToString::to_string)
        };
        for (tenant, variable, other) in [
            ("acme", "ACME_KEY", None),
            ("acme", "ACMES_KEY", None),
            ("acme", "ACME_EUROPE", None),
            ("acme", "ACME_EU", None),
            ("acme", "ACME_EU_KEY", Some("acme-eu")),
            ("acme-eu", "ACME_EU_KEY", Some("acme_eu")),
            ("acme_eu", "ACME_EU_KEY", Some("acme-eu")),
            ("acme-eu", "ACME_EU_2_KEY", Some("acme_eu")),
            ("acme-eu-2", "ACME_EU_2_KEY", None),
            ("beta", "BETA_KEY", Some("Beta")),
            ("gamma", "GAMMA_KEY", None),
            ("gamma", "ACME_KEY", None),
        ] {
            assert_eq!(owner(&["{TENANT}_*"], tenant, variable).as_deref(), other, "{tenant}: {variable}");
        }
        assert_eq!(owner(&["{TENANT}_*", "ACME_EU_KEY"], "acme", "ACME_EU_KEY"), None, "the operator has named it");
        assert_eq!(owner(&["*"], "acme", "ACME_EU_KEY"), None);
        assert_eq!(owner(&["TG_{TENANT}*"], "acme", "TG_ACMES_KEY").as_deref(), Some("acmes"));
        assert_eq!(owner(&["{TENANT}_KEY"], "beta", "BETA_KEY").as_deref(), Some("Beta"));
        assert_eq!(owner(&["{TENANT}_*"], "acme", "ACME_É_EU"), None);
    }
}
