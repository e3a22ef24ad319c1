//! Who may issue grants, with which keys, for which tenants.

use std::collections::{HashMap, HashSet};

use domain::TenantId;

use super::grant::{Grant, Unverified};
use super::key::PublicKey;
use super::unproved::GrantFault;

/// Keys of one issuer: the one in use, the next, and some of the past. A forged token costs a check with each.
pub const ISSUER_KEYS_MAX: usize = 16;

/// An issuer as it is configured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IssuerEntry {
    /// What its grants say in `iss`.
    pub name: Box<str>,
    /// Its public keys, at most [`ISSUER_KEYS_MAX`].
    pub keys: Vec<PublicKey>,
    /// For whom it may issue.
    pub tenants: IssuerTenants,
}

/// The tenants that an issuer may name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum IssuerTenants {
    /// All that there are and will be: for the platform's own issuer.
    Every,
    /// These.
    These(HashSet<TenantId>),
}

impl IssuerTenants {
    fn has(&self, tenant: &TenantId) -> bool {
        match self {
            Self::Every => true,
            Self::These(tenants) => tenants.contains(tenant),
        }
    }
}

/// Every issuer, and the audience that grants have to be for.
#[derive(Debug)]
pub(super) struct Issuers {
    audience: Box<str>,
    entries: HashMap<Box<str>, Issuer>,
}

#[derive(Debug, PartialEq, Eq)]
struct Issuer {
    /// With their thumbprints.
    keys: Vec<(PublicKey, Box<str>)>,
    tenants: IssuerTenants,
}

impl Issuers {
    /// Two entries of one name are one issuer only if they are the same; else neither is taken, and the name is said.
    pub(super) fn new(audience: &str, entries: Vec<IssuerEntry>) -> (Self, Vec<Box<str>>) {
        let mut table: HashMap<Box<str>, Issuer> = HashMap::with_capacity(entries.len());
        let mut faulty = Vec::new();
        for entry in entries {
            let keys: Vec<_> = entry.keys.into_iter().map(|key| (key, key.thumbprint().into_boxed_str())).collect();
            let too_many = keys.len() > ISSUER_KEYS_MAX;
            let issuer = Issuer { keys, tenants: entry.tenants };
            let differs = table.get(&entry.name).is_some_and(|known| *known != issuer);
            if too_many || differs {
                faulty.push(entry.name);
            } else {
                table.insert(entry.name, issuer);
            }
        }
        table.retain(|name, _| !faulty.contains(name));
        (Self { audience: audience.into(), entries: table }, faulty)
    }

    /// Who reads by these issuers reads as by those: what was verified stays so.
    pub(super) fn are_as(&self, other: &Self) -> bool {
        self.audience == other.audience && self.entries == other.entries
    }

    /// Checks all that stays true of a grant, and by which key it was signed. Signatures are checked when `may_check`
    /// says so: it is asked once, before the first.
    pub(super) fn verify<E: From<GrantFault>>(
        &self,
        token: &[u8],
        may_check: impl FnOnce() -> Result<(), E>,
    ) -> Result<(Grant, PublicKey), E> {
        let Unverified { claims, key_id, signed, signature } = Unverified::read(token)?;
        let issuer = self.entries.get(&claims.issuer).ok_or(GrantFault::Issuer)?;
        may_check()?;
        let named = key_id.and_then(|id| issuer.keys.iter().find(|(_, thumbprint)| *thumbprint == id));
        let candidates = named.map_or(&issuer.keys[..], std::slice::from_ref);
        let signer = candidates.iter().find(|(key, _)| key.verifies(signed, &signature));
        let (key, _) = signer.ok_or(GrantFault::Signature)?;
        if !issuer.tenants.has(&claims.tenant) {
            return Err(GrantFault::Tenant.into());
        }
        if claims.audience != self.audience {
            return Err(GrantFault::Audience.into());
        }
        Ok((Grant::of_verified(claims)?, *key))
    }

    /// May this key still speak for that issuer and tenant?
    pub(super) fn have(&self, issuer: &str, key: &PublicKey, tenant: &TenantId) -> bool {
        self.entries
            .get(issuer)
            .is_some_and(|issuer| issuer.keys.iter().any(|(known, _)| known == key) && issuer.tenants.has(tenant))
    }
}
