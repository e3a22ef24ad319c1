//! A service: addresses that are listened on, and what is served there.

use std::future::poll_fn;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::fd::IntoRawFd;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use config::Listener;
use domain::Refusal;
use pingora_core::apps::ServerApp;
use pingora_core::listeners::{L4BufferSettings, ListenerConfig};
use pingora_core::protocols::{Stream, http::date};
use pingora_core::server::{ListenFds, ShutdownWatch};
use pingora_core::services::Service as PingoraService;
use pingora_core::services::listening;
use tokio::sync::Semaphore;

use crate::addresses::Addresses;
use crate::bound::Opened;
use crate::connection::{Drain, Site, Socket, before_drained, serve};
use crate::drain::{Connections, Open};
use crate::gate::Gate;
use crate::http::Forms;
use crate::observer::Observer;
use crate::timer::{Elapsed, Timer};
use crate::tls::{HandshakeFault, Handshaken, Tls, handshake};
use crate::transport::Transport;
use crate::{Handler, http2};

/// How long turning a connection away may take, in all. It holds a socket for that long and nothing else.
const TURN_AWAY: Duration = Duration::from_millis(100);

/// Connections that are being turned away at a time: a thousand a second, and few enough to fit among the files that the
/// process keeps for others than connections. Beyond that nobody is told.
const TURNED_AWAY_MAX: usize = 128;

/// What a client means that sends its request and then closes its side of the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum HalfClose {
    /// That it has nothing more to ask, and waits for its answer (`nc`, simple scripts).
    #[default]
    Answer,
    /// That it has gone: which is what nearly every client means that closes at this moment, since its time is up or
    /// somebody stopped it. What was begun for it is dropped.
    Gone,
}

/// How a service is a proxy or is none. The default is an origin server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Behaviour {
    pub forms: Forms,
    /// Only seen while an exchange is [driven](crate::Exchange::drive) or streams.
    pub half_close: HalfClose,
    /// How long the body of an answer that streams may give nothing, while nothing comes of the request either.
    pub stream_idle_timeout: Duration,
}

impl Default for Behaviour {
    fn default() -> Self {
        Self {
            forms: Forms::default(),
            half_close: HalfClose::default(),
            // Longer than what servers leave between two comments of a stream of events.
            stream_idle_timeout: Duration::from_mins(5),
        }
    }
}

/// One set of addresses with one set of bounds and one handler.
pub struct Service {
    name: String,
    threads: usize,
    bound: Vec<(SocketAddr, TcpListener)>,
    /// Of those, where TLS is spoken.
    secure: Vec<SocketAddr>,
    tls: Option<Tls>,
    site: Site,
    connections: Arc<Connections>,
}

impl std::fmt::Debug for Service {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Service")
            .field("name", &self.name)
            .field("addresses", &self.addresses())
            .finish_non_exhaustive()
    }
}

impl Service {
    /// Serves what is listened on, once it is run.
    pub fn new(
        name: impl Into<String>,
        settings: Listener,
        opened: Opened,
        handler: Arc<dyn Handler>,
        observer: Arc<dyn Observer>,
    ) -> Self {
        Self {
            name: name.into(),
            threads: 1,
            bound: opened.into_listeners(),
            secure: Vec::new(),
            tls: None,
            site: Site::new(settings, handler, observer),
            connections: Connections::new(),
        }
    }

    /// Threads that serve it. They are its own.
    #[must_use]
    pub fn with_threads(mut self, threads: usize) -> Self {
        self.threads = threads.max(1);
        self
    }

    #[must_use]
    pub fn with_behaviour(mut self, behaviour: Behaviour) -> Self {
        self.site.behaviour = behaviour;
        self
    }

    /// Serves these addresses too, and speaks TLS there. They share the bounds of the others.
    #[must_use]
    pub fn with_tls(mut self, tls: Tls, opened: Opened) -> Self {
        let listeners = opened.into_listeners();
        self.secure.extend(listeners.iter().map(|(address, _)| *address));
        self.bound.extend(listeners);
        self.tls = Some(tls);
        self
    }

    /// What is listened on, with the ports that were found; those with TLS last.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.bound.iter().map(|(address, _)| *address).collect()
    }

    pub(crate) fn connections(&self) -> &Arc<Connections> {
        &self.connections
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn drain_timeout(&self) -> Duration {
        self.site.settings.drain_timeout
    }

    pub(crate) fn into_pingora(self) -> Listening {
        let is_plain = |(address, _): &(SocketAddr, TcpListener)| !self.secure.contains(address);
        let plain = self.bound.iter().filter(|bound| is_plain(bound)).map(|(address, _)| *address).collect();
        let addresses = Addresses::new(plain, self.secure, self.tls);
        let app = App::new(Arc::new(self.site), Arc::clone(&self.connections), addresses);
        let mut inner = listening::Service::new(self.name, app);
        inner.threads = Some(self.threads);
        for (address, _) in &self.bound {
            // The gate reads in one piece what has come, and straight into the body's buffer after that: a read buffer
            // before it would only be copied from. Writes are gathered, so that head and body leave in one segment.
            let buffers = L4BufferSettings::default().read(0);
            inner.add_listener(ListenerConfig::tcp(address.to_string()).l4_buffer(buffers));
        }
        Listening { inner, bound: self.bound, connections: self.connections }
    }
}

/// The service as Pingora runs it.
pub(crate) struct Listening {
    inner: listening::Service<App>,
    bound: Vec<(SocketAddr, TcpListener)>,
    connections: Arc<Connections>,
}

#[async_trait]
impl PingoraService for Listening {
    async fn start_service(&mut self, fds: Option<ListenFds>, _: ShutdownWatch, listeners_per_fd: usize) {
        if let Some(fds) = &fds {
            let mut fds = fds.lock();
            for (address, listener) in self.bound.drain(..) {
                // As if they had been handed over by a process before us: Pingora takes what the table has.
                fds.add(address.to_string(), listener.into_raw_fd());
            }
        }
        // Its own shutdown comes when everything is over; ours comes first, and connections drain in between.
        self.inner.start_service(fds, self.connections.draining(), listeners_per_fd).await;
    }

    fn name(&self) -> &str {
        self.inner.name()
    }

    fn threads(&self) -> Option<usize> {
        self.inner.threads
    }

    fn listen_addresses(&self) -> Option<Vec<String>> {
        PingoraService::listen_addresses(&self.inner)
    }
}

/// What Pingora hands connections to.
struct App {
    site: Arc<Site>,
    connections: Arc<Connections>,
    addresses: Addresses,
    turning_away: Semaphore,
}

#[async_trait]
impl ServerApp for App {
    async fn process_new(self: &Arc<Self>, stream: Stream, _: &ShutdownWatch) -> Option<Stream> {
        let (peer, local) = addresses(&stream);
        let Some(open) = self.connections.open(self.site.settings.connections_max as usize) else {
            self.site.observer.capped();
            // Telling it through TLS would cost more than serving it.
            let is_plain = self.addresses.tls_of(local).is_none();
            if let Some(_room) = is_plain.then(|| self.turning_away.try_acquire().ok()).flatten() {
                self.turn_away(stream, peer).await;
            }
            return None;
        };
        let _counted = Counted::new(&self.site);
        let serving = pin!(self.serve(stream, (peer, local), &open));
        // Beyond its own drain's time a connection is not kept because another service's drain takes longer.
        open.connections().until_cut(serving).await;
        None
    }
}

impl App {
    fn new(site: Arc<Site>, connections: Arc<Connections>, addresses: Addresses) -> Self {
        Self { site, connections, addresses, turning_away: Semaphore::new(TURNED_AWAY_MAX) }
    }

    async fn serve(&self, stream: Stream, (peer, local): (SocketAddr, SocketAddr), open: &Open) {
        let socket = Socket::new(&self.site, open.connections(), peer, local);
        let Some(tls) = self.addresses.tls_of(local) else { return serve(stream.into(), socket, open).await };
        // Boxed: a connection without TLS has no room for it.
        let handshaken = Box::pin(self.secure(stream, tls, open)).await;
        if let Some(Handshaken { stream, secured, http2 }) = handshaken {
            let (transport, socket) = (Transport::Tls(Box::new(stream)), socket.with_tls(Arc::new(secured)));
            if http2 {
                Box::pin(http2::serve(transport, socket, open, tls.streams_max())).await;
            } else {
                serve(transport, socket, open).await;
            }
        }
    }

    /// Answers the handshake, which has one deadline for all of it; none where it comes to nothing.
    async fn secure(&self, stream: Stream, tls: &Tls, open: &Open) -> Option<Handshaken> {
        let limit = tls.handshake_timeout();
        let (mut timer, mut drain) = (Timer::new(limit), Drain::new(open.connections()));
        let server = tls.server();
        let shaking = handshake(stream, &server);
        let fault = match before_drained(&mut timer, &mut drain, limit, shaking).await {
            Ok(Ok(handshaken)) => return Some(handshaken),
            Ok(Err(fault)) => fault,
            // It was not the client who was too slow.
            Err(Elapsed) if drain.has_begun() => return None,
            Err(Elapsed) => HandshakeFault::Timeout,
        };
        self.site.observer.handshake_failed(fault);
        None
    }

    /// Tells a client that there is no room, without taking any: 503 at once, and nothing that it sends is looked at.
    /// Told rather than hung up on, since a provider counts a 503 with `Retry-After` as an answer and waits.
    async fn turn_away(&self, stream: Stream, peer: SocketAddr) {
        let answer = self.site.handler.refused(peer, Refusal::Overloaded);
        let bytes = answer.encode(false, true, &date::get_cached_date());
        let mut gate = Gate::new(stream);
        let telling = async {
            gate.write(&bytes).await?;
            gate.finish().await?;
            // Closing before its request has come would reset the connection, and the answer with it.
            while poll_fn(|cx| gate.poll_discard(cx)).await? > 0 {}
            io::Result::Ok(())
        };
        // A client that cannot even take this is none that we owe more.
        let _told = Timer::new(TURN_AWAY).within(TURN_AWAY, telling).await;
    }
}

/// Tells the observer of a connection's beginning and, whatever becomes of it, of its end.
struct Counted<'a> {
    site: &'a Site,
}

impl<'a> Counted<'a> {
    fn new(site: &'a Site) -> Self {
        site.observer.opened();
        Self { site }
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.site.observer.closed();
    }
}

/// Peer and local address. Both are known for every TCP connection that is still one.
fn addresses(stream: &Stream) -> (SocketAddr, SocketAddr) {
    let unknown = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
    let digest = stream.get_socket_digest();
    let peer = digest.as_ref().and_then(|digest| digest.peer_addr()?.as_inet().copied());
    let local = digest.as_ref().and_then(|digest| digest.local_addr()?.as_inet().copied());
    (peer.unwrap_or(unknown), local.unwrap_or(unknown))
}

#[cfg(test)]
pub(crate) mod testing {
    use super::*;
    use crate::observer::Observer;

    struct Nobody;

    #[async_trait]
    impl Handler for Nobody {
        async fn handle(&self, _: &mut crate::Exchange) -> crate::Reply {
            crate::Answer::new(404).into()
        }

        fn refused(&self, _: SocketAddr, _: Refusal) -> crate::Answer {
            crate::Answer::new(400)
        }
    }

    /// Serves nothing.
    pub(crate) fn nobody() -> Arc<dyn Handler> {
        Arc::new(Nobody)
    }

    /// A service without a listener.
    pub(crate) struct Served {
        app: Arc<App>,
        stop: tokio::sync::watch::Sender<bool>,
    }

    impl Served {
        pub(crate) fn new(
            settings: Listener,
            behaviour: Behaviour,
            handler: Arc<dyn Handler>,
            observer: Arc<dyn Observer>,
            tls: Tls,
        ) -> Self {
            let site = Site { behaviour, ..Site::new(settings, handler, observer) };
            let addresses = Addresses::new(Vec::new(), Vec::new(), Some(tls));
            let app = Arc::new(App::new(Arc::new(site), Connections::new(), addresses));
            Self { app, stop: tokio::sync::watch::Sender::new(false) }
        }

        /// Serves a connection in a task of its own.
        pub(crate) fn take(&self, stream: Stream) {
            let (app, watch) = (Arc::clone(&self.app), self.stop.subscribe());
            tokio::spawn(async move { app.process_new(stream, &watch).await });
        }

        pub(crate) fn opened(&self) -> usize {
            self.app.connections.opened()
        }

        pub(crate) fn drain(&self) {
            self.app.connections.drain();
        }

        /// Returns when whoever was taken is gone.
        pub(crate) async fn gone(&self) {
            // Whoever was taken a moment ago has to be counted first.
            tokio::task::yield_now().await;
            self.app.connections.gone().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observer::Silent;
    use crate::{Answer, Exchange, Reply};
    use tokio::io::{AsyncReadExt as _, DuplexStream, duplex};

    struct No;

    #[async_trait]
    impl Handler for No {
        async fn handle(&self, _: &mut Exchange) -> Reply {
            Answer::new(202).into()
        }

        fn refused(&self, _: SocketAddr, _: Refusal) -> Answer {
            Answer::new(503)
        }
    }

    async fn told(mut client: DuplexStream) -> Vec<u8> {
        let mut answer = Vec::new();
        client.read_to_end(&mut answer).await.unwrap();
        answer
    }

    #[tokio::test(start_paused = true)]
    async fn only_so_many_are_turned_away_at_a_time_and_the_rest_are_dropped_at_once() {
        let settings = Listener { connections_max: 0, ..Listener::default() };
        let app = Arc::new(App::new(
            Arc::new(Site::new(settings, Arc::new(No), Arc::new(Silent))),
            Connections::new(),
            Addresses::default(),
        ));
        let (_stop, watch) = tokio::sync::watch::channel(false);
        let connect = || {
            let (client, server) = duplex(4096);
            let (app, watch) = (Arc::clone(&app), watch.clone());
            (client, tokio::spawn(async move { app.process_new(Box::new(server), &watch).await.is_none() }))
        };
        let began = tokio::time::Instant::now();
        // They take what they are told and never hang up.
        let slow: Vec<_> = (0..TURNED_AWAY_MAX).map(|_| connect()).collect();
        let (client, serving) = connect();
        assert!(serving.await.unwrap());
        assert!(told(client).await.is_empty());
        assert_eq!(began.elapsed(), Duration::ZERO, "it was not dropped at once");
        for (client, serving) in slow {
            assert!(serving.await.unwrap());
            assert!(told(client).await.starts_with(b"HTTP/1.1 503 "));
        }
        // There is room again.
        let (client, serving) = connect();
        assert!(serving.await.unwrap());
        assert!(told(client).await.starts_with(b"HTTP/1.1 503 "));
    }
}
