//! Calls from the caller's fields to the provider's and back, over one hop and several.

use std::sync::Arc;

use config::CredentialKind;
use http::Method;

use super::harness::*;
use crate::forward::redirect::HopEnd;
use crate::forward::testing::{forward, read, streamed, tls, whole};
use crate::governed::Connection;
use crate::{Refusal, SendState};

/// Without a credential, which takes TLS.
fn plain() -> Connection {
    connection(&provider(), "http://api.provider.example/v1", None)
}

fn judge() -> Arc<TableJudge> {
    Arc::new(TableJudge::new(&["*.provider.example", "*.elsewhere.example"]))
}

fn redirect(status: u16, location: &str) -> String {
    format!("HTTP/1.1 {status} x\r\nLocation: {location}\r\nContent-Length: 4\r\n\r\nhere")
}

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nSet-Cookie: a=b\r\nTidegate-Outcome: park\r\n\r\nok";

#[tokio::test]
async fn one_hop_is_the_connections_own() {
    let (forward, mut origin) = forward();
    let mut made = Made::new(plain(), Method::POST, "/charges?a=b");
    made.headers = map(&[("Content-Type", "text/plain"), ("Authorization", "Bearer grant"), ("X-Secret", "x")]);
    made.body = whole("hello");
    let sending = made.send(&forward, &judge());
    let mut peer = origin.accept().await;
    let request = peer.request().await;
    assert!(request.starts_with("POST /v1/charges?a=b HTTP/1.1\r\n"), "{request}");
    for line in [
        "host: api.provider.example\r\n",
        "content-type: text/plain\r\n",
        "content-length: 5\r\n",
        "via: 1.1 tidegate\r\n",
        "user-agent: Tidegate (provider)\r\n",
        "tidegate-correlation-id: call_",
    ] {
        assert!(request.contains(line), "{line} in {request}");
    }
    assert!(!request.contains("grant") && !request.contains("x-secret"), "{request}");
    peer.write(OK).await;
    let called = sending.await.unwrap();
    let answered = called.result.unwrap();
    let names: Vec<_> = answered.response.headers().keys().map(http::HeaderName::as_str).collect();
    assert_eq!(names, ["content-length"]);
    assert_eq!(read(answered).await.unwrap(), "ok");
    assert_eq!(called.hops.len(), 1);
    assert!(matches!(called.hops[0].end, HopEnd::Answered { status, .. } if status == 200));
}

#[tokio::test]
async fn a_redirect_is_followed_over_the_same_connection() {
    let (forward, mut origin) = forward();
    let mut made = Made::new(plain(), Method::POST, "/a");
    made.headers = map(&[("Idempotency-Key", "k"), ("Content-Type", "text/plain")]);
    made.body = whole("hello");
    let sending = made.send(&forward, &judge());
    let mut peer = origin.accept().await;
    peer.request().await;
    peer.write(redirect(307, "/v2/b?c=d")).await;
    let request = peer.request().await;
    assert!(request.starts_with("POST /v2/b?c=d ") && request.ends_with("\r\n\r\nhello"), "{request}");
    assert!(request.contains("idempotency-key: k\r\n") && request.contains("content-type: text/plain\r\n"));
    assert_eq!(request.matches("via: ").count(), 1, "{request}");
    peer.write(redirect(303, "c")).await;
    let request = peer.request().await;
    assert!(request.starts_with("GET /v2/c ") && !request.contains("content-"), "{request}");
    peer.write(OK).await;
    let called = sending.await.unwrap();
    assert_eq!(read(called.result.unwrap()).await.unwrap(), "ok");
    assert_eq!(origin.dialled(), 1);
    let field = crate::forward::redirect::hops_field(&called.hops);
    assert_eq!(
        field,
        "\"http://api.provider.example/v1/a\";status=307, \"http://api.provider.example/v2/b\";status=303, \
         \"http://api.provider.example/v2/c\";status=200"
    );
}

#[tokio::test]
async fn a_body_that_is_gone_makes_the_redirect_the_answer() {
    let (forward, mut origin) = forward();
    let mut made = Made::new(plain(), Method::POST, "/a");
    let (pieces, body) = streamed(None);
    made.body = body;
    let sending = made.send(&forward, &judge());
    pieces.send(Ok(bytes::Bytes::from_static(b"hello"))).await.unwrap();
    drop(pieces);
    let mut peer = origin.accept().await;
    while !peer.request().await.ends_with("0\r\n\r\n") {}
    peer.write(redirect(308, "/b")).await;
    let called = sending.await.unwrap();
    assert!(called.body_is_gone);
    let answered = called.result.unwrap();
    assert_eq!(
        (answered.response.status().as_u16(), answered.response.headers()["location"].as_bytes()),
        (308, &b"/b"[..])
    );
    assert_eq!(origin.dialled(), 1);
}

#[tokio::test]
async fn without_being_asked_nothing_is_followed() {
    let (forward, mut origin) = forward();
    let mut made = Made::new(plain(), Method::GET, "/a");
    made.rule = made.connection.redirects(Some(0), 20);
    assert!(made.rule.is_none());
    let sending = made.send(&forward, &judge());
    let mut peer = origin.accept().await;
    peer.request().await;
    peer.write(redirect(302, "http://169.254.169.254/")).await;
    let called = sending.await.unwrap();
    assert_eq!(called.result.unwrap().response.status(), 302);
    assert_eq!(origin.dialled(), 1);
}

#[tokio::test]
async fn the_smaller_number_counts() {
    let plain = plain();
    assert_eq!(plain.redirects(None, 20).unwrap().max, 5);
    assert_eq!(plain.redirects(None, 2).unwrap().max, 2);
    assert_eq!(plain.redirects(Some(3), 20).unwrap().max, 3);
    assert_eq!(plain.redirects(Some(30), 20).unwrap().max, 5);
    assert!(plain.redirects(Some(3), 0).is_none());
    let quiet =
        connector("quiet", &PROVIDER.replace("\"provider\"", "\"quiet\"").replace("follow = true", "follow = false"));
    let quiet = connection(&quiet, "https://api.provider.example", None);
    assert!(quiet.redirects(None, 20).is_none());
    assert_eq!(quiet.redirects(Some(3), 20).unwrap().max, 3);
}

#[test]
fn only_a_manifest_lets_redirects_step_down() {
    assert!(!plain().redirects(None, 20).unwrap().allows_downgrade);
    let lax = PROVIDER.replace("\"provider\"", "\"lax\"").replace("follow = true", "follow = true\ndowngrade = true");
    let lax = connection(&connector("lax", &lax), "https://api.provider.example", None);
    assert!(lax.redirects(None, 20).unwrap().allows_downgrade);
}

/// The credential goes with the hops that its connection vouches for, in one unbroken line.
#[tokio::test]
async fn the_credential_goes_where_it_is_for_and_never_comes_back() {
    let (forward, mut origin) = forward();
    let (client, acceptor) = tls(&["api.provider.example", "files.provider.example", "a.elsewhere.example"], &[]);
    origin.tls = Some(acceptor);
    let mut judge = TableJudge::new(&["*.provider.example", "*.elsewhere.example"]);
    judge.tls = Some(client);
    let judge = Arc::new(judge);
    let bearer = credential(CredentialKind::Bearer, Some("s3cr3t"));
    let with = connection(&provider(), "https://api.provider.example", Some(&bearer));
    let mut made = Made::new(with, Method::GET, "/a");
    made.headers = map(&[("Provider-Account", "acct_1"), ("Accept", "a/b")]);
    let sending = made.send(&forward, &judge);
    let mut api = origin.accept().await;
    let request = api.request().await;
    assert!(request.contains("authorization: Bearer s3cr3t\r\n") && request.contains("provider-account: acct_1\r\n"));
    api.write(redirect(302, "/b")).await;
    let request = api.request().await;
    assert!(request.contains("authorization: Bearer s3cr3t\r\n") && request.contains("provider-account: acct_1\r\n"));
    api.write(redirect(302, "https://files.provider.example/c")).await;
    let mut files = origin.accept().await;
    let request = files.request().await;
    assert!(request.contains("authorization: Bearer s3cr3t\r\n") && !request.contains("acct_1"), "{request}");
    files.write(redirect(302, "https://a.elsewhere.example/d")).await;
    let mut elsewhere = origin.accept().await;
    let request = elsewhere.request().await;
    assert!(!request.contains("s3cr3t") && !request.contains("acct_1"), "{request}");
    elsewhere.write(redirect(302, "https://api.provider.example/transfer?to=evil")).await;
    // The first connection again, and nothing that was left behind.
    let request = api.request().await;
    assert!(request.starts_with("GET /transfer?to=evil ") && request.contains("accept: a/b\r\n"), "{request}");
    assert!(!request.contains("s3cr3t") && !request.contains("acct_1"), "{request}");
    api.write(OK).await;
    let called = sending.await.unwrap();
    assert_eq!(called.result.unwrap().response.status(), 200);
    let had: Vec<_> = called.hops.iter().map(|hop| hop.has_credential).collect();
    assert_eq!((had, origin.dialled()), (vec![true, true, true, false, false], 3));
    assert_eq!(*judge.trusted.lock().unwrap(), [true, true, true, false, false], "nor is an identity shown");
    assert!(!format!("{:?}", called.hops).contains("s3cr3t"));
}

/// The parameter is in what is sent and in nothing else; what the provider writes into its place does not travel on.
#[tokio::test]
async fn a_credential_in_the_query_is_seen_by_its_hosts_alone() {
    let (forward, mut origin) = forward();
    let (client, acceptor) = tls(&["api.provider.example", "a.elsewhere.example"], &[]);
    origin.tls = Some(acceptor);
    let mut judge = TableJudge::new(&["*.provider.example", "*.elsewhere.example"]);
    judge.tls = Some(client);
    let key = credential(CredentialKind::Query { parameter: "key".into() }, Some("s3cr3t"));
    let with = connection(&provider(), "https://api.provider.example", Some(&key));
    let sending = Made::new(with, Method::GET, "/a?x=1").send(&forward, &Arc::new(judge));
    let mut api = origin.accept().await;
    assert!(api.request().await.starts_with("GET /a?x=1&key=s3cr3t HTTP/1.1\r\n"));
    api.write(redirect(302, "/a/?x=1&key=s3cr3t")).await;
    assert!(api.request().await.starts_with("GET /a/?x=1&key=s3cr3t HTTP/1.1\r\n"));
    api.write(redirect(302, "https://a.elsewhere.example/?key=s3cr3t&y=2")).await;
    let mut elsewhere = origin.accept().await;
    let request = elsewhere.request().await;
    assert!(request.starts_with("GET /?y=2 HTTP/1.1\r\n") && !request.contains("s3cr3t"), "{request}");
    elsewhere.write(OK).await;
    let called = sending.await.unwrap();
    assert!(called.result.is_ok());
    assert!(!format!("{:?}", called.hops).contains("s3cr3t"));
}

/// What was asked was answered: it is never said that nothing was sent, whatever becomes of a later hop.
#[tokio::test]
async fn a_later_hop_that_fails_does_not_unsay_the_first() {
    let (forward, mut origin) = forward();
    let judge = Arc::new(TableJudge::new(&["api.provider.example"]));
    let sending = Made::new(plain(), Method::POST, "/a").send(&forward, &judge);
    let mut peer = origin.accept().await;
    peer.request().await;
    peer.write(redirect(303, "http://a.elsewhere.example/")).await;
    let called = sending.await.unwrap();
    let fault = called.result.unwrap_err();
    assert_eq!((fault.refusal, fault.state), (Refusal::RedirectRefused, SendState::Response));
    assert!(matches!(called.hops[1].end, HopEnd::Refused { refusal: Refusal::DestinationNotAllowed, .. }));
    assert_eq!(origin.dialled(), 1);

    // Over the same connection, whose answer was whole.
    let sending = Made::new(plain(), Method::POST, "/a").send(&forward, &judge);
    peer.request().await;
    peer.write("HTTP/1.1 303 x\r\nLocation: /b\r\nConnection: close\r\nContent-Length: 0\r\n\r\n").await;
    let mut second = origin.accept().await;
    second.request().await;
    drop(second);
    let called = sending.await.unwrap();
    assert_eq!(called.result.unwrap_err().state, SendState::SentNoResponse);
    assert!(matches!(called.hops[1].end, HopEnd::Failed { state: SendState::SentNoResponse, .. }));
}

#[tokio::test]
async fn a_credential_that_cannot_be_had_dials_nothing() {
    let (forward, origin) = forward();
    let bearer = credential(CredentialKind::Bearer, None);
    let with = connection(&provider(), "https://api.provider.example", Some(&bearer));
    let called = Made::new(with, Method::GET, "/a").send(&forward, &judge()).await.unwrap();
    let fault = called.result.unwrap_err();
    assert_eq!((fault.refusal, fault.state), (Refusal::CredentialUnavailable, SendState::NotSent));
    assert!(matches!(called.hops[0].end, HopEnd::Refused { .. }));
    assert_eq!(origin.dialled(), 0);
}

/// From a host that speaks HTTP/2 to one that does not, and back: each hop asks for itself.
#[tokio::test]
async fn a_redirect_leads_from_one_version_to_another() {
    let (forward, mut origin) = forward();
    let names = ["api.provider.example", "files.provider.example"];
    let (client, acceptor) = tls(&names, &[outbound::Alpn::Http2, outbound::Alpn::Http11]);
    let mut old = (**acceptor.config()).clone();
    old.alpn_protocols = Vec::new();
    let mut judge = TableJudge::new(&["*.provider.example"]);
    judge.tls = Some(client);
    let connection = connection(&provider(), "https://api.provider.example/v1", None);
    let sending = Made::new(connection, Method::GET, "/a").send(&forward, &Arc::new(judge));

    origin.tls = Some(acceptor);
    let mut serving = h2::server::handshake(origin.accept().await.0).await.unwrap();
    let (asked, mut respond) = serving.accept().await.unwrap().unwrap();
    assert_eq!(asked.uri(), "https://api.provider.example/v1/a");
    let away = http::Response::builder().status(302).header("location", "https://files.provider.example/b");
    respond.send_response(away.body(()).unwrap(), true).unwrap();
    let (more, mut accepted) = tokio::sync::mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Some(Ok(next)) = serving.accept().await {
            more.send(next).unwrap();
        }
    });

    origin.tls = Some(tokio_rustls::TlsAcceptor::from(Arc::new(old)));
    let mut peer = origin.accept().await;
    let request = peer.request().await;
    assert!(
        request.starts_with("GET /b HTTP/1.1\r\n") && request.contains("host: files.provider.example\r\n"),
        "{request}"
    );
    peer.write(redirect(302, "https://api.provider.example/c")).await;

    let (asked, mut respond) = accepted.recv().await.unwrap();
    assert_eq!((asked.uri().path(), asked.headers().contains_key("host")), ("/c", false));
    respond.send_response(http::Response::new(()), true).unwrap();
    let called = sending.await.unwrap();
    assert!(called.result.unwrap().went.pooled);
    let spoken = called.hops.iter().map(|hop| match &hop.end {
        HopEnd::Answered { went, .. } => went.version.as_str(),
        HopEnd::Failed { .. } | HopEnd::Refused { .. } => panic!("{:?}", hop.end),
    });
    assert_eq!((spoken.collect::<Vec<_>>(), origin.dialled()), (vec!["2", "1.1", "2"], 2));
}
