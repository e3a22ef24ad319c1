//! The control socket's server: HTTP/1.1 with JSON, for whoever may open a file of mode 0600.
//!
//! | request | answer |
//! |---|---|
//! | `GET /v1/stat` | the node's state and the log's |
//! | `POST /v1/events` with a query | JSON lines, as fast as they are read |
//! | `POST /v1/event` with an id | the event, or `null` |
//! | `POST /v1/egress/log` with a query | JSON lines, the newest decision records first |
//! | `POST /v1/egress/top` with a query | the calls that are under way |
//! | `POST /v1/egress/close` with an id | whether a tunnel is told to end |
//! | `POST /v1/quota/list` with a query | a page of buckets |
//! | `POST /v1/quota/show` with a bucket | it, or `null` |
//! | `POST /v1/quota/explain` with a call | what it would meet now |
//! | `POST /v1/quota/bucket` with an act | what came of it |
//! | `POST /v1/quota/breakers`, `/v1/quota/runaways` with a query | those that there are |
//! | `POST /v1/quota/guard` with an act | what came of it |
//! | any, `/v1/runner/…` | what [`super::runner`] says |
//! | `POST /v1/reverify` | JSON lines, one for each held delivery |
//! | `POST /v1/reload` | the faults that were found |
//!
//! Everything is bounded: connections, readers at a time (each holds a thread and a file), request bytes, the two
//! chunks that a stream keeps in memory while its reader is slow, and how long a peer may take nothing of its answer.

use std::convert::Infallible;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use eventlog::EventLog;
use http::request::Parts;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;
use tokio::net::UnixStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio::task::JoinSet;

use super::body::{AnswerBody, Gone, LineWriter, full, stream};
use super::egress::{EgressQuery, Found, records};
use super::node::Node;
use super::patient::{Patient, WRITE_TIMEOUT};
use super::quota::{DeskError, Peer};
use super::read::{self, Ended, Sink};
use super::runner::BODY_BYTES_MAX;
use super::socket::Socket;
use super::top::{Close, TopQuery};
use super::wire::{Aside, EventLine, Find, Query, Reverify, Stat, Which};

/// Connections at a time. Commands hold one each; a dozen operators and their scripts fit.
const CONNECTIONS_MAX: usize = 64;

/// Reads at a time: each holds a thread and open files, and the accept path shares the disk with them.
const READERS_MAX: usize = 16;

/// Followers at a time. They stay for as long as somebody likes, so they have their own: however many there are, who asks
/// a question is answered.
const FOLLOWERS_MAX: usize = 16;

/// A query names at most a few thousand ids.
const REQUEST_BYTES_MAX: usize = 256 * 1024;

/// Nobody types HTTP at this socket.
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);

/// A request is one write of a command on the same machine.
const BODY_TIMEOUT: Duration = Duration::from_secs(10);

/// How often a follower looks for new events. A person does not see less; a node does not feel it.
const FOLLOW_EVERY: Duration = Duration::from_millis(100);

/// What there is, for telling a wrong method from a wrong path.
const PATHS: [&str; 15] = [
    "/v1/stat",
    "/v1/events",
    "/v1/event",
    "/v1/egress/log",
    "/v1/egress/top",
    "/v1/egress/close",
    "/v1/quota/list",
    "/v1/quota/show",
    "/v1/quota/explain",
    "/v1/quota/bucket",
    "/v1/quota/breakers",
    "/v1/quota/runaways",
    "/v1/quota/guard",
    "/v1/reverify",
    "/v1/reload",
];

/// Why there is nothing to tell of calls.
const NO_EGRESS: &str = "no calls go out here: the role egress is not enabled";

/// Why there is nothing to tell of runs.
const NO_RUNNER: &str = "no runs are performed here: the role runner is not enabled, or its ledger is not open";

const NOTHING_HERE: &str = "there is nothing here; this socket speaks /v1/…";

/// The disk is slow, or stuck.
const BEHIND: &str = "the newest records are not on the disk yet and are not looked at";

type Answer = Response<AnswerBody>;

/// Why there is no answer, as a status and a sentence.
struct No(StatusCode, String);

impl No {
    fn new(status: StatusCode, detail: impl Into<String>) -> Self {
        Self(status, detail.into())
    }
}

impl From<DeskError> for No {
    fn from(error: DeskError) -> Self {
        let status = match error {
            DeskError::Centre(_) => StatusCode::SERVICE_UNAVAILABLE,
            DeskError::Odd => StatusCode::INTERNAL_SERVER_ERROR,
            DeskError::Refused(_) => StatusCode::BAD_REQUEST,
        };
        Self(status, error.to_string())
    }
}

#[derive(Debug)]
struct Service {
    node: Arc<dyn Node>,
    readers: Arc<Semaphore>,
    followers: Arc<Semaphore>,
}

/// Serves the socket until `shutdown` is ready, then ends what is open and removes the socket's file.
pub(crate) async fn serve(socket: Socket, node: Arc<dyn Node>, shutdown: impl Future<Output = ()> + Send) {
    serve_patiently(socket, node, shutdown, WRITE_TIMEOUT).await;
}

/// The same, with a peer's time to take something of its answer.
pub(super) async fn serve_patiently(
    socket: Socket,
    node: Arc<dyn Node>,
    shutdown: impl Future<Output = ()> + Send,
    patience: Duration,
) {
    let [readers, followers] = [READERS_MAX, FOLLOWERS_MAX].map(|max| Arc::new(Semaphore::new(max)));
    let service = Arc::new(Service { node, readers, followers });
    let room = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    // Ends with this function, and with it every connection and every stream: a follower never holds up a stop.
    let mut connections = JoinSet::new();
    let mut shutdown = pin!(shutdown);
    loop {
        let accepted = tokio::select! {
            () = &mut shutdown => return,
            Some(_) = connections.join_next() => continue,
            accepted = accept(&socket, &room) => accepted,
        };
        let Some((connection, permit)) = accepted else { continue };
        let service = Arc::clone(&service);
        let peer = Peer { uid: connection.peer_cred().ok().map(|peer| peer.uid()) };
        connections.spawn(async move {
            let answer = service_fn(move |request| {
                let service = Arc::clone(&service);
                async move { Ok::<_, Infallible>(service.answer(request, peer).await) }
            });
            let mut builder = http1::Builder::new();
            builder.timer(TokioTimer::new()).header_read_timeout(HEADER_TIMEOUT);
            if let Err(error) = builder.serve_connection(TokioIo::new(Patient::new(connection, patience)), answer).await
            {
                tracing::debug!(%error, "a control connection broke");
            }
            drop(permit);
        });
    }
}

/// Waits for room, then for a connection: the backlog holds who comes in between.
async fn accept(socket: &Socket, room: &Arc<Semaphore>) -> Option<(UnixStream, OwnedSemaphorePermit)> {
    let permit = Arc::clone(room).acquire_owned().await.ok()?;
    match socket.listener.accept().await {
        Ok((connection, _)) => Some((connection, permit)),
        Err(error) => {
            // Out of descriptors, most likely: a pause lets some come free instead of spinning.
            tracing::warn!(%error, "could not accept a control connection");
            tokio::time::sleep(FOLLOW_EVERY).await;
            None
        }
    }
}

impl Service {
    async fn answer(&self, request: Request<Incoming>, peer: Peer) -> Answer {
        let routed = self.route(request, peer).await;
        routed.unwrap_or_else(|No(status, detail)| problem(status, &detail))
    }

    async fn route(&self, request: Request<Incoming>, peer: Peer) -> Result<Answer, No> {
        let (head, body) = request.into_parts();
        match (&head.method, head.uri.path()) {
            (&Method::GET, "/v1/stat") => self.stat().await,
            (&Method::POST, "/v1/events") => self.events(ask(body).await?),
            (&Method::POST, "/v1/event") => self.event(ask(body).await?).await,
            (&Method::POST, "/v1/egress/log") => self.egress_log(ask(body).await?),
            (&Method::POST, "/v1/egress/top") => self.egress_top(ask(body).await?).await,
            (&Method::POST, "/v1/egress/close") => self.egress_close(&ask(body).await?),
            (&Method::POST, path) if path.starts_with("/v1/quota/") => self.quota(path, body, peer).await,
            (_, path) if path.starts_with("/v1/runner/") => self.runner(&head, body, peer).await,
            (&Method::POST, "/v1/reverify") => self.reverify(ask(body).await?),
            (&Method::POST, "/v1/reload") => json_answer(&self.node.reload().await),
            (_, path) if PATHS.contains(&path) => {
                Err(No::new(StatusCode::METHOD_NOT_ALLOWED, "this path takes another method"))
            }
            _ => Err(No::new(StatusCode::NOT_FOUND, NOTHING_HERE)),
        }
    }

    async fn stat(&self) -> Result<Answer, No> {
        let node = Arc::clone(&self.node);
        let stat = move || Stat { node: node.stat(), log: node.log().map(|log| log.stat().into()) };
        json_answer(&blocking(stat).await?)
    }

    fn log(&self) -> Result<Arc<dyn EventLog>, No> {
        let why = "this node takes no deliveries: its file has no [gateway] table";
        self.node.log().cloned().ok_or_else(|| No::new(StatusCode::NOT_FOUND, why))
    }

    fn events(&self, query: Query) -> Result<Answer, No> {
        let permit = match query.which {
            Which::Follow | Which::FollowFromNow => self.follower()?,
            Which::All | Which::First(_) | Which::Newest(_) => self.reader()?,
        };
        let node = Arc::clone(&self.node);
        let log = self.log()?;
        let (writer, body) = stream();
        // Detached on purpose: it ends when the body is dropped, and the body goes with its connection.
        drop(tokio::task::spawn_blocking(move || {
            let mut sink = StreamSink { writer };
            let read = if query.held {
                read::held(node.holding().map(|store| &**store), &query, &mut sink)
            } else {
                read::events(&*log, &query, &mut sink)
            };
            match read {
                Ok(()) => sink.writer.finish(None),
                Err(Ended::Unreadable(fault)) => sink.writer.finish(Some(fault)),
                Err(Ended::Stopped(Gone)) => {}
            }
            drop(permit);
        }));
        Ok(lines(body))
    }

    async fn event(&self, find: Find) -> Result<Answer, No> {
        let _permit = self.reader()?;
        let node = Arc::clone(&self.node);
        let log = self.log()?;
        let found = blocking(move || {
            if find.held {
                read::find_held(node.holding().map(|store| &**store), &find)
            } else {
                read::find(&*log, &find)
            }
        });
        match found.await? {
            Ok(line) => json_answer(&line),
            Err(fault) => Err(No(StatusCode::INTERNAL_SERVER_ERROR, fault)),
        }
    }

    fn egress_log(&self, query: EgressQuery) -> Result<Answer, No> {
        let permit = self.reader()?;
        let node = Arc::clone(&self.node);
        let (mut writer, body) = stream();
        drop(tokio::task::spawn_blocking(move || {
            let _permit = permit;
            let Some((store, is_whole)) = node.egress_records() else {
                return writer.finish(Some(NO_EGRESS.to_owned()));
            };
            let behind = Aside { text: BEHIND.to_owned(), missing: true };
            let given = if is_whole { Ok(()) } else { writer.aside(behind) };
            let given = given.and_then(|()| {
                records(store, &query, &mut |found| match found {
                    Found::Record(record) => writer.item(record),
                    Found::Aside(aside) => writer.aside(aside),
                    Found::NothingYet => writer.pause(Duration::ZERO),
                })
            });
            // A reader that has gone needs no last line.
            if let Ok(()) = given {
                writer.finish(None);
            }
        }));
        Ok(lines(body))
    }

    async fn egress_top(&self, query: TopQuery) -> Result<Answer, No> {
        let _permit = self.reader()?;
        let node = Arc::clone(&self.node);
        let top = blocking(move || node.egress_top(&query)).await?;
        json_answer(&top.ok_or_else(|| No::new(StatusCode::NOT_FOUND, NO_EGRESS))?)
    }

    fn egress_close(&self, close: &Close) -> Result<Answer, No> {
        let id = close.correlation.parse().map_err(|fault: egress::NoCorrelationId| {
            No::new(StatusCode::BAD_REQUEST, format!("that is no correlation id: {fault}"))
        })?;
        let closed = self.node.egress_close(id);
        json_answer(&closed.ok_or_else(|| No::new(StatusCode::NOT_FOUND, NO_EGRESS))?)
    }

    async fn quota(&self, path: &str, body: Incoming, peer: Peer) -> Result<Answer, No> {
        let _permit = self.reader()?;
        let desk = self.node.quota().ok_or_else(|| No::new(StatusCode::NOT_FOUND, NO_EGRESS))?.clone();
        match path {
            "/v1/quota/list" => json_answer(&desk.list(&ask(body).await?).await?),
            "/v1/quota/show" => json_answer(&desk.show(&ask(body).await?).await?),
            "/v1/quota/explain" => {
                let explained = desk.explain(&ask(body).await?).await?;
                json_answer(&explained.map_err(|why| No::new(StatusCode::NOT_FOUND, why.to_string()))?)
            }
            "/v1/quota/bucket" => json_answer(&desk.act(&ask(body).await?, peer).await?),
            // These look at all that there are.
            "/v1/quota/breakers" => {
                let query = ask(body).await?;
                json_answer(&blocking(move || desk.breakers(&query)).await??)
            }
            "/v1/quota/runaways" => {
                let query = ask(body).await?;
                json_answer(&blocking(move || desk.runaways(&query)).await??)
            }
            "/v1/quota/guard" => {
                let act = ask(body).await?;
                json_answer(&blocking(move || desk.guard(&act, peer)).await??)
            }
            _ => Err(No::new(StatusCode::NOT_FOUND, NOTHING_HERE)),
        }
    }

    async fn runner(&self, head: &Parts, body: Incoming, peer: Peer) -> Result<Answer, No> {
        let _permit = self.reader()?;
        let desk = self.node.runner().ok_or_else(|| No::new(StatusCode::NOT_FOUND, NO_RUNNER))?;
        let path = head.uri.path().strip_prefix("/v1/runner").unwrap_or_default();
        Ok(desk.answer(path, head, read_body(body, BODY_BYTES_MAX).await?, peer).await)
    }

    fn reverify(&self, ask: Reverify) -> Result<Answer, No> {
        let permit = self.reader()?;
        let node = Arc::clone(&self.node);
        let (mut writer, body) = stream();
        let (report, mut reports) = mpsc::channel(1);
        // Judging goes on for as long as somebody takes the reports, which is until the connection ends.
        let (ended, end) = oneshot::channel();
        tokio::spawn(async move { ended.send(node.reverify(ask, report).await) });
        drop(tokio::task::spawn_blocking(move || {
            let _permit = permit;
            while let Some(judged) = reports.blocking_recv() {
                if writer.item(judged).and_then(|()| writer.flush()).is_err() {
                    return;
                }
            }
            let ended = end.blocking_recv();
            let ended = ended.unwrap_or_else(|_| Err("judging stopped; see the appliance's log".to_owned()));
            writer.finish(ended.err());
        }));
        Ok(lines(body))
    }

    fn follower(&self) -> Result<OwnedSemaphorePermit, No> {
        Arc::clone(&self.followers).try_acquire_owned().map_err(|_| {
            No::new(StatusCode::SERVICE_UNAVAILABLE, "too many follow the log at a time; try again when one has ended")
        })
    }

    fn reader(&self) -> Result<OwnedSemaphorePermit, No> {
        Arc::clone(&self.readers).try_acquire_owned().map_err(|_| {
            No::new(StatusCode::SERVICE_UNAVAILABLE, "too many reads at a time; try again when one has ended")
        })
    }
}

struct StreamSink {
    writer: LineWriter,
}

impl Sink for StreamSink {
    type Stop = Gone;

    fn take(&mut self, line: EventLine) -> Result<(), Gone> {
        self.writer.item(line)
    }

    fn aside(&mut self, aside: Aside) -> Result<(), Gone> {
        self.writer.aside(aside)
    }

    fn caught_up(&mut self) -> Result<(), Gone> {
        self.writer.pause(FOLLOW_EVERY)
    }
}

/// Reads a JSON body, bounded in size and time.
async fn ask<T: DeserializeOwned>(body: Incoming) -> Result<T, No> {
    let bytes = read_body(body, REQUEST_BYTES_MAX).await?;
    serde_json::from_slice(&bytes)
        .map_err(|error| No(StatusCode::BAD_REQUEST, format!("the request's body is not understood: {error}")))
}

async fn read_body(body: Incoming, bytes_max: usize) -> Result<Bytes, No> {
    let read = tokio::time::timeout(BODY_TIMEOUT, Limited::new(body, bytes_max).collect()).await;
    let read = read.map_err(|_| No::new(StatusCode::REQUEST_TIMEOUT, "the request's body did not come in time"))?;
    let read =
        read.map_err(|_| No::new(StatusCode::PAYLOAD_TOO_LARGE, "the request's body is too large or was cut off"))?;
    Ok(read.to_bytes())
}

/// Runs what waits for the disk where waiting holds nobody up.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, No> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|_| No::new(StatusCode::INTERNAL_SERVER_ERROR, "the read stopped; see the appliance's log"))
}

fn lines(body: AnswerBody) -> Answer {
    let mut answer = Response::new(body);
    answer.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static("application/jsonl"));
    answer
}

fn json_answer<T: Serialize>(value: &T) -> Result<Answer, No> {
    match serde_json::to_vec(value) {
        Ok(bytes) => Ok(with_json(StatusCode::OK, bytes.into())),
        Err(error) => Err(No(StatusCode::INTERNAL_SERVER_ERROR, error.to_string())),
    }
}

/// RFC 9457, as everywhere.
fn problem(status: StatusCode, detail: &str) -> Answer {
    with_json(status, json!({ "status": status.as_u16(), "title": detail }).to_string().into())
}

fn with_json(status: StatusCode, bytes: Bytes) -> Answer {
    let mut answer = Response::new(full(bytes));
    *answer.status_mut() = status;
    let kind = if status.is_success() { "application/json" } else { "application/problem+json" };
    answer.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static(kind));
    answer
}
