//! The admin listener: `/metrics`, `/healthz`, `/readyz`. It reads and never changes anything: what changes state
//! goes through the control socket.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpListener;
use tokio::task::AbortHandle;

use super::health::Health;

/// Scrapers and people, not traffic: beyond this somebody is misusing the listener, and the oldest connection goes, so
/// that whoever asks now whether this node is well is answered.
const CONNECTIONS_MAX: usize = 64;
const HEADER_TIMEOUT: Duration = Duration::from_secs(5);
const CONNECTION_TIMEOUT: Duration = Duration::from_mins(1);

/// Serves until the process ends. One scraper's fault is its own.
pub(crate) async fn serve(listener: TcpListener, health: Arc<Health>) {
    let mut open: VecDeque<AbortHandle> = VecDeque::new();
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _peer)) => stream,
            Err(error) => {
                tracing::warn!(%error, "the admin listener cannot accept a connection");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        open.retain(|connection| !connection.is_finished());
        if open.len() == CONNECTIONS_MAX
            && let Some(oldest) = open.pop_front()
        {
            oldest.abort();
        }
        let health = Arc::clone(&health);
        let connection = tokio::spawn(async move {
            let service = service_fn(move |request| {
                let response = answer(&request, &health);
                async move { Ok::<_, Infallible>(response) }
            });
            let connection = hyper::server::conn::http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(HEADER_TIMEOUT)
                .serve_connection(TokioIo::new(stream), service);
            // A peer that hangs up or sends nonsense has been answered as far as it can be.
            drop(tokio::time::timeout(CONNECTION_TIMEOUT, connection).await);
        });
        open.push_back(connection.abort_handle());
    }
}

fn answer(request: &Request<Incoming>, health: &Health) -> Response<Full<Bytes>> {
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        return text(StatusCode::METHOD_NOT_ALLOWED, "GET or HEAD\n".to_owned());
    }
    match request.uri().path() {
        "/metrics" => {
            let mut response = text(StatusCode::OK, health.metrics());
            let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
            response.headers_mut().insert(http::header::CONTENT_TYPE, http::HeaderValue::from_static(kind));
            response
        }
        "/healthz" => text(StatusCode::OK, "ok\n".to_owned()),
        "/readyz" => {
            let (ready, body) = health.ready();
            text(if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE }, body)
        }
        _ => text(StatusCode::NOT_FOUND, "/metrics, /healthz, /readyz\n".to_owned()),
    }
}

fn text(status: StatusCode, body: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    let kind = http::HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(http::header::CONTENT_TYPE, kind);
    response.headers_mut().insert(http::header::CACHE_CONTROL, http::HeaderValue::from_static("no-store"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;
    use domain::{ManualClock, NodeId};
    use eventlog::MemoryLog;
    use prometheus_client::registry::Registry;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpStream;

    #[tokio::test]
    async fn those_who_say_nothing_do_not_keep_others_from_asking() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let log = MemoryLog::new(NodeId(1), ManualClock::at_unix_ms(0));
        tokio::spawn(serve(listener, Arc::new(Health::new(Registry::default(), Some(Arc::new(log))))));
        let mut silent = Vec::new();
        for _ in 0..3 * CONNECTIONS_MAX {
            silent.push(TcpStream::connect(address).await.unwrap());
        }
        let mut asking = TcpStream::connect(address).await.unwrap();
        asking.write_all(b"GET /healthz HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").await.unwrap();
        let mut answer = String::new();
        asking.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 200 ") && answer.ends_with("ok\n"), "{answer}");
    }
}
