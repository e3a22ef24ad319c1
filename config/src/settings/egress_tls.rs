//! `[egress.tls]`: where callers speak TLS, and with what.
//!
//! Which files these are is read at start; what is in them is taken anew at every reload, so that a certificate is
//! exchanged as it is renewed, without a restart.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::issuer::{absolute, operator_reference};
use crate::form::{AtLine, Choice, Count, Flag, Lined, List, Maybe, Span, address, settings};
use crate::units::seconds;

const MS: Duration = Duration::from_millis(1);

/// The oldest version of TLS that is spoken with callers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TlsVersion {
    Tls12,
    Tls13,
}

settings! {
    /// TLS towards callers.
    pub struct EgressTls {
        /// Addresses to listen on with TLS, beside those of `egress.listen`.
        listen: Vec<SocketAddr> = Vec::new(), List(address(), 0..=64), restart,
            "None: it needs a certificate. On addresses that other machines reach, grants and tokens are taken here and nowhere else.";
        /// The certificate that callers are shown, in PEM with its chain, our own first: `file:PATH`, `env:NAME` or `systemd-credential:NAME`.
        certificate: Option<AtLine<String>> = None, Maybe(Lined(operator_reference())), restart,
            "Callers verify it, so it has the names that they call this proxy by. What is in the file is taken anew at a reload, and the last good one stays while a new one is faulty.";
        /// Its private key, in PEM: a reference as for `certificate`.
        key: Option<AtLine<String>> = None, Maybe(Lined(operator_reference())), restart,
            "It belongs to the certificate.";
        /// Authorities that vouch for callers' certificates, in PEM: a reference as for `certificate`. With it each caller is asked for a certificate and may have none; which tenant one stands for, tenants' files say.
        client_roots: Option<AtLine<String>> = None, Maybe(Lined(operator_reference())), restart,
            "Without it, no caller is asked for a certificate. Best an authority that signs for this and nothing else.";
        /// The oldest version that is spoken: `1.2` or `1.3`.
        version_min: TlsVersion = TlsVersion::Tls12,
            Choice(&[("1.2", TlsVersion::Tls12), ("1.3", TlsVersion::Tls13)]), restart,
            "Java 8 and other clients of its time speak no newer one; of 1.2, only forward-secret suites with authenticated encryption are taken.";
        /// For all of a handshake, from the moment when the connection is there.
        handshake_timeout: Duration = seconds(10), Span(100 * MS..=seconds(60)), restart,
            "Two round trips and some arithmetic. The total, not the gap between bytes, is what a dripping client cannot stretch.";
        /// Whether HTTP/2 is offered.
        http2: bool = true, Flag, restart,
            "Clients that can speak it share one connection for many calls; those that cannot do not ask.";
        /// Requests and tunnels under way on one connection of HTTP/2.
        http2_streams_max: u32 = 100, Count(1..=1000), restart,
            "What RFC 9113 asks for at least. While its call runs, each may hold its header section (`header_bytes_max`), 192 KiB that its destination does not take and 128 KiB that its caller does not: 38 MiB for all of a connection. One that was refused holds neither head nor body.";
    }
}

impl EgressTls {
    /// References to files are meant relative to the file that they stand in.
    pub(crate) fn resolve_paths(&mut self, directory: &Path) {
        for reference in [&mut self.certificate, &mut self.key, &mut self.client_roots].into_iter().flatten() {
            absolute(&mut reference.value, directory);
        }
    }

    /// The files that it names.
    pub(crate) fn files(&self) -> Vec<PathBuf> {
        let references = [&self.certificate, &self.key, &self.client_roots].into_iter().flatten();
        references.filter_map(|reference| reference.value.strip_prefix("file:").map(PathBuf::from)).collect()
    }
}
