//! From a tenant's tables to its way out: what no key can see alone.

use std::collections::{BTreeSet, HashMap};
use std::ops::Range;
use std::sync::Arc;

use domain::Secret;

use super::tables::{CertificateTable, ConnectionTable, CredentialTable, EgressTable, Kind, RoleTable, TokenTable};
use super::tenant::{
    CertificateBy, Connection, ConnectionTls, Credential, CredentialKind, EgressCertificate, EgressRole, EgressToken,
    TenantEgress,
};
use crate::connector::quota::{CapChoice, CapTable, ConnectionQuota};
use crate::document::Document;
use crate::form::{AtLine, Located};
use crate::tenant_file::{Resolve, Rules, resolve_plain};

/// The three tables of a tenant's file.
pub(crate) struct Tables {
    pub(crate) egress: Option<EgressTable>,
    pub(crate) connections: Vec<Located<ConnectionTable>>,
    pub(crate) credentials: Vec<Located<CredentialTable>>,
}

/// Nothing where the file says nothing of a way out.
pub(crate) fn build(
    document: &mut Document<'_>,
    tables: Tables,
    rules: &Rules,
    resolve: &mut Resolve<'_>,
) -> Option<Box<TenantEgress>> {
    let Tables { egress, connections, credentials } = tables;
    if egress.is_none() && connections.is_empty() && credentials.is_empty() {
        return None;
    }
    // What is wrong with a credential has been said: a connection that names it has no fault of its own.
    let ids = document.is_read_in_each("credential", "id").then(|| {
        credentials.iter().filter_map(|table| Some(table.value.id.as_ref()?.value.clone())).collect::<BTreeSet<_>>()
    });
    let credentials = build_credentials(document, credentials, rules, resolve);
    let connections = build_connections(document, connections, (&credentials, ids.as_ref()), rules, resolve);
    let own = document.within("egress", |document| build_own(document, egress.unwrap_or_default(), rules));
    Some(Box::new(TenantEgress { connections: connections.into(), credentials: credentials.into(), ..own }))
}

fn build_own(document: &mut Document<'_>, table: EgressTable, rules: &Rules) -> TenantEgress {
    let pool = table.pool.map(|pool| {
        if let Some(known) = rules.pools.as_ref().filter(|known| !known.contains(pool.value.as_str())) {
            let known = known.iter().map(|name| &**name).collect::<Vec<_>>().join(", ");
            let message =
                format!("\"{}\" is no pool; known here: {known} (egress.pool in the appliance's file)", pool.value);
            document.within("pool", |document| document.fault(pool.span.clone(), message));
        }
        Arc::from(pool.value)
    });
    let roles = document.within("role", |document| build_roles(document, table.role));
    let roles_known = document.is_read_in_each("role", "name");
    let tokens = document.within("token", |document| build_tokens(document, table.token, &roles, roles_known));
    let certificates =
        document.within("certificate", |document| build_certificates(document, table.certificate, &roles, roles_known));
    TenantEgress {
        mode: table.mode,
        allow: table.allow.into(),
        deny: table.deny.into(),
        pool,
        sni: table.sni,
        roles: roles.into(),
        tokens: tokens.into(),
        certificates: certificates.into(),
        ..TenantEgress::default()
    }
}

fn build_roles(document: &mut Document<'_>, tables: Vec<Located<RoleTable>>) -> Vec<EgressRole> {
    let mut seen = BTreeSet::new();
    let mut roles = Vec::with_capacity(tables.len());
    for Located { span, index, value: table } in tables {
        if !seen.insert(table.name.clone()) && !table.name.is_empty() {
            let message = format!("is the second role named \"{}\"; give each its own name", table.name);
            document.within_index(index, |document| document.fault(span.clone(), message));
        }
        roles.push(EgressRole {
            name: table.name.into(),
            allow: table.allow.map(Into::into),
            deny: table.deny.into(),
            mode: table.mode,
            sni: table.sni,
            line: document.line(span.start),
        });
    }
    roles
}

fn build_tokens(
    document: &mut Document<'_>,
    tables: Vec<Located<TokenTable>>,
    roles: &[EgressRole],
    roles_known: bool,
) -> Vec<EgressToken> {
    let (mut names, mut hashes) = (BTreeSet::new(), BTreeSet::new());
    let mut tokens = Vec::with_capacity(tables.len());
    for Located { span, index, value: table } in tables {
        document.within_index(index, |document| {
            if !names.insert(table.name.clone()) && !table.name.is_empty() {
                let message = format!("is the second token named \"{}\"; give each its own name", table.name);
                document.fault(span.clone(), message);
            }
            let role = table.role.map(|role| role_of(document, role, roles, roles_known));
            let Some(hash) = table.hash else { return };
            if !hashes.insert(hash) {
                let message = "is the digest of another token of this file; every token is another one";
                document.within("hash", |document| document.fault(span.clone(), message));
            }
            let line = document.line(span.start);
            tokens.push(EgressToken { name: table.name.into(), hash, role, not_after_unix_ms: table.not_after, line });
        });
    }
    tokens
}

fn build_certificates(
    document: &mut Document<'_>,
    tables: Vec<Located<CertificateTable>>,
    roles: &[EgressRole],
    roles_known: bool,
) -> Vec<EgressCertificate> {
    let (mut names, mut seen) = (BTreeSet::new(), BTreeSet::new());
    let mut certificates = Vec::with_capacity(tables.len());
    for Located { span, index, value: table } in tables {
        document.within_index(index, |document| {
            let is_read = document.is_clean();
            if !names.insert(table.name.clone()) && !table.name.is_empty() {
                let message = format!("is the second certificate named \"{}\"; give each its own name", table.name);
                document.fault(span.clone(), message);
            }
            let role = table.role.map(|role| role_of(document, role, roles, roles_known));
            let by = match (table.sha256, table.san) {
                (Some(digest), None) => CertificateBy::Sha256(digest.value),
                (None, Some(name)) => CertificateBy::San(name.value.into()),
                (Some(_), Some(name)) => {
                    let message = "stands beside sha256; write the one that the certificate is recognised by";
                    return document.within("san", |document| document.fault(name.span.clone(), message));
                }
                // What was misread has been said.
                (None, None) if !is_read => return,
                (None, None) => {
                    let message = "has neither sha256 nor san; write what the certificate is recognised by";
                    return document.fault(span.clone(), message);
                }
            };
            if !seen.insert(by.clone()) {
                let key = if matches!(by, CertificateBy::Sha256(_)) { "sha256" } else { "san" };
                let message = "is what another certificate of this file is recognised by";
                document.within(key, |document| document.fault(span.clone(), message));
            }
            let line = document.line(span.start);
            certificates.push(EgressCertificate { name: table.name.into(), by, role, line });
        });
    }
    certificates
}

/// The role that something is for, which is one of the file's.
fn role_of(document: &mut Document<'_>, role: Located<String>, roles: &[EgressRole], roles_known: bool) -> Box<str> {
    if roles_known && !roles.iter().any(|known| *known.name == *role.value) {
        let message = format!("\"{}\" is no role of this file; add a [[egress.role]] of that name", role.value);
        document.within("role", |document| document.fault(role.span.clone(), message));
    }
    role.value.into()
}

fn build_credentials(
    document: &mut Document<'_>,
    tables: Vec<Located<CredentialTable>>,
    rules: &Rules,
    resolve: &mut Resolve<'_>,
) -> Vec<Credential> {
    let mut seen = BTreeSet::new();
    let mut credentials = Vec::with_capacity(tables.len());
    for Located { span, index, value: table } in tables {
        document.within("credential", |document| {
            document.within_index(index, |document| {
                if let Some(id) = table.id.as_ref().filter(|id| !seen.insert(id.value.clone())) {
                    let message = format!("\"{}\" is the id of another credential too; each has its own", id.value);
                    document.within("id", |document| document.fault(id.span.clone(), message));
                }
                let (id, reference) = (table.id.as_ref().map(|id| id.value.clone()), table.value.clone());
                let kind = build_kind(document, &span, table).filter(|_| document.is_clean());
                let fit = |value: &[u8]| kind.as_ref().map_or(Ok(()), |kind| is_fit(kind, value));
                let value = reference.and_then(|reference| {
                    document.within("value", |document| secret(document, &reference, rules, resolve, &fit))
                });
                let (Some(id), Some(kind)) = (id, kind) else { return };
                let line = document.line(span.start);
                credentials.push(Credential { id: id.into(), kind, value, line });
            });
        });
    }
    credentials
}

/// How it is attached, from the keys that say so; the others must not be there.
fn build_kind(document: &mut Document<'_>, span: &Range<usize>, table: CredentialTable) -> Option<CredentialKind> {
    let kind = table.kind?;
    let CredentialTable { header, prefix, username, parameter, .. } = table;
    for (key, of, written) in [
        ("header", Kind::Header, &header),
        ("prefix", Kind::Header, &prefix),
        ("username", Kind::Basic, &username),
        ("parameter", Kind::Query, &parameter),
    ] {
        if let Some(written) = written.as_ref().filter(|_| of != kind) {
            let message = format!("belongs to kind = \"{}\"; take it out, or change the kind", name_of(of));
            document.within(key, |document| document.fault(written.span.clone(), message));
        }
    }
    let mut needed = |key: &'static str, written: Option<Located<String>>| {
        if written.is_none() {
            let message = format!("is missing, and kind = \"{}\" needs it", name_of(kind));
            document.within(key, |document| document.missing(span.clone(), message));
        }
        written.map(|written| Box::from(written.value))
    };
    Some(match kind {
        Kind::Bearer => CredentialKind::Bearer,
        Kind::Header => CredentialKind::Header {
            name: needed("header", header)?,
            prefix: prefix.map_or_else(Box::default, |prefix| prefix.value.into()),
        },
        Kind::Basic => CredentialKind::Basic { username: username.map(|name| name.value.into()) },
        Kind::Query => CredentialKind::Query { parameter: needed("parameter", parameter)? },
    })
}

fn name_of(kind: Kind) -> &'static str {
    match kind {
        Kind::Bearer => "bearer",
        Kind::Header => "header",
        Kind::Basic => "basic",
        Kind::Query => "query",
    }
}

/// Whether a secret can stand where its kind puts it; a sentence that does not repeat it where not.
fn is_fit(kind: &CredentialKind, value: &[u8]) -> Result<(), &'static str> {
    let in_header = || {
        let inside = value.iter().all(|byte| (b' '..=b'~').contains(byte));
        if inside && !value.starts_with(b" ") && !value.ends_with(b" ") {
            Ok(())
        } else {
            Err(
                "cannot stand in a header: it has a space at its beginning or end, a control character, or one that is not ASCII; write the secret alone into its file",
            )
        }
    };
    let is_text = || match std::str::from_utf8(value) {
        Ok(text) if !text.chars().any(char::is_control) => Ok(()),
        _ => Err("cannot be sent: it has a control character, or is not UTF-8; write the secret alone into its file"),
    };
    match kind {
        CredentialKind::Bearer | CredentialKind::Header { .. } => in_header(),
        CredentialKind::Basic { username: Some(_) } | CredentialKind::Query { .. } => is_text(),
        CredentialKind::Basic { username: None } if value.contains(&b':') => is_text(),
        CredentialKind::Basic { username: None } => {
            Err("has no colon: without username = … the secret is user:password, or key: for a key without a password")
        }
    }
}

fn build_connections(
    document: &mut Document<'_>,
    tables: Vec<Located<ConnectionTable>>,
    (credentials, ids): (&[Credential], Option<&BTreeSet<String>>),
    rules: &Rules,
    resolve: &mut Resolve<'_>,
) -> Vec<Connection> {
    let places: HashMap<&str, usize> =
        credentials.iter().enumerate().map(|(place, credential)| (&*credential.id, place)).collect();
    let mut seen = BTreeSet::new();
    let mut connections = Vec::with_capacity(tables.len());
    for Located { span, index, value: table } in tables {
        document.within("connection", |document| {
            document.within_index(index, |document| {
                if let Some(id) = table.id.as_ref().filter(|id| !seen.insert(id.value.clone())) {
                    let message = format!("\"{}\" is the id of another connection too; each has its own", id.value);
                    document.within("id", |document| document.fault(id.span.clone(), message));
                }
                let credential = table.credential.as_ref().and_then(|named| {
                    let place = places.get(named.value.as_str()).copied();
                    if ids.is_some_and(|ids| !ids.contains(&named.value)) {
                        let message = format!(
                            "\"{}\" is no credential of this file; add a [[credential]] of that id",
                            named.value
                        );
                        document.within("credential", |document| document.fault(named.span.clone(), message));
                    }
                    u32::try_from(place?).ok()
                });
                let (tls, usable) = build_tls(document, &span, &table, rules, resolve);
                let (Some(id), Some(connector), Some(base_url)) = (table.id, table.connector, table.base_url) else {
                    return;
                };
                connections.push(Connection {
                    id: id.value,
                    connector: connector.value,
                    base_url: base_url.value.into(),
                    credential,
                    http2: table.http2,
                    quota: build_quota(table.quota_tier, table.quota),
                    tls,
                    usable,
                    line: document.line(span.start),
                });
            });
        });
    }
    connections
}

fn build_quota(tier: Option<AtLine<String>>, caps: Vec<CapTable>) -> Option<Box<ConnectionQuota>> {
    let boxed = |AtLine { value, line }: AtLine<String>| AtLine { value: value.into_boxed_str(), line };
    let caps = caps.into_iter().map(|CapTable { limit, cap }| CapChoice { limit: boxed(limit), cap });
    let quota = ConnectionQuota { tier: tier.map(boxed), caps: caps.collect() };
    (quota != ConnectionQuota::default()).then(|| Box::new(quota))
}

const CERTIFICATE: &str = "-----BEGIN CERTIFICATE-----";

const NO_CERTIFICATE: &str = "names no certificate in PEM: nothing begins with -----BEGIN CERTIFICATE-----";

/// TLS of a connection, and whether all of it is there.
fn build_tls(
    document: &mut Document<'_>,
    span: &Range<usize>,
    table: &ConnectionTable,
    rules: &Rules,
    resolve: &mut Resolve<'_>,
) -> (Option<Box<ConnectionTls>>, bool) {
    for (key, other, written, lacks) in [
        ("client_key", "client_certificate", &table.client_certificate, table.client_key.is_none()),
        ("client_certificate", "client_key", &table.client_key, table.client_certificate.is_none()),
    ] {
        if written.is_some() && lacks {
            document
                .within(key, |document| document.missing(span.clone(), format!("is missing, and {other} needs it")));
        }
    }
    let mut get = |key: &'static str, written: &Option<Located<String>>, label: &'static str, unfit: &'static str| {
        let written = written.as_ref()?;
        let fit = |value: &[u8]| {
            let begins = value.windows(label.len()).any(|part| part == label.as_bytes());
            if begins { Ok(()) } else { Err(unfit) }
        };
        document.within(key, |document| secret(document, written, rules, resolve, &fit))
    };
    let roots = get("roots", &table.roots, CERTIFICATE, NO_CERTIFICATE);
    let certificate = get("client_certificate", &table.client_certificate, CERTIFICATE, NO_CERTIFICATE);
    let key = get("client_key", &table.client_key, "PRIVATE KEY-----", "names no private key in PEM");
    let whole = roots.is_some() == table.roots.is_some()
        && certificate.is_some() == table.client_certificate.is_some()
        && key.is_some() == table.client_key.is_some();
    let client = certificate.zip(key);
    let tls = (roots.is_some() || client.is_some()).then(|| Box::new(ConnectionTls { roots, client }));
    // Half of it would be another connection than the one that was meant.
    (tls.filter(|_| whole), whole)
}

/// A secret that fits; none where it cannot be used, which is a fault unless this node can do without.
fn secret(
    document: &mut Document<'_>,
    reference: &Located<String>,
    rules: &Rules,
    resolve: &mut Resolve<'_>,
    fit: &dyn Fn(&[u8]) -> Result<(), &'static str>,
) -> Option<Secret> {
    let found = resolve_plain(document, reference, resolve).and_then(|secret| match fit(secret.expose()) {
        Ok(()) => Ok(secret),
        Err(message) => Err(message.to_owned()),
    });
    match found {
        // No secret is empty: this one stands for one that cannot be used.
        Ok(secret) => Some(secret).filter(|secret| !secret.is_empty()),
        Err(_) if rules.lenient => None,
        Err(message) if rules.takes_calls => {
            document.fault(reference.span.clone(), message);
            None
        }
        Err(message) => {
            document.warn(
                reference.span.clone(),
                format!("{message} (this node takes no calls, so nothing depends on it)"),
            );
            None
        }
    }
}
