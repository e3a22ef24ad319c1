//! Where a command finds a secret. Never on the command line itself: other users can read that, and shells keep it.

use std::convert::Infallible;
use std::fmt;
use std::io::Read;
use std::str::FromStr;

use config::{Environment, ResolvedSecret};
use domain::Secret;

use super::capture;
use super::exit::{Failure, Outcome};

/// `-`, or a reference as the appliance's file has them: `env:NAME`, `file:PATH`, `systemd-credential:NAME`.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Reference(Box<str>);

impl fmt::Debug for Reference {
    /// It may be the secret itself, given by mistake.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Reference(…)")
    }
}

impl FromStr for Reference {
    type Err = Infallible;

    /// Never fails: the argument parser would print the text that it could not read.
    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(Self(text.into()))
    }
}

impl Reference {
    /// The secret, and what somebody should know about where it was found.
    pub(crate) fn resolve(&self, environment: &dyn Environment, stdin: &mut dyn Read) -> Outcome<ResolvedSecret> {
        if &*self.0 == "-" {
            // One line end behind it is the terminal's and not the secret's.
            let secret = Secret::new(without_line_end(capture::read("-".as_ref(), stdin)?));
            return Ok(ResolvedSecret { secret, warning: None });
        }
        let known = ["env:", "file:", "systemd-credential:"].iter().any(|kind| self.0.starts_with(kind));
        if !known {
            return Err(Failure::usage(
                "--secret takes a reference, not a secret",
                "write env:NAME, file:PATH, or - for standard input; \
                 if that was the secret, it is in your shell's history now",
            ));
        }
        config::resolve_secret(&self.0, environment).map_err(|fault| {
            Failure::failed(
                format_args!("--secret {fault}"),
                "name another place, or give the secret on standard input with -",
            )
        })
    }
}

fn without_line_end(mut bytes: Vec<u8>) -> Vec<u8> {
    if bytes.last() == Some(&b'\n') {
        bytes.pop();
        if bytes.last() == Some(&b'\r') {
            bytes.pop();
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use config::MapEnvironment;

    use super::super::exit::Exit;
    use super::*;

    fn resolve(text: &str, stdin: &str) -> Outcome<Vec<u8>> {
        let environment = MapEnvironment::new([("KEY", "from the environment")]);
        let reference: Reference = text.parse().unwrap();
        let resolved = reference.resolve(&environment, &mut stdin.as_bytes());
        resolved.map(|resolved| resolved.secret.expose().to_vec())
    }

    #[test]
    fn references_lead_to_secrets() {
        assert_eq!(resolve("env:KEY", "").unwrap(), b"from the environment");
        assert_eq!(resolve("-", "typed\n").unwrap(), b"typed");
        assert_eq!(resolve("-", "two\n\n").unwrap(), b"two\n");
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "in a file\n").unwrap();
        assert_eq!(resolve(&format!("file:{}", file.path().display()), "").unwrap(), b"in a file");
    }

    #[test]
    fn a_literal_secret_is_refused_and_never_repeated() {
        for text in ["hunter2", "whsec_hunter2", "plain:hunter2", "secret:hunter2", ""] {
            let failure = resolve(text, "").unwrap_err();
            assert_eq!(failure.exit(), Exit::Usage, "{text}");
            assert!(!format!("{failure:?}{:?}", text.parse::<Reference>()).contains("hunter2"));
        }
    }

    #[test]
    fn a_missing_variable_says_which() {
        let failure = resolve("env:OTHER", "").unwrap_err();
        assert_eq!(failure.exit(), Exit::Failed);
        assert!(failure.complaint().unwrap().what.contains("OTHER"));
    }
}
