//! Columns that line up, without a border and without a trailing blank.

use domain::text::Untrusted;

use super::exit::Outcome;
use super::out::{Out, Tone};

/// Enough to recognise anything by; more makes a table no easier to read.
const CELL_BYTES_MAX: usize = 120;

/// One cell: text that is safe to print, and what it means.
#[derive(Debug, Clone)]
pub(crate) struct Cell {
    text: String,
    tone: Tone,
}

impl Cell {
    pub(crate) fn new(text: &(impl ToString + ?Sized)) -> Self {
        Self { text: text.to_string(), tone: Tone::Plain }
    }

    /// Text that came from outside, escaped and cut to what a column can take.
    pub(crate) fn untrusted(text: &str) -> Self {
        Self { text: Untrusted::with_limit(text.as_bytes(), CELL_BYTES_MAX).to_string(), tone: Tone::Plain }
    }

    pub(crate) fn toned(tone: Tone, text: &(impl ToString + ?Sized)) -> Self {
        Self { text: text.to_string(), tone }
    }

    /// The same text in another tone.
    pub(crate) fn with(self, tone: Tone) -> Self {
        Self { tone, ..self }
    }
}

impl From<&str> for Cell {
    fn from(text: &str) -> Self {
        Self::new(text)
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Self {
        Self { text, tone: Tone::Plain }
    }
}

/// Rows that are printed together once all widths are known.
#[derive(Debug)]
pub(crate) struct Table {
    heads: Vec<&'static str>,
    rows: Vec<Vec<Cell>>,
}

impl Table {
    pub(crate) fn new(heads: &[&'static str]) -> Self {
        Self { heads: heads.to_vec(), rows: Vec::new() }
    }

    pub(crate) fn row(&mut self, cells: Vec<Cell>) {
        self.rows.push(cells);
    }

    pub(crate) fn columns(&self) -> usize {
        self.heads.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    pub(crate) fn print(&self, out: &mut Out<'_>) -> Outcome<()> {
        let mut widths: Vec<usize> = self.heads.iter().map(|head| head.chars().count()).collect();
        for row in &self.rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(cell.text.chars().count());
            }
        }
        let heads: Vec<Cell> = self.heads.iter().map(|head| Cell::toned(Tone::Dim, head)).collect();
        for row in std::iter::once(&heads).chain(&self.rows) {
            print_row(out, row, &widths)?;
        }
        Ok(())
    }
}

/// One row in columns of the given widths: for streams, whose widths are fixed beforehand.
pub(crate) fn print_row(out: &mut Out<'_>, row: &[Cell], widths: &[usize]) -> Outcome<()> {
    let mut line = String::new();
    let row = &row[..row.iter().rposition(|cell| !cell.text.is_empty()).map_or(0, |last| last + 1)];
    for (at, cell) in row.iter().enumerate() {
        line.push_str(&out.paint(cell.tone, &cell.text).to_string());
        if at + 1 < row.len() {
            let width = widths.get(at).copied().unwrap_or_default();
            let pad = width.saturating_sub(cell.text.chars().count());
            line.extend(std::iter::repeat_n(' ', pad + 2));
        }
    }
    out.line(line)
}

/// Names and values, one a line, values lined up.
pub(crate) fn print_fields(out: &mut Out<'_>, fields: &[(&str, String)]) -> Outcome<()> {
    let width = fields.iter().map(|(name, _)| name.chars().count()).max().unwrap_or_default();
    for (name, value) in fields {
        print_row(out, &[Cell::toned(Tone::Dim, name), Cell::new(value)], &[width])?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up_and_end_clean() {
        let (mut answer, mut remarks) = (Vec::new(), Vec::new());
        let mut table = Table::new(&["ID", "SCHEME", "BYTES"]);
        table.row(vec!["a".into(), "github".into(), "1".into()]);
        table.row(vec!["größe".into(), "x".into(), "1024".into()]);
        table.row(vec!["b".into(), "".into(), "".into()]);
        table.print(&mut Out::new(&mut answer, &mut remarks)).unwrap();
        let want = "ID     SCHEME  BYTES\na      github  1\ngröße  x       1024\nb\n";
        assert_eq!(String::from_utf8(answer).unwrap(), want);
    }
}
