//! What is answered: plain text, a JSON object of texts, a header, or nothing.

use std::collections::BTreeMap;

use bytes::Bytes;
use config::scheme::ReplyHeader;

/// An answer to a handshake.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    pub status: u16,
    pub content_type: Option<&'static str>,
    pub headers: Vec<(&'static str, String)>,
    pub body: Bytes,
}

/// How an answer is written.
#[derive(Debug)]
pub(super) struct Form {
    pub(super) status: u16,
    pub(super) body: Body,
    pub(super) header: Option<ReplyHeader>,
}

#[derive(Debug)]
pub(super) enum Body {
    Empty,
    /// As it is written in the row.
    Fixed(&'static str, Box<str>),
    Text(Template),
    /// An object of texts.
    Json(Box<[(Box<str>, Template)]>),
}

/// Text with places for what was asked and what was computed.
#[derive(Debug)]
pub(super) struct Template(Box<[Piece]>);

#[derive(Debug, PartialEq, Eq)]
enum Piece {
    Literal(Box<str>),
    Challenge,
    Digest,
    Account,
}

/// What goes into the places.
#[derive(Debug, Clone, Copy)]
pub(super) struct Values<'v> {
    pub(super) challenge: &'v str,
    pub(super) digest: &'v str,
    pub(super) account: &'v str,
}

pub(super) const TEXT: &str = "text/plain; charset=utf-8";
pub(super) const JSON: &str = "application/json";

impl Template {
    /// # Errors
    /// A sentence that does not name the key.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let mut pieces = Vec::new();
        let mut rest = text;
        while let Some(at) = rest.find('{') {
            if at > 0 {
                pieces.push(Piece::Literal(rest[..at].into()));
            }
            let (name, tail) = rest[at + 1..].split_once('}').ok_or("has a { without its }")?;
            pieces.push(match name {
                "challenge" => Piece::Challenge,
                "digest" => Piece::Digest,
                "account" => Piece::Account,
                _ => return Err("has {challenge}, {digest} and {account} in it, and nothing else in braces".into()),
            });
            rest = tail;
        }
        if !rest.is_empty() {
            pieces.push(Piece::Literal(rest.into()));
        }
        Ok(Self(pieces.into()))
    }

    fn fill(&self, values: Values<'_>) -> String {
        let each = self.0.iter().map(|piece| match piece {
            Piece::Literal(text) => text,
            Piece::Challenge => values.challenge,
            Piece::Digest => values.digest,
            Piece::Account => values.account,
        });
        each.collect()
    }
}

impl Form {
    fn templates(&self) -> impl Iterator<Item = &Template> {
        let (one, several) = match &self.body {
            Body::Text(template) => (Some(template), [].as_slice()),
            Body::Json(fields) => (None, &**fields),
            Body::Empty | Body::Fixed(..) => (None, [].as_slice()),
        };
        one.into_iter().chain(several.iter().map(|(_, template)| template))
    }

    fn names(&self, piece: &Piece) -> bool {
        self.templates().any(|template| template.0.contains(piece))
    }

    pub(super) fn names_challenge(&self) -> bool {
        self.header.is_some() || self.names(&Piece::Challenge)
    }

    pub(super) fn names_digest(&self) -> bool {
        self.names(&Piece::Digest)
    }

    pub(super) fn names_account(&self) -> bool {
        self.names(&Piece::Account)
    }

    pub(super) fn fill(&self, values: Values<'_>) -> Reply {
        let (content_type, body) = match &self.body {
            Body::Empty => (None, Bytes::new()),
            Body::Fixed(content_type, text) => (Some(*content_type), Bytes::copy_from_slice(text.as_bytes())),
            Body::Text(template) => (Some(TEXT), template.fill(values).into()),
            Body::Json(fields) => {
                let object: BTreeMap<&str, String> =
                    fields.iter().map(|(name, template)| (&**name, template.fill(values))).collect();
                (Some(JSON), serde_json::to_vec(&object).unwrap_or_default().into())
            }
        };
        let headers = self.header.map(|header| (header.as_str(), values.challenge.to_owned())).into_iter().collect();
        Reply { status: self.status, content_type, headers, body }
    }
}
