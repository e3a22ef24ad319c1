//! The appliance's settings, one struct per table of `tidegate.toml`.
//!
//! Each key is one row of a `settings!` table: meaning, type, default, form, whether it takes effect live, and why
//! this default. Reading, the reference and the schema all come from that row.

mod gateway;
mod limits;
mod log;
mod node;

pub use gateway::{Gateway, Listener};
pub use limits::{Limits, NodeLimits, Unauthenticated};
pub(crate) use log::class_name;
pub use log::{Holding, Log, RetentionClass, SyncMode, WhenFull};
pub use node::{Admin, LogFormat, LogLevel, Logging, Node, Tenants};

use std::path::Path;

use crate::form::{Table, settings};

settings! {
    /// Everything that the appliance's file says, validated. Secrets are references only.
    pub struct Appliance {
        /// Which node of a fleet this is.
        node: Node = Node::default(), Table, restart, "";
        /// The role that takes deliveries. The table's presence enables it.
        gateway: Gateway = Gateway::default(), Table, restart, "";
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
        keys
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
        ];
        for path in paths {
            if path.is_relative() {
                *path = directory.join(&*path);
            }
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
}
