//! Signing as the providers do, written without a look at the gateway's own code.

use data_encoding::{BASE64, HEXLOWER};
use ring::hmac;

/// HMAC-SHA-256.
pub fn mac(secret: &[u8], content: &[u8]) -> Vec<u8> {
    hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, secret), content).as_ref().to_vec()
}

/// GitHub: the body, in hexadecimal behind `sha256=`.
pub fn github(secret: &[u8], body: &[u8]) -> (String, String) {
    ("X-Hub-Signature-256".into(), format!("sha256={}", HEXLOWER.encode(&mac(secret, body))))
}

/// Stripe: `{seconds}.{body}`, in hexadecimal, beside the time.
pub fn stripe(secret: &[u8], body: &[u8], at_unix_s: u64) -> (String, String) {
    let content = [format!("{at_unix_s}.").as_bytes(), body].concat();
    ("Stripe-Signature".into(), format!("t={at_unix_s},v1={}", HEXLOWER.encode(&mac(secret, &content))))
}

/// Standard Webhooks: `{id}.{seconds}.{body}`, in base64, with a key that is base64 behind `whsec_`.
pub fn standard(secret: &str, id: &str, body: &[u8], at_unix_s: u64) -> Vec<(String, String)> {
    let key = BASE64.decode(secret.trim_start_matches("whsec_").as_bytes()).expect("a base64 key");
    let content = [format!("{id}.{at_unix_s}.").as_bytes(), body].concat();
    vec![
        ("webhook-id".into(), id.into()),
        ("webhook-timestamp".into(), at_unix_s.to_string()),
        ("webhook-signature".into(), format!("v1,{}", BASE64.encode(&mac(&key, &content)))),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example in GitHub's documentation, "Validating webhook deliveries".
    #[test]
    fn github_agrees_with_its_documentation() {
        let (name, value) = github(b"It's a Secret to Everybody", b"Hello, World!");
        assert_eq!(name, "X-Hub-Signature-256");
        assert_eq!(value, "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17");
    }
}
