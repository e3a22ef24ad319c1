//! The traps that other receivers fell into, each asked of every preset that it can be asked of.

use config::scheme::{Encoding, KeyDecode, SchemeDeclaration, TimestampFormat, ValueSource, Window};
use domain::Secret;

use super::super::{Key, Scheme};
use super::mutations::{in_body, secret, sent, signature_headers, signs_in_body};
use super::{Delivery, NOW, PRESETS, key, label};

/// Every preset that signs something and that can be signed here, with a key.
fn signing() -> impl Iterator<Item = (&'static Scheme, &'static SchemeDeclaration, Key)> {
    PRESETS.iter().map(|scheme| (&**scheme, scheme.declaration())).filter_map(|(scheme, row)| {
        let token = matches!(row.algorithm, config::scheme::Algorithm::Token | config::scheme::Algorithm::Basic);
        (!token && !in_body(row)).then(|| (scheme, row, key(scheme, &secret(row))))
    })
}

/// The same with a body of one's own, where the scheme takes any.
fn with_body(body: &[u8]) -> impl Iterator<Item = (&'static Scheme, &'static SchemeDeclaration, Key, Delivery)> {
    signing().filter_map(move |(scheme, row, key)| {
        // A form that is signed as it reads is no place for other bytes; Linear reads its timestamp out of the body.
        let reads_body = row.name == "linear" || !row.cases.is_empty() || row.content.contains("{sorted_form");
        if reads_body || !scheme.covers_body() {
            return None;
        }
        let mut given = vec![("x-request-id", "r-1")];
        if row.name == "sinch" {
            given.push(("x-sinch-webhook-signature-nonce", "01FJA8B4A7BM43YGWSG9GBV067"));
        }
        let unsigned = Delivery::new("https://hooks.example.com/hooks/wh_1?z=1", &given, body);
        let delivery = Delivery::signed(scheme, &key, unsigned, NOW);
        Some((scheme, row, key, delivery))
    })
}

/// Signed over `signed`, and arrived as `arrived`.
fn every_scheme_tells(signed: &[u8], arrived: &[u8]) {
    let mut asked = 0;
    for (scheme, row, key, mut delivery) in with_body(signed) {
        assert!(delivery.judge(scheme, &[&key], NOW).is_ok(), "{}", row.name);
        delivery.body = arrived.to_vec();
        let verdict = label(&delivery.judge(scheme, &[&key], NOW));
        assert!(matches!(verdict, "mismatch" | "body-digest"), "{}: {verdict}", row.name);
        asked += 1;
    }
    assert!(asked > 90, "{asked}");
}

#[test]
fn crlf_is_not_lf() {
    every_scheme_tells(b"{\"a\":1}\r\n", b"{\"a\":1}\n");
    every_scheme_tells(b"{\"a\":1}\r\n", b"{\"a\":1}");
}

#[test]
fn an_escape_is_not_its_character() {
    every_scheme_tells(br#"{"a":"\u20ac"}"#, "{\"a\":\"€\"}".as_bytes());
    every_scheme_tells("{\"a\":\"€\"}".as_bytes(), br#"{"a":"\u20ac"}"#);
}

#[test]
fn bytes_that_are_no_text_are_signed_as_they_are() {
    every_scheme_tells(b"\xff\xfe\0\x80", "\u{fffd}\u{fffd}\0\u{fffd}".as_bytes());
}

#[test]
fn a_compressed_body_is_what_came_and_not_what_is_in_it() {
    // `printf '{}' | gzip -n`
    let packed = b"\x1f\x8b\x08\0\0\0\0\0\0\x03\xab\xae\x05\0\x43\xbf\xa6\xa3\x02\0\0\0";
    every_scheme_tells(packed, b"{}");
    every_scheme_tells(b"{}", packed);
}

#[test]
fn a_form_is_not_parsed_and_written_again() {
    every_scheme_tells(b"payload=%7B%7D&a=x+y", b"payload=%7b%7d&a=x%20y");
    every_scheme_tells(b"b=1&a=2", b"a=2&b=1");
}

#[test]
fn nothing_stands_behind_a_prefix_or_in_front_of_it() {
    for (scheme, row, key) in signing().filter(|(_, row, _)| !row.signature.prefix.is_empty()) {
        let delivery = sent(scheme, &key, &secret(row), "x");
        for name in signature_headers(row) {
            let value = String::from_utf8(delivery.clone().header(&name).clone()).unwrap();
            let prefix = &row.signature.prefix;
            for changed in [
                value.replacen(prefix.as_str(), &format!("{prefix} "), 1),
                value.replacen(prefix.as_str(), &format!(" {prefix}"), 1),
                value.replacen(prefix.as_str(), &prefix.repeat(2), 1),
                value.replacen(prefix.as_str(), "", 1),
            ] {
                let mut other = delivery.clone();
                *other.header(&name) = changed.clone().into_bytes();
                assert!(other.judge(scheme, &[&key], NOW).is_err(), "{}: {changed}", row.name);
            }
        }
    }
}

#[test]
fn base64_has_its_own_alphabet_and_its_own_padding() {
    let mut asked = 0;
    for (scheme, row, key) in signing() {
        let Some(encoding) = row.signature.encoding.filter(|encoding| *encoding != Encoding::Hex) else { continue };
        let delivery = sent(scheme, &key, &secret(row), "x");
        let name = &signature_headers(row)[0];
        let value = String::from_utf8(delivery.clone().header(name).clone()).unwrap();
        let padded = matches!(encoding, Encoding::Base64 | Encoding::Base64url);
        let mut spellings = vec![format!("{value}="), value.to_ascii_lowercase()];
        if !row.signature.list.as_ref().is_some_and(|list| list.spaces) {
            spellings.push(format!("{value}\n"));
        }
        if padded {
            spellings.push(value.trim_end_matches('=').to_owned());
        }
        spellings.push(value.replace('+', "-").replace('/', "_"));
        spellings.push(value.replace('-', "+").replace('_', "/"));
        for spelling in spellings.into_iter().filter(|spelling| *spelling != value) {
            let mut other = delivery.clone();
            *other.header(name) = spelling.clone().into_bytes();
            assert!(other.judge(scheme, &[&key], NOW).is_err(), "{}: {spelling:?}", row.name);
            asked += 1;
        }
    }
    assert!(asked > 60, "{asked}");
}

#[test]
fn no_lenient_decoding_makes_a_near_empty_key() {
    for scheme in PRESETS.iter() {
        let row = scheme.declaration();
        let refused = |text: &str| scheme.key(&Secret::new(text.as_bytes())).is_err();
        assert!(refused("") && refused(" ") && refused("\n") && refused("\0"), "{}", row.name);
        let prefixes = row.key.strip.iter().chain(row.also.iter().flat_map(|also| &also.prefixes));
        for prefix in prefixes {
            assert!(refused(prefix) && refused(&format!("{prefix}\n")), "{}: {prefix}", row.name);
        }
        let is_decoded = matches!(row.key.decode, KeyDecode::Base64 | KeyDecode::Base64url | KeyDecode::Hex);
        if is_decoded || row.algorithm.is_public() {
            for text in ["*", "====", "=", "not base64 at all!", "whsec_*", "0", "zz", "AAAA=AAA"] {
                assert!(refused(text), "{}: {text}", row.name);
            }
        }
    }
}

fn windows(row: &SchemeDeclaration) -> Option<(u64, u64)> {
    let rule = row.timestamp.as_ref()?;
    match (rule.old, rule.future) {
        (Window::Within(old), Window::Within(future)) => Some((old.ms(), future.ms())),
        _ => None,
    }
}

#[test]
fn a_timestamp_of_tomorrow_is_refused_as_one_of_yesterday_is() {
    let mut asked = 0;
    for (scheme, row, key) in signing() {
        let Some((old, future)) = windows(row) else { continue };
        let delivery = sent(scheme, &key, &secret(row), "x");
        let judged = |now: u64| label(&delivery.judge(scheme, &[&key], now));
        assert_eq!(judged(NOW - future), "verified", "{}", row.name);
        assert_eq!(judged(NOW - future - 1), "in-future", "{}", row.name);
        assert_eq!(judged(NOW + old + 1), "too-old", "{}", row.name);
        assert_eq!(judged(0), "in-future", "{}", row.name);
        assert_eq!(judged(u64::MAX), "too-old", "{}", row.name);
        asked += 1;
    }
    assert!(asked > 25, "{asked}");
}

#[test]
fn a_clock_in_milliseconds_is_not_one_in_seconds() {
    let mut asked = 0;
    for (scheme, row, key) in signing() {
        let Some(ValueSource::Header(name)) = row.timestamp.as_ref().map(|rule| &rule.from) else { continue };
        let (wrong, format) = match row.timestamp.as_ref().map(|rule| rule.format) {
            Some(TimestampFormat::Seconds) => (NOW.to_string(), "seconds"),
            Some(TimestampFormat::Milliseconds) => ((NOW / 1_000).to_string(), "milliseconds"),
            _ => continue,
        };
        // Without a window, any clock is one.
        if windows(row).is_none() {
            continue;
        }
        // Signed so, by a sender that has the secret and the wrong unit.
        let mut unsigned = Delivery::new("https://hooks.example.com/x?z=1", &[("x-request-id", "r-1")], b"{}");
        unsigned.headers.push((name.clone(), wrong.into_bytes()));
        if row.name == "sinch" {
            unsigned.headers.push(("x-sinch-webhook-signature-nonce".into(), b"01FJA8B4A7BM43YGWSG9GBV067".to_vec()));
        }
        let delivery = Delivery::signed(scheme, &key, unsigned, NOW);
        let verdict = label(&delivery.judge(scheme, &[&key], NOW));
        assert!(matches!(verdict, "in-future" | "too-old" | "malformed"), "{} in {format}: {verdict}", row.name);
        asked += 1;
    }
    assert!(asked > 15, "{asked}");
}

#[test]
fn what_a_proxy_says_about_the_url_counts_for_nothing() {
    let mut asked = 0;
    for (scheme, row, key) in signing() {
        let contents = row.cases.iter().map(|case| &case.content).chain(row.claims.iter().map(|claim| &claim.content));
        let signs_url = contents.chain([&row.content]).any(|content| content.contains("{url"));
        if !signs_url {
            continue;
        }
        let delivery = sent(scheme, &key, &secret(row), "x");
        for origin in ["http://hooks.example.com", "https://other.example.com", "https://hooks.example.com:8443"] {
            let mut other = delivery.clone();
            origin.clone_into(&mut other.origin);
            for (name, value) in [
                ("X-Forwarded-Proto", "https"),
                ("X-Forwarded-Host", "hooks.example.com"),
                ("X-Forwarded-Port", "443"),
                ("Forwarded", "host=hooks.example.com;proto=https"),
            ] {
                other.headers.push((name.to_owned(), value.as_bytes().to_vec()));
            }
            let port_is_no_matter = row.url.variants.contains(&config::scheme::UrlVariant::WithoutPort);
            if origin.ends_with("8443") && port_is_no_matter {
                continue;
            }
            assert!(other.judge(scheme, &[&key], NOW).is_err(), "{} at {origin}", row.name);
        }
        asked += 1;
    }
    assert!(asked >= 7, "{asked}");
}

#[test]
fn every_preset_is_asked_by_one_of_these_or_by_tests_of_its_own() {
    let of_their_own = ["adyen", "mailgun", "braintree"];
    for scheme in PRESETS.iter().filter(|scheme| signs_in_body(scheme.declaration())) {
        assert!(of_their_own.contains(&scheme.name()), "{}: write tests in tests/body.rs", scheme.name());
    }
}
