//! Asking DNS, by hickory.
//!
//! Hickory speaks the protocol: random ports and ids, names in random case (0x20), TCP where an answer is truncated.
//! What it would do beyond that is switched off: its cache (ours keeps both families of an answer together, and takes
//! its time from a clock that tests own), the hosts file, the search list, the system's configuration, and its answer
//! filter, which removes bad addresses from an answer instead of refusing the answer, and fails open.
//!
//! The chain of aliases is followed here once more over the records that came, so that an address counts only at the
//! end of a chain that begins at the name that was asked for.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use async_trait::async_trait;
use hickory_resolver::TokioResolver;
use hickory_resolver::config::{
    ConnectionConfig, NameServerConfig, ResolveHosts, ResolverConfig, ResolverOpts, ServerOrderingStrategy,
};
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::net::{DnsError, NetError};
use hickory_resolver::proto::op::ResponseCode;
use hickory_resolver::proto::rr::{Name, RData, Record, RecordType};
use thiserror::Error;
use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::{Answer, Resolve, ResolveError};
use crate::authority::HostName;
use crate::vet::ADDRESSES_MAX;

/// Whom to ask, and how patiently.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DnsSettings {
    /// The recursive servers, 1 to 8. Two are asked at a time, the quickest ones first.
    pub servers: Vec<SocketAddr>,
    /// For one attempt, over all servers. A recursive server that has to walk the tree takes a second or two.
    pub attempt_timeout: Duration,
    /// Attempts after the first.
    pub retries: usize,
    /// For the whole of a resolution: both families, every alias, every retry. It may wait as long for its turn before.
    pub timeout: Duration,
    /// Resolutions under way at one time. Each holds a few sockets; the cache has one for each name at most. Whoever
    /// comes when all are under way waits, the first one first.
    pub lookups_max: usize,
}

impl DnsSettings {
    /// The usual patience, with these servers.
    pub fn with_servers(servers: Vec<SocketAddr>) -> Self {
        Self {
            servers,
            attempt_timeout: Duration::from_secs(2),
            retries: 1,
            timeout: Duration::from_secs(5),
            lookups_max: 512,
        }
    }
}

/// Why there is no resolver.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum DnsSettingsFault {
    #[error("{0} DNS servers are given; 1 to 8 make sense")]
    Servers(usize),
    #[error("{0} is no address of a DNS server")]
    Server(SocketAddr),
    #[error("the resolver does not start: {0}")]
    Start(String),
}

/// Asks DNS every time. Put a [`CachedResolver`](super::CachedResolver) in front. Its connections belong to the runtime
/// that uses it: one resolver for each runtime.
#[derive(Debug)]
pub struct DnsResolver {
    hickory: TokioResolver,
    timeout: Duration,
    lookups: Semaphore,
}

/// Aliases that lead to one name. Real chains have up to five; hickory asks no more than eight times.
const ALIASES_MAX: usize = 16;

/// How long half an answer is kept at most, when the other family could not be had: long enough to spare a server that
/// never answers for it, short enough that nobody is without it for long.
const HALF_ANSWER_TTL_MAX: Duration = Duration::from_secs(10);

impl DnsResolver {
    /// A resolver that asks these servers. It opens nothing yet.
    pub fn new(settings: &DnsSettings) -> Result<Self, DnsSettingsFault> {
        if !(1..=8).contains(&settings.servers.len()) {
            return Err(DnsSettingsFault::Servers(settings.servers.len()));
        }
        let servers = settings.servers.iter().map(|server| name_server(*server)).collect::<Result<_, _>>()?;
        let config = ResolverConfig::from_parts(None, Vec::new(), servers);
        let mut builder = TokioResolver::builder_with_config(config, TokioRuntimeProvider::new());
        *builder.options_mut() = options(settings);
        let hickory = builder.build().map_err(|fault| DnsSettingsFault::Start(fault.to_string()))?;
        Ok(Self { hickory, timeout: settings.timeout, lookups: Semaphore::new(settings.lookups_max) })
    }

    async fn family(&self, name: &Name, family: RecordType) -> Result<Answer, ResolveError> {
        match self.hickory.lookup(name.clone(), family).await {
            Ok(lookup) => addresses(name, lookup.answers()),
            Err(fault) => Err(resolve_error(fault)),
        }
    }
}

#[async_trait]
impl Resolve for DnsResolver {
    async fn resolve(&self, name: &HostName) -> Result<Answer, ResolveError> {
        // Several tenants with slow names have all of them together: whoever asks for another name waits for its turn,
        // which comes before long, since each of theirs has an end.
        let slot = timeout(self.timeout, self.lookups.acquire()).await;
        let _slot = slot.ok().and_then(Result::ok).ok_or(ResolveError::Busy)?;
        // With its final dot it is absolute, and nothing is appended.
        let garbled = |fault: hickory_resolver::proto::ProtoError| ResolveError::Garbled { why: fault.to_string() };
        let name = Name::from_ascii(format!("{name}.")).map_err(garbled)?;
        let both = async { tokio::join!(self.family(&name, RecordType::AAAA), self.family(&name, RecordType::A)) };
        // Its own time begins with its turn: that it had to wait says nothing about the name, and a time-out is kept.
        let (v6, v4) = timeout(self.timeout, both).await.map_err(|_| ResolveError::Timeout)?;
        combine(v6, v4)
    }
}

fn name_server(server: SocketAddr) -> Result<NameServerConfig, DnsSettingsFault> {
    if server.port() == 0 || server.ip().is_unspecified() || server.ip().is_multicast() {
        return Err(DnsSettingsFault::Server(server));
    }
    let connections = [ConnectionConfig::udp(), ConnectionConfig::tcp()].map(|mut connection| {
        connection.port = server.port();
        connection
    });
    Ok(NameServerConfig::new(server.ip(), true, connections.into()))
}

fn options(settings: &DnsSettings) -> ResolverOpts {
    let mut options = ResolverOpts::default();
    options.timeout = settings.attempt_timeout;
    options.attempts = settings.retries;
    options.cache_size = 0;
    options.use_hosts_file = ResolveHosts::Never;
    options.ndots = 0;
    options.preserve_intermediates = true;
    options.try_tcp_on_error = true;
    options.case_randomization = true;
    options.server_ordering_strategy = ServerOrderingStrategy::QueryStatistics;
    // What passes every path unfragmented (DNS flag day 2020); more comes by TCP.
    options.edns_payload_len = 1232;
    options
}

/// The addresses at the end of the chain that begins at `name`.
#[expect(clippy::wildcard_enum_match_arm, reason = "of all types of records two are addresses and one is an alias")]
fn addresses(name: &Name, records: &[Record]) -> Result<Answer, ResolveError> {
    let aliases: BTreeMap<&Name, (&Name, u32)> = records
        .iter()
        .filter_map(|record| match &record.data {
            RData::CNAME(alias) => Some((&record.name, (&alias.0, record.ttl))),
            _ => None,
        })
        .collect();
    let (mut end, mut ttl) = (name, Duration::MAX);
    for followed in 0.. {
        let Some((next, alias_ttl)) = aliases.get(end) else { break };
        if followed == ALIASES_MAX {
            return Err(ResolveError::Garbled { why: format!("more than {ALIASES_MAX} aliases, or a loop of them") });
        }
        ttl = ttl.min(ttl_of(*alias_ttl));
        end = next;
    }
    let mut addresses = Vec::new();
    for record in records.iter().filter(|record| record.name == *end) {
        let address = match &record.data {
            RData::A(address) => IpAddr::V4(address.0),
            RData::AAAA(address) => IpAddr::V6(address.0),
            _ => continue,
        };
        ttl = ttl.min(ttl_of(record.ttl));
        addresses.push(address);
        // An answer of 64 KiB has thousands, and would be kept. With one too many it is refused as a whole already.
        if addresses.len() > ADDRESSES_MAX {
            break;
        }
    }
    if addresses.is_empty() {
        return Err(ResolveError::NoAddresses { ttl: None });
    }
    Ok(Answer { addresses: addresses.into(), ttl })
}

/// RFC 2181, 8: a TTL with its top bit set is 0.
fn ttl_of(seconds: u32) -> Duration {
    Duration::from_secs(if seconds > i32::MAX as u32 { 0 } else { seconds.into() })
}

/// Both families as one answer. One without the other is an answer too: what is dialled is vetted, and a family that
/// nobody knows of is not dialled.
fn combine(v6: Result<Answer, ResolveError>, v4: Result<Answer, ResolveError>) -> Result<Answer, ResolveError> {
    use ResolveError::{NoAddresses, NotFound};
    match (v6, v4) {
        (Ok(v6), Ok(v4)) => {
            let addresses = v6.addresses.iter().chain(&*v4.addresses).copied().collect();
            Ok(Answer { addresses, ttl: v6.ttl.min(v4.ttl) })
        }
        (Ok(answer), Err(NoAddresses { .. } | NotFound { .. }))
        | (Err(NoAddresses { .. } | NotFound { .. }), Ok(answer)) => Ok(answer),
        (Ok(half), Err(_)) | (Err(_), Ok(half)) => {
            Ok(Answer { ttl: half.ttl.min(HALF_ANSWER_TTL_MAX), addresses: half.addresses })
        }
        // A name that does not exist does so for both families.
        (Err(NotFound { ttl }), Err(_)) | (Err(_), Err(NotFound { ttl })) => Err(NotFound { ttl }),
        // "There is none of this family" says nothing of the other, whose failure it is then.
        (Err(NoAddresses { ttl: a }), Err(NoAddresses { ttl: b })) => {
            Err(NoAddresses { ttl: a.into_iter().chain(b).min() })
        }
        (Err(NoAddresses { .. }), Err(fault)) | (Err(fault), Err(_)) => Err(fault),
    }
}

#[expect(clippy::wildcard_enum_match_arm, reason = "hickory's list is open; what is left is an answer without sense")]
fn resolve_error(fault: NetError) -> ResolveError {
    match fault {
        NetError::Dns(DnsError::NoRecordsFound(none)) => {
            let ttl = none.negative_ttl.map(ttl_of);
            match none.response_code {
                ResponseCode::NXDomain => ResolveError::NotFound { ttl },
                ResponseCode::NoError => ResolveError::NoAddresses { ttl },
                code => ResolveError::Failed { rcode: rcode(code) },
            }
        }
        NetError::Dns(DnsError::ResponseCode(code)) => ResolveError::Failed { rcode: rcode(code) },
        NetError::Timeout => ResolveError::Timeout,
        NetError::Busy => ResolveError::Busy,
        NetError::NoConnections | NetError::Io(_) => ResolveError::Unreachable,
        fault => ResolveError::Garbled { why: fault.to_string() },
    }
}

/// As `Proxy-Status` wants it: the mnemonic of the registry, or the number.
#[expect(clippy::wildcard_enum_match_arm, reason = "the others have no name that people know")]
fn rcode(code: ResponseCode) -> String {
    match code {
        ResponseCode::ServFail => "SERVFAIL".to_owned(),
        ResponseCode::Refused => "REFUSED".to_owned(),
        ResponseCode::FormErr => "FORMERR".to_owned(),
        ResponseCode::NotImp => "NOTIMP".to_owned(),
        ResponseCode::NotAuth => "NOTAUTH".to_owned(),
        code => u16::from(code).to_string(),
    }
}
