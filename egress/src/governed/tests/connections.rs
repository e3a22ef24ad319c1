//! What a connection makes of paths, queries and fields, and where its credential goes.

use std::sync::Arc;

use config::CredentialKind;
use http::header::AUTHORIZATION;
use http::{HeaderMap, Method};
use outbound::Target;

use super::harness::*;
use crate::governed::{
    Attached, Connection, ConnectionFault, CredentialFault, Credentials, Head, PathRefused, StaticCredentials,
};
use crate::{Asked, Entry, OwnTls, Way};

fn path(base_url: &str, rest: &str) -> Result<String, PathRefused> {
    let connection = connection(&provider(), base_url, None);
    connection.ask(Method::GET, rest).map(|asked| asked.path_and_query.into())
}

#[test]
fn paths_go_behind_the_base() {
    for (base, rest, asked) in [
        ("https://api.provider.example", "", "/"),
        ("https://api.provider.example/", "", "/"),
        ("https://api.provider.example", "/", "/"),
        ("https://api.provider.example", "?a=b", "/?a=b"),
        ("https://api.provider.example/v1", "", "/v1"),
        ("https://api.provider.example/v1/", "/charges", "/v1/charges"),
        ("https://api.provider.example/v1", "/charges/ch_1?a=b&c=%2F..%2F", "/v1/charges/ch_1?a=b&c=%2F..%2F"),
        ("https://api.provider.example/v1", "?a=b?c", "/v1?a=b?c"),
        ("https://api.provider.example/v1", "/caf%C3%A9/100%25/a:b@c", "/v1/caf%C3%A9/100%25/a:b@c"),
    ] {
        assert_eq!(path(base, rest).unwrap(), asked, "{base} {rest}");
    }
}

#[test]
fn paths_with_two_readings_are_refused() {
    for rest in [
        "/..",
        "/../admin",
        "/a/../../admin",
        "/./a",
        "/.",
        "//evil.test/",
        "/a//b",
        "/\\evil.test",
        "/a\\..\\b",
        "/%2e%2e/admin",
        "/%2E./admin",
        "/a%2f..%2fb",
        "/a%2Fb",
        "/a%5cb",
        "/a%5C..%5Cb",
        "/%252e%252e/admin",
        "/a%252fb",
        "/a%255cb",
        "/%25252e%25252e/",
        "/a%00",
        "/a%0d%0aX-A:%20b",
        "/a%7f",
        "/..;/admin",
        "/..;a=b/admin",
        "/%c0%ae%c0%ae/admin",
        "/%u002e%u002e/admin",
        "/a%",
        "/a%zz",
        "/a b",
        "/a\tb",
        "/a\r\nb",
        "/a\0",
        "/ä",
        "/a#b",
    ] {
        assert_eq!(path("https://api.provider.example/v1", rest), Err(PathRefused::Unclear), "{rest:?}");
    }
    for rest in ["@evil.test/", ".evil.test/", ":8443/", "a", "evil.test"] {
        assert_eq!(path("https://api.provider.example", rest), Err(PathRefused::Start), "{rest:?}");
    }
    for rest in ["?a b", "?a\r\nb", "?a#b", "?ä", "?a\\b"] {
        assert_eq!(path("https://api.provider.example", rest), Err(PathRefused::Query), "{rest:?}");
    }
}

#[test]
fn a_connection_is_to_one_of_its_connectors_hosts() {
    let made = |base_url: &str, credential: Option<&config::Credential>| {
        let provider = provider();
        Connection::new(&configured(&provider, base_url), credential, &provider).map(|_| ())
    };
    assert_eq!(made("https://api.provider.example/v1", None), Ok(()));
    assert_eq!(made("https://API.provider.example:8443", None), Ok(()));
    for other in ["https://provider.example", "https://api.provider.example.evil.test", "https://10.0.0.1"] {
        assert_eq!(made(other, None), Err(ConnectionFault::Host), "{other}");
    }
    for path in ["/a?b=c", "/../a", "//a", "/%2e%2e"] {
        let base_url = format!("https://api.provider.example{path}");
        assert_eq!(made(&base_url, None), Err(ConnectionFault::BasePath), "{base_url}");
    }
    assert!(matches!(made("https://u@api.provider.example", None), Err(ConnectionFault::BaseUrl(_))));
    let bearer = credential(CredentialKind::Bearer, Some("s3cr3t"));
    assert_eq!(made("http://api.provider.example", None), Ok(()));
    assert_eq!(made("http://api.provider.example", Some(&bearer)), Err(ConnectionFault::Plaintext));
}

#[test]
fn fields_travel_that_the_connector_lists() {
    let connection = connection(&provider(), "https://api.provider.example", None);
    let mut headers = map(&[
        ("Accept", "x"),
        ("Content-Type", "x"),
        ("User-Agent", "x"),
        ("Via", "x"),
        ("Idempotency-Key", "x"),
        ("Provider-Version", "x"),
        ("X-Api-Key", "x"),
        ("Authorization", "Bearer grant"),
        ("Cookie", "x"),
        ("Origin", "x"),
        ("Referer", "x"),
        ("X-Secret", "x"),
        ("Sec-WebSocket-Key", "x"),
    ]);
    let mut upgrade = headers.clone();
    connection.admit_request(&mut headers, false);
    let mut left: Vec<_> = headers.keys().map(http::HeaderName::as_str).collect();
    left.sort_unstable();
    assert_eq!(
        left,
        ["accept", "content-type", "idempotency-key", "provider-version", "user-agent", "via", "x-api-key"]
    );
    connection.admit_request(&mut upgrade, true);
    assert!(upgrade.contains_key("sec-websocket-key") && upgrade.contains_key("origin"));
    assert!(!upgrade.contains_key("authorization"));

    let mut headers = map(&[
        ("Content-Type", "x"),
        ("Content-Length", "1"),
        ("Location", "/x"),
        ("Provider-Trace", "x"),
        ("Set-Cookie", "x"),
        ("Server", "x"),
        ("Strict-Transport-Security", "x"),
        ("Alt-Svc", "h3=\":443\""),
        ("Refresh", "0;url=http://127.0.0.1/"),
    ]);
    connection.admit_response(&mut headers, false);
    let mut left: Vec<_> = headers.keys().map(http::HeaderName::as_str).collect();
    left.sort_unstable();
    assert_eq!(left, ["content-length", "content-type", "location", "provider-trace"]);
}

#[test]
fn a_provider_names_a_request_and_never_our_credential() {
    const NAMING: &str = r#"
        connector = "naming"
        title = "Naming"
        checked = "2026-11-29"
        hosts = ["api.provider.example"]
        auth = { slot = "bearer" }
        correlation_headers = ["Request-Id", "X-Trace", "X-Other"]
    "#;
    let bearer = credential(CredentialKind::Bearer, Some("s3cr3t"));
    let connection = connection(&connector("naming", NAMING), "https://api.provider.example", Some(&bearer));
    let answer = map(&[("Request-Id", "req_1"), ("Request-Id", "req_2"), ("X-Trace", "key=s3cr3t"), ("X-Else", "x")]);
    assert_eq!(connection.provider_ids(&answer).collect::<Vec<_>>(), [("request-id", &b"req_1"[..])]);
    let own = credential(CredentialKind::Header { name: "x-trace".into(), prefix: "".into() }, Some("s3cr3t"));
    let connection = self::connection(&connector("naming", NAMING), "https://api.provider.example", Some(&own));
    let answer = map(&[("Request-Id", "req_1"), ("X-Trace", "another one's")]);
    assert_eq!(connection.provider_ids(&answer).collect::<Vec<_>>(), [("request-id", &b"req_1"[..])]);
}

#[test]
fn nothing_stands_beside_the_credential_that_may_be_read_as_it() {
    const KEYED: &str = r#"
        connector = "keyed"
        title = "Keyed"
        checked = "2026-11-29"
        hosts = ["api.provider.example"]
        auth = { slot = "header", header = "X-Api-Key" }
        headers = { request = ["*"] }
    "#;
    let own = CredentialKind::Header { name: "x_own-token".into(), prefix: "".into() };
    let own = credential(own, Some("s3cr3t"));
    let connection = connection(&connector("keyed", KEYED), "https://api.provider.example", Some(&own));
    let mut headers = map(&[("X-Api-Key", "x"), ("X_Api_Key", "x"), ("X-Own-Token", "x"), ("X_Other", "x")]);
    connection.admit_request(&mut headers, false);
    assert_eq!(headers.keys().collect::<Vec<_>>(), ["x_other"]);
    for (name, poses) in [
        ("X-Api-Key", false),
        ("x_own-token", false),
        ("X_Api_Key", true),
        ("X-Own-Token", true),
        ("X.Own.Token", true),
        ("X_Other", false),
    ] {
        assert_eq!(connection.poses_as_credential(name), poses, "{name}");
    }
}

async fn attach(connection: &Connection, url: &str, headers: HeaderMap) -> (Result<Attached, CredentialFault>, Head) {
    let target = Target::parse(url).unwrap();
    let asked = Asked {
        way: Way::Governed,
        method: Method::GET,
        scheme: target.scheme,
        authority: target.authority,
        path_and_query: target.path_and_query.into(),
    };
    let mut head = Head { headers, query: None };
    let attached = StaticCredentials.attach(connection, &asked, &mut head).await;
    (attached, head)
}

const HERE: &str = "https://api.provider.example/x";

#[tokio::test]
async fn each_kind_goes_into_its_place_and_replaces_what_was_there() {
    let with =
        |kind, value| connection(&provider(), "https://api.provider.example", Some(&credential(kind, Some(value))));
    let header = |name: &str, prefix: &str| CredentialKind::Header { name: name.into(), prefix: prefix.into() };
    for (kind, value, name, becomes) in [
        (CredentialKind::Bearer, "s3cr3t", "authorization", "Bearer s3cr3t"),
        (header("x-api-key", ""), "s3cr3t", "x-api-key", "s3cr3t"),
        (header("authorization", "Token "), "s3cr3t", "authorization", "Token s3cr3t"),
        (CredentialKind::Basic { username: Some("AC1".into()) }, "s3cr3t", "authorization", "Basic QUMxOnMzY3IzdA=="),
        (CredentialKind::Basic { username: None }, "s3cr3t:", "authorization", "Basic czNjcjN0Og=="),
    ] {
        let connection = with(kind, value);
        let mut callers = HeaderMap::new();
        callers.append(http::HeaderName::from_static(name), "mine".parse().unwrap());
        callers.append(http::HeaderName::from_static(name), "mine too".parse().unwrap());
        let (attached, head) = attach(&connection, HERE, callers).await;
        assert_eq!(attached, Ok(Attached::Yes));
        let values: Vec<_> = head.headers.get_all(name).iter().collect();
        assert_eq!(values, [becomes]);
        assert!(values[0].is_sensitive());
        assert!(!format!("{head:?} {connection:?}").contains("s3cr3t"));
        assert!(!format!("{head:?}").contains("QUMx"));
    }
    let query = with(CredentialKind::Query { parameter: "api key".into() }, "a&b=c/ä");
    let (attached, head) = attach(&query, HERE, HeaderMap::new()).await;
    assert_eq!(attached, Ok(Attached::Yes));
    assert_eq!(head.query.as_ref().unwrap().expose(), b"api%20key=a%26b%3Dc%2F%C3%A4");
    assert!(!format!("{head:?}").contains("%26"));
}

#[tokio::test]
async fn it_goes_nowhere_but_to_its_hosts() {
    let bearer = credential(CredentialKind::Bearer, Some("s3cr3t"));
    let connection = connection(&provider(), "https://api.provider.example", Some(&bearer));
    for (url, attached) in [
        (HERE, Attached::Yes),
        ("https://files.provider.example/", Attached::Yes),
        ("http://api.provider.example/", Attached::Elsewhere),
        ("http://api.provider.example:443/", Attached::Elsewhere),
        ("https://api.provider.example:8443/", Attached::Elsewhere),
        ("https://sub.api.provider.example/", Attached::Elsewhere),
        ("https://provider.example/", Attached::Elsewhere),
        ("https://api.provider.example.evil.test/", Attached::Elsewhere),
        ("https://a.elsewhere.example/", Attached::Elsewhere),
    ] {
        let (result, head) = attach(&connection, url, HeaderMap::new()).await;
        assert_eq!(result, Ok(attached), "{url}");
        assert_eq!(head.headers.contains_key(AUTHORIZATION), attached == Attached::Yes, "{url}");
    }
}

#[tokio::test]
async fn one_that_cannot_be_had_is_no_reason_to_go_without() {
    for (value, fault) in [(None, CredentialFault::Unavailable), (Some("a\r\nb"), CredentialFault::Unfit)] {
        let bearer = credential(CredentialKind::Bearer, value);
        let connection = connection(&provider(), "https://api.provider.example", Some(&bearer));
        let (result, head) = attach(&connection, HERE, HeaderMap::new()).await;
        assert_eq!(result, Err(fault));
        assert!(head.headers.is_empty());
    }
}

#[test]
fn a_caller_cannot_set_the_parameter_of_the_credential() {
    let key = credential(CredentialKind::Query { parameter: "api_key".into() }, Some("s3cr3t"));
    let connection = connection(&provider(), "https://api.provider.example", Some(&key));
    let ask = |rest: &str| connection.ask(Method::GET, rest).map(|asked| asked.path_and_query.to_string());
    assert_eq!(ask("/x?a=b&api_key=grant&c=d").unwrap(), "/x?a=b&c=d");
    assert_eq!(ask("/x?api%5Fkey=grant&api_key").unwrap(), "/x");
    assert_eq!(ask("/x?my_api_key=1&api_keys=2&q=api_key").unwrap(), "/x?my_api_key=1&api_keys=2&q=api_key");
    for query in [
        "API_KEY=1",
        "a=b;api_key=1",
        "api_key[]=1",
        "api.key=1",
        "api+key=1",
        "api%20key=1",
        "api_key%00=1",
        "%20api_key=1",
    ] {
        assert_eq!(ask(&format!("/x?{query}")), Err(PathRefused::Credential), "{query}");
    }
}

#[test]
fn a_place_that_shows_the_credential_is_not_told() {
    let key = credential(CredentialKind::Query { parameter: "api_key".into() }, Some("s3 cr/t"));
    let connection = connection(&provider(), "https://api.provider.example", Some(&key));
    for (location, stays) in [
        ("https://api.provider.example/x/?api_key=s3%20cr%2Ft", false),
        ("https://api.provider.example/x/?api_key=s3 cr/t", false),
        ("https://api.provider.example/x/", true),
    ] {
        let mut headers = map(&[("Location", location)]);
        connection.admit_response(&mut headers, false);
        assert_eq!(headers.contains_key("location"), stays, "{location}");
    }
}

/// A connection's own roots hold for every host that its credential goes to; its identity is for its own place, and not
/// behind a hop without a credential.
#[test]
fn own_tls_is_for_where_the_credential_goes() {
    let client = || crate::forward::testing::tls(&["a.example"], &[]).0;
    let own = OwnTls { identified: client(), anonymous: client() };
    let connection = Arc::new(connection(&provider(), "https://api.provider.example", None));
    let entry = Entry { connection, tls: Some(own.clone()) };
    let asked = |url: &str| {
        let Target { scheme, authority, path_and_query } = Target::parse(url).unwrap();
        Asked { way: Way::Governed, method: Method::GET, scheme, authority, path_and_query: path_and_query.into() }
    };
    for (url, trusted, untrusted) in [
        ("https://api.provider.example/", Some(&own.identified), Some(&own.anonymous)),
        ("https://files.provider.example/", Some(&own.anonymous), Some(&own.anonymous)),
        ("https://files.provider.example:8443/", None, None),
        ("https://a.elsewhere.example/", None, None),
    ] {
        assert_eq!(entry.tls_for(&asked(url), true), trusted, "{url}");
        assert_eq!(entry.tls_for(&asked(url), false), untrusted, "{url}");
    }
}
