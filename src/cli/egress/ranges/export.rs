//! `tidegate egress ranges export`: files for any web host.
//!
//! They are written into a directory beside, and the two are exchanged in one step: at no moment is there a document
//! without its signature, or half of either.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use egress::ranges::{Page, Published};
use rustix::fs::{CWD, RenameFlags, renameat_with};
use serde_json::json;

use super::super::super::Shell;
use super::super::super::args::RangesExport;
use super::super::super::exit::{Exit, Failure, Outcome};
use super::super::super::settings;
use super::{published, shown};

/// Where every version is kept.
const VERSIONS: &str = "egress-ranges";

pub(super) fn run(args: &RangesExport, shell: &mut Shell<'_>) -> Outcome {
    let path = settings::appliance(&args.file.config)?.egress.ranges.book;
    let Some(published) = published(&path)? else {
        if args.form.json {
            shell.out.json(&json!({ "ok": false, "code": "book-empty", "message": "nothing is published yet" }))?;
        } else {
            shell.out.line("nothing is published yet: `tidegate egress ranges announce` begins")?;
        }
        return Ok(Exit::No);
    };
    let directory = std::path::absolute(&args.directory).unwrap_or_else(|_| args.directory.clone());
    let name = shown(&directory);
    if let Some(other) = other_than_ours(&directory).map_err(|error| failed(&name, &error))? {
        return Err(Failure::failed(
            format_args!("{name} holds {other}, which is not of an export: it would be gone"),
            "name a directory that is for this alone",
        ));
    }
    let files = write(&directory, &published).map_err(|error| failed(&name, &error))?;
    let serial = published.book().serial();
    if args.form.json {
        shell.out.json(&json!({ "ok": true, "directory": name, "serial": serial, "files": files }))?;
    } else {
        shell.out.line(format_args!("version {serial} is in {name}, {files} files"))?;
        shell.out.remark("serve it as /.well-known/, with egress-ranges.json for application/json");
    }
    Ok(Exit::Yes)
}

fn failed(name: &str, error: &io::Error) -> Failure {
    let next = if matches!(error.kind(), ErrorKind::InvalidInput | ErrorKind::Unsupported) {
        "this file system cannot exchange two directories: export to another one, and copy from there"
    } else {
        "is its parent there, and may this user write to it?"
    };
    Failure::failed(format_args!("could not write {name}: {error}"), next)
}

/// Something in the directory that no export put there.
fn other_than_ours(directory: &Path) -> io::Result<Option<String>> {
    const OURS: [&str; 6] = [
        "egress-ranges.json",
        "egress-ranges.json.sig",
        "egress-ranges.pub.pem",
        "egress-ranges.txt",
        "egress-ranges-geofeed.csv",
        VERSIONS,
    ];
    let foreign = |directory: &Path, is_ours: &dyn Fn(&str) -> bool| -> io::Result<Option<String>> {
        let entries = match fs::read_dir(directory) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            entries => entries?,
        };
        for entry in entries {
            let name = entry?.file_name();
            if !name.to_str().is_some_and(is_ours) {
                return Ok(Some(shown(Path::new(&name))));
            }
        }
        Ok(None)
    };
    let is_version = |name: &str| {
        let number = name.strip_suffix(".sig").unwrap_or(name).strip_suffix(".json");
        number.is_some_and(|number| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()))
    };
    match foreign(directory, &|name| OURS.contains(&name))? {
        Some(other) => Ok(Some(other)),
        None => foreign(&directory.join(VERSIONS), &is_version),
    }
}

/// Writes everything. Returns how many files that were.
fn write(directory: &Path, published: &Published) -> io::Result<usize> {
    let fresh = beside(directory);
    // Of an export that did not come to its end.
    remove(&fresh)?;
    make(&fresh)?;
    make(&fresh.join(VERSIONS))?;
    let versions = (1..=published.book().serial()).filter_map(|serial| published.version(serial)).flatten();
    let mut files = 0;
    for page in published.pages().iter().cloned().chain(versions) {
        put(&fresh, &page)?;
        files += 1;
    }
    File::open(fresh.join(VERSIONS))?.sync_all()?;
    File::open(&fresh)?.sync_all()?;
    match renameat_with(CWD, &fresh, CWD, directory, RenameFlags::EXCHANGE) {
        Err(rustix::io::Errno::NOENT) => fs::rename(&fresh, directory)?,
        exchanged => {
            exchanged?;
            // What was there before lies beside now.
            remove(&fresh)?;
        }
    }
    if let Some(parent) = directory.parent() {
        File::open(parent)?.sync_all()?;
    }
    Ok(files)
}

/// A name that nobody else has files under.
fn beside(directory: &Path) -> PathBuf {
    let name = directory.file_name().unwrap_or_default().to_string_lossy();
    directory.with_file_name(format!(".{name}.tidegate-export"))
}

fn remove(directory: &Path) -> io::Result<()> {
    match fs::remove_dir_all(directory) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

/// Whatever the umask is: a web host reads it.
fn make(directory: &Path) -> io::Result<()> {
    fs::create_dir(directory)?;
    fs::set_permissions(directory, Permissions::from_mode(0o755))
}

fn put(directory: &Path, page: &Page) -> io::Result<()> {
    let path = directory.join(&page.name);
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o644).open(path)?;
    file.set_permissions(Permissions::from_mode(0o644))?;
    file.write_all(&page.bytes)?;
    file.sync_all()
}
