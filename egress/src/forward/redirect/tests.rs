use outbound::{Authority, Target};
use proptest::prelude::*;

use super::*;
use crate::Way;

fn asked(method: Method, url: &str) -> Asked {
    let target = Target::parse(url).unwrap();
    Asked {
        way: Way::Governed,
        method,
        scheme: target.scheme,
        authority: target.authority,
        path_and_query: target.path_and_query.into(),
    }
}

fn get(url: &str) -> Asked {
    asked(Method::GET, url)
}

fn patterns(hosts: &[&str]) -> Arc<[HostPattern]> {
    hosts.iter().map(|host| HostPattern::parse(host).unwrap()).collect()
}

fn rule() -> RedirectRule {
    RedirectRule {
        max: 3,
        hosts: patterns(&["api.example.com", "files.example.com"]),
        elsewhere: patterns(&["*.elsewhere.example", "api.example.org"]),
        allows_downgrade: false,
    }
}

fn headers(locations: &[&str]) -> HeaderMap {
    locations.iter().map(|text| (http::header::LOCATION, HeaderValue::from_str(text).unwrap())).collect()
}

fn url(asked: &Asked) -> String {
    let authority = asked.authority.to_string();
    let authority = authority.trim_end_matches(&format!(":{}", asked.scheme.default_port()));
    format!("{}://{authority}{}", asked.scheme.as_str(), asked.path_and_query)
}

fn step(from: &Asked, status: u16, location: &str, body: SentBody) -> Result<Step, RedirectRefused> {
    let status = StatusCode::from_u16(status).unwrap();
    Trail::new(rule(), from).next(from, status, &headers(&[location]), body)
}

fn next(from: &Asked, status: u16, location: &str, body: SentBody) -> NextHop {
    match step(from, status, location, body).unwrap() {
        Step::Next(next) => next,
        other @ (Step::Answer | Step::BodyIsGone) => panic!("{other:?}"),
    }
}

#[test]
fn references_are_read_as_everybody_reads_them() {
    let from = get("https://api.example.com/v1/a/b?x=1");
    for (location, leads) in [
        ("https://files.example.com/x", "https://files.example.com/x"),
        ("HTTPS://FILES.example.com./x", "https://files.example.com/x"),
        ("https://files.example.com", "https://files.example.com/"),
        ("https://files.example.com?a=b", "https://files.example.com/?a=b"),
        ("https://files.example.com:443/x", "https://files.example.com/x"),
        ("https://files.example.com:8443/x", "https://files.example.com:8443/x"),
        ("//files.example.com/x", "https://files.example.com/x"),
        ("/v2", "https://api.example.com/v2"),
        ("/v2?y=2#part", "https://api.example.com/v2?y=2"),
        ("?y=2", "https://api.example.com/v1/a/b?y=2"),
        ("c", "https://api.example.com/v1/a/c"),
        ("./c/./d", "https://api.example.com/v1/a/c/d"),
        ("../c", "https://api.example.com/v1/c"),
        ("../../../../c/", "https://api.example.com/c/"),
        ("/x/../y/..", "https://api.example.com/"),
        ("/x/.", "https://api.example.com/x/"),
        ("https://files.example.com/a/../b", "https://files.example.com/b"),
        ("c?u=http://other.example/..", "https://api.example.com/v1/a/c?u=http://other.example/.."),
        ("/a b?c d", "https://api.example.com/a%20b?c%20d"),
        ("/%0d%0aX:%20y", "https://api.example.com/%0d%0aX:%20y"),
        ("/a%2Fb//c", "https://api.example.com/a%2Fb//c"),
        ("/...", "https://api.example.com/..."),
    ] {
        assert_eq!(url(&next(&from, 302, location, SentBody::Empty).asked), leads, "{location}");
    }
    let root = asked(Method::GET, "https://api.example.com");
    for (location, leads) in [("c", "https://api.example.com/c"), ("?y", "https://api.example.com/?y")] {
        assert_eq!(url(&next(&root, 302, location, SentBody::Empty).asked), leads, "{location}");
    }
}

#[test]
fn references_that_programs_read_differently_lead_nowhere() {
    let from = get("https://api.example.com/v1/a");
    for location in [
        "",
        " ",
        "#part",
        "ftp://api.example.com/",
        "javascript:alert(1)",
        "data:text/plain,x",
        "file:///etc/passwd",
        "gopher://api.example.com/",
        "https:/api.example.com/",
        "https:api.example.com",
        "https:///api.example.com/",
        "///api.example.com/",
        "https://user@api.example.com/",
        "https://user:pw@api.example.com/",
        "https://api.example.com@evil.test/",
        "https://api.example.com\\@evil.test/",
        "\\\\evil.test/",
        "/\\evil.test/",
        "https://api.example.com:0/",
        "https://api.example.com:/",
        "https://api.example.com:99999/",
        "https://api.example.com :443/",
        "https://127.1/",
        "https://0x7f.1/",
        "https://[::1%25eth0]/",
        "https://%61pi.example.com/",
        "https://ap\ti.example.com/",
        "/a\tb",
        "/%2e%2e/x",
        "/.%2E/x",
        "/..;x/y",
        "/a/%2e",
    ] {
        let result = step(&from, 302, location, SentBody::Empty);
        assert!(matches!(result, Err(RedirectRefused::Location(_))), "{location:?}: {result:?}");
    }
    let raw = HeaderValue::from_bytes("/ä".as_bytes()).unwrap();
    let mut headers = HeaderMap::new();
    headers.insert(http::header::LOCATION, raw);
    let result = Trail::new(rule(), &from).next(&from, StatusCode::FOUND, &headers, SentBody::Empty);
    assert_eq!(result, Err(RedirectRefused::Location(LocationFault::Character)));
    let long = format!("/{}", "a".repeat(9_000));
    assert_eq!(step(&from, 302, &long, SentBody::Empty), Err(RedirectRefused::Location(LocationFault::TooLong)));
}

#[test]
fn what_is_no_redirect_is_the_answer() {
    let from = get("https://api.example.com/v1/a");
    for status in [200, 201, 204, 300, 304, 305, 306, 399, 400, 500] {
        assert_eq!(step(&from, status, "/x", SentBody::Empty), Ok(Step::Answer), "{status}");
    }
    let nowhere = Trail::new(rule(), &from).next(&from, StatusCode::FOUND, &HeaderMap::new(), SentBody::Empty);
    assert_eq!(nowhere, Ok(Step::Answer));
    let two = headers(&["/x", "/x"]);
    let two = Trail::new(rule(), &from).next(&from, StatusCode::FOUND, &two, SentBody::Empty);
    assert_eq!(two, Err(RedirectRefused::TwoLocations));
}

#[test]
fn methods_and_bodies_follow_the_standard() {
    use Method as M;
    let query = M::from_bytes(b"QUERY").unwrap();
    for (status, method, becomes, keeps_body) in [
        (301, M::POST, M::GET, false),
        (302, M::POST, M::GET, false),
        (303, M::POST, M::GET, false),
        (303, M::PUT, M::GET, false),
        (303, M::GET, M::GET, false),
        (303, M::HEAD, M::HEAD, true),
        (301, M::PUT, M::PUT, true),
        (302, M::DELETE, M::DELETE, true),
        (302, M::HEAD, M::HEAD, true),
        (302, query.clone(), query, true),
        (307, M::POST, M::POST, true),
        (308, M::PATCH, M::PATCH, true),
    ] {
        let from = asked(method, "https://api.example.com/v1/a");
        let there = next(&from, status, "/x", SentBody::AtHand);
        assert_eq!((&there.asked.method, there.keeps_body), (&becomes, keeps_body), "{status} {}", from.method);
        let gone = step(&from, status, "/x", SentBody::Gone).unwrap();
        assert_eq!(gone == Step::BodyIsGone, keeps_body, "{status} {}", from.method);
        assert!(!next(&from, status, "/x", SentBody::Empty).keeps_body);
    }
}

#[test]
fn it_ends() {
    let from = get("https://api.example.com/0");
    let mut trail = Trail::new(rule(), &from);
    let mut here = from;
    for number in 1..=3 {
        let location = headers(&[&format!("/{number}")]);
        match trail.next(&here, StatusCode::FOUND, &location, SentBody::Empty) {
            Ok(Step::Next(next)) => here = next.asked,
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(
        trail.next(&here, StatusCode::FOUND, &headers(&["/4"]), SentBody::Empty),
        Err(RedirectRefused::TooMany(3))
    );
    let from = get("https://api.example.com/0");
    for location in ["/0", "", "https://API.example.com:443/0", "/x/../0", "0"] {
        let result = step(&from, 302, location, SentBody::Empty);
        assert!(
            matches!(result, Err(RedirectRefused::Loop | RedirectRefused::Location(LocationFault::Empty))),
            "{location}: {result:?}"
        );
    }
    // The same place asked in another way is none: POST, then GET.
    let post = asked(Method::POST, "https://api.example.com/0");
    assert!(step(&post, 303, "/0", SentBody::AtHand).is_ok());
}

#[test]
fn it_does_not_step_down_or_go_where_nobody_said() {
    let from = get("https://api.example.com/0");
    assert_eq!(step(&from, 302, "http://api.example.com/0", SentBody::Empty), Err(RedirectRefused::Downgrade));
    assert!(step(&get("http://api.example.com/0"), 302, "https://api.example.com/0", SentBody::Empty).is_ok());
    for location in
        ["https://evil.test/", "https://sub.api.example.com/", "https://elsewhere.example/", "https://93.184.216.34/"]
    {
        let Err(RedirectRefused::Host(place)) = step(&from, 302, location, SentBody::Empty) else {
            panic!("{location}")
        };
        // The record is all that an operator has to see where it led.
        let host = location.trim_start_matches("https://").trim_end_matches('/');
        assert_eq!(
            RedirectRefused::Host(place).to_string(),
            format!("it leads to {host}:443, a host that the connector does not name")
        );
    }
    let mut rule = rule();
    rule.allows_downgrade = true;
    let mut trail = Trail::new(rule, &from);
    let down = headers(&["http://api.example.com/0"]);
    assert!(matches!(trail.next(&from, StatusCode::FOUND, &down, SentBody::Empty), Ok(Step::Next(_))));
    assert!(!trail.is_trusted());
}

#[test]
fn a_body_goes_where_the_credential_would() {
    let from = asked(Method::POST, "https://api.example.com/0");
    for (location, may) in [
        ("/x", true),
        ("https://files.example.com/x", true),
        ("https://files.example.com:8443/x", false),
        ("https://api.elsewhere.example/x", false),
    ] {
        let result = step(&from, 307, location, SentBody::AtHand);
        assert_eq!(result.is_ok(), may, "{location}");
        if !may {
            assert_eq!(result, Err(RedirectRefused::BodyElsewhere));
            assert!(step(&from, 307, location, SentBody::Empty).is_ok(), "{location}");
            assert!(step(&from, 303, location, SentBody::AtHand).is_ok(), "{location}");
        }
    }
    // An odd GET with a body is no exception.
    let get = get("https://api.example.com/0");
    assert_eq!(
        step(&get, 302, "https://api.elsewhere.example/x", SentBody::AtHand),
        Err(RedirectRefused::BodyElsewhere)
    );
}

fn fields() -> HeaderMap {
    let names = [
        "accept",
        "accept-language",
        "authorization",
        "content-type",
        "content-md5",
        "cookie",
        "idempotency-key",
        "origin",
        "referer",
        "stripe-account",
        "user-agent",
        "via",
        "x-api-key",
    ];
    names.map(|name| (HeaderName::from_static(name), HeaderValue::from_static("x"))).into_iter().collect()
}

fn left(next: &NextHop, mut fields: HeaderMap) -> Vec<String> {
    next.narrow(&mut fields);
    let mut left: Vec<_> = fields.keys().map(ToString::to_string).collect();
    left.sort_unstable();
    left
}

#[test]
fn another_origin_gets_what_says_nothing() {
    let from = asked(Method::POST, "https://api.example.com/0");
    let same = next(&from, 307, "/x", SentBody::AtHand);
    assert_eq!(left(&same, fields()).len(), fields().len());
    let same_without = next(&from, 303, "/x", SentBody::AtHand);
    assert_eq!(left(&same_without, fields()).len(), fields().len() - 2);
    for location in [
        "https://files.example.com/x",
        "https://api.example.com:8443/x",
        "https://a.elsewhere.example/x",
        "https://api.example.org/x",
    ] {
        let other = next(&from, 303, location, SentBody::AtHand);
        assert!(!other.is_same_origin);
        assert_eq!(left(&other, fields()), ["accept", "accept-language", "user-agent", "via"], "{location}");
    }
    let other = next(&from, 307, "https://files.example.com/x", SentBody::AtHand);
    assert_eq!(left(&other, fields()), ["accept", "accept-language", "content-type", "user-agent", "via"]);
}

/// CVE-2024-45336: a.example redirects to b.example, which redirects to itself, and the credential is back.
#[test]
fn what_was_left_behind_does_not_come_back() {
    let mut here = get("https://api.example.com/0");
    let mut trail = Trail::new(rule(), &here);
    assert!(trail.is_trusted());
    let mut fields = fields();
    for (location, is_trusted) in [
        ("https://files.example.com/1", true),
        ("https://a.elsewhere.example/2", false),
        ("https://api.example.com/3", false),
    ] {
        let Ok(Step::Next(next)) = trail.next(&here, StatusCode::FOUND, &headers(&[location]), SentBody::Empty) else {
            panic!("{location}");
        };
        next.narrow(&mut fields);
        here = next.asked;
        assert_eq!(trail.is_trusted(), is_trusted, "{location}");
        assert!(!fields.contains_key("authorization") && !fields.contains_key("x-api-key"));
    }
    // Another port of a host that has it is not where it is for.
    let first = get("https://api.example.com/0");
    let mut trail = Trail::new(rule(), &first);
    let other_port = headers(&["https://api.example.com:8443/x"]);
    assert!(trail.next(&first, StatusCode::FOUND, &other_port, SentBody::Empty).is_ok());
    assert!(!trail.is_trusted());
    assert!(!Trail::new(rule(), &get("http://api.example.com/0")).is_trusted());
}

#[test]
fn hops_are_told_without_queries() {
    let from = get("https://api.example.com/a?key=secret");
    let failed = |detail: &str| HopEnd::Refused { refusal: crate::Refusal::AddressNotAllowed, detail: detail.into() };
    let one = HopRecord::new(0, &from, true, failed("10.0.0.1 is internal"));
    let two = HopRecord::new(1, &get("http://[2606:4700::1]:8080/\"x"), false, failed(""));
    let field = hops_field(&[one.clone(), two]);
    assert_eq!(
        field.to_str().unwrap(),
        "\"https://api.example.com/a\";refusal=address-not-allowed, \
         \"http://[2606:4700::1]:8080/\\\"x\";refusal=address-not-allowed"
    );
    let many = vec![one; 200];
    let field = hops_field(&many);
    let text = field.to_str().unwrap();
    assert!(text.len() < 4_200);
    let shown = text.matches("https://").count();
    assert!(text.ends_with(&format!(", omitted;hops={}", 200 - shown)), "{text}");
}

proptest! {
    /// Whatever a destination writes: the next hop is on a host that the rule names, by http or https, in origin-form,
    /// and without anything that ends a line or a path; and what it is resolved to resolves to itself.
    #[test]
    fn no_location_leads_out_of_the_rule(
        location in prop_oneof![
            "[ -~]{0,40}",
            "(https?:)?//(api\\.example\\.com|evil\\.test|files\\.example\\.com)[:@/\\\\?#%.a-z0-9]{0,12}",
            "[/.]{0,6}(%2e|\\.|x|;|/|\\\\){0,8}\\??[a-z]{0,3}",
        ],
        status in prop_oneof![Just(301_u16), Just(302), Just(303), Just(307), Just(308)],
    ) {
        let from = get("https://api.example.com/v1/a");
        let location = location.trim();
        if let Ok(Step::Next(next)) = step(&from, status, location, SentBody::Empty) {
            let asked = &next.asked;
            let named = rule();
            let host = asked.authority.host();
            prop_assert!(named.hosts.iter().chain(named.elsewhere.iter()).any(|pattern| pattern.covers(host)));
            prop_assert_eq!(asked.scheme, Scheme::Https);
            prop_assert!(asked.path_and_query.starts_with('/'));
            prop_assert!(asked.path_and_query.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'\\' && byte != b'#'));
            prop_assert!(!asked.path().split('/').any(|segment| segment == ".." || segment == "."));
            let again = location::resolve(&from, url(asked).as_bytes());
            prop_assert_eq!(again.map(|again| (again.authority, again.path_and_query)).ok(),
                Some((asked.authority.clone(), asked.path_and_query.clone())));
        }
    }
}

#[test]
fn ports_that_everybody_knows_are_the_same_place() {
    let authority = Authority::with_port("api.example.com:443").unwrap();
    assert_eq!(get("https://api.example.com/").authority, authority);
}
