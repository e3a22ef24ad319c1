//! A file's text, and what of it can be read although some of it is no TOML.
//!
//! A parser that goes on behind a fault guesses, and a guess that goes wrong says things that are not so. So the lines
//! that are at fault are blanked and the rest is parsed again, until it is TOML: each fault is said once, and
//! everything else of the file is judged as if those lines were not there. Offsets stay what they are.

use std::borrow::Cow;
use std::cell::OnceCell;
use std::collections::BTreeSet;
use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// Bytes parsed again for one file in all: milliseconds, however large a file is and whatever is in it.
const BYTES_AGAIN_MAX: usize = 4 << 20;

/// The text of one file.
#[derive(Debug)]
pub(crate) struct Text<'b> {
    bytes: &'b [u8],
    /// As it is written; what is no UTF-8 is replaced.
    pub(super) written: Cow<'b, str>,
    /// Made where somebody needs it: nearly every file is TOML.
    mended: OnceCell<Mended>,
}

/// A text without the lines that cannot be read.
#[derive(Debug, Default)]
pub(super) struct Mended {
    pub(super) text: String,
    pub(super) faults: Vec<(Range<usize>, String)>,
    /// Where lines begin that cannot be read.
    pub(super) garbled: BTreeSet<usize>,
    /// Whether one of them is a table's header: then what follows it is not read either.
    pub(super) garbled_header: bool,
}

impl<'b> Text<'b> {
    pub(crate) fn new(bytes: &'b [u8]) -> Self {
        Self { bytes, written: String::from_utf8_lossy(bytes), mended: OnceCell::new() }
    }

    /// What can be read of it; none if that is all.
    pub(super) fn parse(&self) -> (Spanned<DeTable<'_>>, Option<&Mended>) {
        if matches!(self.written, Cow::Borrowed(_)) {
            let (table, errors) = DeTable::parse_recoverable(&self.written);
            if errors.is_empty() {
                return (table, None);
            }
        }
        let mended = self.mended.get_or_init(|| Mended::of(self.bytes, &self.written));
        (DeTable::parse_recoverable(&mended.text).0, Some(mended))
    }
}

impl Mended {
    fn of(bytes: &[u8], written: &str) -> Self {
        let mut mended = Self { text: written.to_owned(), ..Self::default() };
        mended.blank_what_is_no_text(bytes);
        mended.blank_what_is_no_toml();
        mended
    }

    fn blank_what_is_no_text(&mut self, bytes: &[u8]) {
        let mut offset = 0;
        for chunk in bytes.utf8_chunks() {
            offset += chunk.valid().len();
            if !chunk.invalid().is_empty() {
                let lines = lines_around(&self.text, offset..offset + 1);
                if self.garbled.insert(lines.start) {
                    let message = "is not UTF-8 here; save the file as UTF-8";
                    self.faults.push((offset..offset, message.into()));
                    self.garbled_header |= is_header(&self.text[lines.clone()]);
                    self.blank(lines);
                }
                offset += '\u{fffd}'.len_utf8();
            }
        }
    }

    fn blank_what_is_no_toml(&mut self) {
        let mut left = BYTES_AGAIN_MAX;
        loop {
            let (table, errors) = DeTable::parse_recoverable(&self.text);
            let errors: Vec<_> =
                errors.iter().map(|error| (error.span().unwrap_or(0..0), error.message().to_owned())).collect();
            // The key that was there first is read, and the second one of that name is not: nothing is guessed.
            let is_second = |message: &str| message.starts_with("duplicate key");
            let first = errors.iter().filter(|(_, message)| !is_second(message)).min_by_key(|(span, _)| span.start);
            let cost = 3 * self.text.len();
            let Some((span, message)) = first.filter(|_| left >= cost).cloned() else {
                for (span, message) in errors {
                    let line = lines_around(&self.text, span.clone());
                    if !is_second(&message) {
                        self.garbled_header |= is_header(&self.text[line.clone()]);
                        self.garbled.insert(line.start);
                    }
                    self.faults.push((span, said(&message)));
                }
                return;
            };
            left -= cost;
            let around = value_around(&table, &span, &self.text);
            drop(table);
            self.blank_one(&span, &message, &errors, around);
        }
    }

    /// Blanks what is most likely at fault for the first error: what leaves the fewest others.
    fn blank_one(
        &mut self,
        span: &Range<usize>,
        message: &str,
        errors: &[(Range<usize>, String)],
        around: Option<Range<usize>>,
    ) {
        let text = self.text.as_str();
        let line = lines_around(text, span.clone());
        let header = around.is_none() && is_header(&text[line.clone()]);
        let mut candidates = vec![if header { block_of(text, line.clone()) } else { line.clone() }];
        if let Some(value) = around {
            // An open bracket or quote swallows what follows it: then it is the value's first line.
            candidates.push(lines_around(text, value.start..value.start));
            candidates.push(lines_around(text, value));
        }
        let errors_without = |lines: &Range<usize>| {
            let count = |text: &str| DeTable::parse_recoverable(text).1.len();
            if candidates.len() == 1 { 0 } else { count(&blanked(text, lines.clone())) }
        };
        let best = candidates.iter().min_by_key(|lines| errors_without(lines)).cloned().unwrap_or(line);
        // What begins before the fault was opened there and not closed.
        let (at, message) = if best.contains(&span.start) || best.end == span.start {
            (span.clone(), message.to_owned())
        } else {
            let unclosed = errors.iter().map(|(_, message)| message).find(|message| message.starts_with("unclosed"));
            let start = best.start + text[best.clone()].len() - text[best.clone()].trim_start().len();
            (start..best.end, unclosed.map_or_else(|| message.to_owned(), Clone::clone))
        };
        self.faults.push((at, said(&message)));
        self.garbled.insert(best.start);
        self.garbled_header |= header;
        self.blank(best);
    }

    fn blank(&mut self, lines: Range<usize>) {
        self.text = blanked(&self.text, lines);
    }
}

fn said(message: &str) -> String {
    format!("is not TOML here: {message}")
}

fn blanked(text: &str, lines: Range<usize>) -> String {
    let mut blank = String::with_capacity(text.len());
    blank.push_str(&text[..lines.start]);
    blank.extend(text[lines.clone()].bytes().map(|byte| if byte == b'\n' { '\n' } else { ' ' }));
    blank.push_str(&text[lines.end..]);
    blank
}

/// The whole lines, without the last one's end, that a span touches.
fn lines_around(text: &str, span: Range<usize>) -> Range<usize> {
    let at = |offset: usize| text.floor_char_boundary(offset.min(text.len()));
    let start = text[..at(span.start)].rfind('\n').map_or(0, |end| end + 1);
    let last = at(span.end.saturating_sub(1).max(span.start));
    let end = text[last..].find('\n').map_or(text.len(), |length| last + length);
    start..end
}

fn is_header(line: &str) -> bool {
    line.trim_start().starts_with('[')
}

/// Name of the table that a header most likely opens.
fn header_name(line: &str) -> &str {
    let name = line.trim_start().trim_start_matches('[').trim_start();
    name.split([']', '#', '=', ' ', '\t', '\r']).next().unwrap_or_default()
}

/// A header and all that it leads to: up to the next one that is not of a table inside of it.
fn block_of(text: &str, header: Range<usize>) -> Range<usize> {
    let name = header_name(&text[header.clone()]).to_owned();
    let inside = |line: &str| header_name(line).strip_prefix(&name).is_some_and(|rest| rest.starts_with('.'));
    let mut end = header.end;
    while let Some(line) = text[end..].strip_prefix('\n').map(|_| lines_around(text, end + 1..end + 1)) {
        if is_header(&text[line.clone()]) && !inside(&text[line.clone()]) {
            break;
        }
        end = line.end;
    }
    header.start..end
}

/// The outermost value of several lines that the fault seems to be in, and that begins before its line.
fn value_around(table: &Spanned<DeTable<'_>>, fault: &Range<usize>, text: &str) -> Option<Range<usize>> {
    let line = lines_around(text, fault.clone()).start;
    let mut tables = vec![table.get_ref()];
    while let Some(table) = tables.pop() {
        for value in table.values() {
            let span = value.span();
            match value.get_ref() {
                DeValue::Table(inner) if !text[span.start..].starts_with('{') => tables.push(inner),
                DeValue::Array(items) if begins_its_line(text, span.start) => {
                    tables.extend(items.iter().filter_map(|item| item.get_ref().as_table()));
                }
                DeValue::String(_)
                | DeValue::Integer(_)
                | DeValue::Float(_)
                | DeValue::Boolean(_)
                | DeValue::Datetime(_)
                | DeValue::Array(_)
                | DeValue::Table(_) => {
                    if span.start < line && fault.start <= span.end {
                        return Some(span);
                    }
                }
            }
        }
    }
    None
}

/// A value of a key stands behind its `=`; what begins its line is a header.
pub(super) fn begins_its_line(text: &str, offset: usize) -> bool {
    let line = lines_around(text, offset..offset);
    text[line.start..offset].trim().is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(text: &str) -> Vec<(usize, String)> {
        let read = Text::new(text.as_bytes());
        let (_, Some(mended)) = read.parse() else { return Vec::new() };
        assert_eq!(mended.text.len(), read.written.len());
        let line = |span: &Range<usize>| read.written[..span.start].matches('\n').count() + 1;
        mended.faults.iter().map(|(span, message)| (line(span), message.clone())).collect()
    }

    #[test]
    fn each_fault_is_said_once_and_hides_no_other() {
        for (text, lines) in [
            ("a = 1\n", &[][..]),
            ("[a]\nx 1\ny = \n[b]\nz = z\n", &[2, 3, 5]),
            ("[a]\nx = \"abc\ny = 2\n[b\nz = 1\n[c]\nd = 'e\n", &[2, 4, 7]),
            ("[a]\nx = [1, 2\ny = 2\n[b]\nz = 1\n", &[2]),
            ("x = [\n  1,\n  oops oops,\n  2,\n]\ny = \n", &[3, 6]),
            ("x = 1\ny = \"\"\"abc\n[[e]]\nz = 1\n", &[2]),
            ("x = 1\nx = 2\n[b]\n[b]\n", &[2, 4]),
            ("[[e]\nid = 1\n[e.l]\nid = 1\n[e]\nid = 2\n", &[1]),
            ("a = { b = 1, c = }\n", &[1]),
        ] {
            let found: Vec<_> = faults(text).into_iter().map(|(line, _)| line).collect();
            assert_eq!(found, lines, "{text}{:?}", faults(text));
        }
    }

    #[test]
    fn what_is_no_text_is_said_line_by_line() {
        let read = Text::new(b"a = 1\nb = '\xff\xfe'\nc = \n# \xc3\nd = 2\n");
        let (table, mended) = read.parse();
        let mended = mended.unwrap();
        assert_eq!((mended.faults.len(), mended.garbled.len(), table.get_ref().len()), (3, 3, 2));
    }
}
