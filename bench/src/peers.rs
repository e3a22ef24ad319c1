//! What a user would pick instead, fetched by package name into a scratch directory when it is needed, and kept there
//! for the next run. Nothing of it is part of this project.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::Result;

/// The directory in which npm has put Restate's server and SDK.
pub fn restate(scratch: &Path) -> Result<PathBuf> {
    let modules = scratch.join("npm");
    if !modules.join("node_modules/@restatedev/restate-server").exists() {
        fs::create_dir_all(&modules)?;
        run(Command::new("npm")
            .args(["install", "--no-audit", "--no-fund", "--silent", "--prefix"])
            .arg(&modules)
            .args(["@restatedev/restate-server", "@restatedev/restate-sdk"]))?;
    }
    Ok(modules)
}

/// qhook's binary.
pub fn qhook(scratch: &Path) -> Result<PathBuf> {
    let root = scratch.join("cargo");
    let binary = root.join("bin/qhook");
    if !binary.exists() {
        run(Command::new("cargo").args(["install", "--quiet", "--locked", "--root"]).arg(&root).arg("qhook"))?;
    }
    Ok(binary)
}

/// The version of it, for the report: it does not say so itself.
pub fn qhook_version(scratch: &Path) -> String {
    let list = fs::read_to_string(scratch.join("cargo/.crates.toml")).unwrap_or_default();
    let version = list.split_once("\"qhook ").and_then(|(_, rest)| rest.split_once(' '));
    version.map_or_else(|| "qhook, version unknown".into(), |(version, _)| format!("qhook {version}"))
}

/// What a program says its version is.
pub fn version(command: &mut Command) -> String {
    let output = command.arg("--version").output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    text.ok().filter(|text| !text.is_empty()).unwrap_or_else(|| "version unknown".into())
}

fn run(command: &mut Command) -> Result<()> {
    eprintln!("fetching: {command:?}");
    let status = command.status().map_err(|error| format!("{}: {error}", command.get_program().display()))?;
    if status.success() { Ok(()) } else { Err(format!("{command:?}: {status}").into()) }
}
