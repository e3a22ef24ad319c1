use http::Version;
use http::header::{USER_AGENT, VIA};
use outbound::Scheme;
use proptest::prelude::*;

use super::*;
use crate::{CorrelationId, Way};

fn asked(method: Method) -> Asked {
    Asked {
        way: Way::Absolute,
        method,
        scheme: Scheme::Http,
        authority: Authority::with_port("api.example.com:80").unwrap(),
        path_and_query: "/".into(),
    }
}

fn map(lines: &[(&str, &str)]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in lines {
        headers.append(HeaderName::from_bytes(name.as_bytes()).unwrap(), HeaderValue::from_str(value).unwrap());
    }
    headers
}

fn names() -> Names {
    Names::new("tidegate", Some("https://example.com/egress")).unwrap()
}

fn clean(method: Method, lines: &[(&str, &str)]) -> Result<Cleaned, Refusal> {
    clean_request(map(lines), &asked(method), &names()).map_err(|fault| fault.refusal)
}

fn left(lines: &[(&str, &str)]) -> Vec<String> {
    let cleaned = clean(Method::GET, lines).unwrap();
    cleaned.headers.keys().map(ToString::to_string).collect()
}

#[test]
fn what_belongs_to_the_connection_or_to_us_stays_here() {
    for (name, value) in [
        ("Connection", "close"),
        ("Keep-Alive", "timeout=5"),
        ("Proxy-Authorization", "Bearer t"),
        ("Proxy-Connection", "keep-alive"),
        ("Proxy-Anything", "x"),
        ("Proxy", "http://127.0.0.1:1"),
        ("TE", "trailers, deflate"),
        ("Trailer", "X-T"),
        ("Transfer-Encoding", "chunked"),
        ("Upgrade", "h2c"),
        ("HTTP2-Settings", "AAMAAABkAAQ"),
        ("Tidegate-Grant", "t"),
        ("Tidegate-Correlation-Id", "call_1"),
        ("Tidegate-Whatever", "x"),
        ("Host", "api.example.com"),
        ("Content-Length", "0"),
        ("Expect", "100-continue"),
        ("Forwarded", "for=10.0.0.1"),
        ("X-Forwarded-For", "10.0.0.1"),
        ("X-Forwarded-Anything", "x"),
        ("X-Real-IP", "10.0.0.1"),
        ("CF-Connecting-IP", "10.0.0.1"),
        ("X-Upstream-Https-Proxy", "http://127.0.0.1:1"),
        ("X-HTTP-Method-Override", "get"),
        ("X-Original-URL", "/admin"),
        ("X-Rewrite-URL", "/admin"),
    ] {
        assert_eq!(left(&[("X-A", "b"), (name, value)]), ["x-a"], "{name}");
    }
    for name in ["Authorization", "Cookie", "User-Agent", "Via", "X-Proxy-Id", "Idempotency-Key", "Sec-WebSocket-Key"] {
        assert_eq!(left(&[(name, "x")]), [name.to_ascii_lowercase()]);
    }
}

#[test]
fn a_request_that_means_another_method_than_was_judged_is_refused() {
    for name in ["X-HTTP-Method-Override", "x-http-method", "X-Method-Override"] {
        assert_eq!(clean(Method::GET, &[(name, "DELETE")]).unwrap_err(), Refusal::RequestMalformed, "{name}");
        assert_eq!(clean(Method::GET, &[(name, "GET"), (name, "PUT")]).unwrap_err(), Refusal::RequestMalformed);
        assert_eq!(clean(Method::GET, &[(name, "")]).unwrap_err(), Refusal::RequestMalformed);
    }
}

#[test]
fn what_would_be_read_as_a_field_that_was_judged_is_refused() {
    for name in [
        "X_HTTP_Method_Override",
        "X-HTTP_Method-Override",
        "X_HTTP_METHOD",
        "x-method_override",
        "X-HTTP-Method.Override",
        "X_Original_URL",
        "X-Rewrite_Url",
        "Content_Length",
        "transfer_encoding",
        "Proxy_Authorization",
        "Tidegate_Grant",
    ] {
        for value in ["GET", "DELETE", "0", "/admin"] {
            assert_eq!(clean(Method::GET, &[(name, value)]).unwrap_err(), Refusal::RequestMalformed, "{name}");
        }
    }
}

#[test]
fn what_would_be_read_as_a_field_that_stays_here_stays_here() {
    for name in [
        "Tidegate_Correlation_Id",
        "TIDEGATE-Correlation_Id",
        "tidegate.whatever",
        "X_Forwarded_For",
        "X-Forwarded_For",
        "x_forwarded_anything",
        "X_Real_IP",
        "CF_Connecting-IP",
        "Proxy_Connection",
        "Keep_Alive",
        "X_Upstream_Https_Proxy",
        "User_Agent",
        "Max_Forwards",
    ] {
        assert_eq!(left(&[("X-A", "b"), (name, "1")]), ["x-a"], "{name}");
    }
    let mut answer = map(&[("Tidegate_Outcome", "park"), ("Proxy_Status", "x"), ("x_request_id", "1")]);
    clean_response(&mut answer);
    assert_eq!(answer.keys().collect::<Vec<_>>(), ["x_request_id"]);
    // What is nobody's alias is the caller's own matter.
    for name in ["api_key", "X_Request_Id", "idempotency_key", "sec_websocket_key"] {
        assert_eq!(left(&[(name, "x")]), [name.to_ascii_lowercase()]);
    }
}

#[test]
fn a_method_that_shows_what_is_added_is_not_forwarded_in_any_case_of_letters() {
    let refused = |method: &[u8]| clean(Method::from_bytes(method).unwrap(), &[]).unwrap_err();
    for method in ["TRACE", "trace", "Trace", "TRACK", "track", "connect", "Connect", "CONNECT"] {
        assert_eq!(refused(method.as_bytes()), Refusal::RequestNotAllowed, "{method}");
    }
    let tunnel = Asked { way: Way::Connect, ..asked(Method::CONNECT) };
    assert!(clean_request(HeaderMap::new(), &tunnel, &names()).is_ok());
    for method in ["get", "TRACES", "OPTIONS", "PURGE"] {
        assert!(clean(Method::from_bytes(method.as_bytes()).unwrap(), &[]).is_ok(), "{method}");
    }
}

#[test]
fn what_a_caller_lists_goes_unless_it_is_not_its_own() {
    assert_eq!(left(&[("Connection", "X-Drop, close"), ("X-Drop", "1"), ("X-Keep", "2")]), ["x-keep"]);
    assert_eq!(left(&[("Connection", "X-A"), ("Connection", ",, x-b ,"), ("X-A", "1"), ("X-B", "2")]), [] as [&str; 0]);
    assert!(left(&[("Connection", "keep-alive, Upgrade, TE, HTTP2-Settings, Proxy-Authorization")]).is_empty());
    for listed in [
        "Host",
        "authorization",
        "Content-Length",
        "Cookie",
        "Via",
        "Tidegate-Correlation-Id",
        "close, Cache-Control",
        "X-Injected-Auth",
        "close;x",
        "\"close\"",
        "a b",
    ] {
        let lines = [("Connection", listed), ("Cookie", "a=b"), ("Host", "api.example.com")];
        assert_eq!(clean(Method::GET, &lines).unwrap_err(), Refusal::RequestMalformed, "{listed}");
    }
}

#[test]
fn host_names_the_destination() {
    for host in ["api.example.com", "API.example.com", "api.example.com:80", "api.example.com."] {
        assert!(clean(Method::GET, &[("Host", host)]).is_ok(), "{host}");
    }
    for host in ["other.example.com", "127.0.0.1", "api.example.com:443", "", "user@api.example.com", "a b"] {
        assert_eq!(clean(Method::GET, &[("Host", host)]).unwrap_err(), Refusal::HostMismatch, "{host}");
    }
    let twice = [("Host", "api.example.com"), ("Host", "api.example.com")];
    assert_eq!(clean(Method::GET, &twice).unwrap_err(), Refusal::RequestMalformed);
}

#[test]
fn messages_with_two_ends_are_refused() {
    for lines in [
        &[("Content-Length", "4"), ("Transfer-Encoding", "chunked")][..],
        &[("Content-Length", "4"), ("Content-Length", "4")],
        &[("Content-Length", "4, 4")],
        &[("Content-Length", "+4")],
        &[("Content-Length", "")],
        &[("Transfer-Encoding", "chunked, identity")],
        &[("Transfer-Encoding", "gzip, chunked")],
        &[("Transfer-Encoding", "chunked"), ("Transfer-Encoding", "chunked")],
        &[("Transfer-Encoding", "xchunked")],
        &[("Expect", "200-ok")],
    ] {
        assert_eq!(clean(Method::POST, lines).unwrap_err(), Refusal::RequestMalformed, "{lines:?}");
    }
}

#[test]
fn our_own_name_in_via_is_a_loop() {
    for via in [
        "1.1 tidegate",
        "1.1 TIDEGATE",
        "HTTP/1.1 tidegate",
        "1.0 fred, 2 tidegate (comment), 1.1 other",
        "1.1 other (a \\) b), 1.1 tidegate",
        "1.1 other (unclosed, 1.1 tidegate",
        "1.1 other (a (b) c) , 1.1\ttidegate",
    ] {
        assert_eq!(clean(Method::GET, &[("Via", via)]).unwrap_err(), Refusal::LoopDetected, "{via}");
        let lines = [("Via", "1.1 first"), ("Via", via)];
        assert_eq!(clean(Method::GET, &lines).unwrap_err(), Refusal::LoopDetected, "{via}");
    }
    for via in ["1.1 nottidegate", "1.1 tidegate.example.com", "1.1 other (tidegate)", "1.1 other (a, 1.1 tidegate, b)"]
    {
        assert!(clean(Method::GET, &[("Via", via)]).is_ok(), "{via}");
    }
}

#[test]
fn proxies_on_the_way_are_counted() {
    let forwards = |count: &str| {
        clean(Method::OPTIONS, &[("Max-Forwards", count)]).map(|cleaned| cleaned.headers["max-forwards"].clone())
    };
    assert_eq!(forwards("0").unwrap_err(), Refusal::RequestNotAllowed);
    assert_eq!(forwards("1").unwrap(), "0");
    assert_eq!(forwards("99999999999999999999").unwrap(), (u32::MAX - 1).to_string());
    assert_eq!(forwards("-1").unwrap_err(), Refusal::RequestMalformed);
    assert!(clean(Method::GET, &[("Max-Forwards", "0")]).is_ok());
}

#[test]
fn only_a_websocket_is_an_upgrade() {
    let upgrade = |method, lines: &[(&str, &str)]| clean(method, lines).unwrap().upgrade;
    let websocket = [("Connection", "keep-alive, Upgrade"), ("Upgrade", "WebSocket"), ("Sec-WebSocket-Key", "x")];
    assert!(upgrade(Method::GET, &websocket));
    assert_eq!(left(&websocket), ["sec-websocket-key"]);
    for lines in [
        &[("Upgrade", "websocket")][..],
        &[("Connection", "Upgrade"), ("Upgrade", "foo")],
        &[("Connection", "Upgrade"), ("Upgrade", "websocket, h2c")],
        &[("Connection", "Upgrade"), ("Upgrade", "websocket"), ("Upgrade", "h2c")],
        &[("Connection", "Upgrade"), ("Upgrade", "websocket"), ("Content-Length", "5")],
        &[("Connection", "Upgrade"), ("Upgrade", "websocket"), ("Transfer-Encoding", "chunked")],
    ] {
        assert!(!upgrade(Method::GET, lines), "{lines:?}");
    }
    assert!(!upgrade(Method::POST, &websocket));
}

#[test]
fn a_provider_cannot_speak_for_us() {
    let mut headers = map(&[
        ("Tidegate-Outcome", "park"),
        ("Tidegate-Send-State", "not-sent"),
        ("Proxy-Status", "tidegate; error=dns_error"),
        ("Proxy-Authenticate", "Basic"),
        ("Connection", "X-Drop, Content-Type, Set-Cookie"),
        ("X-Drop", "1"),
        ("Keep-Alive", "timeout=5"),
        ("Upgrade", "h2c"),
        ("Content-Type", "text/plain"),
        ("Set-Cookie", "a=b"),
        ("Set-Cookie", "c=d"),
        ("Location", "/x"),
    ]);
    clean_response(&mut headers);
    let mut left: Vec<_> = headers.keys().map(HeaderName::as_str).collect();
    left.sort_unstable();
    assert_eq!(left, ["content-type", "location", "set-cookie"]);
    assert_eq!(headers.get_all("set-cookie").iter().count(), 2);
}

#[test]
fn we_say_who_we_are() {
    let id = CorrelationId::new(0, domain::NodeId(7), [1; 8]);
    let introduced = |lines, connector| {
        let mut headers = map(lines);
        names().introduce(&mut headers, Version::HTTP_2, &id, connector);
        assert_eq!(headers["tidegate-correlation-id"], id.to_string());
        (headers[USER_AGENT].to_str().unwrap().to_owned(), headers)
    };
    let (agent, headers) = introduced(&[("Via", "1.1 first"), ("User-Agent", "curl/8")], None);
    assert_eq!((agent.as_str(), headers.get_all(VIA).iter().count()), ("curl/8", 2));
    assert_eq!(headers.get_all(VIA).iter().next_back().unwrap(), "2 tidegate");
    assert!(names().came_through_here(&headers));
    assert_eq!(introduced(&[], None).0, "Tidegate (+https://example.com/egress)");
    let (agent, _) = introduced(&[("User-Agent", "stripe/1")], Some("stripe"));
    assert_eq!(agent, "stripe/1 Tidegate (stripe; +https://example.com/egress)");
    assert!(Names::new("a b", None).is_err() && Names::new("", None).is_err() && Names::new("a", Some("a)b")).is_err());
}

fn lines() -> impl Strategy<Value = Vec<(String, String)>> {
    let name = prop_oneof![
        Just("Connection".to_owned()),
        Just("X-A".to_owned()),
        Just("Upgrade".to_owned()),
        "(Proxy[-_]|proxy-|Tidegate[-_]|X[-_]Forwarded[-_]|x-)[A-Za-z]{1,4}",
        "[A-Za-z]{1,8}",
    ];
    let value = prop_oneof!["[ -~]{0,12}", "(close|X-A|keep-alive|Upgrade|websocket)(, ?(x-a|TE))?"];
    prop::collection::vec((name, value), 0..8)
}

proptest! {
    /// Cleaned twice is cleaned once, whatever there was; and nothing of the connection or of ours is left.
    #[test]
    fn cleaning_is_done_when_it_is_done(lines in lines()) {
        let mut headers = HeaderMap::new();
        for (name, value) in &lines {
            headers.append(HeaderName::from_bytes(name.as_bytes()).unwrap(), HeaderValue::from_str(value).unwrap());
        }
        let mut answer = headers.clone();
        clean_response(&mut answer);
        let again = { let mut again = answer.clone(); clean_response(&mut again); again };
        prop_assert_eq!(&again, &answer);
        let is_out = |name: &str| is_of_connection(name) || is_ours(name);
        prop_assert!(answer.keys().all(|name| !is_out(name.as_str()) && !is_out(&read_as(name.as_str()))));
        if let Ok(cleaned) = clean_request(headers, &asked(Method::GET), &names()) {
            let again = clean_request(cleaned.headers.clone(), &asked(Method::GET), &names()).unwrap();
            prop_assert_eq!(&again.headers, &cleaned.headers);
            let stays = |name: &str| is_of_connection(name) || stays_here(name) || is_about_addresses(name);
            prop_assert!(cleaned.headers.keys().all(|name| !stays(&read_as(name.as_str()))));
        }
    }
}
