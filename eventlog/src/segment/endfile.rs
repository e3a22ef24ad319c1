//! End files: what recovery found in a segment that its writer did not seal. Written once, beside the segment, so
//! that the segment itself stays as it was found and is not read whole at every open.

use super::damage::{Damage, DamageKind};
use super::format::{FOOTER_BLOCK, Footer, Identity};

/// Stretches of damage that are kept; a segment with more is read again at every open.
const DAMAGE_MAX: usize = 4096;
const DAMAGE_BYTES: usize = 24;
pub(crate) const END_BYTES_MAX: u64 = FOOTER_BLOCK + (64 << 20);

const KINDS: [DamageKind; 5] =
    [DamageKind::Batch, DamageKind::Chain, DamageKind::Tail, DamageKind::Truncated, DamageKind::Unreadable];

/// `None` if there is too much to say.
pub(crate) fn encode(footer: &Footer, index: &[u8], damage: &[Damage]) -> Option<Vec<u8>> {
    if damage.len() > DAMAGE_MAX {
        return None;
    }
    let mut bytes = vec![0; usize::try_from(FOOTER_BLOCK).unwrap_or(4096)];
    footer.encode(&mut bytes);
    bytes.extend_from_slice(index);
    for damage in damage {
        let kind = KINDS.iter().position(|kind| *kind == damage.kind)?;
        bytes.extend_from_slice(&damage.offset.to_le_bytes());
        bytes.extend_from_slice(&damage.end.to_le_bytes());
        bytes.extend_from_slice(&(kind as u64).to_le_bytes());
    }
    let crc = crc32c::crc32c(&bytes);
    bytes.extend_from_slice(&crc.to_le_bytes());
    Some(bytes)
}

/// Footer, index and damage; `None` if the file is not whole.
pub(crate) fn decode(identity: &Identity, bytes: &[u8]) -> Option<(Footer, Vec<u8>, Vec<Damage>)> {
    let (bytes, crc) = bytes.split_last_chunk::<4>()?;
    if crc32c::crc32c(bytes) != u32::from_le_bytes(*crc) {
        return None;
    }
    let block = usize::try_from(FOOTER_BLOCK).ok()?;
    let footer = Footer::decode(identity, bytes.get(..block)?).ok()?;
    let index_end = block.checked_add(footer.index_bytes as usize)?;
    let index = bytes.get(block..index_end)?.to_vec();
    let mut damage = Vec::new();
    for row in bytes.get(index_end..)?.chunks(DAMAGE_BYTES) {
        let number = |at: usize| row.get(at..at + 8)?.try_into().ok().map(u64::from_le_bytes);
        let kind = *KINDS.get(usize::try_from(number(16)?).ok()?)?;
        damage.push(Damage { segment: identity.segment, offset: number(0)?, end: number(8)?, kind });
    }
    Some((footer, index, damage))
}
