//! What a tenant's file says of its way out, as it is written.

use domain::{ConnectionId, ConnectorId};

use super::rule::{EgressRule, Rule, RuleMode, mode};
use super::tenant::SniRule;
use super::text::{base_url, certificate_digest, header, parameter, subject_name, token_hash};
use crate::connector::quota::{CapTable, caps};
use crate::form::{AtLine, Choice, Lined, List, Located, Maybe, Moment, Placed, Table, Text, needed, settings, text};
use crate::settings::{Http2, RULES_MAX, class_name, http2};
use crate::tenant_file::reference;

/// How a credential is attached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Bearer,
    Header,
    Basic,
    Query,
}

settings! {
    /// Where the tenant's calls may go.
    pub(crate) struct EgressTable {
        /// What it may call, beside what `egress.allow` of the appliance's file allows everybody.
        allow: Vec<EgressRule> = Vec::new(), List(Rule, 0..=RULES_MAX), live,
            "Nothing, until somebody says so.";
        /// What it may not call, whatever allows it.
        deny: Vec<EgressRule> = Vec::new(), List(Rule, 0..=RULES_MAX), live,
            "For what is within a zone that is allowed.";
        /// What happens to a destination that no `allow` rule covers.
        mode: Option<RuleMode> = None, Maybe(mode()), live,
            "Without it, `egress.mode` of the appliance's file.";
        /// Name of the pool of addresses that its calls leave from, one of `egress.pool` in the appliance's file.
        pool: Option<Located<String>> = None, Maybe(Placed(class_name())), live,
            "Without it, the one named `default`.";
        /// Whether the TLS greeting inside of a tunnel has to name the destination: `require`, `allow-absent` where it may name none, or `report` where whatever a tunnel carries passes, and what `require` would end is told.
        sni: Option<SniRule> = None, Maybe(sni()), live,
            "`require`: every usual client names it, and what names another is refused with `allow-absent`, too. `report` is for finding out who would be refused. In a tunnel to an address there is no name to be named.";
        /// Roles: callers of the tenant that may go elsewhere.
        role: Vec<Located<RoleTable>> = Vec::new(), List(Placed(Table), 0..=256), live, "";
        /// Static tokens, for callers that cannot be given grants.
        token: Vec<Located<TokenTable>> = Vec::new(), List(Placed(Table), 0..=1024), live, "";
        /// Client certificates, for callers that prove themselves by one (`egress.tls` of the appliance's file).
        certificate: Vec<Located<CertificateTable>> = Vec::new(), List(Placed(Table), 0..=1024), live, "";
    }

    /// Callers of the tenant that may go elsewhere than the rest.
    pub(crate) struct RoleTable {
        /// Its name, which grants and tokens carry.
        name: String = String::new(), needed(class_name()), live, "Grants and tokens refer to it.";
        /// What it may call instead of what the tenant's own `allow` says.
        allow: Option<Vec<EgressRule>> = None, Maybe(List(Rule, 0..=RULES_MAX)), live,
            "Without it, the tenant's own list. `[]` is nothing but what the appliance's file allows everybody.";
        /// What it may not call, beside what the tenant's own `deny` says.
        deny: Vec<EgressRule> = Vec::new(), List(Rule, 0..=RULES_MAX), live,
            "The tenant's own list holds for every role.";
        /// What happens to a destination that no `allow` rule covers.
        mode: Option<RuleMode> = None, Maybe(mode()), live, "Without it, the tenant's.";
        /// As the tenant's.
        sni: Option<SniRule> = None, Maybe(sni()), live, "Without it, the tenant's.";
    }

    /// A certificate that proves a caller. An authority of `egress.tls.client_roots` has signed it.
    pub(crate) struct CertificateTable {
        /// Its name, for records.
        name: String = String::new(), needed(class_name()), live, "Records say who called.";
        /// `sha256:` and the digest of the certificate in hex: `openssl x509 -in FILE -outform DER | sha256sum`. It or `san`, not both.
        sha256: Option<Located<[u8; 32]>> = None, Maybe(Placed(certificate_digest())), live,
            "One certificate and no other: it has to be written anew with every new one. A digest decides alone, whatever names the certificate has.";
        /// One of its subject alternative names, with the kind, byte for byte: `dns:…`, `uri:…` or `email:…`.
        san: Option<Located<String>> = None, Maybe(Placed(subject_name())), live,
            "It stays when a certificate is renewed, and is worth what the authority is worth.";
        /// The role that it is for.
        role: Option<Located<String>> = None, Maybe(Placed(class_name())), live, "Without one, the tenant's own rules hold.";
    }

    /// A token that proves a caller.
    pub(crate) struct TokenTable {
        /// Its name, for records.
        name: String = String::new(), needed(class_name()), live, "Records say who called and never show a token.";
        /// `sha256:` and the digest of the token in hex, as `printf %s TOKEN | sha256sum` prints it. A token begins with `tgt_`: `tidegate grant token --new` makes one, and this table.
        hash: Option<[u8; 32]> = None, needed(Maybe(token_hash())), live,
            "Whoever reads this file cannot call with what is in it. Use tokens of 128 random bits or more.";
        /// The role that it is for.
        role: Option<Located<String>> = None, Maybe(Placed(class_name())), live, "Without one, the tenant's own rules hold.";
        /// When it ends, such as `2026-01-31T12:00:00Z`.
        not_after: Option<u64> = None, Maybe(Moment), live, "It counts until it is taken out.";
    }

    /// An account at a provider, called as `/c/{id}/…`.
    pub(crate) struct ConnectionTable {
        /// Its id, unique among the tenant's connections.
        id: Option<Located<ConnectionId>> = None, needed(Maybe(Placed(connection_id()))), live,
            "It stands in the URL that is called: `/c/{id}/…`.";
        /// Name of its connector (`docs/connectors.md`); `http` for providers that have none.
        connector: Option<Located<ConnectorId>> = None, needed(Maybe(Placed(connector_id()))), live,
            "It says which hosts the credential may go to and which headers travel.";
        /// What paths are put behind: `https://`, host, and if need be port and base path. The host is one of the connector's.
        base_url: Option<Located<String>> = None, needed(Maybe(Placed(base_url()))), live,
            "Providers with regions or shops have a host for each.";
        /// Id of the credential that is attached, one of this file.
        credential: Option<Located<String>> = None, Maybe(Placed(class_name())), live,
            "Without one, calls go out without a credential.";
        /// Tier of its account, one of its connector's quota profile.
        quota_tier: Option<AtLine<String>> = None, Maybe(Lined(class_name())), live,
            "Without it, that of the operator's file, or the connector's first. One that allows more than that has to be allowed by the operator's file (`egress.quota`).";
        /// Caps of limits of its own, lower than what would hold without them.
        quota: Vec<CapTable> = Vec::new(), caps(), live, "";
        /// Whether HTTP/2 is spoken with its provider: `auto` where that chooses it, or `off`.
        http2: Option<Http2> = None, Maybe(http2()), live,
            "Without it, `egress.http2` of the appliance's file. `off` is for a provider that stumbles over it.";
        /// Authorities that its provider's certificate may be from, in PEM: a reference to a secret.
        roots: Option<Located<String>> = None, Maybe(Placed(reference())), live,
            "Without it, those that the machine trusts.";
        /// Certificate that is shown to the provider, in PEM with its chain: a reference to a secret. With `client_key`.
        client_certificate: Option<Located<String>> = None, Maybe(Placed(reference())), live,
            "Few providers ask for one.";
        /// Private key of `client_certificate`, in PEM: a reference to a secret.
        client_key: Option<Located<String>> = None, Maybe(Placed(reference())), live,
            "It belongs to the certificate.";
    }

    /// What proves the tenant to a provider.
    pub(crate) struct CredentialTable {
        /// Its id, unique among the tenant's credentials.
        id: Option<Located<String>> = None, needed(Maybe(Placed(class_name()))), live, "Connections refer to it.";
        /// How it is attached: `bearer` as `Authorization: Bearer …`, `header` in a header of its own, `basic` as user and password, `query` as a parameter.
        kind: Option<Kind> = None, needed(Maybe(kind())), live,
            "The provider decides.";
        /// Reference to the secret, as an endpoint's: `secret:NAME`, or `env:NAME` where `tenants.allow_env` allows it.
        value: Option<Located<String>> = None, needed(Maybe(Placed(reference()))), live,
            "Secrets are never written into a file that is copied, mailed and committed.";
        /// Of `header`: its name.
        header: Option<Located<String>> = None, Maybe(Placed(header())), live, "The provider decides.";
        /// Of `header`: what stands before the secret, such as `"Token "`.
        prefix: Option<Located<String>> = None, Maybe(Placed(prefix())), live, "Most have none.";
        /// Of `basic`: the user's name. Then the secret is the password.
        username: Option<Located<String>> = None, Maybe(Placed(username())), live,
            "Without it, the secret is `user:password`; of a key that goes into the place of the user, `key:`.";
        /// Of `query`: the parameter's name.
        parameter: Option<Located<String>> = None, Maybe(Placed(parameter())), live, "The provider decides.";
    }
}

const fn kind() -> Choice<Kind> {
    Choice(&[("bearer", Kind::Bearer), ("header", Kind::Header), ("basic", Kind::Basic), ("query", Kind::Query)])
}

const fn sni() -> Choice<SniRule> {
    Choice(&[("require", SniRule::Require), ("allow-absent", SniRule::AllowAbsent), ("report", SniRule::Report)])
}

const fn connection_id() -> Text<ConnectionId> {
    text(
        "id",
        "conn_stripe",
        |text| ConnectionId::parse(text).map_err(|fault| format!("the id {text:?} {fault}")),
        ConnectionId::to_string,
    )
}

pub(crate) const fn connector_id() -> Text<ConnectorId> {
    text(
        "name of a connector",
        "stripe",
        |text| match ConnectorId::parse(text) {
            Ok(id) if !text.bytes().any(|byte| byte.is_ascii_uppercase()) => Ok(id),
            Ok(_) => Err(format!("{text:?} has capitals; connectors are named in small letters")),
            Err(fault) => Err(format!("the name {text:?} {fault}")),
        },
        ConnectorId::to_string,
    )
}

const fn prefix() -> Text<String> {
    text(
        "text",
        "Token ",
        |text| {
            if text.len() <= 64 && text.bytes().all(|byte| (b' '..=b'~').contains(&byte)) && !text.starts_with(' ') {
                Ok(text.to_owned())
            } else {
                Err("is nothing that can stand at the beginning of a header; write such as \"Token \"".into())
            }
        },
        String::clone,
    )
}

const fn username() -> Text<String> {
    text(
        "user's name",
        "AC0123456789abcdef",
        |text| {
            // RFC 7617, 2: no colon, no control characters.
            if text.len() <= 256 && !text.contains(':') && !text.chars().any(char::is_control) {
                Ok(text.to_owned())
            } else {
                Err("is no user's name: it has a colon, a control character, or more than 256 bytes".into())
            }
        },
        String::clone,
    )
}
