//! What is configured, as one value that a call loads once and keeps.

use std::sync::Arc;

use outbound::{Rules, TlsClient};

use crate::connections::Connections;
use crate::exits::Exits;
use crate::forward::headers::Names;
use crate::policy::Policy;
use crate::quota::QuotaRules;
use crate::settings::Settings;

/// Everything that a reload can change.
#[derive(Debug)]
pub struct Snapshot {
    /// Bounds.
    pub settings: Settings,
    /// Who we say we are.
    pub names: Names,
    /// Who may call what.
    pub policy: Policy,
    /// Which addresses may be dialled.
    pub rules: Arc<Rules>,
    /// Where calls leave from.
    pub exits: Exits,
    /// Accounts at providers.
    pub connections: Connections,
    /// How TLS is spoken to destinations.
    pub tls: TlsClient,
    /// By what calls are counted and held back.
    pub quota: Arc<QuotaRules>,
}
