//! Which node of a cluster has an application's slot.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use redis::{Value, cmd};
use tokio::runtime::Handle;
use tokio::sync::Mutex as AsyncMutex;
use tokio::time::{Instant, timeout_at};

use super::fault::Fault;
use super::link::Link;
use super::locate::Place;
use super::settings::{Address, RedisSettings};

const SLOTS: u16 = 16_384;
/// Most nodes: what a cluster may have, by its specification.
const NODES_MAX: usize = 1_000;
/// Longest wait for one node's table.
const TABLE_LIMIT: Duration = Duration::from_millis(500);
/// The table is not asked for more often.
const TABLE_PAUSE: Duration = Duration::from_millis(100);

/// The slot of a hash tag's content: CRC-16/XMODEM, as the cluster's specification has it.
pub(super) fn slot(tag: &str) -> u16 {
    let content = tag.trim_start_matches('{').trim_end_matches('}');
    let crc = content.bytes().fold(0_u16, |crc, byte| {
        (0..8)
            .fold(crc ^ (u16::from(byte) << 8), |crc, _| if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 })
    });
    crc % SLOTS
}

/// The nodes that are known, and who has which slots.
#[derive(Debug)]
pub(super) struct Cluster {
    settings: Arc<RedisSettings>,
    runtime: Handle,
    seeds: Vec<Address>,
    table: Mutex<Table>,
    /// When the table was last asked for; held while it is.
    asked: AsyncMutex<Option<Instant>>,
}

#[derive(Debug, Default)]
struct Table {
    nodes: BTreeMap<Address, Arc<Link>>,
    /// First and last slot, and whose they are; by first slot.
    ranges: Vec<(u16, u16, Address)>,
}

impl Cluster {
    pub(super) fn new(seeds: Vec<Address>, settings: Arc<RedisSettings>, runtime: Handle) -> Arc<Self> {
        let (table, asked) = (Mutex::default(), AsyncMutex::default());
        Arc::new(Self { settings, runtime, seeds, table, asked })
    }

    /// The node that has the slot, as far as is known; asked for where it is not.
    pub(super) async fn link(self: &Arc<Self>, slot: u16, deadline: Instant) -> Result<Arc<Link>, Fault> {
        if let Some((_, link)) = self.known(slot) {
            return Ok(link);
        }
        let fault = timeout_at(deadline, self.refresh()).await.unwrap_or(Some(Fault::NotReached));
        match (self.known(slot), fault) {
            (Some((_, link)), _) => Ok(link),
            (None, fault) => Err(fault.unwrap_or(Fault::ClusterDown)),
        }
    }

    /// Whose slot it is, if that is known.
    pub(super) fn address(&self, slot: u16) -> Option<Address> {
        self.known(slot).map(|(address, _)| address)
    }

    /// Asks for the table on the side: a node did not answer as the owner of a slot does.
    pub(super) fn suspect(self: &Arc<Self>) {
        let cluster = Arc::clone(self);
        self.runtime.spawn(async move { cluster.refresh().await });
    }

    fn known(&self, slot: u16) -> Option<(Address, Arc<Link>)> {
        let table = self.lock();
        let (.., address) = table.ranges.iter().find(|(first, last, _)| (*first..=*last).contains(&slot))?;
        Some((address.clone(), Arc::clone(table.nodes.get(address)?)))
    }

    /// Asks one node after the other until one has a table. Who comes while somebody asks waits and asks no more.
    async fn refresh(self: &Arc<Self>) -> Option<Fault> {
        let mut asked = self.asked.lock().await;
        if asked.is_some_and(|at| at.elapsed() < TABLE_PAUSE) {
            return None;
        }
        let mut fault = Fault::ClusterDown;
        for link in self.links() {
            let answer = link.1.call(slots_command(), Instant::now() + TABLE_LIMIT).await;
            match answer.and_then(|value| ranges(value, &link.0)) {
                Ok(ranges) => {
                    self.take(ranges);
                    *asked = Some(Instant::now());
                    return None;
                }
                Err(other) => fault = other,
            }
        }
        *asked = Some(Instant::now());
        Some(fault)
    }

    /// Known nodes first, then the seeds that are not among them.
    fn links(&self) -> Vec<(Address, Arc<Link>)> {
        let table = self.lock();
        let known = table.nodes.iter().map(|(address, link)| (address.clone(), Arc::clone(link)));
        let seeds = self.seeds.iter().filter(|seed| !table.nodes.contains_key(seed));
        known.chain(seeds.map(|seed| (seed.clone(), self.new_link(seed)))).collect()
    }

    fn new_link(&self, address: &Address) -> Arc<Link> {
        Link::new(Place::At(address.clone()), Arc::clone(&self.settings), self.runtime.clone())
    }

    fn take(&self, ranges: Vec<(u16, u16, Address)>) {
        let mut table = self.lock();
        let mut nodes = BTreeMap::new();
        for (.., address) in &ranges {
            let link = table.nodes.get(address).map_or_else(|| self.new_link(address), Arc::clone);
            nodes.insert(address.clone(), link);
        }
        *table = Table { nodes, ranges };
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn slots_command() -> redis::Cmd {
    let mut command = cmd("CLUSTER");
    command.arg("SLOTS");
    command
}

/// Reads `CLUSTER SLOTS`: of each range its first slot, its last, and its primary's host and port. A node that does not
/// know its own host leaves it out: it is the one that we have asked.
fn ranges(value: Value, asked: &Address) -> Result<Vec<(u16, u16, Address)>, Fault> {
    let Value::Array(entries) = value else { return Err(Fault::Unreadable) };
    let ranges: Option<Vec<_>> = entries.iter().take(usize::from(SLOTS)).map(|entry| range(entry, asked)).collect();
    let mut ranges = ranges.ok_or(Fault::Unreadable)?;
    ranges.sort_unstable();
    let nodes: std::collections::BTreeSet<_> = ranges.iter().map(|(.., address)| address).collect();
    if ranges.is_empty() {
        return Err(Fault::ClusterDown);
    }
    if nodes.len() > NODES_MAX { Err(Fault::Unreadable) } else { Ok(ranges) }
}

fn range(entry: &Value, asked: &Address) -> Option<(u16, u16, Address)> {
    let Value::Array(entry) = entry else { return None };
    let [Value::Int(first), Value::Int(last), Value::Array(primary), ..] = entry.as_slice() else { return None };
    let [host, Value::Int(port), ..] = primary.as_slice() else { return None };
    let host = if let Value::BulkString(bytes) = host { str::from_utf8(bytes).ok()? } else { "" };
    let host = if matches!(host, "" | "?") { &*asked.host } else { host };
    let (first, last) = (u16::try_from(*first).ok()?, u16::try_from(*last).ok()?);
    (first <= last && last < SLOTS).then_some(())?;
    Some((first, last, Address::of(host, u16::try_from(*port).ok()?)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_the_specifications() {
        assert_eq!(slot("123456789"), 0x31C3);
        assert_eq!(slot("{foo}"), 12182);
    }

    #[test]
    fn a_table_that_is_none_is_not_read() {
        let asked = Address::parse("here:1").unwrap();
        let node = |host: Value, port| Value::Array(vec![host, Value::Int(port), Value::BulkString(b"id".to_vec())]);
        let entry =
            |first, last, node| Value::Array(vec![Value::Array(vec![Value::Int(first), Value::Int(last), node])]);
        let host = || Value::BulkString(b"192.0.2.1".to_vec());
        let read = ranges(entry(0, 16_383, node(host(), 7)), &asked).unwrap();
        assert_eq!(read, [(0, 16_383, Address::parse("192.0.2.1:7").unwrap())]);
        assert_eq!(ranges(entry(0, 1, node(Value::Nil, 7)), &asked).unwrap()[0].2, Address::parse("here:7").unwrap());
        for wrong in [
            entry(0, 16_384, node(host(), 7)),
            entry(2, 1, node(host(), 7)),
            entry(0, 1, node(host(), 70_000)),
            entry(0, 1, node(Value::BulkString(b"a b".to_vec()), 7)),
            Value::Array(vec![Value::Int(1)]),
            Value::Nil,
        ] {
            assert_eq!(ranges(wrong, &asked), Err(Fault::Unreadable));
        }
        assert_eq!(ranges(Value::Array(Vec::new()), &asked), Err(Fault::ClusterDown));
    }
}
