//! Text that came from outside, made safe to print: bounded, and with nothing in it that a terminal, a log
//! reader or a person could be led astray by.

use std::borrow::Cow;
use std::fmt::{self, Write as _};

/// Shows untrusted bytes on one line: printable ASCII and printable Unicode as they are, everything else
/// (controls, ANSI escapes, bidirectional overrides, bytes that are no UTF-8, the backslash itself) escaped.
/// What is longer than `bytes_max` is cut and marked with `…`.
#[derive(Clone, Copy)]
pub struct Untrusted<'a> {
    bytes: &'a [u8],
    bytes_max: usize,
}

/// Enough to recognise a header value or a path by, and little enough that a flood of them fills no disk.
const BYTES_MAX: usize = 256;

impl<'a> Untrusted<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, bytes_max: BYTES_MAX }
    }

    pub fn with_limit(bytes: &'a [u8], bytes_max: usize) -> Self {
        Self { bytes, bytes_max }
    }
}

/// Characters that change how their neighbours are shown, or that cannot be seen at all.
fn deceives(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

/// Nearly all there is: ASCII that can be seen. Looked at without a branch for each byte.
fn is_visible(bytes: &[u8]) -> bool {
    bytes.iter().filter(|byte| !(b' '..=b'~').contains(*byte)).count() == 0
}

impl fmt::Display for Untrusted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cut = self.bytes.len() > self.bytes_max;
        if !cut
            && is_visible(self.bytes)
            && !self.bytes.contains(&b'\\')
            && let Ok(text) = str::from_utf8(self.bytes)
        {
            return f.write_str(text);
        }
        let shown = &self.bytes[..self.bytes.len().min(self.bytes_max)];
        for chunk in shown.utf8_chunks() {
            for c in chunk.valid().chars() {
                if c == '\\' {
                    f.write_str("\\\\")?;
                } else if deceives(c) {
                    write!(f, "{}", c.escape_default())?;
                } else {
                    f.write_char(c)?;
                }
            }
            for byte in chunk.invalid() {
                write!(f, "\\x{byte:02x}")?;
            }
        }
        if cut { f.write_str("…") } else { Ok(()) }
    }
}

impl fmt::Debug for Untrusted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A quote inside would end the text early; a backslash is doubled already, so this has one reading.
        write!(f, "\"{}\"", self.to_string().replace('"', "\\\""))
    }
}

/// JSON that may be looked at on a terminal: the same document, with everything that deceives written as `\u…`.
/// Serializers escape what JSON asks them to, and leave C1 controls and changes of writing direction as they are.
/// Line feeds between values stay.
pub fn json_for_terminals(json: &str) -> Cow<'_, str> {
    let odd = |c: char| c != '\n' && deceives(c);
    if is_visible(json.as_bytes()) || !json.contains(odd) {
        return json.into();
    }
    let mut shown = String::with_capacity(json.len() + 32);
    for c in json.chars() {
        if odd(c) {
            // Only inside strings can such a character stand, and there an escape says the same.
            for unit in c.encode_utf16(&mut [0; 2]) {
                // Writing to a string does not fail.
                let _written = write!(shown, "\\u{unit:04x}");
            }
        } else {
            shown.push(c);
        }
    }
    shown.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn nothing_moves_the_cursor() {
        let shown = |bytes: &[u8]| Untrusted::new(bytes).to_string();
        assert_eq!(shown(b"plain /path?x=1"), "plain /path?x=1");
        assert_eq!(shown("größe ☃".as_bytes()), "größe ☃");
        assert_eq!(shown(b"\x1b[31mred\r\nnext"), "\\u{1b}[31mred\\r\\nnext");
        assert_eq!(shown(b"\xff\xfe"), "\\xff\\xfe");
        assert_eq!(shown("a\u{202e}b\u{9b}c".as_bytes()), "a\\u{202e}b\\u{9b}c");
        assert_eq!(shown(b"\\x1b"), "\\\\x1b");
        assert_eq!(Untrusted::with_limit(b"abcdef", 3).to_string(), "abc…");
    }

    #[test]
    fn json_keeps_its_meaning_and_loses_its_teeth() {
        let text = "a\u{9b}31m\u{202e}b\u{7f}\u{e0041}c";
        let written = format!("{{\n\"k\": \"{text}\"}}");
        let json = json_for_terminals(&written);
        assert_eq!(json, "{\n\"k\": \"a\\u009b31m\\u202eb\\u007f\\udb40\\udc41c\"}");
        assert_eq!(json_for_terminals("{\"k\":\"größe ☃ \\\\\"}"), "{\"k\":\"größe ☃ \\\\\"}");
    }

    proptest! {
        #[test]
        fn any_bytes_stay_on_one_line(bytes: Vec<u8>) {
            let shown = Untrusted::new(&bytes).to_string();
            prop_assert!(shown.chars().all(|c| !c.is_control()));
        }
    }
}
