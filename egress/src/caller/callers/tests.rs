use std::time::Duration;

use domain::ManualClock;

use super::super::mint::{NewGrant, sign};
use super::super::revocation::{Revocation, Revoked, Until};
use super::super::testing::{
    KEY, NOW_MS, OTHER_KEY, certificate_of, clock, issuer, local, minted, new_grant, settings, tenant,
};
use super::super::{REVOCATIONS_FILE, new_token, revoke};
use super::*;
use crate::refusal::Refusal;

struct Node {
    callers: Callers,
    clock: Arc<ManualClock>,
    revocations: Arc<Revocations>,
    directory: tempfile::TempDir,
}

impl Node {
    fn new(settings: CallerSettings) -> Self {
        let (directory, clock) = (tempfile::tempdir().unwrap(), clock());
        let revocations = Arc::new(Revocations::open(directory.path(), Arc::clone(&clock) as _).unwrap());
        let (callers, left_out) = Callers::new(settings, Arc::clone(&revocations), Arc::clone(&clock) as _);
        assert_eq!(left_out, []);
        Self { callers, clock, revocations, directory }
    }

    fn ask(&self, proof: &[u8]) -> Result<Identified, Unproved> {
        self.callers.identify(Ok(Presented::given(proof)), &local())
    }

    fn fault(&self, proof: &[u8]) -> Unproved {
        self.ask(proof).expect_err("nobody")
    }

    fn revoke(&self, what: Revoked, until: Until) {
        let path = self.directory.path().join(REVOCATIONS_FILE);
        let now = self.clock.unix_ms();
        revoke(&path, &Revocation { what, at_unix_ms: now, until }, now).unwrap();
        self.revocations.look();
    }
}

fn with_token(of: &str, role: Option<&str>, until: Option<u64>) -> (CallerSettings, Vec<u8>) {
    let (token, hash) = new_token().unwrap();
    let entry =
        TokenEntry { tenant: tenant(of), name: "ci".into(), hash, role: role.map(Into::into), until_unix_ms: until };
    (CallerSettings { tokens: vec![entry], ..settings() }, token.expose().to_vec())
}

fn remote(tls: Tls<'_>) -> Arrival<'_> {
    Arrival { peer: "10.1.2.3".parse().unwrap(), local: "10.1.2.4".parse().unwrap(), tls, is_distrusted: false }
}

#[test]
fn a_grant_says_who_asks() {
    let node = Node::new(settings());
    let grant = NewGrant { role: Some("build".into()), run: Some("r1".into()), ..new_grant() };
    for _ in 0..3 {
        let identified = node.ask(&minted(&grant)).unwrap();
        assert_eq!((identified.caller.tenant.as_str(), identified.caller.role.as_deref()), ("acme", Some("build")));
        assert!(node.callers.still_good(&identified));
    }
}

#[test]
fn what_was_verified_once_does_not_outlive_its_end() {
    let node = Node::new(settings());
    let token = minted(&new_grant());
    let identified = node.ask(&token).unwrap();
    node.clock.advance(Duration::from_millis(59_999));
    assert!(node.ask(&token).is_ok() && node.callers.still_good(&identified));
    node.clock.advance(Duration::from_millis(1));
    assert_eq!(node.fault(&token), GrantFault::Expired.into());
    assert!(node.callers.still_good(&identified), "that it has ended is for who holds something open to see");
    // The clock is set back before the grant was issued: what is cached is asked the same as what is not.
    node.clock.step_to_unix_ms(NOW_MS - 31_000);
    assert_eq!(node.fault(&token), GrantFault::Future.into());
}

#[test]
fn a_revocation_counts_for_what_is_cached_and_for_what_is_open() {
    let node = Node::new(settings());
    let by_run = |run: &str| NewGrant { run: Some(run.into()), ..new_grant() };
    let (one, two) = (minted(&by_run("r1")), minted(&by_run("r2")));
    let open = [node.ask(&one).unwrap(), node.ask(&two).unwrap()];
    let mut changes = node.callers.watch();
    changes.mark_unchanged();
    node.revoke(Revoked::Run { tenant: None, run: "r1".into() }, Until::UnixMs(NOW_MS + 900_000));
    assert!(changes.has_changed().unwrap());
    assert_eq!((node.fault(&one), node.ask(&two).is_ok()), (Unproved::Revoked, true));
    assert_eq!(open.each_ref().map(|identified| node.callers.still_good(identified)), [false, true]);
    let Identity::Grant { id, .. } = &open[1].caller.identity else { unreachable!() };
    node.revoke(Revoked::Grant(id.clone()), Until::UnixMs(NOW_MS + 900_000));
    assert_eq!((node.fault(&two), node.callers.still_good(&open[1])), (Unproved::Revoked, false));

    let three = minted(&new_grant());
    assert!(node.ask(&three).is_ok());
    node.revoke(Revoked::Tenant(tenant("acme")), Until::Lifted);
    assert_eq!(node.fault(&three), Unproved::Revoked);
    node.revoke(Revoked::Tenant(tenant("acme")), Until::Now);
    assert!(node.ask(&three).is_ok());
}

#[test]
fn a_revoked_tenant_has_no_static_tokens_either() {
    let (settings, token) = with_token("acme", None, None);
    let node = Node::new(settings);
    let identified = node.ask(&token).unwrap();
    node.revoke(Revoked::Tenant(tenant("acme")), Until::Lifted);
    assert_eq!(node.fault(&token), Unproved::Revoked);
    assert!(!node.callers.still_good(&identified));
}

#[test]
fn a_reload_that_drops_an_issuer_a_key_or_a_tenant_drops_its_grants() {
    type Drop = fn(&mut CallerSettings);
    let dropped: [(&str, Drop, GrantFault); 5] = [
        ("issuer", |settings| settings.issuers.clear(), GrantFault::Issuer),
        ("key", |settings| settings.issuers[0].keys = vec![OTHER_KEY.public()], GrantFault::Signature),
        ("all keys", |settings| settings.issuers[0].keys.clear(), GrantFault::Signature),
        ("tenant", |settings| settings.issuers = vec![issuer("platform", &KEY, &["beta"])], GrantFault::Tenant),
        ("audience", |settings| settings.audience = "another".into(), GrantFault::Audience),
    ];
    for (what, drop, fault) in dropped {
        let node = Node::new(settings());
        let token = minted(&new_grant());
        let identified = node.ask(&token).unwrap();
        let mut changes = node.callers.watch();
        changes.mark_unchanged();
        let mut fresh = settings();
        drop(&mut fresh);
        assert_eq!(node.callers.replace(fresh), []);
        assert_eq!(node.fault(&token), fault.into(), "{what}");
        assert!(changes.has_changed().unwrap());
        if what != "audience" {
            assert!(!node.callers.still_good(&identified), "{what}");
        }
        // And back: it is verified anew.
        node.callers.replace(settings());
        assert!(node.ask(&token).is_ok() && node.callers.still_good(&identified), "{what}");
    }
}

#[test]
fn a_reload_of_something_else_drops_nothing() {
    let node = Node::new(settings());
    let token = minted(&new_grant());
    assert!(node.ask(&token).is_ok());
    let (fresh, _) = with_token("beta", None, None);
    node.callers.replace(fresh);
    // The generation is the same, so that the signature is not checked again.
    let directory = node.callers.directory.load();
    assert!(node.callers.cache.find(TokenHash::of(&token).as_bytes(), directory.generation).is_some());
}

#[test]
fn an_issuer_with_two_keys_signs_with_either() {
    let mut two = settings();
    two.issuers[0].keys.push(OTHER_KEY.public());
    let node = Node::new(two);
    let by = |key: &super::super::SigningKey| new_grant().mint(key, NOW_MS, Duration::from_mins(1)).unwrap().token;
    assert!(node.ask(by(&KEY).expose()).is_ok() && node.ask(by(&OTHER_KEY).expose()).is_ok());
    // Without `kid`, and with one that is the issuer's own business.
    for header in [r#"{"alg":"EdDSA"}"#, r#"{"alg":"EdDSA","kid":"k2"}"#] {
        let claims =
            r#"{"iss":"platform","aud":"tidegate","tenant":"acme","jti":"g1","iat":1764424000,"exp":1764424060}"#;
        assert!(node.ask(sign(&OTHER_KEY, header.as_bytes(), claims.as_bytes()).expose()).is_ok());
    }
}

#[test]
fn what_is_not_clear_is_left_out() {
    let entry = |name: &str, key| issuer(name, key, &["*"]);
    let mut many = entry("many", &KEY);
    many.keys = vec![KEY.public(); 17];
    let (settings_with, _) = with_token("acme", None, None);
    let twice = settings_with.tokens[0].clone();
    let mut settings = settings_with;
    settings.issuers.extend([
        entry("same", &KEY),
        entry("same", &KEY),
        entry("two", &KEY),
        entry("two", &OTHER_KEY),
        many,
    ]);
    settings.tokens.push(TokenEntry { tenant: tenant("beta"), ..twice.clone() });
    let (_, left_out) = Callers::new(settings, Arc::new(Revocations::none(clock())), clock());
    assert_eq!(left_out, [LeftOut::Issuer("two".into()), LeftOut::Issuer("many".into()), LeftOut::Token(twice.hash)]);
}

#[test]
fn a_static_token_is_one_tenant_s_until_it_ends() {
    let (settings, token) = with_token("acme", Some("build"), Some(NOW_MS + 1000));
    let node = Node::new(settings.clone());
    let identified = node.ask(&token).unwrap();
    assert_eq!((identified.caller.tenant.as_str(), identified.caller.role.as_deref()), ("acme", Some("build")));
    assert_eq!(identified.caller.identity, Identity::Token { name: "ci".into() });
    assert_eq!(identified.caller.until_unix_ms, Some(NOW_MS + 1000));
    let mut other = token.clone();
    *other.last_mut().unwrap() ^= 1;
    assert_eq!(node.fault(&other), Unproved::Token);
    assert_eq!(node.fault(b"tgt_"), Unproved::Token);
    assert!(node.callers.still_good(&identified));
    // Another role, another tenant or none: what is open was somebody else's.
    for change in [|entry: &mut TokenEntry| entry.role = None, |entry: &mut TokenEntry| entry.tenant = tenant("beta")] {
        let mut changed = settings.clone();
        change(&mut changed.tokens[0]);
        node.callers.replace(changed);
        assert!(!node.callers.still_good(&identified));
    }
    node.callers.replace(settings);
    assert!(node.callers.still_good(&identified));
    node.clock.advance(Duration::from_secs(1));
    assert_eq!(node.fault(&token), Unproved::TokenExpired);
}

#[test]
fn what_is_no_proof_of_ours_is_not_looked_at() {
    let node = Node::new(settings());
    for odd in [&b""[..], b"sk_live_123", b"Bearer eyJ", b"unused", b"\xff\xfe"] {
        assert_eq!(node.fault(odd), Unproved::Unrecognised);
    }
    let long = [b"eyJ", &[b'a'; 8 * 1024][..]].concat();
    assert_eq!(node.fault(&long), GrantFault::TooLong.into());
    assert_eq!(node.fault(&[b"tgt_", &long[..]].concat()), GrantFault::TooLong.into());
}

#[test]
fn whoever_is_not_known_learns_no_reason() {
    let node = Node::new(settings());
    let foreign = NewGrant { tenant: tenant("gamma"), ..new_grant() };
    let forged = new_grant().mint(&OTHER_KEY, NOW_MS, Duration::from_mins(1)).unwrap();
    for proof in [&minted(&foreign)[..], forged.token.expose(), b"tgt_x", b"junk"] {
        assert_eq!(Refusal::from(node.fault(proof)), Refusal::CallerUnknown);
    }
    let missing = node.callers.identify(Err(Unproved::Missing), &local()).unwrap_err();
    assert_eq!(missing.refusal(), Refusal::CallerUnknown);
}

#[test]
fn no_proof_is_taken_where_others_could_read_it() {
    let node = Node::new(settings());
    let token = minted(&new_grant());
    let ask = |peer: &str, local: &str, tls| {
        let arrival = Arrival { peer: peer.parse().unwrap(), local: local.parse().unwrap(), tls, is_distrusted: false };
        node.callers.identify(Ok(Presented::given(&token)), &arrival).map(|_| ())
    };
    for (peer, local) in [("127.0.0.1", "127.9.9.9"), ("::1", "::1"), ("::ffff:127.0.0.1", "127.0.0.1")] {
        assert_eq!(ask(peer, local, Tls::Absent), Ok(()), "{peer} {local}");
    }
    for (peer, local) in [
        ("10.1.2.3", "127.0.0.1"),
        ("127.0.0.1", "10.1.2.3"),
        ("10.1.2.3", "10.1.2.4"),
        ("::ffff:10.1.2.3", "::1"),
        ("fe80::1", "fe80::2"),
    ] {
        assert_eq!(ask(peer, local, Tls::Absent), Err(Unproved::Plaintext), "{peer} {local}");
        assert_eq!(ask(peer, local, Tls::Anonymous), Ok(()));
    }
    // Not even asked for one: what is asked for is sent.
    let unasked = node.callers.identify(Err(Unproved::Missing), &remote(Tls::Absent)).unwrap_err();
    assert_eq!(unasked.refusal(), Refusal::GrantInPlaintext);
    node.callers.replace(CallerSettings { plaintext: PlaintextGrants::Never, ..settings() });
    assert_eq!(node.fault(&token), Unproved::Plaintext);
}

#[test]
fn a_certificate_is_a_proof_and_no_contradiction() {
    let entry = |of: &str, byte| CertificateEntry {
        tenant: tenant(of),
        name: "runner".into(),
        by: CertificateMatch::Sha256([byte; 32]),
        role: None,
    };
    let with = CallerSettings { certificates: vec![entry("acme", 1), entry("beta", 2)], ..settings() };
    let node = Node::new(with);
    let certificate = |byte| certificate_of(byte, &[]);
    let (acme, beta, nobody) = (certificate(1), certificate(2), certificate(3));
    let alone = |certificate| node.callers.identify(Err(Unproved::Missing), &remote(Tls::Mutual(certificate)));
    let identified = alone(&acme).unwrap();
    assert_eq!(identified.caller.identity, Identity::Certificate { name: "runner".into() });
    assert_eq!(identified.caller.tenant.as_str(), "acme");
    assert_eq!(alone(&nobody).unwrap_err(), Unproved::Certificate);
    assert_eq!(alone(&nobody).unwrap_err().refusal(), Refusal::CallerUnknown);

    let token = minted(&new_grant());
    let with_grant = |certificate| {
        let presented = Ok(Presented::given(&token));
        node.callers.identify(presented, &remote(Tls::Mutual(certificate))).map(|known| known.caller.identity.clone())
    };
    assert!(matches!(with_grant(&acme), Ok(Identity::Grant { .. })), "the grant says more");
    assert!(matches!(with_grant(&nobody), Ok(Identity::Grant { .. })));
    assert_eq!(with_grant(&beta), Err(Unproved::OtherTenant));
    // A proof that does not hold is not made good by a certificate.
    let bad = node.callers.identify(Ok(Presented::given(b"tgt_x")), &remote(Tls::Mutual(&acme)));
    assert_eq!(bad.unwrap_err(), Unproved::Token);
    let odd = node.callers.identify(Err(Unproved::Ambiguous), &remote(Tls::Mutual(&acme)));
    assert_eq!(odd.unwrap_err(), Unproved::Ambiguous);

    assert!(node.callers.still_good(&identified));
    node.callers.replace(CallerSettings { certificates: vec![entry("beta", 1)], ..settings() });
    assert!(!node.callers.still_good(&identified));
}

#[test]
fn a_certificate_is_believed_until_it_ends_and_by_those_who_vouch_now() {
    let entry = CertificateEntry {
        tenant: tenant("acme"),
        name: "runner".into(),
        by: CertificateMatch::Sha256([1; 32]),
        role: None,
    };
    let node = Node::new(CallerSettings { certificates: vec![entry], ..settings() });
    let alone = |certificate| node.callers.identify(Err(Unproved::Missing), &remote(Tls::Mutual(certificate)));
    let ends_soon = PeerCertificate { until_unix_ms: NOW_MS + 60_000, ..certificate_of(1, &[]) };
    let endless = certificate_of(1, &[]);
    let open = alone(&ends_soon).unwrap();
    assert_eq!(open.caller.until_unix_ms, Some(NOW_MS + 60_000), "tunnels end with it");
    node.clock.advance(Duration::from_millis(59_999));
    assert!(alone(&ends_soon).is_ok() && node.callers.still_good(&open));
    node.clock.advance(Duration::from_millis(1));
    assert_eq!(alone(&ends_soon).unwrap_err(), Unproved::CertificateEnded);
    // Nor is a grant taken over what would not be let in now.
    let token = minted(&NewGrant { run: Some("late".into()), ..new_grant() });
    let with_grant = node.callers.identify(Ok(Presented::given(&token)), &remote(Tls::Mutual(&ends_soon)));
    assert_eq!(with_grant.unwrap_err(), Unproved::CertificateEnded);

    let open = alone(&endless).unwrap();
    endless.vouching.end();
    assert_eq!(alone(&endless).unwrap_err(), Unproved::CertificateEnded);
    assert!(!node.callers.still_good(&open));
    assert_eq!(Unproved::CertificateEnded.refusal(), Refusal::CallerUnknown);
}

#[test]
fn a_grant_is_used_up_and_only_by_calls_that_it_is_good_for() {
    let node = Node::new(settings());
    let token = minted(&NewGrant { calls_max: Some(2), sources: vec!["127.0.0.0/8".into()], ..new_grant() });
    let from_elsewhere = remote(Tls::Anonymous);
    for _ in 0..3 {
        let refused = node.callers.identify(Ok(Presented::given(&token)), &from_elsewhere).unwrap_err();
        assert_eq!(refused, GrantFault::Source.into());
    }
    let identified = node.ask(&token).unwrap();
    assert!(node.ask(&token).is_ok());
    assert_eq!(node.fault(&token), GrantFault::UsedUp.into());
    assert!(node.callers.still_good(&identified), "what is open was counted");
    node.callers.sweep();
    assert_eq!(node.fault(&token), GrantFault::UsedUp.into());
}

#[test]
fn forgeries_lock_out_nobody_at_their_source() {
    let node = Node::new(settings());
    let good = minted(&new_grant());
    assert!(node.ask(&good).is_ok());
    let forged = new_grant().mint(&OTHER_KEY, NOW_MS, Duration::from_mins(1)).unwrap().token;
    let over = |peer: &str, proof: &[u8], is_distrusted| {
        let arrival = Arrival { peer: peer.parse().unwrap(), is_distrusted, ..remote(Tls::Anonymous) };
        node.callers.identify(Ok(Presented::given(proof)), &arrival).map(|_| ())
    };
    let from = |peer: &str, proof: &[u8]| over(peer, proof, false);
    let fresh = |run: &str| minted(&NewGrant { run: Some(run.into()), ..new_grant() });
    // Far more than an address has of its own, for as long as one likes.
    for second in 0..5 {
        for _ in 0..1_000 {
            assert_eq!(from("10.0.0.9", forged.expose()), Err(GrantFault::Signature.into()));
        }
        assert_eq!(from("10.0.0.9", &fresh(&format!("r{second}"))), Ok(()));
        node.clock.advance(Duration::from_secs(1));
    }
    // What nobody could send who is to be served at all.
    let refused = std::iter::repeat_with(|| from("10.0.0.9", forged.expose()).unwrap_err());
    let looked_at = refused.take(20_000).take_while(|unproved| *unproved != Unproved::Throttled).count();
    assert_eq!(looked_at, 5_100);
    assert_eq!(Unproved::Throttled.refusal(), Refusal::Overloaded);
    let late = fresh("late");
    assert_eq!(from("10.0.0.9", &late), Err(Unproved::Throttled));
    assert_eq!(from("10.0.0.9", &good), Ok(()), "what is cached needs no check");
    assert_eq!(from("10.0.0.8", &late), Ok(()));
    // Over the connection that a false one came over, nothing is checked any more.
    assert_eq!(over("10.0.0.8", &fresh("later"), true), Err(Unproved::Throttled));
    assert_eq!(over("10.0.0.8", &late, true), Ok(()));
}
