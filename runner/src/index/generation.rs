//! Which of the directories is the index: a rebuild makes the next one beside, and a small file says which one counts.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use super::error::IndexError;

const CURRENT: &str = "current";

/// The one that counts; none: there is no index yet, or nobody can say which.
pub(super) fn current(directory: &Path) -> Result<Option<u64>, IndexError> {
    match fs::read_to_string(directory.join(CURRENT)) {
        Ok(text) => Ok(text.trim().parse().ok()),
        Err(fault) if matches!(fault.kind(), io::ErrorKind::NotFound | io::ErrorKind::InvalidData) => Ok(None),
        Err(fault) => Err(fault.into()),
    }
}

pub(super) fn path(directory: &Path, generation: u64) -> PathBuf {
    directory.join(format!("runs-{generation}"))
}

/// Higher than all that are there.
pub(super) fn next(directory: &Path) -> Result<u64, IndexError> {
    Ok(all(directory)?.into_iter().max().unwrap_or(0).saturating_add(1))
}

/// From now on it is this one, also after a power loss.
pub(super) fn set(directory: &Path, generation: u64) -> Result<(), IndexError> {
    let beside = directory.join("current.new");
    let mut file = File::create(&beside)?;
    file.write_all(generation.to_string().as_bytes())?;
    file.sync_all()?;
    fs::rename(beside, directory.join(CURRENT))?;
    File::open(directory)?.sync_all()?;
    Ok(())
}

/// Deletes all others: what a rebuild has left, or one that was broken off.
pub(super) fn remove_others(directory: &Path, generation: u64) -> Result<(), IndexError> {
    for other in all(directory)?.into_iter().filter(|other| *other != generation) {
        fs::remove_dir_all(path(directory, other))?;
    }
    Ok(())
}

fn all(directory: &Path) -> Result<Vec<u64>, IndexError> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory)? {
        let name = entry?.file_name();
        found.extend(name.to_str().and_then(|name| name.strip_prefix("runs-")?.parse::<u64>().ok()));
    }
    Ok(found)
}
