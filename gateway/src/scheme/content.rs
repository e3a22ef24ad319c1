//! What is signed, shown piece by piece to whoever computes over it.

use std::borrow::Cow;
use std::sync::Arc;

use config::scheme::UrlVariant;
use ring::digest;

use super::delivery::Unverified;
use super::fault::VerifyFault;
use super::form;
use super::key::algorithm;
use super::list::List;
use super::source::Source;
use super::template::Piece;

/// A provider's id that is longer is none.
pub(super) const DELIVERY_ID_BYTES_MAX: usize = 256;

/// The form of a body, read once for all keys and URL variants.
pub(super) type SortedForm<'a> = Vec<(Cow<'a, [u8]>, Cow<'a, [u8]>)>;

/// Everything that pieces can ask for.
#[derive(Clone, Copy)]
pub(super) struct Frame<'f, 'a> {
    pub(super) delivery: &'f Unverified<'a>,
    pub(super) list: Option<List<'a>>,
    pub(super) timestamp: Option<&'f [u8]>,
    pub(super) delivery_id: Option<&'f Source>,
    pub(super) form: Option<&'f SortedForm<'a>>,
    pub(super) url_decodes: &'f [u8],
    pub(super) url_variant: UrlVariant,
}

impl Frame<'_, '_> {
    /// Shows the content to `out`, in order.
    pub(super) fn write(&self, pieces: &[Piece], secret: &[u8], out: &mut dyn FnMut(&[u8])) -> Result<(), VerifyFault> {
        pieces.iter().try_for_each(|piece| self.piece(piece, secret, out))
    }

    fn piece(&self, piece: &Piece, secret: &[u8], out: &mut dyn FnMut(&[u8])) -> Result<(), VerifyFault> {
        match piece {
            Piece::Literal(text) => out(text),
            Piece::Body => out(self.delivery.body),
            Piece::BodyHash { hash, encoding } => {
                let digest = digest::digest(algorithm(*hash), self.delivery.body);
                out(super::encoding::encode(*encoding, digest.as_ref()).as_bytes());
            }
            Piece::Timestamp => out(self.timestamp.ok_or_else(|| missing("timestamp"))?),
            Piece::DeliveryId { ends_with } => out(&self.id(*ends_with)?),
            Piece::Value { source, lower } => {
                let value = source.value(self.delivery, self.list)?.ok_or_else(|| source.missing())?;
                if *lower { out(&value.to_ascii_lowercase()) } else { out(&value) }
            }
            Piece::Method => out(self.delivery.method),
            Piece::Url => {
                self.delivery.url.write(self.delivery.target, self.url_variant, self.url_decodes, out);
            }
            Piece::SortedForm { .. } => {
                for (name, value) in self.form.into_iter().flatten() {
                    out(name);
                    out(value);
                }
            }
            Piece::Secret => out(secret),
            Piece::Optional(inner) => {
                let mut part = Vec::new();
                match self.write(inner, secret, &mut |bytes| part.extend_from_slice(bytes)) {
                    Ok(()) => out(&part),
                    Err(VerifyFault::Missing { .. }) => {}
                    Err(fault) => return Err(fault),
                }
            }
        }
        Ok(())
    }

    fn id(&self, ends_with: Option<u8>) -> Result<Cow<'_, [u8]>, VerifyFault> {
        let source = self.delivery_id.ok_or_else(|| missing("delivery id"))?;
        let id = source.value(self.delivery, self.list)?.ok_or_else(|| source.missing())?;
        let readable = !id.is_empty() && id.len() <= DELIVERY_ID_BYTES_MAX && !id.iter().any(|b| Some(*b) == ends_with);
        if readable { Ok(id) } else { Err(source.malformed()) }
    }
}

fn missing(what: &str) -> VerifyFault {
    VerifyFault::Missing { what: what.into() }
}

/// Reads the form, where the pieces need it.
pub(super) fn sorted_form<'a>(pieces: &[Piece], body: &'a [u8]) -> Result<Option<SortedForm<'a>>, VerifyFault> {
    let unique =
        pieces.iter().find_map(|piece| if let Piece::SortedForm { unique } = piece { Some(*unique) } else { None });
    let Some(unique) = unique else { return Ok(None) };
    form::sorted(body, unique).map(Some).map_err(|_| VerifyFault::Malformed { what: Arc::from("form body") })
}
