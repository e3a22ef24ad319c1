//! A digest of a challenge, with a secret in it.

use config::scheme::{ChallengeDigest, Encoding, Hash};
use ring::{digest, hmac};

use crate::scheme::{Key, encode, hash_algorithm};

/// What is computed from a challenge.
#[derive(Debug)]
pub(super) struct Digest {
    hash: Hash,
    encoding: Encoding,
    pieces: Box<[Piece]>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Piece {
    Challenge,
    /// The endpoint's token: then it is a plain hash, and no key is in it.
    Token,
    /// The public URL without its query.
    Url,
}

impl Digest {
    /// # Errors
    /// A sentence that does not name the key.
    pub(super) fn compile(declared: &ChallengeDigest) -> Result<Self, String> {
        let mut pieces = Vec::new();
        let mut rest = declared.content.as_str();
        while !rest.is_empty() {
            let known = [("{challenge}", Piece::Challenge), ("{token}", Piece::Token), ("{url}", Piece::Url)]
                .into_iter()
                .find_map(|(name, piece)| Some((piece, rest.strip_prefix(name)?)));
            let Some((piece, tail)) = known else {
                return Err("is made of {challenge}, {token} and {url}, and of nothing else".into());
            };
            pieces.push(piece);
            rest = tail;
        }
        if pieces.iter().filter(|piece| **piece == Piece::Challenge).count() != 1 {
            return Err("needs {challenge}, once".into());
        }
        let digest = Self { hash: declared.hash, encoding: declared.encoding, pieces: pieces.into() };
        if digest.is_keyed() && digest.pieces.len() > 1 {
            return Err("of an HMAC is {challenge} alone; {url} goes with {token}".into());
        }
        Ok(digest)
    }

    /// Is the key that of the endpoint's deliveries?
    pub(super) fn is_keyed(&self) -> bool {
        !self.names_token()
    }

    pub(super) fn names_token(&self) -> bool {
        self.pieces.contains(&Piece::Token)
    }

    /// With the endpoint's key, or with its token in the content: whichever this digest has.
    pub(super) fn of(&self, challenge: &str, key: Option<&Key>, token: Option<&[u8]>, url: &[u8]) -> Option<String> {
        if self.is_keyed() {
            let algorithm = match self.hash {
                Hash::Sha1 => hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY,
                Hash::Sha256 => hmac::HMAC_SHA256,
                Hash::Sha512 => hmac::HMAC_SHA512,
            };
            let key = hmac::Key::new(algorithm, key?.secret()?);
            return Some(encode(self.encoding, hmac::sign(&key, challenge.as_bytes()).as_ref()));
        }
        let mut context = digest::Context::new(hash_algorithm(self.hash));
        for piece in &self.pieces {
            context.update(match piece {
                Piece::Challenge => challenge.as_bytes(),
                Piece::Token => token?,
                Piece::Url => url,
            });
        }
        Some(encode(self.encoding, context.finish().as_ref()))
    }
}
