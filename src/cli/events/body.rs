//! Bodies on a terminal: as text where every character is what it looks like, else as a hex dump.

use std::fmt::Write;

use domain::text::Untrusted;

/// More of a text than anybody reads on a terminal.
const TEXT_BYTES_MAX: usize = 64 * 1024;

/// 256 lines.
const HEX_BYTES_MAX: usize = 4 * 1024;

/// The text, if every character in it can be shown as it is.
pub(in crate::cli) fn plain_text(body: &[u8]) -> Option<&str> {
    let text = std::str::from_utf8(body).ok()?;
    text.lines().all(is_plain).then_some(text)
}

/// Would escaping change nothing? The backslash is doubled there only to tell it from an escape.
fn is_plain(line: &str) -> bool {
    let line = line.replace('\t', " ");
    let escaped = Untrusted::with_limit(line.as_bytes(), usize::MAX).to_string();
    escaped == line.replace('\\', "\\\\")
}

/// Lines to print, and how many bytes they leave out.
pub(super) fn rendered(body: &[u8]) -> (&'static str, Vec<String>, usize) {
    if let Some(text) = plain_text(body) {
        let shown = &text[..text.floor_char_boundary(TEXT_BYTES_MAX)];
        return ("text", shown.lines().map(str::to_owned).collect(), body.len() - shown.len());
    }
    let shown = &body[..body.len().min(HEX_BYTES_MAX)];
    let lines = shown.chunks(16).enumerate().map(|(at, row)| hex_line(at * 16, row));
    ("binary", lines.collect(), body.len() - shown.len())
}

fn hex_line(offset: usize, row: &[u8]) -> String {
    let mut line = format!("{offset:08x} ");
    for at in 0..16 {
        if at == 8 {
            line.push(' ');
        }
        // Writing into a string does not fail.
        match row.get(at) {
            Some(byte) => write!(line, " {byte:02x}").ok(),
            None => write!(line, "   ").ok(),
        };
    }
    line.push_str("  ");
    line.extend(row.iter().map(|byte| if byte.is_ascii_graphic() || *byte == b' ' { char::from(*byte) } else { '.' }));
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_shown_as_it_is() {
        let body = b"{\"a\": \"\\u00e4\\n\"}\r\n\t{}\n";
        assert_eq!(plain_text(body).map(str::as_bytes), Some(&body[..]));
        assert_eq!(rendered(body), ("text", vec!["{\"a\": \"\\u00e4\\n\"}".into(), "\t{}".into()], 0));
    }

    #[test]
    fn what_could_deceive_is_dumped() {
        for body in [&b"\x1b[2J"[..], b"a\rb", b"\xff", "a\u{202e}b".as_bytes(), b"\0", "\u{9b}31m".as_bytes()] {
            assert!(plain_text(body).is_none(), "{body:?}");
            let (kind, lines, _) = rendered(body);
            assert_eq!(kind, "binary");
            assert!(lines.iter().flat_map(|line| line.chars()).all(|c| c.is_ascii_graphic() || c == ' '));
        }
    }

    #[test]
    fn a_dump_reads_like_every_other() {
        assert_eq!(
            rendered(b"\x00ABCDEFGHIJKLMNOPQ").1,
            [
                "00000000  00 41 42 43 44 45 46 47  48 49 4a 4b 4c 4d 4e 4f  .ABCDEFGHIJKLMNO",
                "00000010  50 51                                             PQ",
            ]
        );
    }

    #[test]
    fn what_is_left_out_is_counted() {
        let (_, lines, left) = rendered(&[0; HEX_BYTES_MAX + 5]);
        assert_eq!((lines.len(), left), (HEX_BYTES_MAX / 16, 5));
        let (_, _, left) = rendered("é".repeat(TEXT_BYTES_MAX).as_bytes());
        assert_eq!(left, TEXT_BYTES_MAX);
    }
}
