//! From a declaration to a scheme: every fault at once, in sentences that name the key.

use std::sync::Arc;

use config::scheme::{Algorithm, Case, SchemeDeclaration, TimestampFormat, UrlVariant, ValueSource, Window};

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
    pub fn compile(declaration: &SchemeDeclaration) -> Result<Arc<Self>, Vec<String>> {
        Self::compile_shared(&Arc::new(declaration.clone()))
    }

    /// The same for a declaration that somebody else keeps as well: it is not copied.
    pub fn compile_shared(declaration: &Arc<SchemeDeclaration>) -> Result<Arc<Self>, Vec<String>> {
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
    faults: Vec<String>,
}

impl Compiler<'_> {
    fn fault(&mut self, text: impl Into<String>) {
        self.faults.push(text.into());
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
        if delivery_id.is_none() && uses(cases, &|piece| matches!(piece, Piece::DeliveryId { .. })) {
            self.fault("content names {delivery_id}, and no `delivery_id` says where it is");
        }
        let timestamp = self.timestamp(cases, place.as_ref());
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
        for name in std::iter::once(&declared.name).chain(&declared.aliases) {
            if name.is_empty() || name.len() > domain::id::NAME_BYTES_MAX || !name.bytes().all(plain) {
                self.fault(format!("the name {name:?} must be 1 to 64 of a-z, 0-9 and -"));
            }
        }
        if declared.methods.is_empty() {
            self.fault("methods is empty: nothing could be delivered");
        }
        if !matches!(declared.answer.status, 200 | 202) {
            self.fault(format!("answer.status is 200 or 202, and not {}", declared.answer.status));
        }
        if declared.redelivery.after_429 && !declared.redelivery.automatic {
            self.fault(
                "redelivery.after_429 says that the provider sends again, redelivery.automatic that it does not",
            );
        }
        for rule in &declared.require {
            if rule.equals.is_empty() {
                self.fault(format!("require: {} equals nothing, so that no delivery could verify", rule.header));
            }
        }
        let names = [&declared.signature.header].into_iter().flatten().chain(&declared.signature.headers);
        for name in names.chain(declared.require.iter().map(|rule| &rule.header)).chain(&declared.strip) {
            self.header_name(name);
        }
    }

    fn header_name(&mut self, name: &str) {
        let token = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
        if name.is_empty() || !name.bytes().all(token) {
            self.fault(format!("{name:?} is no header's name"));
        }
    }

    fn place(&mut self) -> Option<Place> {
        let rule = &self.declared.signature;
        let named = [rule.header.is_some(), !rule.headers.is_empty(), rule.numbered.is_some(), rule.from.is_some()];
        if named.iter().filter(|named| **named).count() != 1 {
            self.fault("signature needs exactly one of `header`, `headers`, `numbered` and `from`");
            return None;
        }
        let (at, what) = if let Some(name) = &rule.header {
            let source = Source::header(name);
            let what = Arc::clone(&source.what);
            (At::One(source), what)
        } else if let Some(from) = &rule.from {
            if matches!(from, ValueSource::Field(_)) {
                self.fault("signature.from cannot be a field of the signature itself");
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
            self.fault("signature.list goes with one header, not with several");
        }
        if rule.prefix.ends_with(' ') && rule.list.as_ref().is_some_and(|list| list.spaces) {
            self.fault("signature.prefix ends with a space, and signature.list.spaces says that spaces do not count");
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

    fn proof(&mut self) -> Option<Proof> {
        let declared = self.declared;
        let Some(engine) = Engine::of(declared.algorithm) else {
            if !declared.content.is_empty() || !declared.cases.is_empty() {
                self.fault("a token or a password signs nothing: there can be no `content` and no `case`");
            }
            let place = &declared.signature;
            if matches!(place.from, Some(ValueSource::Query(_))) {
                self.fault(
                    "a token in the query is part of the target, which is logged and stored: take it from a header",
                );
            }
            let several = !place.headers.is_empty() || place.numbered.is_some();
            if several && place.header.is_none() && place.from.is_none() {
                self.fault("a token or a password stands in one place: `header` or `from`");
            }
            if declared.signature.encoding.is_some() || declared.signature.list.is_some() {
                self.fault("a token or a password has no `encoding` and no `list`");
            }
            return Some(Proof::Token);
        };
        let Some(encoding) = declared.signature.encoding else {
            self.fault("signature.encoding says how the digest is written: hex, base64, …");
            return None;
        };
        let cases = match (declared.content.is_empty(), declared.cases.as_slice()) {
            (false, []) => vec![Case { when: None, content: declared.content.clone(), body_digest: None }],
            (true, cases @ [_, ..]) => cases.to_vec(),
            _ => {
                self.fault("what is signed stands in `content`, or in `case` tables; in exactly one of them");
                return None;
            }
        };
        let cases: Vec<_> = cases.iter().filter_map(|case| self.case(case, engine)).collect();
        let url_variants = match declared.url.variants.as_slice() {
            [] => [UrlVariant::AsSeen].into(),
            variants => variants.into(),
        };
        if !declared.url.decodes.is_ascii() {
            self.fault("url.decodes lists ASCII characters");
        }
        if (!declared.url.variants.is_empty() || !declared.url.decodes.is_empty()) && !cases.iter().any(|c| c.has_url) {
            self.fault("url says how {url} is written, and the content has none");
        }
        let url_decodes = declared.url.decodes.as_bytes().into();
        Some(Proof::Mac(Mac { engine, encoding, cases: cases.into(), url_variants, url_decodes }))
    }

    fn case(&mut self, case: &Case, engine: Engine) -> Option<CaseProgram> {
        let pieces = match template::parse(&case.content) {
            Ok(pieces) => pieces,
            Err(fault) => {
                self.fault(fault);
                return None;
            }
        };
        let nested = |piece: &Piece| matches!(piece, Piece::SortedForm { .. } | Piece::Body | Piece::Secret);
        if pieces.iter().any(|p| matches!(p, Piece::Optional(inner) if template::any(inner, &nested))) {
            self.fault("the body, the form and the secret are always signed: they cannot stand in […]");
        }
        let keyed = template::always(&pieces, &|piece| matches!(piece, Piece::Secret));
        match engine {
            Engine::Hash(_) if !keyed => self.fault("a plain hash without {secret} in its content proves nothing"),
            Engine::Hmac(_) if keyed => self.fault("the key of an HMAC is not part of its content: leave {secret} out"),
            Engine::Hash(_) | Engine::Hmac(_) => {}
        }
        if !pieces.iter().any(|piece| !matches!(piece, Piece::Literal(_) | Piece::Secret | Piece::Optional(_))) {
            self.fault("nothing of the delivery is signed: one signature would fit for ever");
        }
        let has_url = template::any(&pieces, &|piece| matches!(piece, Piece::Url));
        let body_digest = case.body_digest.clone().map(|digest| (Source::compile(&digest.from), digest));
        let program = CaseProgram { when: case.when.clone(), pieces, body_digest, has_url };
        if let Some((source, _)) = &program.body_digest
            && !covered(std::slice::from_ref(&program), source, |_| false)
        {
            self.fault(format!("the content does not cover body_digest, the {}: it could be anybody's", source.what));
        }
        Some(program)
    }

    fn timestamp(&mut self, cases: &[CaseProgram], place: Option<&Place>) -> Option<Stamp> {
        let named = uses(cases, &|piece| matches!(piece, Piece::Timestamp));
        let Some(rule) = &self.declared.timestamp else {
            if named {
                self.fault("content names {timestamp}, and no `timestamp` says where it is");
            }
            return None;
        };
        let source = Source::compile(&rule.from);
        if let Some(place) = place {
            self.field_exists("timestamp.from", &source, place);
        }
        if !covered(cases, &source, |piece| matches!(piece, Piece::Timestamp)) {
            self.fault(format!(
                "the content does not cover the timestamp, the {}: anybody could renew it, so it proves nothing; \
                 leave `timestamp` out",
                source.what
            ));
        }
        if !rule.required && !source.in_body() {
            self.fault("timestamp.required = false lets anybody leave it out: that goes only where the body holds it");
        }
        let unlimited = rule.old == Window::Unlimited && rule.future == Window::Unlimited;
        if rule.format == TimestampFormat::Opaque && !unlimited {
            self.fault("timestamp.format opaque is never read: old and future are then unlimited");
        }
        let late = source.in_body() && !named;
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
        if let source::Place::Field(name) = &source.place
            && !place.layout.as_ref().is_some_and(|layout| layout.names(name.as_bytes()))
        {
            self.fault(format!("{key}: the signature's list has no field {name}"));
        }
    }

    fn fields_exist(&mut self, cases: &[CaseProgram], place: &Place) {
        let mut missing = Vec::new();
        for case in cases {
            collect(&case.pieces, &mut missing);
        }
        for source in missing {
            self.field_exists("content", &source, place);
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

fn uses(cases: &[CaseProgram], fits: &dyn Fn(&Piece) -> bool) -> bool {
    cases.iter().any(|case| template::any(&case.pieces, fits))
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
