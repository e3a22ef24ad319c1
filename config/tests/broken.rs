//! One file per mistake. `#! key: words` at the end of a line is a fault that must be found there, `#! warning key: …`
//! a warning, `#!^` one of the line above; nothing else may be found.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use tidegate_config::{Appliance, Fault, MapEnvironment, TenantFiles, TenantsLoad, load_appliance};

struct Expected {
    line: u32,
    warning: bool,
    key: String,
    words: String,
}

fn expected(text: &str) -> Vec<Expected> {
    let lines = text.lines().zip(1..).filter_map(|(line, number)| Some((line.split_once("#!")?.1, number)));
    let one = |(mark, number): (&str, u32)| {
        let (mark, line) = mark.strip_prefix('^').map_or((mark, number), |above| (above, number - 1));
        let mark = mark.trim();
        let (warning, mark) = mark.strip_prefix("warning ").map_or((false, mark), |rest| (true, rest));
        let (key, words) = mark.split_once(':').unwrap();
        Expected { line, warning, key: key.into(), words: words.trim().into() }
    };
    lines.map(one).collect()
}

/// What differs between what was found and what was meant to be, in words.
fn judge(name: &Path, text: &str, found: &[Fault]) -> String {
    let expected = expected(text);
    let mut out = String::new();
    let matches = |fault: &Fault, expected: &Expected| {
        fault.line == Some(expected.line)
            && fault.is_error() != expected.warning
            && fault.key == expected.key
            && fault.message.contains(&expected.words)
    };
    for one in expected.iter().filter(|one| !found.iter().any(|fault| matches(fault, one))) {
        writeln!(out, "{}:{}: not found: {}: {}", name.display(), one.line, one.key, one.words).unwrap();
    }
    for fault in found.iter().filter(|fault| !expected.iter().any(|one| matches(fault, one))) {
        writeln!(out, "not meant: {fault}").unwrap();
    }
    assert!(!expected.is_empty(), "{} expects nothing", name.display());
    out
}

fn fixtures(kind: &str) -> Vec<PathBuf> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/broken").join(kind);
    let mut files: Vec<_> = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(files.len() > 30);
    files
}

#[test]
fn every_mistake_in_the_appliances_file_is_found_where_it_is() {
    let mut wrong = String::new();
    for path in fixtures("appliance") {
        let text = fs::read_to_string(&path).unwrap();
        let (appliance, faults) = load_appliance(&path);
        assert_eq!(appliance.is_some(), expected(&text).iter().all(|one| one.warning), "{}", path.display());
        wrong += &judge(&path, &text, &faults);
    }
    assert!(wrong.is_empty(), "\n{wrong}");
}

#[test]
fn every_mistake_in_a_tenants_file_is_found_where_it_is() {
    let root = tempfile::tempdir().unwrap();
    let mut appliance = Appliance::default();
    appliance.tenants.directory = root.path().into();
    appliance.tenants.allow_env = vec!["ACME_*".into()];
    let secrets = root.path().join("acme.secrets");
    fs::create_dir(&secrets).unwrap();
    for (name, value, mode) in
        [("good", "s1\n", 0o600), ("empty", "\n", 0o600), ("readable", "s2", 0o644), ("unfit", " s3", 0o600)]
    {
        fs::write(secrets.join(name), value).unwrap();
        fs::set_permissions(secrets.join(name), fs::Permissions::from_mode(mode)).unwrap();
    }
    let environment = MapEnvironment::new([("HOME", "/root")]);
    let mut wrong = String::new();
    for path in fixtures("tenant") {
        let text = fs::read_to_string(&path).unwrap();
        fs::write(root.path().join("acme.toml"), &text).unwrap();
        let load: TenantsLoad =
            TenantFiles::without_state().load(&appliance, &environment, &mut |tenant| (Some(tenant), Vec::new()));
        assert_eq!(load.tenants.len() == 1, expected(&text).iter().all(|one| one.warning), "{}", path.display());
        assert!(load.faults.iter().all(|fault| !fault.message.contains("hunter2")));
        wrong += &judge(&path, &text, &load.faults);
    }
    assert!(wrong.is_empty(), "\n{wrong}");
}
