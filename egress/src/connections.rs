//! Connections by tenant and id.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use config::connector::AuthSlot;
use domain::{ConnectionId, TenantId};
use outbound::TlsClient;

use crate::caller::presented::Slot;
use crate::governed::Connection;
use crate::no::No;
use crate::{Asked, Caller, Refusal};

/// A connection, and how TLS is spoken to its provider where that is its own matter.
#[derive(Debug, Clone)]
pub struct Entry {
    /// It.
    pub connection: Arc<Connection>,
    /// TLS of its own, where it has some.
    pub tls: Option<OwnTls>,
}

/// TLS of a connection's own. Its roots hold for every host that its credential may go to: what is not verified by them
/// gets none.
#[derive(Debug, Clone)]
pub struct OwnTls {
    /// By its own roots, and with its identity: for the place of `base_url` alone.
    pub identified: TlsClient,
    /// The same without the identity.
    pub anonymous: TlsClient,
}

impl Entry {
    /// How TLS is spoken at this hop, where that is the connection's own matter. The identity is a credential: behind a
    /// hop that had none, it is not shown again.
    pub(crate) fn tls_for(&self, asked: &Asked, is_trusted: bool) -> Option<&TlsClient> {
        let own = self.tls.as_ref()?;
        if asked.authority == *self.connection.authority() {
            return Some(if is_trusted { &own.identified } else { &own.anonymous });
        }
        self.connection.vouches_for(asked).then_some(&own.anonymous)
    }
}

/// All of them.
#[derive(Debug, Default)]
pub struct Connections {
    entries: HashMap<TenantId, HashMap<ConnectionId, Entry>>,
    /// Every place where the SDK of some connector in use puts its key.
    slots: Vec<AuthSlot>,
}

impl Connections {
    /// Of these.
    pub fn new(entries: impl IntoIterator<Item = (TenantId, Entry)>) -> Self {
        let mut all: HashMap<TenantId, HashMap<ConnectionId, Entry>> = HashMap::new();
        let (mut seen, mut slots) = (BTreeSet::new(), Vec::new());
        for (tenant, entry) in entries {
            let slot = &entry.connection.connector().manifest().auth;
            if seen.insert(format!("{slot:?}")) {
                slots.push(slot.clone());
            }
            all.entry(tenant).or_default().insert(entry.connection.id().clone(), entry);
        }
        Self { entries: all, slots }
    }

    /// What was made of this very connection, so that whoever reloads keeps it, and with it the connections that are open.
    pub fn made_of(&self, tenant: &TenantId, connection: &Arc<Connection>) -> Option<&Entry> {
        self.get(tenant, connection.id()).filter(|entry| Arc::ptr_eq(&entry.connection, connection))
    }

    /// All of them, in no order.
    pub fn iter(&self) -> impl Iterator<Item = (&TenantId, &Entry)> {
        self.entries.iter().flat_map(|(tenant, its)| its.values().map(move |entry| (tenant, entry)))
    }

    /// The tenant's connection of this id.
    pub fn get(&self, tenant: &TenantId, id: &ConnectionId) -> Option<&Entry> {
        self.entries.get(tenant)?.get(id)
    }

    /// Where a proof may be, whichever connection is meant.
    pub(crate) fn slots(&self) -> Vec<Slot<'_>> {
        self.slots.iter().map(Slot::from).collect()
    }

    /// The caller's connection of this id. That there is none, that it is another's and that the grant does not name it
    /// look the same to the caller.
    pub(crate) fn find(&self, caller: &Caller, id: &str) -> Result<&Entry, No> {
        let no = |why: &str| No::new(Refusal::ConnectionUnknown, why);
        let named = |names: &[ConnectionId]| names.iter().any(|name| name.as_str() == id);
        if caller.connections.as_deref().is_some_and(|names| !named(names)) {
            return Err(no("the grant does not name the connection"));
        }
        let entry = self.entries.get(&caller.tenant).and_then(|its| its.get(id));
        let entry = entry.ok_or_else(|| no("the tenant has no connection of this id"))?;
        if !entry.connection.is_usable() {
            let why = "a secret that the connection's TLS is made of cannot be had now";
            return Err(No::new(Refusal::CredentialUnavailable, why));
        }
        Ok(entry)
    }
}
