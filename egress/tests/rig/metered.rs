//! A node's quota, and connections to providers whose limits are known.

use std::sync::Arc;
use std::time::Duration;

use config::connector::quota::Ceiling;
use domain::{Clock, ConnectionId, TenantId};
use outbound::{Alpn, Roots, TlsClient};
use ratelimit::breaker::Breakers;
use ratelimit::breaker::fleet::{FleetBreakers, FleetSettings};
use ratelimit::quota::holder::{BootClock, Holder};
use ratelimit::quota::{HolderId, InProcess};
use ratelimit::retry_budget::RetryBudgets;
use tidegate_egress::governed::{Connection, Connector};
use tidegate_egress::quota::{Guards, Metering, Quota, QuotaRules};
use tidegate_egress::{Entry, Snapshot};

use super::{Origin, Rig, roots_of};

impl Rig {
    /// The same, where the provider's limits are these: `[quota]` of a manifest.
    pub(crate) fn with_limits(origin: &Origin, quota: &str) -> Self {
        let rig = Self::with_connection_to(origin);
        rig.limit(origin, quota);
        rig
    }

    pub(crate) fn limit(&self, origin: &Origin, quota: &str) {
        let connections = tidegate_egress::Connections::new([connection_by(origin, &limited(quota))]);
        self.put(connections, QuotaRules::default(), &roots_of(Some(origin)));
    }

    /// The same, where nobody vouches for the provider.
    pub(crate) fn trust_nobody(&self, origin: &Origin, quota: &str) {
        let connections = tidegate_egress::Connections::new([connection_by(origin, &limited(quota))]);
        self.put(connections, QuotaRules::default(), &roots_of(None));
    }

    /// The same connections, by other rules.
    pub(crate) fn set_quota(&self, origin: &Origin, quota: QuotaRules) {
        self.put(tidegate_egress::Connections::new([connection_to(origin)]), quota, &roots_of(Some(origin)));
    }

    fn put(&self, connections: tidegate_egress::Connections, quota: QuotaRules, roots: &Roots) {
        let parts = self.egress.parts();
        let before = parts.snapshot.load_full();
        parts.snapshot.store(Arc::new(Snapshot {
            settings: before.settings.clone(),
            names: before.names.clone(),
            policy: before.policy.clone(),
            rules: Arc::clone(&before.rules),
            exits: before.exits.clone(),
            connections,
            tls: TlsClient::new(roots, None, &[Alpn::Http11]).unwrap(),
            quota: Arc::new(quota),
        }));
    }
}

/// A node of its own, with a centre that remembers as long as it runs.
pub(super) fn quota() -> Quota {
    let clock: Arc<dyn Clock> = Arc::new(BootClock::default());
    let holder = Holder::new(ratelimit::quota::holder::Settings::default(), HolderId(1), Arc::clone(&clock)).unwrap();
    let centre = Arc::new(InProcess::volatile(Arc::clone(&clock), 10_000));
    let runs = holder.clone();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let stop = tokio::time::sleep(Duration::from_mins(1));
            runs.run(centre, stop, Duration::ZERO).await;
        });
    });
    let bounds = ratelimit::Bounds { per_tenant: 100, total: 10_000 };
    let guards = Guards {
        fleet: Arc::new(FleetBreakers::new(FleetSettings::default(), 1).unwrap()),
        breakers: Arc::new(Breakers::new(bounds)),
        budgets: RetryBudgets::new(bounds),
        runaways: Arc::new(ratelimit::runaway::Runaways::new(bounds)),
    };
    Quota::new(clock, holder, guards, Arc::new(tidegate_egress::quota::Silent))
}

/// A connector of the host `origin.test` with these limits.
fn limited(quota: &str) -> config::connector::Manifest {
    let directory = tempfile::tempdir().unwrap();
    let text = format!(
        "connector = \"limited\"\ntitle = \"Limited\"\nchecked = \"2026-11-30\"\nhosts = [\"origin.test\"]\n\
         auth = {{ slot = \"bearer\" }}\nheaders = {{ response = [\"*\"], request = [\"*\"] }}\n{quota}"
    );
    std::fs::write(directory.path().join("limited.toml"), text).unwrap();
    let (catalogue, faults) = config::connector::Catalogue::shipped().unwrap().with_directory(directory.path());
    let catalogue = catalogue.ok_or(faults).unwrap();
    let manifest = catalogue.manifests().find(|manifest| manifest.connector.as_str() == "limited");
    (**manifest.unwrap()).clone()
}

pub(super) fn connection_to(origin: &Origin) -> (TenantId, Entry) {
    let catalogue = config::connector::Catalogue::shipped().unwrap();
    let manifest = catalogue.manifests().find(|manifest| manifest.is_generic()).unwrap();
    let names = ["x-request-id".into()].into();
    connection_by(origin, &config::connector::Manifest { correlation_headers: names, ..(**manifest).clone() })
}

fn connection_by(origin: &Origin, manifest: &config::connector::Manifest) -> (TenantId, Entry) {
    let id = manifest.connector.clone();
    let connector = Arc::new(Connector::new(Arc::new(manifest.clone())).unwrap());
    let written = config::Connection {
        id: ConnectionId::parse("conn_api").unwrap(),
        connector: id,
        base_url: format!("https://{}/base", origin.name()).into(),
        credential: Some(0),
        tls: None,
        http2: None,
        quota: None,
        usable: true,
        line: 1,
    };
    let credential = config::Credential {
        id: "cred".into(),
        kind: config::CredentialKind::Bearer,
        value: Some(domain::Secret::new(b"the-real-key".to_vec())),
        line: 1,
    };
    let connection = Connection::new(&written, Some(&credential), &connector).unwrap();
    let tenant = TenantId::parse("acme").unwrap();
    let metering =
        Metering::new(&tenant, &written.id, (connector.manifest(), &origin.name()), (Ceiling::default(), None));
    let connection = connection.metered(metering);
    (tenant, Entry { connection: Arc::new(connection), tls: None })
}
