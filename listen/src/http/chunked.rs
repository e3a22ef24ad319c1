//! The chunked coding (RFC 9112 §7.1), checked byte by byte as it passes.
//!
//! It says where the message ends, which bytes are data, and whether every byte of framing is what the grammar has
//! there. Stricter than many: an empty chunk size ends no body, and a bare LF ends no line.
//!
//! Extensions are checked against their grammar, counted against a bound, and ignored. Trailer fields are checked,
//! bounded by the same limits as the head, and dropped: never merged into the head, whatever they are called.

use domain::Refusal;

use super::field;

/// Digits of a chunk size; 16 hold every 64-bit number, and leading zeros are no use to anybody.
const SIZE_DIGITS_MAX: u8 = 16;

/// All extensions of one message together. Nobody sends any; somebody who drips them keeps us busy for nothing.
const EXTENSION_BYTES_MAX: u32 = 4096;

/// Bounds of the trailer section.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TrailerLimits {
    pub bytes: usize,
    pub count: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// First digit of a chunk size.
    Size,
    SizeDigits,
    /// Blanks behind the size: only an extension may follow.
    SizeBlank,
    /// Blanks between `;` and the extension's name.
    ExtensionStart,
    ExtensionName,
    /// Blanks behind an extension's name.
    ExtensionNameBlank,
    /// Blanks between `=` and the value.
    ExtensionEqual,
    ExtensionToken,
    ExtensionQuoted,
    ExtensionQuotedPair,
    /// Directly behind a closing quote.
    ExtensionEnd,
    /// Blanks behind an extension's value: only another extension may follow.
    ExtensionBlank,
    /// LF of the line with the size.
    SizeLf,
    Data,
    DataCr,
    DataLf,
    /// First byte of a trailer line, or CR of the end.
    TrailerStart,
    TrailerName,
    TrailerValue,
    TrailerLf,
    EndLf,
    Done,
}

/// Follows one chunked body.
#[derive(Debug, Clone)]
pub struct ChunkScan {
    state: State,
    digits: u8,
    /// Of the size that is being read; then what is left of the chunk.
    left: u64,
    data: u64,
    extension_bytes: u32,
    trailer_bytes: usize,
    trailer_count: usize,
    limits: TrailerLimits,
}

impl ChunkScan {
    pub fn new(limits: TrailerLimits) -> Self {
        Self {
            state: State::Size,
            digits: 0,
            left: 0,
            data: 0,
            extension_bytes: 0,
            trailer_bytes: 0,
            trailer_count: 0,
            limits,
        }
    }

    /// Has the message ended, final empty line and all?
    pub fn is_done(&self) -> bool {
        self.state == State::Done
    }

    /// Bytes of data that have passed.
    pub fn data_bytes(&self) -> u64 {
        self.data
    }

    /// Takes bytes until the message ends, and says how many of them belong to it; `data` gets the stretches that are
    /// the body's. A chunk that would take the data beyond `data_max` is refused as soon as its size is known.
    pub fn feed(&mut self, bytes: &[u8], data_max: u64, mut data: impl FnMut(&[u8])) -> Result<usize, Refusal> {
        let mut at = 0;
        while at < bytes.len() && self.state != State::Done {
            if self.state == State::Data {
                let here = usize::try_from(self.left).unwrap_or(usize::MAX).min(bytes.len() - at);
                data(&bytes[at..at + here]);
                at += here;
                self.left -= here as u64;
                self.data += here as u64;
                if self.left == 0 {
                    self.state = State::DataCr;
                }
            } else {
                self.state = self.step(bytes[at], data_max)?;
                at += 1;
            }
        }
        Ok(at)
    }

    fn step(&mut self, byte: u8, data_max: u64) -> Result<State, Refusal> {
        let next = match self.state {
            State::Size | State::SizeDigits => self.size(byte, data_max)?,
            State::SizeBlank
            | State::ExtensionStart
            | State::ExtensionName
            | State::ExtensionNameBlank
            | State::ExtensionEqual
            | State::ExtensionToken
            | State::ExtensionQuoted
            | State::ExtensionQuotedPair
            | State::ExtensionEnd
            | State::ExtensionBlank => {
                self.extension_bytes += 1;
                if self.extension_bytes > EXTENSION_BYTES_MAX {
                    return Err(Refusal::MalformedRequest);
                }
                extension(self.state, byte)
            }
            State::SizeLf if byte == b'\n' => {
                self.digits = 0;
                Some(if self.left == 0 { State::TrailerStart } else { State::Data })
            }
            State::DataCr if byte == b'\r' => Some(State::DataLf),
            State::DataLf if byte == b'\n' => Some(State::Size),
            State::TrailerStart | State::TrailerName | State::TrailerValue | State::TrailerLf => self.trailer(byte)?,
            State::EndLf if byte == b'\n' => Some(State::Done),
            State::SizeLf | State::DataCr | State::DataLf | State::EndLf | State::Data | State::Done => None,
        };
        next.ok_or(Refusal::MalformedRequest)
    }

    fn size(&mut self, byte: u8, data_max: u64) -> Result<Option<State>, Refusal> {
        if let Some(digit) = char::from(byte).to_digit(16) {
            if self.state == State::Size {
                self.left = 0;
            }
            self.digits += 1;
            if self.digits > SIZE_DIGITS_MAX {
                return Ok(None);
            }
            self.left = self.left << 4 | u64::from(digit);
            return Ok(Some(State::SizeDigits));
        }
        if self.state == State::Size {
            return Ok(None);
        }
        if self.data.checked_add(self.left).is_none_or(|data| data > data_max) {
            return Err(Refusal::BodyTooLarge);
        }
        Ok(match byte {
            b'\r' => Some(State::SizeLf),
            b';' => Some(State::ExtensionStart),
            b' ' | b'\t' => Some(State::SizeBlank),
            _ => None,
        })
    }

    fn trailer(&mut self, byte: u8) -> Result<Option<State>, Refusal> {
        self.trailer_bytes += 1;
        if self.trailer_bytes > self.limits.bytes {
            return Err(Refusal::HeadersTooLarge);
        }
        Ok(match (self.state, byte) {
            (State::TrailerStart, b'\r') => Some(State::EndLf),
            (State::TrailerStart, byte) if field::is_token_byte(byte) => {
                self.trailer_count += 1;
                if self.trailer_count > self.limits.count {
                    return Err(Refusal::HeadersTooLarge);
                }
                Some(State::TrailerName)
            }
            (State::TrailerName, b':') => Some(State::TrailerValue),
            (State::TrailerName, byte) if field::is_token_byte(byte) => Some(State::TrailerName),
            (State::TrailerValue, b'\r') => Some(State::TrailerLf),
            (State::TrailerValue, byte) if field::is_value_byte(byte) => Some(State::TrailerValue),
            (State::TrailerLf, b'\n') => Some(State::TrailerStart),
            _ => None,
        })
    }
}

/// `*( BWS ";" BWS chunk-ext-name [ BWS "=" BWS ( token / quoted-string ) ] )`, of which only blanks that lead to
/// nothing are refused.
fn extension(state: State, byte: u8) -> Option<State> {
    let blank = matches!(byte, b' ' | b'\t');
    match (state, byte) {
        (State::SizeBlank, _) if blank => Some(State::SizeBlank),
        (State::ExtensionStart, _) if blank => Some(State::ExtensionStart),
        (State::ExtensionName | State::ExtensionNameBlank, _) if blank => Some(State::ExtensionNameBlank),
        (State::ExtensionEqual, _) if blank => Some(State::ExtensionEqual),
        (State::ExtensionToken | State::ExtensionEnd | State::ExtensionBlank, _) if blank => {
            Some(State::ExtensionBlank)
        }
        (
            State::SizeBlank
            | State::ExtensionName
            | State::ExtensionNameBlank
            | State::ExtensionToken
            | State::ExtensionEnd
            | State::ExtensionBlank,
            b';',
        ) => Some(State::ExtensionStart),
        (State::ExtensionName | State::ExtensionNameBlank, b'=') => Some(State::ExtensionEqual),
        (State::ExtensionName | State::ExtensionToken | State::ExtensionEnd, b'\r') => Some(State::SizeLf),
        (State::ExtensionStart | State::ExtensionName, byte) if field::is_token_byte(byte) => {
            Some(State::ExtensionName)
        }
        (State::ExtensionEqual | State::ExtensionToken, byte) if field::is_token_byte(byte) => {
            Some(State::ExtensionToken)
        }
        (State::ExtensionEqual, b'"') => Some(State::ExtensionQuoted),
        (State::ExtensionQuoted, b'"') => Some(State::ExtensionEnd),
        (State::ExtensionQuoted, b'\\') => Some(State::ExtensionQuotedPair),
        (State::ExtensionQuoted | State::ExtensionQuotedPair, byte) if field::is_value_byte(byte) => {
            Some(State::ExtensionQuoted)
        }
        _ => None,
    }
}
