//! The role over real sockets: what a caller sees by each door, and what an origin does.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "this is a test, on real sockets")]

mod rig;

use rig::{Origin, Rig, head_of};
use tidegate_egress::SendState;
use tidegate_egress::switches::Scope;

#[test]
fn a_tunnel_is_asked_for_who_it_is_then_carries_bytes_both_ways() {
    let origin = Origin::echo();
    let rig = Rig::start();
    let asked = format!("CONNECT {0} HTTP/1.1\r\nHost: {0}\r\n\r\n", origin.name());
    let answer = rig.exchange(&asked);
    assert!(answer.starts_with("HTTP/1.1 407 "), "{answer}");
    assert!(answer.to_ascii_lowercase().contains("proxy-authenticate: basic"), "{answer}");
    assert_eq!(origin.connections(), 0, "nobody is dialled for a refusal");

    // What is sent right behind the head is the tunnel's.
    let hello = rig::client_hello("origin.test");
    let mut tunnel = rig.open();
    tunnel.send(format!("CONNECT {0} HTTP/1.1\r\nHost: {0}\r\n{1}\r\n", origin.name(), rig.proof()).as_bytes());
    tunnel.send(&hello);
    let head = tunnel.read_head();
    assert!(head.starts_with("HTTP/1.1 200 ") && head.contains("tidegate-correlation-id: call_"), "{head}");
    assert_eq!(tunnel.read(hello.len()), hello);
    tunnel.finish();
    assert_eq!(tunnel.read_to_end(), b"");
    let record = rig.record();
    assert_eq!((&*record.way, &*record.outcome), ("connect", "done"), "{record:?}");
    assert_eq!((record.sent_bytes, record.received_bytes), (hello.len() as u64, hello.len() as u64));
}

#[test]
fn a_tunnel_for_another_name_ends_and_its_destination_gets_nothing() {
    let origin = Origin::echo();
    let rig = Rig::start();
    let mut tunnel = rig.open();
    tunnel.send(format!("CONNECT {0} HTTP/1.1\r\nHost: {0}\r\n{1}\r\n", origin.name(), rig.proof()).as_bytes());
    assert!(tunnel.read_head().starts_with("HTTP/1.1 200 "));
    tunnel.send(&rig::client_hello("elsewhere.test"));
    tunnel.read_to_end();
    let record = rig.record();
    let told = ("tunnel-mismatch", "sni-other: its ClientHello names elsewhere.test");
    assert_eq!((&*record.outcome, &*record.detail), told);
    assert_eq!(origin.bytes(), 0);
}

#[test]
fn where_tunnels_are_only_reported_they_pass_and_are_told() {
    let origin = Origin::echo();
    let rig = Rig::start();
    let grant = rig.grant(r#","role":"trying""#);
    for (says, told) in [
        (rig::client_hello("elsewhere.test"), &["tunnel: its ClientHello names elsewhere.test"][..]),
        (b"EHLO client\r\n".to_vec(), &["tunnel: it is not TLS"]),
        (rig::client_hello("origin.test"), &[]),
    ] {
        let mut tunnel = rig.open();
        let proof = format!("Proxy-Authorization: Bearer {grant}\r\n");
        tunnel.send(format!("CONNECT {0} HTTP/1.1\r\nHost: {0}\r\n{proof}\r\n", origin.name()).as_bytes());
        assert!(tunnel.read_head().starts_with("HTTP/1.1 200 "));
        tunnel.send(&says);
        assert_eq!(tunnel.read(says.len()), says);
        tunnel.finish();
        tunnel.read_to_end();
        let record = rig.record();
        assert_eq!(&*record.outcome, "done");
        assert_eq!(record.would_refuse.iter().map(|why| &**why).collect::<Vec<_>>(), told);
    }
}

#[test]
fn a_destination_that_resets_its_connection_does_not_seem_to_have_said_all() {
    let origin = Origin::resetting();
    let rig = Rig::start();
    let hello = rig::client_hello("origin.test");
    let mut tunnel = rig.open();
    tunnel.send(format!("CONNECT {0} HTTP/1.1\r\nHost: {0}\r\n{1}\r\n", origin.name(), rig.proof()).as_bytes());
    tunnel.send(&hello);
    assert!(tunnel.read_head().starts_with("HTTP/1.1 200 "));
    assert_eq!(tunnel.read(hello.len()), hello);
    tunnel.send(b"more");
    assert!(tunnel.is_reset());
    assert_eq!(&*rig.record().detail, "destination-reset");
}

#[test]
fn a_request_goes_on_clean_and_its_answer_comes_back_clean() {
    let origin = Origin::http(
        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTidegate-Send-State: forged\r\nSet-Cookie: a=1\r\nSet-Cookie: b=2\r\n\r\nok",
    );
    let rig = Rig::start();
    let asked = format!(
        "GET http://{0}/a/../b?q=1 HTTP/1.1\r\nHost: {0}\r\n{1}Tidegate-Evil: 1\r\nX-Forwarded-For: 10.0.0.1\r\nCookie: c\r\n\r\n",
        origin.name(),
        rig.proof()
    );
    let answer = rig.exchange(&asked);
    assert!(answer.starts_with("HTTP/1.1 200 ") && answer.ends_with("\r\n\r\nok"), "{answer}");
    let head = head_of(&answer);
    assert!(head.contains("set-cookie: a=1") && head.contains("set-cookie: b=2") && !head.contains("forged"), "{head}");
    assert!(head.contains("via: 1.1 edge"), "{head}");
    let seen = origin.seen();
    assert!(seen.starts_with("GET /a/../b?q=1 HTTP/1.1\r\n"), "{seen}");
    for gone in ["proxy-authorization", "tidegate-evil", "x-forwarded-for", "tgt_"] {
        assert!(!seen.contains(gone), "{gone} travelled: {seen}");
    }
    let host = format!("\r\nhost: {}\r\n", origin.name());
    for there in [&*host, "cookie: c", "via: 1.1 edge", "tidegate-correlation-id: call_"] {
        assert!(seen.contains(there), "{there} did not: {seen}");
    }
    let record = rig.record();
    assert_eq!((&*record.outcome, record.status, record.received_bytes), ("done", Some(200), 2), "{record:?}");
    assert_eq!(record.path.as_deref(), Some("/a/../b"), "the query is written nowhere");
}

#[test]
fn connections_are_used_again_and_bodies_stream_both_ways() {
    let origin = Origin::http_echo();
    let rig = Rig::start();
    let mut client = rig.open();
    for body in ["one", "two, longer", ""] {
        let asked = format!(
            "POST http://{0}/ HTTP/1.1\r\nHost: {0}\r\n{1}Content-Length: {2}\r\n\r\n{body}",
            origin.name(),
            rig.proof(),
            body.len()
        );
        client.send(asked.as_bytes());
        let head = client.read_head();
        assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
        assert_eq!(client.read(body.len()), body.as_bytes());
    }
    assert_eq!(origin.connections(), 1);
    assert_eq!(rig.records(3).iter().filter(|record| record.pooled).count(), 2);
}

#[test]
fn nothing_is_dialled_for_any_refusal() {
    let origin = Origin::echo();
    let rig = Rig::start();
    let (name, proof) = (origin.name(), rig.proof());
    let port = origin.port();
    for (asked, status, code) in [
        (format!("GET http://{name}/ HTTP/1.1\r\nHost: other.test\r\n{proof}\r\n"), 400, "host-mismatch"),
        (format!("GET / HTTP/1.1\r\nHost: {name}\r\n{proof}\r\n"), 400, "request-malformed"),
        (
            format!("CONNECT 127.0.0.1:{port} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n{proof}\r\n"),
            403,
            "address-not-allowed",
        ),
        (
            format!("GET http://169.254.169.254/ HTTP/1.1\r\nHost: 169.254.169.254\r\n{proof}\r\n"),
            403,
            "address-not-allowed",
        ),
        (
            format!("GET http://denied.test:{port}/ HTTP/1.1\r\nHost: denied.test:{port}\r\n{proof}\r\n"),
            403,
            "destination-not-allowed",
        ),
        (
            format!("GET http://rebinds.test:{port}/ HTTP/1.1\r\nHost: rebinds.test:{port}\r\n{proof}\r\n"),
            403,
            "address-not-allowed",
        ),
        (
            format!("GET http://nowhere.test:{port}/ HTTP/1.1\r\nHost: nowhere.test:{port}\r\n{proof}\r\n"),
            502,
            "dns-failed",
        ),
        (
            format!("GET http://{name}/ HTTP/1.1\r\nHost: {name}\r\nVia: 1.0 a, 1.1 edge\r\n{proof}\r\n"),
            508,
            "loop-detected",
        ),
        (
            format!("CONNECT {name} HTTP/1.1\r\nHost: {name}\r\nContent-Length: 3\r\n{proof}\r\nabc"),
            400,
            "request-malformed",
        ),
    ] {
        let answer = rig.exchange(&asked);
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{asked}\n{answer}");
        assert!(answer.contains(&format!("\"code\":\"{code}\"")), "{asked}\n{answer}");
        assert!(head_of(&answer).contains("tidegate-send-state: not-sent"), "{answer}");
    }
    assert_eq!(origin.connections(), 0);
}

#[test]
fn what_stands_behind_a_refused_connect_is_never_run() {
    let origin = Origin::http_echo();
    let rig = Rig::start();
    let (name, proof) = (origin.name(), rig.proof());
    let smuggled = format!("GET http://{name}/ HTTP/1.1\r\nHost: {name}\r\n{proof}\r\n");
    let asked = format!("CONNECT denied.test:443 HTTP/1.1\r\nHost: denied.test:443\r\n{proof}\r\n{smuggled}");
    let answer = rig.exchange(&asked);
    assert!(answer.starts_with("HTTP/1.1 403 ") && answer.matches("HTTP/1.1").count() == 1, "{answer}");
    assert_eq!(origin.connections(), 0);
}

#[test]
fn a_call_of_a_connection_has_its_credential_and_nothing_of_the_caller_s() {
    let origin = Origin::provider();
    let rig = Rig::with_connection_to(&origin);
    let token = rig.token();
    let asked = format!(
        "GET /c/conn_api/v1/things?q=1 HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {token}\r\nX-Forwarded-For: 10.0.0.1\r\n\r\n"
    );
    let answer = rig.exchange(&asked);
    assert!(answer.starts_with("HTTP/1.1 200 ") && answer.ends_with("\r\n\r\nok"), "{answer}");
    let head = head_of(&answer);
    assert!(head.contains("tidegate-send-state: response") && !head.contains("forged"), "{head}");
    assert!(head.contains("via: 1.1 edge"), "{head}");
    let seen = origin.seen();
    assert!(seen.starts_with("GET /base/v1/things?q=1 HTTP/1.1\r\n"), "{seen}");
    assert!(seen.contains("authorization: Bearer the-real-key\r\n") && !seen.contains("10.0.0.1"), "{seen}");
    assert!(!seen.contains(token) && seen.contains("user-agent: Tidegate (http)"), "{seen}");
    let record = rig.record();
    assert_eq!((&*record.way, &*record.outcome, record.status), ("governed", "done", Some(200)), "{record:?}");
    assert_eq!(record.connection.unwrap().as_str(), "conn_api");
}

#[test]
fn a_redirect_is_followed_when_asked_and_each_hop_has_a_record() {
    let origin = Origin::provider();
    let rig = Rig::with_connection_to(&origin);
    let ask = |more: &str| {
        let token = rig.token();
        rig.exchange(&format!(
            "GET /c/conn_api/away HTTP/1.1\r\nHost: 127.0.0.1\r\nTidegate-Grant: {token}\r\n{more}\r\n"
        ))
    };
    assert!(ask("").starts_with("HTTP/1.1 302 "));
    assert_eq!(rig.record().status, Some(302));
    let answer = ask("Tidegate-Follow-Redirects: 3\r\n");
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    let head = head_of(&answer);
    assert!(head.contains("/base/away") && head.contains("/base/there") && head.contains("tidegate-hops: "), "{head}");
    let records = rig.records(2);
    let told: Vec<_> = records.iter().map(|record| (record.hop, record.status, record.path.as_deref())).collect();
    assert_eq!(told, [(0, Some(302), Some("/base/away")), (1, Some(200), Some("/base/there"))], "{records:?}");
    assert_eq!(records[0].correlation, records[1].correlation);
    // By what names the provider's own logs know each hop.
    let known: Vec<_> = records.iter().map(|record| record.provider_ids.get("x-request-id").map(|id| &**id)).collect();
    assert_eq!(known, [Some("one"), Some("two")]);
}

#[test]
fn no_field_is_read_as_another_one_than_was_judged() {
    let origin = Origin::provider();
    let rig = Rig::with_connection_to(&origin);
    let (name, token) = (origin.name(), rig.token());
    let governed = format!("GET /c/conn_api/x HTTP/1.1\r\nHost: 127.0.0.1\r\nTidegate-Grant: {token}\r\n");
    let absolute = format!("GET https://{name}/ HTTP/1.1\r\nHost: {name}\r\n{}", rig.proof());
    for asked in [&governed, &absolute] {
        for field in ["X_HTTP_Method_Override: DELETE", "X-Original_Url: /admin", "Tidegate_Grant: x"] {
            let answer = rig.exchange(&format!("{asked}{field}\r\n\r\n"));
            assert!(answer.starts_with("HTTP/1.1 400 ") && answer.contains("request-malformed"), "{field}: {answer}");
        }
        let refused = rig.exchange(&format!("{}\r\n", asked.replacen("GET", "trace", 1)));
        assert!(refused.starts_with("HTTP/1.1 403 ") && refused.contains("request-not-allowed"), "{refused}");
    }
    assert_eq!(origin.connections(), 0, "nobody is dialled for a refusal");
    let answer = rig.exchange(&format!("{governed}X_Forwarded_For: 10.0.0.1\r\nTidegate_Hop: x\r\nX_Mine: 1\r\n\r\n"));
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    let seen = origin.seen().to_lowercase();
    assert!(seen.contains("x_mine: 1") && !seen.contains("forwarded") && !seen.contains("tidegate_"), "{seen}");
}

#[test]
fn what_is_no_request_has_a_record_by_the_id_of_its_answer() {
    let rig = Rig::start();
    for (asked, code) in [
        ("GET http://a.test/ HTTP/1.1\r\nHost: b.test\r\n\r\n".to_owned(), "host-mismatch"),
        ("GET http://a.test/ HTTP/1.1\r\nHost: a.test\r\nContent_Length: 1\r\n\r\n".to_owned(), "request-malformed"),
        ("\u{1}\r\n\r\n".to_owned(), "request-malformed"),
    ] {
        let answer = rig.exchange(&asked);
        let head = head_of(&answer).to_lowercase();
        assert!(head.starts_with("http/1.1 400 ") && answer.contains(code), "{answer}");
        let record = rig.any_record();
        assert_eq!((&*record.outcome, &*record.way, record.tenant.as_ref()), (code, "", None), "{record:?}");
        let id = format!("tidegate-correlation-id: {}", record.correlation);
        assert!(head.lines().any(|line| line == id), "{id}: {head}");
    }
}

#[test]
fn behind_a_forged_proof_the_connection_ends() {
    let origin = Origin::provider();
    let rig = Rig::with_connection_to(&origin);
    let grant = rig.grant("");
    let (signed, _) = grant.rsplit_once('.').unwrap();
    let forged = format!("{signed}.{}", "A".repeat(86));
    let ask = |proof: &str| format!("GET /c/conn_api/x HTTP/1.1\r\nHost: 127.0.0.1\r\nTidegate-Grant: {proof}\r\n\r\n");
    let mut client = rig.open();
    client.send(format!("{}{}", ask(&forged), ask(&grant)).as_bytes());
    let answer = String::from_utf8(client.read_to_end()).unwrap();
    assert!(answer.starts_with("HTTP/1.1 401 ") && answer.matches("HTTP/1.1 ").count() == 1, "{answer}");
    assert!(rig.exchange(&ask(&grant)).starts_with("HTTP/1.1 200 "));
    // What is merely not known, or over, closes nothing.
    let mut client = rig.open();
    client.send(format!("{}{}", ask("sk_live_1"), ask(&grant)).as_bytes());
    assert!(client.read_head().starts_with("HTTP/1.1 401 "));
}

#[test]
fn a_chain_that_is_refused_or_fails_tells_its_hops_and_each_record_is_its_hops_own() {
    let origin = Origin::provider();
    let rig = Rig::with_connection_to(&origin);
    for (path, port, code, end, address) in [
        ("denied", 9, "redirect-refused", "destination-not-allowed", None),
        ("dead", 1, "connect-failed", "connect-failed", Some("127.0.0.1:1".parse().unwrap())),
    ] {
        let answer = rig.exchange(&format!(
            "POST /c/conn_api/{path} HTTP/1.1\r\nHost: 127.0.0.1\r\nTidegate-Grant: {}\r\nContent-Length: 5\r\n\
             Tidegate-Follow-Redirects: 3\r\n\r\nhello",
            rig.token()
        ));
        assert!(answer.contains(&format!("\"code\":\"{code}\"")), "{answer}");
        let head = head_of(&answer);
        assert!(head.contains("tidegate-send-state: response"), "of the call: {head}");
        let hops = format!(
            "tidegate-hops: \"https://{}/base/{path}\";status=302, \"https://origin.test:{port}/x\";refusal={end}",
            origin.name()
        );
        assert!(head.contains(&hops), "{head}");
        let [first, last] = &rig.records(2)[..] else { unreachable!() };
        assert_eq!((first.sent_bytes, first.received_bytes, first.status), (5, 4, Some(302)), "{first:?}");
        assert_eq!((first.send_state, last.send_state), (SendState::Response, SendState::NotSent), "{last:?}");
        assert_eq!((last.hop, &*last.outcome, last.address, last.sent_bytes), (1, code, address, 0), "{last:?}");
    }
}

#[test]
fn what_fails_is_recorded_with_where_it_went_and_how_much_of_it() {
    let rig = Rig::start();
    let (proof, large) = (rig.proof(), 8_000_000);
    let origin = Origin::resetting_after(1_000_000);
    let mut client = rig.open();
    let head =
        format!("POST http://{0}/ HTTP/1.1\r\nHost: {0}\r\n{proof}Content-Length: {large}\r\n\r\n", origin.name());
    client.send(head.as_bytes());
    client.send_in_vain(&vec![b'x'; large]);
    let record = rig.record();
    assert_eq!((&*record.outcome, record.send_state), ("response-incomplete", SendState::PartiallySent), "{record:?}");
    assert_eq!(record.address, Some(([127, 0, 0, 1], origin.port()).into()), "{record:?}");
    assert_eq!(record.exit, Some([127, 0, 0, 1].into()), "{record:?}");
    assert!(record.sent_bytes > 900_000 && record.sent_bytes < large as u64, "{record:?}");

    for asked in ["CONNECT origin.test:1 HTTP/1.1", "GET http://origin.test:1/ HTTP/1.1"] {
        rig.exchange(&format!("{asked}\r\nHost: origin.test:1\r\n{proof}\r\n"));
        let record = rig.record();
        assert_eq!((&*record.outcome, record.send_state), ("connect-failed", SendState::NotSent), "{record:?}");
        assert_eq!(record.address, Some(([127, 0, 0, 1], 1).into()), "{record:?}");
    }
}

#[test]
fn whoever_names_no_connection_of_his_own_learns_nothing() {
    let origin = Origin::provider();
    let rig = Rig::with_connection_to(&origin);
    let proof = format!("Tidegate-Grant: {}\r\n", rig.token());
    for (path, proof, status, code) in [
        ("/c/conn_api/x", "", 401, "caller-unknown"),
        ("/c/conn_api/x", "Authorization: Bearer tgt_nobody\r\n", 401, "caller-unknown"),
        ("/c/conn_other/x", &*proof, 404, "connection-unknown"),
        ("/c/conn_api/../x", &*proof, 400, "request-malformed"),
        ("/c/conn_api/a/%2e%2e/x", &*proof, 400, "request-malformed"),
        ("/c/conn_api//x", &*proof, 400, "request-malformed"),
    ] {
        let answer = rig.exchange(&format!("GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n{proof}\r\n"));
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{path}: {answer}");
        assert!(answer.contains(&format!("\"code\":\"{code}\"")), "{path}: {answer}");
        assert!(!answer.to_ascii_lowercase().contains("proxy-authenticate"), "{answer}");
    }
    assert_eq!(origin.connections(), 0);
}

#[test]
fn a_switch_on_a_connector_stops_its_connections_wherever_they_lead() {
    let origin = Origin::provider();
    // The generic connector has no hosts of its own.
    let connector = Some(domain::ConnectorId::parse("http").unwrap());
    let rig = Rig::with_connection_and_switch(&origin, Scope { connector, ..Scope::default() });
    let answer = rig
        .exchange(&format!("GET /c/conn_api/x HTTP/1.1\r\nHost: 127.0.0.1\r\nTidegate-Grant: {}\r\n\r\n", rig.token()));
    assert!(answer.starts_with("HTTP/1.1 403 ") && answer.contains("\"code\":\"switched-off\""), "{answer}");
    assert_eq!(origin.connections(), 0);
    assert_eq!(rig.record().connection.unwrap().as_str(), "conn_api", "a refused call says of which connection it was");
}

#[test]
fn a_websocket_passes_and_ends_in_one_record() {
    let origin = Origin::websocket();
    let rig = Rig::start();
    let mut client = rig.open();
    let asked = format!(
        "GET http://{0}/ws HTTP/1.1\r\nHost: {0}\r\n{1}Connection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
        origin.name(),
        rig.proof()
    );
    client.send(asked.as_bytes());
    let head = client.read_head();
    assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
    for field in ["connection: Upgrade", "upgrade: websocket", "sec-websocket-accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo="] {
        assert!(head.contains(field), "no {field}: {head}");
    }
    client.send(b"frames");
    assert_eq!(client.read(6), b"frames");
    client.finish();
    client.read_to_end();
    let record = rig.record();
    assert_eq!((&*record.outcome, record.status, record.sent_bytes, record.received_bytes), ("done", Some(101), 6, 6));
    assert!(origin.seen().contains("sec-websocket-key"), "{}", origin.seen());
}

#[test]
fn a_caller_who_hangs_up_does_not_make_it_as_if_nothing_was_sent() {
    let origin = Origin::silent();
    let rig = Rig::start();
    let mut client = rig.open();
    client.send(
        format!("POST http://{0}/ HTTP/1.1\r\nHost: {0}\r\n{1}Content-Length: 2\r\n\r\nhi", origin.name(), rig.proof())
            .as_bytes(),
    );
    origin.await_bytes();
    client.reset();
    let record = rig.record();
    assert_eq!((record.send_state, record.status), (SendState::SentNoResponse, None), "{record:?}");
}

#[test]
fn a_destination_that_chooses_http_2_is_spoken_to_in_it_by_both_ways_in() {
    let origin = Origin::provider_http2();
    let rig = Rig::with_connection_to(&origin);
    let (name, proof, token) = (origin.name(), rig.proof(), rig.token());
    let body = "0123456789".repeat(20_000);
    let post = format!(
        "POST https://{name}/echo?q=1 HTTP/1.1\r\nHost: {name}\r\n{proof}Connection: close, TE\r\nTE: trailers\r\n\
         Content-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let answer = rig.exchange(&post);
    assert!(answer.starts_with("HTTP/1.1 200 ") && answer.contains("\r\n\r\n"), "{}", &answer[..400.min(answer.len())]);
    let head = head_of(&answer);
    assert!(head.contains("via: 2 edge") && head.contains("tidegate-send-state: response"), "{head}");
    assert!(!head.contains("forged"), "{head}");
    let record = rig.record();
    assert_eq!(record.http, Some(tidegate_egress::HttpVersion::Http2), "{record:?}");
    assert_eq!((&*record.outcome, record.sent_bytes, record.received_bytes), ("done", 200_000, 200_002), "{record:?}");
    let seen = origin.seen();
    assert!(seen.starts_with(&format!("POST https://{name}/echo?q=1\r\n")), "{seen}");
    assert!(seen.contains("via: 1.1 edge\r\n") && seen.contains("content-length: 200000\r\n"), "{seen}");
    assert!(!seen.contains("\nhost: ") && !seen.contains("\nte: ") && !seen.contains("proxy-"), "{seen}");

    // A connection's calls have connections of their own, which its next calls use again, redirects included.
    for pooled in [false, true] {
        let asked = format!(
            "GET /c/conn_api/away HTTP/1.1\r\nHost: 127.0.0.1\r\nTidegate-Grant: {token}\r\nTidegate-Follow-Redirects: 3\r\n\r\n"
        );
        let answer = rig.exchange(&asked);
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
        let records = rig.records(2);
        let told: Vec<_> =
            records.iter().map(|record| (record.hop, record.pooled, record.http.unwrap().as_str())).collect();
        assert_eq!(told, [(0, pooled, "2"), (1, true, "2")], "{records:?}");
    }
    assert_eq!(origin.connections(), 2);
    assert_eq!(origin.seen().matches("authorization: Bearer the-real-key\r\n").count(), 4);

    // A WebSocket is none of HTTP/2's.
    let asked = format!(
        "GET https://{name}/chat HTTP/1.1\r\nHost: {name}\r\n{proof}Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
    );
    assert!(rig.exchange(&asked).starts_with("HTTP/1.1 426 "));
    assert_eq!(rig.record().http, Some(tidegate_egress::HttpVersion::Http11));
    assert_eq!(origin.connections(), 3);
}
