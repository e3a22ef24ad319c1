//! Call grants: JWTs (RFC 7519) in the compact form of RFC 7515, signed with Ed25519 (RFC 8037), and nothing else that a
//! JWT can be (RFC 8725).
//!
//! ```text
//! text ─▶ bounded ─▶ three parts ─▶ header ─▶ claims ─▶ issuer, its keys ─▶ signature ─▶ tenant, audience, lifetime
//!                                                                                        ╰──── once, kept ────╯
//! and on every call: exp, iat, nbf, source, certificate, revocation, calls_max
//! ```
//!
//! The issuer is read before the signature is checked, since it says with whose keys; until then nothing else of the
//! claims is acted on. No part of a token chooses how it is checked: the key is the issuer's and its algorithm is
//! Ed25519. `alg` is compared with what it has to be (`EdDSA`, or the `Ed25519` of RFC 9864), `kid` only saves trying
//! several keys.

use std::net::IpAddr;
use std::num::NonZeroU32;
use std::sync::Arc;

use domain::json::{self, Value};
use domain::jwt::{self, Compact};
use ipnet::IpNet;

use super::certificate::PeerCertificate;
use super::claims::{Claims, take, text};
use super::unproved::GrantFault;
use super::{Caller, Identity};

/// Longest token that is looked at, in bytes.
pub const GRANT_BYTES_MAX: usize = 8 * 1024;

/// Longest life of a grant, in seconds: what it was stolen for ends soon, and so does what a revocation has to be
/// remembered for.
pub const LIFETIME_SECONDS_MAX: u64 = 15 * 60;

/// How far an issuer's clock may be ahead of ours. `exp` has no leeway: nothing is lost by a grant that ends early.
pub const LEEWAY_SECONDS: u64 = 30;

/// A token whose form is right. Nothing in it is to be believed.
pub(super) struct Unverified<'t> {
    pub(super) claims: Claims,
    /// What a `kid` says, if there is one.
    pub(super) key_id: Option<Box<str>>,
    pub(super) signed: &'t [u8],
    pub(super) signature: [u8; 64],
}

impl<'t> Unverified<'t> {
    pub(super) fn read(token: &'t [u8]) -> Result<Self, GrantFault> {
        if token.len() > GRANT_BYTES_MAX {
            return Err(GrantFault::TooLong);
        }
        let token = Compact::split(token).ok_or(GrantFault::Form)?;
        let key_id = read_header(&decoded(token.header)?)?;
        let claims = Claims::read(&decoded(token.payload)?)?;
        let signature = decoded(token.signature)?.try_into().map_err(|_| GrantFault::Form)?;
        Ok(Self { claims, key_id, signed: token.signed, signature })
    }
}

/// Header and claims of a JWT, decoded for people to look at, and not checked in any way.
pub fn peek(token: &[u8]) -> Result<(Vec<u8>, Vec<u8>), GrantFault> {
    let mut parts = token.split(|byte| *byte == b'.');
    match (parts.next(), parts.next()) {
        (Some(header), Some(claims)) => Ok((decoded(header)?, decoded(claims)?)),
        _ => Err(GrantFault::Form),
    }
}

fn decoded(part: &[u8]) -> Result<Vec<u8>, GrantFault> {
    jwt::decoded(part).ok_or(GrantFault::Form)
}

fn read_header(header: &[u8]) -> Result<Option<Box<str>>, GrantFault> {
    let mut members = json::object(header)?;
    match take(&mut members, "alg").and_then(text).as_deref() {
        Some("EdDSA" | "Ed25519") => {}
        Some(_) | None => return Err(GrantFault::Algorithm),
    }
    match take(&mut members, "typ") {
        None => {}
        Some(Value::Text(kind)) if kind == "JWT" || kind == "grant+jwt" => {}
        Some(_) => return Err(GrantFault::Type),
    }
    let key_id = match take(&mut members, "kid") {
        None => None,
        Some(Value::Text(id)) => Some(id.into()),
        Some(_) => return Err(GrantFault::HeaderMember("kid".into())),
    };
    match members.into_iter().next() {
        None => Ok(key_id),
        Some((name, _)) => Err(GrantFault::HeaderMember(name.into())),
    }
}

/// A grant that its issuer signed, for this audience and a tenant of his: what stays true of it. What changes is asked
/// on every call.
#[derive(Debug)]
pub(super) struct Grant {
    pub(super) caller: Arc<Caller>,
    issued_ms: u64,
    not_before_ms: u64,
    pub(super) expires_ms: u64,
    sources: Option<Box<[IpNet]>>,
    certificate: Option<[u8; 32]>,
    pub(super) calls_max: Option<NonZeroU32>,
}

impl Grant {
    /// Who checked signature, tenant and audience may call this.
    pub(super) fn of_verified(claims: Claims) -> Result<Self, GrantFault> {
        let lifetime = claims.expires_at.checked_sub(claims.issued_at).ok_or(GrantFault::Claim("exp"))?;
        // With `iat` at most the leeway ahead, `exp` is never further from now than both together.
        if lifetime > LIFETIME_SECONDS_MAX {
            return Err(GrantFault::Lifetime);
        }
        let expires_ms = claims.expires_at * 1000;
        let caller = Caller {
            tenant: claims.tenant,
            role: claims.role,
            identity: Identity::Grant { issuer: claims.issuer, id: claims.id },
            connections: claims.connections,
            destinations: claims.destinations,
            run: claims.run,
            automation: claims.automation,
            class: claims.class,
            until_unix_ms: Some(expires_ms),
        };
        Ok(Self {
            caller: Arc::new(caller),
            issued_ms: claims.issued_at * 1000,
            not_before_ms: claims.not_before.unwrap_or_default() * 1000,
            expires_ms,
            sources: claims.sources,
            certificate: claims.certificate,
            calls_max: claims.calls_max,
        })
    }

    /// Is it valid now?
    pub(super) fn is_timely(&self, now_ms: u64) -> Result<(), GrantFault> {
        if now_ms >= self.expires_ms {
            return Err(GrantFault::Expired);
        }
        let soon_ms = now_ms.saturating_add(LEEWAY_SECONDS * 1000);
        if self.issued_ms > soon_ms {
            return Err(GrantFault::Future);
        }
        if self.not_before_ms > soon_ms { Err(GrantFault::NotYet) } else { Ok(()) }
    }

    /// Is it for callers at this address, with this certificate?
    pub(super) fn is_for(&self, peer: IpAddr, certificate: Option<&PeerCertificate>) -> Result<(), GrantFault> {
        let peer = peer.to_canonical();
        if let Some(sources) = &self.sources
            && !sources.iter().any(|network| network.contains(&peer))
        {
            return Err(GrantFault::Source);
        }
        // Without TLS there is no certificate, and nothing that a bound grant could be bound to.
        match (self.certificate, certificate) {
            (None, _) => Ok(()),
            (Some(print), Some(certificate)) if print == certificate.sha256 => Ok(()),
            (Some(_), _) => Err(GrantFault::Certificate),
        }
    }
}

#[cfg(test)]
mod tests {
    use data_encoding::BASE64URL_NOPAD;
    use proptest::prelude::*;
    use ring::hmac;

    use super::super::testing::{KEY, OTHER_KEY, certificate_of, minted, new_grant, signed, verify};
    use super::*;

    const HEADER: &str = r#"{"alg":"EdDSA","typ":"JWT"}"#;
    const CLAIMS: &str =
        r#"{"iss":"platform","aud":"tidegate","tenant":"acme","jti":"g1","iat":1764424000,"exp":1764424060}"#;

    fn fault(token: &[u8]) -> GrantFault {
        verify(token).expect_err(&String::from_utf8_lossy(token))
    }

    fn under(header: &str) -> Result<(), GrantFault> {
        verify(signed(header, CLAIMS).expose()).map(|_| ())
    }

    fn saying(claims: &str) -> Result<(), GrantFault> {
        verify(signed(HEADER, claims).expose()).map(|_| ())
    }

    fn b64(text: &str) -> String {
        BASE64URL_NOPAD.encode(text.as_bytes())
    }

    #[test]
    fn a_grant_that_its_issuer_signed_is_taken() {
        let (grant, key) = verify(&minted(&new_grant())).unwrap();
        assert_eq!((grant.caller.tenant.as_str(), key), ("acme", KEY.public()));
        assert_eq!(grant.caller.until_unix_ms, Some(1_764_424_060_000));
        for header in [
            HEADER.to_owned(),
            r#"{"alg":"EdDSA"}"#.into(),
            r#"{"typ":"grant+jwt","alg":"Ed25519"}"#.into(),
            r#"{"alg":"EdDSA","kid":"2025-11"}"#.into(),
            format!(r#"{{"alg":"EdDSA","kid":"{}"}}"#, KEY.public().thumbprint()),
        ] {
            assert_eq!(under(&header), Ok(()), "{header}");
        }
    }

    #[test]
    fn a_header_asks_for_nothing_else() {
        for alg in ["none", "None", "HS256", "ES256", "RS256", "EdDSA ", "eddsa", "Ed448", ""] {
            assert_eq!(under(&format!(r#"{{"alg":"{alg}"}}"#)), Err(GrantFault::Algorithm), "{alg}");
        }
        assert_eq!(under("{}"), Err(GrantFault::Algorithm));
        assert_eq!(under(r#"{"alg":["EdDSA"]}"#), Err(GrantFault::Algorithm));
        for kind in [r#""at+jwt""#, r#""jwt""#, r#""""#, "null", "1"] {
            assert_eq!(under(&format!(r#"{{"alg":"EdDSA","typ":{kind}}}"#)), Err(GrantFault::Type), "{kind}");
        }
        for (name, value) in [
            ("crit", r#"["exp"]"#),
            ("jwk", r#"{"kty":"OKP","crv":"Ed25519","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}"#),
            ("jku", r#""https://example.com/keys""#),
            ("x5u", r#""https://example.com/cert""#),
            ("x5c", "[]"),
            ("b64", "true"),
            ("cty", r#""JWT""#),
            ("zip", r#""DEF""#),
            ("kid", "7"),
            ("own:member", "1"),
        ] {
            let header = format!(r#"{{"alg":"EdDSA","{name}":{value}}}"#);
            assert_eq!(under(&header), Err(GrantFault::HeaderMember(name.into())));
        }
        assert_eq!(under(r#"{"alg":"none","alg":"EdDSA"}"#), Err(GrantFault::Members));
        assert_eq!(under(r#"{"alg":"EdDSA","\u0061lg":"EdDSA"}"#), Err(GrantFault::Members));
    }

    #[test]
    fn forgeries_are_not_signed() {
        let (header, claims) = (b64(HEADER), b64(CLAIMS));
        let none = b64(r#"{"alg":"none"}"#);
        assert_eq!(fault(format!("{none}.{claims}.").as_bytes()), GrantFault::Algorithm);
        // The public key taken for a shared secret, in the forms in which libraries have taken it.
        let hs256 = b64(r#"{"alg":"HS256"}"#);
        let public = KEY.public();
        for secret in [public.to_pem(), public.to_string()] {
            let tag = hmac::sign(
                &hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes()),
                format!("{hs256}.{claims}").as_bytes(),
            );
            let token = format!("{hs256}.{claims}.{}", BASE64URL_NOPAD.encode(tag.as_ref()));
            assert_eq!(fault(token.as_bytes()), GrantFault::Algorithm);
        }
        let by_other = super::super::mint::sign(&OTHER_KEY, HEADER.as_bytes(), CLAIMS.as_bytes());
        assert_eq!(fault(by_other.expose()), GrantFault::Signature);
        // `kid` names a key and proves nothing.
        let naming = format!(r#"{{"alg":"EdDSA","kid":"{}"}}"#, public.thumbprint());
        let by_other = super::super::mint::sign(&OTHER_KEY, naming.as_bytes(), CLAIMS.as_bytes());
        assert_eq!(fault(by_other.expose()), GrantFault::Signature);
        let good = String::from_utf8(signed(HEADER, CLAIMS).expose().to_vec()).unwrap();
        let signature = good.rsplit('.').next().unwrap();
        let edited = b64(&CLAIMS.replace("acme", "beta"));
        assert_eq!(fault(format!("{header}.{edited}.{signature}").as_bytes()), GrantFault::Signature);
        assert_eq!(fault(format!("{header}.{claims}.{}", "A".repeat(86)).as_bytes()), GrantFault::Signature);
    }

    #[test]
    fn a_token_has_one_form() {
        let good = String::from_utf8(signed(HEADER, CLAIMS).expose().to_vec()).unwrap();
        for odd in [
            String::new(),
            "..".into(),
            format!("{good}."),
            format!(".{good}"),
            format!("{good}="),
            format!(" {good}"),
            format!("{good}\n"),
            good.replace('.', ".."),
            good.rsplit_once('.').unwrap().0.into(),
            format!("{}.", good.rsplit_once('.').unwrap().0),
            good[..good.len() - 1].into(),
            format!("{}.{}.{}", b64("[]"), b64(CLAIMS), "A".repeat(86)),
            format!("{}.{}.{}", b64(HEADER), b64("{}x"), "A".repeat(86)),
        ] {
            assert_eq!(fault(odd.as_bytes()), GrantFault::Form, "{odd}");
        }
        let long = format!("{}.{}.{}", b64(HEADER), "A".repeat(GRANT_BYTES_MAX), "A".repeat(86));
        assert_eq!(fault(long.as_bytes()), GrantFault::TooLong);
        assert_eq!(fault(&vec![b'.'; GRANT_BYTES_MAX + 1]), GrantFault::TooLong);
        assert_eq!(fault(&vec![b'.'; GRANT_BYTES_MAX]), GrantFault::Form);
        assert_eq!(saying(&CLAIMS.replace("\"acme\"", "\"acme\",\"tenant\":\"beta\"")), Err(GrantFault::Members));
    }

    #[test]
    fn an_issuer_speaks_for_its_tenants_and_to_this_audience() {
        assert_eq!(saying(&CLAIMS.replace("acme", "beta")), Ok(()));
        assert_eq!(saying(&CLAIMS.replace("acme", "gamma")), Err(GrantFault::Tenant));
        assert_eq!(saying(&CLAIMS.replace("acme", "Acme")), Err(GrantFault::Tenant));
        assert_eq!(saying(&CLAIMS.replace("platform", "other")), Err(GrantFault::Issuer));
        assert_eq!(saying(&CLAIMS.replace("tidegate", "other")), Err(GrantFault::Audience));
        assert_eq!(saying(&CLAIMS.replace("tidegate", "Tidegate")), Err(GrantFault::Audience));
    }

    #[test]
    fn a_grant_lives_for_fifteen_minutes_at_most() {
        let until = |exp: u64| saying(&CLAIMS.replace("1764424060", &exp.to_string()));
        assert_eq!(until(1_764_424_900), Ok(()));
        assert_eq!(until(1_764_424_901), Err(GrantFault::Lifetime));
        assert_eq!(until(1_764_424_000), Ok(()), "it is over before it begins, and that is said when it is used");
        assert_eq!(until(1_764_423_999), Err(GrantFault::Claim("exp")));
    }

    #[test]
    fn times_are_kept_to_the_millisecond() {
        let claims = CLAIMS.replace("\"exp\"", "\"nbf\":1764424010,\"exp\"");
        let (grant, _) = verify(signed(HEADER, &claims).expose()).unwrap();
        let at = |ms: u64| grant.is_timely(ms);
        let (issued, not_before, expires) = (1_764_424_000_000, 1_764_424_010_000, 1_764_424_060_000);
        assert_eq!(at(issued - 30_001), Err(GrantFault::Future));
        assert_eq!(at(issued - 30_000), Err(GrantFault::NotYet));
        assert_eq!(at(not_before - 30_001), Err(GrantFault::NotYet));
        assert_eq!((at(not_before - 30_000), at(expires - 1)), (Ok(()), Ok(())));
        assert_eq!(
            (at(expires), at(u64::MAX), at(0)),
            (Err(GrantFault::Expired), Err(GrantFault::Expired), Err(GrantFault::Future))
        );
    }

    #[test]
    fn a_bound_grant_is_for_one_place() {
        let claims = CLAIMS.replace("\"exp\"", "\"source\":[\"10.0.0.0/8\",\"2001:db8::7\"],\"exp\"");
        let (grant, _) = verify(signed(HEADER, &claims).expose()).unwrap();
        let from = |peer: &str| grant.is_for(peer.parse().unwrap(), None);
        for inside in ["10.0.0.0", "10.255.255.255", "::ffff:10.1.2.3", "2001:db8::7"] {
            assert_eq!(from(inside), Ok(()), "{inside}");
        }
        for outside in ["9.255.255.255", "11.0.0.0", "2001:db8::8", "::10.1.2.3", "127.0.0.1"] {
            assert_eq!(from(outside), Err(GrantFault::Source), "{outside}");
        }

        let print = BASE64URL_NOPAD.encode(&[7; 32]);
        let claims = CLAIMS.replace("\"exp\"", &format!("\"cnf\":{{\"x5t#S256\":\"{print}\"}},\"exp\""));
        let (grant, _) = verify(signed(HEADER, &claims).expose()).unwrap();
        let here = "127.0.0.1".parse().unwrap();
        let with = |byte| grant.is_for(here, Some(&certificate_of(byte, &[])));
        assert_eq!((with(7), with(8)), (Ok(()), Err(GrantFault::Certificate)));
        assert_eq!(grant.is_for(here, None), Err(GrantFault::Certificate));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2_000))]

        #[test]
        fn any_change_of_one_byte_is_refused(at: prop::sample::Index, byte: u8) {
            let mut token = signed(HEADER, CLAIMS).expose().to_vec();
            let at = at.index(token.len());
            prop_assume!(token[at] != byte);
            token[at] = byte;
            prop_assert!(verify(&token).is_err());
        }

        #[test]
        fn no_bytes_panic(bytes: Vec<u8>, header: Vec<u8>, claims: Vec<u8>) {
            prop_assert!(verify(&bytes).is_err());
            let token = super::super::mint::sign(&KEY, &header, &claims);
            prop_assert!(verify(token.expose()).is_err());
        }
    }

    #[test]
    fn every_change_of_one_bit_is_refused() {
        let token = signed(HEADER, CLAIMS).expose().to_vec();
        for at in 0..token.len() {
            for bit in 0..8 {
                let mut changed = token.clone();
                changed[at] ^= 1 << bit;
                assert!(verify(&changed).is_err(), "bit {bit} of byte {at}");
            }
        }
    }
}
