//! Which bytes may stand where (RFC 9110 §5, RFC 3986 §2–3), as tables.

const TOKEN: u8 = 1;
const PATH: u8 = 2;
const QUERY: u8 = 4;
const HOST: u8 = 8;
const PASSED_PATH: u8 = 16;

static CLASSES: [u8; 256] = classes();

const fn classes() -> [u8; 256] {
    let mut table = [0; 256];
    let mut byte = 0_u8;
    while byte < 128 {
        let mut class = 0;
        let unreserved = byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~');
        let sub_delims = matches!(byte, b'!' | b'$' | b'&' | b'\'' | b'(' | b')' | b'*' | b'+' | b',' | b';' | b'=');
        if byte.is_ascii_alphanumeric()
            || matches!(
                byte,
                b'!' | b'#' | b'$' | b'%' | b'&' | b'\'' | b'*' | b'+' | b'-' | b'.' | b'^' | b'_' | b'`' | b'|' | b'~'
            )
        {
            class |= TOKEN;
        }
        if unreserved || sub_delims || matches!(byte, b':' | b'@' | b'/' | b'%') {
            class |= PATH | PASSED_PATH | QUERY;
        }
        if matches!(byte, b'[' | b']' | b'|' | b'^') {
            class |= PASSED_PATH;
        }
        if matches!(byte, b'?' | b'[' | b']' | b'{' | b'}' | b'|' | b'^' | b'`') {
            class |= QUERY;
        }
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_') {
            class |= HOST;
        }
        table[byte as usize] = class;
        byte += 1;
    }
    table
}

fn all(bytes: &[u8], class: u8) -> bool {
    bytes.iter().all(|&byte| CLASSES[usize::from(byte)] & class != 0)
}

/// `tchar` of RFC 9110 §5.6.2.
pub(super) fn is_token_byte(byte: u8) -> bool {
    CLASSES[usize::from(byte)] & TOKEN != 0
}

/// `token`: at least one `tchar`.
pub(crate) fn is_token(bytes: &[u8]) -> bool {
    !bytes.is_empty() && all(bytes, TOKEN)
}

/// Bytes of `*( pchar / "/" )`; a `%` still has to be checked by [`percent_is_sound`].
pub(super) fn is_path(bytes: &[u8]) -> bool {
    all(bytes, PATH)
}

/// The same and `[ ] | ^`, which clients that follow the WHATWG URL standard send as they are: a path of somebody
/// else's, to be passed on.
pub(super) fn is_passed_path(bytes: &[u8]) -> bool {
    all(bytes, PASSED_PATH)
}

/// Bytes of `*( pchar / "/" / "?" )`, and ``[ ] { } | ^ ` ``, which clients that follow the WHATWG URL standard (Node's
/// fetch among them) send as they are: a provider to whom somebody gave `…?tags[]=a` sends just that. No hop reads them
/// in two ways. A `%` still has to be checked by [`percent_is_sound`].
pub(super) fn is_query(bytes: &[u8]) -> bool {
    all(bytes, QUERY)
}

/// Letters, digits, `-`, `.` and `_`: what names that resolve are made of.
pub(super) fn is_host_name(bytes: &[u8]) -> bool {
    !bytes.is_empty() && all(bytes, HOST)
}

/// Every `%` is followed by two hexadecimal digits.
pub(super) fn percent_is_sound(bytes: &[u8]) -> bool {
    memchr::memchr_iter(b'%', bytes)
        .all(|at| matches!(bytes.get(at + 1..at + 3), Some(hex) if hex.iter().all(u8::is_ascii_hexdigit)))
}

/// One byte of a field value: visible ASCII, space, tab, or a byte above ASCII (`obs-text`).
pub(super) fn is_value_byte(byte: u8) -> bool {
    byte == b'\t' || (byte >= b' ' && byte != 0x7f)
}

/// A whole field value. Without a branch per byte, so that the compiler checks many at once.
pub(crate) fn is_value(bytes: &[u8]) -> bool {
    bytes.iter().fold(true, |sound, &byte| sound & is_value_byte(byte))
}

/// `bytes` without spaces and tabs at either end.
pub(super) fn trim(bytes: &[u8]) -> &[u8] {
    let blank = |byte: &u8| matches!(byte, b' ' | b'\t');
    let Some(first) = bytes.iter().position(|byte| !blank(byte)) else { return &[] };
    let last = bytes.iter().rposition(|byte| !blank(byte)).unwrap_or(first);
    &bytes[first..=last]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_follow_the_grammar() {
        let members = |class: fn(&[u8]) -> bool| -> String {
            (0..=255_u8).filter(|&byte| class(&[byte])).map(char::from).collect()
        };
        assert_eq!(members(is_token), "!#$%&'*+-.0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ^_`abcdefghijklmnopqrstuvwxyz|~");
        assert_eq!(
            members(is_path),
            "!$%&'()*+,-./0123456789:;=@ABCDEFGHIJKLMNOPQRSTUVWXYZ_abcdefghijklmnopqrstuvwxyz~"
        );
        assert_eq!(
            members(is_passed_path),
            "!$%&'()*+,-./0123456789:;=@ABCDEFGHIJKLMNOPQRSTUVWXYZ[]^_abcdefghijklmnopqrstuvwxyz|~"
        );
        assert_eq!(
            members(is_query),
            "!$%&'()*+,-./0123456789:;=?@ABCDEFGHIJKLMNOPQRSTUVWXYZ[]^_`abcdefghijklmnopqrstuvwxyz{|}~"
        );
        assert_eq!(members(is_host_name), "-.0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ_abcdefghijklmnopqrstuvwxyz");
        for byte in 0..=255_u8 {
            let sound = matches!(byte, b'\t' | b' '..=b'~' | 0x80..);
            assert_eq!(is_value(&[b'a', byte]), sound, "{byte:#x}");
        }
    }

    #[test]
    fn percent_needs_two_hex_digits() {
        for (text, sound) in
            [("", true), ("/a%2fB%C3", true), ("%", false), ("%2", false), ("%2g", false), ("%%41", false)]
        {
            assert_eq!(percent_is_sound(text.as_bytes()), sound, "{text}");
        }
    }

    #[test]
    fn trim_takes_blanks_only() {
        assert_eq!(trim(b" \t a b\t "), b"a b");
        assert_eq!(trim(b"\x0ba\xa0"), b"\x0ba\xa0");
        assert_eq!(trim(b" \t"), b"");
        assert_eq!(trim(b""), b"");
    }
}
