//! One tenant's file: its keys, and from its text a tenant.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use domain::{EndpointId, Secret, TenantId};
use ipnet::IpNet;
use toml::Spanned;
use toml::de::DeTable;

use crate::alias;
use crate::document::{Document, Text as Written};
use crate::egress::{self, ConnectionTable, CredentialTable, EgressTable};
use crate::endpoint_handshake::{self, HandshakeTable};
use crate::fault::Fault;
use crate::form::{
    Bytes, Choice, Declared, Flag, List, Located, Maybe, Moment, Placed, Settings, Table, Text, needed, network,
    settings, text, url,
};
use crate::public_url::PublicUrl;
use crate::runner::{self, RunnerTable};
use crate::scheme::SchemeDeclaration;
use crate::secret::ResolvedSecret;
use crate::settings::{Appliance, Limits};
use crate::tenant::{
    Alias, Common, DeclaredScheme, Endpoint, OverLimit, RareEndpoint, RareTenant, RepeatRule, SECRET_NAME, SecretEntry,
    Tenant,
};
use crate::tenants::InPart;
use crate::units::{GIB, format_bytes};

settings! {
    /// One tenant's file, `<tenant>.toml`.
    pub(crate) struct TenantTable {
        /// The tenant's id: the name of the file without `.toml`.
        tenant: Option<Located<TenantId>> = None, needed(Maybe(Placed(tenant_id()))), live,
            "It is written twice so that a file that was copied cannot claim to be somebody else by accident.";
        /// Name of the retention class of its events, one of `log.retention` in the appliance's file.
        retention: Option<Located<String>> = None, Maybe(Placed(name())), live,
            "Without it, the first class.";
        /// What the tenant may send in all; what it leaves out is `limits.tenant` of the appliance's file.
        limits: Limits = Limits::default(), Table, live, "";
        /// URLs that providers post to.
        endpoint: Vec<Located<EndpointTable>> = Vec::new(), List(Placed(Table), 0..=1_000_000), live, "";
        /// Schemes that the tenant declares itself, for providers without a preset.
        scheme: Vec<Located<SchemeDeclaration>> = Vec::new(), List(Placed(Declared), 0..=64), live, "";
        /// Where the tenant's calls may go.
        egress: Option<EgressTable> = None, Maybe(Table), live, "";
        /// Accounts at providers, called as `/c/{id}/…`.
        connection: Vec<Located<ConnectionTable>> = Vec::new(), List(Placed(Table), 0..=10_000), live, "";
        /// What proves the tenant to providers.
        credential: Vec<Located<CredentialTable>> = Vec::new(), List(Placed(Table), 0..=10_000), live, "";
        /// Who may ask for the tenant's runs.
        runner: Option<RunnerTable> = None, Maybe(Table), live, "";
    }

    /// A URL that a provider posts to.
    pub(crate) struct EndpointTable {
        /// Its id, the last part of `/hooks/{id}`. Who knows it can knock: `wh_` and 96 random bits are best.
        id: Option<Located<EndpointId>> = None, needed(Maybe(Placed(endpoint_id()))), live,
            "It is unique on the node, also across tenants.";
        /// How deliveries prove who sent them: a preset (`tidegate schemes list`) or a scheme of this file.
        scheme: String = String::new(), needed(name()), live,
            "There is no unsigned endpoint, so nothing is a sensible default.";
        /// Its secrets. All that are active are tried, so that a rotation has an overlap.
        secrets: Option<Vec<Located<SecretTable>>> = None, Maybe(List(Placed(Table), 0..=16)), live,
            "An enabled endpoint needs at least one, or `[]` where its scheme has the provider's published keys; each further one costs a verification for every forged delivery.";
        /// Whether it answers. A disabled endpoint answers as an unknown one does.
        enabled: bool = true, Flag, live,
            "It was written to be used.";
        /// Networks that deliveries are taken from; empty means everywhere.
        sources: Vec<IpNet> = Vec::new(), List(network(), 0..=1024), live,
            "The signature decides; a provider's address list is a second lock and has to be kept up to date.";
        /// Its largest body.
        body_bytes_max: Option<Located<u64>> = None, Maybe(Placed(Bytes(1..=GIB))), live,
            "Without it, `gateway.body_bytes_max` of the appliance's file.";
        /// Other places that it answers at: `/path` on every host that is served (`gateway.hosts`) and on no other, or `host/path`.
        aliases: Vec<Located<Alias>> = Vec::new(), List(Placed(alias::form()), 0..=64), live,
            "For URLs that providers already have; a new endpoint needs none.";
        /// The URL that its provider posts to, if it is not `gateway.public_url`. Schemes that sign the URL sign this one, and its host is served for this endpoint.
        public_url: Option<PublicUrl> = None, Maybe(url()), live,
            "Only an endpoint that is reached under another name needs it.";
        /// What happens to a verified delivery that is over a limit.
        over_limit: OverLimit = OverLimit::Default,
            Choice(&[("default", OverLimit::Default), ("refuse", OverLimit::Refuse), ("bulk", OverLimit::Bulk)]), live,
            "429 where the provider sends again, else the event is kept in the bulk class as far as that has room (`docs/refusals.md`).";
        /// What happens to a delivery whose id was committed before: `drop` answers it as the first was, `keep` makes it an event of its own.
        repeats: RepeatRule = RepeatRule::Default,
            Choice(&[("default", RepeatRule::Default), ("keep", RepeatRule::Keep), ("drop", RepeatRule::Drop)]), live,
            "`drop` where the signature covers the id, else `keep`: an id that is not covered anybody can write (`docs/schemes.md`).";
        /// What the endpoint may receive; what it leaves out is `limits.endpoint` of the appliance's file.
        limits: Limits = Limits::default(), Table, live, "";
        /// What its handshakes need beside its secrets, where its scheme has such (`tidegate schemes show`).
        handshake: HandshakeTable = HandshakeTable::default(), Table, live, "";
    }

    /// One secret of an endpoint.
    pub(crate) struct SecretTable {
        /// Reference to the secret: `secret:NAME` is the file `<tenant>.secrets/NAME` beside this one; `env:NAME` where `tenants.allow_env` allows it.
        value: Option<Located<String>> = None, needed(Maybe(Placed(reference()))), live,
            "Secrets are never written into a file that is copied, mailed and committed.";
        /// Name under which evidence shows which secret verified.
        name: Option<String> = None, Maybe(name()), live,
            "`primary` for the first, `secret-2` for the second, and so on.";
        /// Deliveries received before this are not verified with it, such as `2026-01-31T12:00:00Z`.
        not_before: Option<u64> = None, Maybe(Moment), live,
            "A secret counts at once.";
        /// Deliveries received after this are not verified with it.
        not_after: Option<u64> = None, Maybe(Moment), live,
            "A secret counts until it is taken out.";
    }
}

const fn name() -> Text<String> {
    crate::settings::class_name()
}

pub(crate) const fn tenant_id() -> Text<TenantId> {
    text(
        "id",
        "acme",
        |text| TenantId::parse(text).map_err(|fault| format!("the id {text:?} {fault}")),
        TenantId::to_string,
    )
}

const fn endpoint_id() -> Text<EndpointId> {
    text(
        "id",
        "wh_9f2c1b7a",
        |text| EndpointId::parse(text).map_err(|fault| format!("the id {text:?} {fault}")),
        EndpointId::to_string,
    )
}

/// Judged when it is resolved; what is no reference may be a secret and is repeated nowhere.
pub(crate) const fn reference() -> Text<String> {
    text("reference to a secret", "secret:github", |text| Ok(text.to_owned()), |_| String::new())
}

/// What a tenant's file is judged by.
#[derive(Debug, Clone)]
pub(crate) struct Rules {
    pub(crate) directory: Arc<Path>,
    /// By retention class; the first is that of files that name none.
    pub(crate) common: Vec<Arc<Common>>,
    /// Whether these are all classes that there are.
    pub(crate) knows_classes: bool,
    pub(crate) endpoints_max: usize,
    pub(crate) body_bytes_default: u64,
    pub(crate) body_bytes_room: u64,
    /// Whether this node takes calls: where not, it can do without what they need.
    pub(crate) takes_calls: bool,
    /// Pools that a tenant can leave by; none on a node that takes no calls, which does not know them.
    pub(crate) pools: Option<Arc<BTreeSet<Box<str>>>>,
    /// Tiers that a tenant can be in; none on a node that performs no runs.
    pub(crate) tiers: Option<Arc<BTreeSet<Box<str>>>>,
    /// Whether a secret that cannot be used makes no fault, and what needs it goes without: for last good versions.
    pub(crate) lenient: bool,
}

impl Rules {
    pub(crate) fn of(appliance: &Appliance) -> Self {
        let directory: Arc<Path> = appliance.tenants.directory.as_path().into();
        let common =
            |retention: &str| Arc::new(Common { retention: retention.into(), directory: Arc::clone(&directory) });
        Self {
            common: appliance.log.retention.iter().map(|class| common(&class.name)).collect(),
            knows_classes: true,
            directory,
            endpoints_max: appliance.tenants.endpoints_per_tenant_max as usize,
            body_bytes_default: appliance.gateway.body_bytes_max,
            body_bytes_room: appliance.body_bytes_room(),
            takes_calls: appliance.egress.enabled,
            pools: appliance.egress.enabled.then(|| Arc::new(appliance.egress.pool_names())),
            tiers: appliance.runner.enabled.then(|| Arc::new(appliance.runner.tier_names())),
            lenient: false,
        }
    }

    /// The same for a last good version.
    pub(crate) fn lenient(&self) -> Self {
        Self { lenient: true, ..self.clone() }
    }
}

/// Names that many endpoints share, kept once.
#[derive(Debug, Default)]
pub(crate) struct Names(HashSet<Arc<str>>);

impl Names {
    fn share(&mut self, name: &str) -> Arc<str> {
        if let Some(known) = self.0.get(name) {
            return Arc::clone(known);
        }
        let shared: Arc<str> = name.into();
        self.0.insert(Arc::clone(&shared));
        shared
    }
}

/// Resolves the references of one file.
pub(crate) type Resolve<'r> = dyn FnMut(&str) -> Result<ResolvedSecret, String> + 'r;

/// What was read of a tenant's file.
pub(crate) struct Reading<'s> {
    document: Document<'s>,
    table: Spanned<DeTable<'s>>,
    /// Also where the file is faulty: with stand-ins for what was misread. None where nothing says whose file it is.
    tenant: Option<Tenant>,
}

impl<'s> Reading<'s> {
    /// Reads a tenant's file. `expected` is who the file may speak for.
    pub(crate) fn of(
        path: &'s Path,
        expected: Option<&TenantId>,
        text: &'s Written<'_>,
        rules: &Rules,
        names: &mut Names,
        resolve: &mut Resolve<'_>,
    ) -> Self {
        let (mut document, table) = Document::parse(path, text);
        let read = TenantTable::read(&mut document, table.get_ref(), 0..0);
        let tenant = build(&mut document, read, expected, rules, names, resolve);
        Self { document, table, tenant }
    }

    /// The tenant, for those who can say more about it, and whether it is all that the file says.
    pub(crate) fn take_tenant(&mut self) -> (Option<Tenant>, bool) {
        (self.tenant.take(), !self.document.has_errors())
    }

    /// Adds what was said about it; not what is a mere consequence of what was misread.
    pub(crate) fn add(&mut self, faults: Vec<Fault>) {
        for fault in faults {
            self.document.add(self.table.get_ref(), fault);
        }
    }

    pub(crate) fn into_faults(self) -> Vec<Fault> {
        self.document.into_faults()
    }

    /// Of the tenant that was read, what belongs to it for certain.
    pub(crate) fn in_part(&self, tenant: &Tenant) -> InPart {
        let is_read = |index: &usize| self.document.is_sound(&format!("endpoint[{index}].id"));
        let indexes: Vec<usize> = (0..tenant.endpoints.len()).filter(is_read).collect();
        let bare = |index: &usize| Endpoint { secrets: Box::default(), ..tenant.endpoints[*index].clone() };
        InPart { tenant: Tenant { endpoints: indexes.iter().map(bare).collect(), ..tenant.clone() }, indexes }
    }
}

/// Reads a tenant's file. The tenant is there unless a fault is an error. `expected` is who the file may speak for.
pub(crate) fn parse(
    path: &Path,
    expected: Option<&TenantId>,
    bytes: &[u8],
    rules: &Rules,
    names: &mut Names,
    resolve: &mut Resolve<'_>,
) -> (Option<Tenant>, Vec<Fault>) {
    let text = Written::new(bytes);
    let mut reading = Reading::of(path, expected, &text, rules, names, resolve);
    let (tenant, is_whole) = reading.take_tenant();
    (tenant.filter(|_| is_whole), reading.into_faults())
}

/// A tenant's file by itself, with every reference resolved to the same secret: for fuzzing.
pub fn parse_tenant(bytes: &[u8]) -> (Option<Tenant>, Vec<Fault>) {
    let secret = || ResolvedSecret { secret: Secret::new(*b"any"), warning: None };
    let rules = Rules::of(&Appliance::default());
    parse(Path::new("tenant.toml"), None, bytes, &rules, &mut Names::default(), &mut |_| Ok(secret()))
}

fn build(
    document: &mut Document<'_>,
    table: TenantTable,
    expected: Option<&TenantId>,
    rules: &Rules,
    names: &mut Names,
    resolve: &mut Resolve<'_>,
) -> Option<Tenant> {
    if let Some((id, expected)) = table.tenant.as_ref().zip(expected).filter(|(id, expected)| id.value != **expected) {
        let message =
            format!("is \"{}\" in the file of \"{expected}\"; a tenant's file is named {}.toml", id.value, id.value);
        document.within("tenant", |document| document.fault(id.span.clone(), message));
    }
    let common = retention(document, table.retention.as_ref(), rules);
    if table.endpoint.len() > rules.endpoints_max {
        let (count, max) = (table.endpoint.len(), rules.endpoints_max);
        let message = format!(
            "has {count} endpoints and tenants.endpoints_per_tenant_max is {max}; raise it or divide the tenant"
        );
        document.within("endpoint", |document| document.fault(table.endpoint[max].span.clone(), message));
    }
    let schemes = schemes(document, table.scheme);
    let mut seen = Seen::default();
    let mut endpoints = Vec::with_capacity(table.endpoint.len().min(rules.endpoints_max));
    for Located { span, index, value } in table.endpoint.into_iter().take(rules.endpoints_max) {
        let endpoint = document.within("endpoint", |document| {
            document.within_index(index, |document| {
                build_endpoint(document, &span, value, rules, names, &mut seen, resolve)
            })
        });
        if let Some(endpoint) = endpoint {
            // What was no table at all keeps its place, so that the others keep theirs.
            endpoints.resize(index, endpoint.clone());
            endpoints.push(endpoint);
        }
    }
    if !document.is_read_in_each("scheme", "name") {
        // A name that no scheme has may be the one that was misread: then it is not unknown.
        for index in 0..endpoints.len() {
            document.within("endpoint", |document| {
                document.within_index(index, |document| document.within("scheme", Document::mark_misread));
            });
        }
    }
    let tables = egress::Tables { egress: table.egress, connections: table.connection, credentials: table.credential };
    let egress = egress::build(document, tables, rules, resolve);
    let runner = runner::build(document, table.runner, rules);
    let rare = (!table.limits.is_none() || !schemes.is_empty() || egress.is_some() || runner.is_some())
        .then(|| Box::new(RareTenant { limits: table.limits, schemes: schemes.into(), egress, runner }));
    // Faults are said of the file, whoever it claims to be.
    let id = expected.cloned().or_else(|| table.tenant.map(|id| id.value))?;
    Some(Tenant { id, endpoints: endpoints.into(), common: common?, rare, digest: [0; 16] })
}

fn retention(document: &mut Document<'_>, named: Option<&Located<String>>, rules: &Rules) -> Option<Arc<Common>> {
    let first = || rules.common.first().cloned();
    let Some(named) = named else { return first() };
    let found = rules.common.iter().find(|class| *class.retention == *named.value).cloned();
    if found.is_none() && rules.knows_classes {
        let known = rules.common.iter().map(|class| &*class.retention).collect::<Vec<_>>().join(", ");
        let message = format!(
            "\"{}\" is no retention class; known here: {known} (log.retention in the appliance's file)",
            named.value
        );
        document.within("retention", |document| document.fault(named.span.clone(), message));
    }
    found.or_else(first)
}

fn schemes(document: &mut Document<'_>, tables: Vec<Located<SchemeDeclaration>>) -> Vec<DeclaredScheme> {
    let mut seen = BTreeSet::new();
    let mut schemes = Vec::with_capacity(tables.len());
    for Located { span, index, value } in tables {
        document.within("scheme", |document| {
            document.within_index(index, |document| {
                if document.is_sound("name") && !seen.insert(value.name.clone()) {
                    let message =
                        format!("declares the scheme {:?} a second time; give it a name of its own", value.name);
                    document.fault(span.clone(), message);
                }
                let (line, misread) = (document.line(span.start), document.misread_in("").into());
                schemes.push(DeclaredScheme { declaration: Arc::new(value), index, line, misread });
            });
        });
    }
    schemes
}

/// What may be there once in a file.
#[derive(Default)]
struct Seen {
    ids: HashMap<EndpointId, u32>,
    aliases: HashMap<Alias, u32>,
}

fn build_endpoint(
    document: &mut Document<'_>,
    span: &Range<usize>,
    table: EndpointTable,
    rules: &Rules,
    names: &mut Names,
    seen: &mut Seen,
    resolve: &mut Resolve<'_>,
) -> Option<Endpoint> {
    let line = document.line(span.start);
    if let Some(id) = &table.id
        && let Some(first) = seen.ids.insert(id.value.clone(), line)
    {
        let message =
            format!("\"{}\" is the id of the endpoint in line {first} too; every endpoint has its own", id.value);
        document.within("id", |document| document.fault(id.span.clone(), message));
    }
    for alias in &table.aliases {
        if let Some(first) = seen.aliases.insert(alias.value.clone(), line) {
            let message = format!("is an alias of the endpoint in line {first} too; a place leads to one endpoint");
            document.within("aliases", |document| {
                document.within_index(alias.index, |document| document.fault(alias.span.clone(), message));
            });
        }
    }
    check_limits(document, span, &table, rules);
    let takes_no_secret = table.secrets.as_ref().is_some_and(Vec::is_empty);
    let handshake = endpoint_handshake::build(document, table.handshake, table.enabled, resolve);
    let adopts = handshake.as_ref().and_then(|handshake| handshake.adopts.as_deref());
    let secrets = build_secrets(document, span, table.secrets, table.enabled, adopts, resolve);
    let rare = RareEndpoint {
        limits: table.limits,
        sources: table.sources.into(),
        body_bytes_max: table.body_bytes_max.map(|bytes| bytes.value),
        aliases: table.aliases.into_iter().map(|alias| alias.value).collect(),
        public_url: table.public_url,
        over_limit: table.over_limit,
        takes_no_secret,
        handshake,
        repeats: table.repeats,
    };
    // A stand-in belongs to nobody: whoever judges it is told that the id was misread.
    let id = table.id.map(|id| id.value).or_else(|| EndpointId::parse("misread").ok())?;
    Some(Endpoint {
        id,
        scheme: names.share(&table.scheme),
        secrets: secrets.into(),
        rare: (rare != RareEndpoint::default()).then(|| Box::new(rare)),
        line,
        enabled: table.enabled,
    })
}

fn check_limits(document: &mut Document<'_>, span: &Range<usize>, table: &EndpointTable, rules: &Rules) {
    if table.limits.stored_bytes_max.is_some() {
        let message = "endpoints have no storage of their own; write stored_bytes_max under the tenant's [limits]";
        document.within("limits", |document| document.fault(span.clone(), message));
    }
    if let Some(max) = table.body_bytes_max.as_ref().filter(|max| max.value > rules.body_bytes_room) {
        let message = format!(
            "is {} and this node can hold {} for one endpoint; raise gateway.bytes_in_flight_max, log.queue_bytes or log.segment_bytes",
            format_bytes(max.value),
            format_bytes(rules.body_bytes_room)
        );
        document.within("body_bytes_max", |document| document.fault(max.span.clone(), message));
    }
    let body = table.body_bytes_max.as_ref().map_or(rules.body_bytes_default, |max| max.value);
    if let Some(rate) = table.limits.bytes.filter(|rate| u64::from(rate.burst) < body) {
        let message = format!(
            "a body above the burst of {} passes only when nothing has been spent, and up to {} are taken; raise the burst or set body_bytes_max",
            format_bytes(u64::from(rate.burst)),
            format_bytes(body)
        );
        document.within("limits", |document| document.within("bytes", |document| document.warn(span.clone(), message)));
    }
}

fn build_secrets(
    document: &mut Document<'_>,
    span: &Range<usize>,
    tables: Option<Vec<Located<SecretTable>>>,
    enabled: bool,
    adopts: Option<&str>,
    resolve: &mut Resolve<'_>,
) -> Vec<SecretEntry> {
    if tables.is_none() && enabled && document.is_sound("enabled") {
        let message = "has no secret; write secrets = [{ value = \"secret:NAME\" }]";
        document.within("secrets", |document| document.missing(span.clone(), message));
    }
    let tables = tables.unwrap_or_default();
    let mut used = BTreeSet::new();
    let mut entries = Vec::with_capacity(tables.len());
    for Located { span, index, value: table } in tables {
        document.within("secrets", |document| {
            document.within_index(index, |document| {
                let name = table.name.unwrap_or_else(|| match index {
                    0 => SECRET_NAME.into(),
                    _ => format!("secret-{}", index + 1),
                });
                if document.is_sound("name") && !used.insert(name.clone()) {
                    document
                        .fault(span.clone(), format!("is the second secret named \"{name}\"; give each its own name"));
                }
                if table.not_before.zip(table.not_after).is_some_and(|(before, after)| before >= after) {
                    document.fault(span.clone(), "ends before it begins; not_after must be later than not_before");
                }
                let Some(reference) = table.value else { return };
                let awaited = reference.value.strip_prefix("secret:").is_some_and(|name| adopts == Some(name));
                let found = document.within("value", |document| {
                    if awaited {
                        resolve_awaited(document, &reference, resolve)
                    } else {
                        resolve_one(document, &reference, enabled, resolve)
                    }
                });
                if let Some(found) = found {
                    let entry = SecretEntry::new(&name, found, table.not_before, table.not_after);
                    entries.push(entry.at(index));
                }
            });
        });
    }
    entries
}

/// What a reference of an endpoint resolves to; says why it does not, and only warns where nothing depends on it.
pub(crate) fn resolve_one(
    document: &mut Document<'_>,
    reference: &Located<String>,
    enabled: bool,
    resolve: &mut Resolve<'_>,
) -> Option<Secret> {
    match resolve_plain(document, reference, resolve) {
        Ok(secret) => Some(secret),
        Err(message) if enabled => {
            document.fault(reference.span.clone(), message);
            None
        }
        Err(message) => {
            let message = format!("{message} (the endpoint is disabled, so nothing depends on it)");
            document.warn(reference.span.clone(), message);
            None
        }
    }
}

/// What a secret that the provider makes resolves to, once it has.
fn resolve_awaited(
    document: &mut Document<'_>,
    reference: &Located<String>,
    resolve: &mut Resolve<'_>,
) -> Option<Secret> {
    resolve_plain(document, reference, resolve)
        .map_err(|message| {
            let message =
                format!("{message}; the endpoint takes none but the provider's handshake, which brings its secret");
            document.warn(reference.span.clone(), message);
        })
        .ok()
}

/// What a reference resolves to. A reload looks for references in the text, without parsing it: they have to stand
/// there as they are meant.
pub(crate) fn resolve_plain(
    document: &mut Document<'_>,
    reference: &Located<String>,
    resolve: &mut Resolve<'_>,
) -> Result<Secret, String> {
    let written = document.source().get(reference.span.clone()).unwrap_or_default();
    let plain = written.len() == reference.value.len() + 2
        && written.get(1..).is_some_and(|rest| rest.starts_with(&reference.value));
    if !plain {
        return Err("must be written plainly, in one pair of quotes and without escapes".into());
    }
    let found = resolve(&reference.value)?;
    if let Some(warning) = &found.warning {
        document.warn(reference.span.clone(), warning.as_str());
    }
    Ok(found.secret)
}
