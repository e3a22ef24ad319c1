//! The role behind TLS: who a caller is there, and all three ways in over HTTP/2.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "this is a test, on real sockets")]

mod rig;

use std::io::{Read, Write};
use std::process::Command;

use bytes::Bytes;
use data_encoding::BASE64URL_NOPAD;
use h2::client::SendRequest;
use http::{Method, Request, Response};
use rig::secure::{EDGE, Identity};
use rig::{Origin, Rig};
use rustls::pki_types::ServerName;

fn name() -> ServerName<'static> {
    ServerName::try_from(EDGE).unwrap()
}

/// Sends it over TLS of HTTP/1.1, with this certificate, and reads until the end.
fn ask(rig: &Rig, identity: Option<&Identity>, asked: &str) -> String {
    let config = rig.pki().client_config(identity, b"http/1.1");
    let session = rustls::ClientConnection::new(config, name()).unwrap();
    let mut stream = rustls::StreamOwned::new(session, rig.dial_tls());
    stream.write_all(asked.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("close_notify");
    answer
}

fn get(origin: &Origin, fields: &str) -> String {
    format!("GET http://{0}/ HTTP/1.1\r\nHost: {0}\r\nConnection: close\r\n{fields}\r\n", origin.name())
}

const ANSWER: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

#[test]
fn a_proof_that_is_not_taken_in_the_clear_is_taken_over_tls() {
    let origin = Origin::http(ANSWER);
    let rig = Rig::secure(None);
    let proof = rig.proof();
    let answer = rig.exchange(&get(&origin, &proof));
    assert!(answer.starts_with("HTTP/1.1 403 ") && answer.contains("grant-in-plaintext"), "{answer}");
    assert_eq!(origin.connections(), 0);
    let answer = ask(&rig, None, &get(&origin, &proof));
    assert!(answer.starts_with("HTTP/1.1 200 ") && answer.ends_with("ok"), "{answer}");
    let answer = ask(&rig, None, &get(&origin, ""));
    assert!(answer.starts_with("HTTP/1.1 407 "), "{answer}");
    let plain = rig.dial_tls();
    let mut plain_client = plain.try_clone().unwrap();
    plain_client.write_all(get(&origin, &proof).as_bytes()).unwrap();
    let mut all = Vec::new();
    let _reset = plain_client.read_to_end(&mut all);
    assert!(all.len() < 16, "a plain request is answered: {}", all.escape_ascii());
}

#[test]
fn a_client_certificate_proves_who_calls() {
    let origin = Origin::http(ANSWER);
    let rig = Rig::secure(None);
    let (runner, stranger) =
        (rig.pki().client("spiffe://example.com/runner"), rig.pki().client("spiffe://example.com/x"));
    let answer = ask(&rig, Some(&runner), &get(&origin, ""));
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    let record = rig.record();
    assert_eq!((record.tenant.unwrap().as_str(), record.identity.as_deref()), ("acme", Some("certificate:runner")));
    // One of the platform's that stands for nobody proves nothing, and does no harm beside a proof.
    let answer = ask(&rig, Some(&stranger), &get(&origin, ""));
    assert!(answer.starts_with("HTTP/1.1 407 "), "{answer}");
    let answer = ask(&rig, Some(&stranger), &get(&origin, &rig.proof()));
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    // One of another tenant's does.
    let other = rig.pki().client("spiffe://example.com/beta");
    let answer = ask(&rig, Some(&other), &get(&origin, &rig.proof()));
    assert!(answer.starts_with("HTTP/1.1 407 "), "{answer}");
    assert_eq!(origin.connections(), 1);
}

#[test]
fn a_grant_that_is_bound_to_a_certificate_is_good_with_that_one() {
    let origin = Origin::http(ANSWER);
    let rig = Rig::secure(None);
    let (bound, other) = (rig.pki().client("spiffe://example.com/x"), rig.pki().client("spiffe://example.com/x"));
    let grant = rig.grant(&format!(r#","cnf":{{"x5t#S256":"{}"}}"#, BASE64URL_NOPAD.encode(&bound.sha256())));
    let proof = format!("Proxy-Authorization: Bearer {grant}\r\n");
    for (identity, status) in [(Some(&bound), 200), (Some(&other), 407), (None, 407)] {
        let answer = ask(&rig, identity, &get(&origin, &proof));
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{answer}");
    }
}

#[test]
fn a_client_certificate_proves_who_calls_a_connection() {
    let provider = Origin::provider();
    let rig = Rig::secure(Some(&provider));
    let (runner, stranger) =
        (rig.pki().client("spiffe://example.com/runner"), rig.pki().client("spiffe://example.com/x"));
    let call =
        |fields: &str| format!("GET /c/conn_api/v1 HTTP/1.1\r\nHost: {EDGE}\r\nConnection: close\r\n{fields}\r\n");
    // With nothing, and with what an SDK insists on sending as its key: that is emptied.
    for fields in ["", "Authorization: Bearer sk-placeholder\r\n"] {
        let answer = ask(&rig, Some(&runner), &call(fields));
        assert!(answer.starts_with("HTTP/1.1 200 ") && answer.ends_with("ok"), "{answer}");
        let record = rig.record();
        assert_eq!((&*record.way, record.identity.as_deref()), ("governed", Some("certificate:runner")));
    }
    let seen = provider.seen();
    assert_eq!(seen.matches("authorization: Bearer the-real-key\r\n").count(), 2, "{seen}");
    assert!(!seen.contains("placeholder"), "{seen}");
    // A proof that is presented has to hold, and a certificate that is nobody's is no proof.
    let answer = ask(&rig, Some(&runner), &call("Tidegate-Grant: tgt_x\r\n"));
    assert!(answer.starts_with("HTTP/1.1 401 "), "{answer}");
    let answer = ask(&rig, Some(&stranger), &call(""));
    assert!(answer.starts_with("HTTP/1.1 401 "), "{answer}");
    let other = rig.pki().client("spiffe://example.com/beta");
    let answer = ask(&rig, Some(&other), &call(""));
    assert!(answer.starts_with("HTTP/1.1 404 "), "{answer}");
}

async fn http2(rig: &Rig) -> SendRequest<Bytes> {
    let socket = rig.dial_tls();
    socket.set_nonblocking(true).unwrap();
    let socket = tokio::net::TcpStream::from_std(socket).unwrap();
    let connector = tokio_rustls::TlsConnector::from(rig.pki().client_config(None, b"h2"));
    let stream = connector.connect(name(), socket).await.unwrap();
    let (client, connection) = h2::client::handshake(stream).await.unwrap();
    tokio::spawn(connection);
    client
}

async fn whole(answer: Response<h2::RecvStream>) -> Result<(Response<()>, String), Option<h2::Reason>> {
    let (head, mut body) = answer.into_parts();
    let mut all = Vec::new();
    while let Some(data) = body.data().await {
        let data = data.map_err(|error| error.reason())?;
        drop(body.flow_control().release_capacity(data.len()));
        all.extend_from_slice(&data);
    }
    Ok((Response::from_parts(head, ()), String::from_utf8(all).unwrap()))
}

async fn call(client: &mut SendRequest<Bytes>, request: Request<()>) -> (Response<()>, String) {
    let (answer, _) = client.send_request(request, true).unwrap();
    whole(answer.await.unwrap()).await.unwrap()
}

fn request(method: Method, uri: &str, proof: Option<(&str, &str)>) -> Request<()> {
    let request = Request::builder().method(method).uri(uri);
    proof.into_iter().fold(request, |request, (name, value)| request.header(name, value)).body(()).unwrap()
}

#[tokio::test]
async fn requests_tunnels_and_calls_share_one_connection_of_http_2() {
    let (plain, echo, provider) = (Origin::http(ANSWER), Origin::echo(), Origin::provider());
    let rig = Rig::secure(Some(&provider));
    let mut client = http2(&rig).await;
    let bearer = format!("Bearer {}", rig.token());
    let proof = Some(("proxy-authorization", &*bearer));

    let (head, body) = call(&mut client, request(Method::GET, &format!("http://{}/x", plain.name()), proof)).await;
    assert_eq!((head.status().as_u16(), &*body), (200, "ok"));
    assert_eq!(head.headers()["tidegate-send-state"], "response");
    assert!(plain.seen().contains("via: 2 edge\r\n") && !plain.seen().contains("tgt_"), "{}", plain.seen());

    let call_of = request(Method::GET, &format!("https://{EDGE}/c/conn_api/v1"), Some(("authorization", &bearer)));
    let (head, body) = call(&mut client, call_of).await;
    assert_eq!((head.status().as_u16(), &*body), (200, "ok"));
    assert!(provider.seen().contains("authorization: Bearer the-real-key\r\n"), "{}", provider.seen());

    let hello = Bytes::from(rig::client_hello("origin.test"));
    let (answer, mut out) = client.send_request(request(Method::CONNECT, &echo.name(), proof), false).unwrap();
    let answer = answer.await.unwrap();
    assert!(answer.status() == 200 && answer.headers().contains_key("tidegate-correlation-id"), "{answer:?}");
    out.send_data(hello.clone(), false).unwrap();
    let mut came = answer.into_body();
    let mut got = Vec::new();
    while got.len() < hello.len() {
        got.extend_from_slice(&came.data().await.unwrap().unwrap());
    }
    assert_eq!(got, hello);
    out.send_data(Bytes::new(), true).unwrap();
    assert!(came.data().await.is_none_or(|end| end.unwrap().is_empty()), "an end is an end");

    let ways: Vec<_> = rig.records(3).iter().map(|record| (record.way.clone(), record.outcome.clone())).collect();
    let done = |way: &str| (Box::from(way), Box::from("done"));
    assert_eq!(ways, [done("absolute"), done("governed"), done("connect")]);
}

#[tokio::test]
async fn a_destination_that_resets_resets_the_stream_and_no_more() {
    let origin = Origin::resetting();
    let rig = Rig::secure(None);
    let mut client = http2(&rig).await;
    let bearer = format!("Bearer {}", rig.token());
    let connect = request(Method::CONNECT, &origin.name(), Some(("proxy-authorization", &*bearer)));
    let (answer, mut out) = client.send_request(connect, false).unwrap();
    let answer = answer.await.unwrap();
    out.send_data(Bytes::from(rig::client_hello("origin.test")), false).unwrap();
    let mut came = answer.into_body();
    came.data().await.unwrap().unwrap();
    out.send_data(Bytes::from_static(b"more"), false).unwrap();
    assert_eq!(came.data().await.unwrap().unwrap_err().reason(), Some(h2::Reason::CONNECT_ERROR));
    assert_eq!(&*rig.record().detail, "destination-reset");
    let (head, _) =
        call(&mut client, request(Method::CONNECT, "denied.test:443", Some(("proxy-authorization", &*bearer)))).await;
    assert_eq!(head.status(), 403);
}

#[tokio::test]
async fn refusals_are_those_of_http_1_and_dial_nothing() {
    let origin = Origin::echo();
    let rig = Rig::secure(None);
    let mut client = http2(&rig).await;
    let bearer = format!("Bearer {}", rig.token());
    let proof = Some(("proxy-authorization", &*bearer));
    let name = origin.name();
    for (asked, status, code) in [
        (request(Method::CONNECT, &name, None), 407, "caller-unknown"),
        (request(Method::GET, &format!("http://u:p@{name}/"), proof), 400, "request-malformed"),
        (request(Method::GET, &format!("https://{EDGE}/x"), proof), 400, "request-malformed"),
        (request(Method::GET, &format!("https://{EDGE}/c/conn_x/y"), None), 401, "caller-unknown"),
        (request(Method::GET, "http://169.254.169.254/", proof), 403, "address-not-allowed"),
        (request(Method::CONNECT, "denied.test:443", proof), 403, "destination-not-allowed"),
        (Request::get(format!("http://{name}/")).header("host", "other.test").body(()).unwrap(), 400, "host-mismatch"),
        (
            Request::get(format!("http://{name}/"))
                .header("via", "1.1 edge")
                .header("proxy-authorization", &bearer)
                .body(())
                .unwrap(),
            508,
            "loop-detected",
        ),
    ] {
        let what = format!("{asked:?}");
        let (head, body) = call(&mut client, asked).await;
        assert_eq!(head.status().as_u16(), status, "{what}: {body}");
        assert!(body.contains(&format!("\"code\":\"{code}\"")), "{what}: {body}");
        assert_eq!(head.headers()["tidegate-send-state"], "not-sent");
    }
    assert_eq!(origin.connections(), 0);
}

#[tokio::test]
async fn a_forged_proof_is_the_last_one_of_its_connection() {
    let provider = Origin::provider();
    let rig = Rig::secure(Some(&provider));
    let mut client = http2(&rig).await;
    let good = rig.grant("");
    let (signed, _) = good.rsplit_once('.').unwrap();
    let forged = format!("{signed}.{}", "A".repeat(86));
    let ask =
        |proof: &str| request(Method::GET, &format!("https://{EDGE}/c/conn_api/x"), Some(("tidegate-grant", proof)));
    assert_eq!(call(&mut client, ask(&forged)).await.0.status(), 401);
    let again = client.clone().ready().await.map(|mut client| client.send_request(ask(&good), true));
    if let Ok(Ok((answer, _))) = again {
        assert!(answer.await.is_err(), "it was told to go elsewhere");
    }
    let mut other = http2(&rig).await;
    assert_eq!(call(&mut other, ask(&good)).await.0.status(), 200);
}

/// A client that others wrote.
#[test]
fn curl_calls_over_tls_and_over_http_2() {
    let (origin, provider) = (Origin::http(ANSWER), Origin::provider());
    let rig = Rig::secure(Some(&provider));
    let directory = tempfile::tempdir().unwrap();
    let roots = directory.path().join("roots.pem");
    std::fs::write(&roots, rig.pki().pem()).unwrap();
    let curl = |arguments: &[&str]| {
        let output = Command::new("curl")
            .args(["--silent", "--show-error", "--max-time", "20", "--write-out", " %{http_version} %{http_code}"])
            .args(arguments)
            .output()
            .expect("curl is installed");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let (port, roots) = (rig.tls_port(), roots.to_str().unwrap());
    let proxy = format!("https://grant:{}@{EDGE}:{port}", rig.token());
    let target = format!("http://{}/", origin.name());
    assert_eq!(curl(&["--proxy-cacert", roots, "--proxy", &proxy, &target]), "ok 1.1 200");
    let base = format!("https://{EDGE}:{port}/c/conn_api/v1");
    let proof = format!("Authorization: Bearer {}", rig.token());
    assert_eq!(curl(&["--noproxy", "*", "--cacert", roots, "--http2", "--header", &proof, &base]), "ok 2 200");
    assert_eq!(curl(&["--noproxy", "*", "--cacert", roots, "--http1.1", "--header", &proof, &base]), "ok 1.1 200");
}
