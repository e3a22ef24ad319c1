//! A listener on a free port, and clients that talk to it byte by byte.
#![allow(dead_code, reason = "each test program uses its own part of this")]
#![allow(clippy::unwrap_used, clippy::panic, clippy::wildcard_enum_match_arm, reason = "this is a test")]

pub(crate) mod client;
pub(crate) mod judge;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use async_trait::async_trait;
use config::Listener;
use domain::Refusal;
use tidegate_listen::{
    Answer, Behaviour, Bound, Drained, Exchange, Handler, Observer, Phase, Reply, Server, ServerHandle, Service,
};

pub(crate) const BODY_MAX: u64 = 1 << 20;

/// Takes POST and HEAD on `/hook`, says what it got, and remembers it.
#[derive(Debug, Default)]
pub(crate) struct Hook {
    /// Bodies that were taken for whole.
    pub(crate) bodies: Mutex<Vec<Vec<u8>>>,
    /// Targets of everything that got as far as the handler.
    pub(crate) targets: Mutex<Vec<String>>,
    /// Waits this long before it answers `/slow`.
    pub(crate) slow: Duration,
}

pub(crate) fn status(refusal: Refusal) -> u16 {
    match refusal {
        Refusal::MalformedRequest => 400,
        Refusal::EndpointUnknown => 404,
        Refusal::MethodNotAllowed => 405,
        Refusal::HeaderTimeout | Refusal::BodyTimeout => 408,
        Refusal::BodyTooLarge => 413,
        Refusal::TargetTooLong => 414,
        Refusal::ExpectationFailed => 417,
        Refusal::HeadersTooLarge => 431,
        Refusal::CodingNotSupported => 501,
        Refusal::Overloaded => 503,
        Refusal::VersionNotSupported => 505,
        _ => 500,
    }
}

#[async_trait]
impl Handler for Hook {
    async fn handle(&self, exchange: &mut Exchange) -> Reply {
        self.answer(exchange).await.into()
    }

    fn refused(&self, _: SocketAddr, refusal: Refusal) -> Answer {
        Answer::new(status(refusal)).with_body("text/plain", refusal.code())
    }
}

impl Hook {
    async fn answer(&self, exchange: &mut Exchange) -> Answer {
        let target = String::from_utf8_lossy(exchange.head().target()).into_owned();
        self.targets.lock().unwrap().push(target);
        let (method, path) = (exchange.head().method().to_owned(), exchange.head().path().to_owned());
        match (method.as_str(), path.as_str()) {
            ("POST" | "HEAD", "/hook") => {}
            ("POST", "/slow") => tokio::time::sleep(self.slow).await,
            ("POST", "/panic") => panic!("asked to"),
            ("POST", "/unread") => return Answer::new(202),
            ("POST", "/big") => return Answer::new(200).with_body("text/plain", vec![b'x'; 32 << 20]),
            ("POST", "/host") => {
                let head = exchange.head();
                let text = format!("{} {:?} {} {:?}", head.host(), head.port(), head.path(), head.query());
                return Answer::new(200).with_body("text/plain", text);
            }
            (_, "/hook") => return self.refused(exchange.peer(), Refusal::MethodNotAllowed),
            _ => return self.refused(exchange.peer(), Refusal::EndpointUnknown),
        }
        let read = exchange.body(BODY_MAX, &mut |_| true).await;
        match read {
            Ok(body) => {
                self.bodies.lock().unwrap().push(body.to_vec());
                Answer::new(202).with_body("application/octet-stream", body)
            }
            Err(refusal) => self.refused(exchange.peer(), refusal),
        }
    }
}

/// Counts what it is told.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) opened: AtomicUsize,
    pub(crate) closed: AtomicUsize,
    pub(crate) capped: AtomicUsize,
    pub(crate) panicked: AtomicUsize,
    pub(crate) timeouts: Mutex<Vec<Phase>>,
    pub(crate) refusals: Mutex<Vec<Refusal>>,
}

impl Counts {
    pub(crate) fn open(&self) -> usize {
        self.opened.load(Ordering::SeqCst) - self.closed.load(Ordering::SeqCst)
    }
}

impl Observer for Counts {
    fn opened(&self) {
        self.opened.fetch_add(1, Ordering::SeqCst);
    }
    fn closed(&self) {
        self.closed.fetch_add(1, Ordering::SeqCst);
    }
    fn capped(&self) {
        self.capped.fetch_add(1, Ordering::SeqCst);
    }
    fn panicked(&self) {
        self.panicked.fetch_add(1, Ordering::SeqCst);
    }
    fn timed_out(&self, phase: Phase) {
        self.timeouts.lock().unwrap().push(phase);
    }
    fn refused(&self, refusal: Refusal) {
        self.refusals.lock().unwrap().push(refusal);
    }
}

/// A running server. Stops when dropped.
pub(crate) struct Running {
    pub(crate) address: SocketAddr,
    pub(crate) hook: Arc<Hook>,
    pub(crate) counts: Arc<Counts>,
    pub(crate) handle: ServerHandle,
    thread: Option<JoinHandle<Drained>>,
}

impl Running {
    pub(crate) fn start(settings: Listener) -> Self {
        Self::start_with(settings, Hook::default())
    }

    pub(crate) fn start_with(settings: Listener, hook: Hook) -> Self {
        let hook = Arc::new(hook);
        let handler = Arc::clone(&hook) as _;
        let mut running = Self::start_handler(settings, Behaviour::default(), handler);
        running.hook = hook;
        running
    }

    /// A service of some behaviour, and a handler that is not the hook.
    pub(crate) fn start_handler(settings: Listener, behaviour: Behaviour, handler: Arc<dyn Handler>) -> Self {
        let (hook, counts) = (Arc::default(), Arc::new(Counts::default()));
        let any = [SocketAddr::from(([127, 0, 0, 1], 0))];
        let bound = Bound::new(&any).unwrap().listen().unwrap();
        let service = Service::new("test", settings, bound, handler, Arc::clone(&counts) as _);
        let address = service.addresses()[0];
        let mut server = Server::new();
        server.add(service.with_threads(2).with_behaviour(behaviour));
        let handle = server.handle();
        let thread = std::thread::spawn(move || server.run());
        Self { address, hook, counts, handle, thread: Some(thread) }
    }

    pub(crate) fn join(mut self) -> Drained {
        self.thread.take().unwrap().join().unwrap()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(thread) = self.thread.take() {
            self.handle.drain();
            self.handle.stop_now();
            let ended = thread.join();
            assert!(ended.is_ok() || std::thread::panicking(), "the server panicked");
        }
    }
}
