use std::process::{Command, Output, Stdio};

use tidegate_tests::appliance::binary;
use tidegate_tests::signing;

struct Bench {
    directory: tempfile::TempDir,
}

impl Bench {
    fn new() -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        std::fs::write(directory.path().join("body"), "{\"a\":1}").expect("a body");
        Self { directory }
    }

    /// Runs the command here with the secret in `SECRET`.
    fn run(&self, secret: &str, words: &[&str]) -> Output {
        let command = Command::new(binary())
            .args(words)
            .current_dir(self.directory.path())
            .env("SECRET", secret)
            .stdin(Stdio::null())
            .output();
        command.expect("the command runs")
    }

    /// The headers that `sign` prints, one a line.
    fn signed(&self, scheme: &str, secret: &str, more: &[&str]) -> Vec<String> {
        let words = [&["sign", "--scheme", scheme, "--secret", "env:SECRET", "--body", "body"], more].concat();
        let output = self.run(secret, &words);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "sign --scheme {scheme}: {said}");
        String::from_utf8(output.stdout).expect("UTF-8").lines().map(str::to_owned).collect()
    }

    fn verified(&self, scheme: &str, secret: &str, headers: &[String], more: &[&str]) -> Output {
        let mut words = vec!["verify", "--scheme", scheme, "--secret", "env:SECRET", "--body", "body"];
        for header in headers {
            words.extend(["--header", header]);
        }
        words.extend(more);
        self.run(secret, &words)
    }
}

#[test]
fn what_is_signed_here_verifies_here() {
    let bench = Bench::new();
    let standard = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    for (scheme, secret) in [
        ("github", "a secret"),
        ("stripe", "whsec_something"),
        ("slack", "8f742231b10e8888abcd99yyyzzz85a5"),
        ("shopify", "a secret"),
        ("standard-webhooks", standard),
    ] {
        let headers = bench.signed(scheme, secret, &[]);
        let output = bench.verified(scheme, secret, &headers, &[]);
        assert_eq!(output.status.code(), Some(0), "{scheme}, {headers:?}: {output:?}");

        let output = bench.verified(
            scheme,
            &secret.replace('8', "9").replace("some", "no").replace("a secret", "a guess"),
            &headers,
            &[],
        );
        assert_eq!(output.status.code(), Some(1), "{scheme}: another secret");
        let output = bench.verified(scheme, secret, &[], &["--json"]);
        assert_eq!(output.status.code(), Some(1), "{scheme}: no signature");
        let json: serde_json::Value = serde_json::from_slice(&output.stdout).expect("one object");
        assert_eq!(json["verifies"], false, "{json}");
        assert!(json["reason"].is_string(), "{json}");
    }
}

#[test]
fn a_signature_is_that_of_the_provider() {
    let bench = Bench::new();
    let (name, value) = signing::github(b"a secret", b"{\"a\":1}");
    let signed = bench.signed("github", "a secret", &[]);
    assert!(signed.contains(&format!("{name}: {value}")), "{signed:?}");
    let (name, value) = signing::stripe(b"whsec_x", b"{\"a\":1}", 1_700_000_000);
    let signed = bench.signed("stripe", "whsec_x", &["--at", "1700000000"]);
    assert!(signed.contains(&format!("{name}: {value}")), "{signed:?}");

    // A capture of yesterday is judged as of yesterday.
    let headers = [format!("{name}: {value}")];
    assert_eq!(bench.verified("stripe", "whsec_x", &headers, &[]).status.code(), Some(1), "it is old by now");
    assert_eq!(bench.verified("stripe", "whsec_x", &headers, &["--at", "1700000010"]).status.code(), Some(0));
}

#[test]
fn exit_codes_tell_a_no_from_a_failure() {
    let bench = Bench::new();
    let code = |words: &[&str]| bench.run("s", words).status.code();
    assert_eq!(code(&["verify"]), Some(2), "wrong usage");
    assert_eq!(code(&["no-such-command"]), Some(2));
    let verify = ["verify", "--scheme", "github", "--secret", "env:SECRET", "--body"];
    assert_eq!(code(&[&verify[..], &["no-such-file"]].concat()), Some(3), "it cannot tell");
    assert_eq!(code(&["sign", "--scheme", "no-such", "--secret", "env:SECRET", "--body", "body"]), Some(3));
    assert_eq!(code(&["sign", "--scheme", "github", "--secret", "env:NO_SUCH", "--body", "body"]), Some(3));
    let literal = bench.run("s", &["sign", "--scheme", "github", "--secret", "hunter2canary", "--body", "body"]);
    assert_eq!(literal.status.code(), Some(2), "a secret on a command line is refused");
    assert!(!String::from_utf8_lossy(&literal.stderr).contains("hunter2canary"), "and not repeated");
}
