//! The file of kill switches: a JSON list.

use std::io;
use std::path::{Path, PathBuf};

use super::{Scope, Switch};
use crate::state_file;

pub use crate::state_file::Version;

/// Its name in the state directory.
pub const FILE_NAME: &str = "egress.switches";

/// Some thousand switches; whoever needs more wants a rule.
const BYTES_MAX: u64 = 256 << 10;

/// Why switches cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum SwitchesFault {
    /// The file does not let itself be read or written.
    #[error("{path}: {source}", path = .path.display())]
    Io {
        /// Which file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// It holds something else, or more than is kept.
    #[error("{path}: {what}", path = .path.display())]
    Content {
        /// Which file.
        path: PathBuf,
        /// What is wrong.
        what: String,
    },
    /// A switch that names nothing.
    #[error("a switch names a tenant, a connector, a destination or a way")]
    Empty,
}

/// What the file says, and which file that was. Without a file: nothing.
pub fn read(path: &Path) -> Result<(Vec<Switch>, Option<Version>), SwitchesFault> {
    let io = |source| SwitchesFault::Io { path: path.to_owned(), source };
    let content = |what: String| SwitchesFault::Content { path: path.to_owned(), what };
    // Before it is read: what is written in between is read again.
    let Some(version) = Version::of(path).map_err(io)? else { return Ok((Vec::new(), None)) };
    let Some(text) = state_file::read_bounded(path, BYTES_MAX).map_err(io)? else {
        return Err(content(format!("holds more than {} KiB", BYTES_MAX >> 10)));
    };
    let switches: Vec<Switch> =
        serde_json::from_slice(&text).map_err(|error| content(format!("is no list of switches: {error}")))?;
    if switches.iter().any(|switch| switch.scope.is_empty()) {
        return Err(SwitchesFault::Empty);
    }
    Ok((switches, Some(version)))
}

/// Throws a switch; one of the same scope is replaced. Returns when it would survive a power cut.
pub fn throw(path: &Path, switch: Switch) -> Result<(), SwitchesFault> {
    if switch.scope.is_empty() {
        return Err(SwitchesFault::Empty);
    }
    change(path, |switches| {
        switches.retain(|other| other.scope != switch.scope);
        switches.push(switch);
        true
    })
    .map(drop)
}

/// Lifts the switch of this scope. False if none is thrown.
pub fn lift(path: &Path, scope: &Scope) -> Result<bool, SwitchesFault> {
    change(path, |switches| {
        let before = switches.len();
        switches.retain(|other| other.scope != *scope);
        switches.len() < before
    })
}

fn change(path: &Path, change: impl FnOnce(&mut Vec<Switch>) -> bool) -> Result<bool, SwitchesFault> {
    let io = |source| SwitchesFault::Io { path: path.to_owned(), source };
    let _held = state_file::lock(path).map_err(io)?;
    let (mut switches, _) = read(path)?;
    let is_changed = change(&mut switches);
    if is_changed {
        write(path, &switches).map_err(io)?;
    }
    Ok(is_changed)
}

fn write(path: &Path, switches: &[Switch]) -> io::Result<()> {
    let text = serde_json::to_vec_pretty(switches).map_err(io::Error::other)?;
    state_file::replace(path, &text)
}
