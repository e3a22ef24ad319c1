//! From a declaration to a scheme: every fault at once, each at its key, in sentences that name it.
//!
//! No fault is a mere consequence of another: what follows from a key that is at fault itself is not said.

use std::sync::Arc;

use config::scheme::{
    Algorithm, AnswerBody, AnswerType, Case, Encoding, SchemeDeclaration, TimestampFormat, UrlVariant, ValueSource,
    Window,
};
use domain::Secret;

use super::apart;
use super::fault::DeclarationFault;
use super::key::{Key, KeyRules, public_algorithm};
use super::list::Layout;
use super::program::{
    AlsoSigned, At, CaseProgram, DigestEngine, Engine, Place, Proof, Required, Scheme, Signature, Stamp, UrlForm,
    method_names,
};
use super::source::{self, Source};
use super::stamp::Tolerance;
use super::template::{self, Piece};
use crate::handshake::{self, Handshake};

/// The longest time for which what proves one delivery may have to be remembered: a day.
const ONCE_MS_MAX: u64 = 24 * 3_600_000;

/// `DocuSign` sends up to this many numbered signatures.
const NUMBERED_MAX: usize = 100;

impl Scheme {
    /// Compiles a declaration, or says everything that is wrong with it.
    pub fn compile(declaration: &SchemeDeclaration) -> Result<Arc<Self>, Vec<DeclarationFault>> {
        Self::compile_shared(&Arc::new(declaration.clone()))
    }

    /// The same for a declaration that somebody else keeps as well: it is not copied.
    pub fn compile_shared(declaration: &Arc<SchemeDeclaration>) -> Result<Arc<Self>, Vec<DeclarationFault>> {
        let mut compiler = Compiler { declared: declaration, faults: Vec::new() };
        let scheme = compiler.scheme();
        match scheme {
            Some(scheme) if compiler.faults.is_empty() => Ok(Arc::new(scheme)),
            _ => Err(compiler.faults),
        }
    }
}

pub(super) struct Compiler<'d> {
    pub(super) declared: &'d Arc<SchemeDeclaration>,
    pub(super) faults: Vec<DeclarationFault>,
}

impl Compiler<'_> {
    /// A fault at a key, as seen from that key and from those that it `reads`.
    pub(super) fn fault(&mut self, key: impl Into<String>, reads: &'static [&'static str], message: impl Into<String>) {
        self.faults.push(DeclarationFault { key: key.into(), reads, message: message.into() });
    }

    fn scheme(&mut self) -> Option<Scheme> {
        let declared = self.declared;
        self.plain_facts();
        let place = self.place();
        let mut proof = self.proof();
        let keys = KeyRules::new(declared.algorithm, &declared.key, declared.also.as_ref());
        let published = self.published(&keys);
        let delivery_id = declared.delivery_id.as_ref().map(Source::compile);
        if let (Some(source), Some(place)) = (&delivery_id, &place) {
            self.field_exists("delivery_id", source, place);
        }
        if let Some(Proof::Signature(signature)) = &mut proof {
            list_what_must_be_signed(&mut signature.cases, declared);
        }
        let cases: &[CaseProgram] = match &proof {
            Some(Proof::Signature(signature)) => &signature.cases,
            Some(Proof::Jwt(jwt)) => &jwt.covers,
            Some(Proof::Token) | None => &[],
        };
        if delivery_id.is_none()
            && let Some(case) = user(cases, &|piece| matches!(piece, Piece::DeliveryId { .. }))
        {
            let message = "content names {delivery_id}, and no `delivery_id` says where it is";
            self.fault(case.content_key(), &["algorithm", "delivery_id"], message);
        }
        let timestamp = self.timestamp(cases, proof.is_some(), place.as_ref());
        let delivery_id_signed = delivery_id
            .as_ref()
            .is_some_and(|id| covered(cases, id, |piece| matches!(piece, Piece::DeliveryId { .. })));
        let fields: Box<[Box<str>]> = declared.body.fields.iter().map(|name| name.as_str().into()).collect();
        let signed_in = place.as_ref().and_then(Place::field_of_form);
        let covers_body = !cases.is_empty()
            && cases.iter().all(|case| covers_body(case) || covers_fields(case, &fields, signed_in.as_deref()));
        let strips = self.strips(place.as_ref(), covers_body);
        let once = self.once(cases, proof.is_some(), timestamp.as_ref());
        if let Some(place) = &place {
            self.fields_exist(cases, place);
        }
        let handshakes = self.handshakes(cases);
        let mut scheme = Scheme {
            methods: method_names(&declared.methods),
            strips,
            keys,
            published,
            timestamp,
            delivery_id,
            delivery_id_signed,
            once,
            covers_body,
            requirements: declared
                .require
                .iter()
                .map(|rule| Required {
                    source: Source::header(&rule.header),
                    equals: rule.equals.iter().map(|text| text.as_bytes().into()).collect(),
                    optional: rule.optional,
                })
                .collect(),
            content_types: declared.body.content_types.iter().map(|t| t.to_ascii_lowercase().into()).collect(),
            fields,
            declaration: Arc::clone(declared),
            place: place?,
            proof: proof?,
            judges_stored: true,
            handshakes,
        };
        scheme.judges_stored = scheme.finds_all_stored();
        Some(scheme)
    }

    fn answer(&mut self) {
        let answer = &self.declared.answer;
        if !matches!(answer.status, 200 | 202 | 204) {
            let message = format!("answer.status is 200, 202 or 204, and not {}", answer.status);
            self.fault("answer.status", &[], message);
        }
        if answer.status == 204 && answer.body != AnswerBody::Empty {
            self.fault("answer.body", &["answer.status"], "answer.body is \"empty\" where answer.status is 204");
        }
        if (answer.body == AnswerBody::Text) == answer.text.is_empty() {
            self.fault(
                "answer.text",
                &["answer.body"],
                "answer.text is there where answer.body is \"text\", and only there",
            );
        }
        let json = answer.content_type == AnswerType::Json && !answer.text.is_empty();
        if json && serde_json::from_str::<serde_json::Value>(&answer.text).is_err() {
            self.fault("answer.text", &["answer.content_type"], "answer.text is no JSON");
        }
    }

    /// Handshakes whose digests are no signatures of deliveries.
    fn handshakes(&mut self, cases: &[CaseProgram]) -> Box<[Handshake]> {
        let handshakes = handshake::compile(self.declared, &mut self.faults);
        for (at, handshake) in handshakes.iter().enumerate() {
            let Some(question) = handshake.keyed_question() else { continue };
            if !cases.iter().all(|case| apart::can_be_told(case, question)) {
                let message = "a delivery could be signed over such a challenge: then everybody could have it signed";
                self.fault(format!("handshake[{at}].challenge"), &["algorithm", "content", "case"], message);
            }
        }
        handshakes
    }

    /// What needs no compiling.
    fn plain_facts(&mut self) {
        let declared = self.declared;
        let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
        let aliases = declared.aliases.iter().enumerate().map(|(at, alias)| (format!("aliases[{at}]"), alias));
        for (key, name) in std::iter::once(("name".to_owned(), &declared.name)).chain(aliases) {
            if name.is_empty() || name.len() > domain::id::NAME_BYTES_MAX || !name.bytes().all(plain) {
                self.fault(key, &[], format!("the name {name:?} must be 1 to 64 of a-z, 0-9 and -"));
            }
        }
        if declared.methods.is_empty() {
            self.fault("methods", &[], "methods is empty: nothing could be delivered");
        }
        self.answer();
        if declared.redelivery.after_429 && !declared.redelivery.automatic {
            self.fault(
                "redelivery.after_429",
                &["redelivery.automatic"],
                "redelivery.after_429 says that the provider sends again, redelivery.automatic that it does not",
            );
        }
        for (at, rule) in declared.require.iter().enumerate() {
            if rule.equals.is_empty() {
                self.fault(
                    format!("require[{at}].equals"),
                    &[],
                    format!("require: {} equals nothing, so that no delivery could verify", rule.header),
                );
            }
        }
        if let Some(name) = &declared.signature.header {
            self.header_name("signature.header".to_owned(), name);
        }
        let required: Vec<_> = declared.require.iter().map(|rule| &rule.header).collect();
        for (list, names, key) in [
            ("signature.headers", declared.signature.headers.iter().collect(), ""),
            ("require", required, ".header"),
            ("strip", declared.strip.iter().collect::<Vec<_>>(), ""),
        ] {
            for (at, name) in names.into_iter().enumerate() {
                self.header_name(format!("{list}[{at}]{key}"), name);
            }
        }
    }

    fn header_name(&mut self, key: String, name: &str) {
        let token = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
        if name.is_empty() || !name.bytes().all(token) {
            self.fault(key, &[], format!("{name:?} is no header's name"));
        }
    }

    fn place(&mut self) -> Option<Place> {
        let rule = &self.declared.signature;
        let named = [rule.header.is_some(), !rule.headers.is_empty(), rule.numbered.is_some(), rule.from.is_some()];
        if named.iter().filter(|named| **named).count() != 1 {
            let reads = &["signature.header", "signature.headers", "signature.numbered", "signature.from"];
            self.fault("signature", reads, "signature needs exactly one of `header`, `headers`, `numbered` and `from`");
            return None;
        }
        let (at, what) = if let Some(name) = &rule.header {
            let source = Source::header(name);
            let what = Arc::clone(&source.what);
            (At::One(source), what)
        } else if let Some(from) = &rule.from {
            if matches!(from, ValueSource::Field(_) | ValueSource::Claim(_)) {
                let message = "signature.from cannot be a field or a claim of the signature itself";
                self.fault("signature.from", &[], message);
            }
            let source = Source::compile(from);
            let what = Arc::clone(&source.what);
            (At::One(source), what)
        } else if let Some(stem) = &rule.numbered {
            let sources = (1..=NUMBERED_MAX).map(|n| Source::header(&format!("{stem}{n}"))).collect();
            (At::Several { sources, dense: true }, format!("header {stem}1").to_ascii_lowercase().into())
        } else {
            let sources: Box<[_]> = rule.headers.iter().map(|name| Source::header(name)).collect();
            (At::Several { sources, dense: false }, format!("header {}", rule.headers.join(" or ")).into())
        };
        if rule.prefix.ends_with(' ') && rule.list.as_ref().is_some_and(|list| list.spaces) {
            self.fault(
                "signature.prefix",
                &["signature.list.spaces"],
                "signature.prefix ends with a space, and signature.list.spaces says that spaces do not count",
            );
        }
        let layout = rule.list.as_ref().map(|list| Layout::compile(list, &mut self.faults));
        if layout.as_ref().is_some_and(Layout::is_framed) && matches!(at, At::Several { .. }) {
            self.fault(
                "signature.list",
                &["signature.headers", "signature.numbered"],
                "signature.list with `positions` or `groups` goes with one header, not with several",
            );
        }
        let each = self.each();
        let basic = self.declared.algorithm == Algorithm::Basic;
        let prefix = if basic && rule.prefix.is_empty() { "Basic " } else { &rule.prefix };
        Some(Place {
            at,
            what,
            prefix: prefix.as_bytes().into(),
            prefix_ignores_case: rule.prefix_ignores_case || basic,
            layout,
            each,
        })
    }

    /// Where the items of the body are that are signed by themselves.
    fn each(&mut self) -> Option<Box<[Box<str>]>> {
        let rule = &self.declared.signature;
        let in_item = matches!(rule.from, Some(ValueSource::Item(_)));
        let reads = &["signature.from", "algorithm"];
        match &rule.each {
            None if in_item => {
                let message = "signature.from names an item, and no signature.each says where items are";
                self.fault("signature.from", &["signature.each"], message);
                None
            }
            None => None,
            Some(ValueSource::Json(path)) if in_item && rule.list.is_none() => {
                if self.declared.timestamp.is_some() {
                    let message = "items that are each signed have no `timestamp` of the whole delivery";
                    self.fault("timestamp", &["signature.each"], message);
                }
                Some(path.iter().map(|step| step.as_str().into()).collect())
            }
            Some(_) => {
                let message = "signature.each is json:/PATH, and the signature stands in the item: from = \"item:/PATH\", \
                               without a list";
                self.fault("signature.each", reads, message);
                None
            }
        }
    }

    fn published(&mut self, keys: &KeyRules) -> Box<[Key]> {
        let declared = self.declared;
        let texts = &declared.key.published;
        if !texts.is_empty() && public_algorithm(declared.algorithm).is_none() {
            let message = "key.published holds public keys, and this algorithm has a shared secret";
            self.fault("key.published", &["algorithm"], message);
            return Box::default();
        }
        let mut made = Vec::with_capacity(texts.len());
        for (at, text) in texts.iter().enumerate() {
            match keys.key(&Secret::new(text.as_bytes())) {
                Ok(key) if key.public().is_some_and(super::public_key::Pair::is_private) => {
                    self.fault(format!("key.published[{at}]"), &["algorithm"], "is a private key: nobody publishes it");
                }
                Ok(key) => made.push(key),
                Err(fault) => self.fault(format!("key.published[{at}]"), &["algorithm"], fault.to_string()),
            }
        }
        made.into()
    }

    /// What is remembered has to end, and has to be signed.
    fn once(&mut self, cases: &[CaseProgram], knows_cases: bool, timestamp: Option<&Stamp>) -> Option<Source> {
        let source = Source::compile(self.declared.once.as_ref()?);
        if matches!(source.place, source::Place::Field(_) | source::Place::Claim(_) | source::Place::Item(_)) {
            self.fault("once", &[], "once is a header, a parameter, a form field or a value of a JSON body");
        }
        if knows_cases && !covered(cases, &source, |_| false) {
            let message = format!("the content does not cover `once`, the {}: anybody could renew it", source.what);
            self.fault("once", &["algorithm", "content", "case"], message);
        }
        let bounded = timestamp.and_then(|stamp| stamp.tolerance.span_ms()).is_some_and(|ms| ms <= ONCE_MS_MAX);
        let is_misread = self.declared.timestamp.is_some() && timestamp.is_none();
        if !(bounded || is_misread) {
            let message = "once needs a `timestamp` whose windows are at most a day together: what is older has not to be \
                           remembered";
            self.fault("once", &["timestamp", "timestamp.old", "timestamp.future"], message);
        }
        Some(source)
    }

    /// None where something is wrong with what it is made of: then nothing can be said about what it covers.
    fn proof(&mut self) -> Option<Proof> {
        let declared = self.declared;
        if declared.algorithm.is_jwt() {
            return self.jwt().map(Proof::Jwt);
        }
        if !declared.claims.is_empty() || declared.jwt != config::scheme::JwtRule::default() {
            let key = if declared.claims.is_empty() { "jwt" } else { "claim" };
            self.fault(key, &["algorithm"], "only a JWT has claims: the algorithm does not begin with jwt-");
        }
        let also = self.also();
        let Some(engine) = Engine::of(declared.algorithm) else {
            self.signs_nothing();
            return Some(Proof::Token);
        };
        if declared.signature.encoding.is_none() {
            let message = "signature.encoding says how the digest is written: hex, base64, …";
            self.fault("signature.encoding", &["algorithm"], message);
        }
        let single = [Case { when: None, content: declared.content.clone(), body_digest: None }];
        let (key, declared_cases): (fn(usize) -> String, &[Case]) =
            match (declared.content.is_empty(), declared.cases.as_slice()) {
                (false, []) => (|_| String::new(), &single),
                (true, cases @ [_, ..]) => (|at| format!("case[{at}]."), cases),
                _ => {
                    let message = "what is signed stands in `content`, or in `case` tables; in exactly one of them";
                    self.fault("content", &["algorithm", "case"], message);
                    return None;
                }
            };
        let cases = declared_cases.iter().enumerate().map(|(at, case)| self.case(key(at), case, engine));
        let cases: Vec<_> = cases.collect::<Vec<_>>().into_iter().flatten().collect();
        if cases.len() < declared_cases.len() {
            return None;
        }
        let url = self.url(cases.iter().any(|case| case.has_url));
        let encoding = declared.signature.encoding.unwrap_or(Encoding::Hex);
        Some(Proof::Signature(Signature { engine, also, encoding, cases: cases.into(), url }))
    }

    pub(super) fn url(&mut self, is_signed: bool) -> UrlForm {
        let rule = &self.declared.url;
        if !rule.decodes.is_ascii() {
            self.fault("url.decodes", &[], "url.decodes lists ASCII characters");
        }
        if (!rule.variants.is_empty() || !rule.decodes.is_empty()) && !is_signed {
            let message = "url says how {url} is written, and the content has none";
            self.fault("url", &["algorithm", "content", "case", "claim"], message);
        }
        let variants = match rule.variants.as_slice() {
            [] => [UrlVariant::AsSeen].into(),
            variants => variants.into(),
        };
        UrlForm { variants, decodes: rule.decodes.as_bytes().into() }
    }

    /// The second algorithm. A secret's kind says which of both it is for, so one has to be shared and one public.
    fn also(&mut self) -> Option<AlsoSigned> {
        let declared = self.declared;
        let also = declared.also.as_ref()?;
        let own_is_shared = matches!(Engine::of(declared.algorithm), Some(Engine::Digest(DigestEngine::Hmac(_))));
        let algorithm = match Engine::of(also.algorithm) {
            Some(Engine::Public(algorithm)) if own_is_shared => algorithm,
            Some(_) | None => {
                let message = "also is for a public-key algorithm beside an HMAC";
                self.fault("also.algorithm", &["algorithm"], message);
                return None;
            }
        };
        if also.prefixes.is_empty() || also.prefixes.iter().any(String::is_empty) {
            self.fault("also.prefixes", &[], "also.prefixes says how its secrets begin: without it none is");
        }
        let named = declared.signature.list.as_ref().and_then(|list| list.key.as_deref());
        if also.list_key.is_empty() || named.is_none_or(|key| key == also.list_key || key == "*") {
            let message = "also.list_key is the name of its signatures in signature.list, beside signature.list.key";
            self.fault("also.list_key", &["signature.list", "signature.list.key"], message);
        }
        Some(AlsoSigned { algorithm, list_key: also.list_key.as_bytes().into() })
    }

    fn signs_nothing(&mut self) {
        let declared = self.declared;
        if !declared.content.is_empty() || !declared.cases.is_empty() {
            let key = if declared.content.is_empty() { "case" } else { "content" };
            let message = "a token or a password signs nothing: there can be no `content` and no `case`";
            self.fault(key, &["algorithm"], message);
        }
        if declared.also.is_some() {
            self.fault("also", &["algorithm"], "a token or a password signs nothing: there is no second algorithm");
        }
        self.stands_in_one_place("a token or a password");
    }

    /// One place, in which the secret or a token stands. `what`: as it is called in a sentence.
    pub(super) fn stands_in_one_place(&mut self, what: &str) {
        let place = &self.declared.signature;
        if matches!(place.from, Some(ValueSource::Query(_))) {
            let message =
                format!("{what} in the query is part of the target, which is logged and stored: take it from a header");
            self.fault("signature.from", &["algorithm"], message);
        }
        let several = !place.headers.is_empty() || place.numbered.is_some();
        if several && place.header.is_none() && place.from.is_none() {
            let key = if place.headers.is_empty() { "signature.numbered" } else { "signature.headers" };
            let message = format!("{what} stands in one place: `header` or `from`");
            self.fault(key, &["algorithm", "signature.header", "signature.from"], message);
        }
        if place.encoding.is_some() || place.list.is_some() || place.each.is_some() {
            let key = if place.encoding.is_some() {
                "signature.encoding"
            } else if place.list.is_some() {
                "signature.list"
            } else {
                "signature.each"
            };
            self.fault(key, &["algorithm"], format!("{what} has no `encoding`, no `list` and no `each`"));
        }
    }

    /// `key` stands before those of the case, where it is in a table of its own.
    fn case(&mut self, key: String, case: &Case, engine: Engine) -> Option<CaseProgram> {
        let content = format!("{key}content");
        let pieces = match template::parse(&case.content) {
            Ok(pieces) => pieces,
            Err(fault) => {
                self.fault(content, &[], fault);
                return None;
            }
        };
        let nested = |piece: &Piece| matches!(piece, Piece::SortedForm(_) | Piece::Body | Piece::Secret);
        if pieces.iter().any(|p| matches!(p, Piece::Optional(inner) if template::any(inner, &nested))) {
            self.fault(&content, &[], "the body, the form and the secret are always signed: they cannot stand in […]");
        }
        let keyed = template::always(&pieces, &|piece| matches!(piece, Piece::Secret));
        match engine {
            Engine::Digest(DigestEngine::Hash(_)) if !keyed => {
                let message = "a plain hash without {secret} in its content proves nothing";
                self.fault(&content, &["algorithm"], message);
            }
            Engine::Digest(DigestEngine::Hmac(_)) | Engine::Public(_) if keyed => {
                let message = "the key is not part of what it signs: leave {secret} out";
                self.fault(&content, &["algorithm"], message);
            }
            Engine::Digest(_) | Engine::Public(_) => {}
        }
        if !pieces.iter().any(|piece| !matches!(piece, Piece::Literal(_) | Piece::Secret | Piece::Optional(_))) {
            self.fault(&content, &[], "nothing of the delivery is signed: one signature would fit for ever");
        }
        let has_url = has_url(&pieces);
        let body_digest = case.body_digest.clone().map(|digest| (Source::compile(&digest.from), digest));
        let program = CaseProgram { key: key.into(), when: case.when.clone(), pieces, body_digest, has_url };
        if let Some((source, _)) = &program.body_digest
            && !covered(std::slice::from_ref(&program), source, |_| false)
        {
            let message = format!("the content does not cover body_digest, the {}: it could be anybody's", source.what);
            self.fault(format!("{}body_digest.from", program.key), &[], message);
        }
        Some(program)
    }

    fn timestamp(&mut self, cases: &[CaseProgram], knows_cases: bool, place: Option<&Place>) -> Option<Stamp> {
        let names_it = |piece: &Piece| matches!(piece, Piece::Timestamp);
        let user = user(cases, &names_it);
        let Some(rule) = &self.declared.timestamp else {
            if let Some(case) = user {
                let message = "content names {timestamp}, and no `timestamp` says where it is";
                self.fault(case.content_key(), &["algorithm", "timestamp"], message);
            }
            return None;
        };
        let source = Source::compile(&rule.from);
        if let Some(place) = place {
            self.field_exists("timestamp.from", &source, place);
        }
        if knows_cases && !covered(cases, &source, names_it) {
            let message = format!(
                "the content does not cover the timestamp, the {}: anybody could renew it, so it proves nothing; \
                 leave `timestamp` out",
                source.what
            );
            self.fault("timestamp.from", &["algorithm", "content", "case"], message);
        }
        if !rule.required && !source.in_body() {
            let message =
                "timestamp.required = false lets anybody leave it out: that goes only where the body holds it";
            self.fault("timestamp.required", &["timestamp.from"], message);
        }
        let unlimited = rule.old == Window::Unlimited && rule.future == Window::Unlimited;
        if rule.format == TimestampFormat::Opaque && !unlimited {
            let message = "timestamp.format opaque is never read: old and future are then unlimited";
            self.fault("timestamp.format", &["timestamp.old", "timestamp.future"], message);
        }
        let late = source.in_body() && user.is_none();
        let tolerance = Tolerance::of(rule);
        Some(Stamp { source, format: rule.format, tolerance, required: rule.required, late })
    }

    /// A secret is never stored, nor is a token with which another body could be sent.
    fn strips(&self, place: Option<&Place>, covers_body: bool) -> Box<[Box<str>]> {
        let algorithm = self.declared.algorithm;
        let is_secret = matches!(algorithm, Algorithm::Token | Algorithm::Basic) || algorithm.is_jwt() && !covers_body;
        let secret_header = match place.map(|place| &place.at) {
            Some(At::One(Source { place: source::Place::Header(name), .. })) if is_secret => Some(name.clone()),
            _ => None,
        };
        secret_header
            .into_iter()
            .chain(self.declared.strip.iter().map(|name| name.to_ascii_lowercase().into()))
            .collect()
    }

    /// Is the value one that this kind of scheme can have? A claim is a JWT's, an item's value that of a body of items.
    fn field_exists(&mut self, key: &str, source: &Source, place: &Place) {
        let is_alien_claim = matches!(source.place, source::Place::Claim(_)) && !self.declared.algorithm.is_jwt();
        let is_alien_item = matches!(source.place, source::Place::Item(_)) && place.each.is_none();
        if is_alien_claim || is_alien_item {
            let what =
                if is_alien_claim { "only a JWT has claims" } else { "there are no items without signature.each" };
            let message = format!("{key}: {what}, such as the {}", source.what);
            self.fault(key, &["algorithm", "signature.each"], message);
        }
        let reads = &["signature.list", "signature.header", "signature.from"];
        if let source::Place::Field(name) = &source.place
            && !place.layout.as_ref().is_some_and(|layout| layout.names(name.as_bytes()))
        {
            self.fault(key, reads, format!("{key}: the signature's list has no field {name}"));
        }
    }

    fn fields_exist(&mut self, cases: &[CaseProgram], place: &Place) {
        for case in cases {
            let mut named = Vec::new();
            collect(&case.pieces, &mut named);
            for source in named {
                self.field_exists(&case.content_key(), &source, place);
            }
        }
    }
}

/// Headers that a delivery lists as signed have to have the list itself among them, and what else has to be signed.
fn list_what_must_be_signed(cases: &mut [CaseProgram], declared: &SchemeDeclaration) {
    let header = |source: &Source| {
        if let source::Place::Header(name) = &source.place { Some(name.clone()) } else { None }
    };
    let timestamp = declared.timestamp.as_ref().and_then(|rule| header(&Source::compile(&rule.from)));
    for piece in cases.iter_mut().flat_map(|case| &mut case.pieces) {
        if let Piece::ListedHeaders { list, musts } = piece {
            *musts = header(list).into_iter().chain(timestamp.clone()).collect();
        }
    }
}

pub(super) fn has_url(pieces: &[Piece]) -> bool {
    template::any(pieces, &|piece| matches!(piece, Piece::Url | Piece::UrlBase))
}

/// The values that pieces name, also those of optional parts.
fn collect(pieces: &[Piece], into: &mut Vec<Source>) {
    for piece in pieces {
        if let Piece::Value { source, .. } = piece {
            into.push(source.clone());
        } else if let Piece::Optional(inner) = piece {
            collect(inner, into);
        }
    }
}

/// The first case that names such a value.
fn user<'c>(cases: &'c [CaseProgram], fits: &dyn Fn(&Piece) -> bool) -> Option<&'c CaseProgram> {
    cases.iter().find(|case| template::any(&case.pieces, fits))
}

/// Does every case cover this value: by naming it, or by covering all of what it is in?
fn covered(cases: &[CaseProgram], source: &Source, named: impl Fn(&Piece) -> bool) -> bool {
    !cases.is_empty() && cases.iter().all(|case| {
        let by_name = template::always(&case.pieces, &|piece| {
            named(piece)
                || matches!(piece, Piece::Value { source: s, lower: false, .. } if s.place == source.place)
                || matches!((piece, &source.place), (Piece::ListedHeaders { musts, .. }, source::Place::Header(name))
                        if musts.contains(name))
        });
        by_name
            || match source.place {
                // Not `has_url`: a URL in an optional part may be left out of what is signed.
                source::Place::Query(_) => {
                    template::always(&case.pieces, &|piece| matches!(piece, Piece::Url | Piece::Target))
                }
                // Whatever a token says, its signature is over.
                source::Place::Claim(_) => true,
                source::Place::Form(_) | source::Place::Json(_) => covers_body(case),
                source::Place::Header(_) | source::Place::Field(_) | source::Place::Item(_) => false,
            }
    })
}

/// Does the content have every field that the form can have, but for the one with the signature?
fn covers_fields(case: &CaseProgram, fields: &[Box<str>], signature: Option<&str>) -> bool {
    let is_signed = |field: &str| {
        template::always(&case.pieces, &|piece| {
            matches!(piece, Piece::Value { source: Source { place: source::Place::Form(name), .. }, lower: false, .. }
                if **name == *field)
        })
    };
    !fields.is_empty() && fields.iter().all(|field| signature == Some(&**field) || is_signed(field))
}

pub(super) fn covers_body(case: &CaseProgram) -> bool {
    let whole = |piece: &Piece| matches!(piece, Piece::Body | Piece::BodyHash { .. } | Piece::SortedForm(_));
    let empty = matches!(case.when, Some(config::scheme::Condition::EmptyBody));
    template::always(&case.pieces, &whole) || case.body_digest.is_some() || empty
}
