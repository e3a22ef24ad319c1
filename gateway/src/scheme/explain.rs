//! Why a delivery does not verify, for an operator who holds the secret and a captured request.
//!
//! Not on the accept path: what a delivery would have to be for its signature to be right is found by trying. Each
//! hint is a fact: with that one change the delivery verifies.

use std::fmt;

use config::scheme::{Algorithm, Encoding, SchemeDeclaration};
use domain::Secret;

use super::delivery::{ActiveKey, Unverified};
use super::fault::VerifyFault;
use super::key::Key;
use super::presets::Presets;
use super::program::Scheme;
use super::respell;

/// With this one change the delivery verifies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Hint {
    /// At another time.
    Clock { fault: VerifyFault },
    /// With another spelling of the body.
    Body { spelling: &'static str },
    /// Under another URL.
    Url { url: String },
    /// With the secret read otherwise.
    Secret { reading: &'static str },
    /// With another encoding, prefix or hash of the signature.
    Scheme { change: String },
}

impl fmt::Display for Hint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Clock { fault } => write!(
                f,
                "the signature is right, only the clock is not: {fault}; give the time of receipt, or compare clocks"
            ),
            Self::Body { spelling } => write!(
                f,
                "the signature is right for the body {spelling}: something between the provider and here rewrote it"
            ),
            Self::Url { url } => {
                write!(f, "the signature is right for the URL {url}: the configured public URL is another")
            }
            Self::Secret { reading } => write!(f, "the signature is right for the secret {reading}"),
            Self::Scheme { change } => write!(f, "the signature is right {change}: it is another scheme's"),
        }
    }
}

impl Scheme {
    /// What would have to be different for this delivery to verify. Empty where nothing simple helps: then the
    /// secret is another one. Bodies are tried in a dozen spellings, so this is not for the accept path.
    pub fn explain(&self, delivery: &Unverified<'_>, secrets: &[&Secret]) -> Vec<Hint> {
        let keys: Vec<_> = secrets.iter().filter_map(|secret| self.key(secret).ok()).collect();
        let mut hints = Vec::new();
        match self.at_any_time(delivery, &keys) {
            Ok(None) => return hints,
            Ok(Some(fault)) => return vec![Hint::Clock { fault }],
            Err(_) => {}
        }
        let fits = |delivery: &Unverified<'_>| self.at_any_time(delivery, &keys).is_ok();
        for (spelling, body) in respell::spellings(delivery.body) {
            if fits(&Unverified { body: &body, ..*delivery }) {
                hints.push(Hint::Body { spelling });
            }
        }
        for (url, target) in respell::urls(delivery) {
            if fits(&Unverified { url, target: &target, ..*delivery }) {
                let mut text = Vec::new();
                url.write(&target, config::scheme::UrlVariant::AsSeen, b"", &mut |part| text.extend_from_slice(part));
                hints.push(Hint::Url { url: domain::text::Untrusted::new(&text).to_string() });
            }
        }
        // What is a public key here is not tried as the secret of an HMAC.
        let is_public = |secret: &Secret| self.key(secret).is_ok_and(|key| key.public().is_some());
        for secret in secrets.iter().filter(|secret| !is_public(secret)) {
            for (reading, material) in respell::readings(secret) {
                if self.at_any_time(delivery, &[Key::of(material)]).is_ok() {
                    hints.push(Hint::Secret { reading });
                }
            }
        }
        hints.extend(self.other_forms(delivery, secrets));
        hints.dedup();
        hints
    }

    /// Verifies, and says whether that took another clock.
    fn at_any_time(&self, delivery: &Unverified<'_>, keys: &[Key]) -> Result<Option<VerifyFault>, VerifyFault> {
        let active: Vec<_> = keys.iter().enumerate().map(|(index, key)| ActiveKey { index, key }).collect();
        let Err(fault) = self.verify(delivery, &active) else { return Ok(None) };
        let received_unix_ms = match fault {
            VerifyFault::TooOld { by_ms } => delivery.received_unix_ms.saturating_sub(by_ms),
            VerifyFault::InFuture { by_ms } => delivery.received_unix_ms.saturating_add(by_ms),
            VerifyFault::NoActiveKey
            | VerifyFault::Missing { .. }
            | VerifyFault::Duplicate { .. }
            | VerifyFault::Malformed { .. }
            | VerifyFault::Requirement { .. }
            | VerifyFault::BodyRule
            | VerifyFault::Mismatch
            | VerifyFault::BodyDigest
            | VerifyFault::Replayed => return Err(fault),
        };
        self.verify(&Unverified { received_unix_ms, ..*delivery }, &active).map(|_| Some(fault))
    }

    /// The same scheme with one thing about its signature changed.
    fn other_forms(&self, delivery: &Unverified<'_>, secrets: &[&Secret]) -> Vec<Hint> {
        let declared = self.declaration();
        changes(declared)
            .into_iter()
            .filter(|(_, changed)| {
                Self::compile(changed).is_ok_and(|scheme| {
                    let keys: Vec<_> = secrets.iter().filter_map(|secret| scheme.key(secret).ok()).collect();
                    scheme.at_any_time(delivery, &keys).is_ok()
                })
            })
            .map(|(change, _)| Hint::Scheme { change })
            .collect()
    }
}

impl Presets {
    /// Names of the presets under which a delivery verifies at some time: for an operator who does not know which.
    pub fn that_verify(&self, delivery: &Unverified<'_>, secrets: &[&Secret]) -> Vec<&str> {
        let fits = |scheme: &Scheme| {
            let keys: Vec<_> = secrets.iter().filter_map(|secret| scheme.key(secret).ok()).collect();
            scheme.at_any_time(delivery, &keys).is_ok()
        };
        self.iter().filter(|scheme| fits(scheme)).map(|scheme| scheme.name()).collect()
    }
}

fn changes(declared: &SchemeDeclaration) -> Vec<(String, SchemeDeclaration)> {
    let mut changes = Vec::new();
    let mut change = |text: &str, edit: &dyn Fn(&mut SchemeDeclaration)| {
        let mut changed = declared.clone();
        edit(&mut changed);
        if changed != *declared {
            changes.push((text.to_owned(), changed));
        }
    };
    if declared.signature.encoding.is_some() {
        for (encoding, text) in [
            (Encoding::Hex, "in hexadecimal"),
            (Encoding::Base64, "in base64"),
            (Encoding::Base64Nopad, "in base64 without padding"),
            (Encoding::Base64url, "in base64url"),
            (Encoding::Base64urlNopad, "in base64url without padding"),
        ] {
            change(text, &|d| d.signature.encoding = Some(encoding));
        }
        // A public key must not be tried as the secret of an HMAC: a forgery would then be called right.
        let others = if declared.algorithm.is_public() { 0 } else { 3 };
        for (algorithm, text) in [
            (Algorithm::HmacSha1, "as HMAC-SHA1"),
            (Algorithm::HmacSha256, "as HMAC-SHA256"),
            (Algorithm::HmacSha512, "as HMAC-SHA512"),
        ]
        .into_iter()
        .take(others)
        {
            change(text, &|d| d.algorithm = algorithm);
        }
    }
    change("without its prefix", &|d| d.signature.prefix.clear());
    change("with a space behind its prefix", &|d| d.signature.prefix.push(' '));
    change("with the prefix sha256=", &|d| "sha256=".clone_into(&mut d.signature.prefix));
    if !declared.algorithm.is_public() {
        change("with the prefix sha1=, as HMAC-SHA1", &|d| {
            "sha1=".clone_into(&mut d.signature.prefix);
            d.algorithm = Algorithm::HmacSha1;
        });
    }
    if let Some(list) = &declared.signature.list
        && !list.spaces
    {
        change("with spaces in its list", &|d| {
            if let Some(list) = &mut d.signature.list {
                list.spaces = true;
            }
        });
    }
    changes
}

#[cfg(test)]
mod tests {
    use super::super::tests::{Delivery, NOW, PRESETS, key, preset};
    use super::super::{SeenUrl, Unverified};
    use super::*;

    const SECRET: &str = "a secret of thirty-two bytes ...";

    fn explain(name: &str, delivery: &Delivery, secret: &str) -> Vec<String> {
        let secret = Secret::new(secret.as_bytes());
        let unverified = Unverified {
            method: delivery.method.as_bytes(),
            target: &delivery.target,
            url: SeenUrl::split(&delivery.origin).unwrap().0,
            headers: &delivery.headers,
            body: &delivery.body,
            received_unix_ms: NOW,
        };
        preset(name).explain(&unverified, &[&secret]).iter().map(ToString::to_string).collect()
    }

    fn signed(name: &str, body: &str, at: u64) -> Delivery {
        let unsigned = Delivery::new("https://h.example/x?a=1", &[], body.as_bytes());
        Delivery::signed(preset(name), &key(preset(name), SECRET), unsigned, at)
    }

    #[track_caller]
    fn only(hints: &[String], word: &str) {
        assert!(hints.len() == 1 && hints[0].contains(word), "{word}: {hints:#?}");
    }

    #[test]
    fn nothing_is_said_of_what_verifies_or_of_a_wrong_secret() {
        let delivery = signed("github", r#"{"a": "ü"}"#, NOW);
        assert_eq!(explain("github", &delivery, SECRET), Vec::<String>::new());
        assert_eq!(explain("github", &delivery, "another secret"), Vec::<String>::new());
    }

    #[test]
    fn rewritten_bodies_are_recognised() {
        for (sent, arrived, word) in [
            ("{\"a\":1}\n", "{\"a\":1}", "with a line ending"),
            ("{\"a\":1}", "{\"a\":1}\r\n", "without its line ending"),
            ("a\r\nb\r\n", "a\nb\n", "with CRLF"),
            ("a\nb\n", "a\r\nb\r\n", "with LF"),
            (r#"{"a":[1,"x y"]}"#, "{\n  \"a\": [1, \"x y\"]\n}", "without white space"),
            (r#"{"a": [1, 2]}"#, r#"{"a":[1,2]}"#, "a space after each"),
            (r#"{"a":"\u20ac\/"}"#, r#"{"a":"€\/"}"#, "escaped as \\u"),
            (r#"{"a":"€"}"#, r#"{"a":"\u20ac"}"#, "in UTF-8"),
            (r#"{"a":"https:\/\/x"}"#, r#"{"a":"https://x"}"#, "slashes escaped"),
            ("{\"a\":1}", "\u{feff}{\"a\":1}", "byte-order mark"),
        ] {
            let mut delivery = signed("github", sent, NOW);
            delivery.body = arrived.as_bytes().to_vec();
            only(&explain("github", &delivery, SECRET), word);
        }
    }

    #[test]
    fn clocks_urls_secrets_and_forms_are_recognised() {
        only(&explain("slack", &signed("slack", "{}", NOW - 1_000_000), SECRET), "only the clock");
        only(&explain("slack", &signed("slack", "{}", NOW + 1_000_000), SECRET), "only the clock");

        let mut delivery = signed("square", "{}", NOW);
        delivery.origin = "http://h.example".to_owned();
        only(&explain("square", &delivery, SECRET), "the URL https://h.example/x?a=1");
        let mut delivery = signed("square", "{}", NOW);
        delivery.target = b"/x/?a=1".to_vec();
        only(&explain("square", &delivery, SECRET), "the URL https://h.example/x?a=1");

        let delivery = signed("github", "{}", NOW);
        only(&explain("github", &delivery, &format!(" {SECRET} ")), "without the white space around it");
        let encoded = data_encoding::BASE64.encode(SECRET.as_bytes());
        only(&explain("github", &delivery, &encoded), "decoded from base64");
        only(&explain("github", &delivery, &format!("whsec_{encoded}")), "decoded from base64");

        let mut delivery = signed("github", "{}", NOW);
        let value = String::from_utf8(delivery.header("x-hub-signature-256").clone()).unwrap();
        *delivery.header("x-hub-signature-256") = value.replace('=', "= ").into_bytes();
        only(&explain("github", &delivery, SECRET), "a space behind its prefix");
        *delivery.header("x-hub-signature-256") = value.replace("sha256=", "").into_bytes();
        only(&explain("github", &delivery, SECRET), "without its prefix");
        let digest = data_encoding::HEXLOWER.decode(value.trim_start_matches("sha256=").as_bytes()).unwrap();
        *delivery.header("x-hub-signature-256") =
            format!("sha256={}", data_encoding::BASE64.encode(&digest)).into_bytes();
        only(&explain("github", &delivery, SECRET), "in base64");
    }

    #[test]
    fn the_right_preset_is_found() {
        let delivery = signed("zoom", "{}", NOW - 1_000_000);
        let secret = Secret::new(SECRET.as_bytes());
        let unverified = Unverified {
            method: b"POST",
            target: &delivery.target,
            url: SeenUrl::split(&delivery.origin).unwrap().0,
            headers: &delivery.headers,
            body: &delivery.body,
            received_unix_ms: NOW,
        };
        assert_eq!(PRESETS.that_verify(&unverified, &[&secret]), ["zoom"]);
    }
}
