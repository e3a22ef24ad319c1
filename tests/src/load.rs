//! Load whose every byte can be said again later, and the book in which each delivery's fate is written.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::task::JoinHandle;

use crate::random::Random;
use crate::response::NoAnswer;
use crate::sender::{Connection, Request, Sender};

/// Names one delivery: the connection's number in the ledger, and the delivery's on that connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    pub connection: u64,
    pub number: u64,
}

/// What the sender knows about a delivery that it sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// 202, with this event id.
    Acknowledged(String),
    /// Another answer.
    Refused(u16),
    /// The connection went away before there was an answer.
    Unknown,
}

/// One delivery.
#[derive(Debug, Clone)]
pub struct Attempt {
    pub endpoint: String,
    pub outcome: Outcome,
}

/// Every delivery that was ever sent, over all lives of the appliance.
#[derive(Debug, Default, Clone)]
pub struct Ledger {
    pub seed: u64,
    pub attempts: BTreeMap<Key, Attempt>,
    /// Acknowledged deliveries in the order in which the answers came in, while the load still runs.
    pub heard: Heard,
    next_connection: u64,
}

/// A list that all senders of a ledger write to.
#[derive(Debug, Default, Clone)]
pub struct Heard(Arc<Mutex<Vec<Key>>>);

/// Load that is running.
#[derive(Debug)]
pub struct Load {
    stop: Arc<AtomicBool>,
    tasks: Vec<JoinHandle<Vec<(Key, Attempt)>>>,
}

impl Key {
    /// The body that goes with it: its own name, then bytes that only the seed knows.
    pub fn body(self, seed: u64) -> Vec<u8> {
        let mut random = Random::seeded(seed ^ (self.connection << 32) ^ self.number);
        // Mostly small, now and then several pages, so that records cross every boundary there is.
        let high = if random.within(0, 8) == 0 { 12_000 } else { 1_500 };
        let length = usize::try_from(random.within(0, high)).expect("small");
        [format!("{self} ").into_bytes(), random.bytes(length)].concat()
    }

    pub fn of_body(body: &[u8]) -> Option<Self> {
        let name = body.split(|byte| *byte == b' ').next()?;
        let (connection, number) = std::str::from_utf8(name).ok()?.split_once('-')?;
        Some(Self { connection: connection.parse().ok()?, number: number.parse().ok()? })
    }

    /// The request that goes with it. A header comes twice, with a neighbour in between.
    pub fn request(self, seed: u64, sender: &Sender) -> Request {
        sender
            .delivery(self.body(seed))
            .header("X-Twice", &format!("first of {self}"))
            .header("X-Between", "x")
            .header("X-Twice", &format!("second of {self}"))
    }
}

impl std::fmt::Display for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}-{}", self.connection, self.number)
    }
}

impl Heard {
    fn push(&self, key: Key) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(key);
    }

    /// How many answers have come in by now.
    pub fn count(&self) -> usize {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    pub fn keys(&self) -> Vec<Key> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Ledger {
    pub fn seeded(seed: u64) -> Self {
        Self { seed, ..Self::default() }
    }

    /// Starts `connections` connections to each of these endpoints; each sends one delivery after the other.
    pub fn load(&mut self, senders: &[(String, Sender)], connections: usize) -> Load {
        let stop = Arc::new(AtomicBool::new(false));
        let mut tasks = Vec::new();
        for (endpoint, sender) in senders {
            for _ in 0..connections {
                let connection = self.next_connection;
                self.next_connection += 1;
                let (endpoint, sender, heard) = (endpoint.clone(), sender.clone(), self.heard.clone());
                let post = Post { seed: self.seed, connection, endpoint, sender, heard };
                tasks.push(tokio::spawn(post.run(Arc::clone(&stop))));
            }
        }
        Load { stop, tasks }
    }

    /// Ends the load and writes its deliveries down.
    pub async fn settle(&mut self, load: Load) {
        load.stop.store(true, Ordering::SeqCst);
        for task in load.tasks {
            self.attempts.extend(task.await.expect("a sender does not panic"));
        }
    }

    pub fn acknowledged(&self) -> impl Iterator<Item = (&Key, &str)> {
        self.attempts.iter().filter_map(|(key, attempt)| match &attempt.outcome {
            Outcome::Acknowledged(id) => Some((key, id.as_str())),
            Outcome::Refused(_) | Outcome::Unknown => None,
        })
    }

    /// How many were refused with this status.
    pub fn refused(&self, status: u16) -> usize {
        self.attempts.values().filter(|attempt| attempt.outcome == Outcome::Refused(status)).count()
    }
}

/// One connection's worth of load; it reconnects when it is told to close, and ends when nobody listens.
struct Post {
    seed: u64,
    connection: u64,
    endpoint: String,
    sender: Sender,
    heard: Heard,
}

impl Post {
    async fn run(self, stop: Arc<AtomicBool>) -> Vec<(Key, Attempt)> {
        let mut book = Vec::new();
        let mut number = 0;
        'connections: while !stop.load(Ordering::SeqCst) {
            let Ok(mut connection) = Connection::try_open(self.sender.to, self.sender.from).await else { break };
            while !stop.load(Ordering::SeqCst) {
                let key = Key { connection: self.connection, number };
                number += 1;
                let (outcome, goes_on) = deliver(&mut connection, &key.request(self.seed, &self.sender)).await;
                if outcome == Outcome::Refused(503) {
                    // It asks for patience; a second of it would be politer than a test can afford.
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
                if matches!(outcome, Outcome::Acknowledged(_)) {
                    self.heard.push(key);
                }
                book.push((key, Attempt { endpoint: self.endpoint.clone(), outcome }));
                if !goes_on {
                    continue 'connections;
                }
            }
        }
        book
    }
}

/// The fate of one delivery, and whether the connection can take another.
async fn deliver(connection: &mut Connection, request: &Request) -> (Outcome, bool) {
    // A failed send may have been received all the same; the answer, if any, decides.
    let sent = connection.try_send(&request.bytes()).await;
    match connection.try_response().await {
        Ok(response) if response.status == 202 => {
            let goes_on = sent.is_ok() && !response.closes();
            (Outcome::Acknowledged(response.event_id()), goes_on)
        }
        Ok(response) => (Outcome::Refused(response.status), sent.is_ok() && !response.closes()),
        Err(NoAnswer::Closed | NoAnswer::Cut(_)) => (Outcome::Unknown, false),
    }
}
