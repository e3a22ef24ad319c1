//! The bare Pingora responder: reads the body, answers 202. No verification, no limits, no log. What the appliance is
//! measured against.
//!
//! usage: bench-responder ADDRESS THREADS

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use pingora_core::apps::{HttpPersistentSettings, HttpServerApp, ReusedHttpStream};
use pingora_core::protocols::http::ServerSession;
use pingora_core::server::configuration::ServerConf;
use pingora_core::server::{Server, ShutdownWatch};
use pingora_core::services::listening::Service;
use pingora_http::ResponseHeader;

/// As long as the appliance's.
const ANSWER: &str = r#"{"eventId":"evt_00000000000000000000000000","executionId":"ex_00000000000000000000000000"}"#;

struct Responder;

#[async_trait]
impl HttpServerApp for Responder {
    async fn process_new_http(
        self: &Arc<Self>,
        mut session: ServerSession,
        _shutdown: &ShutdownWatch,
    ) -> Option<ReusedHttpStream> {
        if !session.read_request().await.ok()? {
            return None;
        }
        session.set_keepalive(Some(60));
        let mut body_bytes = 0;
        while let Some(part) = session.read_request_body().await.ok()? {
            body_bytes += part.len();
        }
        std::hint::black_box(body_bytes);
        let mut head = ResponseHeader::build_no_case(202, Some(2)).ok()?;
        head.insert_header("content-type", "application/json").ok()?;
        head.insert_header("content-length", ANSWER.len()).ok()?;
        session.write_response_header(Box::new(head)).await.ok()?;
        session.write_response_body(Bytes::from_static(ANSWER.as_bytes()), true).await.ok()?;
        let settings = HttpPersistentSettings::for_session(&session);
        let stream = session.finish().await.ok()??;
        Some(ReusedHttpStream::from_reusable_stream(stream, settings))
    }
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let usage = "usage: bench-responder ADDRESS THREADS";
    let address = arguments.next().expect(usage);
    let threads = arguments.next().and_then(|n| n.parse().ok()).expect(usage);
    let conf = ServerConf { threads, grace_period_seconds: Some(0), ..ServerConf::default() };
    let mut server = Server::new_with_opt_and_conf(None, conf);
    let mut service = Service::new("responder".into(), Responder);
    service.threads = Some(threads);
    service.add_tcp(&address);
    server.add_service(service);
    server.run_forever();
}
