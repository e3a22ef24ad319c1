//! The first thing that a TLS client says, as far as it tells where it wants to go.
//!
//! The reader takes bytes as they come, in whatever pieces, and answers the same for the same bytes however they were
//! cut: into packets, and into TLS records (a hello with a post-quantum key share is 1.8 KiB and often comes in two
//! packets; some clients cut it into several records on purpose). It keeps the handshake message and nothing else, and
//! takes memory only for bytes that have come: what a length field claims is no reason to allocate.
//!
//! Structure is judged down to the server name: every length, and nothing left over. Cipher suites, versions and the
//! inside of other extensions are between the client and the destination. That is one reason why this is not rustls's
//! `Acceptor`, which refuses a hello without signature algorithms. The other one weighs more: it reads a server name
//! that is an address as no name, and drops what follows a name of a kind it does not know. Both are shapes that two
//! readers could read differently, and here they are refused. Tests and fuzzing compare: where both give a name, it is
//! the same one.

use outbound::{HostName, Malformed};
use thiserror::Error;

/// RFC 8446, 5.1: a record carries at most 2^14 bytes.
const RECORD_BYTES_MAX: usize = 1 << 14;
/// For the whole hello. Real ones have 200 bytes to 2 KiB, with large session tickets some more.
const MESSAGE_BYTES_MAX: usize = 16 << 10;
/// Into so many records it may be cut. Without a bound, a byte of hello could cost six bytes of memory.
const RECORDS_MAX: u8 = 64;

/// What a caller that keeps the raw bytes has to keep at most while it is answered `More`.
pub(super) const RAW_BYTES_MAX: usize = MESSAGE_BYTES_MAX + (RECORDS_MAX as usize + 1) * RECORD_HEADER_BYTES;

const RECORD_HEADER_BYTES: usize = 5;
const HANDSHAKE: u8 = 22;
const VERSION_MAJOR: u8 = 3;
const CLIENT_HELLO: u8 = 1;
const MESSAGE_HEADER_BYTES: usize = 4;
const RANDOM_BYTES: usize = 32;
const SESSION_ID_BYTES_MAX: usize = 32;
const SERVER_NAME: u16 = 0;
const HOST_NAME: u8 = 0;
/// RFC 9849. The grease that browsers send looks exactly like it, on purpose.
const ENCRYPTED_CLIENT_HELLO: u16 = 0xfe0d;

/// Reads a `ClientHello` as it arrives.
#[derive(Debug, Default)]
pub struct HelloReader {
    /// The handshake message, out of its records.
    message: Vec<u8>,
    header: [u8; RECORD_HEADER_BYTES],
    header_bytes: usize,
    /// What the current record still has.
    record_left: usize,
    records: u8,
}

/// How far it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Progress {
    /// So far it is the beginning of a hello.
    More,
    /// Here it is. What lies behind it was not looked at.
    Hello(Hello),
    /// This is not TLS, as its first bytes show.
    NotTls,
    /// This is TLS with something wrong.
    Malformed(HelloFault),
}

/// What it says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hello {
    /// The server name; with encrypted `ClientHello` that of the outer one.
    pub server_name: Option<HostName>,
    /// Whether it carries an encrypted `ClientHello`, or what looks like one.
    pub has_ech: bool,
}

/// What is wrong with a hello.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum HelloFault {
    #[error("a record is empty or longer than records are")]
    Record,
    #[error("something else comes in the middle of the hello")]
    Interrupted,
    #[error("the first message is not a ClientHello")]
    OtherMessage,
    #[error("it is longer than 16 KiB, or in more than 64 records")]
    TooLong,
    #[error("its lengths do not fit each other")]
    Structure,
    #[error("its record goes on behind it")]
    Trailing,
    #[error("an extension comes twice")]
    DuplicateExtension,
    #[error("the server name extension does not hold exactly one host name")]
    ServerNameList,
    #[error("the server name ends with a dot")]
    FinalDot,
    #[error("the server name is none: {0}")]
    ServerName(Malformed),
}

impl HelloFault {
    /// A stable word for records.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Record => "hello-record",
            Self::Interrupted => "hello-interrupted",
            Self::OtherMessage => "hello-other-message",
            Self::TooLong => "hello-too-long",
            Self::Structure => "hello-structure",
            Self::Trailing => "hello-trailing",
            Self::DuplicateExtension => "hello-duplicate-extension",
            Self::ServerNameList => "sni-list",
            Self::FinalDot => "sni-final-dot",
            Self::ServerName(_) => "sni-malformed",
        }
    }
}

impl HelloReader {
    /// Takes the bytes that came next. Whoever was answered anything but `More` asks no further.
    pub fn advance(&mut self, bytes: &[u8]) -> Progress {
        let mut rest = bytes;
        while let Some((first, behind)) = rest.split_first() {
            if self.record_left == 0 {
                if let Some(end) = self.take_header_byte(*first) {
                    return end;
                }
                rest = behind;
                continue;
            }
            let (part, behind) = rest.split_at(rest.len().min(self.record_left));
            self.message.extend_from_slice(part);
            self.record_left -= part.len();
            match self.judge() {
                Ok(None) => rest = behind,
                Ok(Some(hello)) => return Progress::Hello(hello),
                Err(fault) => return Progress::Malformed(fault),
            }
        }
        Progress::More
    }

    fn take_header_byte(&mut self, byte: u8) -> Option<Progress> {
        // The version's second byte says nothing (RFC 8446, 5.1: to be ignored), the first was never another one.
        let is_expected = match self.header_bytes {
            0 => byte == HANDSHAKE,
            1 => byte == VERSION_MAJOR,
            _ => true,
        };
        if !is_expected {
            let is_first = self.records == 0;
            return Some(if is_first { Progress::NotTls } else { Progress::Malformed(HelloFault::Interrupted) });
        }
        self.header[self.header_bytes] = byte;
        self.header_bytes += 1;
        if self.header_bytes < RECORD_HEADER_BYTES {
            return None;
        }
        let [.., high, low] = self.header;
        self.header_bytes = 0;
        self.record_left = usize::from(u16::from_be_bytes([high, low]));
        self.records += 1;
        if !(1..=RECORD_BYTES_MAX).contains(&self.record_left) {
            return Some(Progress::Malformed(HelloFault::Record));
        }
        (self.records > RECORDS_MAX).then_some(Progress::Malformed(HelloFault::TooLong))
    }

    /// The hello, once the message is whole.
    fn judge(&self) -> Result<Option<Hello>, HelloFault> {
        if self.message.first().is_some_and(|kind| *kind != CLIENT_HELLO) {
            return Err(HelloFault::OtherMessage);
        }
        let Some((&[_, a, b, c], body)) = self.message.split_first_chunk::<MESSAGE_HEADER_BYTES>() else {
            // A record that ends within these four bytes is unusual and not wrong.
            return Ok(None);
        };
        let length = u32::from_be_bytes([0, a, b, c]) as usize;
        if MESSAGE_HEADER_BYTES + length > MESSAGE_BYTES_MAX {
            return Err(HelloFault::TooLong);
        }
        // After its hello a client waits for an answer, so nothing else shares the hello's last record. A second message
        // there would be a second reading.
        if body.len() + self.record_left > length {
            return Err(HelloFault::Trailing);
        }
        if body.len() < length { Ok(None) } else { read_body(body).map(Some) }
    }
}

/// Bytes that are taken from the front.
struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8], HelloFault> {
        let (front, rest) = self.0.split_at_checked(count).ok_or(HelloFault::Structure)?;
        self.0 = rest;
        Ok(front)
    }

    fn u8(&mut self) -> Result<u8, HelloFault> {
        let (first, rest) = self.0.split_first().ok_or(HelloFault::Structure)?;
        self.0 = rest;
        Ok(*first)
    }

    fn u16(&mut self) -> Result<u16, HelloFault> {
        let (number, rest) = self.0.split_first_chunk().ok_or(HelloFault::Structure)?;
        self.0 = rest;
        Ok(u16::from_be_bytes(*number))
    }

    /// Bytes behind a length of one byte.
    fn short(&mut self) -> Result<&'a [u8], HelloFault> {
        let length = self.u8()?;
        self.take(length.into())
    }

    /// Bytes behind a length of two bytes.
    fn long(&mut self) -> Result<&'a [u8], HelloFault> {
        let length = self.u16()?;
        self.take(length.into())
    }
}

/// RFC 8446, 4.1.2.
fn read_body(body: &[u8]) -> Result<Hello, HelloFault> {
    let mut body = Bytes(body);
    let is_version = body.u16()?.to_be_bytes()[0] == VERSION_MAJOR;
    body.take(RANDOM_BYTES)?;
    let session_id = body.short()?;
    let suites = body.long()?;
    let compression = body.short()?;
    let is_sound = is_version
        && session_id.len() <= SESSION_ID_BYTES_MAX
        && !suites.is_empty()
        && suites.len().is_multiple_of(2)
        && !compression.is_empty();
    if !is_sound {
        return Err(HelloFault::Structure);
    }
    let mut hello = Hello { server_name: None, has_ech: false };
    // Before TLS 1.3 there may be no extensions at all, not even the length of them.
    if body.0.is_empty() {
        return Ok(hello);
    }
    let mut extensions = Bytes(body.long()?);
    if !body.0.is_empty() {
        return Err(HelloFault::Structure);
    }
    while !extensions.0.is_empty() {
        let (kind, content) = (extensions.u16()?, extensions.long()?);
        match kind {
            SERVER_NAME if hello.server_name.is_some() => return Err(HelloFault::DuplicateExtension),
            SERVER_NAME => hello.server_name = Some(read_server_name(content)?),
            ENCRYPTED_CLIENT_HELLO if hello.has_ech => return Err(HelloFault::DuplicateExtension),
            ENCRYPTED_CLIENT_HELLO => hello.has_ech = true,
            _ => {}
        }
    }
    Ok(hello)
}

/// RFC 6066, 3: a list that could hold names of several kinds, of which only one was ever defined.
fn read_server_name(content: &[u8]) -> Result<HostName, HelloFault> {
    let list = |_| HelloFault::ServerNameList;
    let mut content = Bytes(content);
    let mut names = Bytes(content.long().map_err(list)?);
    let kind = names.u8().map_err(list)?;
    let name = names.long().map_err(list)?;
    if kind != HOST_NAME || name.is_empty() || !names.0.is_empty() || !content.0.is_empty() {
        return Err(HelloFault::ServerNameList);
    }
    let name = std::str::from_utf8(name).map_err(|_| HelloFault::ServerName(Malformed::NotAscii))?;
    // RFC 6066, 3: "without a trailing dot". Some servers would look for the name with it, and give their default site.
    if name.ends_with('.') {
        return Err(HelloFault::FinalDot);
    }
    // The parser of all destinations: no address in any of its spellings passes, and equal names are equal.
    HostName::parse(name).map_err(HelloFault::ServerName)
}

#[cfg(test)]
mod tests;
