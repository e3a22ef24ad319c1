//! The way to the way out: dialled as everything is, with grants that the runner's key has signed.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use config::{Appliance, AtLine, Environment};
use domain::Clock;
use egress::caller::NewGrant;
use egress::settings;
use outbound::dial::DialSettings;
use outbound::resolve::DnsResolver;
use outbound::{Alpn, OperatorDialer, Roots, TlsClient};
use runner::call::egress::{Dial, GrantFor, Grants, Minted, NoGrant, Stream};
use runner::ledger::BoxFuture;

use super::config::InForce;

/// How long a grant lives: several tries of a step, and no longer than a run that has ended should be able to call.
const GRANT_LIVES: Duration = Duration::from_mins(5);

/// For all of opening a connection.
const DIAL_LIMIT: Duration = Duration::from_secs(5);

/// Where calls are let out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct WayOut {
    pub(super) host: Box<str>,
    pub(super) port: u16,
    pub(super) has_tls: bool,
}

impl WayOut {
    /// The one that the file names, or this file's own. None is told where the file is judged.
    pub(super) fn of(appliance: &Appliance) -> Option<Self> {
        let Some(AtLine { value, .. }) = &appliance.runner.egress else {
            let own = appliance.egress.listen.first()?;
            // Whoever listens on every address listens on this machine's own.
            let host = if own.ip().is_unspecified() { "localhost".to_owned() } else { own.ip().to_string() };
            return Some(Self { host: host.into(), port: own.port(), has_tls: false });
        };
        let (scheme, authority) = value.split_once("://")?;
        let (host, port) = authority.rsplit_once(':')?;
        let host = host.trim_matches(['[', ']']);
        Some(Self { host: host.into(), port: port.parse().ok()?, has_tls: scheme == "https" })
    }

    /// As `Host` has it.
    pub(super) fn authority(&self) -> String {
        let (host, port) = (&self.host, self.port);
        if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
    }
}

/// Opens connections to it.
pub(super) struct Dialling {
    way_out: WayOut,
    dialer: OperatorDialer,
    tls: Option<TlsClient>,
}

impl Dialling {
    /// Belongs to the runtime that dials.
    pub(super) fn new(way_out: WayOut, appliance: &Appliance, environment: &dyn Environment) -> Result<Self, String> {
        let file = &appliance.egress.dns;
        let system = file.servers_or_system().map_err(|fault| format!("there is no DNS: {fault}"))?;
        let (dns, _) = settings::dns(file, &system);
        let resolver = DnsResolver::new(&dns).map_err(|fault| format!("there is no DNS: {fault}"))?;
        let patience =
            DialSettings { attempt_timeout: DIAL_LIMIT / 2, connect_timeout: DIAL_LIMIT, ..DialSettings::default() };
        let tls = if way_out.has_tls { Some(tls(appliance, environment)?) } else { None };
        Ok(Self { way_out, dialer: OperatorDialer::new(Arc::new(resolver), patience), tls })
    }
}

fn tls(appliance: &Appliance, environment: &dyn Environment) -> Result<TlsClient, String> {
    let roots = match &appliance.runner.egress_roots {
        Some(reference) => {
            let found = config::resolve_secret(&reference.value, environment)
                .map_err(|fault| format!("runner.egress_roots {fault}"))?;
            Roots::from_pem(found.secret.expose())
        }
        None => Roots::of_the_system(),
    };
    let roots = roots.map_err(|fault| format!("nobody vouches for runner.egress: {fault}"))?;
    // The client speaks HTTP/1.1.
    TlsClient::new(&roots, None, &[Alpn::Http11]).map_err(|fault| format!("there is no TLS: {fault}"))
}

impl Dial for Dialling {
    fn dial(&self) -> BoxFuture<'_, io::Result<Box<dyn Stream>>> {
        Box::pin(async move {
            let WayOut { host, port, .. } = &self.way_out;
            let Some(tls) = &self.tls else {
                let stream = self.dialer.dial(host, *port).await.map_err(io::Error::other)?;
                return Ok(Box::new(stream) as Box<dyn Stream>);
            };
            let stream = self.dialer.dial_tls(host, *port, tls, DIAL_LIMIT).await.map_err(io::Error::other)?;
            Ok(Box::new(stream) as Box<dyn Stream>)
        })
    }
}

impl fmt::Debug for Dialling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dialling").field("way_out", &self.way_out).finish_non_exhaustive()
    }
}

/// Signs grants with the key that is in force.
#[derive(Debug)]
pub(super) struct Signing {
    pub(super) config: Arc<ArcSwap<InForce>>,
    pub(super) clock: Arc<dyn Clock>,
}

impl Grants for Signing {
    fn mint(&self, grant: GrantFor) -> BoxFuture<'_, Result<Minted, NoGrant>> {
        Box::pin(async move {
            let config = self.config.load();
            let signer = config.signer.as_ref().ok_or_else(|| NoGrant("nobody vouches for runs".into()))?;
            let mut new = NewGrant::new(&signer.issuer, &signer.audience, grant.tenant);
            new.connections = vec![grant.connection];
            new.run = Some(grant.run.to_string().into());
            new.automation = Some(grant.automation.to_string().into());
            new.class = grant.is_bulk.then(|| "bulk".into());
            let minted = new.mint(&signer.key, self.clock.unix_ms(), GRANT_LIVES);
            let minted = minted.map_err(|_| NoGrant("the operating system gives no randomness".into()))?;
            Ok(Minted { grant: minted.token, lives: GRANT_LIVES })
        })
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn way_out(text: &str) -> Option<WayOut> {
        let text = format!(
            "[gateway]\npublic_url = \"https://a.example.com\"\n[egress]\n{text}[runner.issuer]\nname = \"x\"\nsigning_key = \"env:K\"\n"
        );
        let (appliance, faults) = config::parse_appliance(Path::new("tidegate.toml"), text.as_bytes());
        WayOut::of(&appliance.unwrap_or_else(|| panic!("{faults:?}")))
    }

    #[test]
    fn the_way_out_is_the_named_one_or_the_one_beside() {
        let own = "[[egress.issuer]]\nname = \"x\"\nkeys = [\"ed25519:x\"]\ntenants = [\"*\"]\n";
        let beside = way_out(&format!("listen = [\"127.0.0.1:3128\"]\n{own}")).unwrap();
        assert_eq!((beside.authority().as_str(), beside.has_tls), ("127.0.0.1:3128", false));
        assert_eq!(way_out(&format!("listen = [\"0.0.0.0:3128\"]\n{own}")).unwrap().authority(), "localhost:3128");
        let afar = way_out(&format!("{own}[runner]\negress = \"https://egress.internal:3129\"\n")).unwrap();
        assert_eq!((afar.authority().as_str(), afar.has_tls), ("egress.internal:3129", true));
        let v6 = way_out(&format!("{own}[runner]\negress = \"http://[::1]:3128\"\n")).unwrap();
        assert_eq!((&*v6.host, v6.authority().as_str()), ("::1", "[::1]:3128"));
    }
}
