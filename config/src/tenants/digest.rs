//! Whether a file, or a secret that it refers to, is what it was: without parsing it.

use std::collections::HashMap;
use std::fmt;

use crate::secret::ResolvedSecret;
use crate::tenant_file::Rules;

/// Distinct references of one file; far more than `endpoints_per_tenant_max` needs.
const REFERENCES_MAX: usize = 100_000;

type Resolved = Result<ResolvedSecret, String>;

/// What the references of one file resolve to, looked up once for the digest and for the tenant.
#[derive(Debug, Default)]
pub(crate) struct References(HashMap<Box<str>, Resolved>);

impl References {
    pub(crate) fn take(&self, reference: &str) -> Option<Resolved> {
        self.0.get(reference).cloned()
    }
}

#[derive(Debug)]
pub(crate) struct Digester {
    /// Random per process, so that a digest in a dump says nothing about a secret.
    key: [u8; 32],
    settings: [u8; 32],
    /// What else files are judged by.
    basis: [u8; 32],
}

impl Digester {
    pub(crate) fn new() -> Self {
        use std::hash::{BuildHasher, RandomState};
        let mut key = [0; 32];
        for part in key.chunks_exact_mut(8) {
            part.copy_from_slice(&RandomState::new().hash_one(0_u8).to_le_bytes());
        }
        Self { key, settings: [0; 32], basis: [0; 32] }
    }

    /// What else than the appliance's file a tenant's file is judged by.
    pub(crate) fn judge_by(&mut self, basis: &dyn fmt::Debug) {
        self.basis = *blake3::hash(format!("{basis:?}").as_bytes()).as_bytes();
    }

    /// What of the appliance's file a tenant's file is judged by: if that changes, everything is judged again.
    pub(crate) fn settle_on(&mut self, rules: &Rules, allow_env: &[String]) {
        self.settings = *blake3::hash(format!("{rules:?} {allow_env:?} {:?}", self.basis).as_bytes()).as_bytes();
    }

    /// Digest of the settings and a file's bytes, and of the bytes and all that its references resolve to: half of it
    /// each. It is keyed, and compared with one other only.
    pub(crate) fn of(
        &self,
        bytes: &[u8],
        references: &mut References,
        resolve: &mut dyn FnMut(&str) -> Resolved,
    ) -> [u8; 16] {
        let mut hasher = blake3::Hasher::new_keyed(&self.key);
        hasher.update(&(bytes.len() as u64).to_le_bytes()).update(bytes);
        let text = hasher.clone().update(&self.settings).finalize();
        for reference in std::str::from_utf8(bytes).into_iter().flat_map(written) {
            if references.0.contains_key(reference) {
                continue;
            }
            if references.0.len() >= REFERENCES_MAX {
                break;
            }
            let found = resolve(reference);
            match &found {
                Ok(found) => {
                    let secret = found.secret.expose();
                    let warned = u8::from(found.warning.is_some());
                    hasher.update(&[1, warned]).update(&(secret.len() as u64).to_le_bytes()).update(secret);
                }
                Err(message) => {
                    hasher.update(&[0, 0]).update(&(message.len() as u64).to_le_bytes()).update(message.as_bytes());
                }
            }
            references.0.insert(reference.into(), found);
        }
        let mut digest = [0; 16];
        digest[..8].copy_from_slice(&text.as_bytes()[..8]);
        digest[8..].copy_from_slice(&hasher.finalize().as_bytes()[..8]);
        digest
    }
}

/// Whether two digests are of one text whose references resolve to the same, whatever it is judged by.
pub(crate) fn has_same_content(one: &[u8; 16], other: &[u8; 16]) -> bool {
    one[8..] == other[8..]
}

/// Every quoted text that could be a reference. One that stands in a comment is looked up too, and no harm done.
fn written(text: &str) -> impl Iterator<Item = &str> {
    text.match_indices(':').filter_map(|(colon, _)| {
        let (before, after) = (&text[..colon], &text[colon + 1..]);
        let kind = ["secret", "env"].into_iter().find(|kind| before.ends_with(kind))?;
        let start = colon - kind.len();
        let quote = text[..start].chars().next_back().filter(|c| matches!(c, '"' | '\''))?;
        let end = after.find([quote, '\n'])?;
        after[end..].starts_with(quote).then(|| &text[start..=colon + end])
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_are_found_where_they_are_written() {
        let text =
            "a = \"env:ACME_KEY\"\nb = 'secret:x.y' # \"secret:z\"\nc = \"xenv:N\"\nd = \"env:open\ne = env:bare\n";
        assert_eq!(written(text).collect::<Vec<_>>(), ["env:ACME_KEY", "secret:x.y", "secret:z"]);
    }

    #[test]
    fn a_rotated_secret_changes_the_digest_and_a_reread_does_not() {
        let digester = Digester::new();
        let text = b"value = \"secret:k\"";
        let of = |secret: Option<&'static [u8]>| {
            let mut resolve = |_: &str| {
                let secret = secret.ok_or("is not there")?;
                Ok(ResolvedSecret { secret: domain::Secret::new(secret), warning: None })
            };
            digester.of(text, &mut References::default(), &mut resolve)
        };
        assert_eq!(of(Some(b"1")), of(Some(b"1")));
        assert_ne!(of(Some(b"1")), of(Some(b"2")));
        assert_ne!(of(Some(b"1")), of(None));
        assert!(!has_same_content(&of(Some(b"1")), &of(None)));
        let mut judged_anew = Digester { settings: [1; 32], ..Digester::new() };
        judged_anew.key = digester.key;
        let other = judged_anew.of(text, &mut References::default(), &mut |_| Err("is not there".into()));
        assert!(of(None) != other && has_same_content(&of(None), &other));
    }
}
