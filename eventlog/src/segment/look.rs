//! Looking at one segment that somebody else wrote: by its footer or end file where there is one, else whole.

use std::io;
use std::path::Path;

use super::damage::{Damage, DamageKind};
use super::endfile;
use super::format::{
    FOOTER_BLOCK, Footer, HEADER_BLOCK, Hash, Identity, IndexEntry, Invalid, SegmentHeader, decode_index, padded,
    tail_reserve,
};
use super::names::{end_path, segment_path};
use super::position::{BLOCK, SegmentId};
use super::scan::{Manner, Scan, Sums, Visit, scan};
use super::storage::{Storage, WriteMode, read_or_nothing};
use super::window::Window;

/// What a footer or an end file says, and where its index is.
#[derive(Debug)]
pub(crate) struct Sealed {
    pub(crate) footer: Footer,
    pub(crate) index: Vec<IndexEntry>,
}

/// What there is to know of a segment without its neighbours.
#[derive(Debug)]
pub(crate) struct Looked {
    pub(crate) id: SegmentId,
    pub(crate) file_bytes: u64,
    /// Size of the file when it was made, if its header says so.
    pub(crate) made_bytes: Option<u64>,
    pub(crate) held: Scan,
    /// A footer or an end file said where it ends.
    pub(crate) sealed: Option<Footer>,
    /// The batches were read.
    pub(crate) scanned: bool,
}

/// The segment is of a later version of the format: nothing is done to it.
#[derive(Debug)]
pub(crate) struct LaterVersion;

/// Where and under what names to look.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place<'a> {
    pub(crate) storage: &'a dyn Storage,
    pub(crate) directory: &'a Path,
    pub(crate) identity: Identity,
}

/// How to look at a segment.
#[derive(Debug, Clone, Copy)]
pub(crate) struct How {
    pub(crate) manner: Manner,
    /// Reads every batch although a footer says what there is.
    pub(crate) whole: bool,
    /// Makes durable what is read, before it is read.
    pub(crate) sync: bool,
}

impl Place<'_> {
    fn damage(&self, offset: u64, end: u64, kind: DamageKind) -> Damage {
        Damage { segment: self.identity.segment, offset, end, kind }
    }

    /// Footer and index as they are in the file or beside it; bounds are checked, contents are not.
    pub(crate) fn sealed(&self, window: &mut Window, file_bytes: u64) -> io::Result<(Option<Sealed>, Vec<Damage>)> {
        let mut damage = Vec::new();
        let id = self.identity.segment;
        if let Some(bytes) = read_or_nothing(self.storage, &end_path(self.directory, id), endfile::END_BYTES_MAX)? {
            match endfile::decode(&self.identity, &bytes) {
                Some((footer, index, mut known)) if footer.end >= HEADER_BLOCK => {
                    if footer.end > padded(file_bytes) {
                        known.push(self.damage(file_bytes, footer.end, DamageKind::Truncated));
                    }
                    let index = decode_index(&index);
                    return Ok((Some(Sealed { footer, index }), known));
                }
                Some(_) | None => damage.push(self.damage(0, 0, DamageKind::Footer)),
            }
        }
        let Some(at) =
            file_bytes.checked_sub(FOOTER_BLOCK).filter(|at| at.is_multiple_of(BLOCK) && *at >= HEADER_BLOCK)
        else {
            return Ok((None, damage));
        };
        let footer = window.get(at, FOOTER_BLOCK, file_bytes).map_err(|_| Invalid::Broken);
        match footer.and_then(|block| Footer::decode(&self.identity, &block)) {
            Ok(footer) if bounds_hold(&footer, at) => {
                let index = window.get(footer.index_offset, u64::from(footer.index_bytes), at).unwrap_or_default();
                let whole = index.len() == footer.index_bytes as usize && crc32c::crc32c(&index) == footer.index_crc;
                if !whole {
                    damage.push(self.damage(footer.index_offset, at, DamageKind::Index));
                }
                let index = if whole { decode_index(&index) } else { Vec::new() };
                Ok((Some(Sealed { footer, index }), damage))
            }
            Ok(_) | Err(Invalid::Broken | Invalid::Version) => {
                damage.push(self.damage(at, file_bytes, DamageKind::Footer));
                Ok((None, damage))
            }
            Err(Invalid::Absent) => Ok((None, damage)),
        }
    }

    /// Looks at the segment.
    pub(crate) fn look(&self, file_bytes: u64, how: How, visit: Visit<'_>) -> io::Result<Result<Looked, LaterVersion>> {
        let How { manner, whole, sync } = how;
        let path = segment_path(self.directory, self.identity.segment);
        let id = self.identity.segment;
        let mut window = Window::new(self.storage.open_read(&path, WriteMode::Buffered)?);
        let header = window.get(0, HEADER_BLOCK, file_bytes).map_err(|_| Invalid::Broken);
        let (mut sealed, mut damage) = (None, Vec::new());
        let mut made_bytes = None;
        let mut stranger = false;
        match header.and_then(|block| SegmentHeader::decode(&block)) {
            Ok(header) if header.identity == self.identity => made_bytes = Some(header.segment_bytes),
            Ok(_) => stranger = true,
            Err(Invalid::Version) => return Ok(Err(LaterVersion)),
            Err(Invalid::Absent | Invalid::Broken) => damage.push(self.damage(0, HEADER_BLOCK, DamageKind::Header)),
        }
        if stranger {
            damage.push(self.damage(0, file_bytes, DamageKind::Identity));
        } else {
            let (found, known) = self.sealed(&mut window, file_bytes)?;
            sealed = found;
            damage.extend(known);
        }
        let mut looked = Looked {
            id,
            file_bytes,
            made_bytes,
            held: Scan { damage, ..Scan::none() },
            sealed: sealed.as_ref().map(|sealed| sealed.footer),
            scanned: false,
        };
        let scans = !stranger && (whole || sealed.is_none());
        if scans {
            let limit = file_bytes / BLOCK * BLOCK;
            let end = sealed.as_ref().map(|sealed| sealed.footer.end.min(limit));
            if sealed.is_none() {
                // The page cache may show what a failed sync of its writer never brought to the disk: whatever can
                // still be saved is, and then the disk is asked.
                if sync {
                    self.storage.open_write(&path, WriteMode::Buffered)?.sync()?;
                }
                window = Window::new(self.storage.open_read(&path, WriteMode::Direct)?);
            }
            let known = std::mem::take(&mut looked.held.damage);
            looked.held = scan(&mut window, &self.identity, limit, end, manner, visit);
            looked.scanned = true;
            for found in std::mem::replace(&mut looked.held.damage, known) {
                if !looked.held.damage.contains(&found) {
                    looked.held.damage.push(found);
                }
            }
            // Only a seal shortens a file, and it says so: in a footer, or in a file beside it. Where that one is there and
            // does not read, a file that ends just where its batches do is one that recovery cut.
            let cut = looked.held.damage.contains(&self.damage(0, 0, DamageKind::Footer))
                && looked.held.sums.batches > 0
                && looked.held.sums.end == file_bytes;
            if sealed.is_none() && !cut && made_bytes.is_some_and(|made| file_bytes < made) && manner == Manner::Settled
            {
                looked.held.damage.push(self.damage(
                    file_bytes,
                    made_bytes.unwrap_or(file_bytes),
                    DamageKind::Truncated,
                ));
            }
        } else if let Some(sealed) = &sealed {
            looked.held.sums = Sums::of(&sealed.footer);
            looked.held.index.clone_from(&sealed.index);
        }
        Ok(Ok(looked))
    }

    /// What the segment's first batch names as its predecessor; `None` if it does not read.
    pub(crate) fn first_previous(&self, file_bytes: u64) -> Option<Hash> {
        let file = self.storage.open_read(&segment_path(self.directory, self.identity.segment), WriteMode::Buffered);
        let batch = Window::new(file.ok()?).batch(&self.identity, HEADER_BLOCK, file_bytes / BLOCK * BLOCK);
        batch.ok().map(|batch| batch.header.previous)
    }
}

/// Do the places that a footer names lie where they can?
fn bounds_hold(footer: &Footer, footer_at: u64) -> bool {
    let ordered = HEADER_BLOCK <= footer.end && footer.end <= footer.index_offset;
    let index_end = footer.index_offset.checked_add(padded(u64::from(footer.index_bytes)));
    ordered
        && footer.end.is_multiple_of(BLOCK)
        && footer.index_offset.is_multiple_of(BLOCK)
        && index_end.is_some_and(|end| end <= footer_at)
        && u64::from(footer.index_bytes) <= tail_reserve(4 << 30)
}

impl Place<'_> {
    /// The segment's sparse index, from wherever it is; empty if there is none that reads.
    pub(crate) fn index(&self, file_bytes: u64) -> io::Result<Vec<IndexEntry>> {
        let path = segment_path(self.directory, self.identity.segment);
        let mut window = Window::new(self.storage.open_read(&path, WriteMode::Buffered)?);
        let (sealed, _) = self.sealed(&mut window, file_bytes)?;
        Ok(sealed.map(|sealed| sealed.index).unwrap_or_default())
    }
}
