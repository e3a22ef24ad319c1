//! `tidegate sign`: the headers by which a delivery proves itself.

use config::scheme::Algorithm;
use domain::text::Untrusted;
use gateway::scheme::{SeenUrl, SignFault, Signed, Unsigned};
use serde_json::json;

use super::Shell;
use super::args::{Sign, SignForm};
use super::capture;
use super::curl::Curl;
use super::exit::{Exit, Failure, Outcome};
use super::scheme::Setup;

/// Stands where a scheme does not sign the URL and nobody gave one.
pub(crate) const URL_UNSAID: &str = "https://example.invalid/";

pub(super) fn run(args: &Sign, shell: &mut Shell<'_>) -> Outcome {
    let setup = Setup::of(&args.key, shell)?;
    let body = capture::read(&args.message.body, shell.stdin)?;
    let at = args.message.at.unix_ms(shell.clock.unix_ms());
    let said = args.message.url.clone().or_else(|| setup.url.clone());
    if args.form == SignForm::Curl && said.is_none() {
        return Err(Failure::usage("a curl command needs somewhere to go", "give --url, or --endpoint"));
    }
    let order = Order {
        method: args.message.method.as_deref().unwrap_or_else(|| setup.method()),
        url: said.as_deref().unwrap_or(URL_UNSAID),
        headers: &args.headers,
        body: &body,
        at_unix_ms: at,
    };
    if said.is_none() && super::scheme::signs_url(setup.scheme.declaration()) {
        return Err(Failure::usage(
            format_args!("{} signs the URL that it posts to", setup.scheme.name()),
            "give --url, the whole of it as the provider has it",
        ));
    }
    let signed = sign(&setup, &order)?;
    let signed_url = url_of(&order, &signed);
    if matches!(setup.scheme.declaration().algorithm, Algorithm::Token | Algorithm::Basic) {
        shell.out.remark("this scheme sends the secret itself: what follows is the secret");
    }
    if args.json {
        shell.out.json(&json!({
            "scheme": setup.scheme.name(),
            "method": order.method,
            "url": said.map(|_| &signed_url),
            "headers": signed.headers,
        }))?;
        return Ok(Exit::Yes);
    }
    match args.form {
        SignForm::Headers => {
            for (name, value) in &signed.headers {
                shell.out.line(format_args!("{name}: {}", shown(value)))?;
            }
            if signed.target.is_some() {
                shell.out.remark(format_args!("post to {}", shown(&signed_url)));
            }
        }
        SignForm::Curl => {
            let headers: Vec<_> = args.headers.iter().chain(&signed.headers).cloned().collect();
            let file = Some(args.message.body.as_path()).filter(|path| path.as_os_str() != "-");
            let curl = Curl { method: order.method, url: &signed_url, headers: &headers, body: &body, body_file: file };
            shell.out.line(curl.command().ok_or_else(not_pastable)?)?;
        }
    }
    Ok(Exit::Yes)
}

/// What is to be signed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Order<'a> {
    pub(crate) method: &'a str,
    /// The whole URL as the provider has it.
    pub(crate) url: &'a str,
    pub(crate) headers: &'a [(String, String)],
    pub(crate) body: &'a [u8],
    pub(crate) at_unix_ms: u64,
}

/// Signs with the first key that is active at the time.
pub(crate) fn sign(setup: &Setup, order: &Order<'_>) -> Outcome<Signed> {
    let keys = setup.active(order.at_unix_ms);
    let key = keys.first().ok_or_else(|| {
        Failure::failed(
            "no secret is active at that time",
            "look at not_before and not_after of the endpoint's secrets",
        )
    })?;
    let (url, target) = split(order.url)?;
    let unsigned = Unsigned { method: order.method, target, url, headers: order.headers, body: order.body };
    setup.scheme.sign(&unsigned, key.key, order.at_unix_ms).map_err(|fault| {
        let next = match &fault {
            SignFault::Needs(what) => format!("give what it names, in a --header or in the body: {what}"),
            SignFault::InBody => "take a delivery that the provider made, and `tidegate verify` it".to_owned(),
            SignFault::NoPrivateKey => {
                "give a private key for tests, in a file, as --secret: `openssl genpkey` makes one".to_owned()
            }
            SignFault::NoCase => "give --header 'Content-Type: …' as the provider sends it".to_owned(),
            SignFault::Unreadable(_) => "look at the body and at the headers that were given".to_owned(),
        };
        Failure::failed(fault, next)
    })
}

/// Takes a URL apart into what stands before the target, and the target.
pub(crate) fn split(url: &str) -> Outcome<(SeenUrl<'_>, &str)> {
    SeenUrl::split(url).map_err(|fault| {
        let url = Untrusted::new(url.as_bytes());
        Failure::usage(format_args!("\"{url}\" {fault}"), "write it as https://hooks.example.com/hooks/wh_…")
    })
}

/// Where a signed delivery goes: some schemes put something into the query.
pub(crate) fn url_of(order: &Order<'_>, signed: &Signed) -> String {
    let Some(target) = &signed.target else { return order.url.to_owned() };
    let authority = order.url.find("://").map_or(0, |at| at + 3);
    let end = order.url[authority..].find('/').map_or(order.url.len(), |at| authority + at);
    format!("{}{target}", &order.url[..end])
}

pub(crate) fn not_pastable() -> Failure {
    Failure::usage(
        "this body is no text that a shell can carry",
        "give it with --body FILE: the command then names the file",
    )
}

fn shown(text: &str) -> String {
    Untrusted::with_limit(text.as_bytes(), usize::MAX).to_string()
}

#[cfg(test)]
mod tests {
    use super::super::testing::run_with;
    use super::*;

    const SECRET: (&str, &str) = ("KEY", "It's a Secret to Everybody");

    #[test]
    fn github_is_signed_as_its_documentation_says() {
        let ran = run_with(
            &["sign", "--scheme", "github", "--secret", "env:KEY", "--body", "-"],
            b"Hello, World!",
            &[SECRET],
        );
        assert_eq!(ran.exit, Exit::Yes, "{}", ran.remarks);
        let want = "X-Hub-Signature-256: sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17\n";
        assert!(ran.answer.contains(want), "{}", ran.answer);
    }

    #[test]
    fn curl_and_json_carry_the_same_signature() {
        let words =
            ["sign", "--scheme", "github", "--secret", "env:KEY", "--body", "-", "--url", "http://h/hooks/wh_1"];
        let curl = run_with(&[&words[..], &["--form", "curl"]].concat(), b"Hello, World!", &[SECRET]);
        assert!(curl.answer.starts_with("curl -sS \\\n  http://h/hooks/wh_1 \\\n"), "{}", curl.answer);
        let json = run_with(&[&words[..], &["--json"]].concat(), b"Hello, World!", &[SECRET]);
        let json: serde_json::Value = serde_json::from_str(&json.answer).unwrap();
        assert_eq!(json["url"], "http://h/hooks/wh_1");
        assert!(curl.answer.contains("757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"));
        assert!(
            json["headers"].to_string().contains("757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17")
        );
    }

    #[test]
    fn a_literal_secret_is_wrong_usage_and_stays_unsaid() {
        let ran = run_with(&["sign", "--scheme", "github", "--secret", "hunter2", "--body", "-"], b"x", &[]);
        assert_eq!(ran.exit, Exit::Usage);
        assert!(!ran.remarks.contains("hunter2") && ran.remarks.contains("env:NAME"), "{}", ran.remarks);
    }

    #[test]
    fn unknown_schemes_and_unfit_secrets_say_what_to_do() {
        let ran = run_with(&["sign", "--scheme", "nope", "--secret", "env:KEY", "--body", "-"], b"x", &[SECRET]);
        assert!(ran.exit == Exit::Failed && ran.remarks.contains("schemes list"), "{}", ran.remarks);
        let ran =
            run_with(&["sign", "--scheme", "github", "--secret", "env:KEY", "--body", "-"], b"x", &[("KEY", "   ")]);
        assert!(ran.exit == Exit::Failed && ran.remarks.contains("schemes show github"), "{}", ran.remarks);
    }

    const PRIVATE: &str = include_str!("../../gateway/src/scheme/tests/keys/ed.pem");
    const PUBLIC: &str = include_str!("../../gateway/src/scheme/tests/keys/ed.pub.pem");

    /// Signs with one secret, and verifies what came of it with another.
    fn signed_and_verified(scheme: &str, private: &str, public: &str, more: &[&str]) {
        let words = ["--scheme", scheme, "--secret", "env:KEY", "--body", "-", "--at", "2026-09-21T14:13:20Z"];
        let signed = run_with(&[&["sign"], &words[..], more, &["--json"]].concat(), b"{}", &[("KEY", private)]);
        assert_eq!(signed.exit, Exit::Yes, "{scheme}: {}", signed.remarks);
        let json: serde_json::Value = serde_json::from_str(&signed.answer).unwrap();
        let lines: Vec<String> = json["headers"]
            .as_array()
            .unwrap()
            .iter()
            .map(|pair| format!("{}: {}", pair[0].as_str().unwrap(), pair[1].as_str().unwrap()))
            .collect();
        let headers: Vec<&str> = lines.iter().flat_map(|line| ["--header", line]).collect();
        let verified = run_with(&[&["verify"], &words[..], more, &headers].concat(), b"{}", &[("KEY", public)]);
        assert_eq!(verified.exit, Exit::Yes, "{scheme}: {}{}", verified.answer, verified.remarks);
        let changed = run_with(&[&["verify"], &words[..], more, &headers].concat(), b"{ }", &[("KEY", public)]);
        assert_eq!(changed.exit, Exit::No, "{scheme}");
        assert!(!format!("{}{}", verified.answer, signed.remarks).contains("PRIVATE"), "{scheme}");
    }

    #[test]
    fn what_a_private_key_signs_its_public_one_verifies() {
        signed_and_verified("discord", PRIVATE, PUBLIC, &[]);
        signed_and_verified("telnyx", PRIVATE, PUBLIC, &[]);
        signed_and_verified("standard-webhooks", &format!("whsk_{PRIVATE}"), &format!("whpk_{PUBLIC}"), &[]);
        signed_and_verified("netlify", "a secret of thirty-two bytes ...", "a secret of thirty-two bytes ...", &[]);
        let url = ["--url", "https://h.example/hooks/wh_1"];
        signed_and_verified(
            "messagebird",
            "a secret of thirty-two bytes ...",
            "a secret of thirty-two bytes ...",
            &url,
        );
    }

    #[test]
    fn signing_with_a_public_key_says_what_is_missing() {
        let words = ["sign", "--scheme", "discord", "--secret", "env:KEY", "--body", "-"];
        let ran = run_with(&words, b"{}", &[("KEY", PUBLIC)]);
        assert_eq!(ran.exit, Exit::Failed);
        assert!(ran.remarks.contains("private key") && ran.remarks.contains("openssl genpkey"), "{}", ran.remarks);
        let ran = run_with(&["sign", "--scheme", "monday", "--secret", "env:KEY", "--body", "-"], b"{}", &[SECRET]);
        assert!(ran.exit == Exit::Usage && ran.remarks.contains("--url"), "{}", ran.remarks);
    }
}
