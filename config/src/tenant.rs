//! A tenant and its endpoints, as the accept path sees them.
//!
//! A node holds a million of these, and most of them sleep: what few endpoints have is boxed apart, what many share
//! is shared, and nothing of the file's text is kept.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use domain::{EndpointId, Secret, TenantId};
use ipnet::IpNet;

use crate::egress::TenantEgress;
use crate::endpoint_handshake::EndpointHandshake;
use crate::fault::Fault;
use crate::public_url::PublicUrl;
use crate::runner::TenantRunner;
use crate::scheme::SchemeDeclaration;
use crate::settings::Limits;

/// The customer whose events, calls and secrets these are; one file of the tenants' directory.
#[derive(Clone, PartialEq)]
pub struct Tenant {
    pub id: TenantId,
    pub endpoints: Box<[Endpoint]>,
    pub(crate) common: Arc<Common>,
    pub(crate) rare: Option<Box<RareTenant>>,
    /// Of the file's bytes and of everything that its references resolved to; keyed per process, so it tells nothing.
    pub(crate) digest: [u8; 16],
}

/// What all tenants of one retention class have.
#[derive(Debug, PartialEq)]
pub(crate) struct Common {
    pub(crate) retention: Arc<str>,
    pub(crate) directory: Arc<Path>,
}

/// What few tenants have.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct RareTenant {
    pub(crate) limits: Limits,
    pub(crate) schemes: Box<[DeclaredScheme]>,
    pub(crate) egress: Option<Box<TenantEgress>>,
    pub(crate) runner: Option<Box<TenantRunner>>,
}

/// A scheme that a tenant declared, and where.
#[derive(Debug, Clone, PartialEq)]
pub struct DeclaredScheme {
    pub declaration: Arc<SchemeDeclaration>,
    /// Its place among the tenant's `[[scheme]]` tables.
    pub index: usize,
    pub line: u32,
    /// Keys of it that were misread, such as `signature.header`: stand-ins are there. A tenant that is served has none.
    pub(crate) misread: Box<[Box<str>]>,
}

/// A URL that a provider posts to.
#[derive(Clone, PartialEq)]
pub struct Endpoint {
    pub id: EndpointId,
    /// Name of a preset, or of a scheme that the tenant declared.
    pub scheme: Arc<str>,
    /// At least one, unless the endpoint is disabled.
    pub secrets: Box<[SecretEntry]>,
    pub(crate) rare: Option<Box<RareEndpoint>>,
    /// Where the endpoint stands in the tenant's file.
    pub line: u32,
    /// A disabled endpoint answers as an unknown one does.
    pub enabled: bool,
}

/// What few endpoints have.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct RareEndpoint {
    pub(crate) limits: Limits,
    pub(crate) sources: Box<[IpNet]>,
    pub(crate) body_bytes_max: Option<u64>,
    pub(crate) aliases: Box<[Alias]>,
    pub(crate) public_url: Option<PublicUrl>,
    pub(crate) over_limit: OverLimit,
    /// Its list of secrets is written, and empty.
    pub(crate) takes_no_secret: bool,
    pub(crate) handshake: Option<Box<EndpointHandshake>>,
    pub(crate) repeats: RepeatRule,
}

/// What happens to a verified delivery that is over a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OverLimit {
    /// 429 where the provider sends again, else the bulk class.
    #[default]
    Default,
    /// 429, always.
    Refuse,
    /// It is committed in the bulk class.
    Bulk,
}

/// What happens to a delivery whose id was committed before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RepeatRule {
    /// It is answered as the first was, where the signature covers the id; else it is an event of its own.
    #[default]
    Default,
    /// It is an event of its own, always.
    Keep,
    /// It is answered as the first was, also where anybody can write the id.
    Drop,
}

/// Another host and path that an endpoint answers under, so that a team migrates without touching its providers.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Alias {
    /// Lower case; none stands for every host that is served.
    pub host: Option<Box<str>>,
    /// Exact path, `/…`, without a query.
    pub path: Box<str>,
}

/// One of an endpoint's secrets.
#[derive(Clone, PartialEq)]
pub struct SecretEntry {
    pub secret: Secret,
    pub terms: SecretTerms,
}

/// What a secret is called, and when it counts. Most have the usual name and count always.
#[derive(Clone, PartialEq)]
pub struct SecretTerms(Option<Box<RareSecret>>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct RareSecret {
    name: Box<str>,
    not_before_unix_ms: u64,
    not_after_unix_ms: u64,
    index: usize,
}

/// Name of an endpoint's only secret where the file gives it none.
pub(crate) const SECRET_NAME: &str = "primary";

impl Tenant {
    /// The file that it was read from.
    pub fn file(&self) -> PathBuf {
        file_of(&self.common.directory, self.id.as_str())
    }

    /// Name of its retention class: one of `log.retention`, the first where the file names none.
    pub fn retention(&self) -> &Arc<str> {
        &self.common.retention
    }

    pub fn limits(&self) -> &Limits {
        self.rare.as_ref().map_or(&Limits::NONE, |rare| &rare.limits)
    }

    /// The schemes that the tenant declared itself.
    pub fn schemes(&self) -> &[DeclaredScheme] {
        self.rare.as_ref().map_or(&[], |rare| &rare.schemes)
    }

    /// Its way out; none where its file says nothing of one, and then the appliance's own rules hold.
    pub fn egress(&self) -> Option<&TenantEgress> {
        self.rare.as_ref()?.egress.as_deref()
    }

    /// Who may ask for its runs; none where its file says nothing of them.
    pub fn runner(&self) -> Option<&TenantRunner> {
        self.rare.as_ref()?.runner.as_deref()
    }

    pub(crate) fn egress_mut(&mut self) -> Option<&mut TenantEgress> {
        self.rare.as_mut()?.egress.as_deref_mut()
    }

    pub(crate) fn without_egress(&self) -> Self {
        let mut tenant = self.clone();
        if let Some(rare) = &mut tenant.rare {
            rare.egress = None;
        }
        tenant
    }

    /// A fault in this tenant's file that only a later stage can see, such as an unknown scheme. Where the file has the
    /// key, the fault is said at the key's own line.
    pub fn fault(&self, line: u32, key: impl Into<String>, message: impl Into<String>) -> Fault {
        Fault::error(self.file(), key, message).at(line)
    }
}

impl DeclaredScheme {
    /// Whether all of it was read: else it verifies nothing.
    pub fn is_whole(&self) -> bool {
        self.misread.is_empty()
    }

    /// Whether this key of it was read, such as `timestamp.from`, and all that is in it.
    pub fn is_read(&self, key: &str) -> bool {
        let is_within = |inner: &str, outer: &str| {
            inner.strip_prefix(outer).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
        };
        !self.misread.iter().any(|misread| is_within(misread, key) || is_within(key, misread))
    }
}

pub(crate) fn file_of(directory: &Path, tenant: &str) -> PathBuf {
    directory.join(format!("{tenant}.toml"))
}

impl Endpoint {
    /// Its own limits; what they leave out is the node's default.
    pub fn limits(&self) -> &Limits {
        self.rare.as_ref().map_or(&Limits::NONE, |rare| &rare.limits)
    }

    /// Is its list of secrets written, and empty? That goes only where its scheme has the provider's published keys.
    pub fn takes_no_secret(&self) -> bool {
        self.rare.as_ref().is_some_and(|rare| rare.takes_no_secret)
    }

    /// Networks that deliveries are taken from; empty means everywhere.
    pub fn sources(&self) -> &[IpNet] {
        self.rare.as_ref().map_or(&[], |rare| &rare.sources)
    }

    /// Its own largest body, if it is not the node's.
    pub fn body_bytes_max(&self) -> Option<u64> {
        self.rare.as_ref().and_then(|rare| rare.body_bytes_max)
    }

    pub fn aliases(&self) -> &[Alias] {
        self.rare.as_ref().map_or(&[], |rare| &rare.aliases)
    }

    /// The URL that its provider posts to, if it is not the node's: for schemes that sign the URL.
    pub fn public_url(&self) -> Option<&PublicUrl> {
        self.rare.as_ref().and_then(|rare| rare.public_url.as_ref())
    }

    /// What its handshakes need beside its secrets.
    pub fn handshake(&self) -> Option<&EndpointHandshake> {
        self.rare.as_ref().and_then(|rare| rare.handshake.as_deref())
    }

    pub fn repeats(&self) -> RepeatRule {
        self.rare.as_ref().map_or(RepeatRule::Default, |rare| rare.repeats)
    }

    pub fn over_limit(&self) -> OverLimit {
        self.rare.as_ref().map_or(OverLimit::Default, |rare| rare.over_limit)
    }
}

impl SecretEntry {
    pub fn new(name: &str, secret: Secret, not_before_unix_ms: Option<u64>, not_after_unix_ms: Option<u64>) -> Self {
        let usual = name == SECRET_NAME && not_before_unix_ms.is_none() && not_after_unix_ms.is_none();
        let rare = RareSecret {
            name: name.into(),
            not_before_unix_ms: not_before_unix_ms.unwrap_or(0),
            not_after_unix_ms: not_after_unix_ms.unwrap_or(u64::MAX),
            index: 0,
        };
        Self { secret, terms: SecretTerms((!usual).then(|| Box::new(rare))) }
    }
}

impl SecretEntry {
    /// The same at another place among its endpoint's secrets than the first.
    #[must_use]
    pub(crate) fn at(mut self, index: usize) -> Self {
        if index > 0 {
            let rare = self.terms.0.get_or_insert_with(|| {
                let name = SECRET_NAME.into();
                Box::new(RareSecret { name, not_before_unix_ms: 0, not_after_unix_ms: u64::MAX, index })
            });
            rare.index = index;
        }
        self
    }
}

impl SecretTerms {
    /// Its place among its endpoint's secrets in the file.
    pub fn index(&self) -> usize {
        self.0.as_ref().map_or(0, |rare| rare.index)
    }

    /// How evidence names it.
    pub fn name(&self) -> &str {
        self.0.as_ref().map_or(SECRET_NAME, |rare| &rare.name)
    }

    pub fn not_before_unix_ms(&self) -> Option<u64> {
        self.0.as_ref().map(|rare| rare.not_before_unix_ms).filter(|at| *at != 0)
    }

    pub fn not_after_unix_ms(&self) -> Option<u64> {
        self.0.as_ref().map(|rare| rare.not_after_unix_ms).filter(|at| *at != u64::MAX)
    }

    /// Whether a delivery of that time may be verified with it; both ends count as inside.
    pub fn is_active(&self, at_unix_ms: u64) -> bool {
        self.0.as_ref().is_none_or(|rare| (rare.not_before_unix_ms..=rare.not_after_unix_ms).contains(&at_unix_ms))
    }
}

impl fmt::Debug for Tenant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Tenant");
        shown.field("id", &self.id).field("retention", self.retention()).field("endpoints", &self.endpoints);
        shown.field("rare", &self.rare).finish_non_exhaustive()
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Endpoint");
        shown.field("id", &self.id).field("scheme", &self.scheme).field("secrets", &self.secrets);
        shown.field("enabled", &self.enabled).field("line", &self.line).field("rare", &self.rare).finish()
    }
}

impl fmt::Debug for SecretTerms {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SecretTerms").field(&self.name()).finish()
    }
}

impl fmt::Debug for SecretEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SecretEntry").field("name", &self.terms.name()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dormant_endpoint_is_small() {
        assert!(size_of::<Endpoint>() <= 72 && size_of::<Tenant>() <= 72 && size_of::<SecretEntry>() <= 24);
    }

    /// A hundred thousand tenants that have no way out pay nothing for those that have one.
    #[test]
    fn a_tenant_without_a_way_out_has_nothing_boxed() {
        let read = |text: &str| crate::parse_tenant(text.as_bytes()).0.unwrap();
        assert!(read("tenant = \"acme\"\n").rare.is_none());
        let limits = read("tenant = \"acme\"\n[limits]\nevents = \"1/s\"\n");
        assert!(limits.rare.is_some_and(|rare| rare.egress.is_none()));
        assert_eq!(size_of::<Option<Box<TenantEgress>>>(), size_of::<usize>());
    }

    #[test]
    fn a_secret_counts_from_its_first_to_its_last_millisecond() {
        let entry = SecretEntry::new("old", Secret::new(*b"k"), Some(10), Some(20));
        let active: Vec<_> = [9, 10, 20, 21].into_iter().filter(|at| entry.terms.is_active(*at)).collect();
        assert_eq!(active, [10, 20]);
        assert_eq!(
            (entry.terms.name(), entry.terms.not_before_unix_ms(), entry.terms.not_after_unix_ms()),
            ("old", Some(10), Some(20))
        );
        let entry = SecretEntry::new(SECRET_NAME, Secret::new(*b"k"), None, None);
        assert!(entry.terms.0.is_none() && entry.terms.is_active(0) && entry.terms.is_active(u64::MAX));
        assert_eq!(format!("{entry:?}"), "SecretEntry { name: \"primary\", .. }");
    }
}
