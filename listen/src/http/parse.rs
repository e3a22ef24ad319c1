//! The head, read strictly: request line and fields of RFC 9112, with every leniency taken out that it allows.
//!
//! - Lines end in CR LF. A bare CR or LF anywhere, and an obsolete fold, is a fault.
//! - One empty line before the request line is skipped, as RFC 9112 §2.2 asks (old clients send one after a body).
//! - Names are tokens; nothing stands between name and colon. `Content_Length` and `Transfer_Encoding` are refused:
//!   gateways that map `-` to `_` take them for the real ones.
//! - Exactly one `Host`, also in HTTP/1.0: a tenant is found by it. Of a proxy's clients, those of HTTP/1.0 may leave it
//!   out where the target names the place (Python's do for CONNECT, up to 3.11).
//! - `Host` says the same as the target, if that names a place. A proxy may ignore it (RFC 9112 §3.2.2), and then the
//!   next hop would not: two readings of where a request goes are what attacks are made of. For a proxy a difference is
//!   kept beside the head ([`HeadParser::host_differs`]), since it is refused for a reason of its own.
//! - CONNECT has no body.
//! - At most one `Content-Length`, digits only; or one `Transfer-Encoding: chunked`; never both.
//! - `Connection` may not name a field that frames or routes the message.
//!
//! Each fault is found at one fixed byte, so how the bytes were cut into reads changes no verdict.

use std::net::{IpAddr, SocketAddr};

use domain::Refusal;

use super::authority::parse_authority;
use super::field;
use super::head::{Field, HeadParts, Span, Version};
use super::target::{self, Form, Forms};

/// Longest method. The longest registered one has 17 bytes.
const METHOD_BYTES_MAX: usize = 32;

/// ` HTTP/1.1` and the space before the target.
const LINE_OVERHEAD: usize = 1 + 1 + 8;

const UNDERSCORE: &str = "a header is spelt with _ that some gateways take for one that frames the message";

/// Bounds of a head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeadLimits {
    pub target_bytes: usize,
    /// The whole head: request line, fields, and the empty line.
    pub header_bytes: usize,
    pub header_count: usize,
}

/// How far the parser has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// Every byte so far is in order; the head has not ended.
    More,
    /// The head ends here. `skipped` bytes of an empty line stand before it and belong to nothing.
    Complete { skipped: usize, head: usize },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum State {
    #[default]
    Start,
    RequestLine,
    Fields,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Coding {
    #[default]
    Absent,
    Chunked,
    Unsupported,
    Malformed,
}

/// Reads one head. Call [`Self::advance`] with all bytes since the head's beginning, as often as there are more.
#[derive(Debug, Default)]
pub struct HeadParser {
    forms: Forms,
    state: State,
    skipped: usize,
    /// Beginning of the line that is being read, and how far it has been searched for its end.
    line: usize,
    searched: usize,
    parts: HeadParts,
    seen: Seen,
    /// Which check failed: for the operator alone.
    why: &'static str,
}

/// What has to wait for the end of the head to be judged.
#[derive(Debug, Clone, Copy, Default)]
struct Seen {
    host: Option<Span>,
    content_length: bool,
    length_overflow: bool,
    coding: Coding,
    expectation: Expectation,
    close: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Expectation {
    #[default]
    None,
    Continue,
    Other,
}

impl HeadParser {
    pub fn new(forms: Forms) -> Self {
        Self { forms, ..Self::default() }
    }

    /// Gets ready for the next head; `parts` lends its memory.
    pub fn reset(&mut self, mut parts: HeadParts) {
        parts.clear();
        *self = Self { forms: self.forms, parts, ..Self::default() };
    }

    /// Has nothing come that could be a request?
    pub fn is_blank(&self) -> bool {
        self.state == State::Start
    }

    /// Does `Host` of a complete head name another place than the target? Only in a proxy's forms: elsewhere that is no
    /// head.
    ///
    /// With CONNECT it may name the proxy itself, by the address that the client came to (Node's undici does before 6).
    /// Nobody can take that for the destination, and the head goes no further.
    pub fn host_differs(&self, here: SocketAddr) -> bool {
        let HeadParts { form, host, port, .. } = &self.parts;
        let names_us = || {
            let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
            *port == Some(here.port()) && address.is_ok_and(|address| address == here.ip().to_canonical())
        };
        self.parts.host_differs && !(*form == Form::Authority && names_us())
    }

    /// Why a head is [`Refusal::MalformedRequest`], for the log: whoever sent it is not told. Empty where it is not.
    pub fn why(&self) -> &'static str {
        self.why
    }

    /// The connection ended where the head has not.
    pub(crate) fn cut_off(&mut self) -> Refusal {
        self.malformed("the connection ended in the middle of the head")
    }

    fn malformed(&mut self, why: &'static str) -> Refusal {
        self.why = why;
        Refusal::MalformedRequest
    }

    /// What a complete head was found to say.
    pub fn take_parts(&mut self) -> HeadParts {
        std::mem::take(&mut self.parts)
    }

    /// Reads on. `buffer` holds everything since the beginning, and more than the last time.
    pub fn advance(&mut self, buffer: &[u8], limits: &HeadLimits) -> Result<Progress, Refusal> {
        if self.state == State::Start && !self.start(buffer)? {
            return Ok(Progress::More);
        }
        let bytes = &buffer[self.skipped..];
        loop {
            let Some(end) = self.line_end(bytes, limits)? else { return Ok(Progress::More) };
            let line = Span::new(self.line, end);
            self.line = end + 2;
            self.searched = self.line;
            if self.state == State::RequestLine {
                self.request_line(bytes, line, limits)?;
                self.state = State::Fields;
            } else if line.start == line.end {
                self.finish(bytes).map_err(|(refusal, why)| {
                    self.why = why;
                    refusal
                })?;
                return Ok(Progress::Complete { skipped: self.skipped, head: self.line });
            } else {
                self.field(bytes, line, limits)?;
            }
        }
    }

    /// Skips one empty line, and looks at the first byte: what is no HTTP at all (TLS, say) need not be waited for.
    fn start(&mut self, buffer: &[u8]) -> Result<bool, Refusal> {
        let bytes = match buffer {
            [] | [b'\r'] => return Ok(false),
            [b'\r', b'\n', rest @ ..] => {
                self.skipped = 2;
                rest
            }
            bytes => bytes,
        };
        match bytes.first() {
            None => Ok(false),
            Some(&first) if field::is_token_byte(first) => {
                self.state = State::RequestLine;
                Ok(true)
            }
            // The type of a record that has a handshake in it, RFC 8446 §5.1.
            Some(0x16) => Err(self.malformed("TLS was spoken to an address without TLS")),
            Some(_) => Err(self.malformed("the first byte begins no request line")),
        }
    }

    /// Finds where the current line ends: the place of its CR. Bounds come first, so that a verdict depends on
    /// places in the bytes and on nothing else.
    fn line_end(&mut self, bytes: &[u8], limits: &HeadLimits) -> Result<Option<usize>, Refusal> {
        // Where the line's CR may stand no longer: the head's last two bytes are CR LF.
        let head_end = limits.header_bytes.saturating_sub(1);
        let (beyond, too_large) = if self.state == State::RequestLine {
            (head_end.min(METHOD_BYTES_MAX + LINE_OVERHEAD + limits.target_bytes + 1), Refusal::TargetTooLong)
        } else {
            (head_end, Refusal::HeadersTooLarge)
        };
        let Some(found) = memchr::memchr2(b'\r', b'\n', &bytes[self.searched..]).map(|at| self.searched + at) else {
            self.searched = bytes.len();
            return if bytes.len() >= beyond { Err(too_large) } else { Ok(None) };
        };
        self.searched = found;
        if found >= beyond {
            return Err(too_large);
        }
        match bytes[found..] {
            [b'\r', b'\n', ..] => Ok(Some(found)),
            [b'\r'] => Ok(None),
            [b'\n', ..] => Err(self.malformed("a line ends in LF without CR")),
            _ => Err(self.malformed("a CR stands within a line")),
        }
    }

    fn request_line(&mut self, bytes: &[u8], line: Span, limits: &HeadLimits) -> Result<(), Refusal> {
        const NO_LINE: &str = "the request line is not method, target and version with one space between them";
        let text = line.of(bytes);
        let method_end = memchr::memchr(b' ', text).ok_or_else(|| self.malformed(NO_LINE))?;
        let target_start = method_end + 1;
        let target_bytes = memchr::memchr(b' ', &text[target_start..]).ok_or_else(|| self.malformed(NO_LINE))?;
        let target_end = target_start + target_bytes;
        let target = &text[target_start..target_end];
        if method_end > METHOD_BYTES_MAX || !field::is_token(&text[..method_end]) {
            return Err(self.malformed("the method is no token, or is longer than 32 bytes"));
        }
        if target.len() > limits.target_bytes {
            return Err(Refusal::TargetTooLong);
        }
        self.parts.version = match &text[target_end + 1..] {
            b"HTTP/1.1" => Version::Http11,
            b"HTTP/1.0" => Version::Http10,
            // Also 1.2 and above: nobody speaks them, so whoever says so is not who we think.
            [b'H', b'T', b'T', b'P', b'/', major, b'.', minor] if major.is_ascii_digit() && minor.is_ascii_digit() => {
                return Err(Refusal::VersionNotSupported);
            }
            _ => return Err(self.malformed(NO_LINE)),
        };
        let found = target::parse(target, self.forms, &text[..method_end] == b"CONNECT").inspect_err(|_| {
            self.why = "the target has a form, a byte or a dot segment that is not taken here";
        })?;
        self.parts.method = Span::new(0, method_end);
        self.parts.target = Span::new(target_start, target_end);
        self.parts.path = Span::new(target_start + found.origin, target_start + found.path_end);
        self.parts.query =
            (found.path_end < target.len()).then(|| Span::new(target_start + found.path_end + 1, target_end));
        self.parts.form = found.form;
        self.parts.authority = Span::new(target_start + found.authority.0, target_start + found.authority.1);
        self.parts.dot_segments = found.dot_segments;
        Ok(())
    }

    fn field(&mut self, bytes: &[u8], line: Span, limits: &HeadLimits) -> Result<(), Refusal> {
        if self.parts.fields.len() == limits.header_count {
            return Err(Refusal::HeadersTooLarge);
        }
        let text = line.of(bytes);
        let no_colon = "a header line has no colon";
        let colon = memchr::memchr(b':', text).ok_or_else(|| self.malformed(no_colon))?;
        let (name, rest) = (&text[..colon], &text[colon + 1..]);
        if !field::is_token(name) {
            return Err(self.malformed("a header's name is no token: a blank before the colon, or a folded line, say"));
        }
        if !field::is_value(rest) {
            return Err(self.malformed("a header's value has a control byte"));
        }
        let value = field::trim(rest);
        let start = line.start as usize;
        // An empty value lies behind the colon; `trim` has then nothing to point into.
        let value_start =
            if value.is_empty() { start + colon + 1 } else { start + colon + 1 + rest.len() - trimmed_front(rest) };
        let value_span = Span::new(value_start, value_start + value.len());
        self.parts.fields.push(Field { name: Span::new(start, start + colon), value: value_span });
        self.notice(name, value, value_span)
    }

    /// Keeps what fields say about framing, routing and the connection.
    fn notice(&mut self, name: &[u8], value: &[u8], value_span: Span) -> Result<(), Refusal> {
        let seen = &mut self.seen;
        let (sound, why) = match name.len() {
            4 if name.eq_ignore_ascii_case(b"host") => {
                (seen.host.replace(value_span).is_none(), "there are two Host headers")
            }
            14 if name.eq_ignore_ascii_case(b"content-length") => {
                self.parts.content_length = decimal(value);
                seen.length_overflow = self.parts.content_length.is_none();
                let first = !std::mem::replace(&mut seen.content_length, true);
                let sound = first && !value.is_empty() && value.iter().all(u8::is_ascii_digit);
                (sound, "Content-Length is there twice, or is no number")
            }
            17 if name.eq_ignore_ascii_case(b"transfer-encoding") => {
                let first = std::mem::replace(&mut seen.coding, coding(value)) == Coding::Absent;
                (first, "there are two Transfer-Encoding headers")
            }
            14 => (!name.eq_ignore_ascii_case(b"content_length"), UNDERSCORE),
            17 => (!name.eq_ignore_ascii_case(b"transfer_encoding"), UNDERSCORE),
            6 if name.eq_ignore_ascii_case(b"expect") => {
                let first = seen.expectation == Expectation::None;
                let known = first && value.eq_ignore_ascii_case(b"100-continue");
                seen.expectation = if known { Expectation::Continue } else { Expectation::Other };
                (true, "")
            }
            10 if name.eq_ignore_ascii_case(b"connection") => {
                seen.close |= options(value).any(|option| option.eq_ignore_ascii_case(b"close"));
                let steals = [&b"host"[..], b"content-length", b"transfer-encoding"];
                let sound = !options(value).any(|option| steals.iter().any(|field| option.eq_ignore_ascii_case(field)));
                (sound, "Connection names a header that frames or routes the message")
            }
            _ => return Ok(()),
        };
        if sound { Ok(()) } else { Err(self.malformed(why)) }
    }

    /// Judges what only the whole head can tell.
    fn finish(&mut self, bytes: &[u8]) -> Result<(), (Refusal, &'static str)> {
        let malformed = |why| Err((Refusal::MalformedRequest, why));
        let proxy = self.forms == Forms::Proxy;
        let Self { parts, seen, .. } = self;
        let named = match seen.host {
            Some(host) => host,
            None if proxy && parts.version == Version::Http10 && parts.form != Form::Origin => parts.authority,
            None => return malformed("there is no Host header"),
        };
        let Some(host) = parse_authority(named.of(bytes)) else { return malformed("Host is no host and port") };
        parts.host_differs = !parts.form.agrees(parts.authority.of(bytes), &host);
        if parts.host_differs && !proxy {
            return malformed("Host names another host than the target");
        }
        host.write_normal(&mut parts.host);
        parts.port = host.port;
        let has_body = seen.coding != Coding::Absent || seen.length_overflow || parts.content_length > Some(0);
        if parts.form == Form::Authority && has_body {
            return malformed("CONNECT has a body");
        }
        match (seen.coding, seen.content_length, parts.version) {
            (Coding::Absent, ..) => {}
            (Coding::Chunked, false, Version::Http11) => parts.chunked = true,
            (Coding::Unsupported, false, Version::Http11) => return Err((Refusal::CodingNotSupported, "")),
            (_, true, _) => return malformed("there are both Content-Length and Transfer-Encoding"),
            (Coding::Malformed, ..) => return malformed("Transfer-Encoding is no list of codings"),
            (Coding::Chunked | Coding::Unsupported, ..) => return malformed("HTTP/1.0 knows no Transfer-Encoding"),
        }
        if seen.length_overflow {
            return Err((Refusal::BodyTooLarge, ""));
        }
        match seen.expectation {
            Expectation::None => {}
            // An HTTP/1.0 client knows no 100 (RFC 9110 §10.1.1): the field says nothing then.
            Expectation::Continue => parts.expects_continue = parts.version == Version::Http11,
            Expectation::Other => return Err((Refusal::ExpectationFailed, "")),
        }
        // HTTP/1.0 is answered and closed, whatever it asks for: its keep-alive is guesswork between hops.
        parts.keep_alive = parts.version == Version::Http11 && !seen.close;
        Ok(())
    }
}

/// Bytes from the first one that is no blank.
fn trimmed_front(bytes: &[u8]) -> usize {
    bytes.iter().position(|byte| !matches!(byte, b' ' | b'\t')).map_or(0, |blank| bytes.len() - blank)
}

/// The value of a digit string; None where 64 bits do not hold it.
fn decimal(digits: &[u8]) -> Option<u64> {
    digits
        .iter()
        .try_fold(0_u64, |value, digit| value.checked_mul(10)?.checked_add(u64::from(digit.wrapping_sub(b'0'))))
}

/// Members of a list.
fn options(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|&byte| byte == b',').map(field::trim)
}

fn coding(value: &[u8]) -> Coding {
    if value.eq_ignore_ascii_case(b"chunked") {
        Coding::Chunked
    } else if options(value).all(field::is_token) {
        Coding::Unsupported
    } else {
        Coding::Malformed
    }
}
