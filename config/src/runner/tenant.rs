//! Who may ask for a tenant's runs.

use std::fmt;

/// What a tenant's `[runner]` table says. Few tenants have one: it is boxed apart.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TenantRunner {
    /// Names are distinct, and so are digests.
    pub tokens: Box<[RunnerToken]>,
    /// Name of one of the appliance's tiers; none: the one named `default`.
    pub tier: Option<Box<str>>,
    /// Runs that are worked on at one time, at most.
    pub concurrency: Option<u32>,
}

/// What the holder of a token may do. Each includes those before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RunnerScope {
    /// Look at automations, runs and connections.
    Read,
    /// And act on runs: start, cancel, resolve, replay, re-run.
    Operate,
    /// And write automations.
    Author,
}

/// A static token of the API, by its digest.
#[derive(Clone, PartialEq, Eq)]
pub struct RunnerToken {
    pub name: Box<str>,
    /// SHA-256 of the token.
    pub hash: [u8; 32],
    pub scope: RunnerScope,
    /// The last millisecond at which it counts.
    pub not_after_unix_ms: Option<u64>,
    pub line: u32,
}

impl fmt::Debug for RunnerToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("RunnerToken");
        shown.field("name", &self.name).field("scope", &self.scope).finish_non_exhaustive()
    }
}
