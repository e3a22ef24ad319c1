//! From `[quota.redis]` to the settings of what asks it: the secrets that it names, read and judged.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use config::{AtLine, Environment, Fault, Quota, QuotaStore, RedisMode};
use domain::Secret;
use outbound::Roots;
use ratelimit::quota::redis::{
    Address, Credentials, Dial, InvalidAddress, RedisSettings, Servers, TlsFault, client_config_of,
};

/// For all of opening a connection: name, TCP, TLS, login, library. Nobody waits for it longer than for an answer.
pub(super) const DIAL_LIMIT: Duration = Duration::from_secs(2);

/// What the file names, read.
#[derive(Debug)]
pub(super) struct Parts {
    servers: Servers,
    credentials: Credentials,
    tls: Option<Tls>,
}

#[derive(Debug)]
struct Tls {
    roots: Roots,
    identity: Option<(Secret, Secret)>,
}

impl Tls {
    fn identity(&self) -> Option<(&[u8], &[u8])> {
        self.identity.as_ref().map(|(certificate, key)| (certificate.expose(), key.expose()))
    }
}

/// Reads and judges it; none where the store is another one, and where something is wrong, which is among the faults then.
pub(super) fn judge(
    quota: &Quota,
    path: &Path,
    environment: &dyn Environment,
    faults: &mut Vec<Fault>,
) -> Option<Parts> {
    if quota.store != QuotaStore::Redis {
        return None;
    }
    let mut reading = Reading { path, environment, faults, is_whole: true };
    let file = &quota.redis;
    let password = reading.secret("password", file.password.as_ref());
    let sentinel_password = reading.secret("sentinel_password", file.sentinel_password.as_ref());
    let tls = if file.tls.enabled { reading.tls(&file.tls) } else { None };
    if !reading.is_whole {
        return None;
    }
    if file.addresses.is_empty() {
        // Told already, with the line, where the file was judged.
        return None;
    }
    let servers = match servers(quota, sentinel_password) {
        Ok(servers) => servers,
        Err(fault) => {
            faults.push(Fault::error(path, "quota.redis.addresses", fault.to_string()));
            return None;
        }
    };
    let credentials = Credentials { user: file.user.clone(), password };
    Some(Parts { servers, credentials, tls })
}

/// The settings of the centre.
pub(super) fn settings(parts: Parts, quota: &Quota, dial: Arc<dyn Dial>) -> Result<RedisSettings, TlsFault> {
    let Parts { servers, credentials, tls } = parts;
    let tls = tls.map(|tls| client_config_of(tls.roots.store(), tls.identity())).transpose()?;
    let usual = RedisSettings::new(servers, dial);
    Ok(RedisSettings { credentials, tls, budget: quota.budget, dial_limit: DIAL_LIMIT, ..usual })
}

fn servers(quota: &Quota, sentinel_password: Option<Secret>) -> Result<Servers, InvalidAddress> {
    let file = &quota.redis;
    let addresses: Vec<_> = file.addresses.iter().map(|text| Address::parse(text)).collect::<Result<_, _>>()?;
    Ok(match file.mode {
        RedisMode::Standalone => Servers::One(addresses.into_iter().next().ok_or(InvalidAddress)?),
        RedisMode::Sentinel => Servers::Sentinel {
            sentinels: addresses,
            name: file.sentinel_name.clone().unwrap_or_default(),
            credentials: Credentials { user: file.sentinel_user.clone(), password: sentinel_password },
        },
        RedisMode::Cluster => Servers::Cluster(addresses),
    })
}

struct Reading<'r> {
    path: &'r Path,
    environment: &'r dyn Environment,
    faults: &'r mut Vec<Fault>,
    /// Everything that is named was there.
    is_whole: bool,
}

impl Reading<'_> {
    fn fault(&mut self, key: &str, line: u32, message: String) {
        self.is_whole = false;
        self.faults.push(Fault::error(self.path, format!("quota.redis.{key}"), message).at(line));
    }

    fn secret(&mut self, key: &str, reference: Option<&AtLine<String>>) -> Option<Secret> {
        let AtLine { value, line } = reference?;
        match config::resolve_secret(value, self.environment) {
            Ok(found) => {
                // Others may read a certificate.
                if let Some(warning) = found.warning.filter(|_| !matches!(key, "tls.roots" | "tls.certificate")) {
                    self.faults.push(Fault::warning(self.path, format!("quota.redis.{key}"), warning).at(*line));
                }
                Some(found.secret)
            }
            Err(why) => {
                self.fault(key, *line, why);
                None
            }
        }
    }

    fn tls(&mut self, file: &config::QuotaRedisTls) -> Option<Tls> {
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
        let tls = Tls { roots, identity: certificate.zip(key) };
        if let Err(fault) = client_config_of(tls.roots.store(), tls.identity()) {
            let (key, line) = match fault {
                TlsFault::Key => ("tls.key", line(&file.key)),
                TlsFault::Certificates | TlsFault::Identity => ("tls.certificate", line(&file.certificate)),
            };
            self.fault(key, line, fault.to_string());
            return None;
        }
        Some(tls)
    }
}

#[cfg(test)]
mod tests {
    use config::MapEnvironment;

    use super::*;

    fn judged(text: &str, environment: &MapEnvironment) -> (Option<Parts>, Vec<String>) {
        let path = Path::new("tidegate.toml");
        let text = format!("[egress]\n[quota]\nstore = \"redis\"\n[quota.redis]\n{text}");
        let (appliance, faults) = config::parse_appliance(path, text.as_bytes());
        let quota = appliance.unwrap_or_else(|| panic!("{faults:?}")).quota;
        let mut faults = Vec::new();
        let parts = judge(&quota, path, environment, &mut faults);
        (parts, faults.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn servers_are_those_of_the_file() {
        let environment = MapEnvironment::new([("PASSWORD", "hunter2"), ("SENTINEL", "hunter3")]);
        let (parts, faults) = judged(
            "addresses = [\"localhost:6379\"]\nuser = \"tidegate\"\npassword = \"env:PASSWORD\"\n",
            &environment,
        );
        assert!(faults.is_empty(), "{faults:?}");
        let parts = parts.unwrap();
        assert!(matches!(&parts.servers, Servers::One(address) if address.to_string() == "localhost:6379"));
        assert_eq!(parts.credentials.user.as_deref(), Some("tidegate"));
        assert_eq!(parts.credentials.password.as_ref().map(Secret::expose), Some(&b"hunter2"[..]));
        assert!(!format!("{parts:?}").contains("hunter2"));

        let sentinel = "mode = \"sentinel\"\naddresses = [\"[::1]:26379\", \"b:1\"]\nsentinel_name = \"main\"\nsentinel_password = \"env:SENTINEL\"\n";
        let Some(Parts { servers: Servers::Sentinel { sentinels, name, credentials }, .. }) =
            judged(sentinel, &environment).0
        else {
            panic!()
        };
        assert_eq!((sentinels.len(), name.as_str(), credentials.user), (2, "main", None));
        assert_eq!(credentials.password.as_ref().map(Secret::expose), Some(&b"hunter3"[..]));
        let cluster = judged("mode = \"cluster\"\naddresses = [\"a:1\", \"b:1\"]\n", &environment).0.unwrap();
        assert!(matches!(&cluster.servers, Servers::Cluster(seeds) if seeds.len() == 2) && cluster.tls.is_none());
    }

    #[test]
    fn what_is_missing_or_is_no_pem_is_said_at_its_key() {
        let environment = MapEnvironment::new([("ROOTS", "no PEM")]);
        let cases = [
            ("addresses = [\"a:1\"]\npassword = \"env:NONE\"\n", "quota.redis.password"),
            ("addresses = [\"a:1\"]\n[quota.redis.tls]\nroots = \"env:ROOTS\"\n", "quota.redis.tls.roots"),
            ("addresses = [\"a:1\"]\n[quota.redis.tls]\nroots = \"env:NONE\"\n", "quota.redis.tls.roots"),
        ];
        for (text, key) in cases {
            let (parts, faults) = judged(text, &environment);
            assert!(parts.is_none(), "{text}");
            assert!(faults.len() == 1 && faults[0].contains(key), "{text}: {faults:?}");
        }
    }

    #[test]
    fn certificate_and_key_are_judged_before_anybody_is_dialled() {
        let made = rcgen::generate_simple_self_signed(["redis.internal".to_owned()]).unwrap();
        let (pem, key) = (made.cert.pem(), made.signing_key.serialize_pem());
        let text = "addresses = [\"a:1\"]\n[quota.redis.tls]\nroots = \"env:ROOTS\"\ncertificate = \"env:CERT\"\nkey = \"env:KEY\"\n";
        let good = MapEnvironment::new([("ROOTS", &pem), ("CERT", &pem), ("KEY", &key)]);
        let (parts, faults) = judged(text, &good);
        assert!(faults.is_empty(), "{faults:?}");
        assert!(parts.unwrap().tls.unwrap().identity.is_some());
        let bad = MapEnvironment::new([("ROOTS", &pem), ("CERT", &pem), ("KEY", &pem)]);
        let (parts, faults) = judged(text, &bad);
        assert!(parts.is_none() && faults[0].contains("quota.redis.tls.key"), "{faults:?}");
    }
}
