//! Sealing: index and footer at the end of the file, and the side file of the layer above. The batches are durable
//! before; a seal that fails loses nothing, the next open reads the segment instead.

use std::io;

use super::aligned::AlignedBuf;
use super::catalog::SegmentState;
use super::format::{FOOTER_BLOCK, Footer, encode_index, padded};
use super::helper::Sealing;
use super::names::{segment_path, side_path};
use super::position::SegmentId;
use super::shared::{Shared, locked};
use super::side;

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
    let whole = usize::try_from(index_room + FOOTER_BLOCK).unwrap_or(usize::MAX);
    let mut bytes = AlignedBuf::zeroed(whole);
    bytes.as_mut_slice()[..index.len()].copy_from_slice(&index);
    let footer_at = whole - usize::try_from(FOOTER_BLOCK).unwrap_or(whole);
    footer.encode(&mut bytes.as_mut_slice()[footer_at..]);

    let file = shared.storage.open_write(&segment_path(&shared.settings.directory, info.id), shared.settings.mode)?;
    // The index is durable before the footer that vouches for it: when the power goes in between, the segment is one
    // that was not sealed, and not one that looks damaged.
    let (index_block, footer_block) = bytes.as_slice().split_at(footer_at);
    if !index_block.is_empty() {
        file.write_at(index_offset, index_block)?;
        file.sync()?;
    }
    file.write_at(index_offset + index_room, footer_block)?;
    file.sync()?;
    if sealing.last {
        // Only once the footer is durable: a short file without one would be taken for a damaged one.
        file.set_len(index_offset + whole as u64)?;
        file.sync()?;
    }
    file.len()
}
