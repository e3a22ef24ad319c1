//! A stream's head, as HTTP/1.1 would have it: written down, and read by the one parser of heads.
//!
//! What is between the two (RFC 9113, §8.3.1):
//!
//! - `:scheme`, `:authority` and `:path` are an absolute-form, as a proxy is sent, unless `:authority` is this listener
//!   itself: then they are an origin-form. HTTP/1.1 says which of them is meant, HTTP/2 does not. A client that names us
//!   there has named us in its `ClientHello` too, or has named nobody and means our address or a name of our certificate;
//!   nobody is called at either, so nothing that could be meant is lost.
//! - CONNECT has `:authority` and nothing else, which is the authority-form.
//! - `Host` may stand beside `:authority`, and says the same then. It stands for it where that is left out.
//! - `Cookie` may come in pieces, which are put together (§8.2.3).
//! - Fields that are about a connection are malformed, and so are values with a blank at either end (§8.2.1, §8.2.2).

use std::net::{IpAddr, SocketAddr};

use domain::Refusal;
use http::{HeaderMap, HeaderName, Request, Uri, header};

use crate::connection::{Fault, Site};
use crate::http::{Authority, Forms, Head, HeadParser, Progress, parse_authority};

/// What of a connection is asked about its streams.
#[derive(Debug, Clone, Copy)]
pub(super) struct Here<'h> {
    /// What the client called us in its `ClientHello`.
    pub(super) server_name: Option<&'h str>,
    /// What our certificate calls us.
    pub(super) own_names: &'h [Box<str>],
    pub(super) local: SocketAddr,
}

impl Here<'_> {
    /// Does this name us?
    fn is(&self, authority: &Authority<'_>) -> bool {
        match self.server_name {
            Some(name) => authority.ipv6.is_none() && authority.host.eq_ignore_ascii_case(name),
            // An address is named in no `ClientHello` (RFC 6066, §3), and some clients name no host without a dot either.
            None => self.is_local(authority.host) || authority.ipv6.is_none() && self.is_certified(authority.host),
        }
    }

    fn is_local(&self, host: &str) -> bool {
        host.parse::<IpAddr>().is_ok_and(|named| named == self.local.ip().to_canonical())
    }

    fn is_certified(&self, host: &str) -> bool {
        self.own_names.iter().any(|own| own.eq_ignore_ascii_case(host))
    }
}

/// What the stream asks for.
pub(super) fn read(request: &Request<()>, here: Here<'_>, site: &Site) -> Result<Head, Fault> {
    let malformed = Fault::Refused(Refusal::MalformedRequest);
    let headers = request.headers();
    if !headers.iter().all(|(name, value)| is_of_a_stream(name, value.as_bytes())) {
        return Err(malformed);
    }
    let forms = site.behaviour.forms;
    let uri = request.uri();
    let mut text = Vec::with_capacity(512);
    text.extend_from_slice(request.method().as_str().as_bytes());
    text.push(b' ');
    put_target(&mut text, uri, request.method() == http::Method::CONNECT, forms, here, headers)?;
    text.extend_from_slice(b" HTTP/1.1\r\n");
    if let Some(authority) = uri.authority().filter(|_| !headers.contains_key(header::HOST)) {
        put_field(&mut text, "host", authority.as_str().as_bytes());
    }
    for name in headers.keys() {
        let mut values = headers.get_all(name).iter().map(http::HeaderValue::as_bytes);
        if name == header::COOKIE {
            put_field(&mut text, name.as_str(), &values.collect::<Vec<_>>().join(&b"; "[..]));
        } else {
            values.by_ref().for_each(|value| put_field(&mut text, name.as_str(), value));
        }
    }
    text.extend_from_slice(b"\r\n");
    let mut parser = HeadParser::new(forms);
    match parser.advance(&text, &site.limits) {
        Ok(Progress::Complete { .. }) if parser.host_differs(here.local) => Err(Fault::HostDiffers),
        Ok(Progress::Complete { skipped: 0, head }) if head == text.len() => {
            Ok(Head::new(text.into(), parser.take_parts().over_http2()))
        }
        Ok(Progress::Complete { .. } | Progress::More) => Err(malformed),
        Err(refusal) => Err(Fault::Refused(refusal)),
    }
}

fn put_target(
    text: &mut Vec<u8>,
    uri: &Uri,
    connect: bool,
    forms: Forms,
    here: Here<'_>,
    headers: &HeaderMap,
) -> Result<(), Fault> {
    let malformed = Fault::Refused(Refusal::MalformedRequest);
    if connect {
        text.extend_from_slice(uri.authority().ok_or(malformed)?.as_str().as_bytes());
        return Ok(());
    }
    let path = uri.path_and_query().map(http::uri::PathAndQuery::as_str).filter(|path| path.starts_with('/'));
    let path = path.ok_or(malformed)?;
    // Without an authority, `Host` says which place is meant, and the codec has dropped the scheme.
    let Some((authority, scheme)) = uri.authority().zip(uri.scheme_str()) else {
        text.extend_from_slice(path.as_bytes());
        return Ok(());
    };
    let named = parse_authority(authority.as_str().as_bytes()).ok_or(malformed)?;
    if forms == Forms::Origin || scheme == "https" && here.is(&named) {
        let host = headers.get(header::HOST).map(|host| parse_authority(host.as_bytes()).ok_or(malformed));
        if host.transpose()?.is_some_and(|host| !host.same_as(&named, 443)) {
            return Err(Fault::HostDiffers);
        }
        text.extend_from_slice(path.as_bytes());
        return Ok(());
    }
    for part in [scheme, "://", authority.as_str(), path] {
        text.extend_from_slice(part.as_bytes());
    }
    Ok(())
}

/// The types of name and value let no line end through.
fn put_field(text: &mut Vec<u8>, name: &str, value: &[u8]) {
    text.extend_from_slice(name.as_bytes());
    text.extend_from_slice(b": ");
    text.extend_from_slice(value);
    text.extend_from_slice(b"\r\n");
}

/// The codec refuses most of what this does. It is no less true here.
fn is_of_a_stream(name: &HeaderName, value: &[u8]) -> bool {
    let blank = |byte: Option<&u8>| matches!(byte, Some(b' ' | b'\t'));
    let named = !matches!(
        name.as_str(),
        "connection" | "keep-alive" | "proxy-connection" | "transfer-encoding" | "upgrade" | "http2-settings"
    );
    named && (name != header::TE || value == b"trailers") && !blank(value.first()) && !blank(value.last())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use config::Listener;
    use http::HeaderValue;

    use super::*;
    use crate::http::{Form, Version};
    use crate::service::testing::nobody;
    use crate::{Behaviour, Silent};

    fn site(forms: Forms) -> Site {
        let behaviour = Behaviour { forms, ..Behaviour::default() };
        Site { behaviour, ..Site::new(Listener::default(), nobody(), Arc::new(Silent)) }
    }

    fn ask(method: &str, uri: &str, fields: &[(&str, &str)]) -> Request<()> {
        let mut request = Request::builder().method(method).uri(uri).body(()).unwrap();
        for (name, value) in fields {
            let name: HeaderName = name.parse().unwrap();
            request.headers_mut().append(name, HeaderValue::from_bytes(value.as_bytes()).unwrap());
        }
        request
    }

    const LOCAL: &str = "192.0.2.1:3129";

    fn read_by(server_name: Option<&str>, request: &Request<()>) -> Result<Head, Fault> {
        let own_names = ["tidegate".into(), "edge.test".into()];
        let here = Here { server_name, own_names: &own_names, local: LOCAL.parse().unwrap() };
        read(request, here, &site(Forms::Proxy))
    }

    fn text(bytes: &[u8]) -> String {
        String::from_utf8(bytes.to_vec()).unwrap()
    }

    #[test]
    fn the_forms_are_those_of_a_proxy() {
        for (method, uri, form, target) in [
            ("GET", "http://a.test/x?y", Form::Http, "http://a.test/x?y"),
            ("GET", "https://a.test:8443/", Form::Https, "https://a.test:8443/"),
            ("CONNECT", "a.test:443", Form::Authority, "a.test:443"),
            ("GET", "https://edge.test/c/conn_x/v1", Form::Origin, "/c/conn_x/v1"),
            ("GET", "https://EDGE.test:3129/c/conn_x", Form::Origin, "/c/conn_x"),
            // Nobody else is this listener, and nor is it without TLS.
            ("GET", "https://edge.test.evil.test/c/x", Form::Https, "https://edge.test.evil.test/c/x"),
            ("GET", "https://192.0.2.1/c/x", Form::Https, "https://192.0.2.1/c/x"),
            ("GET", "http://edge.test/c/x", Form::Http, "http://edge.test/c/x"),
        ] {
            let head =
                read_by(Some("edge.test"), &ask(method, uri, &[])).unwrap_or_else(|fault| panic!("{uri}: {fault:?}"));
            assert_eq!((head.form(), text(head.target())), (form, target.to_owned()));
            assert_eq!((head.method(), head.version()), (method, Version::Http2));
        }
        let by_address = read_by(None, &ask("GET", "https://192.0.2.1:3129/c/x", &[])).unwrap();
        assert_eq!((by_address.form(), by_address.host()), (Form::Origin, "192.0.2.1"));
        let other = read_by(None, &ask("GET", "https://192.0.2.2:3129/c/x", &[])).unwrap();
        assert_eq!(other.form(), Form::Https);
    }

    #[test]
    fn who_names_nobody_may_mean_a_name_of_the_certificate() {
        for (server_name, uri, form) in [
            (None, "https://tidegate:3129/c/x", Form::Origin),
            (None, "https://TideGate/c/x", Form::Origin),
            (None, "https://edge.test/c/x", Form::Origin),
            (None, "https://tidegate.test/c/x", Form::Https),
            (None, "http://tidegate/c/x", Form::Http),
            // Whoever has named us does not mean us by another name.
            (Some("edge.test"), "https://tidegate/c/x", Form::Https),
        ] {
            let head = read_by(server_name, &ask("GET", uri, &[])).unwrap_or_else(|fault| panic!("{uri}: {fault:?}"));
            assert_eq!(head.form(), form, "{server_name:?} {uri}");
        }
    }

    #[test]
    fn host_says_what_the_authority_says_or_stands_for_it() {
        let by = |uri: &str, host: &str| {
            read_by(Some("edge.test"), &ask("GET", uri, &[("host", host)])).map(|head| head.form())
        };
        assert_eq!(by("http://a.test/", "A.test:80"), Ok(Form::Http));
        assert_eq!(by("http://a.test/", "b.test"), Err(Fault::HostDiffers));
        assert_eq!(by("https://edge.test:443/c/x", "edge.test"), Ok(Form::Origin));
        assert_eq!(by("https://edge.test/c/x", "a.test"), Err(Fault::HostDiffers));
        assert_eq!(by("/c/x", "edge.test"), Ok(Form::Origin));
        let malformed = Err(Fault::Refused(Refusal::MalformedRequest));
        assert_eq!(by("/c/x", "a b"), malformed);
        assert_eq!(read_by(None, &ask("GET", "/c/x", &[])).map(|head| head.form()), malformed);
        let twice = ask("GET", "http://a.test/", &[("host", "a.test"), ("host", "a.test")]);
        assert_eq!(read_by(None, &twice).map(|head| head.form()), malformed);
        let connect = |host| read_by(None, &ask("CONNECT", "a.test:443", &[("host", host)])).map(|head| head.form());
        assert_eq!((connect("a.test"), connect("b.test:443")), (Ok(Form::Authority), Err(Fault::HostDiffers)));
    }

    #[test]
    fn what_http_1_refuses_is_refused() {
        let malformed = Refusal::MalformedRequest;
        for (method, uri, fields, refusal) in [
            ("GET", "http://u@a.test/", &[][..], malformed),
            ("GET", "http://a.test:99999/", &[], malformed),
            ("GET", "http://a.test/a\\b", &[], malformed),
            ("GET", "http://a_b,c.test/", &[], malformed),
            ("GET", "ftp://a.test/", &[], malformed),
            ("OPTIONS", "*", &[], malformed),
            ("CONNECT", "a.test", &[], malformed),
            ("CONNECT", "a.test:443", &[("content-length", "3")], malformed),
            ("GET", "http://a.test/", &[("connection", "close")], malformed),
            ("GET", "http://a.test/", &[("transfer-encoding", "chunked")], malformed),
            ("GET", "http://a.test/", &[("upgrade", "websocket")], malformed),
            ("GET", "http://a.test/", &[("proxy-connection", "keep-alive")], malformed),
            ("GET", "http://a.test/", &[("te", "gzip")], malformed),
            ("GET", "http://a.test/", &[("x-a", " b")], malformed),
            ("GET", "http://a.test/", &[("x-a", "b\t")], malformed),
            ("GET", "http://a.test/", &[("content_length", "3")], malformed),
            ("POST", "http://a.test/", &[("content-length", "3"), ("content-length", "3")], malformed),
            ("POST", "http://a.test/", &[("content-length", "+3")], malformed),
            ("POST", "http://a.test/", &[("expect", "something")], Refusal::ExpectationFailed),
        ] {
            let found = read_by(None, &ask(method, uri, fields)).map(|head| head.form());
            assert_eq!(found, Err(Fault::Refused(refusal)), "{method} {uri} {fields:?}");
        }
        let long = format!("http://a.test/{}", "x".repeat(9_000));
        assert_eq!(read_by(None, &ask("GET", &long, &[])).map(|_| ()), Err(Fault::Refused(Refusal::TargetTooLong)));
        let many: Vec<_> = (0..100).map(|_| ("x-a", "b")).collect();
        let too_large = Err(Fault::Refused(Refusal::HeadersTooLarge));
        assert_eq!(read_by(None, &ask("GET", "http://a.test/", &many)).map(|_| ()), too_large);
        assert!(read_by(None, &ask("GET", "http://a.test/", &many[1..])).is_ok());
    }

    #[test]
    fn fields_are_all_there_and_a_cookie_is_one() {
        let fields = [("cookie", "a=1"), ("x-b", "1"), ("cookie", "b=2"), ("x-b", "2"), ("te", "trailers")];
        let head = read_by(None, &ask("GET", "http://a.test/", &fields)).unwrap();
        let found: Vec<_> = head.headers().map(|(name, value)| format!("{name}={}", text(value))).collect();
        assert_eq!(found, ["host=a.test", "cookie=a=1; b=2", "x-b=1", "x-b=2", "te=trailers"]);
    }

    #[test]
    fn an_origin_server_is_asked_for_paths() {
        let here = Here { server_name: None, own_names: &[], local: LOCAL.parse().unwrap() };
        let head = read(&ask("GET", "https://a.test/x", &[]), here, &site(Forms::Origin)).unwrap();
        assert_eq!((head.form(), head.host(), head.path()), (Form::Origin, "a.test", "/x"));
        let connect = read(&ask("CONNECT", "a.test:443", &[]), here, &site(Forms::Origin));
        assert_eq!(connect.map(|head| head.form()), Err(Fault::Refused(Refusal::MalformedRequest)));
    }
}
