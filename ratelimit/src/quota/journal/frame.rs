//! The bytes of the file: one frame per group of records, and what a file that ends anywhere means.
//!
//! ```text
//! file   = magic (8: "TGQUOTA" and the version 1) frame*
//! frame  = mark (4) length (4) crc32c of what follows (4) number (8) now_ms (8) record*
//! record = kind (1) length (4) bytes
//! ```
//!
//! Integers are little-endian. A group is written by one write and synced before anybody is told. A power cut can
//! therefore leave a last frame that is not whole, and nothing else: that one is cut off, because nobody was told of it.
//! A frame that is not whole with a whole one behind it is damage, and is named with its place.
//!
//! A file that took another one's place was synced as a whole before. Its first frame says how many it had then, so that
//! one of those that is not whole is damage, too, also the last.

/// First bytes of a file.
pub(super) const MAGIC: [u8; 8] = *b"TGQUOTA\x01";
const MARK: [u8; 4] = [0xf7, b'Q', b'J', 0x1a];
const HEAD: usize = 28;
/// Kind of the record that says how many frames, its own included, the file had when it took another one's place.
pub(super) const SYNCED: u8 = 0;
/// Longest frame that is read. A writer makes a group of less.
pub(super) const FRAME_BYTES_MAX: usize = 64 << 20;

/// A group of records as it was written.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Frame<'a> {
    pub(super) number: u64,
    pub(super) now_ms: u64,
    pub(super) records: Vec<(u8, &'a [u8])>,
}

/// The place behind the last whole frame, or the place of damage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// Everything up to here is whole, and nothing or a torn frame follows.
    Whole(usize),
    /// What is here was whole once: there is a later frame.
    Damaged(usize),
}

/// The frame of these records.
pub(super) fn write(number: u64, now_ms: u64, records: &[u8]) -> Vec<u8> {
    let mut body = Vec::with_capacity(16 + records.len());
    body.extend_from_slice(&number.to_le_bytes());
    body.extend_from_slice(&now_ms.to_le_bytes());
    body.extend_from_slice(records);
    let length = u32::try_from(body.len()).unwrap_or(u32::MAX);
    let mut frame = Vec::with_capacity(12 + body.len());
    frame.extend_from_slice(&MARK);
    frame.extend_from_slice(&length.to_le_bytes());
    frame.extend_from_slice(&crc32c::crc32c(&body).to_le_bytes());
    frame.extend_from_slice(&body);
    frame
}

/// Appends a record to the records of a frame.
pub(super) fn push(records: &mut Vec<u8>, kind: u8, bytes: &[u8]) {
    records.push(kind);
    records.extend_from_slice(&u32::try_from(bytes.len()).unwrap_or(u32::MAX).to_le_bytes());
    records.extend_from_slice(bytes);
}

/// The records of the first frame of a file that takes another one's place with so many frames.
pub(super) fn head_of(frames: u64) -> Vec<u8> {
    let mut records = Vec::new();
    push(&mut records, SYNCED, &frames.to_le_bytes());
    records
}

/// How many frames there have to be, by the first one.
pub(super) fn synced(first: &Frame<'_>) -> u64 {
    let record = first.records.iter().find(|(kind, _)| *kind == SYNCED);
    record.and_then(|(_, bytes)| Some(u64::from_le_bytes((*bytes).try_into().ok()?))).unwrap_or(0)
}

/// Gives every whole frame of a file, magic included, to `each`, in order; where they end.
pub(super) fn read<'a>(file: &'a [u8], mut each: impl FnMut(Frame<'a>)) -> End {
    if !file.starts_with(&MAGIC) {
        return if MAGIC.starts_with(file) { End::Whole(0) } else { End::Damaged(0) };
    }
    let (mut at, mut number) = (MAGIC.len(), 0);
    while at < file.len() {
        let Some((frame, length)) = frame_at(&file[at..]).filter(|(frame, _)| frame.number == number) else {
            let is_followed = (at..file.len()).any(|later| {
                file[later..].starts_with(&MARK)
                    && frame_at(&file[later..]).is_some_and(|(frame, _)| frame.number > number)
            });
            return if is_followed { End::Damaged(at) } else { End::Whole(at) };
        };
        each(frame);
        (at, number) = (at + length, number + 1);
    }
    End::Whole(at)
}

fn frame_at(bytes: &[u8]) -> Option<(Frame<'_>, usize)> {
    let head = bytes.first_chunk::<HEAD>()?;
    let int = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
    let length = usize::try_from(int(4)).ok().filter(|&length| (16..=FRAME_BYTES_MAX).contains(&length))?;
    let body = bytes.get(12..12 + length)?;
    if !bytes.starts_with(&MARK) || crc32c::crc32c(body) != int(8) {
        return None;
    }
    let (number, rest) = body.split_first_chunk::<8>()?;
    let (now_ms, mut rest) = rest.split_first_chunk::<8>()?;
    let mut records = Vec::new();
    while !rest.is_empty() {
        let (&kind, after) = rest.split_first()?;
        let (length, after) = after.split_first_chunk::<4>()?;
        let (record, after) = after.split_at_checked(usize::try_from(u32::from_le_bytes(*length)).ok()?)?;
        records.push((kind, record));
        rest = after;
    }
    let frame = Frame { number: u64::from_le_bytes(*number), now_ms: u64::from_le_bytes(*now_ms), records };
    Some((frame, 12 + length))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(groups: u64) -> Vec<u8> {
        let mut file = MAGIC.to_vec();
        for number in 0..groups {
            let mut records = Vec::new();
            push(&mut records, 1, &[7; 30]);
            push(&mut records, 2, number.to_string().as_bytes());
            file.extend_from_slice(&write(number, 1_000 + number, &records));
        }
        file
    }

    fn numbers(file: &[u8]) -> (Vec<u64>, End) {
        let mut numbers = Vec::new();
        let end = read(file, |frame| {
            assert_eq!(frame.records.len(), 2);
            numbers.push(frame.number);
        });
        (numbers, end)
    }

    #[test]
    fn a_file_that_ends_anywhere_is_its_whole_frames() {
        let whole = file(3);
        let length = (whole.len() - MAGIC.len()) / 3;
        for cut in 0..=whole.len() {
            let frames = cut.saturating_sub(MAGIC.len()) / length;
            let end = if cut < MAGIC.len() { 0 } else { MAGIC.len() + frames * length };
            assert_eq!(numbers(&whole[..cut]), ((0..frames as u64).collect(), End::Whole(end)), "{cut}");
        }
    }

    #[test]
    fn a_flipped_bit_is_damage_unless_it_is_in_the_last_frame() {
        let whole = file(3);
        let length = (whole.len() - MAGIC.len()) / 3;
        for bit in 0..whole.len() * 8 {
            let mut flipped = whole.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            let frame = (bit / 8).checked_sub(MAGIC.len()).map(|at| at / length);
            let end = match frame {
                None => End::Damaged(0),
                Some(2) => End::Whole(MAGIC.len() + 2 * length),
                Some(frame) => End::Damaged(MAGIC.len() + frame * length),
            };
            assert_eq!(numbers(&flipped).1, end, "bit {bit}");
        }
    }

    #[test]
    fn a_frame_that_is_missing_is_damage() {
        let whole = file(3);
        let length = (whole.len() - MAGIC.len()) / 3;
        let gap = [&whole[..MAGIC.len() + length], &whole[MAGIC.len() + 2 * length..]].concat();
        assert_eq!(numbers(&gap).1, End::Damaged(MAGIC.len() + length));
    }
}
