//! What the centre says without being asked: parks and new generations, so that every node stops within milliseconds.
//!
//! A push is a hint, and may be lost: holders are right without any, only later. It comes on connections of its own, since
//! a server may speak there out of turn (a slot that moves away ends a subscription), which among answers to asks would
//! shift each of them to another ask.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{PushInfo, PushKind, Value, cmd};
use tokio::sync::{Notify, mpsc};
use tokio::task::AbortHandle;
use tokio::time::timeout;

use crate::quota::key::{Application, BucketKey};

use super::centre::Shared;
use super::dial::{self, Ear};
use super::fault::Fault;
use super::locate::Place;
use super::wire::{channel, parse_bucket_name};

/// Most applications that one node listens to. Further ones are right without pushes, only later.
const WATCHED_MAX: usize = 10_000;
/// How often connections are looked after, and how long their servers may be silent.
const LOOK_EVERY: Duration = Duration::from_secs(1);
const SILENCE_MAX: Duration = Duration::from_secs(1);
/// Longest message: a bucket's name, two integers.
const MESSAGE_BYTES_MAX: usize = 256;

/// Something changed that holders want to know at once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Push {
    /// The bucket is of this generation now, and parked for so long: 0 is not at all.
    Bucket { application: Application, key: BucketKey, generation: u64, park_ms: u64 },
    /// Another server answers, which may have forgotten something: holders tell what they have.
    Epoch { application: Application, epoch: u64 },
    /// Pushes may have been missed: of this application, or of any.
    Missed { application: Option<Application> },
}

/// Where pushes come out. Bounded: who does not take them in time misses some, and is told.
#[derive(Debug)]
pub struct Pushes {
    pushes: mpsc::Receiver<Push>,
    has_missed: Arc<AtomicBool>,
}

impl Pushes {
    /// The next one; `None` once the centre is gone.
    pub async fn next(&mut self) -> Option<Push> {
        if self.has_missed.swap(false, Ordering::AcqRel) {
            return Some(Push::Missed { application: None });
        }
        self.pushes.recv().await
    }
}

/// The other end of [`Pushes`], and what is listened for.
#[derive(Debug)]
pub(super) struct Ears {
    pushes: mpsc::Sender<Push>,
    has_missed: Arc<AtomicBool>,
    watched: Mutex<BTreeSet<Application>>,
    /// Something is to be looked after before its time.
    pub(super) wake: Notify,
}

impl Ears {
    pub(super) fn new(pushes_max: usize) -> (Arc<Self>, Pushes) {
        let (sender, pushes) = mpsc::channel(pushes_max.max(1));
        let has_missed = Arc::new(AtomicBool::new(false));
        let ears = Self {
            pushes: sender,
            has_missed: Arc::clone(&has_missed),
            watched: Mutex::default(),
            wake: Notify::new(),
        };
        (Arc::new(ears), Pushes { pushes, has_missed })
    }

    /// Listens for the application from now on; no if there are too many.
    pub(super) fn watch(&self, application: &Application) -> bool {
        let mut watched = self.watched.lock().unwrap_or_else(PoisonError::into_inner);
        if watched.contains(application) {
            return true;
        }
        if watched.len() >= WATCHED_MAX {
            return false;
        }
        self.wake.notify_one();
        watched.insert(application.clone())
    }

    pub(super) fn forget(&self, application: &Application) {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner).remove(application);
        self.wake.notify_one();
    }

    fn watched(&self) -> Vec<Application> {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
    }

    fn give(&self, push: Push) {
        if self.pushes.try_send(push).is_err() {
            self.has_missed.store(true, Ordering::Release);
        }
    }
}

/// Keeps one connection per server that has watched applications, for as long as the centre lives.
pub(super) async fn listen(shared: Weak<Shared>, ears: Arc<Ears>) {
    let mut open: BTreeMap<Place, Listening> = BTreeMap::new();
    loop {
        let Some(shared) = shared.upgrade() else { return };
        let mut wanted: BTreeMap<Place, Vec<Application>> = BTreeMap::new();
        for application in ears.watched() {
            if let Some(place) = shared.place(&application).await {
                wanted.entry(place).or_default().push(application);
            }
        }
        open.retain(|place, _| wanted.contains_key(place));
        for (place, applications) in wanted {
            if look_after(&shared, &ears, &mut open, &place, applications).await.is_err() {
                open.remove(&place);
            }
        }
        drop(shared);
        // Either is a reason to look again.
        drop(timeout(LOOK_EVERY, ears.wake.notified()).await);
    }
}

/// An open connection, and what it listens to.
struct Listening {
    connection: MultiplexedConnection,
    driver: AbortHandle,
    is_over: Arc<AtomicBool>,
    applications: BTreeSet<Application>,
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

async fn look_after(
    shared: &Arc<Shared>,
    ears: &Arc<Ears>,
    open: &mut BTreeMap<Place, Listening>,
    place: &Place,
    applications: Vec<Application>,
) -> Result<(), Fault> {
    if open.get(place).is_some_and(|listening| listening.is_over.load(Ordering::Acquire)) {
        open.remove(place);
    }
    if !open.contains_key(place) {
        let opened = timeout(shared.settings.dial_limit, start(shared, ears, place)).await;
        open.insert(place.clone(), opened.unwrap_or(Err(Fault::NotReached))?);
    }
    let Some(listening) = open.get_mut(place) else { return Ok(()) };
    // Also how silence is noticed.
    listening.ask(&cmd("PING")).await?;
    let wanted: BTreeSet<_> = applications.into_iter().collect();
    for application in &wanted - &listening.applications {
        listening.ask(cmd("SSUBSCRIBE").arg(channel(&application))).await?;
        listening.applications.insert(application.clone());
        // What was said before is not repeated.
        ears.give(Push::Missed { application: Some(application) });
    }
    for application in &listening.applications.clone() - &wanted {
        listening.ask(cmd("SUNSUBSCRIBE").arg(channel(&application))).await?;
        listening.applications.remove(&application);
    }
    Ok(())
}

async fn start(shared: &Arc<Shared>, ears: &Arc<Ears>, place: &Place) -> Result<Listening, Fault> {
    let address = place.locate(&shared.settings).await?;
    let is_over = Arc::new(AtomicBool::new(false));
    let (hears, over) = (Arc::clone(ears), Arc::clone(&is_over));
    let ear: Ear = Box::new(move |info: PushInfo| {
        if info.kind == PushKind::SMessage {
            if let Some(push) = read(&info.data) {
                hears.give(push);
            }
        } else if matches!(info.kind, PushKind::Disconnection | PushKind::SUnsubscribe) {
            // Also an end that was not asked for, after which answers may be another ask's.
            over.store(true, Ordering::Release);
            hears.wake.notify_one();
        }
        Ok(())
    });
    let (connection, driver) = dial::open(&shared.settings, &address, &shared.settings.credentials, Some(ear)).await?;
    let driver = shared.runtime.spawn(driver).abort_handle();
    Ok(Listening { connection, driver, is_over, applications: BTreeSet::new() })
}

impl Listening {
    async fn ask(&mut self, command: &redis::Cmd) -> Result<(), Fault> {
        let sent = timeout(SILENCE_MAX, self.connection.send_packed_command(command)).await;
        Fault::check(sent.map_err(|_| Fault::Stalled)?).map(drop)
    }
}

/// A message of an application's channel; none if it is not one.
fn read(data: &[Value]) -> Option<Push> {
    let [Value::BulkString(channel), Value::BulkString(message)] = data else { return None };
    if message.len() > MESSAGE_BYTES_MAX || channel.len() > MESSAGE_BYTES_MAX {
        return None;
    }
    let application = application(str::from_utf8(channel).ok()?)?;
    let message = str::from_utf8(message).ok()?;
    if let Some(epoch) = message.strip_prefix("epoch ") {
        return Some(Push::Epoch { application, epoch: epoch.parse().ok()? });
    }
    let (rest, park_ms) = message.rsplit_once(' ')?;
    let (name, generation) = rest.rsplit_once(' ')?;
    let key = parse_bucket_name(name)?;
    Some(Push::Bucket { application, key, generation: generation.parse().ok()?, park_ms: park_ms.parse().ok()? })
}

fn application(channel: &str) -> Option<Application> {
    let name = |text| crate::quota::name::Name::parse(text).ok();
    let (provider, application) = channel.strip_prefix("{q:")?.strip_suffix("}:ev")?.split_once(':')?;
    Some(Application { provider: name(provider)?, name: name(application)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hear(channel: &str, message: &str) -> Option<Push> {
        read(&[Value::BulkString(channel.into()), Value::BulkString(message.into())])
    }

    #[test]
    fn messages_are_read_and_others_are_not() {
        let Some(Push::Bucket { application, key, generation: 12, park_ms: 345 }) =
            hear("{q:github:main}:ev", "1 conn_1 core 12 345")
        else {
            panic!()
        };
        assert_eq!((application.to_string(), key.to_string()), ("github:main".into(), "connection:conn_1:core".into()));
        assert!(matches!(hear("{q:github:main}:ev", "epoch 7"), Some(Push::Epoch { epoch: 7, .. })));
        for (channel, message) in [
            ("{q:github:main}", "epoch 7"),
            ("{q:github}:ev", "epoch 7"),
            ("{q:github:main}:ev", "epoch -7"),
            ("{q:github:main}:ev", "9 conn_1 core 12 345"),
            ("{q:github:main}:ev", "1 conn_1 core 12"),
            ("{q:github:main}:ev", &"1".repeat(300)),
        ] {
            assert_eq!(hear(channel, message), None, "{channel} {message}");
        }
    }

    #[tokio::test]
    async fn who_does_not_take_them_is_told() {
        let (ears, mut pushes) = Ears::new(2);
        for epoch in 0..3 {
            let name = crate::quota::name::Name::parse("a").unwrap();
            ears.give(Push::Epoch { application: Application { provider: name.clone(), name }, epoch });
        }
        assert_eq!(pushes.next().await, Some(Push::Missed { application: None }));
        assert!(matches!(pushes.next().await, Some(Push::Epoch { epoch: 0, .. })));
        assert!(matches!(pushes.next().await, Some(Push::Epoch { epoch: 1, .. })));
    }
}
