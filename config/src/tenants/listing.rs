//! Which tenants' files are there.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use domain::TenantId;

use super::{Unavailable, recover};
use crate::fault::Fault;
use crate::read;
use crate::tenant::file_of;

/// Entries of the directory that are looked at for each file that may be there: secrets directories, editors' files.
const ENTRIES_PER_FILE: usize = 4;

/// Files that belong to nobody are named in faults up to this many.
const STRANGERS_MAX: usize = 100;

/// Files that are passed over are named up to this many.
const PASSED_OVER_MAX: usize = 10;

/// Enough of such a file to make out what it was meant to have.
const STRANGER_BYTES_MAX: u64 = 64 * 1024;

/// Whether a tenant's file is there, faulty or not; none where that cannot be told.
pub fn is_tenant_there(directory: &Path, tenant: &TenantId) -> Option<bool> {
    match std::fs::metadata(file_of(directory, tenant.as_str())) {
        Ok(_) => Some(true),
        // A directory that is not there says nothing of what should be in it.
        Err(fault) if fault.kind() == std::io::ErrorKind::NotFound => directory.is_dir().then_some(false),
        Err(_) => None,
    }
}

/// Files beside the tenants' own that are passed over, in order and at most a few: one of them may have been meant to be
/// a tenant's. Hidden files and directories are somebody else's.
pub fn files_passed_over(directory: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(directory) else { return Vec::new() };
    let is_meant = |name: &[u8]| !name.starts_with(b".") && !name.ends_with(b".toml");
    let is_passed_over = |entry: &std::fs::DirEntry| {
        is_meant(entry.file_name().as_bytes()) && entry.file_type().is_ok_and(|kind| !kind.is_dir())
    };
    let mut found: Vec<PathBuf> =
        entries.flatten().filter(is_passed_over).map(|entry| entry.path()).take(STRANGERS_MAX).collect();
    found.sort();
    found.truncate(PASSED_OVER_MAX);
    found
}

#[derive(Debug, Default)]
pub(crate) struct Listing {
    /// In order.
    pub(crate) ids: Vec<TenantId>,
    pub(crate) faults: Vec<Fault>,
    /// Files whose names are no ids.
    pub(crate) strangers: Vec<(Fault, Unavailable)>,
    /// The directory could not be listed: these are those who were there.
    pub(crate) unread: bool,
    /// Not every entry was looked at: who is not here may be there all the same.
    pub(crate) capped: bool,
}

/// Lists `<tenant>.toml` files. Above `files_max` only those are taken that are known already.
/// Where it cannot be listed, a sentence, and whether that passes by itself.
pub(crate) fn list(
    directory: &Path,
    files_max: usize,
    known: impl Fn(&TenantId) -> bool,
) -> Result<Listing, (String, bool)> {
    let unlisted = |fault: std::io::Error| {
        let message = format!(
            "cannot be listed: {fault}; create it, or set tenants.directory. Until then every tenant stays as it was"
        );
        (message, read::is_passing(&fault))
    };
    let entries = std::fs::read_dir(directory).map_err(unlisted)?;
    let mut ids = Vec::new();
    let mut strangers = Vec::new();
    let mut faults = Vec::new();
    let mut capped = false;
    for (seen, entry) in entries.enumerate() {
        let name = entry.map_err(unlisted)?.file_name();
        if seen >= files_max.saturating_mul(ENTRIES_PER_FILE).saturating_add(1024) {
            let message = "has far more entries than tenants.files_max; the rest is not read";
            faults.push(Fault::error(directory, "tenants.directory", message));
            capped = true;
            break;
        }
        // Hidden files are editors' and mounts' own.
        let Some(stem) = name.as_bytes().strip_suffix(b".toml").filter(|stem| !stem.starts_with(b".")) else {
            continue;
        };
        match std::str::from_utf8(stem).map(TenantId::parse) {
            Ok(Ok(id)) => ids.push(id),
            Ok(Err(fault)) => {
                strangers.push((directory.join(&name), format!("is named after no tenant: the id {fault}")));
            }
            Err(_) => strangers.push((directory.join(&name), "is named after no tenant: the name is not UTF-8".into())),
        }
    }
    ids.sort_unstable();
    if ids.len() > files_max {
        // A lowered bound, or one file too many, removes nobody.
        let taken = files_max.max(ids.iter().filter(|id| known(id)).count());
        let message = format!(
            "has {} tenants' files and tenants.files_max is {files_max}; {} are not read. Raise it",
            ids.len(),
            ids.len() - taken
        );
        faults.push(Fault::error(directory, "tenants.files_max", message));
        ids.sort_by_cached_key(|id| (!known(id), id.clone()));
        ids.truncate(taken);
        ids.sort_unstable();
    }
    strangers.sort();
    let strangers = strangers.into_iter().take(STRANGERS_MAX).map(|(file, message)| {
        let start = read::start(&file, STRANGER_BYTES_MAX).unwrap_or_default();
        let (endpoints, aliases) = recover::recover(&start, 1024);
        let fault = Fault::error(&file, "", format!("{message}; rename it to <tenant>.toml"));
        (fault, Unavailable { file, endpoints, aliases })
    });
    Ok(Listing { ids, faults, strangers: strangers.collect(), unread: false, capped })
}
