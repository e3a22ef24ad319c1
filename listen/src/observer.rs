//! Counters, kept by somebody else.

use domain::Refusal;

use crate::tls::HandshakeFault;

/// What a client was too slow for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Phase {
    /// No request came. Not a fault: this is how idle connections end.
    Idle,
    Header,
    Body,
    /// The client does not take its answer.
    Write,
}

impl Phase {
    pub const ALL: &'static [Self] = &[Self::Idle, Self::Header, Self::Body, Self::Write];

    /// For metrics.
    pub fn label(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Header => "header",
            Self::Body => "body",
            Self::Write => "write",
        }
    }
}

/// Is told what happens on a listener, on the threads that serve it: count and return.
pub trait Observer: Send + Sync + 'static {
    /// A connection was accepted and is within the cap.
    fn opened(&self) {}
    /// One that was [opened](Self::opened) is gone.
    fn closed(&self) {}
    /// A connection was turned away: there are as many open as may be.
    fn capped(&self) {}
    /// A request was handed to the handler and its answer has this status.
    fn answered(&self, status: u16) {
        let _ = status;
    }
    /// The gate refused what a client sent, before there was a request.
    fn refused(&self, refusal: Refusal) {
        let _ = refusal;
    }
    /// A connection was to have TLS, and has none.
    fn handshake_failed(&self, fault: HandshakeFault) {
        let _ = fault;
    }
    /// A connection of HTTP/2 was cut off, since it was busy with nothing.
    fn flooded(&self) {}
    fn timed_out(&self, phase: Phase) {
        let _ = phase;
    }
    /// The handler panicked.
    fn panicked(&self) {}
}

/// Counts nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct Silent;

impl Observer for Silent {}
