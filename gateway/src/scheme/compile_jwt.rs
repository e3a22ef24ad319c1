//! From a declaration to what is asked of a JWT.

use config::scheme::{ClaimRule, Condition, Encoding};

use super::compile::{Compiler, has_url};
use super::key::public_algorithm;
use super::program::{CaseProgram, Claim, Expects, Jwt};
use super::public_key::PublicAlgorithm;
use super::source::{Place, Source};
use super::template::{self, Piece};

/// Every JWT's own times: what is said of them stands in `jwt` and `timestamp`.
const TIMES: [&str; 3] = ["exp", "nbf", "iat"];

impl Compiler<'_> {
    /// None where something is wrong with what it is made of.
    pub(super) fn jwt(&mut self) -> Option<Jwt> {
        let declared = self.declared;
        if !declared.content.is_empty() || !declared.cases.is_empty() {
            let key = if declared.content.is_empty() { "case" } else { "content" };
            let message = "a JWT signs itself: what it says of the delivery stands in `claim` tables";
            self.fault(key, &["algorithm"], message);
        }
        if declared.also.is_some() {
            self.fault("also", &["algorithm"], "a JWT has one algorithm: there is no second one");
        }
        self.stands_in_one_place("a JWT");
        let before = self.faults.len();
        let claims: Vec<_> = declared.claims.iter().enumerate().filter_map(|(at, rule)| self.claim(at, rule)).collect();
        if claims.len() < declared.claims.len() || self.faults.len() > before {
            return None;
        }
        let url = self.url(claims.iter().any(|claim| matches!(&claim.expects, Expects::Content { has_url: true, .. })));
        let algorithm = public_algorithm(declared.algorithm);
        let name = match algorithm {
            Some(PublicAlgorithm::P256Fixed | PublicAlgorithm::P256Der) => "ES256",
            Some(PublicAlgorithm::RsaPkcs1) => "RS256",
            Some(PublicAlgorithm::Ed25519) => "EdDSA",
            None => "HS256",
        };
        Some(Jwt {
            name,
            algorithm,
            expires: declared.jwt.expires,
            leeway_ms: declared.jwt.leeway.map_or(0, config::scheme::Span::ms),
            covers: [covers(declared.claims.as_slice())].into(),
            claims: claims.into(),
            url,
        })
    }

    fn claim(&mut self, at: usize, rule: &ClaimRule) -> Option<Claim> {
        let key = |name: &str| format!("claim[{at}].{name}");
        if rule.name.is_empty() || rule.name.len() > 256 || !rule.name.bytes().all(|byte| byte.is_ascii_graphic()) {
            self.fault(key("name"), &[], "claim.name is 1 to 256 visible ASCII characters");
            return None;
        }
        if TIMES.contains(&rule.name.as_str()) {
            let message =
                "exp and nbf are always judged, `jwt.expires` asks for one; iat is a `timestamp` from claim:iat";
            self.fault(key("name"), &[], message);
        }
        let expects = match (rule.equals.is_empty(), rule.content.is_empty()) {
            (false, true) => {
                if rule.hash.is_some() || rule.encoding.is_some() {
                    let message = "claim.hash and claim.encoding belong to claim.content";
                    self.fault(key("hash"), &["claim"], message);
                }
                Expects::OneOf(rule.equals.iter().map(|text| text.as_bytes().into()).collect())
            }
            (true, false) => {
                let pieces = match template::parse(&rule.content) {
                    Ok(pieces) => pieces,
                    Err(fault) => {
                        self.fault(key("content"), &[], fault);
                        return None;
                    }
                };
                let of_token = |place: &Place| matches!(place, Place::Field(_) | Place::Claim(_) | Place::Item(_));
                let own = |piece: &Piece| {
                    matches!(piece, Piece::Secret | Piece::Timestamp | Piece::DeliveryId { .. })
                        || matches!(piece, Piece::Value { source, .. } if of_token(&source.place))
                };
                if template::any(&pieces, &own) {
                    let message =
                        "a claim's content is of the delivery: no {secret}, {timestamp}, {delivery_id}, claim or field";
                    self.fault(key("content"), &[], message);
                }
                if rule.encoding.is_some() && rule.hash.is_none() {
                    self.fault(key("encoding"), &["claim"], "claim.encoding says how claim.hash is written");
                }
                let hash = rule.hash.map(|hash| (hash, rule.encoding.unwrap_or(Encoding::Hex)));
                let has_body = template::any(&pieces, &|piece| matches!(piece, Piece::Body | Piece::SortedForm(_)));
                Expects::Content { has_url: has_url(&pieces), has_body, pieces, hash }
            }
            _ => {
                self.fault(key("equals"), &["claim"], "a claim has either `equals` or `content`, and one of them");
                return None;
            }
        };
        Some(Claim {
            source: Source::compile(&config::scheme::ValueSource::Claim(rule.name.clone())),
            name: rule.name.as_str().into(),
            when: rule.when.clone(),
            optional: rule.optional,
            expects,
        })
    }
}

/// What claims that are always there cover of a delivery. One that is there for deliveries with a body, and absent from those
/// without, covers the body: that there is none is signed as well.
fn covers(claims: &[ClaimRule]) -> CaseProgram {
    let always = claims.iter().filter(|rule| !rule.optional && matches!(rule.when, None | Some(Condition::Body)));
    let whole = always.filter(|rule| rule.when.is_none() || rule.content.contains("{body}"));
    let pieces = whole.filter_map(|rule| template::parse(&rule.content).ok()).flatten().collect();
    CaseProgram { key: "".into(), when: None, pieces, body_digest: None, has_url: false }
}
