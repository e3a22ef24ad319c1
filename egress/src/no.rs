//! A no on its way to the caller, with what only the record is told.

use http::HeaderValue;
use outbound::resolve::NotVetted;
use outbound::{ErrorType, Refused, ResolveError};

use crate::forward::headers::HeaderFault;
use crate::forward::{HopFault, Tried};
use crate::policy::Denied;
use crate::quota::Park;
use crate::{CallsFull, NoExit, Refusal, SendState};

/// Why a call goes no further.
#[derive(Debug)]
pub(crate) struct No {
    pub(crate) refusal: Refusal,
    /// A nearer word for `Proxy-Status` than the refusal's own.
    pub(crate) error_type: Option<ErrorType>,
    /// What a DNS server said.
    pub(crate) rcode: Option<Box<str>>,
    /// Of the whole call: for the caller.
    pub(crate) send_state: SendState,
    /// Of the hop that it ended with, where that is another: for its record.
    pub(crate) hop_state: Option<SendState>,
    /// The connection that was tried in vain, or broke.
    pub(crate) tried: Option<Tried>,
    /// The call is to come again, and when.
    pub(crate) park: Option<Box<Park>>,
    /// `Tidegate-Hops`, where some were answered before.
    pub(crate) hops: Option<Box<HeaderValue>>,
    /// For the record: what decided, in words.
    pub(crate) detail: Box<str>,
}

impl No {
    /// Nothing was sent.
    pub(crate) fn new(refusal: Refusal, detail: impl Into<Box<str>>) -> Self {
        Self {
            refusal,
            error_type: None,
            rcode: None,
            send_state: SendState::NotSent,
            hop_state: None,
            tried: None,
            park: None,
            hops: None,
            detail: detail.into(),
        }
    }
}

impl From<Park> for No {
    fn from(park: Park) -> Self {
        let (refusal, detail) = (park.by.refusal(), park.detail.clone());
        Self { park: Some(Box::new(park)), ..Self::new(refusal, detail) }
    }
}

impl From<Denied> for No {
    fn from(denied: Denied) -> Self {
        Self::new(denied.refusal, denied.by.to_string())
    }
}

impl From<Refused> for No {
    fn from(refused: Refused) -> Self {
        let refusal = Refusal::from(&refused);
        Self { error_type: Some(refused.error_type()), ..Self::new(refusal, refused.to_string()) }
    }
}

impl From<ResolveError> for No {
    fn from(error: ResolveError) -> Self {
        let refusal = Refusal::from(&error);
        let rcode = error.rcode().map(Into::into);
        Self { error_type: Some(error.error_type()), rcode, ..Self::new(refusal, error.to_string()) }
    }
}

impl From<NotVetted> for No {
    fn from(not: NotVetted) -> Self {
        match not {
            NotVetted::Refused(refused) => refused.into(),
            NotVetted::Unresolved(error) => error.into(),
        }
    }
}

impl From<NoExit> for No {
    fn from(none: NoExit) -> Self {
        Self::new(Refusal::ExitUnavailable, none.to_string())
    }
}

impl From<HopFault> for No {
    fn from(fault: HopFault) -> Self {
        let HopFault { refusal, error_type, state, detail, tried, park } = fault;
        let no = Self::new(refusal, detail);
        Self { error_type: Some(error_type), send_state: state, tried, park, ..no }
    }
}

impl From<HeaderFault> for No {
    fn from(fault: HeaderFault) -> Self {
        Self::new(fault.refusal, fault.detail)
    }
}

impl From<CallsFull> for No {
    fn from(full: CallsFull) -> Self {
        match full {
            CallsFull::Node => Self::new(Refusal::Overloaded, "the node has as many calls under way as it may"),
            CallsFull::Tenant => Self::new(Refusal::CallsLimited, "the tenant has as many calls under way as it may"),
            CallsFull::Caller => Self::new(Refusal::CallsLimited, "the caller has as many calls under way as it may"),
        }
    }
}

/// What the listener found, in the words of the way out.
impl From<domain::Refusal> for No {
    fn from(refusal: domain::Refusal) -> Self {
        use domain::Refusal as Found;
        let own = match refusal {
            Found::HeadersTooLarge | Found::TargetTooLong => Refusal::HeadersTooLarge,
            Found::HeaderTimeout | Found::BodyTimeout => Refusal::RequestTimeout,
            Found::BodyTooLarge => Refusal::BodyTooLarge,
            Found::Overloaded => Refusal::Overloaded,
            Found::Internal => Refusal::Internal,
            Found::MalformedRequest
            | Found::VersionNotSupported
            | Found::CodingNotSupported
            | Found::ExpectationFailed
            | Found::EndpointUnknown
            | Found::EndpointUnavailable
            | Found::MethodNotAllowed
            | Found::SourceNotAllowed
            | Found::SourceThrottled
            | Found::SignatureInvalid
            | Found::HandshakeRefused
            | Found::RateLimited
            | Found::StorageLimited
            | Found::LogUnavailable => Refusal::RequestMalformed,
        };
        Self::new(own, refusal.title())
    }
}
