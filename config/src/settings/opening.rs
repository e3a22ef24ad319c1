//! `[[egress.opening]]`: internal destinations that are open to one tenant, by name.

use domain::TenantId;
use ipnet::IpNet;

use super::class_name;
use crate::egress::{host_text, port};
use crate::form::{AtLine, Lined, List, Maybe, needed, network, settings};
use crate::tenant_file::tenant_id;

settings! {
    /// An internal destination that one tenant may call.
    pub struct Opening {
        /// Its name, `*.` and a zone, or its address (IPv6 in brackets).
        host: AtLine<String> = AtLine::default(), needed(Lined(host_text())), live,
            "What is open is a name and never a network.";
        /// Networks that the name may resolve to.
        networks: Vec<IpNet> = Vec::new(), needed(List(network(), 1..=64)), live,
            "Whoever controls the name could otherwise point it at anything inside.";
        /// Its ports.
        ports: Vec<u16> = Vec::new(), needed(List(port(), 1..=64)), live,
            "Beside an internal service there is another one on the next port.";
        /// The tenant that may call it.
        tenant: Option<TenantId> = None, needed(Maybe(tenant_id())), live,
            "Nobody else sees that it is there.";
        /// The role of that tenant that may call it.
        role: Option<String> = None, Maybe(class_name()), live,
            "Without one, every caller of the tenant may.";
    }
}
