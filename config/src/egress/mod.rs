//! The way out, in both kinds of file: rules, and what of it is a tenant's.

mod build;
mod rule;
mod tables;
mod tenant;
mod text;

pub(crate) use build::{Tables, build};
pub use rule::{EgressRule, RuleMode};
pub(crate) use rule::{Rule, RuleTable, mode};
pub(crate) use tables::{ConnectionTable, CredentialTable, EgressTable, connector_id};
pub use tenant::{
    CertificateBy, Connection, ConnectionTls, Credential, CredentialKind, EgressCertificate, EgressRole, EgressToken,
    SniRule, TenantEgress,
};
pub(crate) use text::{header, header_name, host_text, parameter, port, token_hash};
