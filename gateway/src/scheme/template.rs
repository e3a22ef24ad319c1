//! The template of what is signed: literals and named pieces.
//!
//! `v0:{timestamp}:{body}`. Names stand in braces; `{{` and `}}` are braces. `[…]` is dropped as a whole where one
//! of its values is absent; `[[` and `]]` are brackets. A value may end in `|lower`, or in `|closed`: it may then not hold the
//! character that follows it.

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
        /// It may not hold this byte, which ends it.
        closed: Option<u8>,
    },
    Method,
    Url,
    /// The URL up to its query.
    UrlBase,
    /// Path and query of the URL: what stands before the target, and the target as it came.
    Target,
    /// The path of the URL alone.
    Path,
    /// The parameters of the query, decoded and sorted, as `a=1&b=2`. Absent where there are none.
    SortedQuery,
    /// The same, escaped again by RFC 3986, values of one name joined by commas, `jwt` left out.
    CanonicalQuery,
    /// Name and value of every header that this header lists, as `name:value;name:value`, sorted by name.
    ListedHeaders {
        list: Source,
        /// What has to be among them, or it would not be signed. Known when the timestamp is.
        musts: Box<[Box<str>]>,
    },
    /// Names and values of a form body, sorted, without separators.
    SortedForm(FormOrder),
    /// The key itself, for plain hashes.
    Secret,
    /// All or nothing.
    Optional(Box<[Self]>),
}

/// What becomes of several fields of one name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FormOrder {
    /// They stay in order.
    AsTheyCame,
    /// Sorted by value, each once.
    Unique,
    /// Sorted by value.
    All,
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

/// Tells every delivery id, and every value that is said to be closed, which byte ends it.
fn end_ids(pieces: &mut [Piece]) {
    for at in 1..pieces.len() {
        let (before, from) = pieces.split_at_mut(at);
        let Some(Piece::Literal(text)) = from.first() else { continue };
        match before.last_mut() {
            Some(Piece::DeliveryId { ends_with }) => *ends_with = text.first().copied(),
            Some(Piece::Value { closed: Some(byte), .. }) => *byte = text.first().copied().unwrap_or(0),
            // What stands in […] is ended by what follows that.
            Some(Piece::Optional(inner)) => {
                if let Some(Piece::Value { closed: Some(byte), .. }) = inner.last_mut() {
                    *byte = text.first().copied().unwrap_or(0);
                }
            }
            _ => {}
        }
    }
}

fn piece(name: &str) -> Result<Piece, String> {
    let (place, lower, closed) = match name.split_once('|') {
        None => (name, false, None),
        Some((place, "lower")) => (place, true, None),
        Some((place, "closed")) => (place, false, Some(0)),
        Some(_) => return Err(format!("{{{name}}}: behind a value stands |lower or |closed, and nothing else")),
    };
    let plain = match name {
        "body" => Some(Piece::Body),
        "timestamp" => Some(Piece::Timestamp),
        "delivery_id" => Some(Piece::DeliveryId { ends_with: None }),
        "method" => Some(Piece::Method),
        "url" => Some(Piece::Url),
        "url_base" => Some(Piece::UrlBase),
        "target" => Some(Piece::Target),
        "path" => Some(Piece::Path),
        "sorted_query" => Some(Piece::SortedQuery),
        "canonical_query" => Some(Piece::CanonicalQuery),
        "sorted_form" => Some(Piece::SortedForm(FormOrder::AsTheyCame)),
        "sorted_form_unique" => Some(Piece::SortedForm(FormOrder::Unique)),
        "sorted_form_all" => Some(Piece::SortedForm(FormOrder::All)),
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
    if let Some(list) = name.strip_prefix("listed_headers:") {
        return Ok(Piece::ListedHeaders { list: Source::header(list), musts: Box::default() });
    }
    let source: ValueSource = place.parse().map_err(|_| {
        format!(
            "{{{name}}} is nothing that can be signed: body, timestamp, delivery_id, method, url, url_base, target, path, \
             sorted_query, canonical_query, listed_headers:NAME, sorted_form, sorted_form_unique, sorted_form_all, secret, \
             body_hash:HASH:ENCODING, or a value such as header:NAME"
        )
    })?;
    Ok(Piece::Value { source: Source::compile(&source), lower, closed })
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
        let pieces = parse("{item:/a|closed}:[{item:/b|closed}];{item:/c}").unwrap();
        assert!(matches!(pieces[0], Piece::Value { closed: Some(b':'), .. }));
        assert!(
            matches!(&pieces[2], Piece::Optional(inner) if matches!(inner[0], Piece::Value { closed: Some(b';'), .. }))
        );
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
            "{header:a|upper}",
            "[a[b]]",
            "{body_hash:md5:hex}",
        ] {
            assert!(parse(template).is_err() || template == "[[", "{template}");
        }
    }
}
