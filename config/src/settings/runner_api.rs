//! `[runner.api]`: where those who write automations reach the runner.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::TlsVersion;
use super::issuer::{absolute, operator_reference};
use crate::form::{AtLine, Bytes, Choice, Count, Flag, Lined, List, Maybe, Span, Table, address, settings};
use crate::units::{KIB, MIB, seconds};

const MS: Duration = Duration::from_millis(1);

settings! {
    /// The API for those who write automations. A token of a tenant's file (`[[runner.token]]`) says who asks, and for whom.
    pub struct RunnerApi {
        /// Addresses to listen on for the API.
        listen: Vec<SocketAddr> = vec![SocketAddr::from((Ipv4Addr::LOCALHOST, 8070))], List(address(), 0..=64), restart,
            "Loopback: tokens are read from this connection, and nobody else can listen in on it. `[]` where nobody uses the API.";
        /// Largest body of a request.
        body_bytes_max: u64 = MIB, Bytes(4 * KIB..=16 * MIB), restart,
            "An automation has at most 256 KiB, an input that somebody writes rarely more.";
        /// Open connections.
        connections_max: u32 = 1_024, Count(1..=1_000_000), restart,
            "Tools and consoles, no providers.";
        /// Threads that answer.
        threads: usize = 1, Count(1..=64), restart,
            "People read: what takes long is read from the index and not computed here.";
        /// TLS, on addresses of its own.
        tls: RunnerApiTls = RunnerApiTls::default(), Table, restart, "";
    }

    /// TLS of the API.
    pub struct RunnerApiTls {
        /// Addresses to listen on with TLS, beside those of `runner.api.listen`.
        listen: Vec<SocketAddr> = Vec::new(), List(address(), 0..=64), restart,
            "None: it needs a certificate. On addresses that other machines reach, tokens are taken here and nowhere else.";
        /// The certificate, in PEM with its chain, our own first: `file:PATH`, `env:NAME` or `systemd-credential:NAME`.
        certificate: Option<AtLine<String>> = None, Maybe(Lined(operator_reference())), restart,
            "Clients verify it. What is in the file is taken anew at a reload.";
        /// Its private key, in PEM: a reference as for `certificate`.
        key: Option<AtLine<String>> = None, Maybe(Lined(operator_reference())), restart,
            "It belongs to the certificate.";
        /// The oldest version that is spoken: `1.2` or `1.3`.
        version_min: TlsVersion = TlsVersion::Tls12,
            Choice(&[("1.2", TlsVersion::Tls12), ("1.3", TlsVersion::Tls13)]), restart,
            "As towards callers of the way out.";
        /// For all of a handshake, from the moment when the connection is there.
        handshake_timeout: Duration = seconds(10), Span(100 * MS..=seconds(60)), restart,
            "Two round trips and some arithmetic.";
        /// Whether HTTP/2 is offered.
        http2: bool = true, Flag, restart,
            "Clients that can speak it share one connection for many requests.";
    }
}

impl RunnerApi {
    /// References to files are meant relative to the file that they stand in.
    pub(crate) fn resolve_paths(&mut self, directory: &Path) {
        for reference in [&mut self.tls.certificate, &mut self.tls.key].into_iter().flatten() {
            absolute(&mut reference.value, directory);
        }
    }

    /// The files that its TLS names.
    pub(crate) fn files(&self) -> Vec<PathBuf> {
        let references = [&self.tls.certificate, &self.tls.key].into_iter().flatten();
        references.filter_map(|reference| reference.value.strip_prefix("file:").map(PathBuf::from)).collect()
    }
}
