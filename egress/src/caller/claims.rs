//! What a grant says: its claims, each read strictly or the grant refused.
//!
//! | claim | | what it is |
//! |---|---|---|
//! | `iss` | required | the issuer, by the name that the configuration gives it |
//! | `aud` | required | this fleet's `egress.audience`: a string, or a list of one |
//! | `tenant` | required | whose calls these are |
//! | `iat`, `exp` | required | whole seconds since 1970; at most 15 minutes apart |
//! | `nbf` | | whole seconds since 1970 |
//! | `jti` | required | the grant's id, unique for its issuer |
//! | `connections` | | which connections may be called; absent: all of the tenant's |
//! | `destinations` | | which hosts may be asked for; absent: what policy says |
//! | `role` | | which of the tenant's roles |
//! | `run`, `automation`, `class` | | evidence for the records; a run can be revoked, an automation watched, `bulk` goes last |
//! | `source` | | networks that the peer has to be in |
//! | `calls_max` | | how often the grant may be used on one node |
//! | `cnf` | | `x5t#S256` of the client certificate (RFC 8705 3.1) |
//! | `sub` | | not used |
//!
//! **Claims that are not known refuse the grant.** RFC 7519 4 would have them ignored, where "specific applications" do
//! not say otherwise; this one does. `destination` for `destinations`, or a bound that a later version knows and this
//! one does not, would make a grant that allows more than its issuer meant, with nobody to see it. What an issuer wants
//! to carry for itself goes under a name with a colon in it, as public names have (RFC 7519 4.2): those are ignored.

use std::net::IpAddr;
use std::num::NonZeroU32;

use data_encoding::BASE64URL_NOPAD;
use domain::json::{self, Members, Value};
use domain::{ConnectionId, TenantId};
use ipnet::IpNet;
use outbound::HostPattern;

use super::unproved::GrantFault;

/// Longest run, automation, class, role, issuer or id, in bytes.
const LABEL_BYTES_MAX: usize = 256;

/// Entries of `connections` and of `destinations`. Each call looks through them.
const LIST_MAX: usize = 128;

/// Entries of `source`.
const SOURCES_MAX: usize = 32;

/// The year 10000, in seconds: times beyond are mistakes, such as milliseconds.
const SECONDS_END: u64 = 253_402_300_800;

/// Every claim of a grant, read and not yet judged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Claims {
    pub(super) issuer: Box<str>,
    pub(super) audience: Box<str>,
    pub(super) tenant: TenantId,
    pub(super) id: Box<str>,
    /// Unix seconds, as the two below.
    pub(super) issued_at: u64,
    pub(super) not_before: Option<u64>,
    pub(super) expires_at: u64,
    pub(super) connections: Option<Box<[ConnectionId]>>,
    pub(super) destinations: Option<Box<[HostPattern]>>,
    pub(super) role: Option<Box<str>>,
    pub(super) run: Option<Box<str>>,
    pub(super) automation: Option<Box<str>>,
    pub(super) class: Option<Box<str>>,
    pub(super) sources: Option<Box<[IpNet]>>,
    pub(super) calls_max: Option<NonZeroU32>,
    /// SHA-256 of the client certificate.
    pub(super) certificate: Option<[u8; 32]>,
}

impl Claims {
    /// Reads the second part of a JWT, decoded.
    pub(super) fn read(payload: &[u8]) -> Result<Self, GrantFault> {
        let mut members = json::object(payload)?;
        let mut optional = |name| take(&mut members, name);
        let claims = Found {
            issuer: optional("iss"),
            audience: optional("aud"),
            tenant: optional("tenant"),
            id: optional("jti"),
            issued_at: optional("iat"),
            not_before: optional("nbf"),
            expires_at: optional("exp"),
            connections: optional("connections"),
            destinations: optional("destinations"),
            role: optional("role"),
            run: optional("run"),
            automation: optional("automation"),
            class: optional("class"),
            sources: optional("source"),
            calls_max: optional("calls_max"),
            confirmation: optional("cnf"),
        };
        drop(optional("sub"));
        if let Some((name, _)) = members.into_iter().find(|(name, _)| !name.contains(':')) {
            return Err(GrantFault::UnknownClaim(name.into()));
        }
        claims.read()
    }
}

/// Every claim that is known, as it was found.
struct Found {
    issuer: Option<Value>,
    audience: Option<Value>,
    tenant: Option<Value>,
    id: Option<Value>,
    issued_at: Option<Value>,
    not_before: Option<Value>,
    expires_at: Option<Value>,
    connections: Option<Value>,
    destinations: Option<Value>,
    role: Option<Value>,
    run: Option<Value>,
    automation: Option<Value>,
    class: Option<Value>,
    sources: Option<Value>,
    calls_max: Option<Value>,
    confirmation: Option<Value>,
}

impl Found {
    fn read(self) -> Result<Claims, GrantFault> {
        Ok(Claims {
            issuer: required("iss", self.issuer, label)?,
            audience: required("aud", self.audience, only)?,
            tenant: required("tenant", self.tenant, |value| TenantId::parse(&text(value)?).ok())?,
            id: required("jti", self.id, label)?,
            issued_at: required("iat", self.issued_at, |value| seconds(&value))?,
            not_before: optional("nbf", self.not_before, |value| seconds(&value))?,
            expires_at: required("exp", self.expires_at, |value| seconds(&value))?,
            connections: optional("connections", self.connections, |value| {
                list(value, LIST_MAX, |text| ConnectionId::parse(text).ok())
            })?,
            destinations: optional("destinations", self.destinations, |value| {
                list(value, LIST_MAX, |text| HostPattern::parse(text).ok())
            })?,
            role: optional("role", self.role, label)?,
            run: optional("run", self.run, label)?,
            automation: optional("automation", self.automation, label)?,
            class: optional("class", self.class, label)?,
            sources: optional("source", self.sources, |value| list(value, SOURCES_MAX, network))?,
            calls_max: optional("calls_max", self.calls_max, |value| match value {
                Value::Whole(count) => NonZeroU32::new(count.try_into().ok()?),
                Value::Text(_) | Value::List(_) | Value::Members(_) | Value::Flag(_) | Value::Other => None,
            })?,
            certificate: optional("cnf", self.confirmation, thumbprint)?,
        })
    }
}

impl From<json::Fault> for GrantFault {
    fn from(fault: json::Fault) -> Self {
        match fault {
            json::Fault::NotAnObject => Self::Form,
            json::Fault::Twice | json::Fault::TooMany => Self::Members,
        }
    }
}

/// Takes a member out, so that what is left is what nobody asked for.
pub(super) fn take(members: &mut Members, name: &str) -> Option<Value> {
    let at = members.iter().position(|(known, _)| known == name)?;
    Some(members.swap_remove(at).1)
}

fn required<T>(name: &'static str, value: Option<Value>, read: impl Fn(Value) -> Option<T>) -> Result<T, GrantFault> {
    value.and_then(read).ok_or(GrantFault::Claim(name))
}

fn optional<T>(
    name: &'static str,
    value: Option<Value>,
    read: impl Fn(Value) -> Option<T>,
) -> Result<Option<T>, GrantFault> {
    value.map(|value| read(value).ok_or(GrantFault::Claim(name))).transpose()
}

pub(super) fn text(value: Value) -> Option<String> {
    match value {
        Value::Text(text) => Some(text),
        Value::Whole(_) | Value::List(_) | Value::Members(_) | Value::Flag(_) | Value::Other => None,
    }
}

/// Text that goes into records: visible ASCII, and not much of it.
fn label(value: Value) -> Option<Box<str>> {
    text(value).filter(|text| is_label(text)).map(Into::into)
}

/// 1 to 256 bytes of visible ASCII.
pub(super) fn is_label(text: &str) -> bool {
    (1..=LABEL_BYTES_MAX).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic())
}

/// A string, or a list with one: a grant for several audiences could be used by one of them at the other.
fn only(value: Value) -> Option<Box<str>> {
    match value {
        Value::List(list) => <[Value; 1]>::try_from(list).ok().and_then(|[value]| label(value)),
        Value::Text(_) | Value::Whole(_) | Value::Members(_) | Value::Flag(_) | Value::Other => label(value),
    }
}

fn seconds(value: &Value) -> Option<u64> {
    match value {
        Value::Whole(seconds) if *seconds < SECONDS_END => Some(*seconds),
        Value::Whole(_) | Value::Text(_) | Value::List(_) | Value::Members(_) | Value::Flag(_) | Value::Other => None,
    }
}

fn list<T>(value: Value, max: usize, read: impl Fn(&str) -> Option<T>) -> Option<Box<[T]>> {
    match value {
        Value::List(list) if list.len() <= max => list.into_iter().map(|value| read(&text(value)?)).collect(),
        Value::List(_) | Value::Text(_) | Value::Whole(_) | Value::Members(_) | Value::Flag(_) | Value::Other => None,
    }
}

/// A network, or one address: how `source` has it.
pub fn network(text: &str) -> Option<IpNet> {
    text.parse().ok().or_else(|| text.parse::<IpAddr>().ok().map(IpNet::from))
}

/// Exactly one way of confirmation, and the one that is known: with another beside it, both would have to be checked.
fn thumbprint(value: Value) -> Option<[u8; 32]> {
    let Value::Members(mut members) = value else { return None };
    let print = take(&mut members, "x5t#S256").filter(|_| members.is_empty()).and_then(text)?;
    BASE64URL_NOPAD.decode(print.as_bytes()).ok()?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEAST: &str =
        r#""iss":"platform","aud":"tidegate","tenant":"acme","jti":"g1","iat":1764424000,"exp":1764424060"#;

    fn read(more: &str) -> Result<Claims, GrantFault> {
        Claims::read(format!("{{{LEAST}{more}}}").as_bytes())
    }

    #[test]
    fn every_claim_is_read() {
        let least = read("").unwrap();
        assert_eq!(
            (&*least.issuer, &*least.audience, least.tenant.as_str(), &*least.id),
            ("platform", "tidegate", "acme", "g1")
        );
        assert_eq!((least.issued_at, least.not_before, least.expires_at), (1_764_424_000, None, 1_764_424_060));
        assert!(least.connections.is_none() && least.destinations.is_none() && least.sources.is_none());
        let whole = read(
            r#","nbf":5,"connections":["conn_a"],"destinations":["api.example.com","*.example.org"],"role":"build",
            "run":"runs/7","automation":"a-1","class":"gold","source":["10.0.0.0/8","192.0.2.7","fd00::/8"],"calls_max":3,
            "cnf":{"x5t#S256":"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"},"sub":"x","https://example.com/own":[1]"#,
        )
        .unwrap();
        assert_eq!(whole.connections.unwrap()[0].as_str(), "conn_a");
        assert_eq!(whole.destinations.unwrap()[1].to_string(), "*.example.org");
        assert_eq!((whole.role.as_deref(), whole.run.as_deref()), (Some("build"), Some("runs/7")));
        assert_eq!((whole.automation.as_deref(), whole.class.as_deref()), (Some("a-1"), Some("gold")));
        assert_eq!(whole.sources.unwrap()[1], "192.0.2.7/32".parse().unwrap());
        assert_eq!((whole.calls_max.unwrap().get(), whole.certificate), (3, Some([0; 32])));
        assert_eq!(read(r#","connections":[]"#).unwrap().connections.as_deref(), Some(&[][..]));
    }

    #[test]
    fn what_is_not_known_is_not_ignored() {
        for name in ["destination", "callsMax", "scope", "Tenant", ""] {
            let fault = read(&format!(r#","{name}":"x""#)).unwrap_err();
            assert_eq!(fault, GrantFault::UnknownClaim(name.into()));
        }
        assert!(read(r#","urn:example:own":{"x":1}"#).is_ok());
        assert_eq!(read(r#","urn:own":1,"urn:own":1"#), Err(GrantFault::Members));
        assert_eq!(read(r#","jti":"g1""#), Err(GrantFault::Members));
    }

    #[test]
    fn every_claim_has_one_form() {
        for (name, values) in [
            ("nbf", &["null", "\"5\"", "5.0", "5e3", "-1", "1764424000000"][..]),
            ("connections", &["null", "\"conn_a\"", "[1]", "[\"a/b\"]", "[\"\"]", "{}", "[null]"]),
            ("destinations", &["\"a.example\"", "[\"https://a.example\"]", "[\"*\"]", "[\"a.example:443\"]"]),
            ("role", &["\"\"", "\"a b\"", "\"a\\u0000\"", "\"\u{e9}\"", "1", "null", "[]"]),
            ("run", &["\"a\\nb\""]),
            ("source", &["\"10.0.0.0/8\"", "[\"10.0.0.0/33\"]", "[\"10\"]", "[\"localhost\"]"]),
            ("calls_max", &["0", "-1", "1.5", "\"3\"", "4294967296", "null"]),
            (
                "cnf",
                &[
                    "{}",
                    "\"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA\"",
                    "{\"x5t#S256\":\"AAAA\"}",
                    "{\"x5t#S256\":\"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAB\"}",
                    "{\"x5t#S256\":\"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=\"}",
                    "{\"x5t#S256\":\"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA\",\"jkt\":\"x\"}",
                ],
            ),
        ] {
            for value in values {
                assert_eq!(read(&format!(r#","{name}":{value}"#)), Err(GrantFault::Claim(name)), "{name} {value}");
            }
        }
        for (name, changed) in [
            ("iss", LEAST.replace("\"platform\"", "[\"platform\"]")),
            ("aud", LEAST.replace("\"tidegate\"", "[\"tidegate\",\"other\"]")),
            ("aud", LEAST.replace("\"tidegate\"", "[]")),
            ("tenant", LEAST.replace("\"acme\"", "\"a.b\"")),
            ("jti", LEAST.replace("\"g1\"", "1")),
            ("iat", LEAST.replace("1764424000,", "null,")),
            ("exp", LEAST.replace("1764424060", "1764424060.5")),
        ] {
            assert_ne!(changed, LEAST);
            assert_eq!(Claims::read(format!("{{{changed}}}").as_bytes()), Err(GrantFault::Claim(name)), "{changed}");
        }
        let listed = LEAST.replace("\"tidegate\"", "[\"tidegate\"]");
        assert_eq!(&*Claims::read(format!("{{{listed}}}").as_bytes()).unwrap().audience, "tidegate");
        for name in ["iss", "aud", "tenant", "jti", "iat", "exp"] {
            let without = LEAST.split(',').filter(|member| !member.contains(name)).collect::<Vec<_>>().join(",");
            assert_eq!(Claims::read(format!("{{{without}}}").as_bytes()), Err(GrantFault::Claim(name)));
        }
    }

    #[test]
    fn lists_and_labels_are_bounded() {
        let list = |name: &str, item: &str, count| format!(",\"{name}\":[{}]", vec![item; count].join(","));
        for (name, item, max) in [
            ("connections", "\"c\"", LIST_MAX),
            ("destinations", "\"a.example\"", LIST_MAX),
            ("source", "\"::1\"", SOURCES_MAX),
        ] {
            assert!(read(&list(name, item, max)).is_ok());
            assert_eq!(read(&list(name, item, max + 1)), Err(GrantFault::Claim(name)));
        }
        let run = |bytes| format!(",\"run\":\"{}\"", "r".repeat(bytes));
        assert!(read(&run(LABEL_BYTES_MAX)).is_ok());
        assert_eq!(read(&run(LABEL_BYTES_MAX + 1)), Err(GrantFault::Claim("run")));
    }
}
