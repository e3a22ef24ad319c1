//! The appliance's settings, one struct per table of `tidegate.toml`.
//!
//! Each key is one row of a `settings!` table: meaning, type, default, form, whether it takes effect live, and why
//! this default. Reading, the reference and the schema all come from that row.

mod egress;
mod egress_listener;
mod egress_tls;
mod gateway;
mod issuer;
mod limits;
mod log;
mod node;
mod opening;
mod pool;
mod quota;
mod quota_redis;
mod ranges;
mod resolv_conf;
mod runner;
mod runner_api;
mod runner_postgres;

pub use egress::{Connectors, Egress, EgressDns, EgressLimits, EgressRecords, Http2, PlaintextGrants};
pub(crate) use egress::{RULES_MAX, http2};
pub use egress_tls::{EgressTls, TlsVersion};
pub use gateway::{Gateway, Listener};
pub use issuer::{Issuer, IssuerKey, IssuerTenants};
pub use limits::{Limits, NodeLimits, Unauthenticated};
pub(crate) use log::class_name;
pub use log::{Holding, Log, RetentionClass, SyncMode, WhenFull};
pub use node::{Admin, LogFormat, LogLevel, Logging, Node, Tenants};
pub use opening::Opening;
pub(crate) use pool::DEFAULT_POOL;
pub use pool::{Pool, PoolAddress};
pub use quota::{Quota, QuotaBreaker, QuotaDegraded, QuotaRetry, QuotaRunaway, QuotaShare, QuotaStore};
pub use quota_redis::{QuotaRedis, QuotaRedisTls, RedisMode};
pub use ranges::EgressRanges;
pub use runner::{
    DEFAULT_TIER, RUNNER_SHARED_PAYLOAD_BYTES_MAX, Runner, RunnerAdmission, RunnerIssuer, RunnerPayloads,
    RunnerRetention, RunnerStore, RunnerTier,
};
pub use runner_api::{RunnerApi, RunnerApiTls};
pub use runner_postgres::{RunnerPostgres, RunnerPostgresTls};

use std::path::Path;

use crate::form::{Table, settings};

settings! {
    /// Everything that the appliance's file says, validated. Secrets are references only.
    pub struct Appliance {
        /// Which node of a fleet this is.
        node: Node = Node::default(), Table, restart, "";
        /// The role that takes deliveries. The table's presence enables it.
        gateway: Gateway = Gateway::default(), Table, restart, "";
        /// The role that takes calls out. The table's presence enables it.
        egress: Egress = Egress::default(), Table, restart, "";
        /// What is known of providers.
        connectors: Connectors = Connectors::default(), Table, live, "";
        /// How limits of providers are shared out, and what guards calls beside them.
        quota: Quota = Quota::default(), Table, live, "";
        /// The role that performs what tenants automate. The table's presence enables it.
        runner: Runner = Runner::default(), Table, live, "";
        /// The event log on this machine's disk.
        log: Log = Log::default(), Table, restart, "";
        /// Deliveries that could not be verified, kept apart for a second look.
        holding: Holding = Holding::default(), Table, restart, "";
        /// Limits of the node, and defaults for tenants and endpoints.
        limits: NodeLimits = NodeLimits::default(), Table, live, "";
        /// Where operators and monitoring reach the appliance.
        admin: Admin = Admin::default(), Table, restart, "";
        /// Where the tenants' files are.
        tenants: Tenants = Tenants::default(), Table, restart, "";
        /// The appliance's own log lines.
        logging: Logging = Logging::default(), Table, restart, "";
    }
}

impl Appliance {
    /// The keys that differ in `new` and that a reload cannot put in force: they wait for a restart.
    pub fn restart_needed(&self, new: &Self) -> Vec<String> {
        let mut keys = Vec::new();
        crate::form::Settings::restarts(self, new, "", &mut keys);
        if new.gateway.body_bytes_max > self.body_bytes_room() {
            keys.push("gateway.body_bytes_max".to_owned());
        }
        keys
    }

    /// What a reload makes of the settings that the process was started with: the live keys are those of `new`. All
    /// else stays, also for judging tenants' files: a retention class that the log was not opened with, for one, is
    /// none until the restart. A body that this node has no room for before the restart is not taken either.
    #[must_use]
    pub fn with_live(&self, new: Self) -> Self {
        let mut settings = self.clone();
        crate::form::Settings::take_live(&mut settings, new);
        settings.gateway.body_bytes_max = settings.gateway.body_bytes_max.min(self.body_bytes_room());
        settings
    }

    /// The largest body that this node can hold and store: an eighth of what is in flight, the log's queue and a
    /// segment must each take a delivery of it, with headers and the record's own head.
    pub fn body_bytes_room(&self) -> u64 {
        let room = (self.gateway.bytes_in_flight_max / 8).min(self.log.queue_bytes).min(self.log.segment_bytes);
        room.saturating_sub(self.delivery_overhead())
    }

    /// What a delivery takes beside its body.
    pub(crate) fn delivery_overhead(&self) -> u64 {
        u64::from(self.gateway.listener.header_bytes_max) + 64 * crate::units::KIB
    }

    /// Makes relative paths absolute: they are meant relative to the file that they stand in, wherever the process
    /// was started.
    pub(crate) fn resolve_paths(&mut self, directory: &Path) {
        let paths = [
            &mut self.log.directory,
            &mut self.admin.socket,
            &mut self.tenants.directory,
            &mut self.tenants.state_directory,
            &mut self.egress.records.directory,
        ];
        for path in paths.into_iter().chain(&mut self.connectors.directory) {
            if path.is_relative() {
                *path = directory.join(&*path);
            }
        }
        self.egress.ranges.resolve_paths(directory);
        self.egress.tls.resolve_paths(directory);
        self.quota.resolve_paths(directory);
        self.runner.resolve_paths(directory);
        for issuer in &mut self.egress.issuer {
            issuer.resolve_paths(directory);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_reload_says_which_keys_wait_for_a_restart() {
        let old = Appliance::default();
        let mut new = old.clone();
        assert_eq!(old.restart_needed(&new), Vec::<String>::new());
        new.gateway.listener.idle_timeout = Duration::from_secs(5);
        new.gateway.body_bytes_max = 1 << 20;
        new.node.id = domain::NodeId(7);
        new.log.retention[0].age = crate::units::days(1);
        new.limits.tenant.events = Some(crate::Rate { per_second: 1, burst: 1 });
        assert_eq!(old.restart_needed(&new), ["node.id", "gateway.listener.idle_timeout", "log.retention"]);
    }

    #[test]
    fn policy_of_the_way_out_is_live_and_its_sockets_wait() {
        let read = |text: &str| {
            let (appliance, faults) = crate::parse_appliance(Path::new("tidegate.toml"), text.as_bytes());
            appliance.unwrap_or_else(|| panic!("{faults:?}"))
        };
        let old = read("[egress]\n");
        let new = read(
            "# A line more.\n[egress]\nlisten = [\"127.0.0.1:3129\"]\nname = \"edge\"\nthreads = 1000\nmode = \"report\"\nallow = [\"a.example.com\"]\n\
            deny = [\"b.example.com\"]\nconnect_ports = [8443]\nports = [8080]\nown_addresses = [\"192.0.2.7\"]\nnat64 = [\"64:ff9b::/96\"]\n\
            audience = \"x\"\nplaintext_grants = \"never\"\nhttp2 = \"off\"\n[egress.listener]\nidle_timeout = \"5s\"\n[egress.dns]\nservers = [\"192.0.2.53\"]\n\
            [egress.limits]\ncalls_max = 5000\n[[egress.issuer]]\nname = \"p\"\nkeys = [\"ed25519:x\"]\ntenants = [\"*\"]\n\
            [[egress.pool]]\nname = \"default\"\naddresses = [{ v4 = \"192.0.2.1\" }]\n\
            [[egress.opening]]\nhost = \"db.internal\"\nnetworks = [\"10.0.0.0/8\"]\nports = [1]\ntenant = \"acme\"\n[connectors]\ndirectory = \"c\"\n",
        );
        let wait = ["egress.listen", "egress.threads", "egress.listener.idle_timeout", "egress.dns.servers"];
        assert_eq!(old.restart_needed(&new), wait);
        let live = old.with_live(new.clone());
        let sockets =
            |egress: &Egress| (egress.listen.clone(), egress.threads, egress.listener.clone(), egress.dns.clone());
        assert_eq!(sockets(&live.egress), sockets(&old.egress));
        let Egress { listen, threads, listener, dns, .. } = old.egress.clone();
        assert_eq!(live.egress, Egress { listen, threads, listener, dns, ..new.egress.clone() });
        assert_eq!(live.connectors, new.connectors);
        assert_eq!(live.restart_needed(&new), wait);
        // Where something stands is no difference.
        let moved = read("\n\n[egress]\n");
        assert_eq!(old.restart_needed(&moved), Vec::<String>::new());
        assert_eq!(
            read("[egress]\n").restart_needed(&read("[gateway]\npublic_url = \"https://a.example.com\"\n")).len(),
            2
        );
    }

    #[test]
    fn a_reload_puts_the_live_keys_in_force_and_no_others() {
        let old = Appliance::default();
        let mut new = old.clone();
        new.gateway.listener.idle_timeout = Duration::from_secs(5);
        new.gateway.trusted_proxies = vec!["10.0.0.0/8".parse().unwrap()];
        new.log.retention.insert(0, RetentionClass { name: "fast".into(), ..old.log.retention[0].clone() });
        new.tenants.directory = "/elsewhere".into();
        new.tenants.files_max = 7;
        new.limits.tenant.events = Some(crate::Rate { per_second: 1, burst: 1 });
        let mut expected = old.clone();
        expected.gateway.trusted_proxies = new.gateway.trusted_proxies.clone();
        expected.tenants.files_max = 7;
        expected.limits.tenant.events = new.limits.tenant.events;
        assert_eq!(old.with_live(new.clone()), expected);
        assert_eq!(old.restart_needed(&new), ["gateway.listener.idle_timeout", "log.retention", "tenants.directory"]);
        // A live key that needs room which only a restart makes.
        new = old.clone();
        new.gateway.bytes_in_flight_max *= 64;
        new.log.queue_bytes *= 64;
        new.log.segment_bytes *= 64;
        new.gateway.body_bytes_max = 1 << 30;
        assert_eq!(old.with_live(new.clone()).gateway.body_bytes_max, old.body_bytes_room());
        assert_eq!(old.restart_needed(&new).last().unwrap(), "gateway.body_bytes_max");
        assert_eq!(old.restart_needed(&old.with_live(new)), Vec::<String>::new());
    }
}
