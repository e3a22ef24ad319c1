//! Requests over keep-alive: absolute-form to an origin without TLS, and governed calls to one with it.

use std::sync::Arc;

use rustls::pki_types::ServerName;

use super::names::{API, Places, address_of};
use super::origin::{self, GOVERNED};
use super::proxies::Proxy;
use super::{Bench, WARM_UP, tls_client};
use crate::Result;
use crate::hook::{ID_DIGITS, Request};
use crate::load::{Pace, Plan, Requests, TlsTo};

/// Which of the two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Calls {
    Absolute,
    Governed,
}

impl Calls {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Absolute => "absolute",
            Self::Governed => "governed",
        }
    }
}

/// One request with a number in its path, and the body of its answer.
#[derive(Debug)]
struct Numbered {
    request: Request,
    body: Vec<u8>,
}

impl Requests for Numbered {
    fn write(&self, n: u64, out: &mut Vec<u8>) {
        self.request.write(n, out);
    }

    fn is_right(&self, body: Option<&[u8]>) -> bool {
        body == Some(self.body.as_slice())
    }
}

/// The load for a proxy, or without one for the origin itself: the same request, without a grant.
pub(super) fn plan(bench: &Bench, calls: Calls, proxy: Option<&Proxy>, places: &Places, pace: Pace) -> Result<Plan> {
    let (port, path) = match calls {
        Calls::Absolute => (places.plain, "/things/"),
        Calls::Governed => (places.tls, GOVERNED),
    };
    let host = format!("{API}:{port}");
    let (target, line, host, proof) = match (proxy, calls) {
        (None, Calls::Absolute) => ((address_of(0), port).into(), format!("GET {path}"), host, String::new()),
        (None, Calls::Governed) => {
            let credential = format!("Authorization: Bearer {}\r\n", super::names::CREDENTIAL);
            ((address_of(0), port).into(), format!("GET {path}"), host, credential)
        }
        (Some(proxy), Calls::Absolute) => {
            (proxy.proxy, proxy.absolute(places), host, proxy.proof("Proxy-Authorization: Bearer "))
        }
        (Some(proxy), Calls::Governed) => {
            let (line, host) = proxy.governed(places);
            (proxy.governed.0, line, host, proxy.proof("Tidegate-Grant: "))
        }
    };
    let is_tls = proxy.is_none() && calls == Calls::Governed;
    let tls = if is_tls {
        Some(TlsTo { config: tls_client(&places.roots)?, name: ServerName::try_from(API)? })
    } else {
        None
    };
    let id_at = line.len();
    let text = format!(
        "{line}{:0ID_DIGITS$} HTTP/1.1\r\nHost: {host}\r\nUser-Agent: bench/1.0\r\nAccept: application/json\r\n{proof}\r\n",
        0
    );
    let request = Request { bytes: text.into_bytes().into(), id_at };
    Ok(Plan {
        target,
        connections: super::compare::CONNECTIONS,
        threads: bench.load_threads,
        pace,
        warm_up: WARM_UP,
        measured: bench.measured(),
        requests: Arc::new(Numbered { request, body: origin::body() }),
        tls,
    })
}
