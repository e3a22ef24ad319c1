//! The log that the kernel's `dm-log-writes` target keeps of a device: every write, in the order in which it became
//! durable. A plain write is not logged before a flush that began after it ended; a write with FUA is logged when it
//! ends. So the first `n` entries are what a power cut at that moment leaves at the least.
//!
//! On the log device: one sector with a header, then for each entry a sector that describes it and the sectors that
//! were written. All numbers are little-endian. (Linux, `drivers/md/dm-log-writes.c`.)

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::random::Random;

const MAGIC: u64 = 0x6a_7366_7773_6872;
const VERSION: u64 = 1;
/// The unit in which a device's cache reaches its medium. Smaller than a page of the file system, so that pages tear.
const TEARS_AT: u64 = 512;
/// Before this a file system keeps its superblock. An ext4 with half of one does not mount, whoever was on it, so a
/// write there is torn from the others but not within.
const WHOLE_BEFORE: u64 = 4096;

const FLUSH: u64 = 1;
const FUA: u64 = 1 << 1;
const DISCARD: u64 = 1 << 2;
const MARK: u64 = 1 << 3;
/// Says only that the file system called the write one of metadata.
const METADATA: u64 = 1 << 4;

#[derive(Debug)]
pub struct WriteLog {
    file: File,
    pub entries: Vec<Entry>,
}

/// One request that the device has carried out, in bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    pub what: What,
    /// It was not begun before everything written earlier was durable.
    pub flush: bool,
    /// It was not ended before it was durable.
    pub fua: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum What {
    /// `length` bytes, which lie at `from` in the log, went to `to`. A flush alone writes none.
    Write {
        from: u64,
        to: u64,
        length: u64,
    },
    Discard {
        to: u64,
        length: u64,
    },
    /// A word that was put between the writes.
    Mark(String),
}

/// A device as the log's entries make it, one after the other.
#[derive(Debug)]
pub struct Replay<'a> {
    log: &'a WriteLog,
    image: File,
    done: usize,
}

impl WriteLog {
    pub fn open(path: &Path) -> io::Result<Self> {
        let file = File::open(path)?;
        let odd = |what: String| io::Error::new(io::ErrorKind::InvalidData, what);
        let mut header = [0; 28];
        file.read_exact_at(&mut header, 0)?;
        let [magic, version, count] = [0, 8, 16].map(|at| number(&header, at));
        let sector = u64::from(u32::from_le_bytes(header[24..28].try_into().expect("four bytes")));
        if (magic, version) != (MAGIC, VERSION) || !(512..=4096).contains(&sector) {
            return Err(odd(format!("no log of writes: magic {magic:x}, version {version}, sectors of {sector}")));
        }
        let mut entries = Vec::new();
        let mut at = sector;
        let mut description = vec![0; usize::try_from(sector).expect("small")];
        for _ in 0..count {
            file.read_exact_at(&mut description, at)?;
            at += sector;
            let [to, sectors, flags, data] = [0, 8, 16, 24].map(|at| number(&description, at));
            if flags & !(FLUSH | FUA | DISCARD | MARK | METADATA) != 0 {
                return Err(odd(format!("entry {} has flags {flags:x}", entries.len())));
            }
            let (to, length) = (to * sector, sectors * sector);
            let what = if flags & MARK != 0 {
                let text = description.get(32..32 + usize::try_from(data).expect("small"));
                let text = text.ok_or_else(|| odd("a mark is longer than its sector".into()))?;
                What::Mark(String::from_utf8_lossy(text).trim_end_matches('\0').to_owned())
            } else if flags & DISCARD != 0 {
                What::Discard { to, length }
            } else {
                let from = at;
                at += length;
                What::Write { from, to, length }
            };
            entries.push(Entry { what, flush: flags & FLUSH != 0, fua: flags & FUA != 0 });
        }
        Ok(Self { file, entries })
    }

    /// Places right behind each mark that reads `word=N`, with N.
    pub fn marks(&self, word: &str) -> Vec<(usize, usize)> {
        let read = |entry: &Entry| match &entry.what {
            What::Mark(text) => text.strip_prefix(word)?.strip_prefix('=')?.parse().ok(),
            _ => None,
        };
        self.entries.iter().enumerate().filter_map(|(at, entry)| Some((at + 1, read(entry)?))).collect()
    }

    /// What the device may have been at behind its first `at` entries: writes that wait in its cache for one flush,
    /// or the one write that is under way.
    pub fn under_way(&self, at: usize) -> Range<usize> {
        let writes = |entry: &Entry| !matches!(entry.what, What::Mark(_));
        let Some(first) = self.entries[at..].iter().position(writes).map(|skipped| at + skipped) else { return at..at };
        let plain = |entry: &&Entry| !entry.flush && !entry.fua && writes(entry);
        let waiting = self.entries[first..].iter().take_while(plain).count();
        // What flushes first does not begin before the others are durable: it is under way alone.
        first..first + waiting.max(1)
    }
}

impl<'a> Replay<'a> {
    /// On an image of the device as it was before the first entry; it is changed.
    pub fn of(log: &'a WriteLog, image: &Path) -> io::Result<Self> {
        Ok(Self { log, image: File::options().read(true).write(true).open(image)?, done: 0 })
    }

    /// Up to entry number `to`, not included.
    pub fn advance(&mut self, to: usize) -> io::Result<()> {
        assert!(to >= self.done, "a log is not played backwards");
        for entry in &self.log.entries[self.done..to] {
            apply(&self.log.file, entry, &self.image, || true)?;
        }
        self.done = to;
        Ok(())
    }

    /// Puts into a copy of the image an arbitrary part of what was under way.
    pub fn tear(&self, copy: &Path, dice: &mut Random) -> io::Result<()> {
        let copy = File::options().write(true).open(copy)?;
        // A cache has no order: anything from nothing to all of it may have reached the medium.
        let share = [10, 50, 90, 100][usize::try_from(dice.within(0, 4)).expect("small")];
        for entry in &self.log.entries[self.log.under_way(self.done)] {
            let whole = matches!(entry.what, What::Write { to, .. } if to < WHOLE_BEFORE);
            let all = dice.within(0, 100) < share;
            apply(&self.log.file, entry, &copy, || if whole { all } else { dice.within(0, 100) < share })?;
        }
        Ok(())
    }
}

/// Writes what an entry wrote, or those pieces of it that are chosen.
fn apply(log: &File, entry: &Entry, image: &File, mut chosen: impl FnMut() -> bool) -> io::Result<()> {
    let (to, data) = match entry.what {
        What::Mark(_) => return Ok(()),
        // Nobody may rely on what is read after a discard. Zeros are what most devices give.
        What::Discard { to, length } => (to, vec![0; usize::try_from(length).expect("it fits in memory")]),
        What::Write { from, to, length } => {
            let mut data = vec![0; usize::try_from(length).expect("it fits in memory")];
            log.read_exact_at(&mut data, from)?;
            (to, data)
        }
    };
    for (piece, number) in data.chunks(usize::try_from(TEARS_AT).expect("small")).zip(0..) {
        if chosen() {
            image.write_all_at(piece, to + number * TEARS_AT)?;
        }
    }
    Ok(())
}

fn number(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sector(numbers: &[u64], rest: &[u8]) -> Vec<u8> {
        let mut out: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
        out.extend_from_slice(rest);
        out.resize(512, 0);
        out
    }

    /// Where the log's sectors 0–3 lie: behind what is never torn.
    const BASE: u64 = 8;
    const BEFORE: usize = 8 * 512;

    /// Two writes and the flush that made them durable, a mark, a write with FUA, a journal's commit, a discard.
    fn log() -> Vec<u8> {
        let data = |byte: u8, sectors: usize| vec![byte; sectors * 512];
        let header = sector(&[MAGIC, VERSION, 7], &512_u32.to_le_bytes());
        let mark = sector(&[0, 0, MARK, 7], b"heard=5");
        [
            header,
            sector(&[BASE, 2, 0, 1024], b""),
            data(1, 2),
            sector(&[BASE + 2, 1, METADATA, 512], b""),
            data(2, 1),
            sector(&[0, 0, FLUSH, 0], b""),
            mark,
            sector(&[BASE + 1, 2, FUA, 1024], b""),
            data(3, 2),
            sector(&[BASE + 3, 1, FLUSH | FUA, 512], b""),
            data(4, 1),
            sector(&[BASE, 1, DISCARD, 0], b""),
        ]
        .concat()
    }

    fn opened(bytes: &[u8]) -> io::Result<WriteLog> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log");
        std::fs::write(&path, bytes).unwrap();
        WriteLog::open(&path)
    }

    /// A device that is full of nines.
    fn nines(path: &Path) {
        std::fs::write(path, [9; BEFORE + 4 * 512]).unwrap();
    }

    /// The first byte of each of the four sectors.
    fn look(path: &Path) -> [u8; 4] {
        let bytes = std::fs::read(path).unwrap();
        assert_eq!(bytes.len(), BEFORE + 4 * 512);
        [0, 1, 2, 3].map(|sector| bytes[BEFORE + sector * 512])
    }

    #[test]
    fn it_is_played_entry_by_entry() {
        let log = opened(&log()).unwrap();
        assert_eq!(log.marks("heard"), [(4, 5)]);
        let directory = tempfile::tempdir().unwrap();
        let image = directory.path().join("image");
        nines(&image);
        let mut replay = Replay::of(&log, &image).unwrap();
        let steps = [
            [9, 9, 9, 9],
            [1, 1, 9, 9],
            [1, 1, 2, 9],
            [1, 1, 2, 9],
            [1, 1, 2, 9],
            [1, 3, 3, 9],
            [1, 3, 3, 4],
            [0, 3, 3, 4],
        ];
        for (entries, expected) in steps.into_iter().enumerate() {
            replay.advance(entries).unwrap();
            assert_eq!(look(&image), expected, "behind {entries} entries");
        }
    }

    #[test]
    fn only_what_waits_for_one_flush_is_under_way() {
        let log = opened(&log()).unwrap();
        let ranges: Vec<_> = (0..=7).map(|at| log.under_way(at)).collect();
        assert_eq!(ranges, [0..2, 1..2, 2..3, 4..5, 4..5, 5..6, 6..7, 7..7]);
    }

    #[test]
    fn a_tear_takes_sectors_of_what_was_under_way_and_nothing_else() {
        let log = opened(&log()).unwrap();
        let directory = tempfile::tempdir().unwrap();
        let (image, copy) = (directory.path().join("image"), directory.path().join("copy"));
        nines(&image);
        let mut replay = Replay::of(&log, &image).unwrap();
        replay.advance(4).unwrap();
        let mut seen = std::collections::BTreeSet::new();
        for seed in 0..50 {
            std::fs::copy(&image, &copy).unwrap();
            replay.tear(&copy, &mut Random::seeded(seed)).unwrap();
            seen.insert(look(&copy));
        }
        assert_eq!(Vec::from_iter(seen), [[1, 1, 2, 9], [1, 1, 3, 9], [1, 3, 2, 9], [1, 3, 3, 9]]);
    }

    #[test]
    fn a_superblock_is_never_torn() {
        let mut bytes = log();
        bytes[512 * 8..512 * 8 + 8].copy_from_slice(&1_u64.to_le_bytes());
        let log = opened(&bytes).unwrap();
        assert_eq!(log.entries[4].what, What::Write { from: 9 * 512, to: 512, length: 1024 });
        let directory = tempfile::tempdir().unwrap();
        let (image, copy) = (directory.path().join("image"), directory.path().join("copy"));
        nines(&image);
        let mut replay = Replay::of(&log, &image).unwrap();
        replay.advance(4).unwrap();
        let mut seen = std::collections::BTreeSet::new();
        for seed in 0..50 {
            std::fs::copy(&image, &copy).unwrap();
            replay.tear(&copy, &mut Random::seeded(seed)).unwrap();
            let bytes = std::fs::read(&copy).unwrap();
            seen.insert([bytes[512], bytes[1024]]);
        }
        assert_eq!(Vec::from_iter(seen), [[3, 3], [9, 9]]);
    }

    #[test]
    fn what_is_no_log_is_refused() {
        assert!(opened(&[0; 512]).is_err());
        let mut odd = log();
        odd[512 + 16] = 0x80;
        assert!(opened(&odd).is_err(), "a flag that nobody knows");
        assert!(opened(&log()[..2048]).is_err(), "cut short");
    }
}
