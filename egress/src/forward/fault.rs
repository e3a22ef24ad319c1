//! What can go wrong with a hop, and what it is called.

use std::error::Error as _;
use std::io;
use std::net::IpAddr;

use outbound::dial::{ConnectFault, DialError, DialFault, TlsFault};
use outbound::{ErrorType, VettedAddr};
use thiserror::Error;

use super::Passage;
use super::body::BodyFault;
use super::patience::Expired;
use crate::quota::Park;
use crate::{Refusal, SendState};

/// A hop without an answer.
#[derive(Debug, Error)]
#[error("{refusal}: {detail}")]
pub struct HopFault {
    /// What it is called.
    pub refusal: Refusal,
    /// What `Proxy-Status` calls it.
    pub error_type: ErrorType,
    /// How far the request got.
    pub state: SendState,
    /// For the operator.
    pub detail: Box<str>,
    /// The connection that was tried last, or used; none if nothing was dialled.
    pub tried: Option<Tried>,
    /// The call is to come again, and when.
    pub park: Option<Box<Park>>,
}

/// A connection that a hop was to go over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tried {
    /// Where to.
    pub address: VettedAddr,
    /// From where; none where the kernel was to choose and has not.
    pub exit: Option<IpAddr>,
}

impl HopFault {
    /// A fault before anything was dialled.
    pub(crate) fn before(fault: BodyFault) -> Self {
        Self::of(fault, SendState::NotSent, None)
    }

    pub(crate) fn of(fault: BodyFault, state: SendState, tried: Option<Tried>) -> Self {
        let BodyFault { refusal, error_type, detail } = fault;
        Self { refusal, error_type, state, detail: detail.into(), tried, park: None }
    }

    /// A connection was closed before the request was begun, and the tenant's retries at this provider are used up.
    pub(crate) fn of_spent_budget() -> Self {
        let why = "the destination hung up before it was asked, and no retry is left";
        Self::before(BodyFault::new(Refusal::ResponseIncomplete, why))
    }

    /// Nothing was written: what was right when the call was judged is over.
    pub(crate) fn of_park(park: Park, tried: Option<Tried>) -> Self {
        let fault = BodyFault::new(park.by.refusal(), park.detail.clone().into_string());
        Self { park: Some(Box::new(park)), ..Self::of(fault, SendState::NotSent, tried) }
    }

    /// `passage` is what was to be dialled.
    pub(crate) fn of_dial(error: &DialError, passage: &Passage) -> Self {
        let address = match &error.fault {
            DialFault::Tls { address, .. } => Some(*address),
            DialFault::NoExit | DialFault::Connect(_) => error.failed.last().map(|attempt| attempt.address),
        };
        let refusal = refusal_of_dial(&error.fault);
        Self {
            refusal,
            error_type: error.error_type(),
            state: SendState::NotSent,
            detail: error.to_string().into(),
            tried: address.map(|address| Tried { address, exit: passage.leaves_from(address) }),
            park: None,
        }
    }
}

fn refusal_of_dial(fault: &DialFault) -> Refusal {
    match fault {
        DialFault::NoExit | DialFault::Connect(ConnectFault::ExitUnavailable(_)) => Refusal::ExitUnavailable,
        DialFault::Connect(ConnectFault::PortsExhausted | ConnectFault::SocketsExhausted(_)) => Refusal::PortsExhausted,
        DialFault::Connect(ConnectFault::Timeout) | DialFault::Tls { fault: TlsFault::Timeout, .. } => {
            Refusal::ConnectTimedOut
        }
        DialFault::Connect(
            ConnectFault::Prohibited
            | ConnectFault::Unroutable
            | ConnectFault::Refused
            | ConnectFault::Terminated
            | ConnectFault::Other(_),
        ) => Refusal::ConnectFailed,
        DialFault::Tls { fault: TlsFault::Certificate(_) | TlsFault::Name, .. } => Refusal::CertificateInvalid,
        DialFault::Tls { fault: TlsFault::Alert(_) | TlsFault::Protocol(_) | TlsFault::Terminated, .. } => {
            Refusal::TlsFailed
        }
    }
}

/// What the destination did to an exchange.
pub(crate) fn of_exchange(error: &hyper::Error) -> BodyFault {
    let detail = chain(error);
    if error.is_parse() {
        return BodyFault::new(Refusal::ResponseRefused, detail);
    }
    let is_io = sources(error).any(|source| source.downcast_ref::<io::Error>().is_some());
    let error_type = if is_io { ErrorType::ConnectionTerminated } else { ErrorType::HttpResponseIncomplete };
    BodyFault { refusal: Refusal::ResponseIncomplete, error_type, detail: detail.into() }
}

/// Time is over before the head of the answer: whose doing is it?
pub(crate) fn of_wait(expired: Expired, is_sent: bool, is_waiting: bool) -> BodyFault {
    match expired {
        Expired::Idle if is_sent => BodyFault::new(Refusal::ResponseTimedOut, "no answer came in time"),
        Expired::Idle if is_waiting => BodyFault::new(Refusal::RequestTimeout, "the caller stopped sending its body"),
        Expired::Idle => BodyFault::new(Refusal::IdleTimeout, "the destination stopped reading the request"),
        Expired::Total => BodyFault::new(Refusal::ResponseTimedOut, "the call took too long as a whole"),
    }
}

/// An error with everything that is behind it; hyper prints one level only. It says nothing that a peer wrote.
fn chain(error: &hyper::Error) -> String {
    let mut text = error.to_string();
    for source in sources(error) {
        text.push_str(": ");
        text.push_str(&source.to_string());
    }
    text
}

fn sources(error: &hyper::Error) -> impl Iterator<Item = &(dyn std::error::Error + 'static)> {
    std::iter::successors(error.source(), |&error| error.source())
}
