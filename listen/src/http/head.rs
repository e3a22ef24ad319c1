//! A request's head that has been found well-formed.

use bytes::Bytes;

use super::target::Form;

/// The versions of HTTP that are spoken here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Version {
    Http10,
    #[default]
    Http11,
    Http2,
}

/// A stretch of the head's bytes. Offsets and not slices, so that parsing a field allocates nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Span {
    pub(super) start: u32,
    pub(super) end: u32,
}

impl Span {
    pub(super) fn new(start: usize, end: usize) -> Self {
        let narrow = |at: usize| u32::try_from(at).expect("a head is bounded far below 4 GiB");
        Self { start: narrow(start), end: narrow(end) }
    }

    pub(super) fn of(self, bytes: &[u8]) -> &[u8] {
        &bytes[self.start as usize..self.end as usize]
    }

    /// The text of a stretch that the parser has found to be ASCII.
    pub(super) fn text(self, bytes: &[u8]) -> &str {
        std::str::from_utf8(self.of(bytes)).unwrap_or_default()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Field {
    pub(super) name: Span,
    pub(super) value: Span,
}

/// What the parser found, as offsets into the head. One is used again for every request of a connection.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[expect(clippy::struct_excessive_bools, reason = "facts that have nothing to do with each other")]
pub struct HeadParts {
    pub(super) method: Span,
    pub(super) target: Span,
    pub(super) path: Span,
    pub(super) query: Option<Span>,
    pub(super) form: Form,
    pub(super) authority: Span,
    pub(super) dot_segments: bool,
    pub(super) host_differs: bool,
    pub(super) version: Version,
    pub(super) fields: Vec<Field>,
    /// Normal form: lower case, no port, no dot at the end.
    pub(super) host: String,
    pub(super) port: Option<u16>,
    pub(super) content_length: Option<u64>,
    pub(super) chunked: bool,
    pub(super) expects_continue: bool,
    pub(super) keep_alive: bool,
}

impl HeadParts {
    pub(super) fn clear(&mut self) {
        let Self { fields, host, .. } = std::mem::take(self);
        *self = Self { fields, host, ..Self::default() };
        self.fields.clear();
        self.host.clear();
    }

    /// The same of a stream of HTTP/2, which was written down as HTTP/1.1 to be read.
    pub(crate) fn over_http2(self) -> Self {
        Self { version: Version::Http2, ..self }
    }

    /// Does a body follow, and has the sender fixed its length?
    pub(crate) fn framing(&self) -> (Option<u64>, bool) {
        (self.content_length, self.chunked)
    }
}

/// The head of one request: every byte checked, exactly one reading left.
#[derive(Debug, Clone)]
pub struct Head {
    raw: Bytes,
    parts: HeadParts,
}

impl Head {
    pub(crate) fn new(raw: Bytes, parts: HeadParts) -> Self {
        Self { raw, parts }
    }

    pub(crate) fn into_parts(self) -> HeadParts {
        self.parts
    }

    pub fn method(&self) -> &str {
        self.parts.method.text(&self.raw)
    }

    /// The target exactly as it was received. Absolute-form stays absolute-form.
    pub fn target(&self) -> &[u8] {
        self.parts.target.of(&self.raw)
    }

    /// The same as [`Self::target`], sharing the head's memory.
    pub fn target_bytes(&self) -> Bytes {
        self.raw.slice(self.parts.target.start as usize..self.parts.target.end as usize)
    }

    /// Which form the target has.
    pub fn form(&self) -> Form {
        self.parts.form
    }

    /// The scheme of a target in absolute-form, `http` or `https`; None for the other forms.
    pub fn scheme(&self) -> Option<&'static str> {
        match self.parts.form {
            Form::Http => Some("http"),
            Form::Https => Some("https"),
            Form::Origin | Form::Authority => None,
        }
    }

    /// The authority of a target in absolute-form or authority-form, exactly as it was received: well-formed for the
    /// gate, without userinfo, and the same place as `Host`. None for origin-form.
    pub fn authority(&self) -> Option<&str> {
        (self.parts.form != Form::Origin).then(|| self.parts.authority.text(&self.raw))
    }

    /// Is a segment of the path `.` or `..`, however it is escaped? Only where the listener takes
    /// [`Forms::Proxy`](super::Forms::Proxy): elsewhere such a request is refused.
    pub fn has_dot_segments(&self) -> bool {
        self.parts.dot_segments
    }

    /// Path of the target, escapes and all; never empty, begins with `/`, and holds no dot segment unless
    /// [`Self::has_dot_segments`]. Of an authority-form, which has none, `/`.
    pub fn path(&self) -> &str {
        match self.parts.path.text(&self.raw) {
            // `http://host` and `http://host?query` ask for the root (RFC 9112 §3.2.2).
            "" => "/",
            path => path,
        }
    }

    /// What follows the first `?`; `Some("")` where nothing does.
    pub fn query(&self) -> Option<&str> {
        self.parts.query.map(|query| query.text(&self.raw))
    }

    /// Path and query in origin-form, whatever form the target has.
    pub fn origin(&self) -> std::borrow::Cow<'_, str> {
        let end = self.parts.query.map_or(self.parts.path.end, |query| query.end);
        let origin = Span { start: self.parts.path.start, end }.text(&self.raw);
        if origin.starts_with('/') { origin.into() } else { format!("/{origin}").into() }
    }

    /// The same as [`Self::origin`], sharing the head's memory where the target has that form already.
    pub fn origin_bytes(&self) -> Bytes {
        match self.origin() {
            std::borrow::Cow::Borrowed(origin) => self.raw.slice_ref(origin.as_bytes()),
            std::borrow::Cow::Owned(origin) => origin.into(),
        }
    }

    pub fn version(&self) -> Version {
        self.parts.version
    }

    /// `Host` in its normal form: lower case, without port, an IPv6 address canonical and in brackets.
    pub fn host(&self) -> &str {
        &self.parts.host
    }

    /// The port that `Host` names, if it names one.
    pub fn port(&self) -> Option<u16> {
        self.parts.port
    }

    /// All fields in the order in which they came, names as they were written, duplicates and all.
    pub fn headers(&self) -> impl ExactSizeIterator<Item = (&str, &[u8])> + Clone {
        self.parts.fields.iter().map(|field| (field.name.text(&self.raw), field.value.of(&self.raw)))
    }

    /// All values of a field, in order. `name` in any case.
    pub fn get_all<'s, 'n>(&'s self, name: &'n str) -> impl Iterator<Item = &'s [u8]> + Clone + use<'s, 'n> {
        self.headers().filter(move |(have, _)| have.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }

    /// The only value of a field: None where it is absent and where it is given twice.
    pub fn get_one(&self, name: &str) -> Option<&[u8]> {
        let mut values = self.get_all(name);
        let first = values.next()?;
        values.next().is_none().then_some(first)
    }

    pub fn content_length(&self) -> Option<u64> {
        self.parts.content_length
    }

    pub fn is_chunked(&self) -> bool {
        self.parts.chunked
    }

    /// Does the sender wait for `100 Continue`? Never for HTTP/1.0, which has none.
    pub fn expects_continue(&self) -> bool {
        self.parts.expects_continue
    }

    /// May the connection serve another request, as far as the sender has a say in it?
    pub fn keeps_alive(&self) -> bool {
        self.parts.keep_alive
    }
}
