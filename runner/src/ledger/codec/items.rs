//! The items of a commit as they are written. Keys and numbers are for ever: a field that is given up leaves its key empty.

use minicbor::bytes::{ByteArray, ByteSlice};
use minicbor::{Decode, Encode};

use crate::ids::{LogicalAttempt, Version};

#[derive(Encode, Decode)]
#[cbor(array)]
pub(super) struct HeadingItem<'b> {
    #[n(0)]
    pub(super) run: ByteArray<16>,
    #[b(1)]
    pub(super) tenant: &'b str,
    #[n(2)]
    pub(super) first: u64,
    #[n(3)]
    pub(super) count: u16,
    #[n(4)]
    pub(super) lease: u64,
    /// From the record's own time on.
    #[n(5)]
    pub(super) since: i64,
    /// True: over. False: open.
    #[n(6)]
    pub(super) is_over: Option<bool>,
}

#[derive(Encode, Decode)]
#[cbor(map)]
pub(super) struct Payload<'b> {
    /// Absent where it is that of the data.
    #[n(0)]
    pub(super) bytes: Option<u64>,
    #[n(1)]
    pub(super) digest: Option<ByteArray<32>>,
    /// Absent: inline. 1 stored, 2 truncated, 3 expired.
    #[n(2)]
    pub(super) kept: Option<u8>,
    #[b(3)]
    pub(super) data: Option<&'b ByteSlice>,
}

#[derive(Encode, Decode)]
#[cbor(array)]
pub(super) struct Attempt {
    #[n(0)]
    pub(super) logical: LogicalAttempt,
    #[n(1)]
    pub(super) physical: u32,
}

#[derive(Encode, Decode)]
#[cbor(array)]
pub(super) struct Provider<'b> {
    #[n(0)]
    pub(super) send_state: u8,
    #[n(1)]
    pub(super) status: Option<u16>,
    #[b(2)]
    pub(super) message: Option<&'b str>,
    #[b(3)]
    pub(super) request_id: Option<&'b str>,
    #[b(4)]
    pub(super) correlation: Option<&'b str>,
}

#[derive(Encode, Decode)]
#[cbor(array)]
pub(super) struct Outcome<'b> {
    #[b(0)]
    pub(super) step: &'b str,
    #[n(1)]
    pub(super) attempt: Attempt,
    #[b(2)]
    pub(super) result: OutcomeResult<'b>,
    #[b(3)]
    pub(super) provider: Option<Provider<'b>>,
}

#[derive(Encode, Decode)]
#[cbor(flat)]
pub(super) enum OutcomeResult<'b> {
    #[n(0)]
    Done(#[b(0)] Payload<'b>),
    #[n(1)]
    Skipped,
    #[n(2)]
    Failed(#[n(0)] u8, #[b(1)] &'b str),
    #[n(3)]
    Deferred(#[n(0)] u64, #[n(1)] u8),
    #[n(4)]
    Ambiguous(#[n(0)] u8),
}

#[derive(Encode, Decode)]
#[cbor(flat)]
pub(super) enum Cause<'b> {
    #[n(0)]
    Event(#[n(0)] ByteArray<16>, #[b(1)] &'b str),
    #[n(1)]
    Replay(#[n(0)] ByteArray<16>, #[b(1)] &'b str, #[b(2)] &'b str),
    #[n(2)]
    Manual(#[b(0)] &'b str),
    #[n(3)]
    Again(#[n(0)] ByteArray<16>, #[b(1)] &'b str, #[b(2)] &'b str),
}

#[derive(Encode, Decode)]
#[cbor(map)]
pub(super) struct Admitted<'b> {
    #[n(0)]
    pub(super) automation: ByteArray<16>,
    #[n(1)]
    pub(super) version: Version,
    #[b(2)]
    pub(super) cause: Cause<'b>,
    #[n(3)]
    pub(super) class: u8,
    #[n(4)]
    pub(super) deadline: u64,
    #[b(5)]
    pub(super) input: Option<Payload<'b>>,
}

#[derive(Encode, Decode)]
#[cbor(map)]
pub(super) struct Lease<'b> {
    #[n(0)]
    pub(super) number: u64,
    #[b(1)]
    pub(super) owner: &'b str,
    #[n(2)]
    pub(super) until: u64,
}

#[derive(Encode, Decode)]
#[cbor(map)]
pub(super) struct Intent<'b> {
    #[b(0)]
    pub(super) step: &'b str,
    #[n(1)]
    pub(super) attempt: Attempt,
    /// Absent where it is that of run, step and asking.
    #[n(2)]
    pub(super) effect: Option<ByteArray<16>>,
    /// True or absent.
    #[n(3)]
    pub(super) is_read_back: Option<bool>,
    #[b(4)]
    pub(super) connection: Option<&'b str>,
    #[b(5)]
    pub(super) input: Payload<'b>,
}

#[derive(Encode, Decode)]
#[cbor(map)]
pub(super) struct Parked<'b> {
    #[n(0)]
    pub(super) reason: u8,
    #[b(1)]
    pub(super) step: Option<&'b str>,
    #[n(2)]
    pub(super) until: Option<u64>,
}

#[derive(Encode, Decode)]
#[cbor(map)]
pub(super) struct Resolved<'b> {
    #[b(0)]
    pub(super) step: &'b str,
    #[n(1)]
    pub(super) attempt: Attempt,
    #[n(2)]
    pub(super) choice: u8,
    #[b(3)]
    pub(super) by: &'b str,
}

#[derive(Encode, Decode)]
#[cbor(map)]
pub(super) struct Rerun<'b> {
    #[b(0)]
    pub(super) step: &'b str,
    #[n(1)]
    pub(super) logical: LogicalAttempt,
    #[b(2)]
    pub(super) input: Option<Payload<'b>>,
    #[b(3)]
    pub(super) by: &'b str,
}

#[derive(Encode, Decode)]
#[cbor(map)]
pub(super) struct By<'b> {
    #[b(0)]
    pub(super) by: &'b str,
}

#[derive(Encode, Decode)]
#[cbor(map)]
pub(super) struct Quarantined<'b> {
    #[n(0)]
    pub(super) crashes: u32,
    #[b(1)]
    pub(super) reason: &'b str,
}

#[derive(Encode, Decode)]
#[cbor(map)]
pub(super) struct Terminal<'b> {
    #[n(0)]
    pub(super) status: u8,
    #[b(1)]
    pub(super) failed_at: Option<&'b str>,
    #[n(2)]
    pub(super) class: Option<u8>,
}

#[derive(Encode, Decode)]
#[cbor(map)]
pub(super) struct Dismissed<'b> {
    #[b(0)]
    pub(super) by: &'b str,
    #[b(1)]
    pub(super) reason: &'b str,
}

#[derive(Encode, Decode)]
#[cbor(flat)]
pub(super) enum Body<'b> {
    #[n(0)]
    Admitted(#[b(0)] Admitted<'b>),
    #[n(1)]
    Lease(#[b(0)] Lease<'b>),
    #[n(2)]
    Intent(#[b(0)] Intent<'b>),
    #[n(3)]
    Outcome(#[b(0)] Outcome<'b>),
    #[n(4)]
    LateOutcome(#[b(0)] Outcome<'b>),
    #[n(5)]
    Parked(#[b(0)] Parked<'b>),
    #[n(6)]
    Released(#[b(0)] By<'b>),
    #[n(7)]
    Resolved(#[b(0)] Resolved<'b>),
    #[n(8)]
    Rerun(#[b(0)] Rerun<'b>),
    #[n(9)]
    CancelRequested(#[b(0)] By<'b>),
    #[n(10)]
    Quarantined(#[b(0)] Quarantined<'b>),
    #[n(11)]
    Terminal(#[b(0)] Terminal<'b>),
    #[n(12)]
    Dismissed(#[b(0)] Dismissed<'b>),
}
