//! Files to a validated snapshot: every fault at once, with file and line.
//!
//! Two kinds of file. The **appliance's** (`tidegate.toml`) is one unit: it is good, or the old one stays. Each
//! **tenant's** is a unit of its own: a faulty one keeps that tenant's last good version and touches nobody else.
//!
//! What holds, and is tested:
//! - reading goes on after a fault, so that one look says everything that is wrong;
//! - unknown keys are refused, with the known key that was most likely meant;
//! - every size and duration has its unit, every number its range;
//! - secrets are references; what they resolve to is wiped when dropped and printed nowhere;
//! - no text, however hostile, panics a loader or makes it take more than its bounds.

mod alias;
mod appliance;
pub mod connector;
mod document;
mod egress;
mod endpoint_handshake;
mod environment;
mod fault;
mod form;
mod public_url;
mod rate;
mod read;
mod reference;
mod runner;
mod schema;
pub mod scheme;
mod secret;
mod settings;
mod tenant;
mod tenant_file;
mod tenants;
pub mod units;
mod variables;
mod watch;

pub use appliance::{
    ApplianceInPart, NamesRead, Places, appliance_in_part, appliance_line, appliance_places, load_appliance,
    parse_appliance, reload_appliance,
};
pub use egress::{
    CertificateBy, Connection, ConnectionTls, Credential, CredentialKind, EgressCertificate, EgressRole, EgressRule,
    EgressToken, RuleMode, SniRule, TenantEgress,
};
pub use endpoint_handshake::EndpointHandshake;
pub use environment::{Environment, MapEnvironment, ProcessEnvironment};
pub use fault::{Fault, Severity, has_errors};
pub use form::AtLine;
pub use public_url::PublicUrl;
pub use rate::Rate;
pub use reference::reference_markdown;
pub use runner::{RunnerScope, RunnerToken, TenantRunner};
pub use schema::{appliance_schema, schema, tenant_schema};
pub use scheme::SchemeDeclaration;
pub use secret::{ResolvedSecret, resolve_secret};
pub use settings::{
    Admin, Appliance, Connectors, DEFAULT_TIER, Egress, EgressDns, EgressLimits, EgressRanges, EgressRecords,
    EgressTls, Gateway, Holding, Http2, Issuer, IssuerKey, IssuerTenants, Limits, Listener, Log, LogFormat, LogLevel,
    Logging, Node, NodeLimits, Opening, PlaintextGrants, Pool, PoolAddress, Quota, QuotaBreaker, QuotaDegraded,
    QuotaRedis, QuotaRedisTls, QuotaRetry, QuotaRunaway, QuotaShare, QuotaStore, RUNNER_SHARED_PAYLOAD_BYTES_MAX,
    RedisMode, RetentionClass, Runner, RunnerAdmission, RunnerApi, RunnerApiTls, RunnerIssuer, RunnerPayloads,
    RunnerPostgres, RunnerPostgresTls, RunnerRetention, RunnerStore, RunnerTier, SyncMode, Tenants, TlsVersion,
    Unauthenticated, WhenFull,
};
pub use tenant::{Alias, DeclaredScheme, Endpoint, OverLimit, RepeatRule, SecretEntry, SecretTerms, Tenant};
pub use tenant_file::parse_tenant;
pub use tenants::{
    ABSENCE, Both, InForce, Judge, Judged, Second, TenantFiles, TenantsLoad, Unavailable, both, files_passed_over,
    is_tenant_there,
};
pub use watch::Watcher;
