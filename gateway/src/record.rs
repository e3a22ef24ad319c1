//! What is told about each delivery: one line for an accepted one, also where it was held first, and a sampled line for a
//! refused one.
//!
//! The gateway says what happened; where lines go, in what form, and how many of a flood of refusals are written
//! is up to whoever stands behind this trait.

use std::net::IpAddr;
use std::time::Duration;

use domain::{EventId, Refusal};

/// A delivery that was committed and answered.
#[derive(Debug)]
pub struct Accepted<'a> {
    pub event: EventId,
    pub tenant: &'a str,
    pub endpoint: &'a str,
    pub scheme: &'a str,
    /// The name of the secret that verified it.
    pub secret: &'a str,
    pub source: IpAddr,
    pub body_bytes: u64,
    pub bulk: bool,
    /// From the end of the body to the answer.
    pub took: Duration,
}

/// A delivery that was held, verifies now, and was committed: it has its id and its time of receipt from then.
#[derive(Debug)]
pub struct Promoted<'a> {
    pub event: EventId,
    pub tenant: &'a str,
    pub endpoint: &'a str,
    pub scheme: &'a str,
    /// The name of the secret that verified it.
    pub secret: &'a str,
    pub source: IpAddr,
    pub body_bytes: u64,
    pub received_unix_ms: u64,
}

/// A delivery, or something that was none, that got a no.
#[derive(Debug)]
pub struct RefusedLine<'a> {
    pub refusal: Refusal,
    /// Known from step 1 on.
    pub tenant: Option<&'a str>,
    pub endpoint: Option<&'a str>,
    pub source: IpAddr,
    /// What an operator needs and a prober must not learn: the check that failed. Written by us, never by the sender.
    pub detail: &'a str,
    /// The id under which the delivery is held, if it is.
    pub held: Option<EventId>,
    /// A verified delivery that is not stored: what there is to ask its provider for.
    pub lost: Option<Lost<'a>>,
    /// The target as received. Hostile: whoever writes it escapes and bounds it.
    pub target: &'a [u8],
}

/// A verified delivery that got a no.
#[derive(Debug, Clone, Copy)]
pub struct Lost<'a> {
    /// The provider's name for it. Hostile, as the target is.
    pub delivery: Option<&'a [u8]>,
    pub received_unix_ms: u64,
    pub body_bytes: u64,
    /// Its provider sends it again by itself.
    pub comes_again: bool,
}

/// A delivery that was committed before, and is answered as it was then.
#[derive(Debug)]
pub struct Repeated<'a> {
    pub event: EventId,
    pub tenant: &'a str,
    pub endpoint: &'a str,
    pub source: IpAddr,
}

/// A handshake that was answered.
#[derive(Debug)]
pub struct Shaken<'a> {
    pub tenant: &'a str,
    pub endpoint: &'a str,
    pub scheme: &'a str,
    /// One of a closed set of words.
    pub kind: &'static str,
    pub source: IpAddr,
    /// Of the answer.
    pub status: u16,
}

pub trait Recorder: Send + Sync + std::fmt::Debug {
    fn accepted(&self, line: &Accepted<'_>);
    fn promoted(&self, line: &Promoted<'_>);
    fn repeated(&self, line: &Repeated<'_>);
    fn shaken(&self, line: &Shaken<'_>);
    fn refused(&self, line: &RefusedLine<'_>);
}
