//! Asking: an operation is checked, sent to the server that has the application, and its answer read.

use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use redis::Value;
use tokio::runtime::Handle;
use tokio::time::Instant;

use crate::quota::answer::{Answer, AskError, BucketView, Reply};
use crate::quota::centre::Centre;
use crate::quota::core::malformed;
use crate::quota::key::Application;
use crate::quota::op::{Describe, Op};

use super::cluster::{Cluster, slot};
use super::fault::Fault;
use super::link::Link;
use super::locate::Place;
use super::push::{Ears, Pushes, listen};
use super::settings::{RedisSettings, Servers};
use super::{reply, wire};

/// Most lists of names for one description: some of them may be of buckets that are forgotten.
const LISTS_MAX: usize = 20;

/// The centre that is in Redis. Cheap to clone; nothing is connected before something is asked or watched.
#[derive(Debug, Clone)]
pub struct RedisCentre(Arc<Shared>);

#[derive(Debug)]
pub(super) struct Shared {
    pub(super) settings: Arc<RedisSettings>,
    pub(super) runtime: Handle,
    route: Route,
    ears: Arc<Ears>,
    fault: Mutex<Option<Fault>>,
}

#[derive(Debug)]
enum Route {
    One(Place, Arc<Link>),
    Cluster(Arc<Cluster>),
}

impl RedisCentre {
    /// A centre whose connections live on this runtime, and what it says without being asked.
    pub fn new(settings: RedisSettings, runtime: &Handle) -> (Self, Pushes) {
        let settings = Arc::new(settings);
        let (ears, pushes) = Ears::new(settings.pushes_max);
        let one = |place: Place| {
            let link = Link::new(place.clone(), Arc::clone(&settings), runtime.clone());
            Route::One(place, link)
        };
        let route = match &settings.servers {
            Servers::One(address) => one(Place::At(address.clone())),
            Servers::Sentinel { .. } => one(Place::Primary),
            Servers::Cluster(seeds) => {
                Route::Cluster(Cluster::new(seeds.clone(), Arc::clone(&settings), runtime.clone()))
            }
        };
        let (ears_of_task, runtime) = (Arc::clone(&ears), runtime.clone());
        let shared = Arc::new(Shared { settings, runtime, route, ears, fault: Mutex::new(None) });
        shared.runtime.spawn(listen(Arc::downgrade(&shared), ears_of_task));
        (Self(shared), pushes)
    }

    /// Listens for what is said of this application from now on. No if that is one too many: it is right without.
    pub fn watch(&self, application: &Application) -> bool {
        self.0.ears.watch(application)
    }

    /// Listens for it no more.
    pub fn unwatch(&self, application: &Application) {
        self.0.ears.forget(application);
    }

    /// Has a function of the library called that is not of an application.
    pub(super) async fn call(&self, tag: &str, command: redis::Cmd) -> Result<Value, Fault> {
        self.0.call_at(tag, command).await
    }

    /// Why the last ask had no answer; none if it had one.
    pub fn fault(&self) -> Option<Fault> {
        *self.0.fault.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Centre for RedisCentre {
    async fn ask(&self, op: &Op) -> Result<Reply, AskError> {
        let result = self.0.ask(op).await;
        *self.0.fault.lock().unwrap_or_else(PoisonError::into_inner) = result.as_ref().err().copied();
        result.map_err(Fault::ask_error)
    }

    fn watch(&self, application: &Application) {
        // One too many is right without.
        Self::watch(self, application);
    }
}

impl Shared {
    async fn ask(&self, op: &Op) -> Result<Reply, Fault> {
        let application = &op.application;
        if let Some(malformed) = malformed(op) {
            let epoch = reply::read_epoch(self.call(application, wire::nothing(application)).await?)?;
            return Ok(Reply { epoch, answer: Answer::Malformed(malformed) });
        }
        if let crate::quota::op::Body::Describe(describe) = &op.body {
            return self.describe(application, describe).await;
        }
        let Some(command) = wire::call(application, &op.body) else { return Err(Fault::Other) };
        reply::read(self.call(application, command).await?, &op.body)
    }

    async fn call(&self, application: &Application, command: redis::Cmd) -> Result<Value, Fault> {
        self.call_at(&wire::tag(application), command).await
    }

    /// Sends it to the server that has the slot of the hash tag.
    async fn call_at(&self, tag: &str, command: redis::Cmd) -> Result<Value, Fault> {
        let deadline = Instant::now() + self.settings.budget;
        match &self.route {
            Route::One(_, link) => link.call(command, deadline).await,
            Route::Cluster(cluster) => {
                let link = cluster.link(slot(tag), deadline).await?;
                let answer = link.call(command, deadline).await;
                if answer.as_ref().is_err_and(|fault| is_not_the_owners(*fault)) {
                    cluster.suspect();
                }
                answer
            }
        }
    }

    /// Looks at one bucket after the other, so that the server is never held up by a page. Each call has a budget.
    async fn describe(&self, application: &Application, describe: &Describe) -> Result<Reply, Fault> {
        let mut views: Vec<BucketView> = Vec::new();
        let (mut after, mut epoch) = (describe.after.clone(), 0);
        for _ in 0..LISTS_MAX {
            let left = usize::from(describe.limit).saturating_sub(views.len());
            let limit = u16::try_from(left).unwrap_or(u16::MAX);
            let answer = self.call(application, wire::list(application, after.as_ref(), limit)).await?;
            let (of, names) = reply::read_names(answer, limit)?;
            epoch = of;
            let is_last = names.len() < left;
            for key in &names {
                let answer = self.call(application, wire::describe(application, key)).await?;
                views.extend(reply::read_view(answer)?.filter(|view| view.key == *key));
            }
            after = names.last().cloned().or(after);
            if is_last || views.len() >= usize::from(describe.limit) {
                break;
            }
        }
        Ok(Reply { epoch, answer: Answer::Buckets(views) })
    }

    /// Where the application's pushes come from.
    pub(super) async fn place(&self, application: &Application) -> Option<Place> {
        match &self.route {
            Route::One(place, _) => Some(place.clone()),
            Route::Cluster(cluster) => {
                let slot = slot(&wire::tag(application));
                if cluster.address(slot).is_none() {
                    // Known afterwards, or asked for again at the next look.
                    drop(cluster.link(slot, Instant::now() + self.settings.dial_limit).await);
                }
                cluster.address(slot).map(Place::At)
            }
        }
    }
}

/// Whether another node may have the slot by now.
fn is_not_the_owners(fault: Fault) -> bool {
    matches!(fault, Fault::Moving | Fault::ClusterDown) || fault.ends_connection()
}
