//! From `[egress.tls]` to what handshakes are answered with: the files that it names, read and judged.

use std::path::Path;

use config::{AtLine, EgressTls, Environment, Fault, TlsVersion};
use domain::Secret;
use listen::{TlsParts, TlsServer, TlsServerFault, Validity, VersionMin};

/// What is in the files; none where no address has TLS, and where something is wrong, which is among the faults then.
pub(super) fn judge(
    tls: &EgressTls,
    path: &Path,
    environment: &dyn Environment,
    now_unix_ms: u64,
    faults: &mut Vec<Fault>,
) -> Option<TlsServer> {
    if tls.listen.is_empty() {
        return None;
    }
    let at = |key: &str| format!("egress.tls.{key}");
    let mut read = |key: &str, reference: &Option<AtLine<String>>| -> Option<Secret> {
        let reference = reference.as_ref()?;
        match config::resolve_secret(&reference.value, environment) {
            Ok(found) => {
                // Others may read a certificate, and everybody is shown it.
                if let Some(warning) = found.warning.filter(|_| key == "key") {
                    faults.push(Fault::warning(path, at(key), warning).at(reference.line));
                }
                Some(found.secret)
            }
            Err(why) => {
                faults.push(Fault::error(path, at(key), why).at(reference.line));
                None
            }
        }
    };
    let certificate = read("certificate", &tls.certificate);
    let key = read("key", &tls.key);
    let client_roots = read("client_roots", &tls.client_roots);
    // Without the authorities it would be another listener than the one that was meant.
    if client_roots.is_none() && tls.client_roots.is_some() {
        return None;
    }
    let parts = TlsParts {
        certificate: certificate.as_ref()?.expose(),
        key: key.as_ref()?.expose(),
        client_roots: client_roots.as_ref().map(Secret::expose),
        version_min: match tls.version_min {
            TlsVersion::Tls12 => VersionMin::Tls12,
            TlsVersion::Tls13 => VersionMin::Tls13,
        },
        http2: tls.http2,
    };
    let line = |reference: &Option<AtLine<String>>| reference.as_ref().map_or(0, |reference| reference.line);
    match TlsServer::new(parts) {
        Ok(server) => {
            let expiry = server.validity().and_then(|validity| not_good(validity, now_unix_ms));
            faults.extend(expiry.map(|why| Fault::warning(path, at("certificate"), why).at(line(&tls.certificate))));
            Some(server)
        }
        Err(fault) => {
            let (key, reference) = match &fault {
                TlsServerFault::Certificate(_) => ("certificate", &tls.certificate),
                TlsServerFault::Key | TlsServerFault::KeyKind(_) | TlsServerFault::Mismatch => ("key", &tls.key),
                TlsServerFault::ClientRoots(_) => ("client_roots", &tls.client_roots),
            };
            faults.push(Fault::error(path, at(key), fault.to_string()).at(line(reference)));
            None
        }
    }
}

/// A certificate that callers will not take now. They would have to say so themselves: it may be our clock.
fn not_good(validity: Validity, now_unix_ms: u64) -> Option<String> {
    let now_unix_s = i64::try_from(now_unix_ms / 1_000).unwrap_or(i64::MAX);
    let shown = |unix_s: i64| crate::control::time::rfc3339(u64::try_from(unix_s).unwrap_or(0).saturating_mul(1_000));
    if validity.not_after_unix_s < now_unix_s {
        let ended = shown(validity.not_after_unix_s);
        return Some(format!("names a certificate that ended at {ended}: callers refuse it; renew it"));
    }
    (validity.not_before_unix_s > now_unix_s).then(|| {
        let begins = shown(validity.not_before_unix_s);
        format!("names a certificate that is good from {begins} on: callers refuse it until then")
    })
}
