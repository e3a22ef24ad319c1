//! `tidegate verify`: would this delivery verify, and if not, why?

use domain::text::Untrusted;
use gateway::scheme::{Unverified, Verified, VerifyFault};
use serde_json::json;

use super::Shell;
use super::args::Verify;
use super::capture;
use super::diagnose::{self, Captured};
use super::exit::{Exit, Outcome};
use super::out::Tone;
use super::scheme::{self, Setup};
use super::sign::{URL_UNSAID, split};
use super::table::print_fields;
use crate::control::time::rfc3339;
use crate::control::wire::Text;

pub(super) fn run(args: &Verify, shell: &mut Shell<'_>) -> Outcome {
    let setup = Setup::of(&args.key, shell)?;
    let body = capture::read(&args.message.body, shell.stdin)?;
    let mut headers = args.headers.clone();
    if let Some(file) = &args.headers_from {
        let text = capture::read(file, shell.stdin)?;
        headers.extend(capture::headers_of(&String::from_utf8_lossy(&text))?);
    }
    let url = args.message.url.as_ref().or(setup.url.as_ref());
    let method = args.message.method.as_deref().unwrap_or_else(|| setup.method());
    let (seen, target) = split(url.map_or(URL_UNSAID, String::as_str))?;
    let delivery = Unverified {
        method: method.as_bytes(),
        target: target.as_bytes(),
        url: seen,
        headers: &headers,
        body: &body,
        received_unix_ms: args.message.at.unix_ms(shell.clock.unix_ms()),
    };
    match setup.scheme.verify(&delivery, &setup.active(delivery.received_unix_ms)) {
        Ok(verified) => yes(&setup, &verified, args.form.json, shell),
        Err(fault) => {
            let captured = Captured { delivery, headers: &headers, url_unsaid: url.is_none() };
            let hints = diagnose::hints(&setup, &captured, &fault, &scheme::presets()?);
            no(&setup, &fault, &hints, args.form.json, shell)
        }
    }
}

fn yes(setup: &Setup, verified: &Verified, json: bool, shell: &mut Shell<'_>) -> Outcome {
    let secret = setup.keys.get(verified.key_index).map_or("published", |named| &named.name);
    if json {
        let id = verified.delivery_id.as_ref();
        shell.out.json(&json!({
            "verifies": true,
            "state": verified.word(),
            "scheme": setup.scheme.name(),
            "secret": secret,
            "deliveryId": id.map(|id| json!({ "value": Text::of(&id.value), "signed": id.signed })),
            "signedAt": verified.signed_at_unix_ms.map(rfc3339),
            "coversBody": verified.covers_body,
        }))?;
        return Ok(Exit::Yes);
    }
    let verdict = shell.out.paint(Tone::Good, "verifies");
    if verified.covers_body {
        shell.out.line(verdict)?;
    } else {
        shell.out.line(format_args!("{verdict}: the sender is {}, the body is not", verified.word()))?;
    }
    let mut fields = vec![("scheme", setup.scheme.name().to_owned()), ("secret", safe(secret.as_bytes()))];
    if let Some(at) = verified.signed_at_unix_ms {
        fields.push(("signed at", rfc3339(at)));
    }
    if let Some(id) = &verified.delivery_id {
        let signed = if id.signed { "signed" } else { "not signed: anybody can write it" };
        fields.push(("delivery", format!("{} ({signed})", safe(&id.value))));
    }
    fields.push(("covers body", if verified.covers_body { "yes" } else { "no" }.to_owned()));
    print_fields(&mut shell.out, &fields)?;
    Ok(Exit::Yes)
}

fn no(setup: &Setup, fault: &VerifyFault, hints: &[String], json: bool, shell: &mut Shell<'_>) -> Outcome {
    let reason = safe(fault.to_string().as_bytes());
    if json {
        shell.out.json(&json!({
            "verifies": false,
            "scheme": setup.scheme.name(),
            "code": fault.label(),
            "reason": reason,
            "next": hints,
        }))?;
        return Ok(Exit::No);
    }
    let verdict = shell.out.paint(Tone::Bad, "does not verify");
    shell.out.line(format_args!("{verdict}: {reason}"))?;
    let mut fields = vec![("scheme", setup.scheme.name().to_owned()), ("code", fault.label().to_owned())];
    fields.extend(hints.iter().enumerate().map(|(at, hint)| (if at == 0 { "next" } else { "" }, hint.clone())));
    print_fields(&mut shell.out, &fields)?;
    Ok(Exit::No)
}

fn safe(bytes: &[u8]) -> String {
    Untrusted::with_limit(bytes, 1024).to_string()
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Ran, run_with};
    use super::*;

    const SIGNATURE: &str =
        "X-Hub-Signature-256: sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17";

    fn verify(secret: &str, body: &[u8], more: &[&str]) -> Ran {
        let words = ["verify", "--scheme", "github", "--secret", "env:KEY", "--body", "-"];
        run_with(&[&words[..], more].concat(), body, &[("KEY", secret)])
    }

    const SECRET: &str = "It's a Secret to Everybody";

    #[test]
    fn a_good_delivery_is_a_yes_with_its_evidence() {
        let ran = verify(SECRET, b"Hello, World!", &["--header", SIGNATURE, "-H", "X-GitHub-Delivery: 7\u{1b}[31m"]);
        assert_eq!(ran.exit, Exit::Yes, "{}", ran.remarks);
        assert_eq!(
            ran.answer,
            "verifies\nscheme       github\nsecret       given\n\
             delivery     7\\u{1b}[31m (not signed: anybody can write it)\ncovers body  yes\n"
        );
        let ran = verify(SECRET, b"Hello, World!", &["--header", SIGNATURE, "--json"]);
        let json: serde_json::Value = serde_json::from_str(&ran.answer).unwrap();
        assert_eq!(json["verifies"], true);
        assert_eq!(json["secret"], "given");
    }

    #[test]
    fn a_token_authenticates_and_verifies_no_body() {
        let words = ["verify", "--scheme", "gitlab", "--secret", "env:KEY", "--body", "-"];
        let header = ["--header", "X-Gitlab-Token: a token of 20 letters"];
        let key = [("KEY", "a token of 20 letters")];
        let ran = run_with(&[&words[..], &header].concat(), b"{}", &key);
        assert_eq!(ran.exit, Exit::Yes, "{}", ran.remarks);
        assert!(ran.answer.starts_with("verifies: the sender is authenticated, the body is not\n"), "{}", ran.answer);
        let ran = run_with(&[&words[..], &header, &["--json"]].concat(), b"{}", &key);
        let json: serde_json::Value = serde_json::from_str(&ran.answer).unwrap();
        assert_eq!((&json["state"], &json["coversBody"]), (&"authenticated".into(), &false.into()));
    }

    #[test]
    fn a_bad_one_is_a_no_with_a_reason_and_a_next_step() {
        let ran = verify("another secret, long enough", b"Hello, World!", &["--header", SIGNATURE]);
        assert_eq!(ran.exit, Exit::No);
        assert!(ran.answer.starts_with("does not verify: "), "{}", ran.answer);
        assert!(ran.answer.contains("\ncode    mismatch\nnext    "), "{}", ran.answer);
        let ran = verify(SECRET, b"Hello, World!", &["--json"]);
        let json: serde_json::Value = serde_json::from_str(&ran.answer).unwrap();
        assert_eq!((json["verifies"].as_bool(), json["code"].as_str()), (Some(false), Some("missing")));
        assert!(json["next"].as_array().is_some_and(|next| !next.is_empty()));
    }

    #[test]
    fn a_line_end_that_the_capture_added_is_found() {
        let ran = verify(SECRET, b"Hello, World!\n", &["--header", SIGNATURE]);
        assert_eq!(ran.exit, Exit::No);
        assert!(ran.answer.contains("for the body without its line ending"), "{}", ran.answer);
    }

    #[test]
    fn a_blank_around_the_secret_is_found() {
        let ran = verify("It's a Secret to Everybody ", b"Hello, World!", &["--header", SIGNATURE]);
        assert!(ran.answer.contains("for the secret without the white space around it"), "{}", ran.answer);
        assert!(!ran.answer.contains("Everybody"));
    }

    #[test]
    fn a_captured_head_can_be_given_as_it_is() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), format!("POST /hooks/wh_1 HTTP/1.1\r\nHost: h\r\n{SIGNATURE}\r\n\r\n")).unwrap();
        let ran = verify(SECRET, b"Hello, World!", &["--headers-from", file.path().to_str().unwrap()]);
        assert_eq!(ran.exit, Exit::Yes, "{}{}", ran.answer, ran.remarks);
    }
}
