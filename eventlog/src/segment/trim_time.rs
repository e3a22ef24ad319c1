//! The time that retention believes, kept over restarts. Without it a process would have nothing to judge the clock by but
//! the newest record, which may have been written under the very clock that is wrong.

use std::io;
use std::path::Path;

use super::format::LogId;
use super::names::TRIM_TIME;
use super::shared::{Shared, locked};
use super::storage::{Storage, WriteMode, is_full, read_or_nothing};

const MAGIC: [u8; 8] = *b"TGbelvd\x01";
const BYTES: usize = 8 + 16 + 8 + 4;

fn encode(log: &LogId, unix_ms: u64) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(BYTES);
    bytes.extend_from_slice(&MAGIC);
    bytes.extend_from_slice(log);
    bytes.extend_from_slice(&unix_ms.to_le_bytes());
    let crc = crc32c::crc32c(&bytes);
    bytes.extend_from_slice(&crc.to_le_bytes());
    bytes
}

fn decode(log: &LogId, bytes: &[u8]) -> Option<u64> {
    let unix_ms = u64::from_le_bytes(bytes.get(24..32)?.try_into().ok()?);
    (bytes == encode(log, unix_ms)).then_some(unix_ms)
}

/// What was believed last; `None` if nobody wrote it down, or it does not read.
pub(crate) fn kept(storage: &dyn Storage, directory: &Path, log: &LogId) -> io::Result<Option<u64>> {
    let bytes = read_or_nothing(storage, &directory.join(TRIM_TIME), 4096)?;
    Ok(bytes.and_then(|bytes| decode(log, &bytes)))
}

/// Writes down what is believed now, if that is not what is written there, about.
pub(crate) fn keep(shared: &Shared) -> io::Result<()> {
    let Some(unix_ms) = locked(&shared.trim_clock).to_keep() else { return Ok(()) };
    let path = shared.settings.directory.join(TRIM_TIME);
    let bytes = encode(&shared.log, unix_ms);
    let written = match in_place(&*shared.storage, &path, &bytes) {
        Ok(true) => Ok(()),
        Ok(false) => shared.storage.put(&path, &bytes),
        Err(error) => Err(error),
    };
    match written {
        Ok(()) => locked(&shared.trim_clock).kept(unix_ms),
        // The next one may find room; until then the newest record is what a start has.
        Err(error) if is_full(&error) => {}
        Err(error) => return Err(error),
    }
    Ok(())
}

/// Smaller than a sector, which a disk writes whole or not at all; and it takes no room. False if there is no such file.
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
    fn a_time_is_whole_or_nothing() {
        let time = encode(&[3; 16], 1_790_000_000_000);
        assert_eq!(decode(&[3; 16], &time), Some(1_790_000_000_000));
        assert_eq!(decode(&[4; 16], &time), None);
        for at in 0..time.len() {
            let mut flipped = time.clone();
            flipped[at] ^= 0x10;
            assert_eq!((decode(&[3; 16], &flipped), decode(&[3; 16], &time[..at])), (None, None));
        }
    }
}
