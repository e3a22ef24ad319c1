//! What is signed, shown piece by piece to whoever computes over it.

use std::borrow::Cow;
use std::sync::Arc;

use config::scheme::UrlVariant;
use ring::digest;

use super::delivery::Unverified;
use super::fault::VerifyFault;
use super::form;
use super::key::algorithm;
use super::query;
use super::source::{Beside, Source};
use super::template::{FormOrder, Piece};

/// A provider's id that is longer is none.
pub(super) const DELIVERY_ID_BYTES_MAX: usize = 256;

/// Headers that a delivery may list as signed: each is looked for among all.
const LISTED_MAX: usize = 64;

/// The form of a body, read once for all keys and URL variants.
pub(super) type SortedForm<'a> = Vec<(Cow<'a, [u8]>, Cow<'a, [u8]>)>;

/// Everything that pieces can ask for.
#[derive(Clone, Copy)]
pub(super) struct Frame<'f, 'a> {
    pub(super) delivery: &'f Unverified<'a>,
    pub(super) beside: Beside<'a>,
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
            Piece::Value { source, lower, closed } => {
                let value = source.value(self.delivery, self.beside)?.ok_or_else(|| source.missing())?;
                if closed.is_some_and(|end| value.contains(&end)) {
                    return Err(source.malformed());
                }
                if *lower { out(&value.to_ascii_lowercase()) } else { out(&value) }
            }
            Piece::Method => out(self.delivery.method),
            Piece::UrlBase => {
                let path = query::path(self.delivery.target);
                self.delivery.url.write(path, self.url_variant, self.url_decodes, out);
            }
            Piece::Target => {
                out(self.delivery.url.base_path.as_bytes());
                out(self.delivery.target);
            }
            Piece::Path => {
                out(self.delivery.url.base_path.as_bytes());
                out(query::path(self.delivery.target));
            }
            Piece::SortedQuery => match query::sorted(self.delivery.target) {
                Ok(text) if text.is_empty() => return Err(missing("query")),
                Ok(text) => out(&text),
                Err(query::Unreadable) => return Err(VerifyFault::Malformed { what: Arc::from("query") }),
            },
            Piece::CanonicalQuery => {
                let text = query::canonical(self.delivery.target, "jwt");
                out(&text.map_err(|query::Unreadable| VerifyFault::Malformed { what: Arc::from("query") })?);
            }
            Piece::ListedHeaders { list, musts } => self.listed_headers(list, musts, out)?,
            Piece::Url => {
                self.delivery.url.write(self.delivery.target, self.url_variant, self.url_decodes, out);
            }
            Piece::SortedForm(_) => {
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

    fn listed_headers(&self, list: &Source, musts: &[Box<str>], out: &mut dyn FnMut(&[u8])) -> Result<(), VerifyFault> {
        let text = list.value(self.delivery, self.beside)?.ok_or_else(|| list.missing())?;
        let text = std::str::from_utf8(&text).map_err(|_| list.malformed())?;
        let mut names: Vec<_> = text.split(',').map(|name| name.trim().to_ascii_lowercase()).collect();
        names.sort_unstable();
        let is_twice = names.windows(2).any(|pair| pair[0] == pair[1]);
        let holds_all = musts.iter().all(|must| names.iter().any(|name| **name == **must));
        if is_twice || names.len() > LISTED_MAX || !holds_all {
            return Err(list.malformed());
        }
        for (at, name) in names.iter().enumerate() {
            let header = Source::header(name);
            let value = header.value(self.delivery, self.beside)?.ok_or_else(|| header.missing())?;
            out(if at == 0 { b"" } else { b";" });
            out(name.as_bytes());
            out(b":");
            out(&value);
        }
        Ok(())
    }

    fn id(&self, ends_with: Option<u8>) -> Result<Cow<'_, [u8]>, VerifyFault> {
        let source = self.delivery_id.ok_or_else(|| missing("delivery id"))?;
        let id = source.value(self.delivery, self.beside)?.ok_or_else(|| source.missing())?;
        let readable = !id.is_empty() && id.len() <= DELIVERY_ID_BYTES_MAX && !id.iter().any(|b| Some(*b) == ends_with);
        if readable { Ok(id) } else { Err(source.malformed()) }
    }
}

fn missing(what: &str) -> VerifyFault {
    VerifyFault::Missing { what: what.into() }
}

/// Reads the form, where the pieces need it.
pub(super) fn sorted_form<'a>(pieces: &[Piece], body: &'a [u8]) -> Result<Option<SortedForm<'a>>, VerifyFault> {
    let order = pieces.iter().find_map(|piece| if let Piece::SortedForm(order) = piece { Some(*order) } else { None });
    let Some(order) = order else { return Ok(None) };
    let form = match order {
        FormOrder::AsTheyCame => form::sorted(body, false),
        FormOrder::Unique => form::sorted(body, true),
        FormOrder::All => form::fields(body).map(|mut fields| {
            fields.sort();
            fields
        }),
    };
    form.map(Some).map_err(|_| VerifyFault::Malformed { what: Arc::from("form body") })
}
