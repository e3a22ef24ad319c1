//! Takes secrets out of texts and values before somebody reads them.
//!
//! By the name of the field, and by shape: what tokens of known providers begin with, JSON web tokens, what stands behind
//! `Bearer`, long runs of hexadecimal digits, and long runs that mix cases and digits as random ones do. It errs on the
//! side of hiding: an identifier that looks like a key is hidden too. The credential of the connection itself never comes
//! here: egress attaches it, and the runner does not have it.

use std::fmt::Write;

use serde_json::Value;

/// Stands where a secret stood.
pub const REDACTED: &str = "[redacted]";

/// Names of fields, headers and parameters whose values let somebody in. Compared without case, `-`, `_` and spaces.
const NAMES: &[&str] = &[
    "accesskey",
    "accesstoken",
    "apikey",
    "apitoken",
    "appsecret",
    "appsecretproof",
    "auth",
    "authorization",
    "authtoken",
    "bearer",
    "clientassertion",
    "clientsecret",
    "cookie",
    "credential",
    "credentials",
    "idtoken",
    "key",
    "passphrase",
    "passwd",
    "password",
    "privatekey",
    "proxyauthorization",
    "pwd",
    "refreshtoken",
    "secret",
    "secretkey",
    "sessionid",
    "sessiontoken",
    "setcookie",
    "sharedsecret",
    "signature",
    "signingsecret",
    "token",
    "webhooksecret",
    "xamzaccesstoken",
    "xapikey",
    "xshopifyaccesstoken",
];

/// What secrets of providers begin with, and how many characters stand behind it at least.
const PREFIXES: &[(&str, usize)] = &[
    ("sk_live_", 4),
    ("sk_test_", 4),
    ("rk_live_", 4),
    ("rk_test_", 4),
    ("whsec_", 8),
    ("sk-", 16),
    ("xoxb-", 8),
    ("xoxp-", 8),
    ("xoxa-", 8),
    ("xoxe-", 8),
    ("xoxe.", 8),
    ("xoxs-", 8),
    ("xapp-", 8),
    ("ghp_", 16),
    ("gho_", 16),
    ("ghu_", 16),
    ("ghs_", 16),
    ("ghr_", 16),
    ("github_pat_", 16),
    ("glpat-", 12),
    ("shpat_", 8),
    ("shpca_", 8),
    ("shppa_", 8),
    ("shpss_", 8),
    ("SG.", 16),
    ("AKIA", 12),
    ("ASIA", 12),
    ("AIza", 20),
    ("ya29.", 8),
    ("1//0", 16),
    ("EAA", 32),
    ("lin_api_", 8),
    ("lin_oauth_", 8),
    ("ntn_", 16),
    ("secret_", 16),
    ("pat-na1-", 8),
    ("pat-eu1-", 8),
    ("Atza|", 8),
    ("Atzr|", 8),
    ("amzn1.oa2-cs", 8),
    ("dG9rOj", 12),
    ("pk_", 32),
];

/// Words behind which a credential stands.
const SCHEMES: &[&str] = &["bearer", "basic", "token", "apikey", "klaviyo-api-key", "bot"];

/// Shortest run of hexadecimal digits that is taken for a key.
const HEX_MIN: usize = 32;

/// Shortest run that mixes cases and digits and is taken for a key.
const MIXED_MIN: usize = 36;

/// Whether what has this name lets somebody in.
pub fn is_secret_name(name: &str) -> bool {
    if name.len() > 64 {
        return false;
    }
    let folded: String = name.chars().filter(char::is_ascii_alphanumeric).map(|c| c.to_ascii_lowercase()).collect();
    NAMES.binary_search(&folded.as_str()).is_ok()
}

/// The text without its secrets.
pub fn redact_text(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    // What was read before: the name of a field, or a word behind which a credential stands.
    let (mut names_secret, mut is_scheme) = (false, false);
    while !rest.is_empty() {
        let end = rest.find(is_of_token).unwrap_or(rest.len());
        let (between, behind) = rest.split_at(end);
        out.push_str(between);
        let is_pair = between.trim().chars().all(|c| matches!(c, '=' | ':' | '"' | '\'' | '\\'));
        let has_sign = between.contains(['=', ':']);
        let end = behind.find(|c| !is_of_token(c)).unwrap_or(behind.len());
        let (token, behind) = behind.split_at(end);
        // A sentence's full stop is no part of the token.
        let bare = token.trim_end_matches('.');
        let is_named = names_secret && has_sign && is_pair && !is_word_of_scheme(bare) && !is_prose(between, bare);
        let is_presented = is_scheme && between.trim().is_empty() && bare.len() >= 8 && !is_plain_word(bare);
        let is_hidden = is_named || is_presented || is_secret(bare);
        if is_hidden && !bare.is_empty() {
            out.push_str(REDACTED);
            out.push_str(&token[bare.len()..]);
        } else {
            out.push_str(token);
        }
        // `Authorization: Bearer x`: the word between changes nothing.
        names_secret = is_secret_name(bare) || names_secret && has_sign && is_word_of_scheme(bare);
        is_scheme = is_word_of_scheme(bare);
        rest = behind;
    }
    hide_user_info(&out)
}

/// The value with the values of secret fields and the secrets in its texts replaced.
pub fn redact_json(value: &mut Value) {
    match value {
        Value::String(text) => *text = redact_text(text),
        Value::Array(items) => items.iter_mut().for_each(redact_json),
        Value::Object(members) => {
            for (name, inside) in members.iter_mut() {
                if is_secret_name(name) && !matches!(inside, Value::Null | Value::Bool(_)) {
                    *inside = Value::String(REDACTED.into());
                } else {
                    redact_json(inside);
                }
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

fn is_of_token(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | '+' | '/' | '|' | '~')
}

fn is_word_of_scheme(token: &str) -> bool {
    SCHEMES.iter().any(|scheme| token.eq_ignore_ascii_case(scheme))
}

/// `password: is too short` says what is wrong with a field, and not what is in it.
fn is_prose(between: &str, token: &str) -> bool {
    between == ": " && token.bytes().all(|byte| byte.is_ascii_alphabetic())
}

/// `token expired`: a word, and no credential.
fn is_plain_word(token: &str) -> bool {
    token.bytes().all(|byte| byte.is_ascii_lowercase()) && token.len() < 24
}

fn is_secret(token: &str) -> bool {
    let begins =
        |(prefix, behind): &(&str, usize)| token.strip_prefix(prefix).is_some_and(|rest| rest.len() >= *behind);
    PREFIXES.iter().any(begins) || is_web_token(token) || token.split(['.', '/', '|', '~']).any(is_random)
}

/// RFC 7519: two or three parts, the first of which is JSON and so begins with `{"` in base64.
fn is_web_token(token: &str) -> bool {
    token.starts_with("eyJ") && token.len() >= 20 && token.contains('.')
}

fn is_random(run: &str) -> bool {
    if run.len() >= HEX_MIN && run.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return true;
    }
    let has = |is: fn(&u8) -> bool| run.as_bytes().iter().filter(|byte| is(byte)).count();
    let (lower, upper, digits) = (has(u8::is_ascii_lowercase), has(u8::is_ascii_uppercase), has(u8::is_ascii_digit));
    run.len() >= MIXED_MIN && lower >= 6 && upper >= 6 && digits >= 2
}

/// `https://user:password@host` without user and password.
fn hide_user_info(text: &str) -> String {
    let (mut out, mut rest) = (String::with_capacity(text.len()), text);
    while let Some((before, behind)) = rest.split_once("://") {
        out.push_str(before);
        out.push_str("://");
        let end = behind.find(|c: char| matches!(c, '/' | '?' | '#') || c.is_whitespace()).unwrap_or(behind.len());
        let (authority, behind) = behind.split_at(end);
        match authority.rsplit_once('@') {
            // Writing to a string does not fail.
            Some((_, host)) => drop(write!(out, "{REDACTED}@{host}")),
            None => out.push_str(authority),
        }
        rest = behind;
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    #[test]
    fn names_are_in_order() {
        assert!(NAMES.is_sorted());
        for name in ["Authorization", "client_secret", "X-Api-Key", "refreshToken", "API key"] {
            assert!(is_secret_name(name), "{name}");
        }
        for name in ["keyboard", "tokens_used", "next_page_token", "idempotency_key", "id"] {
            assert!(!is_secret_name(name), "{name}");
        }
    }

    #[test]
    fn what_lets_somebody_in_is_hidden() {
        let jwt = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl";
        for (text, expected) in [
            ("Invalid API Key provided: sk_live_51Hx0000abcd", "Invalid API Key provided: [redacted]"),
            ("Invalid API Key provided: sk_test_****abcd.", "Invalid API Key provided: sk_test_****abcd."),
            ("Authorization: Bearer abc123def456", "Authorization: Bearer [redacted]"),
            ("bad token xoxb-1234-5678-abcdef here", "bad token [redacted] here"),
            ("{\"access_token\":\"abc\",\"id\":7}", "{\"access_token\":\"[redacted]\",\"id\":7}"),
            ("?access_token=EAAB&limit=5", "?access_token=[redacted]&limit=5"),
            ("aws wJalrXUtnFEMIK7MDENGbPxRfiCYEXAMPLEKEY1 x", "aws [redacted] x"),
            ("password = hunter2", "password = [redacted]"),
            ("see https://joe:pw@example.com/x", "see https://[redacted]@example.com/x"),
            ("hash 0123456789abcdef0123456789abcdef!", "hash [redacted]!"),
            (jwt, "[redacted]"),
        ] {
            assert_eq!(redact_text(text), expected, "{text}");
        }
    }

    #[test]
    fn what_people_need_to_read_stays() {
        for text in [
            "No such customer: 'cus_NffrFeUfNV2Hib'",
            "The access token has expired.",
            "password: is too short; token: This field is required",
            "a = b, limit=5",
            "Could not find database with ID: 8b1c9a2e-1f5a-4c56-9f63-0c3f8c1d2e3f.",
            "token expired at 2026-11-30T10:00:00Z",
            "https://docs.stripe.com/error-codes/resource-missing",
            "request id req_011CSHoEeqs5C35K2UUqR7Fy: 1 validation error",
            "Property \"email\" is required; got key \"mail\"",
        ] {
            assert_eq!(redact_text(text), text);
        }
    }

    #[test]
    fn secret_fields_of_values_are_hidden_with_all_that_is_in_them() {
        let mut value = json!({ "auth": { "user": "x" }, "list": [{ "Api-Key": "1" }], "note": "Bearer abcdefgh1234", "token": null });
        redact_json(&mut value);
        let expected =
            json!({ "auth": REDACTED, "list": [{ "Api-Key": REDACTED }], "note": "Bearer [redacted]", "token": null });
        assert_eq!(value, expected);
    }

    proptest! {
        #[test]
        fn any_text_is_taken_and_hides_what_was_put_in(before in "\\PC{0,40}", behind in "\\PC{0,40}") {
            let secret = "sk_live_4eC39HqLyjWDarjtT1zdp7dc";
            let shown = redact_text(&format!("{before} {secret} {behind}"));
            prop_assert!(!shown.contains(secret), "{}", shown);
        }
    }
}
