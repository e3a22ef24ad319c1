//! Refusals: every deliberate no that Tidegate says to somebody outside, as one closed set.
//!
//! A code never changes its meaning; people script against it and quote it to support. What the code stands for
//! in HTTP is decided where answers are made, and nowhere else.

use std::fmt;

/// Who has to do something about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Blame {
    /// The one who sent the request.
    Sender,
    /// The tenant's configuration or limits.
    Tenant,
    /// This appliance, or what it stands on.
    Appliance,
}

/// May the same request be sent again, unchanged?
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Retry {
    /// It will be refused again.
    Never,
    /// Later: the answer carries `Retry-After`.
    Later,
}

macro_rules! refusals {
    ($($(#[$doc:meta])* $name:ident = $code:literal, $blame:ident, $retry:ident, $title:literal;)+) => {
        /// A deliberate no. `docs/refusals.md` has a section on every one of them.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Refusal {
            $($(#[$doc])* $name,)+
        }

        impl Refusal {
            /// All of them, in the order in which the accept path can say them.
            pub const ALL: &'static [Self] = &[$(Self::$name,)+];

            /// The stable code, kebab-case.
            pub fn code(self) -> &'static str {
                match self { $(Self::$name => $code,)+ }
            }

            /// One short sentence for the sender. It never says which check failed beyond the code.
            pub fn title(self) -> &'static str {
                match self { $(Self::$name => $title,)+ }
            }

            pub fn blame(self) -> Blame {
                match self { $(Self::$name => Blame::$blame,)+ }
            }

            pub fn retry(self) -> Retry {
                match self { $(Self::$name => Retry::$retry,)+ }
            }
        }
    };
}

refusals! {
    /// The bytes are no HTTP/1.1 message that has exactly one reading.
    MalformedRequest = "malformed-request", Sender, Never, "The request is not well-formed HTTP.";
    /// The request line asks for a version of HTTP that this listener does not speak.
    VersionNotSupported = "version-not-supported", Sender, Never, "This version of HTTP is not spoken here.";
    /// A transfer coding or other framing that nobody needs here and that proxies disagree on.
    CodingNotSupported = "coding-not-supported", Sender, Never, "This transfer coding is not supported.";
    /// `Expect` names something other than `100-continue`.
    ExpectationFailed = "expectation-failed", Sender, Never, "The expectation cannot be met.";
    /// More header bytes or fields than the listener takes.
    HeadersTooLarge = "headers-too-large", Sender, Never, "The header section is too large.";
    /// The request line is longer than the listener takes.
    TargetTooLong = "target-too-long", Sender, Never, "The request target is too long.";
    /// The header section did not arrive in time.
    HeaderTimeout = "header-timeout", Sender, Later, "The header section did not arrive in time.";
    /// No such endpoint, or it is disabled, or it answers under another host: always the same bytes.
    EndpointUnknown = "endpoint-unknown", Sender, Never, "There is no such endpoint.";
    /// The tenant's file is faulty and has no last good version.
    EndpointUnavailable = "endpoint-unavailable", Appliance, Later, "This endpoint is not available for the moment.";
    /// The endpoint does not take this method.
    MethodNotAllowed = "method-not-allowed", Sender, Never, "This method is not allowed here.";
    /// The peer is not among the addresses that the endpoint takes deliveries from.
    SourceNotAllowed = "source-not-allowed", Sender, Never, "Deliveries are not taken from this address.";
    /// Too many failed verifications from this source.
    SourceThrottled = "source-throttled", Sender, Later, "Too many deliveries from this address could not be verified.";
    /// The body is larger than the endpoint takes.
    BodyTooLarge = "body-too-large", Sender, Never, "The body is too large.";
    /// The body did not arrive in time, or not fast enough.
    BodyTimeout = "body-timeout", Sender, Later, "The body did not arrive in time.";
    /// The node holds as many bytes in flight as it will.
    Overloaded = "overloaded", Appliance, Later, "The appliance is busy.";
    /// The delivery does not prove who sent it.
    SignatureInvalid = "signature-invalid", Sender, Never, "The delivery could not be verified.";
    /// A provider asks whether this is its endpoint, in a way that is not answered.
    HandshakeRefused = "handshake-refused", Sender, Never, "The handshake could not be answered.";
    /// Over the tenant's or the endpoint's limit of events or bytes.
    RateLimited = "rate-limited", Tenant, Later, "Too many deliveries.";
    /// The tenant's stored bytes have reached their limit.
    StorageLimited = "storage-limited", Tenant, Later, "The storage for these deliveries is full.";
    /// The delivery could not be made durable. It may be stored all the same: this is no promise that it is not.
    LogUnavailable = "log-unavailable", Appliance, Later, "The delivery could not be stored.";
    /// A fault of ours.
    Internal = "internal", Appliance, Later, "Something went wrong here.";
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
        let mut codes: Vec<_> = Refusal::ALL.iter().map(|r| r.code()).collect();
        assert!(codes.iter().all(|c| c.bytes().all(|b| b.is_ascii_lowercase() || b == b'-')));
        codes.sort_unstable();
        codes.dedup();
        assert_eq!(codes.len(), Refusal::ALL.len());
    }
}
