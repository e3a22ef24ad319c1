//! The role: what it is made of.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use arc_swap::ArcSwap;
use domain::NodeId;
use outbound::dial::TcpConnector;
use outbound::{Dialer, Resolve};

use crate::caller::Callers;
use crate::correlation::Randomness;
use crate::forward::Forward;
use crate::quota::Quota;
use crate::snapshot::Snapshot;
use crate::switches::Switches;
use crate::trace::{Ends, Trace};
use crate::tunnel::Tunnels;
use crate::{Calls, CorrelationId};

/// What the role stands on; the composition root fills it.
pub struct Parts<C = TcpConnector> {
    /// Which node of the fleet this is.
    pub node: NodeId,
    /// What is configured, swapped as a whole.
    pub snapshot: Arc<ArcSwap<Snapshot>>,
    /// Who may come.
    pub callers: Arc<Callers>,
    /// What is switched off.
    pub switches: Arc<Switches>,
    /// Where names become addresses.
    pub resolver: Arc<dyn Resolve>,
    /// Requests: connections, old and new.
    pub forward: Forward<C>,
    /// Tunnels: connections.
    pub dialer: Dialer<C>,
    /// Calls under way.
    pub calls: Arc<Calls>,
    /// Tunnels that are open, by their calls.
    pub tunnels: Arc<Tunnels<CorrelationId>>,
    /// What a call has to have before it goes.
    pub quota: Arc<Quota>,
    /// Clock, records, metrics.
    pub ends: Arc<Ends>,
}

/// The role that lets calls out.
pub struct Egress<C = TcpConnector> {
    pub(crate) parts: Parts<C>,
    randomness: Randomness,
}

impl<C> fmt::Debug for Parts<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Parts").field("node", &self.node).finish_non_exhaustive()
    }
}

impl<C> fmt::Debug for Egress<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Egress").field("parts", &self.parts).finish_non_exhaustive()
    }
}

impl<C> Egress<C> {
    /// Of these parts.
    pub fn new(parts: Parts<C>) -> Self {
        Self { parts, randomness: Randomness::default() }
    }

    /// What it is made of.
    pub fn parts(&self) -> &Parts<C> {
        &self.parts
    }

    pub(crate) fn trace(&self, peer: SocketAddr) -> Trace {
        Trace::begin(self.correlation(), peer, Arc::clone(&self.parts.ends))
    }

    /// The next call's id.
    pub(crate) fn correlation(&self) -> CorrelationId {
        CorrelationId::new(self.parts.ends.clock.unix_ms(), self.parts.node, self.randomness.take())
    }
}
