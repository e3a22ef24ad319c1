//! Signatures that a public key checks.

use config::scheme::Algorithm;
use domain::Secret;

use super::super::{KeyFault, Scheme};
use super::{
    Delivery, ED25519, ED25519_PUBLIC, NOW, P256, P256_PUBLIC, RSA, RSA_PUBLIC, key, label, other_public_key, preset,
    private_key,
};

const ALL: [(Algorithm, &str, &str, &str); 3] = [
    (Algorithm::Ed25519, "ed25519", ED25519, ED25519_PUBLIC),
    (Algorithm::EcdsaP256Sha256, "ecdsa-p256-sha256", P256, P256_PUBLIC),
    (Algorithm::RsaPkcs1Sha256, "rsa-pkcs1-sha256", RSA, RSA_PUBLIC),
];

fn scheme(algorithm: &str) -> std::sync::Arc<Scheme> {
    let toml = format!(
        "name = \"x\"\nalgorithm = \"{algorithm}\"\nsignature = {{ header = \"X-Sig\", encoding = \"base64\" }}\ncontent = \"{{method}}|{{body}}\""
    );
    Scheme::compile(&toml::from_str(&toml).unwrap()).unwrap()
}

fn signed(scheme: &Scheme, private: &str) -> Delivery {
    let unsigned = Delivery::new("https://h.example/x", &[], br#"{"a":1}"#);
    Delivery::signed(scheme, &key(scheme, private), unsigned, NOW)
}

fn der(pem: &str) -> Vec<u8> {
    let text: String = pem.lines().filter(|line| !line.starts_with('-')).collect();
    data_encoding::BASE64.decode(text.as_bytes()).unwrap()
}

#[test]
fn what_the_private_key_signs_the_public_one_verifies_in_every_form_that_consoles_show() {
    for (algorithm, name, private, public) in ALL {
        let scheme = scheme(name);
        let delivery = signed(&scheme, private);
        let bare = &der(public)[if algorithm == Algorithm::Ed25519 { 12 } else { 26 }..];
        let mut forms =
            vec![public.to_owned(), format!("\n{}\r\n", public.trim()), data_encoding::BASE64.encode(&der(public))];
        if algorithm != Algorithm::RsaPkcs1Sha256 {
            forms.push(data_encoding::HEXLOWER.encode(bare));
            forms.push(data_encoding::HEXUPPER.encode(bare));
            forms.push(data_encoding::BASE64.encode(bare));
        }
        let b64 = |bytes: &[u8]| data_encoding::BASE64URL_NOPAD.encode(bytes);
        if algorithm == Algorithm::Ed25519 {
            forms.push(format!(r#"{{"kty":"OKP","crv":"Ed25519","x":"{}"}}"#, b64(bare)));
        }
        if algorithm == Algorithm::EcdsaP256Sha256 {
            let (x, y) = (b64(&bare[1..33]), b64(&bare[33..]));
            forms.push(format!(r#"{{"kty":"EC","crv":"P-256","x":"{x}","y":"{y}","use":"sig"}}"#));
        }
        for form in forms {
            let key = key(&scheme, &form);
            assert!(delivery.judge(&scheme, &[&key], NOW).is_ok(), "{name} {form}");
            let mut changed = delivery.clone();
            changed.body[0] ^= 1;
            assert_eq!(label(&changed.judge(&scheme, &[&key], NOW)), "mismatch", "{name}");
        }
        let other = key(&scheme, &other_public_key(algorithm));
        assert_eq!(label(&delivery.judge(&scheme, &[&other], NOW)), "mismatch", "{name}");
        assert_eq!(delivery.judge(&scheme, &[&other, &key(&scheme, public)], NOW).unwrap().key_index, 1, "{name}");
    }
}

#[test]
fn a_key_of_another_kind_is_no_key() {
    for (_, name, ..) in ALL {
        for (_, other, private, public) in ALL.into_iter().filter(|(_, other, ..)| *other != name) {
            for text in [private, public] {
                let fault = scheme(name).key(&Secret::new(text.as_bytes())).unwrap_err();
                assert!(matches!(fault, KeyFault::NoPublicKey(_)), "{name} {other}");
            }
        }
        for text in ["", "a secret of thirty-two bytes ...", "00", "AAAA", "{}", "-----BEGIN PUBLIC KEY-----"] {
            assert!(scheme(name).key(&Secret::new(text.as_bytes())).is_err(), "{name} {text}");
        }
    }
}

#[test]
fn keys_with_which_anybody_can_sign_are_refused() {
    let weak = |name: &str, text: &str| scheme(name).key(&Secret::new(text.as_bytes()));
    assert_eq!(weak("ed25519", &"00".repeat(32)), Err(KeyFault::WeakKey));
    assert_eq!(weak("ed25519", &format!("01{}", "00".repeat(31))), Err(KeyFault::WeakKey));
    // 1024 bits can be factored.
    assert_eq!(weak("rsa-pkcs1-sha256", include_str!("keys/rsa1024.pub.pem")), Err(KeyFault::WeakKey));
    let n = data_encoding::BASE64URL_NOPAD.encode(&[0xff; 256]);
    let one = format!(r#"{{"kty":"RSA","n":"{n}","e":"AQ"}}"#);
    assert_eq!(weak("rsa-pkcs1-sha256", &one), Err(KeyFault::WeakKey));
}

#[test]
fn signing_needs_the_private_key_and_an_endpoint_does_not() {
    for (_, name, private, public) in ALL {
        let scheme = scheme(name);
        let unsigned = super::Unsigned {
            method: "POST",
            target: "/",
            url: super::SeenUrl::split("https://h.example/").unwrap().0,
            headers: &[],
            body: b"x",
        };
        let fault = scheme.sign(&unsigned, &key(&scheme, public), NOW).unwrap_err();
        assert!(fault.to_string().contains("private key"), "{fault}");
        assert!(scheme.key_advice(&Secret::new(private.as_bytes())).is_some_and(|advice| advice.contains("private")));
        assert_eq!(scheme.key_advice(&Secret::new(public.as_bytes())), None);
        assert!(!format!("{:?}", key(&scheme, private)).contains("MC4"));
    }
}

#[test]
fn both_kinds_of_signature_stand_in_one_list() {
    let scheme = preset("standard-webhooks");
    let shared = key(scheme, "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=");
    let private = key(scheme, &format!("whsk_{ED25519}"));
    let public = key(scheme, &format!("whpk_{ED25519_PUBLIC}"));
    let unsigned = || Delivery::new("https://h.example/x", &[("webhook-id", "msg_1")], b"{}");
    let mut by_secret = Delivery::signed(scheme, &shared, unsigned(), NOW);
    let mut by_key = Delivery::signed(scheme, &private, unsigned(), NOW);
    let v1 = by_secret.header("webhook-signature").clone();
    let v1a = by_key.header("webhook-signature").clone();
    assert!(v1.starts_with(b"v1,") && v1a.starts_with(b"v1a,"));
    assert!(by_key.judge(scheme, &[&public], NOW).is_ok());
    // One of a kind does for the other: neither does alone.
    assert_eq!(label(&by_key.judge(scheme, &[&shared], NOW)), "missing");
    assert_eq!(label(&by_secret.judge(scheme, &[&public], NOW)), "missing");
    let mut both = by_key.clone();
    *both.header("webhook-signature") = [&v1a[..], b" ", &v1].concat();
    for keys in [&[&shared][..], &[&public], &[&public, &shared]] {
        assert!(both.judge(scheme, keys, NOW).is_ok());
    }
    // A signature under the other one's name.
    *both.header("webhook-signature") = [b"v1,", &v1a[4..], b" v1a,", &v1[3..]].concat();
    assert!(both.judge(scheme, &[&public, &shared], NOW).is_err());
    assert_eq!(label(&by_key.judge(scheme, &[&public], NOW + 300_001)), "too-old");
}

#[test]
fn the_private_form_of_standard_webhooks_signs() {
    let scheme = preset("standard-webhooks");
    // The pair of the svix library's tests.
    let private =
        key(scheme, "whsk_6Xb/dCcHpPea21PS1N9VY/NZW723CEc77N4rJCubMbfVKIDij2HKpMKkioLlX0dRqSKJp4AJ6p9lMicMFs6Kvg==");
    let public = key(scheme, "whpk_1SiA4o9hyqTCpIqC5V9HUakiiaeACeqfZTInDBbOir4=");
    let unsigned = Delivery::new(
        "https://h.example/x",
        &[("webhook-id", "msg_p5jXN8AQM9LWM0D4loKWxJek")],
        br#"{"test": 2432232314}"#,
    );
    let mut delivery = Delivery::signed(scheme, &private, unsigned, 1_614_265_330_000);
    let expected = b"v1a,hnO3f9T8Ytu9HwrXslvumlUpqtNVqkhqw/enGzPCXe5BdqzCInXqYXFymVJaA7AZdpXwVLPo3mNl8EM+m7TBAg==";
    assert_eq!(delivery.header("webhook-signature").as_slice(), expected);
    assert!(delivery.judge(scheme, &[&public], 1_614_265_330_000).is_ok());
}

#[test]
fn a_forger_does_not_choose_how_many_signatures_are_checked() {
    let scheme = preset("standard-webhooks");
    let public = key(scheme, &format!("whpk_{ED25519_PUBLIC}"));
    let private = key(scheme, &format!("whsk_{ED25519}"));
    let unsigned = Delivery::new("https://h.example/x", &[("webhook-id", "msg_1")], b"{}");
    let mut delivery = Delivery::signed(scheme, &private, unsigned, NOW);
    let one = delivery.header("webhook-signature").clone();
    let wrong = format!("v1a,{} ", data_encoding::BASE64.encode(&[1; 64]));
    *delivery.header("webhook-signature") = [wrong.repeat(7).as_bytes(), &one].concat();
    assert!(delivery.judge(scheme, &[&public], NOW).is_ok());
    *delivery.header("webhook-signature") = [wrong.repeat(8).as_bytes(), &one].concat();
    assert_eq!(label(&delivery.judge(scheme, &[&public], NOW)), "malformed");
}

#[test]
fn a_published_key_needs_no_secret() {
    let scheme = preset("wise-sandbox");
    let answer = &scheme.declaration().known_answers[0];
    let headers: Vec<_> = answer.headers.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    let delivery = Delivery::new("https://h.example/x", &headers, answer.body.as_bytes());
    let verified = delivery.judge(scheme, &[], NOW).unwrap();
    assert_eq!(verified.key_index, super::super::PUBLISHED);
    assert_eq!(label(&delivery.judge(preset("wise"), &[], NOW)), "no-active-key");
    let faults = |key: &str| {
        let toml = format!(
            "name = \"x\"\nalgorithm = \"ed25519\"\nkey = {{ published = [{key:?}] }}\nsignature = {{ header = \"X\", encoding = \"hex\" }}\ncontent = \"{{body}}\""
        );
        Scheme::compile(&toml::from_str(&toml).unwrap()).unwrap_err()[0].clone()
    };
    assert_eq!(faults("nothing").key, "key.published[0]");
    assert!(faults(private_key(Algorithm::Ed25519)).message.contains("nobody publishes"));
}
