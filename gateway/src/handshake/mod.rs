//! Handshakes: how an endpoint proves to its provider that it is one.
//!
//! A handshake is answered and never becomes an event: it is not committed, not held, and not promoted. What tells one from a
//! delivery and what is answered is data of the scheme (`config::scheme::Handshake`); what is done is one of a closed set:
//!
//! - **echo**: the challenge goes back, as text, in JSON or in a header;
//! - **digest**: a digest of the challenge goes back, with a secret in it;
//! - **fixed**: the answer is always the same, such as to a HEAD or to a ping;
//! - **origin**: the abuse protection of `CloudEvents` web hooks, by OPTIONS;
//! - **adopt**: the challenge is the secret of the deliveries to come; it is kept, and goes back.
//!
//! **No oracle.** A digest is made with the very key that deliveries are signed with, for whoever asks. So a challenge has
//! a bounded alphabet and length, a scheme whose deliveries could be signed over such a text does not compile, and a delivery
//! whose signed content is one is refused however well it is signed (`scheme::apart`).
//!
//! **No page.** What is echoed is plain text or JSON, with `nosniff`, and of an alphabet without markup.

mod adopt;
mod answer;
mod compile;
mod digest;
mod origin;
mod question;
mod recognise;
mod reply;
mod step;
#[cfg(test)]
mod tests;

use config::scheme::HandshakeKind;

pub use adopt::SecretKeeper;
pub(crate) use answer::Asked;
pub use answer::HandshakeFault;
pub(crate) use compile::compile;
pub(crate) use question::Question;
pub use reply::Reply;
pub(crate) use step::labels;

use crate::scheme::Source;
use digest::Digest;
use recognise::Condition;
use reply::Form;

/// A handshake with its names resolved.
#[derive(Debug)]
pub struct Handshake {
    kind: HandshakeKind,
    method: &'static str,
    conditions: Box<[Condition]>,
    verified: bool,
    token: Option<Source>,
    question: Option<Question>,
    digest: Option<Digest>,
    /// In lower case.
    origins: Box<[Box<str>]>,
    form: Form,
    /// Status of a refusal.
    refused: u16,
}

impl Handshake {
    pub fn kind(&self) -> HandshakeKind {
        self.kind
    }

    /// The method by which it comes.
    pub fn method(&self) -> &'static str {
        self.method
    }

    /// Must the request verify as a delivery does, before it is answered?
    pub fn is_verified(&self) -> bool {
        self.verified
    }

    /// Does it need the endpoint's `handshake.token`?
    pub fn needs_token(&self) -> bool {
        self.token.is_some() || self.digest.as_ref().is_some_and(Digest::names_token)
    }

    /// Does it bring a secret?
    pub fn is_adopting(&self) -> bool {
        self.kind == HandshakeKind::Adopt
    }

    /// Does it need the endpoint's `handshake.account`?
    pub fn needs_account(&self) -> bool {
        self.form.names_account()
    }

    /// Does whoever gets an answer have to have proved something? A digest proves nothing of who asks for it.
    pub(crate) fn is_proven(&self) -> bool {
        self.verified || self.token.is_some()
    }

    /// The question, where a digest of it is made with the key that deliveries are signed with.
    pub(crate) fn keyed_question(&self) -> Option<&Question> {
        self.digest.as_ref().filter(|digest| digest.is_keyed()).and(self.question.as_ref())
    }

    pub(crate) fn refused_status(&self) -> u16 {
        self.refused
    }
}
