//! Tables for heads and chunked bodies, and properties of both parsers.

use domain::Refusal;
use domain::Refusal::{
    BodyTooLarge, CodingNotSupported, ExpectationFailed, HeadersTooLarge, MalformedRequest, TargetTooLong,
    VersionNotSupported,
};
use proptest::prelude::*;

use super::{ChunkScan, Form, Forms, Head, HeadLimits, HeadParser, HeadParts, Progress, TrailerLimits, Version};

const LIMITS: HeadLimits = HeadLimits { target_bytes: 100, header_bytes: 600, header_count: 10 };

/// Bytes come in pieces that end at `cuts`, and the rest at once.
fn parse_in(bytes: &[u8], cuts: impl Iterator<Item = usize>) -> Result<Option<(usize, HeadParts)>, Refusal> {
    parse_forms_in(Forms::Origin, bytes, cuts)
}

fn parse_forms_in(
    forms: Forms,
    bytes: &[u8],
    cuts: impl Iterator<Item = usize>,
) -> Result<Option<(usize, HeadParts)>, Refusal> {
    let mut parser = HeadParser::new(forms);
    for end in cuts.filter(|&cut| cut < bytes.len()).chain([bytes.len()]) {
        if let Progress::Complete { skipped, head } = parser.advance(&bytes[..end], &LIMITS)? {
            return Ok(Some((skipped + head, parser.take_parts())));
        }
    }
    Ok(None)
}

fn parse(bytes: &[u8]) -> Result<Option<(usize, HeadParts)>, Refusal> {
    parse_in(bytes, std::iter::empty())
}

fn head(text: &str) -> Head {
    let (length, parts) = parse(text.as_bytes()).unwrap_or_else(|no| panic!("{no} {text:?}")).expect("whole");
    let skipped = if text.starts_with("\r\n") { 2 } else { 0 };
    Head::new(text.as_bytes()[skipped..length].to_vec().into(), parts)
}

fn refusal(text: &[u8]) -> Refusal {
    match parse(text) {
        Err(refusal) => refusal,
        Ok(found) => panic!("{} {:?}", found.is_some(), String::from_utf8_lossy(text)),
    }
}

/// A head with `fields` between the request line and the end.
fn with(fields: &str) -> String {
    format!("POST /h HTTP/1.1\r\n{fields}\r\n\r\n")
}

#[test]
fn a_head_says_what_was_sent() {
    let head = head(
        "\r\nPOST /hooks/wh_1?a=b?c HTTP/1.1\r\nHOST:  Hooks.Example.com:8443\t\r\nX-Sig: one\r\ncontent-length: 05\r\n\
         x-sig:two \u{ff}\r\nEmpty:\r\nBlank: \t \r\nExpect: 100-Continue\r\n\r\nhello",
    );
    assert_eq!((head.method(), head.target()), ("POST", &b"/hooks/wh_1?a=b?c"[..]));
    assert_eq!((head.path(), head.query()), ("/hooks/wh_1", Some("a=b?c")));
    assert_eq!(head.origin(), "/hooks/wh_1?a=b?c");
    assert_eq!((head.host(), head.port(), head.version()), ("hooks.example.com", Some(8443), Version::Http11));
    assert_eq!((head.content_length(), head.is_chunked(), head.expects_continue()), (Some(5), false, true));
    assert!(head.keeps_alive());
    let headers: Vec<_> = head.headers().collect();
    assert_eq!(headers[0], ("HOST", &b"Hooks.Example.com:8443"[..]));
    assert_eq!(headers[4..6], [("Empty", &b""[..]), ("Blank", &b""[..])]);
    assert_eq!(head.get_all("X-SIG").collect::<Vec<_>>(), [&b"one"[..], "two \u{ff}".as_bytes()]);
    assert_eq!((head.get_one("x-sig"), head.get_one("empty"), head.get_one("none")), (None, Some(&b""[..]), None));
}

#[test]
fn absolute_form_is_kept_and_understood() {
    let one = head("GET http://A.test:80?q HTTP/1.1\r\nHost: a.TEST\r\n\r\n");
    assert_eq!((one.target(), one.path(), one.query()), (&b"http://A.test:80?q"[..], "/", Some("q")));
    assert_eq!((one.origin(), one.host()), ("/?q".into(), "a.test"));
    let two = head("GET https://a.test/x/y HTTP/1.1\r\nHost: a.test:443\r\n\r\n");
    assert_eq!((two.origin(), two.query()), ("/x/y".into(), None));
    for (target, host) in [
        ("http://a.test/", "b.test"),
        ("http://a.test:81/", "a.test"),
        ("http://a.test/", "a.test:443"),
        ("https://a.test/", "a.test:80"),
        ("http://[::1]/", "[::2]"),
    ] {
        assert_eq!(refusal(format!("GET {target} HTTP/1.1\r\nHost: {host}\r\n\r\n").as_bytes()), MalformedRequest);
    }
}

fn proxy_head(text: &str) -> Result<Head, Refusal> {
    let found = parse_forms_in(Forms::Proxy, text.as_bytes(), std::iter::empty())?;
    let (length, parts) = found.unwrap_or_else(|| panic!("not whole: {text:?}"));
    Ok(Head::new(text.as_bytes()[..length].to_vec().into(), parts))
}

#[test]
fn a_proxy_is_told_where_to() {
    let one = proxy_head("GET HTTP://A.test:8080/a/../b?q HTTP/1.1\r\nHost: a.TEST:8080\r\n\r\n").unwrap();
    assert_eq!((one.form(), one.scheme(), one.authority()), (Form::Http, Some("http"), Some("A.test:8080")));
    assert_eq!((one.path(), one.query(), one.has_dot_segments()), ("/a/../b", Some("q"), true));
    assert_eq!((one.origin(), one.host(), one.port()), ("/a/../b?q".into(), "a.test", Some(8080)));
    let two = proxy_head("CONNECT A.test:443 HTTP/1.1\r\nHost: a.test\r\nContent-Length: 0\r\n\r\n").unwrap();
    assert_eq!((two.form(), two.scheme(), two.authority()), (Form::Authority, None, Some("A.test:443")));
    assert_eq!((two.path(), two.query(), two.origin(), two.host()), ("/", None, "/".into(), "a.test"));
    let three = proxy_head("POST /c/conn/v1/x HTTP/1.1\r\nHost: tidegate:3128\r\n\r\n").unwrap();
    assert_eq!((three.form(), three.authority(), three.path()), (Form::Origin, None, "/c/conn/v1/x"));
    let four =
        proxy_head("GET http://a.test HTTP/1.1\r\nHost: a.test\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\n");
    assert_eq!(four.unwrap().get_one("upgrade"), Some(&b"websocket"[..]));
}

#[test]
fn a_proxys_host_names_the_same_place_or_is_known_to_differ() {
    for (line, host, differs) in [
        ("GET http://a.test/", "a.test", false),
        ("GET http://a.test/", "b.test", true),
        ("GET http://a.test/", "a.test:81", true),
        ("CONNECT a.test:443", "a.test:443", false),
        ("CONNECT a.test:443", "a.test:444", true),
        ("CONNECT a.test:8443", "a.test", true),
        ("CONNECT a.test:443", "192.0.2.1:3128", false),
        ("CONNECT a.test:443", "192.0.2.1", true),
        ("CONNECT a.test:443", "192.0.2.2:3128", true),
        ("GET http://a.test/", "192.0.2.1:3128", true),
        ("GET /c/x", "whatever", false),
    ] {
        let text = format!("{line} HTTP/1.1\r\nHost: {host}\r\n\r\n");
        let mut parser = HeadParser::new(Forms::Proxy);
        assert!(matches!(parser.advance(text.as_bytes(), &LIMITS), Ok(Progress::Complete { .. })), "{text}");
        assert_eq!(parser.host_differs("192.0.2.1:3128".parse().unwrap()), differs, "{text}");
    }
}

#[test]
fn a_proxys_client_of_http_1_0_may_leave_host_out_where_the_target_has_it() {
    let python = proxy_head("CONNECT a.test:443 HTTP/1.0\r\n\r\n").unwrap();
    assert_eq!((python.host(), python.port(), python.version()), ("a.test", Some(443), Version::Http10));
    assert_eq!(proxy_head("GET http://a.test/ HTTP/1.0\r\n\r\n").unwrap().host(), "a.test");
    for text in [
        "GET /c/x HTTP/1.0\r\n\r\n",
        "GET http://a.test/ HTTP/1.1\r\n\r\n",
        "CONNECT a.test:443 HTTP/1.1\r\n\r\n",
        "CONNECT a.test:443 HTTP/1.0\r\nHost: a.test\r\nHost: a.test\r\n\r\n",
        "CONNECT a.test:443 HTTP/1.0\r\nHost:\r\n\r\n",
    ] {
        assert_eq!(proxy_head(text).err(), Some(MalformedRequest), "{text:?}");
    }
}

#[test]
fn what_is_no_request_to_a_proxy() {
    for line in [
        "GET a.test:80",
        "connect a.test:443",
        "CONNECT /",
        "CONNECT a.test",
        "CONNECT http://a.test:443/",
        "OPTIONS *",
        "GET http://u@a.test/",
        "GET http:///x",
        "GET ftp://a.test/",
        "GET http://a.test/#x",
    ] {
        let text = format!("{line} HTTP/1.1\r\nHost: a.test\r\n\r\n");
        assert_eq!(proxy_head(&text).err(), Some(MalformedRequest), "{line}");
    }
    for (fields, refusal) in [
        ("Content-Length: 5", MalformedRequest),
        ("Content-Length: 99999999999999999999", MalformedRequest),
        ("Transfer-Encoding: chunked", MalformedRequest),
        ("Transfer-Encoding: gzip", MalformedRequest),
        ("Content-Length: 0\r\nContent-Length: 0", MalformedRequest),
        ("Connection: host", MalformedRequest),
    ] {
        let text = format!("CONNECT a.test:443 HTTP/1.1\r\nHost: a.test:443\r\n{fields}\r\n\r\n");
        assert_eq!(proxy_head(&text).err(), Some(refusal), "{fields}");
    }
}

#[test]
fn http_1_0_closes_and_knows_no_100() {
    let one = head(
        "POST /h HTTP/1.0\r\nHost: a\r\nConnection: keep-alive\r\nExpect: 100-continue\r\nContent-Length: 1\r\n\r\n",
    );
    assert_eq!((one.version(), one.keeps_alive(), one.expects_continue()), (Version::Http10, false, false));
    assert_eq!(refusal(b"POST /h HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"), MalformedRequest);
    assert_eq!(refusal(b"POST /h HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: gzip\r\n\r\n"), MalformedRequest);
}

#[test]
fn connection_options() {
    for (value, alive) in [
        ("keep-alive", true),
        ("close", false),
        ("CLOSE", false),
        ("keep-alive, close", false),
        (" ,\tclose,", false),
        ("closed", true),
        ("x-close", true),
        ("upgrade", true),
        ("", true),
    ] {
        assert_eq!(head(&with(&format!("Host: a\r\nConnection: {value}"))).keeps_alive(), alive, "{value}");
    }
    assert!(!head(&with("Connection: close\r\nHost: a\r\nConnection: x")).keeps_alive());
    for steals in ["host", "Content-Length", "x, transfer-encoding"] {
        assert_eq!(refusal(with(&format!("Host: a\r\nConnection: {steals}")).as_bytes()), MalformedRequest);
    }
}

#[test]
fn framing_has_one_reading() {
    let framing = |fields: &str| {
        let head = head(&with(&format!("Host: a\r\n{fields}")));
        (head.content_length(), head.is_chunked())
    };
    assert_eq!(framing("X: y"), (None, false));
    assert_eq!(framing("Content-Length: 18446744073709551615"), (Some(u64::MAX), false));
    assert_eq!(framing("Content-Length: 000000000000000000000000000012"), (Some(12), false));
    assert_eq!(framing("Transfer-Encoding: \t cHUNKED "), (None, true));
    for (fields, expected) in [
        ("Content-Length: 5\r\nContent-Length: 5", MalformedRequest),
        ("Content-Length: 5\r\nContent-Length: 6", MalformedRequest),
        ("Content-Length: 5, 5", MalformedRequest),
        ("Content-Length:", MalformedRequest),
        ("Content-Length: +5", MalformedRequest),
        ("Content-Length: -0", MalformedRequest),
        ("Content-Length: 5 5", MalformedRequest),
        ("Content-Length: 5.0", MalformedRequest),
        ("Content-Length: 0x5", MalformedRequest),
        ("Content-Length: 1_0", MalformedRequest),
        ("Content-Length: \u{b2}", MalformedRequest),
        ("Content-Length: 5;", MalformedRequest),
        ("Content-Length: 18446744073709551616", BodyTooLarge),
        ("Content-Length: 99999999999999999999999", BodyTooLarge),
        ("Content_Length: 5", MalformedRequest),
        ("cONTENT_lENGTH: 5", MalformedRequest),
        ("Transfer_Encoding: chunked", MalformedRequest),
        ("Content-Length: 5\r\nTransfer-Encoding: chunked", MalformedRequest),
        ("Transfer-Encoding: chunked\r\nContent-Length: 5", MalformedRequest),
        ("Transfer-Encoding: gzip\r\nContent-Length: 5", MalformedRequest),
        ("Transfer-Encoding: chunked\r\nContent-Length: 18446744073709551616", MalformedRequest),
        ("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked", MalformedRequest),
        ("Transfer-Encoding: identity\r\nTransfer-Encoding: chunked", MalformedRequest),
        ("Transfer-Encoding: chunked, chunked", CodingNotSupported),
        ("Transfer-Encoding: gzip, chunked", CodingNotSupported),
        ("Transfer-Encoding: chunked, gzip", CodingNotSupported),
        ("Transfer-Encoding: identity", CodingNotSupported),
        ("Transfer-Encoding: chunke", CodingNotSupported),
        ("Transfer-Encoding: xchunked", CodingNotSupported),
        ("Transfer-Encoding:", MalformedRequest),
        ("Transfer-Encoding: ,chunked", MalformedRequest),
        ("Transfer-Encoding: chunked,", MalformedRequest),
        ("Transfer-Encoding: chunked;q=1", MalformedRequest),
        ("Transfer-Encoding: \"chunked\"", MalformedRequest),
        ("Transfer-Encoding: \u{b}chunked", MalformedRequest),
        ("Transfer-Encoding: chunk\u{e9}d", MalformedRequest),
        ("Transfer-Encoding: chunked chunked", MalformedRequest),
    ] {
        assert_eq!(refusal(with(&format!("Host: a\r\n{fields}")).as_bytes()), expected, "{fields:?}");
    }
}

#[test]
fn expectations() {
    for fields in
        ["Expect: 200-maybe", "Expect:", "Expect: 100-continue, x", "Expect: 100-continue\r\nExpect: 100-continue"]
    {
        assert_eq!(refusal(with(&format!("Host: a\r\n{fields}")).as_bytes()), ExpectationFailed, "{fields}");
    }
}

#[test]
fn fields_that_are_none() {
    for fields in [
        "",
        "Host",
        "Host a",
        "Host : a",
        "Host\t: a",
        " Host: a",
        "\tHost: a",
        "Host: a\r\n: v",
        "Host: a\r\nX[a]: v",
        "Host: a\r\nX\u{e9}: v",
        "Host: a\r\nX Y: v",
        "Host: a\r\nX: b\r\n c",
        "Host: a\r\nX: b\r\n\tc",
        "Host: a\r\nX:\r\n c",
        "Host: a\nX: b",
        "Host: a\rX: b",
        "Host: a\r\r\nX: b",
        "Host: a\r\nX: b\0c",
        "Host: a\r\nX: b\u{1}",
        "Host: a\r\nX: b\u{7f}",
        "Host: a\r\nX: b\u{b}c",
        "Host: a\r\nX\0: b",
        "Host: a\r\nHost: a",
        "Host: a\r\nhost: b",
        "Host:",
        "Host: a, b",
        "Host: u@a",
        "Host: a b",
        "Host: a/",
        "Host: a:x",
        "Host: a:99999",
        "Host: [::1",
        "Host: \"a\"",
        "X: y",
        "(Host): a",
        "Host: a\r\n\"X\": y",
    ] {
        assert_eq!(refusal(with(fields).as_bytes()), MalformedRequest, "{fields:?}");
    }
    assert_eq!(refusal(b"POST /h HTTP/1.1\r\nHost: a\r\nX\xe9: v\r\n\r\n"), MalformedRequest);
    assert_eq!(refusal(b"POST /h HTTP/1.1\r\nHost: a\n\n"), MalformedRequest);
    assert_eq!(refusal(b"POST /h HTTP/1.1\r\nHost: a\r\n\rZGET"), MalformedRequest);
    assert_eq!(refusal(b"POST /h HTTP/1.1\r\nHost: a\r\n\n"), MalformedRequest);
    let obs_text = head(&with("Host: a\r\nX: \u{e9}\u{ff}"));
    assert_eq!(obs_text.get_one("x"), Some("\u{e9}\u{ff}".as_bytes()));
}

#[test]
fn request_lines_that_are_none() {
    for (line, expected) in [
        ("POST /h", MalformedRequest),
        ("POST", MalformedRequest),
        ("POST  /h HTTP/1.1", MalformedRequest),
        ("POST /h  HTTP/1.1", MalformedRequest),
        ("POST /h HTTP/1.1 ", MalformedRequest),
        ("POST /h HTTP/1.1\t", MalformedRequest),
        ("POST\t/h\tHTTP/1.1", MalformedRequest),
        ("POST /h HTTP/1.1 HTTP/1.1", MalformedRequest),
        (" POST /h HTTP/1.1", MalformedRequest),
        ("POST /a b HTTP/1.1", MalformedRequest),
        ("POST /h http/1.1", MalformedRequest),
        ("POST /h HTTP/1.10", MalformedRequest),
        ("POST /h HTTP/11", MalformedRequest),
        ("POST /h HTTP/1", MalformedRequest),
        ("POST /h HTTP/ 1.1", MalformedRequest),
        ("POST /h HTTP/1,1", MalformedRequest),
        ("POST /h ICY/1.1", MalformedRequest),
        ("POST /h HTTP/a.b", MalformedRequest),
        ("POST /h XHTTP/1.1", MalformedRequest),
        ("POST /h HTTP/1.1\0", MalformedRequest),
        ("P(ST /h HTTP/1.1", MalformedRequest),
        ("PO\0ST /h HTTP/1.1", MalformedRequest),
        ("PÖST /h HTTP/1.1", MalformedRequest),
        ("POST * HTTP/1.1", MalformedRequest),
        ("OPTIONS * HTTP/1.1", MalformedRequest),
        ("CONNECT a:443 HTTP/1.1", MalformedRequest),
        ("POST h HTTP/1.1", MalformedRequest),
        ("POST  HTTP/1.1", MalformedRequest),
        ("POST /h#f HTTP/1.1", MalformedRequest),
        ("POST /\u{e9} HTTP/1.1", MalformedRequest),
        ("HELO evil.test", MalformedRequest),
        ("\0POST /h HTTP/1.1", MalformedRequest),
        ("", MalformedRequest),
        ("POST /h HTTP/1.2", VersionNotSupported),
        ("POST /h HTTP/0.9", VersionNotSupported),
        ("POST /h HTTP/2.0", VersionNotSupported),
        ("PRI * HTTP/2.0", VersionNotSupported),
        ("POST /h HTTP/3.7", VersionNotSupported),
    ] {
        let text = format!("{line}\r\nHost: a\r\n\r\n");
        // The empty line alone is skipped; a second one is not.
        let text = if line.is_empty() { format!("\r\n{text}") } else { text };
        assert_eq!(refusal(text.as_bytes()), expected, "{line:?}");
    }
    assert_eq!(refusal(b"\x16\x03\x01"), MalformedRequest, "a TLS handshake is not waited for");
    assert_eq!(refusal(b"\nGET / HTTP/1.1\r\n"), MalformedRequest);
    assert!(parse(b"\r\n").unwrap().is_none() && parse(b"\r").unwrap().is_none() && parse(b"").unwrap().is_none());
    assert_eq!(refusal(b"\rG"), MalformedRequest);
}

#[test]
fn bounds_hold_exactly() {
    let target = |bytes: usize| format!("GET /{} HTTP/1.1\r\nHost: a\r\n\r\n", "a".repeat(bytes - 1));
    assert!(parse(target(100).as_bytes()).unwrap().is_some());
    assert_eq!(refusal(target(101).as_bytes()), TargetTooLong);
    assert_eq!(refusal("A".repeat(1000).as_bytes()), TargetTooLong);
    let method = |bytes: usize| format!("{} / HTTP/1.1\r\nHost: a\r\n\r\n", "M".repeat(bytes));
    assert!(parse(method(32).as_bytes()).unwrap().is_some());
    assert_eq!(refusal(method(33).as_bytes()), MalformedRequest);
    let fixed = with("Host: a\r\nX: ").len();
    let whole = |bytes: usize| with(&format!("Host: a\r\nX: {}", "x".repeat(bytes - fixed)));
    assert_eq!(whole(600).len(), 600);
    assert!(parse(whole(600).as_bytes()).unwrap().is_some());
    assert_eq!(refusal(whole(601).as_bytes()), HeadersTooLarge);
    assert_eq!(refusal(&whole(601).as_bytes()[..600]), HeadersTooLarge, "no need to wait for more");
    let count = |fields: usize| with(&format!("Host: a{}", "\r\nX: y".repeat(fields - 1)));
    assert!(parse(count(10).as_bytes()).unwrap().is_some());
    assert_eq!(refusal(count(11).as_bytes()), HeadersTooLarge);
}

const TRAILER: TrailerLimits = TrailerLimits { bytes: 60, count: 3 };

/// What a scan finds: data bytes, and where the message ends if it does.
fn scan_in(bytes: &[u8], cuts: impl Iterator<Item = usize>, max: u64) -> Result<(u64, Option<usize>), Refusal> {
    let mut scan = ChunkScan::new(TRAILER);
    let mut at = 0;
    let mut given = 0;
    for end in cuts.filter(|&cut| cut < bytes.len()).chain([bytes.len()]) {
        if end > at {
            at += scan.feed(&bytes[at..end], max, |data| given += data.len() as u64)?;
        }
    }
    assert_eq!(given, scan.data_bytes());
    Ok((scan.data_bytes(), scan.is_done().then_some(at)))
}

fn scan(text: &str) -> Result<(u64, Option<usize>), Refusal> {
    scan_in(text.as_bytes(), std::iter::empty(), 1000)
}

#[test]
fn chunked_bodies() {
    for (text, data) in [
        ("0\r\n\r\n", 0),
        ("5\r\nhello\r\n0\r\n\r\n", 5),
        ("000A\r\n0123456789\r\n00\r\n\r\n", 10),
        ("a\r\n0123456789\r\n0\r\n\r\n", 10),
        ("0000000000000001\r\nx\r\n0000000000000000\r\n\r\n", 1),
        ("2\r\n\r\n\r\n0\r\n\r\n", 2),
        ("5;a\r\nhello\r\n0\r\n\r\n", 5),
        ("5;a=b;c\r\nhello\r\n0;d=\"e\\\"; \\\\\"\r\n\r\n", 5),
        ("5 ; a = b ;c\r\nhello\r\n0\r\n\r\n", 5),
        ("5;a=\"\"\r\nhello\r\n0\r\n\r\n", 5),
        ("1\r\nx\r\n0\r\nX-Sum: 1\r\nContent-Length: 50\r\nE:\r\n\r\n", 1),
    ] {
        assert_eq!(scan(text), Ok((data, Some(text.len()))), "{text:?}");
        let more = format!("{text}GET /");
        assert_eq!(scan(&more), Ok((data, Some(text.len()))), "what follows is left alone");
    }
}

#[test]
fn chunked_bodies_that_are_none() {
    for text in [
        "\r\n",
        "\r\n\r\n",
        "5\r\nhello\r\n\r\n",
        "x",
        " 5\r\n",
        "\t5\r\n",
        "+5\r\n",
        "-1\r\n",
        "0x5\r\n",
        "0_5\r\n",
        "5\0\r\n",
        "5\n",
        "5\r5",
        "5 \r\n",
        "5\t\r\n",
        "5,5\r\n",
        "5\r\nhello\n",
        "5\r\nhello\rX",
        "5\r\nhelloX",
        "5\r\nhello0\r\n",
        "5;\r\n",
        "5;;a\r\n",
        "5;a\n",
        "5;a\rb",
        "5;a=\r\n",
        "5;a=\0\r\n",
        "5;a=b c\r\n",
        "5;a=b \r\n",
        "5;a \r\n",
        "5;=b\r\n",
        "5;a=\"b\r\n",
        "5;a=\"b\"c\r\n",
        "5;a=\"\n\"\r\n",
        "5;a=\"\\\r\n",
        "5;\u{e9}\r\n",
        "00000000000000005\r\n",
        "10000000000000000\r\n",
        "0\r\nXX\r\n",
        "0\r\n\rX",
        "0\r\n\n",
        "0\n\n",
        "0\r\n X: y\r\n\r\n",
        "0\r\nX : y\r\n\r\n",
        "0\r\n: y\r\n\r\n",
        "0\r\nX: y\n\r\n",
        "0\r\nX: y\rz",
        "0\r\nX: \0\r\n",
        "0\r\nX: y\r\n z\r\n\r\n",
    ] {
        assert_eq!(scan(text), Err(MalformedRequest), "{text:?}");
    }
    for text in ["3e9\r\n", "FFFFFFFFFFFFFFFF\r\n", "ffffffffffffffff;a\r\n"] {
        assert_eq!(scan(text), Err(BodyTooLarge), "{text:?}");
    }
    assert_eq!(scan(&format!("1;a={}\r\n", "x".repeat(4100))), Err(MalformedRequest));
    assert_eq!(scan(&format!("0\r\nX: {}\r\n\r\n", "x".repeat(60))), Err(HeadersTooLarge));
    assert_eq!(scan("0\r\nA:\r\nB:\r\nC:\r\nD:\r\n\r\n"), Err(HeadersTooLarge));
    assert_eq!(scan("3e8\r\n"), Ok((0, None)));
}

/// Something like a head, broken in some places.
fn mutated_head() -> impl Strategy<Value = Vec<u8>> {
    let heads = prop::sample::select(vec![
        "POST /hooks/wh_1?a=b HTTP/1.1\r\nHost: a.test\r\nContent-Length: 5\r\nX-Sig: sha256=00\r\n\r\nhello",
        "\r\nGET http://a.test/x HTTP/1.1\r\nHost: a.test:80\r\nConnection: close\r\nExpect: 100-continue\r\n\r\n",
        "PUT /%41/b HTTP/1.0\r\nHost: [::1]:8\r\nTransfer-Encoding: chunked\r\nA: 1\r\nB: 2\r\n\r\n",
        "CONNECT a.test:443 HTTP/1.1\r\nHost: a.test:443\r\n\r\n\x16\x03\x01",
        "CONNECT [::1]:80 HTTP/1.0\r\nX: y\r\n\r\n",
    ]);
    let place = any::<prop::sample::Index>();
    let byte = prop_oneof![prop::sample::select(b"\r\n \t:/%.,;0\0\x7f\xff".to_vec()), any::<u8>()];
    let edit = (place, byte, 0..4_u8);
    (heads, prop::collection::vec(edit, 0..4), 0..3_usize).prop_map(|(head, edits, long)| {
        let mut bytes = head.as_bytes().to_vec();
        for (place, byte, kind) in edits {
            let at = place.index(bytes.len());
            match kind {
                0 => bytes[at] = byte,
                1 => bytes.insert(at, byte),
                2 => drop(bytes.remove(at)),
                _ => {
                    let filler = std::iter::repeat_n(byte, 120 * long);
                    bytes.splice(at..at, filler);
                }
            }
        }
        bytes
    })
}

fn chunked_body() -> impl Strategy<Value = (Vec<u8>, usize, Vec<u8>)> {
    let extension = prop::sample::select(vec!["", ";a", ";a=b", " ; a = \"b\\\"c\""]);
    let trailer = prop::sample::select(vec!["", "X: y\r\n", "A:\r\nB: c d\r\n"]);
    let chunk = (prop::collection::vec(any::<u8>(), 1..40), extension);
    (prop::collection::vec(chunk, 0..6), trailer, prop::collection::vec(any::<u8>(), 0..10)).prop_map(
        |(chunks, trailer, behind)| {
            let (mut bytes, mut data) = (Vec::new(), Vec::new());
            for (chunk, extension) in chunks {
                bytes.extend_from_slice(format!("{:x}{extension}\r\n", chunk.len()).as_bytes());
                bytes.extend_from_slice(&chunk);
                bytes.extend_from_slice(b"\r\n");
                data.extend_from_slice(&chunk);
            }
            bytes.extend_from_slice(format!("0\r\n{trailer}\r\n").as_bytes());
            let end = bytes.len();
            bytes.extend_from_slice(&behind);
            (bytes, end, data)
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn how_a_head_is_cut_changes_no_verdict(bytes in mutated_head(), mut cuts in prop::collection::vec(0..900_usize, 0..8)) {
        cuts.sort_unstable();
        let at_once = parse(&bytes);
        prop_assert_eq!(&parse_in(&bytes, 1..bytes.len()), &at_once);
        prop_assert_eq!(&parse_in(&bytes, cuts.into_iter()), &at_once);
    }

    #[test]
    fn how_a_proxys_head_is_cut_changes_no_verdict(bytes in mutated_head(), cut in 0..900_usize) {
        let at_once = parse_forms_in(Forms::Proxy, &bytes, std::iter::empty());
        prop_assert_eq!(&parse_forms_in(Forms::Proxy, &bytes, 1..bytes.len()), &at_once);
        prop_assert_eq!(&parse_forms_in(Forms::Proxy, &bytes, std::iter::once(cut)), &at_once);
    }

    #[test]
    fn what_an_origin_server_takes_a_proxy_takes_too(bytes in mutated_head()) {
        if let Ok(Some((length, parts))) = parse(&bytes) {
            let proxys = parse_forms_in(Forms::Proxy, &bytes, std::iter::empty()).unwrap().unwrap();
            prop_assert_eq!(proxys, (length, parts));
        }
    }

    #[test]
    fn no_bytes_make_the_head_parser_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let _verdict = parse_in(&bytes, 1..bytes.len());
    }

    #[test]
    fn an_accepted_head_is_read_whole_and_no_further(bytes in mutated_head()) {
        if let Ok(Some((length, parts))) = parse(&bytes) {
            prop_assert!(bytes[..length].ends_with(b"\r\n\r\n"));
            prop_assert!(parse(&bytes[..length - 1]).unwrap().is_none());
            prop_assert!(!parts.host.is_empty());
            prop_assert!(!parts.chunked || parts.content_length.is_none());
        }
    }

    #[test]
    fn a_chunked_body_ends_where_it_ends_however_it_is_cut((bytes, end, data) in chunked_body()) {
        let at_once = scan_in(&bytes, std::iter::empty(), 1000);
        prop_assert_eq!(at_once, Ok((data.len() as u64, Some(end))));
        prop_assert_eq!(scan_in(&bytes, 1..bytes.len(), 1000), at_once);
        for cut in 0..end {
            let (_, done) = scan_in(&bytes[..cut], std::iter::empty(), 1000).unwrap();
            prop_assert_eq!(done, None, "cut at {}", cut);
        }
    }

    #[test]
    fn how_a_broken_chunked_body_is_cut_changes_no_verdict(
        (mut bytes, _, _) in chunked_body(),
        place in any::<prop::sample::Index>(),
        byte: u8,
    ) {
        let at = place.index(bytes.len());
        bytes[at] = byte;
        let judged = scan_in(&bytes, std::iter::empty(), 1000);
        prop_assert_eq!(scan_in(&bytes, 1..bytes.len(), 1000), judged);
    }
}

#[test]
fn what_is_malformed_is_told_apart_for_the_log() {
    let line = "POST /h HTTP/1.1\r\nHost: a\r\n";
    for (bytes, why) in [
        ("\u{16}\u{3}\u{1}", "TLS was spoken"),
        ("\u{0}", "the first byte"),
        ("POST /h HTTP/1.1\nHost: a\n\n", "LF without CR"),
        ("POST /h HTTP/1.1\rHost: a", "a CR stands within"),
        ("POST /h\r\n", "the request line"),
        ("POST  /h HTTP/1.1\r\n", "the request line"),
        ("POST /h HTTQ/1.1\r\n", "the request line"),
        ("P(ST /h HTTP/1.1\r\n", "the method"),
        ("POST /../h HTTP/1.1\r\n", "the target"),
        ("POST /h HTTP/1.1\r\n\r\n", "no Host"),
        ("POST /h HTTP/1.1\r\nHost: a b\r\n\r\n", "Host is no host"),
        ("POST http://b/h HTTP/1.1\r\nHost: a\r\n\r\n", "another host than the target"),
        (&format!("{line}Host: a\r\n"), "two Host"),
        (&format!("{line}odd\r\n"), "no colon"),
        (&format!("{line}X : a\r\n"), "name is no token"),
        (&format!("{line}X: a\u{1}\r\n"), "control byte"),
        (&format!("{line}Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n"), "both Content-Length and"),
        (&format!("{line}Content-Length: x\r\n"), "Content-Length is there twice"),
        (&format!("{line}Content_Length: 1\r\n"), "spelt with _"),
        (&format!("{line}Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n"), "two Transfer-Encoding"),
        (&format!("{line}Transfer-Encoding: (\r\n\r\n"), "no list of codings"),
        ("POST /h HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n", "HTTP/1.0 knows no"),
        (&format!("{line}Connection: content-length\r\n"), "Connection names"),
    ] {
        let mut parser = HeadParser::new(Forms::Origin);
        assert_eq!(parser.advance(bytes.as_bytes(), &LIMITS), Err(MalformedRequest), "{bytes:?}");
        assert!(parser.why().contains(why), "{bytes:?}: {}", parser.why());
    }
    let mut parser = HeadParser::new(Forms::Origin);
    assert!(parser.advance(format!("{line}\r\n").as_bytes(), &LIMITS).is_ok() && parser.why().is_empty());
}
