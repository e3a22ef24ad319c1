//! What retention believes, kept over restarts: the time, and the eras of the clock. Without it a process would have
//! nothing to judge the clock by but the newest record, which may have been written under the very clock that is wrong.
//!
//! Both are in one file and written at once: a time that is believed without the era that its step ended would make what
//! lies before the step old.

use std::io;
use std::path::Path;

use super::eras::{ERAS_MAX, Era, Eras};
use super::format::LogId;
use super::names::TRIM_TIME;
use super::position::SegmentId;
use super::shared::{Shared, locked};
use super::storage::{Storage, WriteMode, is_full, read_or_nothing};
use super::trim::superseded;
use super::trim_clock::Belief;

const MAGIC: [u8; 8] = *b"TGbelvd\x02";
/// Without eras: nobody told them apart then.
const MAGIC_1: [u8; 8] = *b"TGbelvd\x01";
const BYTES_1: usize = 8 + 16 + 8 + 4;
const ERA_BYTES: usize = 8 + 4 + 8 + 8;
const ERAS_AT: usize = 8 + 16 + 8 + 4;
/// Smaller than a sector, which a disk writes whole or not at all.
const BYTES: usize = ERAS_AT + ERAS_MAX * ERA_BYTES + 4;
const _: () = assert!(BYTES <= 512, "a sector holds it");

fn encode(log: &LogId, belief: &Belief) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(BYTES);
    bytes.extend_from_slice(&MAGIC);
    bytes.extend_from_slice(log);
    bytes.extend_from_slice(&belief.unix_ms.to_le_bytes());
    let eras = u32::try_from(belief.eras.iter().count()).unwrap_or(u32::MAX);
    bytes.extend_from_slice(&eras.to_le_bytes());
    for era in belief.eras.iter() {
        bytes.extend_from_slice(&era.until.epoch.to_le_bytes());
        bytes.extend_from_slice(&era.until.sequence.to_le_bytes());
        bytes.extend_from_slice(&era.behind_ms.to_le_bytes());
        bytes.extend_from_slice(&era.ended_unix_ms.to_le_bytes());
    }
    bytes.resize(BYTES - 4, 0);
    let crc = crc32c::crc32c(&bytes);
    bytes.extend_from_slice(&crc.to_le_bytes());
    bytes
}

fn decode(log: &LogId, bytes: &[u8]) -> Option<Belief> {
    let u32_at = |bytes: &[u8], at: usize| Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?));
    let u64_at = |bytes: &[u8], at: usize| Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?));
    let era = |bytes: &[u8]| {
        let until = SegmentId { epoch: u64_at(bytes, 0)?, sequence: u32_at(bytes, 8)? };
        Some(Era { until, behind_ms: u64_at(bytes, 12)?.cast_signed(), ended_unix_ms: u64_at(bytes, 20)? })
    };
    let unix_ms = u64_at(bytes, 24)?;
    if bytes.len() == BYTES_1 && bytes.starts_with(&MAGIC_1) {
        let is_whole = bytes[8..24] == log[..] && u32_at(bytes, 32)? == crc32c::crc32c(&bytes[..32]);
        return is_whole.then(|| Belief { unix_ms, eras: Eras::default() });
    }
    let eras = usize::try_from(u32_at(bytes, 32)?).ok().filter(|eras| *eras <= ERAS_MAX)?;
    let eras: Option<Vec<Era>> = bytes.get(ERAS_AT..)?.chunks_exact(ERA_BYTES).take(eras).map(era).collect();
    let belief = Belief { unix_ms, eras: Eras::from_stored(eras?)? };
    (bytes == encode(log, &belief)).then_some(belief)
}

/// What was believed last; `None` if nobody wrote it down, or it does not read.
pub(crate) fn kept(storage: &dyn Storage, directory: &Path, log: &LogId) -> io::Result<Option<Belief>> {
    let bytes = read_or_nothing(storage, &directory.join(TRIM_TIME), 4096)?;
    Ok(bytes.and_then(|bytes| decode(log, &bytes)))
}

/// Writes down what is believed now, if that is not what is written there, about.
pub(crate) fn keep(shared: &Shared) -> io::Result<()> {
    let _one_at_a_time = locked(&shared.keeping);
    let oldest = shared.catalog().segments.keys().next().copied();
    let to_keep = || {
        let mut clock = locked(&shared.trim_clock);
        if let Some(oldest) = oldest {
            clock.forget_before(oldest);
        }
        clock.to_keep()
    };
    // While a younger process lives, it says what is believed.
    if to_keep().is_none() || superseded(shared)? {
        return Ok(());
    }
    inherit(shared)?;
    let Some(belief) = to_keep() else { return Ok(()) };
    let path = shared.settings.directory.join(TRIM_TIME);
    let bytes = encode(&shared.log, &belief);
    let written = match in_place(&*shared.storage, &path, &bytes) {
        Ok(true) => Ok(()),
        Ok(false) => shared.storage.put(&path, &bytes),
        Err(error) => Err(error),
    };
    match written {
        Ok(()) => locked(&shared.trim_clock).kept(belief),
        // The next one may find room; until then the newest record is what a start has.
        Err(error) if is_full(&error) => {}
        Err(error) => return Err(error),
    }
    Ok(())
}

/// What is written there may be of a younger process that has ended: it may have met steps of the clock that this one
/// does not know. Both count from here on.
fn inherit(shared: &Shared) -> io::Result<()> {
    let there = kept(&*shared.storage, &shared.settings.directory, &shared.log)?;
    let last = shared.last_segment();
    let mut clock = locked(&shared.trim_clock);
    if let Some(there) = there
        && clock.last_kept().is_some_and(|last| there.eras != last.eras)
    {
        clock.inherit(&there, last);
    }
    Ok(())
}

/// Takes no room. False if there is no such file.
fn in_place(storage: &dyn Storage, path: &Path, bytes: &[u8]) -> io::Result<bool> {
    let file = match storage.open_write(path, WriteMode::Buffered) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        file => file?,
    };
    if file.len()? != bytes.len() as u64 {
        return Ok(false);
    }
    file.write_at(0, bytes)?;
    file.sync()?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_belief_is_whole_or_nothing() {
        let mut eras = Eras::default();
        let until = |sequence| SegmentId { epoch: 7, sequence };
        for (sequence, by) in (0..).zip([600_000, -50_000_000_000, 50_000_000_000]) {
            eras.step(by, until(sequence), 1_790_000_000_000);
            let belief = Belief { unix_ms: 1_790_000_000_000, eras: eras.clone() };
            let bytes = encode(&[3; 16], &belief);
            assert_eq!((bytes.len(), decode(&[3; 16], &bytes)), (BYTES, Some(belief)));
            assert_eq!(decode(&[4; 16], &bytes), None);
            for at in 0..bytes.len() {
                let mut flipped = bytes.clone();
                flipped[at] ^= 0x10;
                assert_eq!((decode(&[3; 16], &flipped), decode(&[3; 16], &bytes[..at])), (None, None));
            }
        }
        let belief = Belief { unix_ms: 5, eras: Eras::default() };
        assert_eq!(decode(&[3; 16], &encode(&[3; 16], &belief)), Some(belief));
    }

    #[test]
    fn the_form_without_eras_reads() {
        let mut bytes = [&MAGIC_1[..], &[3; 16], &1_790_000_000_000_u64.to_le_bytes()].concat();
        bytes.extend_from_slice(&crc32c::crc32c(&bytes).to_le_bytes());
        let belief = Belief { unix_ms: 1_790_000_000_000, eras: Eras::default() };
        assert_eq!(decode(&[3; 16], &bytes), Some(belief));
        assert_eq!(decode(&[4; 16], &bytes), None);
        for at in 0..bytes.len() {
            let mut flipped = bytes.clone();
            flipped[at] ^= 0x10;
            assert_eq!((decode(&[3; 16], &flipped), decode(&[3; 16], &bytes[..at])), (None, None));
        }
    }
}
