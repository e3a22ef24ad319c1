//! What all tenants of a node share about a bucket: its park, and which leases of it are void.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use hashbrown::HashTable;

use crate::quota::key::{Application, BucketKey};
use crate::quota::op::Why;
use crate::shards::{Shards, spread};

/// An application, and the life of the centre that answered for it last.
#[derive(Debug)]
pub(super) struct App {
    pub(super) name: Application,
    /// 0: nothing was heard yet.
    epoch: AtomicU64,
    /// The centre was told that this node wants to hear of it.
    is_watched: AtomicBool,
}

impl App {
    /// Whether the centre has still to be told that this node wants to hear of it; it counts as told from here on.
    pub(super) fn begins_to_watch(&self) -> bool {
        !self.is_watched.swap(true, Ordering::Relaxed)
    }

    /// Takes note of the epoch; whether it is another one than before, so that tallies have to be told.
    pub(super) fn enter(&self, epoch: u64) -> bool {
        let before = self.epoch.swap(epoch, Ordering::Relaxed);
        before != 0 && before != epoch
    }
}

/// A bucket as this node knows it. Everything in here only grows, but for the end of a park that an operator ends.
#[derive(Debug)]
pub(super) struct Bucket {
    pub(super) app: Arc<App>,
    pub(super) key: Arc<BucketKey>,
    /// Spreads leases over tables; another one for each bucket of the process.
    pub(super) mark: u64,
    /// Leases of this `gen` and before are void.
    void_through: AtomicU64,
    /// The highest `gen` that was heard of.
    newest: AtomicU64,
    /// The end of the park, in the holder's ms, times four, and who parked it.
    park: AtomicU64,
    /// Newest window that was heard of, where windows follow each other.
    window: AtomicU64,
    /// A penalty is to be told before anything is asked about the bucket.
    pub(super) is_penalised: AtomicBool,
    /// Some route only heeds its park, so that no answer of the centre would tell of one.
    is_heeded: AtomicBool,
}

impl Bucket {
    /// Whether the centre has still to be asked for a park that began before anybody here heeded it.
    pub(super) fn begins_to_heed(&self) -> bool {
        !self.is_heeded.swap(true, Ordering::Relaxed)
    }

    pub(super) fn park(&self, now_ms: u64) -> Option<(u64, Why)> {
        let park = self.park.load(Ordering::Relaxed);
        let until_ms = park >> 2;
        (until_ms > now_ms).then(|| (until_ms, why_of(park)))
    }

    /// Parks until the later of two moments.
    pub(super) fn park_until(&self, until_ms: u64, why: Why) {
        self.park.fetch_max((until_ms << 2) | bits_of(why), Ordering::Relaxed);
    }

    pub(super) fn unpark(&self) {
        self.park.store(0, Ordering::Relaxed);
    }

    pub(super) fn is_void(&self, generation: u64) -> bool {
        generation <= self.void_through.load(Ordering::Relaxed)
    }

    /// A lease of this `gen` was heard of: older ones are void.
    pub(super) fn hear(&self, generation: u64) {
        self.newest.fetch_max(generation, Ordering::Relaxed);
        self.void_through.fetch_max(generation.saturating_sub(1), Ordering::Relaxed);
    }

    /// For the centre: one that knows of a lower one has lost something.
    pub(super) fn heard(&self) -> u64 {
        self.newest.load(Ordering::Relaxed)
    }

    /// Leases of this `gen`, too, are void.
    pub(super) fn void(&self, generation: u64) {
        self.void_through.fetch_max(generation, Ordering::Relaxed);
    }

    pub(super) fn hear_window(&self, wid: u64) {
        self.window.fetch_max(wid, Ordering::Relaxed);
    }

    pub(super) fn is_window_over(&self, wid: u64) -> bool {
        wid < self.window.load(Ordering::Relaxed)
    }
}

const fn bits_of(why: Why) -> u64 {
    match why {
        Why::Provider => 0,
        Why::Exhausted => 1,
        Why::Operator => 2,
    }
}

const fn why_of(park: u64) -> Why {
    match park & 3 {
        1 => Why::Exhausted,
        2 => Why::Operator,
        _ => Why::Provider,
    }
}

/// Every bucket that a route, a lease or a park is of, once.
#[derive(Debug)]
pub(super) struct Buckets {
    hasher: RandomState,
    apps: Mutex<HashMap<Application, Arc<App>>>,
    shards: Shards<HashTable<Arc<Bucket>>>,
    marks: AtomicU64,
}

impl Buckets {
    pub(super) fn new() -> Self {
        Self { hasher: RandomState::new(), apps: Mutex::default(), shards: Shards::new(), marks: AtomicU64::new(1) }
    }

    /// The bucket, made where there is none. It stays as long as anybody has it.
    pub(super) fn intern(&self, application: &Application, key: &Arc<BucketKey>) -> Arc<Bucket> {
        let hash = self.hash(application, key);
        if let Some(bucket) = self.find(hash, application, key) {
            return bucket;
        }
        let app = self.app(application);
        let mut table = self.shards.lock(Shards::<HashTable<Arc<Bucket>>>::of(hash));
        let fresh = || Bucket {
            app,
            key: Arc::clone(key),
            mark: spread(self.marks.fetch_add(1, Ordering::Relaxed)),
            void_through: AtomicU64::new(0),
            newest: AtomicU64::new(0),
            park: AtomicU64::new(0),
            window: AtomicU64::new(0),
            is_penalised: AtomicBool::new(false),
            is_heeded: AtomicBool::new(false),
        };
        let is_it = |bucket: &Arc<Bucket>| is_of(bucket, application, key);
        let rehash = |bucket: &Arc<Bucket>| self.hash(&bucket.app.name, &bucket.key);
        Arc::clone(table.entry(hash, is_it, rehash).or_insert_with(|| Arc::new(fresh())).get())
    }

    /// The bucket, if anybody here has it.
    pub(super) fn known(&self, application: &Application, key: &BucketKey) -> Option<Arc<Bucket>> {
        self.find(self.hash(application, key), application, key)
    }

    /// Forgets buckets of one shard that nobody has and that are not parked; the rest of that shard counted.
    pub(super) fn sweep(&self, shard: usize, now_ms: u64) -> usize {
        let mut table = self.shards.lock(shard);
        table.retain(|bucket| Arc::strong_count(bucket) > 1 || bucket.park(now_ms).is_some());
        if table.len() * 4 < table.capacity() {
            table.shrink_to_fit(|bucket| self.hash(&bucket.app.name, &bucket.key));
        }
        table.len()
    }

    /// Buckets that are only heeded, of an application or of all.
    pub(super) fn heeded(&self, application: Option<&Application>) -> Vec<Arc<Bucket>> {
        let mut all = Vec::new();
        for shard in 0..Shards::<HashTable<Arc<Bucket>>>::COUNT {
            let table = self.shards.lock(shard);
            let is_meant = |bucket: &&Arc<Bucket>| {
                bucket.is_heeded.load(Ordering::Relaxed) && application.is_none_or(|name| bucket.app.name == *name)
            };
            all.extend(table.iter().filter(is_meant).cloned());
        }
        all
    }

    /// Every application that a bucket is of, in no order. No call waits meanwhile, but whoever makes a route does.
    pub(super) fn each_application(&self, mut read: impl FnMut(&Application)) {
        self.apps.lock().unwrap_or_else(PoisonError::into_inner).keys().for_each(&mut read);
    }

    /// Forgets applications that no bucket is of.
    pub(super) fn sweep_apps(&self) {
        self.apps.lock().unwrap_or_else(PoisonError::into_inner).retain(|_, app| Arc::strong_count(app) > 1);
    }

    fn app(&self, application: &Application) -> Arc<App> {
        let mut apps = self.apps.lock().unwrap_or_else(PoisonError::into_inner);
        let fresh = || {
            let (epoch, is_watched) = (AtomicU64::new(0), AtomicBool::new(false));
            Arc::new(App { name: application.clone(), epoch, is_watched })
        };
        Arc::clone(apps.entry(application.clone()).or_insert_with(fresh))
    }

    fn find(&self, hash: u64, application: &Application, key: &BucketKey) -> Option<Arc<Bucket>> {
        let table = self.shards.lock(Shards::<HashTable<Arc<Bucket>>>::of(hash));
        table.find(hash, |bucket| is_of(bucket, application, key)).cloned()
    }

    fn hash(&self, application: &Application, key: &BucketKey) -> u64 {
        self.hasher.hash_one((application, key))
    }
}

fn is_of(bucket: &Bucket, application: &Application, key: &BucketKey) -> bool {
    *bucket.key == *key && bucket.app.name == *application
}
