//! Checks a document that came from somewhere.

use data_encoding::HEXLOWER;
use ring::digest::{SHA256, digest};

use super::change::At;
use super::document::{Document, SCHEMA_VERSION};
use crate::caller::PublicKey;

/// Larger than any document of a full book.
pub const DOCUMENT_BYTES_MAX: u64 = 4 << 20;

/// What is wrong with it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum VerifyFault {
    #[error("the signature is not that of this key over these bytes")]
    Signature,
    #[error("is signed, and no document of exit ranges: {0}")]
    Form(String),
    #[error("is of form {0}, which this version does not read")]
    Schema(u32),
    #[error("was valid until {0}; get it anew")]
    Old(At),
    #[error("is of {0}, and the clock says {1}")]
    Early(At, At),
    #[error("names another key than the one that it was checked with")]
    OtherKey,
    #[error("is another book than the one before it")]
    OtherBook,
    #[error("is version {0}, and version {1} was checked before it")]
    Order(u64, u64),
    #[error("says that the version before it was another one")]
    Chain,
}

/// A document that is what its key's owner signed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checked {
    /// What it says.
    pub document: Document,
    sha256: String,
}

/// Another form may have other keys: that it is another one is what is said of it.
#[derive(serde::Deserialize)]
#[serde(rename_all = "camelCase")]
struct Form {
    schema_version: u32,
}

/// How far a clock may be behind the one that the document was made by.
const SKEW_SECONDS: u64 = 300;

/// Reads a document whose signature is that of `key` over its exact bytes.
///
/// # Errors
/// It is not, or says what it cannot say now. `now` is none where an old version is looked at.
pub fn verify(bytes: &[u8], signature: &[u8], key: &PublicKey, now: Option<At>) -> Result<Checked, VerifyFault> {
    if !key.verifies(bytes, signature) {
        return Err(VerifyFault::Signature);
    }
    let form: Form = serde_json::from_slice(bytes).map_err(|error| VerifyFault::Form(error.to_string()))?;
    if form.schema_version != SCHEMA_VERSION {
        return Err(VerifyFault::Schema(form.schema_version));
    }
    let document: Document = serde_json::from_slice(bytes).map_err(|error| VerifyFault::Form(error.to_string()))?;
    if document.public_key != key.to_string() {
        return Err(VerifyFault::OtherKey);
    }
    if let Some(now) = now {
        if now >= document.valid_until {
            return Err(VerifyFault::Old(document.valid_until));
        }
        if now.plus(SKEW_SECONDS) < document.generated {
            return Err(VerifyFault::Early(document.generated, now));
        }
    }
    Ok(Checked { document, sha256: HEXLOWER.encode(digest(&SHA256, bytes).as_ref()) })
}

impl Checked {
    /// Whether it comes after `before`, of the same book; where it comes right after, it has to say so itself.
    ///
    /// # Errors
    /// Says how it does not.
    pub fn follows(&self, before: &Self) -> Result<(), VerifyFault> {
        let (own, other) = (&self.document, &before.document);
        if own.book != other.book {
            return Err(VerifyFault::OtherBook);
        }
        if own.serial <= other.serial {
            return Err(VerifyFault::Order(own.serial, other.serial));
        }
        let is_next = own.serial == other.serial + 1;
        let says_so = own.previous_sha256.as_ref() == Some(&before.sha256);
        // A history that was cut or written anew is found further on, too.
        let has_past = own.history.starts_with(&other.history);
        if (is_next && !says_so) || !has_past { Err(VerifyFault::Chain) } else { Ok(()) }
    }
}
