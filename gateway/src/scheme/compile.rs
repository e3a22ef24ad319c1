//! From a declaration to a scheme: every fault at once, each at its key, in sentences that name it.
//!
//! No fault is a mere consequence of another: what follows from a key that is at fault itself is not said.

use std::sync::Arc;

use config::scheme::{Algorithm, Case, Encoding, SchemeDeclaration, TimestampFormat, UrlVariant, ValueSource, Window};

use super::fault::DeclarationFault;
use super::key::KeyRules;
use super::list::Layout;
use super::program::{At, CaseProgram, Engine, Mac, Place, Proof, Required, Scheme, Stamp, method_names};
use super::source::{self, Source};
use super::stamp::Tolerance;
use super::template::{self, Piece};

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

struct Compiler<'d> {
    declared: &'d Arc<SchemeDeclaration>,
    faults: Vec<DeclarationFault>,
}

impl Compiler<'_> {
    /// A fault at a key, as seen from that key and from those that it `reads`.
    fn fault(&mut self, key: impl Into<String>, reads: &'static [&'static str], message: impl Into<String>) {
        self.faults.push(DeclarationFault { key: key.into(), reads, message: message.into() });
    }

    fn scheme(&mut self) -> Option<Scheme> {
        let declared = self.declared;
        self.plain_facts();
        let place = self.place();
        let proof = self.proof();
        let delivery_id = declared.delivery_id.as_ref().map(Source::compile);
        if let (Some(source), Some(place)) = (&delivery_id, &place) {
            self.field_exists("delivery_id", source, place);
        }
        let cases: &[CaseProgram] = match &proof {
            Some(Proof::Mac(mac)) => &mac.cases,
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
        let strips = self.strips(place.as_ref());
        let covers_body = !cases.is_empty() && cases.iter().all(covers_body);
        if let Some(place) = &place {
            self.fields_exist(cases, place);
        }
        let mut scheme = Scheme {
            methods: method_names(&declared.methods),
            strips,
            keys: KeyRules::new(declared.algorithm, &declared.key),
            timestamp,
            delivery_id,
            delivery_id_signed,
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
            declaration: Arc::clone(declared),
            place: place?,
            proof: proof?,
            judges_stored: true,
        };
        scheme.judges_stored = scheme.finds_all_stored();
        Some(scheme)
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
        if !matches!(declared.answer.status, 200 | 202) {
            self.fault(
                "answer.status",
                &[],
                format!("answer.status is 200 or 202, and not {}", declared.answer.status),
            );
        }
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
            if matches!(from, ValueSource::Field(_)) {
                self.fault("signature.from", &[], "signature.from cannot be a field of the signature itself");
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
        if rule.list.is_some() && matches!(at, At::Several { .. }) {
            self.fault(
                "signature.list",
                &["signature.headers", "signature.numbered"],
                "signature.list goes with one header, not with several",
            );
        }
        if rule.prefix.ends_with(' ') && rule.list.as_ref().is_some_and(|list| list.spaces) {
            self.fault(
                "signature.prefix",
                &["signature.list.spaces"],
                "signature.prefix ends with a space, and signature.list.spaces says that spaces do not count",
            );
        }
        let layout = rule.list.as_ref().map(|list| Layout::compile(list, &mut self.faults));
        let basic = self.declared.algorithm == Algorithm::Basic;
        let prefix = if basic && rule.prefix.is_empty() { "Basic " } else { &rule.prefix };
        Some(Place {
            at,
            what,
            prefix: prefix.as_bytes().into(),
            prefix_ignores_case: rule.prefix_ignores_case || basic,
            layout,
        })
    }

    /// None where something is wrong with what it is made of: then nothing can be said about what it covers.
    fn proof(&mut self) -> Option<Proof> {
        let declared = self.declared;
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
        let url_variants = match declared.url.variants.as_slice() {
            [] => [UrlVariant::AsSeen].into(),
            variants => variants.into(),
        };
        if !declared.url.decodes.is_ascii() {
            self.fault("url.decodes", &[], "url.decodes lists ASCII characters");
        }
        if cases.len() < declared_cases.len() {
            return None;
        }
        if (!declared.url.variants.is_empty() || !declared.url.decodes.is_empty()) && !cases.iter().any(|c| c.has_url) {
            let message = "url says how {url} is written, and the content has none";
            self.fault("url", &["algorithm", "content", "case"], message);
        }
        let url_decodes = declared.url.decodes.as_bytes().into();
        let encoding = declared.signature.encoding.unwrap_or(Encoding::Hex);
        Some(Proof::Mac(Mac { engine, encoding, cases: cases.into(), url_variants, url_decodes }))
    }

    fn signs_nothing(&mut self) {
        let declared = self.declared;
        if !declared.content.is_empty() || !declared.cases.is_empty() {
            let key = if declared.content.is_empty() { "case" } else { "content" };
            let message = "a token or a password signs nothing: there can be no `content` and no `case`";
            self.fault(key, &["algorithm"], message);
        }
        let place = &declared.signature;
        if matches!(place.from, Some(ValueSource::Query(_))) {
            let message =
                "a token in the query is part of the target, which is logged and stored: take it from a header";
            self.fault("signature.from", &["algorithm"], message);
        }
        let several = !place.headers.is_empty() || place.numbered.is_some();
        if several && place.header.is_none() && place.from.is_none() {
            let key = if place.headers.is_empty() { "signature.numbered" } else { "signature.headers" };
            let message = "a token or a password stands in one place: `header` or `from`";
            self.fault(key, &["algorithm", "signature.header", "signature.from"], message);
        }
        if place.encoding.is_some() || place.list.is_some() {
            let key = if place.encoding.is_some() { "signature.encoding" } else { "signature.list" };
            self.fault(key, &["algorithm"], "a token or a password has no `encoding` and no `list`");
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
        let nested = |piece: &Piece| matches!(piece, Piece::SortedForm { .. } | Piece::Body | Piece::Secret);
        if pieces.iter().any(|p| matches!(p, Piece::Optional(inner) if template::any(inner, &nested))) {
            self.fault(&content, &[], "the body, the form and the secret are always signed: they cannot stand in […]");
        }
        let keyed = template::always(&pieces, &|piece| matches!(piece, Piece::Secret));
        match engine {
            Engine::Hash(_) if !keyed => {
                let message = "a plain hash without {secret} in its content proves nothing";
                self.fault(&content, &["algorithm"], message);
            }
            Engine::Hmac(_) if keyed => {
                let message = "the key of an HMAC is not part of its content: leave {secret} out";
                self.fault(&content, &["algorithm"], message);
            }
            Engine::Hash(_) | Engine::Hmac(_) => {}
        }
        if !pieces.iter().any(|piece| !matches!(piece, Piece::Literal(_) | Piece::Secret | Piece::Optional(_))) {
            self.fault(&content, &[], "nothing of the delivery is signed: one signature would fit for ever");
        }
        let has_url = template::any(&pieces, &|piece| matches!(piece, Piece::Url));
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

    fn strips(&self, place: Option<&Place>) -> Box<[Box<str>]> {
        let secret_header = match place.map(|place| &place.at) {
            Some(At::One(Source { place: source::Place::Header(name), .. }))
                if Engine::of(self.declared.algorithm).is_none() =>
            {
                Some(name.clone())
            }
            _ => None,
        };
        secret_header
            .into_iter()
            .chain(self.declared.strip.iter().map(|name| name.to_ascii_lowercase().into()))
            .collect()
    }

    fn field_exists(&mut self, key: &str, source: &Source, place: &Place) {
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
    !cases.is_empty()
        && cases.iter().all(|case| {
            let by_name = template::always(&case.pieces, &|piece| {
                named(piece) || matches!(piece, Piece::Value { source: s, lower: false } if s.place == source.place)
            });
            by_name
                || match source.place {
                    // Not `has_url`: a URL in an optional part may be left out of what is signed.
                    source::Place::Query(_) => template::always(&case.pieces, &|piece| matches!(piece, Piece::Url)),
                    source::Place::Form(_) | source::Place::Json(_) => covers_body(case),
                    source::Place::Header(_) | source::Place::Field(_) => false,
                }
        })
}

fn covers_body(case: &CaseProgram) -> bool {
    let whole = |piece: &Piece| matches!(piece, Piece::Body | Piece::BodyHash { .. } | Piece::SortedForm { .. });
    let empty = matches!(case.when, Some(config::scheme::Condition::EmptyBody));
    template::always(&case.pieces, &whole) || case.body_digest.is_some() || empty
}
