//! HTTP/2 towards destinations: with real servers, and with peers that are written frame by frame.

mod bodies;
mod calls;
mod floods;
mod frames;
mod heads;
mod limits;
mod sharing;
mod states;
mod times;

use std::sync::Arc;

use outbound::{Alpn, Authority, Scheme, TlsClient};

use crate::forward::testing::*;
use crate::forward::{Forward, ForwardSettings, Hop};

pub(super) const BOTH: &[Alpn] = &[Alpn::Http2, Alpn::Http11];
pub(super) const NAMES: &[&str] = &["api.example.com", "www.example.com"];

/// Towards an origin that speaks TLS and chooses HTTP/2.
pub(super) fn forward_tls() -> (Arc<Forward<Memory>>, Origin, TlsClient) {
    forward_tls_with(ForwardSettings::default(), BOTH)
}

pub(super) fn forward_tls_with(
    settings: ForwardSettings,
    theirs: &[Alpn],
) -> (Arc<Forward<Memory>>, Origin, TlsClient) {
    let (forward, mut origin) = forward_with(settings, 1 << 20);
    let (client, acceptor) = tls_offering(NAMES, BOTH, theirs);
    origin.tls = Some(acceptor);
    (forward, origin, client)
}

/// `GET https://api.example.com/`.
pub(super) fn secure(tls: &TlsClient) -> Hop {
    secure_to(tls, "api.example.com:443")
}

pub(super) fn secure_to(tls: &TlsClient, authority: &str) -> Hop {
    let authority = Authority::with_port(authority).unwrap();
    let mut hop = hop();
    hop.passage.vetted = rules(&[]).vet(&authority, &["93.184.216.34".parse().unwrap()], &[]).unwrap();
    hop.passage.tls = Some(tls.clone());
    hop.asked.authority = authority;
    hop.asked.scheme = Scheme::Https;
    hop
}
