//! File names in a journal's directory.

use std::path::{Path, PathBuf};

use super::position::SegmentId;

/// What a file in the directory is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Name {
    Segment(SegmentId),
    /// A segment that is being made.
    Unfinished(SegmentId),
    /// End of a segment that was recovered.
    End(SegmentId),
    /// Side file of the layer above.
    Side(SegmentId),
    /// A trimmed file that waits for reuse.
    Free,
    Lock(u64),
    /// A small file that is being written, of a segment or a lock of that epoch.
    Temporary(u64),
    /// The same of the whole directory, whoever writes it.
    TemporaryOfAll,
}

pub(crate) const LOG_ID: &str = "log.id";
pub(crate) const TRIM_MARK: &str = "trim.mark";
pub(crate) const TRIM_TIME: &str = "trim.time";
/// Of the layer above, where it says how far back everything is kept.
pub(crate) const KEPT_TIME: &str = "kept.time";

fn hex<const WIDTH: usize>(text: &str) -> Option<u64> {
    let plain = text.len() == WIDTH && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    if plain { u64::from_str_radix(text, 16).ok() } else { None }
}

fn segment(text: &str) -> Option<SegmentId> {
    let (epoch, sequence) = text.split_once('-')?;
    Some(SegmentId { epoch: hex::<16>(epoch)?, sequence: u32::try_from(hex::<8>(sequence)?).ok()? })
}

/// A file that is being written under another name: what it is to be.
fn temporary(name: &str) -> Option<Name> {
    if [LOG_ID, TRIM_MARK, TRIM_TIME, KEPT_TIME].contains(&name) {
        return Some(Name::TemporaryOfAll);
    }
    match parse(name)? {
        Name::End(id) | Name::Side(id) => Some(Name::Temporary(id.epoch)),
        Name::Lock(epoch) => Some(Name::Temporary(epoch)),
        Name::Segment(_) | Name::Unfinished(_) | Name::Free | Name::Temporary(_) | Name::TemporaryOfAll => None,
    }
}

pub(crate) fn parse(name: &str) -> Option<Name> {
    let (stem, extension) = name.rsplit_once('.')?;
    match extension {
        "seg" => segment(stem).map(Name::Segment),
        "new" => segment(stem).map(Name::Unfinished),
        "end" => segment(stem).map(Name::End),
        "idx" => segment(stem).map(Name::Side),
        "free" => segment(stem).map(|_| Name::Free),
        "lock" => hex::<16>(stem).map(Name::Lock),
        "tmp" => temporary(stem.rsplit_once('.')?.0),
        _ => None,
    }
}

pub(crate) fn segment_path(directory: &Path, id: SegmentId) -> PathBuf {
    directory.join(format!("{id}.seg"))
}

pub(crate) fn unfinished_path(directory: &Path, id: SegmentId) -> PathBuf {
    directory.join(format!("{id}.new"))
}

pub(crate) fn end_path(directory: &Path, id: SegmentId) -> PathBuf {
    directory.join(format!("{id}.end"))
}

pub(crate) fn side_path(directory: &Path, id: SegmentId) -> PathBuf {
    directory.join(format!("{id}.idx"))
}

/// Named after the segment that it was, which no other file ever is.
pub(crate) fn free_name(id: SegmentId) -> String {
    format!("{id}.free")
}

pub(crate) fn lock_path(directory: &Path, epoch: u64) -> PathBuf {
    directory.join(format!("{epoch:016x}.lock"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_go_there_and_back_and_others_are_nothing() {
        let id = SegmentId { epoch: 0xab, sequence: 7 };
        let name = |path: PathBuf| parse(path.file_name().unwrap().to_str().unwrap());
        assert_eq!(name(segment_path(Path::new("d"), id)), Some(Name::Segment(id)));
        assert_eq!(name(unfinished_path(Path::new("d"), id)), Some(Name::Unfinished(id)));
        assert_eq!(name(end_path(Path::new("d"), id)), Some(Name::End(id)));
        assert_eq!(name(side_path(Path::new("d"), id)), Some(Name::Side(id)));
        assert_eq!(name(lock_path(Path::new("d"), 9)), Some(Name::Lock(9)));
        assert_eq!(parse(&free_name(id)), Some(Name::Free));
        let temporary = |text: &str| parse(&format!("{text}.00000000000000ff.tmp"));
        assert_eq!(temporary("0000000000000009.lock"), Some(Name::Temporary(9)));
        assert_eq!(temporary(&format!("{id}.end")), Some(Name::Temporary(0xab)));
        assert_eq!(parse(&format!("{id}.idx.1-7.tmp")), Some(Name::Temporary(0xab)), "as they once were called");
        for name in ["log.id", "trim.mark", "trim.time", "kept.time"] {
            assert_eq!(temporary(name), Some(Name::TemporaryOfAll));
        }
        for other in [&format!("{id}.seg"), "trim.mark.1.tmp", "x", "0000000000000009.lock.1.tmp"] {
            assert_eq!(temporary(other), None, "{other}");
        }
        for other in
            ["", ".", "x.seg", "0-0.seg", "00000000000000AB-00000007.seg", "log.id", "trim.mark", "trim.time", "a.lock"]
        {
            assert_eq!(parse(other), None, "{other}");
        }
    }
}
