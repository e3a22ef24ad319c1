//! Refusals and faults of the way out, as one closed set: code, status, RFC 9209 error type.
//!
//! The caller is told the code and one sentence. Which rule, which address and which resolver said so is for the record
//! and for `tidegate explain`: what a name resolves to inside is not for everybody.

use std::fmt;

use outbound::{ErrorType, Refused, ResolveError};

/// Whose doing it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Cause {
    /// What was asked is refused, deliberately.
    Policy,
    /// The request itself is at fault.
    Caller,
    /// The destination is, or the way to it.
    Destination,
    /// This appliance is.
    Appliance,
}

macro_rules! refusals {
    ($($(#[$doc:meta])* $name:ident = $code:literal, $status:literal, $cause:ident, $error:expr, $title:literal;)+) => {
        /// A no, or a failure on the way. `docs/refusals.md` has a section on every one of them; a code never changes
        /// its meaning.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Refusal {
            $($(#[$doc])* $name,)+
        }

        impl Refusal {
            /// All of them, in the order in which the path can say them.
            pub const ALL: &'static [Self] = &[$(Self::$name,)+];

            /// The stable code, kebab-case.
            pub fn code(self) -> &'static str {
                match self { $(Self::$name => $code,)+ }
            }

            /// The HTTP status that a caller gets; 407 becomes 401 on `/c/`.
            pub fn status(self) -> u16 {
                match self { $(Self::$name => $status,)+ }
            }

            /// Whose doing it is.
            pub fn cause(self) -> Cause {
                match self { $(Self::$name => Cause::$cause,)+ }
            }

            /// What `Proxy-Status` calls it, where nothing nearer is known.
            pub fn error_type(self) -> ErrorType {
                match self { $(Self::$name => $error,)+ }
            }

            /// One short sentence for the caller.
            pub fn title(self) -> &'static str {
                match self { $(Self::$name => $title,)+ }
            }
        }
    };
}

use ErrorType::{
    ConnectionLimitReached, ConnectionReadTimeout, ConnectionRefused, ConnectionTimeout, DestinationIpProhibited,
    DnsError, DnsTimeout, HttpProtocolError, HttpRequestDenied, HttpRequestError, HttpResponseIncomplete,
    HttpResponseTimeout, ProxyConfigurationError, ProxyInternalError, ProxyLoopDetected, TlsCertificateError,
    TlsProtocolError,
};

refusals! {
    /// The bytes are no request that has exactly one reading, or no form that this door takes.
    RequestMalformed = "request-malformed", 400, Caller, HttpRequestError, "The request is not well-formed.";
    /// The destination is not one that every program would read in the same way.
    TargetMalformed = "target-malformed", 400, Caller, HttpRequestError, "The destination is not well-formed.";
    /// `Host` or `:authority` names another destination than the request's target.
    HostMismatch = "host-mismatch", 400, Caller, HttpRequestError, "Host and target do not name the same destination.";
    /// More header bytes or fields than are taken.
    HeadersTooLarge = "request-headers-too-large", 431, Caller, HttpRequestError, "The header section is too large.";
    /// The request did not arrive in time.
    RequestTimeout = "request-timeout", 408, Caller, HttpRequestError, "The request did not arrive in time.";
    /// The request came through this proxy before.
    LoopDetected = "loop-detected", 508, Caller, ProxyLoopDetected, "The request has come through here before.";
    /// No proof of who asks, or none that holds.
    CallerUnknown = "caller-unknown", 407, Caller, HttpRequestDenied, "Who asks is not known.";
    /// A grant on a connection that others could read.
    GrantInPlaintext = "grant-in-plaintext", 403, Caller, HttpRequestDenied, "Grants are not taken over an open connection.";
    /// A kill switch is thrown.
    SwitchedOff = "switched-off", 403, Policy, HttpRequestDenied, "These calls are switched off.";
    /// No such connection, or it is another tenant's, or the grant does not name it: always the same bytes.
    ConnectionUnknown = "connection-unknown", 404, Policy, HttpRequestDenied, "There is no such connection.";
    /// No rule allows the destination, or one denies it.
    DestinationNotAllowed = "destination-not-allowed", 403, Policy, HttpRequestDenied, "The destination is not allowed.";
    /// The port is not one that this way may use.
    PortNotAllowed = "port-not-allowed", 403, Policy, HttpRequestDenied, "The port is not allowed.";
    /// The destination is allowed, this method or path is not.
    RequestNotAllowed = "request-not-allowed", 403, Policy, HttpRequestDenied, "This method or path is not allowed there.";
    /// A connector's hosts are called through its connections, where quota and evidence are; not through a tunnel.
    TunnelNotAllowed = "tunnel-not-allowed", 403, Policy, HttpRequestDenied, "This destination is called through a connection.";
    /// The name or an address of its answer is not public, and nothing opens it.
    AddressNotAllowed = "address-not-allowed", 403, Policy, DestinationIpProhibited, "The destination is not allowed.";
    /// What the tunnel carries is not TLS for the destination that was asked for.
    TunnelMismatch = "tunnel-mismatch", 403, Policy, HttpRequestDenied, "The tunnel is used for another destination.";
    /// The tenant or the caller has as many calls under way as it may.
    CallsLimited = "calls-limited", 429, Policy, ConnectionLimitReached, "Too many calls are under way.";
    /// The connection or the automation wants far more than it usually does, and goes on slowly or not at all.
    Runaway = "runaway", 429, Policy, HttpRequestDenied, "These calls are far more than usual, and are held back.";
    /// Calls to this destination failed, and none goes out before the next probe.
    BreakerOpen = "breaker-open", 429, Destination, HttpRequestDenied, "The destination did not work lately; come again later.";
    /// The provider has said to wait.
    ProviderParked = "provider-parked", 429, Destination, HttpRequestDenied, "The provider limits these calls; come again later.";
    /// What the provider allows is used up, or nobody can say that it is not.
    QuotaExhausted = "quota-exhausted", 429, Policy, HttpRequestDenied, "There is no quota for this call now; come again later.";
    /// The request's body is larger than may be sent.
    BodyTooLarge = "request-body-too-large", 413, Caller, HttpRequestDenied, "The body is too large.";
    /// The credential of this connection cannot be had for the moment.
    CredentialUnavailable = "credential-unavailable", 503, Appliance, ProxyConfigurationError, "The credential is not available.";
    /// The name does not resolve.
    DnsFailed = "dns-failed", 502, Destination, DnsError, "The name could not be resolved.";
    /// No DNS server answered in time.
    DnsTimedOut = "dns-timeout", 504, Destination, DnsTimeout, "The name could not be resolved in time.";
    /// No exit address can reach the destination, or the one meant is not on this machine.
    ExitUnavailable = "exit-unavailable", 503, Appliance, ProxyConfigurationError, "There is no address to leave from.";
    /// No port is left from this exit address to this destination, or no socket on this machine.
    PortsExhausted = "ports-exhausted", 503, Appliance, ConnectionLimitReached, "There is no local port left.";
    /// The destination cannot be connected to.
    ConnectFailed = "connect-failed", 502, Destination, ConnectionRefused, "The destination could not be connected to.";
    /// The destination did not answer in time.
    ConnectTimedOut = "connect-timeout", 504, Destination, ConnectionTimeout, "The destination did not answer in time.";
    /// The TLS handshake failed.
    TlsFailed = "tls-failed", 502, Destination, TlsProtocolError, "TLS with the destination failed.";
    /// The certificate is not good, or not the destination's.
    CertificateInvalid = "certificate-invalid", 502, Destination, TlsCertificateError, "The destination's certificate is not valid.";
    /// The connection ended before the answer did.
    ResponseIncomplete = "response-incomplete", 502, Destination, HttpResponseIncomplete, "The answer ended too early.";
    /// The answer is not well-formed HTTP, or larger than may come back.
    ResponseRefused = "response-refused", 502, Destination, HttpProtocolError, "The answer could not be taken.";
    /// The answer did not come in time.
    ResponseTimedOut = "response-timeout", 504, Destination, HttpResponseTimeout, "The answer did not come in time.";
    /// A redirect that is not followed: too many, a loop, a downgrade, or a place that is refused.
    RedirectRefused = "redirect-refused", 403, Policy, HttpRequestDenied, "A redirect leads where calls may not go.";
    /// Nothing came or went for as long as that may be.
    IdleTimeout = "idle-timeout", 504, Destination, ConnectionReadTimeout, "Nothing came for too long.";
    /// The appliance is busy or draining.
    Overloaded = "overloaded", 503, Appliance, ConnectionLimitReached, "The appliance is busy.";
    /// A fault of ours.
    Internal = "internal", 500, Appliance, ProxyInternalError, "Something went wrong here.";
}

/// What a caller is told of a name or an address that is not dialled.
impl From<&Refused> for Refusal {
    fn from(refused: &Refused) -> Self {
        match refused {
            Refused::NoAddresses { .. } | Refused::TooManyAddresses { .. } => Self::DnsFailed,
            Refused::NameInternal { .. }
            | Refused::NotTheAddress { .. }
            | Refused::AddressNever { .. }
            | Refused::AddressInternal { .. }
            | Refused::AddressOwn { .. }
            | Refused::AddressEmbeds { .. }
            | Refused::AddressAmbiguous { .. } => Self::AddressNotAllowed,
        }
    }
}

/// What a caller is told of a name that has no addresses.
impl From<&ResolveError> for Refusal {
    fn from(error: &ResolveError) -> Self {
        match error {
            ResolveError::Timeout => Self::DnsTimedOut,
            ResolveError::Busy => Self::Overloaded,
            ResolveError::TenantBusy => Self::CallsLimited,
            ResolveError::NotFound { .. }
            | ResolveError::NoAddresses { .. }
            | ResolveError::Failed { .. }
            | ResolveError::Unreachable
            | ResolveError::Garbled { .. } => Self::DnsFailed,
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.code())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_distinct_kebab_case() {
        let mut codes: Vec<_> = Refusal::ALL.iter().map(|refusal| refusal.code()).collect();
        assert!(codes.iter().all(|code| code.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-')));
        codes.sort_unstable();
        codes.dedup();
        assert_eq!(codes.len(), Refusal::ALL.len());
    }

    #[test]
    fn the_document_has_every_code_in_this_order() {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).with_file_name("docs/egress-refusals.md");
        let document = std::fs::read_to_string(path).unwrap();
        let sections: Vec<(&str, &str)> =
            document.split("\n## ").skip(1).map(|section| section.split_once('\n').unwrap()).collect();
        let headings: Vec<&str> = sections.iter().map(|(heading, _)| *heading).collect();
        assert_eq!(headings, Refusal::ALL.iter().map(|refusal| refusal.code()).collect::<Vec<_>>());
        for (refusal, (_, text)) in Refusal::ALL.iter().zip(&sections) {
            for part in ["**What happened.**", "**Caller.**", "**Operator.**"] {
                assert!(text.contains(part), "{refusal}: no {part}");
            }
            let row = format!("| `{refusal}` | {} | ", refusal.status());
            assert!(document.contains(&row), "{refusal}: no row {row}");
        }
    }
}
