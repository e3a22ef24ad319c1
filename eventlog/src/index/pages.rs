//! Tables of fixed-size entries in pages that carry their own checksum, so that a search reads and checks a few
//! pages and never the whole file.
//!
//! A page is 4,096 bytes: as many whole entries as fit in 4,092, zeros, CRC-32C (little-endian) of the 4,092.

use std::cmp::Ordering;

use super::side::{SideFault, Source};

pub(crate) const PAGE: usize = 4096;
const PAGE_DATA: usize = PAGE - 4;

/// A table within a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Table {
    pub(crate) offset: u64,
    pub(crate) entries: u32,
    pub(crate) entry_bytes: usize,
}

/// How many pages that many entries take.
pub(crate) fn pages(entries: u32, entry_bytes: usize) -> u64 {
    u64::from(entries).div_ceil((PAGE_DATA / entry_bytes) as u64)
}

/// Writes entries as pages.
pub(crate) fn write<'a>(file: &mut Vec<u8>, entry_bytes: usize, entries: impl Iterator<Item = &'a [u8]>) {
    let per_page = PAGE_DATA / entry_bytes;
    let mut in_page = 0;
    let mut page_at = file.len();
    for entry in entries {
        debug_assert_eq!(entry.len(), entry_bytes, "a table has entries of one size");
        file.extend_from_slice(entry);
        in_page += 1;
        if in_page == per_page {
            close(file, page_at);
            in_page = 0;
            page_at = file.len();
        }
    }
    if in_page > 0 {
        close(file, page_at);
    }
}

fn close(file: &mut Vec<u8>, page_at: usize) {
    file.resize(page_at + PAGE_DATA, 0);
    let sum = crc32c::crc32c(&file[page_at..]);
    file.extend_from_slice(&sum.to_le_bytes());
}

/// Walks over a table's entries with one page in memory.
#[derive(Debug)]
pub(crate) struct TableReader<'a> {
    source: &'a dyn Source,
    table: Table,
    page: Box<[u8; PAGE]>,
    loaded: Option<u64>,
}

impl<'a> TableReader<'a> {
    pub(crate) fn new(source: &'a dyn Source, table: Table) -> Self {
        Self { source, table, page: Box::new([0; PAGE]), loaded: None }
    }

    pub(crate) fn entry(&mut self, nth: u32) -> Result<&[u8], SideFault> {
        if nth >= self.table.entries {
            return Err(SideFault::Damaged("a table names an entry that it does not have"));
        }
        let per_page = (PAGE_DATA / self.table.entry_bytes) as u64;
        let page = u64::from(nth) / per_page;
        if self.loaded != Some(page) {
            self.loaded = None;
            self.source.read_exact_at(self.table.offset + page * PAGE as u64, &mut self.page[..])?;
            let (data, sum) = self.page.split_at(PAGE_DATA);
            if crc32c::crc32c(data).to_le_bytes() != sum {
                return Err(SideFault::Damaged("a page's checksum is wrong"));
            }
            self.loaded = Some(page);
        }
        let within = usize::try_from(u64::from(nth) % per_page).unwrap_or(0) * self.table.entry_bytes;
        Ok(&self.page[within..within + self.table.entry_bytes])
    }

    /// The first entry of a sorted table that does not order before what is looked for.
    pub(crate) fn lower_bound(&mut self, compare: impl Fn(&[u8]) -> Ordering) -> Result<u32, SideFault> {
        let (mut low, mut high) = (0, self.table.entries);
        while low < high {
            let middle = low + (high - low) / 2;
            if compare(self.entry(middle)?) == Ordering::Less {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        Ok(low)
    }

    pub(crate) fn entries(&self) -> u32 {
        self.table.entries
    }
}
