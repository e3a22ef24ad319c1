//! Schemes: how a delivery proves who sent it, as data.
//!
//! A declaration (`config::scheme`) is compiled once into a small program: where the signature is and how it is
//! written, what is signed, which clock counts. The program runs over raw bytes, without allocation for the plain
//! forms, and knows no provider by name; the presets are rows of the same data that a tenant may write.
//!
//! What holds for every scheme:
//! - An empty key is no key, and a delivery without an active key never verifies.
//! - Text is read strictly. A digest has one spelling (hex may be in either case), a header that is meant once
//!   must be there once, a field of a list that is meant once as well. What can be read in two ways is refused.
//! - All active keys are tried; digests and tokens are compared in constant time.
//! - A timestamp that the signature does not cover is worth nothing: such a declaration does not compile.
//! - Whether the signature covers the body, and the delivery's id, follows from the content and is never claimed.
//! - Bodies are bytes. They are never decoded before they are verified, and never changed.
//!
//! Keys are the endpoint's or stand in the scheme: nothing that a delivery says chooses a key or an algorithm. Fetched keys
//! join as another origin of keys; nothing else moves.

mod apart;
mod compile;
mod compile_jwt;
mod content;
mod delivery;
mod encoding;
mod explain;
mod fault;
mod form;
mod found;
mod json;
mod judge;
mod key;
mod list;
mod presets;
mod program;
mod public_key;
mod query;
mod respell;
mod self_test;
mod sign;
mod sign_jwt;
mod source;
mod stamp;
mod stored;
mod template;
mod token;
mod url;
mod verify;

#[cfg(test)]
mod tests;

pub(crate) use delivery::{Occurrence, only};
pub(crate) use encoding::encode;
pub(crate) use key::algorithm as hash_algorithm;
pub(crate) use source::Source;

pub use delivery::{ActiveKey, DeliveryId, Headers, PUBLISHED, Unverified, Verified};
pub use explain::Hint;
pub use fault::{DeclarationFault, KeyFault, SignFault, VerifyFault};
pub use key::Key;
pub use presets::{FaultyPresets, Presets};
pub use program::Scheme;
pub use self_test::Proven;
pub use sign::{Signed, Unsigned};
pub use url::{InvalidUrl, SeenUrl};
