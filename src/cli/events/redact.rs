//! What `events show` keeps to itself unless asked: values that let whoever reads them act as somebody else.

use crate::control::wire::{EventLine, Text};

const REDACTED: &str = "[redacted]";

/// Parts of names behind which secrets are kept. A signature is none: it proves this one delivery and no other.
const SECRET_NAMES: [&str; 12] = [
    "authorization",
    "cookie",
    "token",
    "secret",
    "password",
    "passwd",
    "api-key",
    "api_key",
    "apikey",
    "access-key",
    "credential",
    "session",
];

/// Takes the values of secrets-looking headers and query parameters out of an event.
pub(super) fn redact(line: &mut EventLine) {
    for (name, value) in line.headers.iter_mut().flatten() {
        if looks_secret(&name.bytes()) {
            *value = Text::Plain(REDACTED.to_owned());
        }
    }
    if let Text::Plain(target) = &line.target
        && let Some((path, query)) = target.split_once('?')
    {
        let query: Vec<String> = query.split('&').map(redact_parameter).collect();
        line.target = Text::Plain(format!("{path}?{}", query.join("&")));
    }
}

fn redact_parameter(parameter: &str) -> String {
    match parameter.split_once('=') {
        Some((name, _)) if looks_secret(name.as_bytes()) => format!("{name}={REDACTED}"),
        _ => parameter.to_owned(),
    }
}

fn looks_secret(name: &[u8]) -> bool {
    let name = String::from_utf8_lossy(name).to_ascii_lowercase();
    SECRET_NAMES.iter().any(|part| name.contains(part))
}

#[cfg(test)]
mod tests {
    use super::super::sample;
    use super::*;

    #[test]
    fn secrets_go_and_evidence_stays() {
        let mut line = sample::line();
        let header = |name: &str| (Text::Plain(name.to_owned()), Text::Plain("hunter2".to_owned()));
        line.headers = Some(
            ["Authorization", "cookie", "X-GitLab-Token", "X-Hub-Signature-256", "Content-Type"].map(header).into(),
        );
        line.target = Text::Plain("/hooks/wh_1?access_token=hunter2&b=1&token".to_owned());
        redact(&mut line);
        let values: Vec<_> = line.headers.iter().flatten().map(|(_, value)| value.shown(99)).collect();
        assert_eq!(values, ["[redacted]", "[redacted]", "[redacted]", "hunter2", "hunter2"]);
        assert_eq!(line.target.shown(999), "/hooks/wh_1?access_token=[redacted]&b=1&token");
    }
}
