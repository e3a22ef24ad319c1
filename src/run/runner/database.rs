//! From `[runner.postgres]` to the settings of what asks it: the secrets that it names, read and judged, and the way there,
//! through the one crate that dials.

use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ::config::{Appliance, AtLine, Environment, Fault, RunnerStore};
use async_trait::async_trait;
use domain::Secret;
use egress::settings;
use outbound::dial::{ClientIdentity, DialSettings};
use outbound::resolve::DnsResolver;
use outbound::{OperatorDialer, Roots, TlsClient};
use runner::postgres::{Dial, PostgresSettings, Stream, ask_for_tls};

/// For all of opening a connection: name, TCP, TLS and login.
const DIAL_LIMIT: Duration = Duration::from_secs(5);

/// What the file names, read.
#[derive(Debug)]
struct Parts {
    password: Option<Secret>,
    tls: Option<TlsClient>,
}

/// Says what is wrong with what the file names; nobody is dialled for it.
pub(super) fn judge(appliance: &Appliance, path: &Path, environment: &dyn Environment, faults: &mut Vec<Fault>) {
    if appliance.runner.store == RunnerStore::Postgres {
        let mut reading = Reading { path, environment, faults, is_whole: true };
        drop(reading.parts(appliance));
    }
}

/// The settings of the database, with secrets as they are now.
///
/// # Errors
/// In words: what was there when the file was judged is not any more.
pub(super) fn settings(appliance: &Appliance, environment: &dyn Environment) -> Result<PostgresSettings, String> {
    let mut faults = Vec::new();
    let mut reading = Reading { path: Path::new(""), environment, faults: &mut faults, is_whole: true };
    let Some(Parts { password, tls }) = reading.parts(appliance) else {
        let first = faults.iter().find(|fault| ::config::has_errors(std::slice::from_ref(fault)));
        return Err(first.map_or_else(|| "it is not configured".to_owned(), ToString::to_string));
    };
    let file = &appliance.runner.postgres;
    let address = file.address.as_deref().and_then(|address| address.rsplit_once(':'));
    let (host, port) = address.and_then(|(host, port)| Some((host, port.parse().ok()?))).ok_or("it has no address")?;
    let system = appliance.egress.dns.servers_or_system().map_err(|fault| format!("there is no DNS: {fault}"))?;
    let (dns, _) = settings::dns(&appliance.egress.dns, &system);
    let resolver = DnsResolver::new(&dns).map_err(|fault| format!("there is no DNS: {fault}"))?;
    let patience =
        DialSettings { attempt_timeout: DIAL_LIMIT / 2, connect_timeout: DIAL_LIMIT, ..DialSettings::default() };
    let dialer = OperatorDialer::new(Arc::new(resolver), patience);
    let dial = Arc::new(Through { host: host.trim_matches(['[', ']']).into(), port, dialer, tls });
    Ok(PostgresSettings {
        connections: usize::from(file.connections),
        connect_within: DIAL_LIMIT,
        // The server gives a statement up at four fifths of it.
        answer_within: file.statement_timeout * 5 / 4,
        ..PostgresSettings::new(dial, &file.user, password, &file.database)
    })
}

/// The way there. It belongs to the runtime that dials.
struct Through {
    host: Box<str>,
    port: u16,
    dialer: OperatorDialer,
    tls: Option<TlsClient>,
}

#[async_trait]
impl Dial for Through {
    async fn dial(&self) -> io::Result<Box<dyn Stream>> {
        let mut stream = self.dialer.dial(&self.host, self.port).await.map_err(io::Error::other)?;
        let Some(tls) = &self.tls else { return Ok(Box::new(stream)) };
        ask_for_tls(&mut stream).await?;
        let shaken = OperatorDialer::shake_hands(&self.host, self.port, stream, tls, DIAL_LIMIT).await;
        Ok(Box::new(shaken.map_err(io::Error::other)?))
    }
}

impl fmt::Debug for Through {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Through").field("host", &self.host).field("port", &self.port).finish_non_exhaustive()
    }
}

struct Reading<'r> {
    path: &'r Path,
    environment: &'r dyn Environment,
    faults: &'r mut Vec<Fault>,
    /// Everything that is named was there.
    is_whole: bool,
}

impl Reading<'_> {
    fn parts(&mut self, appliance: &Appliance) -> Option<Parts> {
        let file = &appliance.runner.postgres;
        let password = self.secret("password", file.password.as_ref());
        let tls = if file.tls.enabled { self.tls(&file.tls) } else { None };
        self.is_whole.then_some(Parts { password, tls })
    }

    fn fault(&mut self, key: &str, line: u32, message: String) {
        self.is_whole = false;
        self.faults.push(Fault::error(self.path, format!("runner.postgres.{key}"), message).at(line));
    }

    fn secret(&mut self, key: &str, reference: Option<&AtLine<String>>) -> Option<Secret> {
        let AtLine { value, line } = reference?;
        match ::config::resolve_secret(value, self.environment) {
            Ok(found) => {
                // Others may read a certificate.
                if let Some(warning) = found.warning.filter(|_| !matches!(key, "tls.roots" | "tls.certificate")) {
                    self.faults.push(Fault::warning(self.path, format!("runner.postgres.{key}"), warning).at(*line));
                }
                Some(found.secret)
            }
            Err(why) => {
                self.fault(key, *line, why);
                None
            }
        }
    }

    fn tls(&mut self, file: &::config::RunnerPostgresTls) -> Option<TlsClient> {
        let roots = self.secret("tls.roots", file.roots.as_ref());
        let certificate = self.secret("tls.certificate", file.certificate.as_ref());
        let key = self.secret("tls.key", file.key.as_ref());
        if !self.is_whole {
            return None;
        }
        let line = |reference: &Option<AtLine<String>>| reference.as_ref().map_or(0, |reference| reference.line);
        let roots = match &roots {
            Some(pem) => Roots::from_pem(pem.expose()),
            None => Roots::of_the_system(),
        };
        let roots = match roots {
            Ok(roots) => roots,
            Err(fault) => {
                self.fault("tls.roots", line(&file.roots), fault.to_string());
                return None;
            }
        };
        let identity = certificate.zip(key);
        let identity = identity.map(|(chain, key)| ClientIdentity::from_pem(chain.expose(), key.expose())).transpose();
        // It is spoken after a message of PostgreSQL's own, and asks for no protocol.
        match identity.and_then(|identity| TlsClient::new(&roots, identity, &[])) {
            Ok(client) => Some(client),
            Err(fault @ outbound::dial::TlsSettingsFault::Key) => {
                self.fault("tls.key", line(&file.key), fault.to_string());
                None
            }
            Err(fault) => {
                self.fault("tls.certificate", line(&file.certificate), fault.to_string());
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use ::config::MapEnvironment;

    use super::*;

    fn appliance(text: &str) -> Appliance {
        let text = format!(
            "[gateway]\npublic_url = \"https://a.example.com\"\n[egress]\n[egress.dns]\nservers = [\"127.0.0.1\"]\n\
             [[egress.issuer]]\nname = \"x\"\nkeys = [\"ed25519:x\"]\ntenants = [\"*\"]\nsigning_key = \"env:K\"\n\
             [runner]\nstore = \"postgres\"\n[runner.postgres]\naddress = \"127.0.0.1:5432\"\n{text}"
        );
        let (appliance, faults) = ::config::parse_appliance(Path::new("tidegate.toml"), text.as_bytes());
        appliance.unwrap_or_else(|| panic!("{faults:?}"))
    }

    fn judged(text: &str, environment: &MapEnvironment) -> Vec<String> {
        let mut faults = Vec::new();
        judge(&appliance(text), Path::new("tidegate.toml"), environment, &mut faults);
        faults.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn what_is_named_is_read_before_anybody_is_dialled() {
        let environment = MapEnvironment::new([("PASSWORD", "hunter2"), ("ROOTS", "no PEM")]);
        assert_eq!(judged("password = \"env:PASSWORD\"\n", &environment), Vec::<String>::new());
        let cases = [
            ("password = \"env:NONE\"\n", "runner.postgres.password"),
            ("[runner.postgres.tls]\nroots = \"env:ROOTS\"\n", "runner.postgres.tls.roots"),
            ("[runner.postgres.tls]\nroots = \"env:NONE\"\n", "runner.postgres.tls.roots"),
        ];
        for (text, key) in cases {
            let faults = judged(text, &environment);
            assert!(faults.len() == 1 && faults[0].contains(key), "{text}: {faults:?}");
        }
    }

    #[test]
    fn certificate_and_key_make_an_identity_or_are_named() {
        let made = rcgen::generate_simple_self_signed(["postgres.internal".to_owned()]).unwrap();
        let (pem, key) = (made.cert.pem(), made.signing_key.serialize_pem());
        let text = "[runner.postgres.tls]\nroots = \"env:ROOTS\"\ncertificate = \"env:CERT\"\nkey = \"env:KEY\"\n";
        let good = MapEnvironment::new([("ROOTS", &pem), ("CERT", &pem), ("KEY", &key)]);
        assert_eq!(judged(text, &good), Vec::<String>::new());
        let bad = MapEnvironment::new([("ROOTS", &pem), ("CERT", &pem), ("KEY", &pem)]);
        let faults = judged(text, &bad);
        assert!(faults.len() == 1 && faults[0].contains("runner.postgres.tls.key"), "{faults:?}");
    }

    #[tokio::test]
    async fn a_statement_has_the_time_of_the_file_and_secrets_are_not_shown() {
        let environment = MapEnvironment::new([("PASSWORD", "hunter2")]);
        let text = "password = \"env:PASSWORD\"\nstatement_timeout = \"2s\"\nconnections = 3\n";
        let settings = settings(&appliance(text), &environment).unwrap();
        assert_eq!((settings.answer_within, settings.connections), (Duration::from_millis(2_500), 3));
        assert_eq!((&*settings.user, &*settings.database), ("tidegate", "tidegate"));
        assert!(!format!("{settings:?}").contains("hunter2"));
    }

    #[test]
    fn what_the_file_lets_pass_of_a_payload_the_database_takes() {
        assert_eq!(::config::RUNNER_SHARED_PAYLOAD_BYTES_MAX, runner::postgres::BLOB_BYTES_MAX);
    }
}
