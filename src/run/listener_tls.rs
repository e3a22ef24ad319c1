//! From `[egress.tls]` to what handshakes are answered with: the files that it names, read and judged; and how long the
//! certificate that is in force is still good.

use std::fmt;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use config::{Appliance, AtLine, EgressTls, Environment, Fault, TlsVersion};
use domain::{Clock, Secret};
use listen::{Tls, TlsParts, TlsServer, TlsServerFault, Validity, VersionMin};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::gauge::ConstGauge;

const DAY_SECONDS: i64 = 86_400;

/// It is told by `/readyz` when fewer days are left: enough for somebody to be back who is away.
const DAYS_MIN: i64 = 14;

/// What a listener is to show, as its file has it.
#[derive(Debug)]
pub(super) struct Wanted<'a> {
    /// The table, such as `egress.tls`.
    table: &'static str,
    is_listened_on: bool,
    certificate: &'a Option<AtLine<String>>,
    key: &'a Option<AtLine<String>>,
    client_roots: &'a Option<AtLine<String>>,
    version_min: TlsVersion,
    http2: bool,
}

impl<'a> Wanted<'a> {
    pub(super) fn of_egress(tls: &'a EgressTls) -> Self {
        Self {
            table: "egress.tls",
            is_listened_on: !tls.listen.is_empty(),
            certificate: &tls.certificate,
            key: &tls.key,
            client_roots: &tls.client_roots,
            version_min: tls.version_min,
            http2: tls.http2,
        }
    }

    pub(super) fn of_runner(appliance: &'a Appliance) -> Self {
        let tls = &appliance.runner.api.tls;
        Self {
            table: "runner.api.tls",
            is_listened_on: !tls.listen.is_empty(),
            certificate: &tls.certificate,
            key: &tls.key,
            client_roots: &None,
            version_min: tls.version_min,
            http2: tls.http2,
        }
    }
}

/// What is in the files; none where no address has TLS, and where something is wrong, which is among the faults then.
pub(super) fn judge(
    tls: &Wanted<'_>,
    path: &Path,
    environment: &dyn Environment,
    now_unix_ms: u64,
    faults: &mut Vec<Fault>,
) -> Option<TlsServer> {
    if !tls.is_listened_on {
        return None;
    }
    let at = |key: &str| format!("{}.{key}", tls.table);
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
    let certificate = read("certificate", tls.certificate);
    let key = read("key", tls.key);
    let client_roots = read("client_roots", tls.client_roots);
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
            faults.extend(expiry.map(|why| Fault::warning(path, at("certificate"), why).at(line(tls.certificate))));
            Some(server)
        }
        Err(fault) => {
            let (key, reference) = match &fault {
                TlsServerFault::Certificate(_) => ("certificate", tls.certificate),
                TlsServerFault::Key | TlsServerFault::KeyKind(_) | TlsServerFault::Mismatch => ("key", tls.key),
                TlsServerFault::ClientRoots(_) => ("client_roots", tls.client_roots),
            };
            faults.push(Fault::error(path, at(key), fault.to_string()).at(line(reference)));
            None
        }
    }
}

/// The certificate that callers are shown, watched: a load judges it once, and it ends with no load.
#[derive(Debug, Clone)]
pub(super) struct Expiry {
    /// Empty where no address has TLS.
    pub(super) listener: Arc<OnceLock<Tls>>,
    pub(super) clock: Arc<dyn Clock>,
}

impl Expiry {
    /// What is wrong with it, now.
    pub(super) fn alarms(&self) -> Vec<String> {
        self.validity().and_then(|validity| ends_soon(validity, self.clock.unix_ms())).into_iter().collect()
    }

    fn validity(&self) -> Option<Validity> {
        self.listener.get()?.validity()
    }
}

impl Collector for Expiry {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let Some(validity) = self.validity() else { return Ok(()) };
        let gauge = ConstGauge::new(days_left(validity, self.clock.unix_ms()));
        let help = "Days until the certificate ends that callers are shown";
        let name = "egress_listener_certificate_days_valid";
        gauge.encode(encoder.encode_descriptor(name, help, None, gauge.metric_type())?)
    }
}

/// Whole days; below zero once it has ended.
fn days_left(validity: Validity, now_unix_ms: u64) -> i64 {
    validity.not_after_unix_s.saturating_sub(seconds(now_unix_ms)).div_euclid(DAY_SECONDS)
}

fn ends_soon(validity: Validity, now_unix_ms: u64) -> Option<String> {
    let days = days_left(validity, now_unix_ms);
    let at = shown(validity.not_after_unix_s);
    match days {
        DAYS_MIN.. => None,
        0.. => Some(format!("the certificate of egress.tls ends at {at}, in {days} days: renew it")),
        _ => Some(format!("the certificate of egress.tls ended at {at}: callers refuse it; renew it")),
    }
}

fn seconds(unix_ms: u64) -> i64 {
    i64::try_from(unix_ms / 1_000).unwrap_or(i64::MAX)
}

fn shown(unix_s: i64) -> String {
    crate::control::time::rfc3339(u64::try_from(unix_s).unwrap_or(0).saturating_mul(1_000))
}

/// A certificate that callers will not take now. They would have to say so themselves: it may be our clock.
fn not_good(validity: Validity, now_unix_ms: u64) -> Option<String> {
    let now_unix_s = seconds(now_unix_ms);
    if validity.not_after_unix_s < now_unix_s {
        let ended = shown(validity.not_after_unix_s);
        return Some(format!("names a certificate that ended at {ended}: callers refuse it; renew it"));
    }
    (validity.not_before_unix_s > now_unix_s).then(|| {
        let begins = shown(validity.not_before_unix_s);
        format!("names a certificate that is good from {begins} on: callers refuse it until then")
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use domain::ManualClock;
    use listen::TlsBounds;

    use super::*;

    const DAY_MS: u64 = 86_400_000;

    #[test]
    fn a_certificate_that_is_about_to_end_is_told_of_without_a_load() {
        // One that ends at the end of 2049.
        let mut params = rcgen::CertificateParams::new(["edge.test".to_owned()]).unwrap();
        params.not_after = rcgen::date_time_ymd(2050, 1, 1);
        let key = rcgen::KeyPair::generate().unwrap();
        let (certificate, key) = (params.self_signed(&key).unwrap().pem(), key.serialize_pem());
        let server = TlsServer::new(TlsParts {
            certificate: certificate.as_bytes(),
            key: key.as_bytes(),
            client_roots: None,
            version_min: VersionMin::Tls12,
            http2: false,
        });
        let bounds = TlsBounds { handshake_timeout: Duration::from_secs(1), http2_streams_max: 1 };
        let ends_ms = 2_524_608_000_000;
        let clock = ManualClock::at_unix_ms(ends_ms - 14 * DAY_MS);
        let expiry = Expiry { listener: Arc::default(), clock: Arc::clone(&clock) as _ };
        let gauge = || {
            let mut registry = prometheus_client::registry::Registry::default();
            registry.register_collector(Box::new(expiry.clone()));
            let mut text = String::new();
            prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
            text.lines().find(|line| !line.starts_with('#')).map(ToOwned::to_owned)
        };
        assert_eq!((expiry.alarms(), gauge()), (Vec::new(), None), "there is no TLS");
        expiry.listener.set(Tls::new(server.unwrap(), bounds)).unwrap();
        let left = |days: i64| Some(format!("egress_listener_certificate_days_valid {days}"));
        assert_eq!((expiry.alarms(), gauge()), (Vec::new(), left(14)));
        clock.advance(Duration::from_secs(1));
        let alarms = expiry.alarms();
        assert!(alarms.len() == 1 && alarms[0].contains("ends at 2050-01-01T00:00:00.000Z, in 13 days"), "{alarms:?}");
        clock.advance(Duration::from_millis(14 * DAY_MS));
        let alarms = expiry.alarms();
        assert!(alarms.len() == 1 && alarms[0].contains("ended at 2050-01-01T00:00:00.000Z"), "{alarms:?}");
        assert_eq!(gauge(), left(-1));
    }
}
