//! The one connection to a server: opened when somebody asks, given up when it is silent, opened again.
//!
//! An ask waits for the connection and for the answer until its time is over, and no longer. What it sent is waited for
//! all the same, for [`RedisSettings::stall_limit`]: answers come in the order of asks, so that none may be dropped, and a
//! place among the operations under way is only free again once the server is done with one.

use std::fmt;
use std::hash::{BuildHasher, Hasher};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{Cmd, Value, cmd};
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, oneshot, watch};
use tokio::task::AbortHandle;
use tokio::time::{Instant, timeout, timeout_at};

use super::dial;
use super::fault::Fault;
use super::library::LIBRARY;
use super::locate::Place;
use super::settings::RedisSettings;

/// First pause after a connection that could not be opened, or served nobody.
const PAUSE: Duration = Duration::from_millis(100);

pub(super) struct Link {
    place: Place,
    settings: Arc<RedisSettings>,
    runtime: Handle,
    places: Arc<Semaphore>,
    state: Mutex<State>,
    is_loading: AtomicBool,
}

struct State {
    connection: Connection,
    /// Connections in a row that served nobody.
    failures: u32,
    last_id: u64,
}

enum Connection {
    None,
    Opening(watch::Receiver<Option<Result<Up, Fault>>>),
    Up(Up),
    Paused { until: Instant, fault: Fault },
}

#[derive(Clone)]
struct Up {
    id: u64,
    connection: MultiplexedConnection,
    driver: AbortHandle,
}

impl Up {
    /// Sees to it that we are let in and that the library is there.
    async fn prepare(&mut self) -> Result<(), Fault> {
        // First something short: who has not logged in and sends a library is cut off without a word.
        if let Err(fault) = Fault::check(self.connection.send_packed_command(&cmd("PING")).await)
            && fault.ends_connection()
        {
            return Err(fault);
        }
        // Where it is there already this is refused, where we may not it is an operator's doing; the first ask tells.
        match Fault::check(self.connection.send_packed_command(&load_command(false)).await) {
            Err(fault @ (Fault::Lost | Fault::Unreadable)) => Err(fault),
            _ => Ok(()),
        }
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link").field("place", &self.place).finish_non_exhaustive()
    }
}

impl Link {
    pub(super) fn new(place: Place, settings: Arc<RedisSettings>, runtime: Handle) -> Arc<Self> {
        let places = Arc::new(Semaphore::new(settings.operations_max.max(1)));
        let state = Mutex::new(State { connection: Connection::None, failures: 0, last_id: 0 });
        Arc::new(Self { place, settings, runtime, places, state, is_loading: AtomicBool::new(false) })
    }

    /// Sends a command and gives its answer, if it comes in time.
    pub(super) async fn call(self: &Arc<Self>, command: Cmd, deadline: Instant) -> Result<Value, Fault> {
        let up = timeout_at(deadline, self.up()).await.map_err(|_| Fault::NotReached)??;
        let place = Arc::clone(&self.places).try_acquire_owned().map_err(|_| Fault::Busy)?;
        let (answer, answered) = oneshot::channel();
        let link = Arc::clone(self);
        self.runtime.spawn(async move {
            let result = link.exchange(up, &command).await;
            drop(place);
            // Nobody may be waiting any more.
            drop(answer.send(result));
        });
        match timeout_at(deadline, answered).await {
            Ok(Ok(result)) => result,
            Ok(Err(_)) => Err(Fault::Lost),
            Err(_) => Err(Fault::Slow),
        }
    }

    async fn exchange(self: &Arc<Self>, mut up: Up, command: &Cmd) -> Result<Value, Fault> {
        let sent = timeout(self.settings.stall_limit, up.connection.send_packed_command(command)).await;
        let result = match sent {
            Ok(result) => Fault::check(result),
            Err(_) => Err(Fault::Stalled),
        };
        match result {
            Ok(_) => self.lock().failures = 0,
            Err(fault) if fault.ends_connection() => self.end(up.id, fault),
            Err(Fault::NoLibrary) => self.load(up, false),
            Err(Fault::OldLibrary) => self.load(up, true),
            Err(_) => {}
        }
        result
    }

    /// The connection, as soon as there is one.
    async fn up(self: &Arc<Self>) -> Result<Up, Fault> {
        let mut opening = {
            let mut state = self.lock();
            match &state.connection {
                Connection::Up(up) => return Ok(up.clone()),
                Connection::Paused { until, fault } if Instant::now() < *until => return Err(*fault),
                Connection::Opening(opening) => opening.clone(),
                Connection::None | Connection::Paused { .. } => self.begin(&mut state),
            }
        };
        let opened = opening.wait_for(Option::is_some).await.map_err(|_| Fault::Lost)?;
        opened.clone().unwrap_or(Err(Fault::Lost))
    }

    fn begin(self: &Arc<Self>, state: &mut State) -> watch::Receiver<Option<Result<Up, Fault>>> {
        let (done, opening) = watch::channel(None);
        state.connection = Connection::Opening(opening.clone());
        state.last_id += 1;
        let (link, id) = (Arc::clone(self), state.last_id);
        self.runtime.spawn(async move {
            let opened = timeout(link.settings.dial_limit, link.open(id)).await.unwrap_or(Err(Fault::NotReached));
            let mut state = link.lock();
            match &opened {
                Ok(up) => state.connection = Connection::Up(up.clone()),
                Err(fault) => link.pause(&mut state, *fault),
            }
            drop(state);
            done.send_replace(Some(opened));
        });
        opening
    }

    async fn open(self: &Arc<Self>, id: u64) -> Result<Up, Fault> {
        let address = self.place.locate(&self.settings).await?;
        let (connection, driver) = dial::open(&self.settings, &address, &self.settings.credentials, None).await?;
        // Not an owner: a link that nobody asks any more closes its connection.
        let link = Arc::downgrade(self);
        let driver = self.runtime.spawn(async move {
            driver.await;
            if let Some(link) = link.upgrade() {
                link.end(id, Fault::Lost);
            }
        });
        let mut up = Up { id, connection, driver: driver.abort_handle() };
        match up.prepare().await {
            Ok(()) => Ok(up),
            Err(fault) => {
                up.driver.abort();
                Err(fault)
            }
        }
    }

    /// Gives the connection up, if it is still that one.
    fn end(&self, id: u64, fault: Fault) {
        let mut state = self.lock();
        let Connection::Up(up) = &state.connection else { return };
        if up.id != id {
            return;
        }
        up.driver.abort();
        if fault == Fault::Lost && state.failures == 0 {
            // It served until now: the next one is opened at once.
            state.connection = Connection::None;
            state.failures = 1;
        } else {
            self.pause(&mut state, fault);
        }
    }

    fn pause(&self, state: &mut State, fault: Fault) {
        let whole = PAUSE.saturating_mul(1 << state.failures.min(10)).min(self.settings.pause_limit);
        state.failures = state.failures.saturating_add(1);
        // Up to a quarter less, so that many nodes do not come back at once.
        let part = std::hash::RandomState::new().build_hasher().finish() % 256;
        let less = whole.mul_f64(f64::from(u8::try_from(part).unwrap_or(0)) / 1024.0);
        state.connection = Connection::Paused { until: Instant::now() + whole.saturating_sub(less), fault };
    }

    /// Loads the library, once at a time, for the asks that come.
    fn load(self: &Arc<Self>, mut up: Up, replaces: bool) {
        if self.is_loading.swap(true, Ordering::AcqRel) {
            return;
        }
        let link = Arc::clone(self);
        self.runtime.spawn(async move {
            let command = load_command(replaces);
            let sent = timeout(link.settings.dial_limit, up.connection.send_packed_command(&command)).await;
            link.is_loading.store(false, Ordering::Release);
            // What is refused here is told by the next ask; a connection that is silent is given up by it.
            drop(sent);
        });
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn load_command(replaces: bool) -> Cmd {
    let mut command = cmd("FUNCTION");
    command.arg("LOAD");
    if replaces {
        command.arg("REPLACE");
    }
    command.arg(LIBRARY);
    command
}

impl Drop for Link {
    fn drop(&mut self) {
        if let Connection::Up(up) = &self.lock().connection {
            up.driver.abort();
        }
    }
}
