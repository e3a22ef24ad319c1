//! A request as it goes out.

use domain::Secret;
use http::header::{CONNECTION, CONTENT_LENGTH, HOST, TE, TRANSFER_ENCODING, UPGRADE};
use http::{HeaderMap, HeaderValue, Method, Request, Uri, Version, uri};

use super::body::BodyFault;
use super::upload::Upload;
use crate::{Asked, Refusal};

/// The request as it goes out over HTTP/1.1.
pub(super) fn over_h1(
    asked: &Asked,
    credential_query: Option<&Secret>,
    mut headers: HeaderMap,
    body: Upload,
    upgrade: bool,
) -> Result<Request<Upload>, BodyFault> {
    let uri = origin_form(asked, credential_query).ok_or_else(|| {
        BodyFault::new(Refusal::TargetMalformed, "the path has a character that has to be percent-encoded")
    })?;
    for name in [CONNECTION, CONTENT_LENGTH, TE, TRANSFER_ENCODING, UPGRADE] {
        headers.remove(name);
    }
    headers.insert(HOST, host(asked));
    match body.length() {
        // For these methods, nothing and no body are not the same (RFC 9110, 8.6).
        Some(0) if matches!(asked.method, Method::POST | Method::PUT | Method::PATCH) => {
            headers.insert(CONTENT_LENGTH, HeaderValue::from(0));
        }
        Some(0) => {}
        Some(length) => drop(headers.insert(CONTENT_LENGTH, HeaderValue::from(length))),
        // Said explicitly: hyper would drop the body of a GET that does not say its length.
        None => drop(headers.insert(TRANSFER_ENCODING, HeaderValue::from_static("chunked"))),
    }
    if upgrade {
        headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
        headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
    }
    let mut request = Request::new(body);
    *request.method_mut() = asked.method.clone();
    *request.uri_mut() = uri;
    *request.version_mut() = Version::HTTP_11;
    *request.headers_mut() = headers;
    Ok(request)
}

/// The same request as it goes out over HTTP/2: its authority is no field, and its end is the stream's (RFC 9113, 8.3.1
/// and 8.1). Fields of one connection are none of it already.
pub(super) fn over_h2(request: Request<Upload>) -> Result<(Request<()>, Upload), BodyFault> {
    let internal = || BodyFault::new(Refusal::Internal, "the request has no form in HTTP/2");
    let (mut head, body) = request.into_parts();
    let authority = head.headers.remove(HOST).ok_or_else(internal)?;
    head.headers.remove(TRANSFER_ENCODING);
    let mut uri = uri::Parts::default();
    uri.scheme = Some(uri::Scheme::HTTPS);
    uri.authority = Some(uri::Authority::try_from(authority.as_bytes()).map_err(|_| internal())?);
    uri.path_and_query = head.uri.into_parts().path_and_query;
    head.uri = Uri::from_parts(uri).map_err(|_| internal())?;
    head.version = Version::HTTP_2;
    Ok((Request::from_parts(head, ()), body))
}

/// Path and query as an origin is asked for them (RFC 9112, 3.2.1 and 3.2.4).
fn origin_form(asked: &Asked, credential_query: Option<&Secret>) -> Option<Uri> {
    let written = &*asked.path_and_query;
    let mut text = match written.as_bytes().first() {
        None if asked.method == Method::OPTIONS => "*".to_owned(),
        None => "/".to_owned(),
        Some(b'?') => format!("/{written}"),
        Some(b'/') => written.to_owned(),
        Some(_) => return None,
    };
    if let Some(query) = credential_query {
        text.push(if text.contains('?') { '&' } else { '?' });
        text.push_str(std::str::from_utf8(query.expose()).ok()?);
    }
    let uri = Uri::try_from(text.as_str()).ok()?;
    // What is sent is what was judged, byte for byte.
    (uri.to_string() == text).then_some(uri)
}

/// The authority, without the port that everybody knows.
fn host(asked: &Asked) -> HeaderValue {
    let authority = &asked.authority;
    let text = if authority.port() == asked.scheme.default_port() {
        authority.host().to_string()
    } else {
        authority.to_string()
    };
    HeaderValue::try_from(text).expect("an authority is letters, digits, dots, colons and brackets")
}
