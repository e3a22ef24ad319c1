//! The template of what is signed: literals and named pieces.
//!
//! `v0:{timestamp}:{body}`. Names stand in braces; `{{` and `}}` are braces. `[…]` is dropped as a whole where one
//! of its values is absent; `[[` and `]]` are brackets. A value may end in `|lower`.

use config::scheme::{Encoding, Hash, ValueSource};

use super::source::Source;

/// One piece of what is signed.
#[derive(Debug)]
pub(super) enum Piece {
    Literal(Box<[u8]>),
    Body,
    /// The digest of the body, as text.
    BodyHash {
        hash: Hash,
        encoding: Encoding,
    },
    /// The timestamp's text as it came.
    Timestamp,
    /// The delivery's id; it may not hold the byte that ends it, or one content could be read in two ways.
    DeliveryId {
        ends_with: Option<u8>,
    },
    Value {
        source: Source,
        lower: bool,
    },
    Method,
    Url,
    /// Names and values of a form body, sorted, without separators.
    SortedForm {
        unique: bool,
    },
    /// The key itself, for plain hashes.
    Secret,
    /// All or nothing.
    Optional(Box<[Self]>),
}

/// Reads a template.
pub(super) fn parse(template: &str) -> Result<Box<[Piece]>, String> {
    let mut reader = Reader { rest: template.chars().peekable() };
    let pieces = reader.pieces(false)?;
    if pieces.is_empty() { Err("the content is empty: nothing would be signed".into()) } else { Ok(pieces) }
}

struct Reader<'t> {
    rest: std::iter::Peekable<std::str::Chars<'t>>,
}

impl Reader<'_> {
    fn pieces(&mut self, optional: bool) -> Result<Box<[Piece]>, String> {
        let mut pieces = Vec::new();
        let mut literal = String::new();
        loop {
            let next = self.rest.next();
            let doubled = matches!(next, Some('{' | '}' | '[' | ']')) && self.rest.peek() == next.as_ref();
            match next {
                Some(c) if doubled => {
                    self.rest.next();
                    literal.push(c);
                }
                Some('{') => {
                    flush(&mut literal, &mut pieces);
                    let name = self.name()?;
                    pieces.push(piece(&name)?);
                }
                Some('[') if !optional => {
                    flush(&mut literal, &mut pieces);
                    pieces.push(Piece::Optional(self.pieces(true)?));
                }
                Some(']') if optional => break,
                None if !optional => break,
                None => return Err("the content has a [ without its ]".into()),
                Some(c @ ('}' | '[' | ']')) => {
                    return Err(format!("the content has a {c} where none can be; write {c}{c} for the character"));
                }
                Some(c) => literal.push(c),
            }
        }
        flush(&mut literal, &mut pieces);
        end_ids(&mut pieces);
        Ok(pieces.into())
    }

    fn name(&mut self) -> Result<String, String> {
        let mut name = String::new();
        loop {
            match self.rest.next() {
                Some('}') => return Ok(name),
                Some(c) => name.push(c),
                None => return Err("the content has a { without its }".into()),
            }
        }
    }
}

fn flush(literal: &mut String, pieces: &mut Vec<Piece>) {
    if !literal.is_empty() {
        pieces.push(Piece::Literal(std::mem::take(literal).into_bytes().into()));
    }
}

/// Tells every delivery id which byte ends it.
fn end_ids(pieces: &mut [Piece]) {
    for at in 1..pieces.len() {
        let (before, from) = pieces.split_at_mut(at);
        if let (Some(Piece::DeliveryId { ends_with }), Some(Piece::Literal(text))) = (before.last_mut(), from.first()) {
            *ends_with = text.first().copied();
        }
    }
}

fn piece(name: &str) -> Result<Piece, String> {
    let (place, lower) = match name.strip_suffix("|lower") {
        Some(place) => (place, true),
        None => (name, false),
    };
    let plain = match name {
        "body" => Some(Piece::Body),
        "timestamp" => Some(Piece::Timestamp),
        "delivery_id" => Some(Piece::DeliveryId { ends_with: None }),
        "method" => Some(Piece::Method),
        "url" => Some(Piece::Url),
        "sorted_form" => Some(Piece::SortedForm { unique: false }),
        "sorted_form_unique" => Some(Piece::SortedForm { unique: true }),
        "secret" => Some(Piece::Secret),
        _ => None,
    };
    if let Some(piece) = plain {
        return Ok(piece);
    }
    if let Some((hash, encoding)) = name.strip_prefix("body_hash:").and_then(|rest| rest.split_once(':')) {
        return body_hash(hash, encoding).ok_or_else(|| {
            format!("{{{name}}}: a body's hash is sha1, sha256 or sha512, in hex, base64 or base64url")
        });
    }
    let source: ValueSource = place.parse().map_err(|_| {
        format!(
            "{{{name}}} is nothing that can be signed: body, timestamp, delivery_id, method, url, sorted_form, \
             sorted_form_unique, secret, body_hash:HASH:ENCODING, or a value such as header:NAME"
        )
    })?;
    Ok(Piece::Value { source: Source::compile(&source), lower })
}

fn body_hash(hash: &str, encoding: &str) -> Option<Piece> {
    let hash = match hash {
        "sha1" => Hash::Sha1,
        "sha256" => Hash::Sha256,
        "sha512" => Hash::Sha512,
        _ => return None,
    };
    let encoding = match encoding {
        "hex" => Encoding::Hex,
        "base64" => Encoding::Base64,
        "base64url" => Encoding::Base64url,
        _ => return None,
    };
    Some(Piece::BodyHash { hash, encoding })
}

/// Does any piece, also of an optional part, fit?
pub(super) fn any(pieces: &[Piece], fits: &dyn Fn(&Piece) -> bool) -> bool {
    pieces.iter().any(|piece| fits(piece) || matches!(piece, Piece::Optional(inner) if any(inner, fits)))
}

/// Does a piece that is always there fit?
pub(super) fn always(pieces: &[Piece], fits: &dyn Fn(&Piece) -> bool) -> bool {
    pieces.iter().any(fits)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(template: &str) -> String {
        format!("{:?}", parse(template).unwrap())
    }

    #[test]
    fn templates_become_pieces() {
        let pieces = parse("v0:{timestamp}:{body}").unwrap();
        assert!(matches!(
            &*pieces,
            [Piece::Literal(a), Piece::Timestamp, Piece::Literal(b), Piece::Body] if **a == *b"v0:" && **b == *b":"
        ));
        let pieces = parse("{delivery_id}.{timestamp}").unwrap();
        assert!(matches!(pieces[0], Piece::DeliveryId { ends_with: Some(b'.') }));
        let pieces = parse("{delivery_id}{timestamp}").unwrap();
        assert!(matches!(pieces[0], Piece::DeliveryId { ends_with: None }));
        let pieces = parse("[id:{query:data.id|lower};]x").unwrap();
        assert!(matches!(&pieces[0], Piece::Optional(inner) if matches!(inner[1], Piece::Value { lower: true, .. })));
        assert!(shape("{{[[{body}]]}}").contains("Body"));
        assert!(matches!(&parse("{{x}}").unwrap()[..], [Piece::Literal(text)] if **text == *b"{x}"));
    }

    #[test]
    fn templates_that_mean_nothing_are_refused() {
        for template in [
            "",
            "{",
            "{body",
            "}",
            "[",
            "]",
            "[{body}",
            "[[",
            "{}",
            "{bdy}",
            "{header:}",
            "[a[b]]",
            "{body_hash:md5:hex}",
        ] {
            assert!(parse(template).is_err() || template == "[[", "{template}");
        }
    }
}
