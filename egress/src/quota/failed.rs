//! What a fault says of a destination.

use ratelimit::breaker::{Fault, Outcome};

use super::Permit;
use crate::forward::HopFault;
use crate::{Refusal, SendState};

impl Permit {
    /// There is no answer.
    pub(crate) fn failed(&self, fault: &HopFault) {
        if fault.state == SendState::NotSent {
            self.not_sent();
        }
        self.ended(outcome_of(fault.refusal));
    }

    /// The name could not be resolved.
    pub(crate) fn unresolved(&self, refusal: Refusal) {
        self.ended(outcome_of(refusal));
    }
}

/// Whose doing it is decides: what the caller or this appliance did says nothing of a destination.
pub(super) fn outcome_of(refusal: Refusal) -> Outcome {
    match refusal {
        Refusal::DnsFailed | Refusal::DnsTimedOut => Outcome::Failed(Fault::Dns),
        Refusal::ConnectFailed | Refusal::ConnectTimedOut => Outcome::Failed(Fault::Connect),
        Refusal::TlsFailed | Refusal::CertificateInvalid => Outcome::Failed(Fault::Tls),
        Refusal::ResponseTimedOut | Refusal::IdleTimeout => Outcome::Failed(Fault::Timeout),
        Refusal::ResponseIncomplete | Refusal::ResponseRefused => Outcome::Failed(Fault::Broken),
        Refusal::ProviderParked | Refusal::QuotaExhausted | Refusal::BreakerOpen | Refusal::Runaway => Outcome::Parked,
        Refusal::RequestMalformed
        | Refusal::TargetMalformed
        | Refusal::HostMismatch
        | Refusal::HeadersTooLarge
        | Refusal::RequestTimeout
        | Refusal::LoopDetected
        | Refusal::CallerUnknown
        | Refusal::GrantInPlaintext
        | Refusal::SwitchedOff
        | Refusal::ConnectionUnknown
        | Refusal::DestinationNotAllowed
        | Refusal::PortNotAllowed
        | Refusal::RequestNotAllowed
        | Refusal::TunnelNotAllowed
        | Refusal::AddressNotAllowed
        | Refusal::TunnelMismatch
        | Refusal::CallsLimited
        | Refusal::BodyTooLarge
        | Refusal::CredentialUnavailable
        | Refusal::ExitUnavailable
        | Refusal::PortsExhausted
        | Refusal::RedirectRefused
        | Refusal::Overloaded
        | Refusal::Internal => Outcome::Abandoned,
    }
}
