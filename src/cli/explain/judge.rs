//! The decision on one call, with everything that led to it.

use std::net::IpAddr;
use std::sync::Arc;

use domain::{Clock, ConnectionId, TenantId};
use egress::governed::Connection;
use egress::policy::{Note, Ruling};
use egress::switches::Switch;
use egress::{Asked, Caller, DEFAULT_POOL, Identity, Refusal, Way};
use http::Method;
use outbound::{
    Authority, CachedResolver, DnsResolver, Exit, Host, Malformed, Opening, Refused, Resolve, ResolveError, Scheme,
    Target,
};

use super::super::args::{Answer, Explain};
use super::super::exit::{Failure, Outcome};
use super::Node;

/// Exit addresses that are told of, since no call leaves from them: as many as somebody reads.
const REMARKS_MAX: usize = 5;

/// What is asked, as it was typed.
pub(super) struct Question {
    pub(super) tenant: TenantId,
    pub(super) role: Option<String>,
    pub(super) target: Vec<u8>,
    pub(super) way: Way,
    pub(super) method: Method,
    /// None: DNS is asked.
    answer: Option<Vec<IpAddr>>,
}

/// How it ends.
#[derive(Debug)]
pub(super) enum Verdict {
    Allowed,
    Refused {
        refusal: Refusal,
        why: String,
    },
    /// Nobody knows what the name resolves to: the call would be answered with this.
    Undecided {
        refusal: Refusal,
        why: String,
    },
}

/// What was decided on the way.
#[derive(Debug)]
pub(super) struct Judgement {
    pub(super) verdict: Verdict,
    /// None where the target is none.
    pub(super) asked: Option<Asked>,
    pub(super) by: Option<Ruling>,
    pub(super) reported: Vec<Ruling>,
    pub(super) notes: Vec<Note>,
    pub(super) switch: Option<Switch>,
    /// What a call of a connection counts towards.
    pub(super) counted: Option<Counted>,
    pub(super) source: Option<Source>,
    pub(super) addresses: Vec<Judged>,
    /// The exit pool and the tenant's address in it, in each family that it has; none where the kernel chooses.
    pub(super) exit: Option<(String, Vec<IpAddr>)>,
    pub(super) remarks: Vec<String>,
}

/// Limits of the provider's that a governed call counts towards. How much is left of them only a running node knows.
#[derive(Debug)]
pub(super) struct Counted {
    pub(super) connection: ConnectionId,
    /// Name, level and units.
    pub(super) limits: Vec<(String, &'static str, u32)>,
}

impl Counted {
    fn of(connection: &Connection, asked: &Asked) -> Self {
        let limits = connection.limits_of(asked).into_iter();
        let limits = limits.map(|limit| (limit.name.to_owned(), limit.level.word(), limit.units));
        Self { connection: connection.id().clone(), limits: limits.collect() }
    }
}

/// Where addresses come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Source {
    /// The host is one.
    Literal,
    /// `--answer`.
    Given,
    /// DNS.
    Resolved,
}

/// One address, and what was said of it.
#[derive(Debug)]
pub(super) struct Judged {
    pub(super) address: IpAddr,
    /// The row of the table that it is in.
    pub(super) prefix: String,
    pub(super) what: String,
    pub(super) is_opened: bool,
    pub(super) refused: Option<Refused>,
}

impl Question {
    pub(super) fn of(args: &Explain) -> Outcome<Self> {
        let target = args.target.as_encoded_bytes().to_vec();
        let is_connect = args.method.as_deref() == Some("CONNECT");
        let is_url = target.windows(3).any(|part| part == b"://");
        let way = if args.connect || is_connect {
            Way::Connect
        } else if target.starts_with(b"/c/") {
            Way::Governed
        } else if is_url {
            Way::Absolute
        } else {
            Way::Connect
        };
        let method = match (&args.method, way) {
            (Some(method), Way::Connect) if !is_connect => {
                let what = format_args!("a tunnel has no method but CONNECT, and --method says {method:?}");
                return Err(Failure::usage(what, "leave it out, or write a URL with its scheme"));
            }
            (_, Way::Connect) => Method::CONNECT,
            (None, Way::Absolute | Way::Governed) => Method::GET,
            (Some(method), Way::Absolute | Way::Governed) => Method::from_bytes(method.as_bytes())
                .map_err(|_| Failure::usage(format_args!("{method:?} is no method"), "write such as GET"))?,
        };
        let addresses = args.answers.iter().filter_map(|answer| match answer {
            Answer::Address(address) => Some(*address),
            Answer::Nothing => None,
        });
        let addresses: Vec<IpAddr> = addresses.collect();
        if args.answers.len() > addresses.len() && !addresses.is_empty() {
            return Err(Failure::usage("--answer says both addresses and none", "leave out the one or the other"));
        }
        let answer = (!args.answers.is_empty()).then_some(addresses);
        Ok(Self { tenant: args.tenant.clone(), role: args.role.clone(), target, way, method, answer })
    }

    /// The one parser for every way in, and the connection of a governed call, whose authority is its own.
    fn parse<'n>(&self, node: &'n Node) -> Result<(Asked, Option<&'n Connection>), No> {
        let malformed = |why: Malformed| No::refused(Refusal::TargetMalformed, &why);
        let asked = |scheme, authority, path_and_query: &str| {
            let (way, method) = (self.way, self.method.clone());
            Asked { way, method, scheme, authority, path_and_query: path_and_query.into() }
        };
        match self.way {
            Way::Connect => {
                let authority = Authority::with_port(&self.target).map_err(malformed)?;
                Ok((asked(Scheme::Https, authority, ""), None))
            }
            Way::Absolute => {
                let target = Target::parse(&self.target).map_err(malformed)?;
                Ok((asked(target.scheme, target.authority, target.path_and_query), None))
            }
            Way::Governed => {
                // What the listener's gate lets through.
                let text = std::str::from_utf8(&self.target).ok();
                let text = text.filter(|text| text.bytes().all(|byte| byte.is_ascii_graphic()));
                let no_path = "the path has a byte that no path has";
                let text = text.ok_or_else(|| No::refused(Refusal::RequestMalformed, no_path))?;
                let rest = text.strip_prefix("/c/").unwrap_or_default();
                let (id, rest) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
                let connection = connection(node, id)?;
                let asked = connection.ask(self.method.clone(), rest);
                let asked = asked.map_err(|why| No::refused(Refusal::RequestMalformed, &why))?;
                Ok((asked, Some(connection)))
            }
        }
    }

    fn caller(&self) -> Caller {
        Caller {
            tenant: self.tenant.clone(),
            role: self.role.as_deref().map(Into::into),
            identity: Identity::Token { name: "explain".into() },
            connections: None,
            destinations: None,
            run: None,
            automation: None,
            class: None,
            until_unix_ms: None,
        }
    }
}

/// The tenant's connection of this id, as serving has it.
fn connection<'n>(node: &'n Node, id: &str) -> Result<&'n Connection, No> {
    let its = node.out.iter().flat_map(|out| &out.connections);
    let found = its.map(|written| &*written.connection).find(|connection| connection.id().as_str() == id);
    let unknown = || No::refused(Refusal::ConnectionUnknown, "the tenant has no connection of this id");
    let connection = found.ok_or_else(unknown)?;
    if !connection.is_usable() {
        let why = "a secret that the connection's TLS is made of cannot be had now";
        return Err(No::refused(Refusal::CredentialUnavailable, why));
    }
    Ok(connection)
}

/// A name that may be asked for.
struct Named {
    authority: Authority,
    openings: Arc<[Opening]>,
    pool: Option<Arc<str>>,
}

/// Why it does not go on.
struct No(Verdict);

impl No {
    fn refused(refusal: Refusal, why: &(impl ToString + ?Sized)) -> Self {
        Self(Verdict::Refused { refusal, why: why.to_string() })
    }
}

impl From<Refused> for No {
    fn from(refused: Refused) -> Self {
        Self::refused(Refusal::from(&refused), &refused)
    }
}

/// That a name does not exist is an answer. That nobody could say so is none.
impl From<ResolveError> for No {
    fn from(error: ResolveError) -> Self {
        let (refusal, why) = (Refusal::from(&error), error.to_string());
        Self(match error {
            ResolveError::NotFound { .. } | ResolveError::NoAddresses { .. } => Verdict::Refused { refusal, why },
            ResolveError::Failed { .. }
            | ResolveError::Timeout
            | ResolveError::Unreachable
            | ResolveError::Garbled { .. }
            | ResolveError::Busy
            | ResolveError::TenantBusy => Verdict::Undecided { refusal, why },
        })
    }
}

/// Judges it, and keeps what was seen. A fault is one of the machine's: DNS that cannot be asked at all.
pub(super) async fn judge(node: &Node, question: &Question, clock: Arc<dyn Clock>) -> Outcome<Judgement> {
    let mut judgement = Judgement {
        verdict: Verdict::Allowed,
        asked: None,
        by: None,
        reported: Vec::new(),
        notes: Vec::new(),
        switch: None,
        counted: None,
        source: None,
        addresses: Vec::new(),
        exit: None,
        remarks: Vec::new(),
    };
    if let Err(No(verdict)) = steps(node, question, clock, &mut judgement).await? {
        judgement.verdict = verdict;
    }
    Ok(judgement)
}

async fn steps(
    node: &Node,
    question: &Question,
    clock: Arc<dyn Clock>,
    judgement: &mut Judgement,
) -> Outcome<Result<(), No>> {
    let name = match by_name(node, question, judgement) {
        Ok(name) => name,
        Err(no) => {
            table_says(node, question, judgement);
            return Ok(Err(no));
        }
    };
    let (authority, openings) = (&name.authority, &name.openings);
    let answer: Vec<IpAddr> = match (authority.host(), &question.answer) {
        (Host::Address(address), given) => {
            judgement.source = Some(Source::Literal);
            if given.is_some() {
                judgement.remarks.push("the host is an address and is not resolved: --answer is not used".into());
            }
            vec![*address]
        }
        (Host::Name(_), Some(given)) => {
            judgement.source = Some(Source::Given);
            given.clone()
        }
        (Host::Name(name), None) => {
            judgement.source = Some(Source::Resolved);
            match resolver(node, clock)?.resolve(name).await {
                Ok(answer) => answer.addresses.to_vec(),
                Err(error) => return Ok(Err(error.into())),
            }
        }
    };
    judge_each(node, authority, &answer, openings, judgement);
    if let Err(refused) = node.vetting.vet(authority, &answer, openings) {
        return Ok(Err(refused.into()));
    }
    judgement.remarks.extend(node.unpublished.iter().take(REMARKS_MAX).cloned());
    Ok(exit(node, name.pool.as_deref(), &question.tenant).map(|exit| judgement.exit = exit))
}

fn judge_each(node: &Node, authority: &Authority, answer: &[IpAddr], openings: &[Opening], judgement: &mut Judgement) {
    for address in answer {
        let row = node.vetting.table.row(*address);
        let judged = node.vetting.judge(authority, *address, openings);
        judgement.addresses.push(Judged {
            address: *address,
            prefix: row.prefix.to_string(),
            what: row.name.clone(),
            is_opened: judged.as_ref().is_ok_and(|admitted| admitted.is_opened),
            refused: judged.err(),
        });
    }
}

/// What the table of addresses says where it is not asked any more, since the name is refused already: whoever puts that
/// right learns now what comes next. Nothing is resolved for it, since a look-up is a call, too.
fn table_says(node: &Node, question: &Question, judgement: &mut Judgement) {
    let Some(asked) = &judgement.asked else { return };
    let authority = asked.authority.clone();
    let (source, answer) = match (authority.host(), &question.answer) {
        (Host::Address(address), _) => (Source::Literal, vec![*address]),
        (Host::Name(_), Some(given)) => (Source::Given, given.clone()),
        (Host::Name(_), None) => return,
    };
    judgement.source = Some(source);
    judge_each(node, &authority, &answer, &[], judgement);
    if judgement.addresses.iter().any(|judged| judged.refused.is_some()) {
        judgement
            .remarks
            .push("it is refused before any address is judged; its addresses would be refused, too".into());
    }
}

/// Parse, switches, rules, and what the table says of the name.
fn by_name(node: &Node, question: &Question, judgement: &mut Judgement) -> Result<Named, No> {
    let (asked, connection) = question.parse(node)?;
    judgement.asked = Some(asked.clone());
    judgement.counted = connection.map(|connection| Counted::of(connection, &asked));
    let (tenant, authority) = (&question.tenant, &asked.authority);
    let of_host = node.policy.connector(authority.host()).map(|found| &found.connector);
    for connector in [connection.map(Connection::connector_id), of_host] {
        if let Some(switch) = node.switches.thrown(tenant, connector, authority, asked.way) {
            let no = No::refused(Refusal::SwitchedOff, &switch);
            judgement.switch = Some(switch);
            return Err(no);
        }
    }
    let allowed = match node.policy.decide(&question.caller(), &asked, &mut judgement.notes) {
        Ok(allowed) => allowed,
        Err(denied) => {
            judgement.reported = denied.reported;
            let no = No::refused(denied.refusal, &denied.by);
            judgement.by = Some(denied.by);
            return Err(no);
        }
    };
    judgement.by = Some(allowed.by);
    judgement.reported = allowed.reported;
    node.vetting.judge_name(authority, &allowed.openings)?;
    Ok(Named { authority: asked.authority, openings: allowed.openings, pool: allowed.pool })
}

/// The pool and the tenant's own address in it; none where the kernel chooses.
fn exit(node: &Node, pool: Option<&str>, tenant: &TenantId) -> Result<Option<(String, Vec<IpAddr>)>, No> {
    let exit = node.exits.of_tenant(pool, tenant).map_err(|none| No::refused(Refusal::ExitUnavailable, &none))?;
    let Exit::From(address) = exit else { return Ok(None) };
    let both = [address.v4.map(IpAddr::V4), address.v6.map(IpAddr::V6)];
    Ok(Some((pool.unwrap_or(DEFAULT_POOL).to_owned(), both.into_iter().flatten().collect())))
}

fn resolver(node: &Node, clock: Arc<dyn Clock>) -> Outcome<CachedResolver<DnsResolver>> {
    let dns = &node.appliance.egress.dns;
    let next = "say what DNS would answer with --answer";
    let system = dns.servers_or_system().map_err(|fault| Failure::failed(fault, next))?;
    let (settings, cache) = egress::settings::dns(dns, &system);
    let resolver = DnsResolver::new(&settings).map_err(|fault| Failure::failed(fault, next))?;
    Ok(CachedResolver::new(resolver, cache, clock))
}
