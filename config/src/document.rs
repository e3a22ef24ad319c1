//! A TOML text with its faults: every value is read with its place, and reading goes on after a fault, so that one
//! look says everything that is wrong.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::ops::Range;
use std::path::Path;

use domain::text::Untrusted;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::fault::{Fault, Severity};

/// A file of junk would have one fault per byte: nobody reads more than this of one file.
const FAULTS_MAX: usize = 100;

const MESSAGE_CHARS_MAX: usize = 600;

#[derive(Debug, Clone, Copy)]
enum Part {
    Key(&'static str),
    Index(usize),
}

/// One text being read: where we are, and what was found wrong so far.
pub(crate) struct Document<'s> {
    file: &'s Path,
    source: &'s str,
    /// Offset at which each line starts.
    lines: Vec<usize>,
    path: Vec<Part>,
    faults: Vec<Fault>,
    /// Lines that are no TOML: what seems to stand there, and what seems to be missing, was not meant.
    garbled: BTreeSet<u32>,
    /// Errors and warnings that were not kept.
    suppressed: [usize; 2],
}

impl<'s> Document<'s> {
    /// Parses `source` as far as it can be: the table holds what was understood, the document the syntax faults.
    pub(crate) fn parse(file: &'s Path, source: &'s str) -> (Self, Spanned<DeTable<'s>>) {
        let lines = std::iter::once(0).chain(source.match_indices('\n').map(|(at, _)| at + 1)).collect();
        let mut document = Self {
            file,
            source,
            lines,
            path: Vec::new(),
            faults: Vec::new(),
            garbled: BTreeSet::new(),
            suppressed: [0; 2],
        };
        let (table, errors) = DeTable::parse_recoverable(source);
        for error in errors {
            let span = error.span().unwrap_or(0..0);
            document.fault(span.clone(), format!("is not TOML here: {}", error.message()));
            document.garbled.insert(document.line(span.start));
        }
        (document, table)
    }

    pub(crate) fn source(&self) -> &'s str {
        self.source
    }

    /// Line of an offset, counted from 1.
    pub(crate) fn line(&self, offset: usize) -> u32 {
        u32::try_from(self.lines.partition_point(|start| *start <= offset)).unwrap_or(u32::MAX)
    }

    fn column(&self, offset: usize) -> u32 {
        let start = self.lines[self.lines.partition_point(|start| *start <= offset) - 1];
        let before = self.source.get(start..offset).unwrap_or_default();
        u32::try_from(before.chars().count() + 1).unwrap_or(u32::MAX)
    }

    /// Something that keeps the file from being used, at the key that is being read.
    pub(crate) fn fault(&mut self, span: Range<usize>, message: impl Into<String>) {
        self.push(self.place(span.start), &message.into(), Severity::Error);
    }

    /// Something that somebody should look at, at the key that is being read.
    pub(crate) fn warn(&mut self, span: Range<usize>, message: impl Into<String>) {
        self.push(self.place(span.start), &message.into(), Severity::Warning);
    }

    /// The same as [`Document::fault`] for what was read before, of which only the line is known.
    pub(crate) fn fault_in_line(&mut self, line: u32, message: impl Into<String>) {
        self.push((line, None), &message.into(), Severity::Error);
    }

    /// Says that something is not there, unless it may stand where the text is no TOML, or was misread.
    pub(crate) fn missing(&mut self, span: Range<usize>, message: impl Into<String>) {
        let key = self.key();
        if self.garbled.is_empty() && !self.faults.iter().any(|fault| fault.key.starts_with(&key)) {
            self.fault(span, message);
        }
    }

    fn place(&self, offset: usize) -> (u32, Option<u32>) {
        (self.line(offset), Some(self.column(offset)))
    }

    /// Whether no error was found so far in what is being read.
    pub(crate) fn is_clean(&self) -> bool {
        let key = self.key();
        let within = |fault: &Fault| {
            fault.key.strip_prefix(&key).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
        };
        !self.faults.iter().any(|fault| fault.is_error() && within(fault))
    }

    fn push(&mut self, (line, column): (u32, Option<u32>), message: &str, severity: Severity) {
        if self.garbled.contains(&line) {
            return;
        }
        // Each severity has its own room: a hundred warnings must not hide an error, nor become one.
        if self.faults.iter().filter(|fault| fault.severity == severity).count() >= FAULTS_MAX {
            self.suppressed[usize::from(severity == Severity::Warning)] += 1;
            return;
        }
        // Messages quote what was written, escaped but not bounded.
        let chars = message.chars().take(MESSAGE_CHARS_MAX + 1).map(|c| if c.is_control() { ' ' } else { c });
        let mut message: String = chars.collect();
        if message.chars().count() > MESSAGE_CHARS_MAX {
            message.pop();
            message.push('…');
        }
        self.faults.push(Fault {
            file: self.file.into(),
            line: Some(line),
            column,
            key: self.key(),
            message,
            severity,
        });
    }

    fn is_full(&self) -> bool {
        self.faults.iter().filter(|fault| fault.is_error()).count() >= FAULTS_MAX
    }

    fn key(&self) -> String {
        let mut key = String::new();
        for part in &self.path {
            let written = match part {
                Part::Key(name) if key.is_empty() => write!(key, "{name}"),
                Part::Key(name) => write!(key, ".{name}"),
                Part::Index(index) => write!(key, "[{index}]"),
            };
            written.unwrap_or_default();
        }
        key
    }

    /// Reads what is under a key of the current table.
    pub(crate) fn within<T>(&mut self, key: &'static str, read: impl FnOnce(&mut Self) -> T) -> T {
        self.path.push(Part::Key(key));
        let value = read(self);
        self.path.pop();
        value
    }

    /// Reads one element of the current list.
    pub(crate) fn within_index<T>(&mut self, index: usize, read: impl FnOnce(&mut Self) -> T) -> T {
        self.path.push(Part::Index(index));
        let value = read(self);
        self.path.pop();
        value
    }

    /// Says that a value has the wrong type, and what to write.
    pub(crate) fn wrong_type(&mut self, at: &Spanned<DeValue<'_>>, expected: &str) {
        let article = if matches!(at.get_ref(), DeValue::Integer(_) | DeValue::Array(_)) { "an" } else { "a" };
        self.fault(at.span(), format!("is {article} {}; write {expected}", at.get_ref().type_str()));
    }

    /// Refuses every key of `table` that is not among `known`.
    pub(crate) fn refuse_unknown(&mut self, table: &DeTable<'_>, known: &[&'static str]) {
        for key in table.keys() {
            let name: &str = key.get_ref();
            if known.contains(&name) {
                continue;
            }
            if self.is_full() {
                // Looking for what was meant costs more than the rest of a fault.
                self.suppressed[0] += 1;
                continue;
            }
            let shown = Untrusted::with_limit(name.as_bytes(), 64);
            let hint = match nearest(name, known) {
                Some(near) => format!("did you mean `{near}`?"),
                None => format!("known here: {}", known.join(", ")),
            };
            self.fault(key.span(), format!("`{shown}` is not a key that is known here; {hint}"));
        }
    }

    pub(crate) fn has_errors(&self) -> bool {
        self.faults.iter().any(Fault::is_error)
    }

    /// Everything that was found, in the order of the lines.
    pub(crate) fn into_faults(mut self) -> Vec<Fault> {
        self.faults.sort_by_key(|fault| (fault.line, fault.column));
        let [errors, warnings] = self.suppressed;
        if errors > 0 {
            self.faults.push(Fault::error(
                self.file,
                "",
                format!("{errors} more faults are not shown; mend these first"),
            ));
        }
        if warnings > 0 {
            self.faults.push(Fault::warning(self.file, "", format!("{warnings} more warnings are not shown")));
        }
        self.faults
    }
}

/// The known name that a misspelt one most likely stands for.
pub(crate) fn nearest<'k>(name: &str, known: &[&'k str]) -> Option<&'k str> {
    if name.len() > 64 {
        return None;
    }
    let folded = name.to_ascii_lowercase().replace('-', "_");
    let scored = known.iter().map(|candidate| (distance(&folded, candidate), *candidate));
    let (score, best) = scored.min_by_key(|(score, _)| *score)?;
    // A third of the letters wrong is a typing error, more is another word; a part of a known word is a guess at it.
    let near = score <= 1.max(folded.len().max(best.len()) / 3);
    if near {
        return Some(best);
    }
    known
        .iter()
        .copied()
        .find(|candidate| folded.len() >= 4 && (candidate.contains(&folded) || folded.contains(candidate)))
}

/// Edits (insert, delete, replace, swap of neighbours) between two short words.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut before: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for i in 0..a.len() {
        let mut row = vec![i + 1];
        for j in 0..b.len() {
            let replaced = last[j] + usize::from(a[i] != b[j]);
            let mut best = replaced.min(last[j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && a[i] == b[j - 1] && a[i - 1] == b[j] {
                best = best.min(before[j - 1] + 1);
            }
            row.push(best);
        }
        before = std::mem::replace(&mut last, row);
    }
    last[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn misspelt_keys_are_recognised() {
        let known = ["listen", "public_url", "body_bytes_max", "threads"];
        assert_eq!(nearest("lsiten", &known), Some("listen"));
        assert_eq!(nearest("public-url", &known), Some("public_url"));
        assert_eq!(nearest("publicURL", &known), Some("public_url"));
        assert_eq!(nearest("body_max_bytes", &known), None);
        assert_eq!(nearest("body_bytes", &known), Some("body_bytes_max"));
        assert_eq!(nearest("zzz", &known), None);
        assert_eq!(nearest(&"x".repeat(1 << 20), &known), None);
    }

    #[test]
    fn lines_and_columns_count_from_one() {
        let (document, _) = Document::parse(Path::new("f"), "a = 1\nbé = 2\n");
        assert_eq!((document.line(0), document.line(5), document.line(6)), (1, 1, 2));
        assert_eq!(document.column("a = 1\nbé".len()), 3);
    }
}
