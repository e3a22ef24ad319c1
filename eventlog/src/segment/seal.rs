//! Sealing: index and footer at the end of the file, and the side file of the layer above. The batches are durable
//! before; a seal that fails loses nothing, the next open reads the segment instead.

use std::io;

use super::aligned::AlignedBuf;
use super::catalog::{SegmentInfo, SegmentState};
use super::endfile;
use super::format::{FOOTER_BLOCK, Footer, IndexEntry, encode_index, padded};
use super::make;
use super::names::{end_path, segment_path, side_path};
use super::observer::SideFile;
use super::position::SegmentId;
use super::shared::{Shared, locked};
use super::side;

/// What is left to do for a segment that takes no more records.
pub(crate) struct Sealing {
    pub(crate) info: SegmentInfo,
    pub(crate) batches: u64,
    pub(crate) index: Vec<IndexEntry>,
    pub(crate) last: bool,
    pub(crate) side: Option<SideFile>,
}

pub(crate) fn seal(shared: &Shared, mut sealing: Sealing) {
    let id = sealing.info.id;
    let side = sealing.side.take();
    {
        let _one_at_a_time = locked(&shared.maintenance);
        if !shared.catalog().segments.contains_key(&id) {
            // Trimmed meanwhile.
            return;
        }
        match write_footer(shared, &sealing) {
            Ok(file_bytes) => {
                if let Some(info) = shared.catalog().segments.get_mut(&id) {
                    info.state = SegmentState::Sealed;
                    info.file_bytes = file_bytes;
                }
            }
            Err(error) => tracing::warn!(segment = %id, %error, "a segment of the log was not sealed"),
        }
    }
    if let Some(side) = side {
        let bytes = side();
        if let Err(error) = write_side(shared, id, &sealing.info.root, &bytes) {
            tracing::warn!(segment = %id, %error, "the side file of a segment was not written");
        }
    }
}

pub(crate) fn write_side(shared: &Shared, id: SegmentId, root: &[u8; 32], bytes: &[u8]) -> io::Result<()> {
    let envelope = side::wrap(&shared.identity(id), root, bytes);
    let _one_at_a_time = locked(&shared.maintenance);
    if !shared.catalog().segments.contains_key(&id) {
        return Ok(());
    }
    shared.storage.put(&side_path(&shared.settings.directory, id), &envelope)
}

/// Writes index and footer; returns the file's length.
fn write_footer(shared: &Shared, sealing: &Sealing) -> io::Result<u64> {
    let info = &sealing.info;
    let index = encode_index(&sealing.index);
    let index_room = padded(index.len() as u64);
    // A full segment keeps its size, so that it can be recycled; the last one of an epoch gives back what it does
    // not use, so that a process that starts often does not fill the disk with empty tails.
    let index_offset = if sealing.last { info.end } else { shared.settings.segment_bytes - FOOTER_BLOCK - index_room };
    let footer = Footer {
        identity: shared.identity(info.id),
        last: sealing.last,
        end: info.end,
        index_offset,
        index_bytes: u32::try_from(index.len()).unwrap_or(u32::MAX),
        index_crc: crc32c::crc32c(&index),
        records: info.records,
        batches: sealing.batches,
        min_unix_ms: info.min_unix_ms,
        max_unix_ms: info.max_unix_ms,
        root: info.root,
        sealed_unix_ms: shared.clock.unix_ms(),
    };
    let mut index_blocks = AlignedBuf::zeroed(usize::try_from(index_room).unwrap_or(usize::MAX));
    index_blocks.as_mut_slice()[..index.len()].copy_from_slice(&index);
    let mut footer_block = make::block();
    footer.encode(footer_block.as_mut_slice());

    let mode = shared.mode();
    let file = shared.storage.open_write(&segment_path(&shared.settings.directory, info.id), mode)?;
    // One after the other: a footer that reads vouches for the index, and a short file without a footer would be
    // taken for a damaged one.
    make::write_durably(&*file, mode, index_offset, index_blocks.as_slice())?;
    make::write_durably(&*file, mode, index_offset + index_room, footer_block.as_slice())?;
    if sealing.last {
        file.set_len(index_offset + index_room + FOOTER_BLOCK)?;
        file.sync()?;
    }
    let file_bytes = file.len()?;
    if sealing.last && file_bytes == shared.settings.segment_bytes {
        // As long as it was made: were its tail lost with the footer, nothing else would tell.
        let witness = endfile::encode(&Footer { index_offset: 0, ..footer }, &index, &[]);
        let path = end_path(&shared.settings.directory, info.id);
        if let Some(Err(error)) = witness.map(|bytes| shared.storage.put(&path, &bytes)) {
            // The next open makes it up.
            tracing::warn!(segment = %info.id, %error, "the end of a segment was not written beside it");
        }
    }
    Ok(file_bytes)
}
