//! A scheme as it is written down: how a delivery proves who sent it, as data.
//!
//! A tenant's `[[scheme]]` table and a row of the gateway's presets are the same thing, and these are its types.
//! Nothing is computed here: `gateway::scheme` compiles a declaration into a small program and says everything
//! that is wrong with it. `docs/schemes.md` explains every key with an example.

mod declare;
mod text;

pub use declare::{
    Algorithm, Answer, BodyDigest, BodyRule, Case, Encoding, Evidence, Hash, KeyDecode, KeyRule, KnownAnswer, ListRule,
    Method, Redelivery, Requirement, SchemeDeclaration, SignatureRule, TimestampFormat, TimestampRule, UrlRule,
    UrlVariant,
};
pub use text::{Condition, ParseTextError, Span, ValueSource, Window};
