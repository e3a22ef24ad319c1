//! The decision on one call, with everything that led to it.

use std::net::IpAddr;
use std::sync::Arc;

use domain::{Clock, ConnectionId, TenantId};
use egress::policy::{Note, Ruling, is_unclear};
use egress::switches::Switch;
use egress::{Asked, Caller, Identity, Refusal, Way};
use http::Method;
use outbound::resolve::{CacheSettings, DnsSettings};
use outbound::{
    Authority, CachedResolver, DnsResolver, Host, Malformed, Refused, Resolve, ResolveError, Scheme, Target,
};

use super::super::args::{Answer, Explain};
use super::super::exit::{Failure, Outcome};
use super::Node;

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
    pub(super) source: Option<Source>,
    pub(super) addresses: Vec<Judged>,
    /// Name and addresses of the exit pool; none where the kernel chooses.
    pub(super) exit: Option<(String, Vec<IpAddr>)>,
    pub(super) remarks: Vec<String>,
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

    /// The one parser for every way in. A governed call's authority is its connection's own.
    fn parse(&self, node: &Node) -> Result<Asked, No> {
        let malformed = |why: Malformed| No::refused(Refusal::TargetMalformed, &why);
        let asked = |scheme, authority, path_and_query: &str| {
            let (way, method) = (self.way, self.method.clone());
            Asked { way, method, scheme, authority, path_and_query: path_and_query.into() }
        };
        match self.way {
            Way::Connect => Ok(asked(Scheme::Https, Authority::with_port(&self.target).map_err(malformed)?, "")),
            Way::Absolute => {
                let target = Target::parse(&self.target).map_err(malformed)?;
                Ok(asked(target.scheme, target.authority, target.path_and_query))
            }
            Way::Governed => {
                let text = std::str::from_utf8(&self.target).map_err(|_| malformed(Malformed::NotAscii))?;
                if text.bytes().any(|byte| !byte.is_ascii_graphic() || byte == b'#') {
                    return Err(No::refused(Refusal::RequestMalformed, "the path has a byte that no path has"));
                }
                let rest = text.strip_prefix("/c/").unwrap_or_default();
                let end = rest.find(['/', '?']).unwrap_or(rest.len());
                let (id, path_and_query) = rest.split_at(end);
                let path = path_and_query.split('?').next().unwrap_or_default();
                if is_unclear(path) {
                    return Err(No::refused(Refusal::RequestMalformed, "the path can be read in more than one way"));
                }
                let id = ConnectionId::parse(id).ok();
                let out = node.tenants.get(&self.tenant).and_then(Option::as_ref);
                let connection = out.and_then(|out| out.connections.iter().find(|own| id.as_ref() == Some(&own.id)));
                let connection = connection.ok_or_else(|| {
                    No::refused(Refusal::ConnectionUnknown, "the tenant has no connection of this id")
                })?;
                let path_and_query = format!("{}{path_and_query}", connection.base_path);
                Ok(asked(Scheme::Https, connection.authority.clone(), &path_and_query))
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
            | ResolveError::Busy => Verdict::Undecided { refusal, why },
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
        Err(no) => return Ok(Err(no)),
    };
    let (asked, openings) = name;
    let authority = &asked.authority;
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
    for address in &answer {
        let row = node.vetting.table.row(*address);
        let judged = node.vetting.judge(authority, *address, &openings);
        judgement.addresses.push(Judged {
            address: *address,
            prefix: row.prefix.to_string(),
            what: row.name.clone(),
            is_opened: judged.as_ref().is_ok_and(|admitted| admitted.is_opened),
            refused: judged.err(),
        });
    }
    Ok(node.vetting.vet(authority, &answer, &openings).map(|_| ()).map_err(No::from))
}

/// Parse, switches, rules, and what the table says of the name.
fn by_name(
    node: &Node,
    question: &Question,
    judgement: &mut Judgement,
) -> Result<(Asked, Arc<[outbound::Opening]>), No> {
    let asked = question.parse(node)?;
    judgement.asked = Some(asked.clone());
    let (tenant, authority) = (&question.tenant, &asked.authority);
    let connector = node.policy.connector(authority.host()).map(|found| &found.connector);
    if let Some(switch) = node.switches.thrown(tenant, connector, authority, asked.way) {
        let no = No::refused(Refusal::SwitchedOff, &switch);
        judgement.switch = Some(switch);
        return Err(no);
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
    judgement.exit = exit(node, allowed.pool.as_deref());
    node.vetting.judge_name(authority, &allowed.openings)?;
    Ok((asked, allowed.openings))
}

fn exit(node: &Node, pool: Option<&str>) -> Option<(String, Vec<IpAddr>)> {
    let pools = &node.appliance.egress.pool;
    if pools.is_empty() {
        return None;
    }
    let name = pool.unwrap_or("default");
    let found = pools.iter().find(|pool| pool.name.value == name);
    let addresses = found.into_iter().flat_map(|pool| &pool.addresses);
    let addresses = addresses.flat_map(|exit| [exit.value.v4.map(IpAddr::V4), exit.value.v6.map(IpAddr::V6)]);
    Some((name.to_owned(), addresses.flatten().collect()))
}

fn resolver(node: &Node, clock: Arc<dyn Clock>) -> Outcome<CachedResolver<DnsResolver>> {
    let dns = &node.appliance.egress.dns;
    let next = "give what DNS would answer with --answer";
    if dns.servers.is_empty() {
        return Err(Failure::failed("no DNS server is named in egress.dns.servers", next));
    }
    let settings = DnsSettings {
        servers: dns.servers.clone(),
        attempt_timeout: dns.attempt_timeout,
        retries: usize::from(dns.attempts).saturating_sub(1),
        timeout: dns.timeout,
        lookups_max: dns.lookups_max as usize,
    };
    let resolver = DnsResolver::new(&settings).map_err(|fault| Failure::failed(fault, next))?;
    Ok(CachedResolver::new(resolver, CacheSettings::default(), clock))
}
