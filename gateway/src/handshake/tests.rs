use std::sync::LazyLock;

use config::scheme::{Handshake as Declared, HandshakeKind, SchemeDeclaration};
use domain::Secret;
use proptest::prelude::*;

use super::*;
use crate::scheme::{ActiveKey, Key, Presets, Scheme, SeenUrl, Unsigned, Unverified, VerifyFault};

static PRESETS: LazyLock<Presets> = LazyLock::new(|| Presets::load().unwrap());
const NOW_MS: u64 = 1_790_000_000_000;
const SECRET: &str = "tidegate-known-answer-secret-0001";
const TOKEN: &[u8] = b"verify-me-7b3f";

fn key(scheme: &Scheme) -> Key {
    scheme.key(&Secret::new(SECRET.as_bytes())).unwrap()
}

struct Ask {
    scheme: &'static str,
    method: &'static str,
    target: &'static str,
    headers: Vec<(&'static str, &'static str)>,
    body: &'static str,
}

fn ask(scheme: &'static str, method: &'static str, target: &'static str) -> Ask {
    Ask { scheme, method, target, headers: Vec::new(), body: "" }
}

impl Ask {
    fn header(mut self, name: &'static str, value: &'static str) -> Self {
        self.headers.push((name, value));
        self
    }

    fn body(self, body: &'static str) -> Self {
        Self { body, ..self }
    }

    fn request(&self) -> Unverified<'_> {
        Unverified {
            method: self.method.as_bytes(),
            target: self.target.as_bytes(),
            url: SeenUrl { scheme: "https", host: "hooks.example.com", port: None, base_path: "" },
            headers: &self.headers,
            body: self.body.as_bytes(),
            received_unix_ms: NOW_MS,
        }
    }

    /// None for a delivery.
    fn outcome(&self) -> Option<Result<Reply, HandshakeFault>> {
        self.outcome_with(Some(TOKEN))
    }

    fn outcome_with(&self, token: Option<&[u8]>) -> Option<Result<Reply, HandshakeFault>> {
        let scheme = PRESETS.get(self.scheme).unwrap();
        let request = self.request();
        let handshake = scheme.handshake(&request)?;
        let key = scheme.key(&Secret::new(SECRET.as_bytes())).ok();
        let token = token.map(Secret::new);
        let asked = Asked {
            request: &request,
            key: key.as_ref(),
            token: token.as_ref(),
            account: Some("public_key"),
            per_minute: Some(120),
        };
        Some(handshake.answer(&asked))
    }

    fn reply(&self) -> Reply {
        self.outcome().expect("a handshake").expect("an answer")
    }

    fn text(&self) -> String {
        String::from_utf8(self.reply().body.to_vec()).unwrap()
    }
}

/// The digests were made with Python's `hmac`, not with what is tested here.
#[test]
fn each_provider_hears_what_it_documents() {
    let slack =
        r#"{"token":"x","challenge":"3eZbrw1aBm2rZgRNFdxV2595E9CY3gmdALWMmHkvFXO7tYXAYM8P","type":"url_verification"}"#;
    let text = |ask: Ask| (ask.reply().content_type, ask.text());
    let plain = |text: &str| (Some("text/plain; charset=utf-8"), text.to_owned());
    let json = |text: &str| (Some("application/json"), text.to_owned());
    assert_eq!(
        text(ask("slack", "POST", "/hooks/wh_1").body(slack)),
        plain("3eZbrw1aBm2rZgRNFdxV2595E9CY3gmdALWMmHkvFXO7tYXAYM8P")
    );
    let meta = "/hooks/wh_1?hub.mode=subscribe&hub.challenge=1158201444&hub.verify_token=verify-me-7b3f";
    assert_eq!(text(ask("whatsapp", "GET", meta)), plain("1158201444"));
    assert_eq!(text(ask("dropbox", "GET", "/h?challenge=abc-123_X")), plain("abc-123_X"));
    assert_eq!(text(ask("nylas", "GET", "/h?challenge=bc609b38-c81f-47fb-a275-1d9bd61be968")).1.len(), 36);
    let graph =
        "/h?validationToken=Validation%3a+Testing+client+application+reachability+for+subscription+Request-Id%3a+98fd";
    assert_eq!(
        text(ask("microsoft-graph", "POST", graph)),
        plain("Validation: Testing client application reachability for subscription Request-Id: 98fd")
    );
    let okta = ask("okta", "GET", "/h").header("X-Okta-Verification-Challenge", "Cxn9a7eHaXUmU4C6aOFVtg");
    assert_eq!(text(okta), json(r#"{"verification":"Cxn9a7eHaXUmU4C6aOFVtg"}"#));
    let twitch = ask("twitch", "POST", "/h")
        .header("Twitch-Eventsub-Message-Type", "webhook_callback_verification")
        .body(r#"{"challenge":"pogchamp-kappa-360noscope-vohiyo","subscription":{}}"#);
    assert_eq!(text(twitch), plain("pogchamp-kappa-360noscope-vohiyo"));
    let zoom = r#"{"payload":{"plainToken":"qgg8vlvZRS6UYooatFL8Aw"},"event_ts":1654503849680,"event":"endpoint.url_validation"}"#;
    assert_eq!(
        text(ask("zoom", "POST", "/h").body(zoom)),
        json(concat!(
            r#"{"encryptedToken":"2be18d76685099342b28dfbd2f7322df2bd05e99d2c6d5e95bd38e61c3f0e6e1","#,
            r#""plainToken":"qgg8vlvZRS6UYooatFL8Aw"}"#
        ))
    );
    assert_eq!(
        text(ask("x", "GET", "/h?crc_token=MDgyODFkYzU&nonce=7")),
        json(r#"{"response_token":"sha256=tUYBKz8vDJB/g6u4uG9JPbsdIguZo1pjMN6rrAozNII="}"#)
    );
    assert_eq!(
        text(ask("linkedin", "GET", "/h?challengeCode=890e4665-4dfe-4ab1-b689-ed553bceeed0")),
        json(concat!(
            r#"{"challengeCode":"890e4665-4dfe-4ab1-b689-ed553bceeed0","#,
            r#""challengeResponse":"2d061bbd17eff210a1355a54609b3574057ac704c0077ee9e127022b8596c211"}"#
        ))
    );
}

#[test]
fn probes_get_exactly_their_status_and_nothing_else() {
    let xero = r#"{"events":[],"firstEventSequence":0,"lastEventSequence":0,"entropy":"S0m3r4Nd0mt3xt"}"#;
    for ask in [
        ask("trello", "HEAD", "/h"),
        ask("intercom", "HEAD", "/h"),
        ask("mandrill", "HEAD", "/h"),
        ask("xero", "POST", "/h").body(xero),
        ask("woocommerce", "POST", "/h").body("webhook_id=4711"),
        ask("figma", "POST", "/h").body(r#"{"event_type":"PING","passcode":"x"}"#),
    ] {
        let reply = ask.reply();
        assert_eq!((reply.status, reply.body.len(), reply.content_type), (200, 0, None), "{}", ask.scheme);
    }
}

#[test]
fn what_is_no_handshake_is_a_delivery() {
    let large = format!(r#"{{"type":"url_verification","challenge":"x","pad":"{}"}}"#, "x".repeat(16 << 10));
    for ask in [
        ask("slack", "POST", "/h").body(r#"{"type":"event_callback","challenge":"x"}"#),
        ask("slack", "POST", "/h").body(r#"{"type":"url_verification","type":"x","challenge":"x"}"#),
        ask("slack", "POST", "/h").body(r#"{"event":{"type":"url_verification"},"type":"event_callback"}"#),
        ask("slack", "POST", "/h").body(large.leak()),
        ask("meta", "GET", "/h?hub.challenge=1&hub.verify_token=verify-me-7b3f"),
        ask("meta", "POST", "/h?hub.mode=subscribe&hub.challenge=1&hub.verify_token=verify-me-7b3f"),
        ask("x", "GET", "/h?crc_token=a&crc_token=b"),
        ask("woocommerce", "POST", "/h").body("webhook_id=1&x=2"),
        ask("github", "GET", "/h"),
    ] {
        assert!(ask.outcome().is_none(), "{} {} {}", ask.scheme, ask.target, ask.body);
    }
}

#[test]
fn challenges_are_short_and_of_their_alphabet() {
    let long = format!("/h?challenge={}", "a".repeat(129));
    for ask in [
        ask("dropbox", "GET", "/h?challenge=%3Cscript%3E"),
        ask("dropbox", "GET", "/h?challenge="),
        ask("dropbox", "GET", "/h?challenge=a%0d%0aSet-Cookie:x"),
        ask("dropbox", "GET", long.leak()),
        ask("microsoft-graph", "POST", "/h?validationToken=%3Cb%3E"),
        ask("x", "GET", "/h?crc_token=%7B%22a%22%3A1%7D"),
        ask("x", "GET", "/h?crc_token=v0%3A1%3Aa"),
        ask("linkedin", "GET", "/h?challengeCode=ghij"),
        ask("zoom", "POST", "/h").body(r#"{"event":"endpoint.url_validation","payload":{"plainToken":"v0:1:a"}}"#),
        ask("zoom", "POST", "/h").body(r#"{"event":"endpoint.url_validation"}"#),
    ] {
        assert_eq!(ask.outcome(), Some(Err(HandshakeFault::Challenge)), "{} {}", ask.scheme, ask.target);
    }
}

#[test]
fn a_token_is_the_endpoints_or_there_is_no_answer() {
    let with = |token: &str| format!("/h?hub.mode=subscribe&hub.challenge=1{token}").leak();
    for token in ["", "&hub.verify_token=", "&hub.verify_token=verify-me", "&hub.verify_token=a&hub.verify_token=a"] {
        assert_eq!(ask("meta", "GET", with(token)).outcome(), Some(Err(HandshakeFault::Token)), "{token}");
    }
    let right = ask("meta", "GET", with("&hub.verify_token=verify-me-7b3f"));
    assert_eq!(right.outcome_with(None), Some(Err(HandshakeFault::NoToken)));
    // The secret of the deliveries is no token.
    let secret = ask("meta", "GET", with("&hub.verify_token=tidegate-known-answer-secret-0001"));
    assert_eq!(secret.outcome(), Some(Err(HandshakeFault::Token)));
}

fn declared(handshake: &str) -> Result<std::sync::Arc<Scheme>, Vec<String>> {
    let text = format!(
        "name = \"own\"\nalgorithm = \"hmac-sha256\"\nsignature = {{ header = \"X-Sig\", encoding = \"hex\" }}\n{handshake}"
    );
    let declaration: SchemeDeclaration = toml::from_str(&text).unwrap();
    Scheme::compile(&declaration).map_err(|faults| faults.into_iter().map(|fault| fault.key).collect())
}

#[test]
fn what_makes_no_sense_is_said_at_its_key() {
    let fault = |handshake: &str| {
        declared(&format!("content = \"{{body}}\"\n[[handshake]]\n{handshake}")).map(drop).unwrap_err()
    };
    assert_eq!(fault("kind = \"fixed\"\nmethod = \"POST\""), ["handshake[0].when"]);
    assert_eq!(
        fault("kind = \"echo\"\nmethod = \"GET\"\nreply = { text = \"{challenge}\" }"),
        ["handshake[0].challenge"]
    );
    let echo = "kind = \"echo\"\nmethod = \"GET\"\nchallenge = { from = \"query:c\" }\n";
    assert!(
        declared(&format!("content = \"{{body}}\"\n[[handshake]]\n{echo}reply = {{ text = \"{{challenge}}\" }}"))
            .is_ok()
    );
    assert_eq!(fault(echo), ["handshake[0].reply"]);
    assert_eq!(fault(&format!("{echo}reply = {{ text = \"{{digest}}{{challenge}}\" }}")), ["handshake[0].reply"]);
    assert_eq!(
        fault(&format!("{echo}reply = {{ text = \"{{challenge\" }}")),
        ["handshake[0].reply.text", "handshake[0].reply"]
    );
    assert_eq!(
        fault(&format!("{echo}reply = {{ text = \"{{challenge}}\", status = 302, refused = 200 }}")),
        ["handshake[0].reply.status", "handshake[0].reply.refused"]
    );
    assert_eq!(fault("kind = \"origin\"\nmethod = \"OPTIONS\""), ["handshake[0].origins"]);
    assert_eq!(
        fault("kind = \"fixed\"\nmethod = \"GET\"\nreply = { document = \"{\" }"),
        ["handshake[0].reply.document"]
    );
    let digest = "kind = \"digest\"\nmethod = \"GET\"\nreply = { text = \"{digest}\" }\n";
    assert_eq!(
        fault(&format!(
            "{digest}challenge = {{ from = \"query:c\", alphabet = \"text\" }}\ndigest = {{ hash = \"sha256\", encoding = \"hex\" }}"
        )),
        ["handshake[0].challenge.alphabet"]
    );
    assert_eq!(
        fault(&format!(
            "{digest}challenge = {{ from = \"query:c\" }}\ndigest = {{ hash = \"sha256\", encoding = \"hex\", content = \"{{url}}\" }}"
        )),
        ["handshake[0].digest.content"]
    );
}

/// A content of a timestamp alone is one that anybody could have signed.
#[test]
fn a_digest_that_could_be_a_signature_does_not_compile() {
    let with = |content: &str, challenge: &str| {
        declared(&format!(
            "content = \"{content}\"\ntimestamp = {{ from = \"header:T\", format = \"seconds\", old = \"5m\", future = \"1m\" }}\n\
             [[handshake]]\nkind = \"digest\"\nmethod = \"GET\"\nchallenge = {{ from = \"query:c\"{challenge} }}\n\
             digest = {{ hash = \"sha256\", encoding = \"hex\" }}\nreply = {{ text = \"{{digest}}\" }}"
        ))
        .map(drop)
    };
    assert_eq!(with("v0.{timestamp}", ""), Err(vec!["handshake[0].challenge".into()]));
    assert_eq!(with("v0:{timestamp}", ""), Ok(()));
    assert_eq!(with("v0.{timestamp}.{body}", ""), Ok(()));
    assert_eq!(with("v0.{timestamp}", ", alphabet = \"digits\""), Ok(()));
}

fn keyed() -> Vec<(&'static Scheme, &'static Declared)> {
    let each = PRESETS.iter().flat_map(|scheme| scheme.declaration().handshakes.iter().map(move |h| (&**scheme, h)));
    each.filter(|(_, handshake)| handshake.kind == HandshakeKind::Digest).collect()
}

#[test]
fn the_endpoint_is_no_oracle() {
    assert!(keyed().len() >= 3);
    for challenge in ["a", "0123456789abcdef", "v0", "hmacsha256=x", "1790000000.x", "e30", "=="] {
        for (scheme, _) in keyed() {
            assert_no_oracle(scheme, challenge);
        }
    }
}

/// Whatever a digest can be had of is no content of a delivery that verifies: not with the body that makes the content so.
fn assert_no_oracle(scheme: &Scheme, challenge: &str) {
    let key = key(scheme);
    let url = SeenUrl { scheme: "https", host: "hooks.example.com", port: None, base_path: "" };
    for body in [challenge, ""].into_iter().chain(challenge.split_once(['.', '=']).map(|(_, rest)| rest)) {
        let unsigned = Unsigned { method: "POST", target: "/h", url, headers: &[], body: body.as_bytes() };
        // Signed with the key itself, which is more than any answer gives.
        let Ok(signed) = scheme.sign(&unsigned, &key, NOW_MS) else { continue };
        let delivery = Unverified {
            method: b"POST",
            target: b"/h",
            url,
            headers: &signed.headers,
            body: body.as_bytes(),
            received_unix_ms: NOW_MS,
        };
        let verdict = scheme.verify(&delivery, &[ActiveKey { index: 0, key: &key }]);
        let content = scheme.declaration().content.replace("{body}", body);
        let question = scheme.handshakes().iter().find_map(Handshake::keyed_question).unwrap();
        if !content.is_empty() && !content.contains('{') && question.may_be(content.as_bytes()) {
            assert_eq!(verdict, Err(VerifyFault::BodyRule), "{} {content}", scheme.name());
        } else {
            assert!(verdict.is_ok(), "{} {content}", scheme.name());
        }
    }
}

/// Braintree's answer is a signature in the form of its deliveries: a delivery of the challenge alone is none.
#[test]
fn an_answer_of_braintree_proves_no_delivery() {
    let challenge = "20f9f8ed05f77439fe955c977e4c8a53";
    let answer = ask("braintree", "GET", "/h?bt_challenge=20f9f8ed05f77439fe955c977e4c8a53").text();
    assert!(answer.starts_with("public_key|") && answer.len() == 11 + 40, "{answer}");
    let body: &'static str = format!("bt_signature={}&bt_payload={challenge}", answer.replace('|', "%7C")).leak();
    let forged = ask("braintree", "POST", "/h").body(body);
    let scheme = PRESETS.get("braintree").unwrap();
    let key = key(scheme);
    let verdict = scheme.verify(&forged.request(), &[ActiveKey { index: 0, key: &key }]);
    assert_eq!(verdict, Err(VerifyFault::BodyRule));
    let long = ask("braintree", "GET", format!("/h?bt_challenge={}", "a".repeat(65)).leak());
    assert_eq!(long.outcome(), Some(Err(HandshakeFault::Challenge)));
}

#[test]
fn pings_of_discord_and_the_challenge_of_monday() {
    let ping = ask("discord", "POST", "/h").body(r#"{"id":"1","token":"t","type":1,"version":1}"#);
    assert_eq!((ping.reply().status, ping.text().as_str()), (200, r#"{"type":1}"#));
    let event = ask("discord", "POST", "/h").body(r#"{"version":1,"type":1,"event":{"type":"X"}}"#);
    assert!(event.outcome().is_none(), "an event of the same number");
    assert_eq!(ask("discord", "POST", "/h").body(r#"{"version":1,"type":0}"#).reply().status, 204);
    let monday = ask("monday", "POST", "/h").body(r#"{"challenge":"3eZbrw1aBm2rZgRNFdxV"}"#);
    assert_eq!(monday.text(), r#"{"challenge":"3eZbrw1aBm2rZgRNFdxV"}"#);
    assert!(ask("monday", "POST", "/h").body(r#"{"challenge":"x","event":{}}"#).outcome().is_none());
}

proptest! {
    #[test]
    fn no_challenge_is_a_content(challenge in "[A-Za-z0-9._~+/=-]{1,40}") {
        for (scheme, _) in keyed() {
            assert_no_oracle(scheme, &challenge);
        }
    }

    /// Whatever is asked, the answer is text or JSON without markup, or none.
    #[test]
    fn an_echo_is_never_a_page(challenge in "\\PC{0,60}") {
        let encoded = challenge.bytes().fold(String::new(), |text, byte| text + &format!("%{byte:02x}"));
        for (scheme, name) in [("dropbox", "challenge"), ("x", "crc_token")] {
            let target: &'static str = format!("/h?{name}={encoded}").leak();
            if let Some(Ok(reply)) = ask(scheme, "GET", target).outcome() {
                prop_assert!(!reply.body.contains(&b'<'));
            }
        }
        let target: &'static str = format!("/h?validationToken={encoded}").leak();
        if let Some(Ok(reply)) = ask("microsoft-graph", "POST", target).outcome() {
            prop_assert!(!reply.body.contains(&b'<') && reply.content_type == Some("text/plain; charset=utf-8"));
        }
    }
}
