//! A scheme as it is written down: how a delivery proves who sent it, as data.
//!
//! A tenant's `[[scheme]]` table and a row of the gateway's presets are the same thing, and these are its types.
//! Nothing is computed here: `gateway::scheme` compiles a declaration into a small program and says everything
//! that is wrong with it. `docs/schemes.md` explains every key with an example.

mod answer;
mod declare;
mod handshake;
mod text;

pub use answer::{Answer, AnswerBody, AnswerType, Redelivery};
pub use declare::{
    Algorithm, Also, BodyDigest, BodyRule, Case, ClaimRule, Encoding, Evidence, Hash, JwtRule, KeyDecode, KeyRule,
    KnownAnswer, ListRule, Method, Requirement, SchemeDeclaration, SignatureRule, TimestampFormat, TimestampRule,
    UrlRule, UrlVariant,
};
pub use handshake::{Alphabet, Challenge, ChallengeDigest, Handshake, HandshakeKind, Reply, ReplyHeader, When};
pub use text::{Condition, ParseTextError, Span, ValueSource, Window};

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::SchemeDeclaration;

    fn keys(schema: &serde_json::Value, into: &mut BTreeSet<String>) {
        if let Some(properties) = schema.get("properties").and_then(|p| p.as_object()) {
            into.extend(properties.keys().cloned());
        }
        if let Some(members) = schema.as_object() {
            members.values().for_each(|member| keys(member, into));
        }
        schema.as_array().into_iter().flatten().for_each(|item| keys(item, into));
    }

    #[test]
    fn every_key_is_explained() {
        let text = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/schemes.md")).unwrap();
        let mut all = BTreeSet::new();
        keys(schemars::schema_for!(SchemeDeclaration).as_value(), &mut all);
        assert!(all.len() > 40, "{all:?}");
        for key in all {
            let named = [format!("`{key}`"), format!(".{key}`")].iter().any(|name| text.contains(name));
            assert!(named, "docs/schemes.md does not explain {key}");
        }
    }
}
