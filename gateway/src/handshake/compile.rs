//! From declared handshakes to handshakes: every fault at its key.

use config::scheme::{Alphabet, Handshake as Declared, HandshakeKind, Method, Reply as DeclaredReply};
use config::scheme::{SchemeDeclaration, ValueSource, When};

use super::Handshake;
use super::digest::Digest;
use super::question::{CHALLENGE_BYTES_MAX, Question};
use super::recognise::Condition;
use super::reply::{Body, Form, JSON, TEXT, Template};
use crate::scheme::{DeclarationFault, Source};

/// Compiles the handshakes of a declaration, and says everything that is wrong with them.
pub(crate) fn compile(declaration: &SchemeDeclaration, faults: &mut Vec<DeclarationFault>) -> Box<[Handshake]> {
    let each = declaration.handshakes.iter().enumerate();
    each.map(|(at, declared)| Compiler { at, declared, faults }.handshake(&declaration.methods)).collect()
}

struct Compiler<'d> {
    at: usize,
    declared: &'d Declared,
    faults: &'d mut Vec<DeclarationFault>,
}

impl Compiler<'_> {
    fn fault(&mut self, key: &str, message: impl AsRef<str>) {
        let key = format!("handshake[{}].{key}", self.at);
        self.faults.push(DeclarationFault { message: format!("{key} {}", message.as_ref()), key, reads: &[] });
    }

    fn handshake(mut self, deliveries: &[Method]) -> Handshake {
        let declared = self.declared;
        self.sources();
        self.told_apart(deliveries);
        self.kind();
        let question = declared.challenge.as_ref().map(Question::compile);
        let digest = declared.digest.as_ref().and_then(|digest| match Digest::compile(digest) {
            Ok(digest) => Some(digest),
            Err(message) => {
                self.fault("digest.content", message);
                None
            }
        });
        let form = self.form(&declared.reply);
        self.reply_fits(&form);
        Handshake {
            kind: declared.kind,
            method: declared.method.as_str(),
            conditions: declared.when.iter().map(Condition::compile).collect(),
            verified: declared.verified,
            token: declared.token.as_ref().map(Source::compile),
            question,
            digest,
            origins: declared.origins.iter().map(|origin| origin.to_ascii_lowercase().into()).collect(),
            form,
            refused: declared.reply.refused,
        }
    }

    fn sources(&mut self) {
        let declared = self.declared;
        let of_when = declared.when.iter().filter_map(|when| match when {
            When::There(source) | When::Says(source, _) => Some(source),
            When::EmptyBody => None,
        });
        let of_challenge = declared.challenge.iter().map(|challenge| &challenge.from);
        let all = of_when.chain(of_challenge).chain(&declared.token);
        if all
            .clone()
            .any(|source| matches!(source, ValueSource::Field(_) | ValueSource::Claim(_) | ValueSource::Item(_)))
        {
            self.fault("when", "looks at the request; a field of the signature, a claim or an item is none of it");
        }
    }

    /// What tells it from a delivery, where that comes by the same method?
    fn told_apart(&mut self, deliveries: &[Method]) {
        let declared = self.declared;
        let alone = declared.challenge.as_ref().is_some_and(|challenge| challenge.alone);
        if deliveries.contains(&declared.method) && declared.when.is_empty() && !alone {
            self.fault("when", "is empty, and deliveries come by the same method: none would be one");
        }
        if let Some(challenge) = &declared.challenge {
            if !(1..=CHALLENGE_BYTES_MAX).contains(&challenge.bytes_max) {
                self.fault("challenge.bytes_max", format!("is 1 to {CHALLENGE_BYTES_MAX}"));
            }
            if challenge.alone
                && !matches!(&challenge.from, ValueSource::Json(path) if path.len() == 1)
                && !matches!(challenge.from, ValueSource::Form(_))
            {
                self.fault(
                    "challenge.alone",
                    "goes with a field of a form, or with a key of a JSON object: json:/NAME",
                );
            }
        }
    }

    fn kind(&mut self) {
        let declared = self.declared;
        let (challenge, digest, origins) =
            (declared.challenge.is_some(), declared.digest.is_some(), !declared.origins.is_empty());
        let word = declared.kind.as_str();
        match declared.kind {
            HandshakeKind::Echo | HandshakeKind::Digest | HandshakeKind::Adopt if !challenge => {
                self.fault("challenge", format!("says where the challenge of kind \"{word}\" is"));
            }
            HandshakeKind::Origin if challenge || declared.token.is_some() => {
                self.fault("kind", "\"origin\" has neither challenge nor token: the origin is what is asked");
            }
            HandshakeKind::Origin if declared.method != Method::Options => {
                self.fault("method", "of kind \"origin\" is OPTIONS");
            }
            HandshakeKind::Echo
            | HandshakeKind::Digest
            | HandshakeKind::Fixed
            | HandshakeKind::Origin
            | HandshakeKind::Adopt => {}
        }
        if digest != (declared.kind == HandshakeKind::Digest) {
            self.fault("digest", "goes with kind \"digest\", and with no other");
        }
        if origins != (declared.kind == HandshakeKind::Origin) {
            self.fault("origins", "go with kind \"origin\", and with no other");
        }
        let text = declared.challenge.as_ref().is_some_and(|challenge| challenge.alphabet == Alphabet::Text);
        if text && digest {
            self.fault("challenge.alphabet", "\"text\" is for echoes: a digest of it could be that of a delivery");
        }
    }

    fn form(&mut self, reply: &DeclaredReply) -> Form {
        let given = [reply.text.is_some(), !reply.json.is_empty(), reply.document.is_some()];
        if given.iter().filter(|given| **given).count() > 1 {
            self.fault("reply", "has one of `text`, `json` and `document`");
        }
        if !matches!(reply.status, 200 | 204) {
            self.fault("reply.status", format!("is 200 or 204, and not {}", reply.status));
        }
        if reply.status == 204 && given.contains(&true) {
            self.fault("reply.status", "204 is that of an answer without a body");
        }
        if !(400..=499).contains(&reply.refused) {
            self.fault("reply.refused", format!("is 400 to 499, and not {}", reply.refused));
        }
        Form { status: reply.status, body: self.body(reply), header: reply.header }
    }

    fn body(&mut self, reply: &DeclaredReply) -> Body {
        let fixed = self.declared.kind == HandshakeKind::Fixed;
        if let Some(document) = &reply.document {
            if serde_json::from_str::<serde_json::Value>(document).is_err() {
                self.fault("reply.document", "is no JSON");
            }
            return Body::Fixed(JSON, document.as_str().into());
        }
        match &reply.text {
            Some(text) if fixed => return Body::Fixed(TEXT, text.as_str().into()),
            Some(text) => return self.template("reply.text", text).map_or(Body::Empty, Body::Text),
            None => {}
        }
        let fields: Vec<_> = reply
            .json
            .iter()
            .filter_map(|(name, text)| Some((name.as_str().into(), self.template("reply.json", text)?)))
            .collect();
        if fields.is_empty() { Body::Empty } else { Body::Json(fields.into()) }
    }

    fn template(&mut self, key: &str, text: &str) -> Option<Template> {
        Template::parse(text).map_err(|message| self.fault(key, message)).ok()
    }

    /// Does the answer say what its kind is about?
    fn reply_fits(&mut self, form: &Form) {
        let kind = self.declared.kind;
        let echoes = matches!(kind, HandshakeKind::Echo | HandshakeKind::Digest | HandshakeKind::Adopt);
        if matches!(form.body, Body::Fixed(..)) && kind != HandshakeKind::Fixed {
            self.fault("reply.document", "goes with kind \"fixed\"");
        }
        if matches!(kind, HandshakeKind::Echo | HandshakeKind::Adopt) && !form.names_challenge() {
            self.fault("reply", "of this kind has {challenge} in it, or a `header`");
        }
        if form.names_challenge() && !echoes {
            self.fault("reply", "has a {challenge} in it, and this kind has none");
        }
        if form.names_digest() != (kind == HandshakeKind::Digest) {
            self.fault("reply", "has {digest} in it where the kind is \"digest\", and nowhere else");
        }
    }
}
