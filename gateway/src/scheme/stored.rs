//! What of a delivery may be stored: whoever reads the log or the holding stream must not be able to pose as the
//! provider, or as whoever else a header belongs to.

use super::program::{At, Scheme};
use super::source::{Place, Source};
use super::template::Piece;

/// Fields that carry somebody's credential, whoever sends them.
const CREDENTIALS: [&str; 3] = ["proxy-authorization", "cookie", "authorization"];

impl Scheme {
    /// May a field of this name be stored? Not where a secret arrives in it as it is.
    pub fn stores(&self, name: &[u8]) -> bool {
        let is = |other: &str| name.eq_ignore_ascii_case(other.as_bytes());
        if self.strips().iter().any(|stripped| is(stripped)) {
            return false;
        }
        // Some providers put a signature, which is no secret, where others put a credential.
        !CREDENTIALS.iter().any(|credential| is(credential))
            || self.place.sources().any(|source| in_header(source, &is))
    }

    /// Is everything that a verdict needs among what is stored? A token or a password in a header is not: what did not
    /// prove its sender by one is never proven later.
    pub fn judges_stored(&self) -> bool {
        self.judges_stored
    }

    /// The same, found out once.
    pub(super) fn finds_all_stored(&self) -> bool {
        let gone = |source: &Source| matches!(&source.place, Place::Header(name) if !self.stores(name.as_bytes()));
        let cases = self.cases();
        let in_content = cases.iter().any(|case| {
            super::template::any(&case.pieces, &|piece| matches!(piece, Piece::Value { source, .. } if gone(source)))
                || case.body_digest.as_ref().is_some_and(|(source, _)| gone(source))
        });
        let read = self.place.sources().chain(self.timestamp.iter().map(|stamp| &stamp.source));
        let mut read = read.chain(self.requirements.iter().map(|rule| &rule.source));
        !in_content && !read.any(gone)
    }
}

impl super::program::Place {
    fn sources(&self) -> impl Iterator<Item = &Source> {
        match &self.at {
            At::One(source) => std::slice::from_ref(source),
            At::Several { sources, .. } => sources,
        }
        .iter()
    }
}

fn in_header(source: &Source, is: &impl Fn(&str) -> bool) -> bool {
    matches!(&source.place, Place::Header(name) if is(name))
}

#[cfg(test)]
mod tests {
    use super::super::Scheme;
    use super::super::tests::{PRESETS, preset};
    use config::scheme::Algorithm;

    fn declared(toml: &str) -> std::sync::Arc<Scheme> {
        let declaration = toml::from_str(&format!("name = \"own\"\nalgorithm = \"hmac-sha256\"\n{toml}")).unwrap();
        Scheme::compile(&declaration).unwrap()
    }

    #[test]
    fn a_signature_is_stored_wherever_it_is_declared_and_a_credential_nowhere() {
        for place in [
            "header = \"Authorization\"",
            "headers = [\"X-Old\", \"Authorization\"]",
            "from = \"header:Authorization\"",
        ] {
            let scheme = declared(&format!("content = \"{{body}}\"\nsignature = {{ {place}, encoding = \"hex\" }}"));
            assert!(scheme.stores(b"AUTHORIZATION") && scheme.judges_stored(), "{place}");
            assert!(!scheme.stores(b"Cookie"), "{place}");
        }
        let other = declared("content = \"{body}\"\nsignature = { header = \"X-Sig\", encoding = \"hex\" }");
        assert!(!other.stores(b"Authorization") && other.stores(b"X-Sig"));
    }

    #[test]
    fn what_is_proven_by_a_secret_in_a_header_cannot_be_judged_from_what_is_stored() {
        assert!(!preset("gitlab").stores(b"x-gitlab-token") && !preset("gitlab").judges_stored());
        assert!(preset("github").judges_stored());
        // A header that is signed and never stored.
        let signature = "signature = { header = \"X-Sig\", encoding = \"hex\" }\nstrip = [\"X-Key\"]";
        assert!(!declared(&format!("content = \"{{header:X-Key}}{{body}}\"\n{signature}")).judges_stored());
        assert!(declared(&format!("content = \"{{body}}\"\n{signature}")).judges_stored());
        let cannot = PRESETS.iter().filter(|scheme| !scheme.judges_stored());
        for scheme in cannot {
            let algorithm = scheme.declaration().algorithm;
            assert!(
                matches!(algorithm, Algorithm::Token | Algorithm::Basic) || algorithm.is_jwt() && !scheme.covers_body(),
                "{}",
                scheme.name()
            );
        }
    }
}
