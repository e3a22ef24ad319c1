//! The smallest client that can deliver a webhook: plain HTTP/1.1 over one connection that stays open.
//!
//! For trying an appliance that stands here or nearby; what Tidegate itself says to the outside goes elsewhere.

use std::time::Duration;

use bytes::Bytes;
use http::{Request, Uri};
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::exit::{Failure, Outcome};

/// Longer than the appliance itself takes before it gives up on a commit.
const PATIENCE: Duration = Duration::from_secs(30);

/// No answer of the appliance is larger; whatever else answers here is not worth more memory.
const ANSWER_BYTES_MAX: usize = 1024 * 1024;

/// Where to connect, and what to ask there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Target {
    /// `host:port` to dial.
    pub(crate) dial: String,
    /// The `Host` header.
    pub(crate) host: String,
    /// Path and query.
    pub(crate) path: String,
}

impl Target {
    /// Reads a URL of plain HTTP.
    pub(crate) fn parse(url: &str) -> Outcome<Self> {
        let bad = |why: &str| Failure::usage(format_args!("--url {why}"), "write it as http://host:port/path");
        let uri: Uri = url.parse().map_err(|_| bad("is no URL"))?;
        match uri.scheme_str() {
            Some("http") => {}
            Some("https") => {
                return Err(Failure::usage(
                    "--url is https, which send does not speak yet",
                    "post to the appliance's own plain listener, or take --print-curl and let curl do it",
                ));
            }
            _ => return Err(bad("has no scheme")),
        }
        let authority = uri.authority().ok_or_else(|| bad("has no host"))?;
        if authority.as_str().contains('@') {
            return Err(bad("has a user in it"));
        }
        let dial = format!("{}:{}", authority.host(), authority.port_u16().unwrap_or(80));
        let path = uri.path_and_query().map_or("/", |path| path.as_str()).to_owned();
        Ok(Self { dial, host: authority.as_str().to_owned(), path })
    }
}

/// What came back.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) retry_after: Option<String>,
    pub(crate) body: Bytes,
}

/// One connection.
#[derive(Debug)]
pub(crate) struct Client {
    sender: SendRequest<Full<Bytes>>,
}

impl Client {
    pub(crate) async fn connect(target: &Target) -> Outcome<Self> {
        let refused = |why: String| {
            Failure::failed(
                format_args!("could not connect to {}: {why}", target.dial),
                "is the appliance running? `tidegate run` starts it; --url posts elsewhere",
            )
        };
        let stream = timeout(PATIENCE, TcpStream::connect(&target.dial));
        let stream = stream.await.map_err(|_| refused("no answer".to_owned()))?.map_err(|e| refused(e.to_string()))?;
        stream.set_nodelay(true).map_err(|error| refused(error.to_string()))?;
        let (sender, connection) = handshake(TokioIo::new(stream)).await.map_err(|error| refused(error.to_string()))?;
        // Ends with the sender; what goes wrong on it shows up in the answer to the request.
        tokio::spawn(connection);
        Ok(Self { sender })
    }

    /// May another request go over this connection?
    pub(crate) async fn is_ready(&mut self) -> bool {
        self.sender.ready().await.is_ok()
    }

    pub(crate) async fn send(&mut self, request: Request<Full<Bytes>>) -> Outcome<Reply> {
        let broken =
            |why: String| Failure::failed(format_args!("no answer came back: {why}"), "see the appliance's log");
        let exchange = async {
            let answer = self.sender.send_request(request).await.map_err(|error| broken(error.to_string()))?;
            let (head, body) = answer.into_parts();
            let body =
                Limited::new(body, ANSWER_BYTES_MAX).collect().await.map_err(|error| broken(error.to_string()))?;
            let retry_after =
                head.headers.get("retry-after").map(|v| String::from_utf8_lossy(v.as_bytes()).into_owned());
            Ok(Reply { status: head.status.as_u16(), retry_after, body: body.to_bytes() })
        };
        timeout(PATIENCE, exchange).await.map_err(|_| broken(format!("waited {} s", PATIENCE.as_secs())))?
    }
}

#[cfg(test)]
mod tests {
    use super::super::exit::Exit;
    use super::*;

    #[test]
    fn urls_are_plain_http() {
        let target = Target::parse("http://hooks.example.com/hooks/wh_1?x=1").unwrap();
        assert_eq!(
            target,
            Target {
                dial: "hooks.example.com:80".into(),
                host: "hooks.example.com".into(),
                path: "/hooks/wh_1?x=1".into()
            }
        );
        assert_eq!(Target::parse("http://[::1]:8080/").unwrap().dial, "[::1]:8080");
        for bad in ["https://a/b", "hooks/wh_1", "ftp://a/", "http://u:p@h/", "", "http:///x"] {
            assert_eq!(Target::parse(bad).unwrap_err().exit(), Exit::Usage, "{bad}");
        }
    }

    #[test]
    fn https_is_refused_plainly() {
        let failure = Target::parse("https://hooks.example.com/").unwrap_err();
        assert!(failure.complaint().unwrap().what.contains("https"));
    }
}
