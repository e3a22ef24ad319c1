//! Tenants' tokens of the API: who is recognised by one.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use config::{Fault, RunnerScope, Tenant};
use domain::TenantId;
use egress::caller::TokenHash;
use runner::api::{Asker, Scope};
use subtle::ConstantTimeEq;

/// Longest token that is looked at, in bytes.
const TOKEN_BYTES_MAX: usize = 512;

/// All of them. A digest that two entries claim is nobody's: each would act for the other.
#[derive(Debug, Default)]
pub(crate) struct Tokens(HashMap<[u8; 16], Option<Token>>);

#[derive(Debug)]
struct Token {
    hash: [u8; 32],
    asker: Arc<Asker>,
    /// The last millisecond at which it counts.
    not_after_unix_ms: Option<u64>,
}

impl Tokens {
    /// The table, and what of the tenants' files is not in it.
    pub(super) fn of<'t>(tenants: impl Iterator<Item = &'t Tenant>) -> (Self, Vec<Fault>) {
        let mut table: HashMap<[u8; 16], Option<Token>> = HashMap::new();
        let mut faults = Vec::new();
        for tenant in tenants {
            let tokens = tenant.runner().map(|runner| &runner.tokens[..]).unwrap_or_default();
            for (index, token) in tokens.iter().enumerate() {
                let entry = Token {
                    hash: token.hash,
                    asker: Arc::new(asker(&tenant.id, &token.name, token.scope)),
                    not_after_unix_ms: token.not_after_unix_ms,
                };
                match table.entry(key(&token.hash)) {
                    Entry::Vacant(place) => drop(place.insert(Some(entry))),
                    Entry::Occupied(mut known) => {
                        known.insert(None);
                        let message = "is the digest of another tenant's token too: neither is taken any more";
                        faults.push(tenant.fault(token.line, format!("runner.token[{index}].hash"), message));
                    }
                }
            }
        }
        (Self(table), faults)
    }

    /// Who has this token, now.
    pub(super) fn find(&self, token: &[u8], now_unix_ms: u64) -> Option<Arc<Asker>> {
        if token.is_empty() || token.len() > TOKEN_BYTES_MAX {
            return None;
        }
        let hash = *TokenHash::of(token).as_bytes();
        let found = self.0.get(&key(&hash))?.as_ref()?;
        let is_it = bool::from(found.hash.ct_eq(&hash));
        let counts = found.not_after_unix_ms.is_none_or(|last| now_unix_ms <= last);
        (is_it && counts).then(|| Arc::clone(&found.asker))
    }
}

/// Half of a digest: whoever can choose it has a collision of SHA-256.
fn key(hash: &[u8; 32]) -> [u8; 16] {
    let mut key = [0; 16];
    key.copy_from_slice(&hash[..16]);
    key
}

fn asker(tenant: &TenantId, name: &str, scope: RunnerScope) -> Asker {
    let scope = match scope {
        RunnerScope::Read => Scope::Read,
        RunnerScope::Operate => Scope::Operate,
        RunnerScope::Author => Scope::Author,
    };
    Asker { tenant: tenant.clone(), by: format!("token:{name}").into(), scope }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tenant(text: &str) -> Tenant {
        let (tenant, faults) = config::parse_tenant(text.as_bytes());
        tenant.unwrap_or_else(|| panic!("{faults:?}"))
    }

    fn file(id: &str, token: &str, more: &str) -> Tenant {
        let hash = TokenHash::of(token.as_bytes());
        tenant(&format!("tenant = \"{id}\"\n[[runner.token]]\nname = \"console\"\nhash = \"{hash}\"\n{more}"))
    }

    #[test]
    fn a_token_is_its_tenants_for_as_long_as_it_counts() {
        let acme = file("acme", "tgr_a", "scope = \"operate\"\nnot_after = 2026-01-01T00:00:00Z\n");
        let other = file("other", "tgr_b", "");
        let (tokens, faults) = Tokens::of([&acme, &other].into_iter());
        assert!(faults.is_empty());
        let last = 1_767_225_600_000;
        let found = tokens.find(b"tgr_a", last).unwrap();
        assert_eq!((found.tenant.as_str(), &*found.by, found.scope), ("acme", "token:console", Scope::Operate));
        assert_eq!(tokens.find(b"tgr_a", last + 1), None);
        assert_eq!(tokens.find(b"tgr_b", u64::MAX).unwrap().scope, Scope::Read);
        for nobodys in [&b""[..], b"tgr_", b"tgr_a ", b"tgr_c", &[b'a'; 600]] {
            assert_eq!(tokens.find(nobodys, 0), None);
        }
    }

    #[test]
    fn a_token_of_two_tenants_is_nobodys() {
        let (acme, other) = (file("acme", "tgr_a", ""), file("other", "tgr_a", ""));
        let (tokens, faults) = Tokens::of([&acme, &other].into_iter());
        assert_eq!(tokens.find(b"tgr_a", 0), None);
        assert!(faults.len() == 1 && faults[0].to_string().contains("another tenant's token"), "{faults:?}");
    }
}
