//! Connections: that each leads to a host of its connector, and to where exactly.

use std::collections::BTreeMap;
use std::sync::Arc;

use config::connector::quota::Ceiling;
use config::{Fault, Tenant, TenantEgress};
use domain::ConnectorId;
use outbound::{Host, HostPattern, Scheme, Target};

use super::rules::RuleFile;
use crate::governed::{Connection, Connector};
use crate::policy::{Everybody, Mode, Place, Rule, Rules, TenantPolicy};
use crate::quota::Metering;

/// A connection as calls use it, and where it is written.
#[derive(Debug, Clone)]
pub struct Written {
    /// With its credential.
    pub connection: Arc<Connection>,
    /// Counted from 1.
    pub line: u32,
}

/// The provider's port, on hosts that are not the connection's own.
const HTTPS_PORT: u16 = 443;

pub(super) fn compile(
    egress: &TenantEgress,
    connectors: &BTreeMap<ConnectorId, Arc<Connector>>,
    ceilings: &BTreeMap<ConnectorId, Ceiling>,
    tenant: &Tenant,
    faults: &mut Vec<Fault>,
) -> Box<[Written]> {
    let silent = Ceiling::default();
    let compiled = egress.connections.iter().filter_map(|written| {
        if let (Some(quota), Some(connector)) = (&written.quota, connectors.get(&written.connector)) {
            let ceiling = ceilings.get(&written.connector).unwrap_or(&silent);
            for (line, key, message) in connector.manifest().quota.judge(ceiling, quota) {
                faults.push(tenant.fault(line, format!("connection.{}.{key}", written.id), message));
            }
        }
        let mut say = |key: &str, message: String| {
            faults.push(tenant.fault(written.line, format!("connection.{}.{key}", written.id), message));
        };
        let Some(connector) = connectors.get(&written.connector) else {
            say("connector", unknown(&written.connector, connectors));
            return None;
        };
        let made = check(&written.base_url, connector).and_then(|()| {
            let made = Connection::new(written, egress.credential(written), connector);
            made.map_err(|fault| fault.to_string())
        });
        match made {
            Ok(connection) => {
                let ceiling = ceilings.get(&written.connector).cloned().unwrap_or_default();
                let destination = connection.authority().to_string();
                let of = (connector.manifest(), &*destination);
                let metering = Metering::new(&tenant.id, &written.id, of, (ceiling, written.quota.clone()));
                Some(Written { connection: Arc::new(connection.metered(metering)), line: written.line })
            }
            Err(fault) => {
                say("base_url", fault);
                None
            }
        }
    });
    compiled.collect()
}

/// What can be said in more words than the connection itself has.
fn check(base_url: &str, connector: &Connector) -> Result<(), String> {
    let target = Target::parse(base_url).map_err(|fault| format!("\"{base_url}\" is no destination: {fault}"))?;
    if target.scheme != Scheme::Https {
        return Err(format!("\"{base_url}\" is not https://, and a credential never goes out in the open"));
    }
    let host = target.authority.host();
    if !connector.manifest().is_generic() && !connector.hosts().iter().any(|pattern| pattern.covers(host)) {
        let known: Vec<String> = connector.hosts().iter().map(ToString::to_string).collect();
        let (name, known) = (&connector.manifest().connector, known.join(", "));
        return Err(format!("{host} is no host of the connector {name}, whose credential it would be sent: {known}"));
    }
    Ok(())
}

fn unknown(connector: &ConnectorId, connectors: &BTreeMap<ConnectorId, Arc<Connector>>) -> String {
    let known: Vec<&str> = connectors.keys().map(ConnectorId::as_str).collect();
    format!(
        "\"{connector}\" is no connector; known here: {}; for a provider without one write \"{}\"",
        known.join(", "),
        config::connector::GENERIC
    )
}

impl Written {
    /// The hosts that its calls lead to: its own, and where redirects are followed.
    pub(super) fn rules(&self, file: &RuleFile) -> impl Iterator<Item = Arc<Rule>> {
        let (authority, connector) = (self.connection.authority(), self.connection.connector());
        let own = std::iter::once((HostPattern::Exactly(authority.host().clone()), authority.port()));
        let follows = connector.manifest().redirects.follow;
        let followed = follows.then(|| connector.hosts().iter().chain(connector.elsewhere()));
        let followed = followed.into_iter().flatten().map(|hosts| (hosts.clone(), HTTPS_PORT));
        own.chain(followed).map(|(hosts, port)| {
            let place = Place { file: Arc::clone(&file.file), line: self.line };
            let name = Some(self.connection.id().as_str().into());
            Arc::new(Rule { name, place: Some(place), ports: Some([port].into()), ..Rule::hosts(hosts) })
        })
    }
}

/// Says which connections no call can be made of: somebody wrote them to be used.
pub(super) fn warn_of_denied(
    connections: &[Written],
    everybody: &Everybody,
    policy: &TenantPolicy,
    tenant: &Tenant,
    faults: &mut Vec<Fault>,
) {
    for Written { connection, line } in connections {
        let (host, port) = (connection.authority().host(), connection.authority().port());
        if let Some(rule) = denial(&everybody.deny, host, port).or_else(|| denial(&policy.deny, host, port)) {
            let message = format!("cannot be called: {host} is denied by {rule}");
            let key = format!("connection.{}", connection.id());
            faults.push(Fault::warning(tenant.file(), key, message).at(*line));
        }
    }
}

fn denial<'r>(deny: &'r Rules, host: &Host, port: u16) -> Option<&'r Arc<Rule>> {
    deny.covering(host).find(|rule| {
        let is_whole = rule.methods.is_none() && rule.paths.is_none();
        is_whole && rule.mode == Mode::Enforce && rule.ports.as_ref().is_none_or(|ports| ports.contains(&port))
    })
}
