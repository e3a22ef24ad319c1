//! Bodies on their way: counted, bounded, and watched for how far they got.

use std::borrow::Cow;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bytes::Bytes;
use http_body_util::combinators::UnsyncBoxBody;
use outbound::ErrorType;
use thiserror::Error;

use crate::Refusal;

/// Why a body ended before its end, in either direction.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{refusal}: {detail}")]
pub struct BodyFault {
    /// What it is called.
    pub refusal: Refusal,
    /// What `Proxy-Status` calls it.
    pub error_type: ErrorType,
    /// For the operator.
    pub detail: Cow<'static, str>,
}

impl BodyFault {
    /// With the error type that the refusal has by itself.
    pub fn new(refusal: Refusal, detail: impl Into<Cow<'static, str>>) -> Self {
        Self { refusal, error_type: refusal.error_type(), detail: detail.into() }
    }
}

/// A request's body as it comes from the caller. Its length is exact (`size_hint`) where the caller declared one.
pub type RequestBody = UnsyncBoxBody<Bytes, BodyFault>;

/// What has gone and come so far. Read it when the answer's body has ended or was dropped: it is final then.
#[derive(Debug, Default)]
pub struct Tally {
    sent_bytes: AtomicU64,
    received_bytes: AtomicU64,
    /// The request's body was handed over, to its last byte.
    is_sent: AtomicBool,
    /// The caller's next bytes are waited for.
    is_waiting: AtomicBool,
    sent_fault: OnceLock<BodyFault>,
    received_end: OnceLock<Result<(), BodyFault>>,
}

impl Tally {
    /// Bytes of the request's body that were handed to the connection.
    pub fn sent_bytes(&self) -> u64 {
        self.sent_bytes.load(Ordering::Relaxed)
    }

    /// Bytes of the answer's body that were given on.
    pub fn received_bytes(&self) -> u64 {
        self.received_bytes.load(Ordering::Relaxed)
    }

    /// How the answer's body ended. None before, and where it was dropped before its end: nobody wanted the rest.
    pub fn end(&self) -> Option<&Result<(), BodyFault>> {
        self.received_end.get()
    }

    /// Whether the destination can have the whole of the request: its last byte is on the way, or was.
    pub(crate) fn is_sent(&self) -> bool {
        self.is_sent.load(Ordering::Relaxed)
    }

    pub(crate) fn is_waiting(&self) -> bool {
        self.is_waiting.load(Ordering::Relaxed)
    }

    pub(crate) fn wait(&self, is_waiting: bool) {
        self.is_waiting.store(is_waiting, Ordering::Relaxed);
    }

    /// One more piece of the request is on its way; all of them, then.
    pub(crate) fn send(&self, bytes: u64) -> u64 {
        self.sent_bytes.fetch_add(bytes, Ordering::Relaxed) + bytes
    }

    pub(crate) fn sent_all(&self) {
        self.is_sent.store(true, Ordering::Relaxed);
    }

    pub(crate) fn fail_sending(&self, fault: &BodyFault) {
        self.sent_fault.get_or_init(|| fault.clone());
    }

    pub(crate) fn sent_fault(&self) -> Option<&BodyFault> {
        self.sent_fault.get()
    }

    pub(crate) fn receive(&self, bytes: u64) -> u64 {
        self.received_bytes.fetch_add(bytes, Ordering::Relaxed) + bytes
    }

    pub(crate) fn end_with(&self, end: Result<(), BodyFault>) {
        // The first word counts.
        self.received_end.get_or_init(|| end);
    }
}
