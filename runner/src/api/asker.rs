//! Who asks, and how much may be asked for.

use domain::TenantId;

/// What an asker may do. Each includes those before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scope {
    /// Look at automations, runs and connections.
    Read,
    /// And act on runs: start, cancel, resolve, replay, re-run.
    Operate,
    /// And write automations.
    Author,
}

impl Scope {
    pub fn word(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Operate => "operate",
            Self::Author => "author",
        }
    }
}

/// Somebody who was recognised. One tenant, always.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asker {
    pub tenant: TenantId,
    /// What histories call them: `token:console`, `operator:1000`.
    pub by: Box<str>,
    pub scope: Scope,
}
