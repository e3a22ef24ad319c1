//! Side files: bytes of the layer above, kept beside a segment and bound to what is in it.

use crc32c::crc32c_append;

use super::format::Identity;

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
