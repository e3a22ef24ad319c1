//! For every preset: what it signs it verifies, and nothing that differs in one byte.

use config::scheme::{Algorithm, Encoding, ListRule, SchemeDeclaration, ValueSource};
use proptest::prelude::*;

use super::super::{Key, Scheme, form};
use super::{Delivery, NOW, PRESETS, key, label};

/// A secret that suits a row.
pub(super) fn secret(row: &SchemeDeclaration) -> String {
    use config::scheme::KeyDecode;
    if row.algorithm.is_public() {
        return super::private_key(row.algorithm).to_owned();
    }
    match (row.algorithm, row.key.decode) {
        _ if row.name == "contentful" => "a secret of sixty-four bytes, as Contentful makes them, is here.".to_owned(),
        (Algorithm::Basic, _) => "user:a password with 23 b".to_owned(),
        (_, KeyDecode::Utf8) => "a secret of thirty-two bytes ... ".trim_end().to_owned(),
        (_, KeyDecode::Hex) => "00112233445566778899aabbccddeeff".to_owned(),
        (_, KeyDecode::Base64 | KeyDecode::Base64url) => "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=".to_owned(),
    }
}

/// A body that the row can be about: where the proof is in the body, the body has it.
pub(super) fn unsigned(row: &SchemeDeclaration, secret: &str, text: &str) -> Delivery {
    let body = match row.name.as_str() {
        "twilio" | "twilio-sha256" | "mandrill" | "plivo" => {
            format!("Body={}&From=%2B1415&empty=&Sid=CA1", text.replace(|c: char| !c.is_ascii_alphanumeric(), "+"))
        }
        "microsoft-graph" => format!(r#"{{"value":[{{"clientState":{secret:?},"id":{text:?}}}]}}"#),
        "figma" => format!(r#"{{"passcode":{secret:?},"event":{text:?}}}"#),
        "linear" => format!(r#"{{"webhookTimestamp":{NOW},"id":"1","text":{text:?}}}"#),
        _ => format!(r#"{{"id":"evt_1","text":{text:?}}}"#),
    };
    let url = "https://hooks.example.com/hooks/wh_1?data.id=7&z=1";
    let mut given = vec![("x-request-id", "r-1")];
    if row.name == "sinch" {
        given.push(("x-sinch-webhook-signature-nonce", "01FJA8B4A7BM43YGWSG9GBV067"));
    }
    if row.name.starts_with("plivo") {
        given.extend([
            ("x-plivo-signature-v2-nonce", "05429567804466091622"),
            ("x-plivo-signature-v3-nonce", "05429567804466091622"),
        ]);
    }
    Delivery::new(url, &given, body.as_bytes())
}

pub(super) fn in_body(row: &SchemeDeclaration) -> bool {
    matches!(row.signature.from, Some(ValueSource::Json(_) | ValueSource::Form(_) | ValueSource::Item(_)))
}

/// The signature is in the body, and of something there: `tests::body` makes such deliveries.
pub(super) fn signs_in_body(row: &SchemeDeclaration) -> bool {
    in_body(row) && row.algorithm != Algorithm::Token
}

/// The delivery as the provider would send it.
pub(super) fn sent(scheme: &Scheme, key: &Key, secret: &str, text: &str) -> Delivery {
    let row = scheme.declaration();
    let mut delivery = unsigned(row, secret, text);
    if in_body(row) {
        delivery.headers.push(("Content-Type".to_owned(), b"application/json".to_vec()));
        return delivery;
    }
    Delivery::signed(scheme, key, delivery, NOW)
}

pub(super) fn signature_headers(row: &SchemeDeclaration) -> Vec<String> {
    let numbered = row.signature.numbered.as_ref().map(|stem| format!("{stem}1"));
    let first = row.signature.header.clone().or_else(|| row.signature.headers.first().cloned());
    first.into_iter().chain(numbered).collect()
}

fn covers_url(row: &SchemeDeclaration) -> bool {
    let contents = row.cases.iter().map(|case| &case.content).chain(row.claims.iter().map(|claim| &claim.content));
    contents.chain([&row.content]).any(|content| content.contains("{url}") || content.contains("{target}"))
}

/// Two spellings of the same form are the same to who signs forms: `%2b` and `%2B`.
fn same_form(row: &SchemeDeclaration, a: &[u8], b: &[u8]) -> bool {
    let forms = row.content.contains("{sorted_form") || row.cases.iter().any(|c| c.content.contains("{sorted_form"));
    forms && form::sorted(a, true).is_ok_and(|a| form::sorted(b, true).is_ok_and(|b| a == b))
}

#[test]
fn what_a_preset_signs_it_verifies() {
    for scheme in PRESETS.iter().filter(|scheme| !signs_in_body(scheme.declaration())) {
        let row = scheme.declaration();
        let secret = secret(row);
        let key = key(scheme, &secret);
        let delivery = sent(scheme, &key, &secret, "größe ☃");
        let verdict = delivery.judge(scheme, &[&key], NOW);
        assert!(verdict.is_ok(), "{}: {verdict:?} {delivery:?}", row.name);
        // Without a key, with another key, and beside another key.
        let without = if scheme.has_published_keys() { "mismatch" } else { "no-active-key" };
        assert_eq!(label(&delivery.judge(scheme, &[], NOW)), without, "{}", row.name);
        let other = if row.algorithm.is_public() {
            super::key(scheme, &super::other_public_key(row.algorithm))
        } else {
            super::key(scheme, &secret.replace(['0', 's'], "1"))
        };
        assert_eq!(label(&delivery.judge(scheme, &[&other], NOW)), "mismatch", "{}", row.name);
        assert_eq!(delivery.judge(scheme, &[&other, &key], NOW).unwrap().key_index, 1, "{}", row.name);
    }
}

#[test]
fn twilio_also_signs_json() {
    let scheme = super::preset("twilio");
    let key = key(scheme, "0123456789abcdef0123456789abcdef");
    let unsigned = Delivery::new("https://hooks.example.com/t?x=1", &[], br#"{"a":1}"#);
    let mut delivery = Delivery::signed(scheme, &key, unsigned, NOW);
    assert!(String::from_utf8_lossy(&delivery.target).starts_with("/t?x=1&bodySHA256="));
    assert!(delivery.judge(scheme, &[&key], NOW).is_ok());
    delivery.body[2] = b'b';
    assert_eq!(label(&delivery.judge(scheme, &[&key], NOW)), "body-digest");
}

#[test]
fn the_signature_is_there_once_and_not_twice() {
    for scheme in PRESETS.iter().filter(|scheme| !signs_in_body(scheme.declaration())) {
        let row = scheme.declaration();
        let secret = secret(row);
        let key = key(scheme, &secret);
        let delivery = sent(scheme, &key, &secret, "x");
        for name in signature_headers(row) {
            let mut twice = delivery.clone();
            let value = twice.header(&name).clone();
            twice.headers.push((name.to_ascii_lowercase(), value));
            assert_eq!(label(&twice.judge(scheme, &[&key], NOW)), "duplicate", "{}", row.name);
            let mut without = delivery.clone();
            without.headers.retain(|(n, _)| !n.eq_ignore_ascii_case(&name));
            assert_eq!(label(&without.judge(scheme, &[&key], NOW)), "missing", "{}", row.name);
            for text in ["", " ", "sha256=", "v0=", "v1,", "t=1790000000,v1=", "%00", "=", "Basic ", "Bearer "] {
                let mut other = delivery.clone();
                *other.header(&name) = text.as_bytes().to_vec();
                assert!(other.judge(scheme, &[&key], NOW).is_err(), "{} {text:?}", row.name);
            }
            let mut spaced = delivery.clone();
            let value = spaced.header(&name);
            value.push(b' ');
            // In a list by spaces, the last space is followed by an item of nothing.
            let separates =
                |list: &ListRule| list.spaces || list.separator == " " || list.groups.as_deref() == Some(" ");
            let harmless = row.signature.list.as_ref().is_some_and(separates);
            assert_eq!(spaced.judge(scheme, &[&key], NOW).is_ok(), harmless, "{}", row.name);
        }
    }
}

/// Signing by RSA without optimisation takes longer than all the rest together; `tests::public` does it once each.
fn is_cheap(row: &SchemeDeclaration) -> bool {
    !matches!(row.algorithm, Algorithm::RsaPkcs1Sha256 | Algorithm::JwtRs256)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn any_text_is_signed_and_verified(text in any::<String>()) {
        for scheme in PRESETS.iter() {
            let secret = secret(scheme.declaration());
            let key = key(scheme, &secret);
            let row = scheme.declaration();
            if in_body(row) || row.name == "linear" || !is_cheap(row) { continue }
            let verdict = sent(scheme, &key, &secret, &text).judge(scheme, &[&key], NOW);
            prop_assert!(verdict.is_ok(), "{}: {:?}", row.name, verdict);
        }
    }

    #[test]
    fn no_changed_byte_verifies(place in any::<prop::sample::Index>(), flip in 1_u8..=255) {
        for scheme in PRESETS.iter() {
            let row = scheme.declaration();
            if signs_in_body(row) { continue }
            let secret = secret(row);
            let key = key(scheme, &secret);
            let delivery = sent(scheme, &key, &secret, "some text");

            if scheme.covers_body() {
                let mut changed = delivery.clone();
                changed.body[place.index(delivery.body.len())] ^= flip;
                if !same_form(row, &delivery.body, &changed.body) {
                    let verdict = changed.judge(scheme, &[&key], NOW);
                    prop_assert!(verdict.is_err(), "{} body {:?}", row.name, changed);
                }
            }
            if covers_url(row) {
                let mut changed = delivery.clone();
                changed.target[place.index(delivery.target.len())] ^= flip;
                prop_assert!(changed.judge(scheme, &[&key], NOW).is_err(), "{} target {:?}", row.name, changed);
            }
            for name in signature_headers(row) {
                let mut changed = delivery.clone();
                let value = changed.header(&name);
                let at = place.index(value.len());
                let before = value.clone();
                value[at] ^= flip;
                // Hexadecimal in either case is one spelling, and so are `Basic` and `basic`.
                let same = row.signature.encoding == Some(Encoding::Hex) && row.signature.prefix.is_empty()
                    || row.signature.prefix_ignores_case || row.algorithm == Algorithm::Basic
                    || row.signature.encoding == Some(Encoding::Hex);
                if same && before.eq_ignore_ascii_case(value) { continue }
                prop_assert!(changed.judge(scheme, &[&key], NOW).is_err(), "{} {name} {:?}", row.name, changed);
            }
            if let Some(ValueSource::Header(name)) = row.timestamp.as_ref().map(|stamp| &stamp.from) {
                let mut changed = delivery.clone();
                let value = changed.header(name);
                let at = place.index(value.len());
                value[at] ^= flip;
                prop_assert!(changed.judge(scheme, &[&key], NOW).is_err(), "{} {name} {:?}", row.name, changed);
            }
            if let Some(ValueSource::Header(name)) = &row.delivery_id
                && scheme.delivery_id_signed()
            {
                let mut changed = delivery.clone();
                let value = changed.header(name);
                let at = place.index(value.len());
                value[at] ^= flip;
                prop_assert!(changed.judge(scheme, &[&key], NOW).is_err(), "{} {name} {:?}", row.name, changed);
            }
        }
    }

    #[test]
    fn nothing_that_is_sent_panics(
        values in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..80), 4),
        target in "/[ -~]{0,60}",
        body in proptest::collection::vec(any::<u8>(), 0..200),
        now in any::<u64>(),
    ) {
        for scheme in PRESETS.iter() {
            let row = scheme.declaration();
            let key = key(scheme, &secret(row));
            let mut delivery = Delivery::new("https://h.example/", &[], &body);
            delivery.target = target.as_bytes().to_vec();
            let mut names = signature_headers(row);
            names.extend(row.require.iter().map(|rule| rule.header.clone()));
            for source in row.timestamp.iter().map(|stamp| &stamp.from).chain(&row.delivery_id) {
                if let ValueSource::Header(name) = source { names.push(name.clone()) }
            }
            for (name, value) in names.into_iter().zip(values.iter().cycle()) {
                delivery.headers.push((name, value.clone()));
            }
            prop_assert!(delivery.judge(scheme, &[&key], now).is_err(), "{} {:?}", row.name, delivery);
        }
    }
}
