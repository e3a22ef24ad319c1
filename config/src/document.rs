//! A TOML text with its faults: every value is read with its place, and reading goes on after a fault, so that one
//! look says everything that is wrong.
//!
//! A key that was misread has its default, or a stand-in, from there on. Judged like any other value, it would lead to
//! faults that are only consequences of the first one. So the document remembers which keys these are, and whoever
//! judges what was read asks for it: [`Document::is_sound`], [`Document::is_whole`].

mod near;
mod text;

use std::collections::BTreeSet;
use std::fmt::Write;
use std::ops::Range;
use std::path::Path;

use domain::text::Untrusted;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::fault::{Fault, Severity};

pub(crate) use near::nearest;
use text::Mended;
pub(crate) use text::Text;

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
    /// Where tables begin that lines are in that are no TOML: what seems to be missing there may have been meant. The
    /// file's own table begins nowhere.
    garbled: BTreeSet<Option<usize>>,
    /// Whether a table's header is no TOML: then it may have been meant anywhere.
    garbled_header: bool,
    /// Keys that were misread, or that stand for a key that was.
    misread: BTreeSet<String>,
    /// Errors and warnings that were not kept.
    suppressed: [usize; 2],
}

impl<'s> Document<'s> {
    /// Parses a text as far as it can be: the table holds what was understood, the document the syntax faults.
    pub(crate) fn parse(file: &'s Path, text: &'s Text<'_>) -> (Self, Spanned<DeTable<'s>>) {
        let source: &str = &text.written;
        let lines = std::iter::once(0).chain(source.match_indices('\n').map(|(at, _)| at + 1)).collect();
        let (table, mended) = text.parse();
        let mut document = Self {
            file,
            source,
            lines,
            path: Vec::new(),
            faults: Vec::new(),
            garbled: mended.map(|mended| garbled_tables(mended, table.get_ref())).unwrap_or_default(),
            garbled_header: mended.is_some_and(|mended| mended.garbled_header),
            misread: BTreeSet::new(),
            suppressed: [0; 2],
        };
        for (span, message) in mended.iter().flat_map(|mended| &mended.faults) {
            document.fault(span.clone(), message.as_str());
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

    /// Says that a value is not there, unless it was misread.
    pub(crate) fn missing(&mut self, span: Range<usize>, message: impl Into<String>) {
        if self.is_whole("") {
            self.fault(span, message);
        }
    }

    /// Marks the key that is being read: what stands for its value from here on was not written.
    pub(crate) fn mark_misread(&mut self) {
        self.misread.insert(self.key());
    }

    /// Whether a key of the current table, as in `limits` or `listener.idle_timeout`, is what was written, or was left
    /// out on purpose. It may have parts that were misread. An empty key is the current one.
    pub(crate) fn is_sound(&self, key: &str) -> bool {
        if self.misread.is_empty() {
            return true;
        }
        let key = self.key_of(key);
        let ends = key.char_indices().filter(|(_, c)| matches!(c, '.' | '[')).map(|(at, _)| at);
        !ends.chain([key.len()]).any(|end| self.misread.contains(&key[..end]))
    }

    /// Whether it is sound, with all that is in it.
    pub(crate) fn is_whole(&self, key: &str) -> bool {
        if self.misread.is_empty() {
            return true;
        }
        let full = self.key_of(key);
        let parts = self.misread.range(full.clone()..);
        let mut parts = parts.take_while(|part| part.starts_with(&full)).map(|part| &part[full.len()..]);
        self.is_sound(key) && !parts.any(|rest| full.is_empty() || rest.starts_with(['.', '[']))
    }

    /// Whether this key was read in each table of a list of the current table, and no table was left out.
    pub(crate) fn is_read_in_each(&self, list: &str, key: &str) -> bool {
        let full = self.key_of(list);
        let parts = self.misread.range(full.clone()..).take_while(|part| part.starts_with(&full));
        let mut rests = parts.filter_map(|part| part[full.len()..].strip_prefix('[')?.split_once(']'));
        self.is_sound(list) && !rests.any(|(_, rest)| rest.is_empty() || rest.strip_prefix('.') == Some(key))
    }

    /// Indexes of those elements of the current list that were read, in their order.
    pub(crate) fn indexes_read(&self) -> impl Iterator<Item = usize> + use<> {
        let within = self.key();
        let misread: BTreeSet<String> =
            self.misread.range(within.clone()..).take_while(|key| key.starts_with(&within)).cloned().collect();
        (0..).filter(move |index| !misread.contains(&format!("{within}[{index}]")))
    }

    /// The keys that were misread of what is under a key of the current table, without that key.
    pub(crate) fn misread_in(&self, key: &str) -> Vec<Box<str>> {
        let full = self.key_of(key) + ".";
        let parts = self.misread.range(full.clone()..).take_while(|part| part.starts_with(&full));
        parts.map(|part| part[full.len()..].into()).collect()
    }

    fn key_of(&self, key: &str) -> String {
        let within = self.key();
        match (within.as_str(), key) {
            (_, "") => within,
            ("", key) => key.to_owned(),
            (_, key) if key.starts_with('[') => within + key,
            (_, key) => format!("{within}.{key}"),
        }
    }

    /// Whether a key that is not in the table that begins here may be in a line that is no TOML.
    pub(crate) fn is_garbled(&self, table: &Range<usize>) -> bool {
        self.garbled_header || self.garbled.contains(&(!table.is_empty()).then_some(table.start))
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
        // Messages quote what was written, escaped but not bounded.
        let chars = message.chars().take(MESSAGE_CHARS_MAX + 1).map(|c| if c.is_control() { ' ' } else { c });
        let mut message: String = chars.collect();
        if message.chars().count() > MESSAGE_CHARS_MAX {
            message.pop();
            message.push('…');
        }
        let key = self.key();
        self.admit(Fault { file: self.file.into(), line: Some(line), column, key, message, severity });
    }

    /// Adds a fault that is complete.
    fn admit(&mut self, fault: Fault) {
        // Each severity has its own room: a hundred warnings must not hide an error, nor become one.
        if self.faults.iter().filter(|other| other.severity == fault.severity).count() >= FAULTS_MAX {
            self.suppressed[usize::from(!fault.is_error())] += 1;
        } else {
            self.faults.push(fault);
        }
    }

    /// Adds what a later stage found in what was read, at the place of the key that it names if that is further down
    /// than what it says itself. It is left out where the key was misread: then it is a mere consequence.
    pub(crate) fn add(&mut self, table: &DeTable<'_>, fault: Fault) {
        if self.is_sound(&fault.key) {
            let place = span_of(table, &fault.key).map(|span| self.place(span.start));
            let place = place.filter(|(line, _)| fault.line.is_none_or(|known| *line >= known));
            let (line, column) = place.map_or((fault.line, fault.column), |(line, column)| (Some(line), column));
            self.admit(Fault { line, column, ..fault });
        }
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

    /// Place of the element that is being read in its list; 0 where it is in none.
    pub(crate) fn index(&self) -> usize {
        match self.path.last() {
            Some(Part::Index(index)) => *index,
            Some(Part::Key(_)) | None => 0,
        }
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
            let near = if self.is_full() { None } else { nearest(name, known) };
            if let Some(near) = near.filter(|near| !table.contains_key(*near)) {
                // It was meant, most likely: that it is not there says nothing more.
                self.within(near, Self::mark_misread);
            }
            if self.is_full() {
                // Looking for what was meant costs more than the rest of a fault.
                self.suppressed[0] += 1;
                continue;
            }
            let shown = Untrusted::with_limit(name.as_bytes(), 64);
            let hint = match near {
                Some(near) => format!("did you mean `{near}`?"),
                None => format!("known here: {}", known.join(", ")),
            };
            self.fault(key.span(), format!("`{shown}` is not a key that is known here; {hint}"));
        }
    }

    pub(crate) fn has_errors(&self) -> bool {
        self.faults.iter().any(Fault::is_error)
    }

    /// Keys that something is wrong with.
    pub(crate) fn keys_with_errors(&self) -> BTreeSet<String> {
        self.faults.iter().filter(|fault| fault.is_error()).map(|fault| fault.key.clone()).collect()
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

/// Where a key stands, or the nearest table or value around it.
fn span_of(table: &DeTable<'_>, key: &str) -> Option<Range<usize>> {
    let (mut found, mut table) = (None, Some(table));
    for part in key.split('.') {
        let (name, index) = part.split_once('[').map_or((part, None), |(name, rest)| (name, rest.strip_suffix(']')));
        let Some(value) = table.and_then(|table| table.get(name)) else { break };
        let item = index.and_then(|index| value.get_ref().as_array()?.get(index.parse::<usize>().ok()?));
        let value = item.unwrap_or(value);
        found = Some(value.span());
        table = value.get_ref().as_table();
    }
    found
}

/// The tables that the lines are in that could not be read: those with the last headers before them.
fn garbled_tables(mended: &Mended, table: &DeTable<'_>) -> BTreeSet<Option<usize>> {
    let mut headers = BTreeSet::new();
    let mut tables = vec![table];
    while let Some(table) = tables.pop() {
        for value in table.values() {
            let items = value.get_ref().as_array().into_iter().flat_map(|items| items.iter());
            for item in std::iter::once(value).chain(items) {
                if let Some(table) = item.get_ref().as_table() {
                    tables.push(table);
                    let start = item.span().start;
                    if mended.text[start..].starts_with('[') && text::begins_its_line(&mended.text, start) {
                        headers.insert(start);
                    }
                }
            }
        }
    }
    mended.garbled.iter().map(|line| headers.range(..=*line).next_back().copied()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_and_columns_count_from_one() {
        let text = Text::new("a = 1\nbé = 2\n".as_bytes());
        let (document, _) = Document::parse(Path::new("f"), &text);
        assert_eq!((document.line(0), document.line(5), document.line(6)), (1, 1, 2));
        assert_eq!(document.column("a = 1\nbé".len()), 3);
    }
}
