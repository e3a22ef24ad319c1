//! Side files: bytes of the layer above, kept beside a segment and bound to what is in it.

use std::io;
use std::path::Path;
use std::sync::Arc;

use crc32c::crc32c_append;

use super::catalog::SegmentInfo;
use super::format::Identity;
use super::names::side_path;
use super::storage::{Storage, StorageFile, WriteMode};

const MAGIC: [u8; 8] = *b"TGsidef\x01";
/// Magic, log id, epoch, segment, root, length, CRC.
const HEADER_BYTES: usize = 8 + 16 + 8 + 8 + 32 + 8 + 4;

/// A side file is an index: it is never larger than the segments themselves.
pub(crate) const SIDE_BYTES_MAX: u64 = 1 << 30;

fn header(identity: &Identity, root: &[u8; 32], bytes: &[u8]) -> Vec<u8> {
    let mut header = Vec::with_capacity(HEADER_BYTES + bytes.len());
    header.extend_from_slice(&MAGIC);
    header.extend_from_slice(&identity.log);
    header.extend_from_slice(&identity.segment.epoch.to_le_bytes());
    header.extend_from_slice(&u64::from(identity.segment.sequence).to_le_bytes());
    header.extend_from_slice(root);
    header.extend_from_slice(&(bytes.len() as u64).to_le_bytes());
    let crc = crc32c_append(crc32c::crc32c(&header), bytes);
    header.extend_from_slice(&crc.to_le_bytes());
    header
}

pub(crate) fn wrap(identity: &Identity, root: &[u8; 32], bytes: &[u8]) -> Vec<u8> {
    let mut file = header(identity, root, bytes);
    file.extend_from_slice(bytes);
    file
}

/// The bytes within, if the file is whole and was made from exactly these batches.
pub(crate) fn unwrap(identity: &Identity, root: &[u8; 32], mut file: Vec<u8>) -> Option<Vec<u8>> {
    let bytes = file.get(HEADER_BYTES..)?;
    if header(identity, root, bytes) != file[..HEADER_BYTES] {
        return None;
    }
    file.drain(..HEADER_BYTES);
    Some(file)
}

/// The bytes of a side file, a few at a time. That they are of exactly these batches was checked; their checksum was
/// not, since that would read them all: whoever uses this has checksums of its own within.
#[derive(Debug)]
pub struct SideReader {
    file: Arc<dyn StorageFile>,
    bytes: u64,
}

impl SideReader {
    pub fn len(&self) -> u64 {
        self.bytes
    }

    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Fills the buffer, or fails.
    pub fn read_exact_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        let mut done = 0;
        while done < into.len() {
            let read = self.file.read_at(HEADER_BYTES as u64 + offset + done as u64, &mut into[done..])?;
            if read == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            done += read;
        }
        Ok(())
    }
}

/// Opens the segment's side file; `None` if there is none that was made from exactly these batches.
pub fn open_side(storage: &dyn Storage, directory: &Path, segment: &SegmentInfo) -> io::Result<Option<SideReader>> {
    let file = match storage.open_read(&side_path(directory, segment.id), WriteMode::Buffered) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let Some(bytes) = file.len()?.checked_sub(HEADER_BYTES as u64) else { return Ok(None) };
    let mut header = [0; HEADER_BYTES];
    if file.read_at(0, &mut header)? < HEADER_BYTES {
        return Ok(None);
    }
    // The root is a hash over everything that the segment holds under its own identity: it stands for both.
    let expected = [&MAGIC[..], &header[8..24], &segment.id.epoch.to_le_bytes()].concat();
    let of_these = header[..32] == expected
        && header[32..40] == u64::from(segment.id.sequence).to_le_bytes()
        && header[40..72] == segment.root
        && header[72..80] == bytes.to_le_bytes();
    Ok(of_these.then_some(SideReader { file, bytes }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::segment::position::SegmentId;

    #[test]
    fn only_the_whole_file_of_the_same_batches_opens() {
        let identity = Identity { log: [7; 16], segment: SegmentId { epoch: 1, sequence: 2 } };
        let file = wrap(&identity, &[9; 32], b"index");
        assert_eq!(unwrap(&identity, &[9; 32], file.clone()), Some(b"index".to_vec()));
        assert_eq!(unwrap(&identity, &[8; 32], file.clone()), None);
        for at in 0..file.len() {
            let mut flipped = file.clone();
            flipped[at] ^= 1;
            assert_eq!(unwrap(&identity, &[9; 32], flipped), None, "byte {at}");
            assert_eq!(unwrap(&identity, &[9; 32], file[..at].to_vec()), None, "cut at {at}");
        }
    }
}
