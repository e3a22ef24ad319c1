//! A provider that things are done at: an HTTPS server that notes every effect, by the key that it was asked under and by
//! what was asked, and that breaks in the ways that matter to whoever must not do a thing twice.
//!
//! What a path begins with says how it behaves:
//!
//! | path | what it is |
//! |---|---|
//! | `/SCOPE/keyed/…` | an effect per `Idempotency-Key`: asked again under the same one, it answers what it answered before |
//! | `/SCOPE/plain/…` | an effect each time that it is asked |
//! | `/SCOPE/named/ID` | `PUT` makes or replaces `ID`, `GET` says whether it is there |
//! | `/SCOPE/echo` | the request as it came, and no effect |
//!
//! The effect of a call happens before its answer goes out, so that an answer that is lost leaves an effect behind.

mod http;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::oneshot;

use crate::appliance::own_address;
use crate::patience::PATIENCE;
use crate::random::Random;
use crate::world::certificate;

use http::{Heard, serve};

/// What becomes of a call.
#[derive(Debug, Clone, PartialEq)]
pub enum Act {
    /// What the path says.
    Usual,
    /// What the path says, after a while.
    After(Duration),
    /// No effect, and this status, with this body.
    Status(u16, Value),
    /// No effect, and 429: come again in so many seconds.
    Throttle(u32),
    /// No effect, and 401 as for a credential that was revoked.
    Unauthorised,
    /// The connection is cut before anything happens.
    CutBefore,
    /// It happens, and the connection is cut instead of an answer.
    CutAfter,
    /// It happens, and nothing is said until the caller hangs up.
    SilentAfter,
}

/// Something that happened.
#[derive(Debug, Clone, PartialEq)]
pub struct Effect {
    pub scope: String,
    pub method: String,
    /// Behind the scope.
    pub path: String,
    pub key: Option<String>,
    pub body: Value,
}

/// A call that came.
#[derive(Debug, Clone)]
pub struct Came {
    pub scope: String,
    pub method: String,
    pub path: String,
    pub fields: BTreeMap<String, String>,
    pub body: Value,
}

/// Runs until it is dropped.
#[derive(Debug)]
pub struct Provider {
    pub address: SocketAddr,
    /// The authority of its certificate, in PEM.
    pub authority: String,
    state: Arc<State>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
pub(crate) struct State {
    book: Mutex<Book>,
}

#[derive(Debug, Default)]
struct Book {
    came: Vec<Came>,
    effects: Vec<Effect>,
    /// Answers under keys, by scope and key.
    keyed: HashMap<(String, String), Value>,
    named: HashMap<(String, String), Value>,
    /// What becomes of the next calls, by the beginning of their path.
    acts: HashMap<String, VecDeque<Act>>,
    /// What becomes of every call, by the beginning of its path.
    always: HashMap<String, Act>,
    /// Part of calls that break by chance, in per cent.
    chaos: Option<(u64, Random)>,
    /// Lines are printed of what comes.
    is_loud: bool,
}

/// What a call comes to.
pub(crate) struct Fate {
    pub(crate) act: Act,
    pub(crate) status: u16,
    pub(crate) body: Value,
}

impl Provider {
    /// On a loopback address of its own.
    pub fn start() -> Self {
        Self::start_at(SocketAddr::from((own_address(), 0)), false)
    }

    /// `is_loud`: it prints a line for each call.
    pub fn start_at(address: SocketAddr, is_loud: bool) -> Self {
        let (acceptor, authority) = certificate(&[&address.ip().to_string()]);
        let state = Arc::new(State::default());
        state.book().is_loud = is_loud;
        let (stop, stopped) = oneshot::channel();
        let (ready, is_ready) = std::sync::mpsc::channel();
        let serving = Arc::clone(&state);
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(async move {
                let listener = tokio::net::TcpListener::bind(address).await;
                let listener = listener.unwrap_or_else(|fault| panic!("cannot listen on {address}: {fault}"));
                ready.send(listener.local_addr().expect("its address")).expect("somebody waits");
                tokio::select! {
                    () = serve(listener, acceptor, serving) => {}
                    // Sent or gone: it is the end.
                    _ = stopped => {}
                }
            });
        });
        let address = is_ready.recv_timeout(PATIENCE).expect("it listens");
        Self { address, authority, state, stop: Some(stop), thread: Some(thread) }
    }

    /// Where a scope is.
    pub fn url(&self, scope: &str) -> String {
        format!("https://{}/{scope}", self.address)
    }

    /// What becomes of the next calls whose path begins so (`/keyed/charge`); one act for each.
    pub fn next(&self, path: &str, acts: impl IntoIterator<Item = Act>) {
        self.state.book().acts.entry(path.to_owned()).or_default().extend(acts);
    }

    /// What becomes of every call whose path begins so, from now on; [`Act::Usual`] ends it.
    pub fn always(&self, path: &str, act: Act) {
        self.state.book().always.insert(path.to_owned(), act);
    }

    /// From now on so many calls of a hundred break, each in a way that chance chooses: cut before or after the effect, a
    /// 500 without one, or late.
    pub fn chaos(&self, percent: u64, random: Random) {
        self.state.book().chaos = Some((percent, random));
    }

    pub fn calm(&self) {
        self.state.book().chaos = None;
    }

    pub fn came(&self) -> Vec<Came> {
        self.state.book().came.clone()
    }

    /// Calls that came whose path begins so.
    pub fn count(&self, path: &str) -> usize {
        self.state.book().came.iter().filter(|came| came.path.starts_with(path)).count()
    }

    pub fn effects(&self) -> Vec<Effect> {
        self.state.book().effects.clone()
    }

    /// How often each thing happened, by what names it in its body: `/order`, say.
    pub fn effects_by(&self, pointer: &str) -> BTreeMap<String, usize> {
        let mut counted = BTreeMap::new();
        for effect in &self.state.book().effects {
            let name = match effect.body.pointer(pointer) {
                Some(Value::String(text)) => text.clone(),
                Some(other) => other.to_string(),
                None => continue,
            };
            *counted.entry(name).or_default() += 1;
        }
        counted
    }
}

impl Drop for Provider {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // It has said why, if it ended badly.
            let _ = thread.join();
        }
    }
}

impl State {
    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A call is here: it is noted, and what becomes of it is decided and done.
    pub(crate) fn arrive(&self, heard: &Heard) -> Fate {
        let path = heard.target.split('?').next().unwrap_or_default();
        let (scope, rest) = path.trim_start_matches('/').split_once('/').unwrap_or((path, ""));
        let rest = format!("/{rest}");
        let mut book = self.book();
        let body = serde_json::from_slice(&heard.body).unwrap_or_else(|_| String::from_utf8_lossy(&heard.body).into());
        let came = Came {
            scope: scope.to_owned(),
            method: heard.method.clone(),
            path: rest.clone(),
            fields: heard.fields.clone(),
            body,
        };
        if book.is_loud {
            let key = came.fields.get("idempotency-key").map_or("-", String::as_str);
            println!("provider: {} {path} key={key} {}", came.method, came.body);
        }
        let act = book.act(&rest);
        let happens = !matches!(act, Act::Status(..) | Act::Throttle(_) | Act::Unauthorised | Act::CutBefore);
        let (status, body) = match &act {
            Act::Status(status, body) => (*status, body.clone()),
            Act::Throttle(_) => (429, json!({ "error": { "message": "slow down" } })),
            Act::Unauthorised => {
                (401, json!({ "error": { "code": "token_revoked", "message": "the token was revoked" } }))
            }
            _ if happens => book.happens(&came),
            _ => (500, Value::Null),
        };
        book.came.push(came);
        Fate { act, status, body }
    }
}

impl Book {
    fn act(&mut self, path: &str) -> Act {
        let queued = self.acts.iter_mut().find(|(begin, acts)| path.starts_with(begin.as_str()) && !acts.is_empty());
        if let Some(act) = queued.and_then(|(_, acts)| acts.pop_front()) {
            return act;
        }
        let always = self.always.iter().find(|(begin, act)| path.starts_with(begin.as_str()) && **act != Act::Usual);
        if let Some((_, act)) = always {
            return act.clone();
        }
        if path.starts_with("/named/") {
            return Act::Usual;
        }
        let Some((percent, random)) = &mut self.chaos else { return Act::Usual };
        if random.below(100) >= usize::try_from(*percent).expect("a percentage") {
            return Act::Usual;
        }
        match random.below(4) {
            0 => Act::CutBefore,
            1 => Act::CutAfter,
            2 => Act::Status(503, json!({ "error": { "message": "by chance" } })),
            _ => Act::After(Duration::from_millis(random.within(1, 200))),
        }
    }

    /// What the path says happens.
    fn happens(&mut self, came: &Came) -> (u16, Value) {
        let key = came.fields.get("idempotency-key").cloned();
        let effect = || Effect {
            scope: came.scope.clone(),
            method: came.method.clone(),
            path: came.path.clone(),
            key: key.clone(),
            body: came.body.clone(),
        };
        let place = |name: &str| (came.scope.clone(), name.to_owned());
        if came.path.starts_with("/keyed/") {
            let Some(name) = &key else {
                return (400, json!({ "error": { "message": "Idempotency-Key is missing" } }));
            };
            if let Some(before) = self.keyed.get(&place(name)) {
                return (200, before.clone());
            }
            self.effects.push(effect());
            let answer = json!({ "id": format!("obj_{}", self.effects.len()), "got": came.body });
            self.keyed.insert(place(name), answer.clone());
            return (200, answer);
        }
        if came.path.starts_with("/plain/") {
            self.effects.push(effect());
            return (200, json!({ "id": format!("obj_{}", self.effects.len()), "got": came.body }));
        }
        if let Some(name) = came.path.strip_prefix("/named/") {
            return match came.method.as_str() {
                "PUT" | "POST" => {
                    self.effects.push(effect());
                    self.named.insert(place(name), came.body.clone());
                    (200, json!({ "id": name }))
                }
                _ => match self.named.get(&place(name)) {
                    Some(body) => (200, json!({ "id": name, "body": body })),
                    None => (404, json!({ "error": { "message": "there is none" } })),
                },
            };
        }
        if came.path.starts_with("/echo") {
            return (
                200,
                json!({ "method": came.method, "path": came.path, "body": came.body, "fields": came.fields }),
            );
        }
        (404, json!({ "error": { "message": "there is nothing here" } }))
    }
}
