//! What these tests share: rules, a resolver by script, a connector that must not be used, a DNS server.
#![allow(dead_code, unreachable_pub, reason = "each test program uses its own part of this")]
#![allow(clippy::unwrap_used, clippy::wildcard_enum_match_arm, reason = "this is for tests")]

pub mod dns;

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use outbound::dial::{Connect, ConnectFault, Connected};
use outbound::{AddressTable, Answer, HostName, Opening, Own, Resolve, ResolveError, Rules, Source, VettedAddr};
use tokio::io::DuplexStream;

static TABLE: LazyLock<Arc<AddressTable>> = LazyLock::new(|| Arc::new(AddressTable::shipped()));

pub fn rules() -> Rules {
    Rules { table: Arc::clone(&TABLE), own: Own::default(), nat64: Vec::new() }
}

pub fn opening(host: &str, network: &str, port: u16) -> Opening {
    Opening::new(host, vec![network.parse().unwrap()], vec![port], &TABLE).unwrap()
}

pub type Outcome = Result<Vec<IpAddr>, ResolveError>;

/// A resolver by script: each name has successive outcomes, the last one for ever. Names without a script do not exist.
#[derive(Debug, Default)]
pub struct Scripted {
    outcomes: Mutex<HashMap<String, Vec<Outcome>>>,
    pub asked: Mutex<Vec<String>>,
}

impl Scripted {
    pub fn with(self, name: &str, outcomes: Vec<Outcome>) -> Self {
        self.outcomes.lock().unwrap().insert(name.to_owned(), outcomes);
        self
    }
}

#[async_trait]
impl Resolve for Scripted {
    async fn resolve(&self, name: &HostName) -> Result<Answer, ResolveError> {
        self.asked.lock().unwrap().push(name.to_string());
        let mut outcomes = self.outcomes.lock().unwrap();
        let outcome = match outcomes.get_mut(name.as_str()) {
            Some(left) if left.len() > 1 => left.remove(0),
            Some(left) => left[0].clone(),
            None => Err(ResolveError::NotFound { ttl: None }),
        };
        match outcome {
            Ok(addresses) if addresses.is_empty() => Err(ResolveError::NoAddresses { ttl: None }),
            Ok(addresses) => Ok(Answer { addresses: addresses.into(), ttl: Duration::from_secs(1) }),
            Err(fault) => Err(fault),
        }
    }
}

/// Connects to nobody and counts who tries. `allowed` are the addresses that may be tried; any other fails the test.
#[derive(Debug, Clone, Default)]
pub struct Watched {
    pub allowed: Arc<Mutex<Vec<IpAddr>>>,
    pub dials: Arc<AtomicUsize>,
}

impl Watched {
    pub fn count(&self) -> usize {
        self.dials.load(Ordering::SeqCst)
    }
}

impl Connect for Watched {
    type Stream = DuplexStream;

    async fn connect(&self, to: VettedAddr, _: Option<Source>) -> Result<Connected<DuplexStream>, ConnectFault> {
        self.dials.fetch_add(1, Ordering::SeqCst);
        let address = to.socket().ip();
        assert!(self.allowed.lock().unwrap().contains(&address), "dialled {address}, which nobody vetted");
        Ok(Connected { stream: tokio::io::duplex(1).0, local: "192.0.2.1:1".parse().unwrap() })
    }
}
