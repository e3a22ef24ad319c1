//! What is judged, and what comes of it.

use super::key::Key;
use super::url::SeenUrl;

/// The header fields of a delivery, in the order in which they came, duplicates kept.
pub trait Headers {
    /// Shows every value of the fields called `name`, in order. `name` is in lower case; the fields' case does not
    /// count. Values come without the white space around them.
    fn visit<'s>(&'s self, name: &str, each: &mut dyn FnMut(&'s [u8]));
}

impl<N: AsRef<str>, V: AsRef<[u8]>> Headers for Vec<(N, V)> {
    fn visit<'s>(&'s self, name: &str, each: &mut dyn FnMut(&'s [u8])) {
        self.iter().filter(|(n, _)| n.as_ref().eq_ignore_ascii_case(name)).for_each(|(_, v)| each(v.as_ref()));
    }
}

/// How often a header is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Occurrence<'a> {
    None,
    Once(&'a [u8]),
    Several,
}

/// The only value of a header.
pub(crate) fn only<'a>(headers: &'a dyn Headers, name: &str) -> Occurrence<'a> {
    let mut found = Occurrence::None;
    headers.visit(name, &mut |value| {
        found = match found {
            Occurrence::None => Occurrence::Once(value),
            Occurrence::Once(_) | Occurrence::Several => Occurrence::Several,
        };
    });
    found
}

/// A delivery that has not been judged: everything that a signature can be about, as raw bytes.
#[derive(Clone, Copy)]
pub struct Unverified<'a> {
    pub method: &'a [u8],
    /// The request target in origin form, exactly as it came.
    pub target: &'a [u8],
    /// What stands before the target in the URL that the provider was given: from configuration, not from headers.
    pub url: SeenUrl<'a>,
    pub headers: &'a dyn Headers,
    pub body: &'a [u8],
    pub received_unix_ms: u64,
}

impl std::fmt::Debug for Unverified<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Headers can hold tokens: they are not shown.
        f.debug_struct("Unverified")
            .field("method", &domain::text::Untrusted::new(self.method))
            .field("target", &domain::text::Untrusted::new(self.target))
            .field("body_bytes", &self.body.len())
            .field("received_unix_ms", &self.received_unix_ms)
            .finish_non_exhaustive()
    }
}

/// One of an endpoint's keys that is active at the moment of receipt.
#[derive(Debug, Clone, Copy)]
pub struct ActiveKey<'a> {
    /// Place in the endpoint's list of secrets; comes back as [`Verified::key_index`].
    pub index: usize,
    pub key: &'a Key,
}

/// A delivery that proved who sent it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verified {
    /// Which of the keys fitted.
    pub key_index: usize,
    pub delivery_id: Option<DeliveryId>,
    /// What the signature says about when it was made.
    pub signed_at_unix_ms: Option<u64>,
    /// The signature covers the body. Otherwise the sender is authenticated and the body could be anybody's.
    pub covers_body: bool,
    /// The digest of a signed value that proves this delivery and no second one, where the scheme has one.
    pub once: Option<[u8; 16]>,
}

impl Verified {
    /// `verified`, or `authenticated` where the sender is proved and the body is not.
    pub const fn word(&self) -> &'static str {
        if self.covers_body { "verified" } else { "authenticated" }
    }
}

/// Stands for a key that the provider publishes, in [`Verified::key_index`].
pub const PUBLISHED: usize = usize::MAX;

/// The provider's name for a delivery.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeliveryId {
    pub value: Box<[u8]>,
    /// The signature covers it: fit for telling duplicates apart. Otherwise it is a hint that anybody can forge.
    pub signed: bool,
}
