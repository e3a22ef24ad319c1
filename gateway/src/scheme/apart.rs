//! What a handshake's digest and a delivery's signature are made of never meets.
//!
//! Both are made with the same key, and whoever asks for a handshake chooses the challenge. Were a delivery signed over a text
//! that can be a challenge, everybody could have it signed. So one of these holds for every content of a scheme with a
//! keyed handshake: it has a character that no challenge has; or it has the body or another value in it, and a delivery in
//! which all of these look like a challenge is refused.

use super::delivery::Unverified;
use super::program::{CaseProgram, Scheme};
use super::source;
use super::template::Piece;
use crate::handshake::Question;

/// What a piece says of the content that it is in.
enum Says {
    /// No challenge has it.
    Apart,
    /// It depends on the delivery.
    Depends,
    Nothing,
}

fn says(piece: &Piece, question: &Question) -> Says {
    match piece {
        Piece::Literal(text) if text.iter().any(|byte| !question.has(*byte)) => Says::Apart,
        Piece::Url | Piece::UrlBase if !question.has(b':') => Says::Apart,
        Piece::Body => Says::Depends,
        Piece::Value { source, .. } if is_of_request(&source.place) => Says::Depends,
        Piece::Literal(_)
        | Piece::BodyHash { .. }
        | Piece::Timestamp
        | Piece::DeliveryId { .. }
        | Piece::Value { .. }
        | Piece::Method
        | Piece::Url
        | Piece::UrlBase
        | Piece::Target
        | Piece::Path
        | Piece::SortedQuery
        | Piece::CanonicalQuery
        | Piece::ListedHeaders { .. }
        | Piece::SortedForm(_)
        | Piece::Secret
        | Piece::Optional(_) => Says::Nothing,
    }
}

/// Can the value be read before anything of the signature is?
fn is_of_request(place: &source::Place) -> bool {
    use source::Place;
    match place {
        Place::Header(_) | Place::Query(_) | Place::Form(_) | Place::Json(_) => true,
        Place::Field(_) | Place::Claim(_) | Place::Item(_) => false,
    }
}

/// Can it be told of every delivery that this case's content is no challenge?
pub(super) fn can_be_told(case: &CaseProgram, question: &Question) -> bool {
    case.pieces.iter().any(|piece| !matches!(says(piece, question), Says::Nothing))
}

impl Scheme {
    /// Could what is signed of this delivery be a challenge of one of the scheme's handshakes?
    pub(super) fn may_be_challenge(&self, case: &CaseProgram, delivery: &Unverified<'_>) -> bool {
        let mut keyed = self.handshakes.iter().filter_map(|handshake| handshake.keyed_question());
        keyed.any(|question| is_challenge(case, delivery, question))
    }
}

fn is_challenge(case: &CaseProgram, delivery: &Unverified<'_>, question: &Question) -> bool {
    let mut is_empty = true;
    for piece in &case.pieces {
        let value = match (says(piece, question), piece) {
            (Says::Apart, _) => return false,
            (Says::Depends, Piece::Body) => Some(delivery.body.into()),
            (Says::Depends, Piece::Value { source, .. }) => source.found_in(delivery),
            (Says::Depends | Says::Nothing, _) => None,
        };
        match value {
            Some(value) if !question.may_be(&value) => return false,
            Some(value) => is_empty &= value.is_empty(),
            None => is_empty = false,
        }
    }
    // A challenge has at least one byte.
    !is_empty
}
