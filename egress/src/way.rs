//! What follows a yes, by each door.

mod absolute;
mod connect;
mod governed;
mod upgrade;

use std::net::IpAddr;

use domain::{ConnectorId, TenantId};
use outbound::Authority;
use tokio::time::Instant;

use crate::caller::Identified;
use crate::{CorrelationId, Way};

/// A tunnel that is open, for `tidegate egress top` and for ending it from outside.
#[derive(Debug)]
pub struct About {
    /// The call's.
    pub correlation: CorrelationId,
    /// By which door; an upgraded request is a tunnel, too.
    pub way: Way,
    /// Who holds it open.
    pub identified: Identified,
    /// The connector of the call's connection; none for other calls.
    pub connector: Option<ConnectorId>,
    /// Where it leads.
    pub authority: Authority,
    /// From where it leaves.
    pub exit: Option<IpAddr>,
}

impl About {
    /// Whose it is.
    pub fn tenant(&self) -> &TenantId {
        &self.identified.caller.tenant
    }
}

/// When a proof that ends at this time of the wall clock does, by the clock that nobody sets.
fn instant_of(until_unix_ms: u64, now_unix_ms: u64) -> Instant {
    Instant::now() + std::time::Duration::from_millis(until_unix_ms.saturating_sub(now_unix_ms))
}
