//! For tests of handlers: exchanges and whole connections without a socket.

use std::net::SocketAddr;
use std::sync::Arc;

use config::Listener;
use domain::Refusal;
use pingora_core::protocols::Stream;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};

use crate::connection::{Drain, Fault, Next, Site, Socket, next, serve};
use crate::drain::Connections;
use crate::gate::Gate;
use crate::http::HeadParser;
use crate::observer::Silent;
use crate::{Behaviour, Exchange, Handler};

/// More than any test puts in at once.
const PIPE_BYTES: usize = 64 * 1024 * 1024;

/// An address from the documentation range.
pub fn peer() -> SocketAddr {
    SocketAddr::from(([192, 0, 2, 7], 40_000))
}

fn local() -> SocketAddr {
    SocketAddr::from(([192, 0, 2, 1], 443))
}

/// The exchange that `request` begins, coming from `peer`, and the client's end of its connection: drop it and the
/// client has hung up.
///
/// # Errors
/// The gate refuses the head.
pub async fn exchange(
    request: &[u8],
    peer: SocketAddr,
    handler: Arc<dyn Handler>,
) -> Result<(Exchange, DuplexStream), Refusal> {
    exchange_of(Behaviour::default(), request, peer, handler).await
}

/// The same on a service of some behaviour.
///
/// # Errors
/// The gate refuses the head.
pub async fn exchange_of(
    behaviour: Behaviour,
    request: &[u8],
    peer: SocketAddr,
    handler: Arc<dyn Handler>,
) -> Result<(Exchange, DuplexStream), Refusal> {
    let (mut client, server) = duplex(PIPE_BYTES);
    client.write_all(request).await.map_err(|_| Refusal::Internal)?;
    let site = Arc::new(Site { behaviour, ..Site::new(Listener::default(), handler, Arc::new(Silent)) });
    let connections = Connections::new();
    let mut socket = Socket::new(&site, &connections, peer, local());
    let mut gate = Box::new(Gate::new(Box::new(server) as Stream));
    let mut parser = HeadParser::new(behaviour.forms);
    let mut drain = Drain::new(&connections);
    match next(&mut gate, &mut socket, &mut parser, &mut drain).await {
        Next::Head { skipped, length } => {
            Ok((Exchange::begin(gate, socket, (skipped, length), parser.take_parts()), client))
        }
        Next::Close | Next::Refuse(Fault::HostDiffers) => Err(Refusal::MalformedRequest),
        Next::Refuse(Fault::Refused(refusal)) => Err(refusal),
    }
}

/// A connection of a service: the client's end of it, through a pipe that holds `pipe_bytes` each way, and what serves
/// it for as long as it is polled.
pub fn connect(
    pipe_bytes: usize,
    settings: Listener,
    behaviour: Behaviour,
    handler: Arc<dyn Handler>,
) -> (DuplexStream, impl Future<Output = ()> + Send + 'static) {
    connect_among(Connections::new(), pipe_bytes, settings, behaviour, handler)
}

/// The same, counted among `connections`.
pub(crate) fn connect_among(
    connections: Arc<Connections>,
    pipe_bytes: usize,
    settings: Listener,
    behaviour: Behaviour,
    handler: Arc<dyn Handler>,
) -> (DuplexStream, impl Future<Output = ()> + Send + 'static) {
    let (client, server) = duplex(pipe_bytes);
    let serving = async move {
        let site = Arc::new(Site { behaviour, ..Site::new(settings, handler, Arc::new(Silent)) });
        if let Some(open) = connections.open(usize::MAX) {
            serve((Box::new(server) as Stream).into(), Socket::new(&site, open.connections(), peer(), local()), &open)
                .await;
        }
    };
    (client, serving)
}

/// Everything that `handler` and the gate answer to a client that sends `bytes` and then says that it is done.
pub async fn converse(bytes: &[u8], settings: Listener, handler: Arc<dyn Handler>) -> Vec<u8> {
    converse_through(PIPE_BYTES, bytes, settings, handler).await
}

/// The same through a pipe that holds `pipe_bytes`: no read gets more at once.
pub async fn converse_through(
    pipe_bytes: usize,
    bytes: &[u8],
    settings: Listener,
    handler: Arc<dyn Handler>,
) -> Vec<u8> {
    let (client, serving) = connect(pipe_bytes, settings, Behaviour::default(), handler);
    let (mut reading, mut writing) = tokio::io::split(client);
    let asking = async move {
        // A connection that is closed before all was sent has still answered what it did.
        let _sent = writing.write_all(bytes).await;
        let _closed = writing.shutdown().await;
    };
    let hearing = async move {
        let mut answers = Vec::new();
        let _read = reading.read_to_end(&mut answers).await;
        answers
    };
    tokio::join!(serving, asking, hearing).2
}
