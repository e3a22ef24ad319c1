//! Words in step: what the code says and what the documents say are the same words, and what must not be in the tree
//! is not there.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use domain::Refusal;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace").to_owned()
}

fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|fault| panic!("{path}: {fault}"))
}

/// Every text file that git knows, with its content.
fn tree() -> Vec<(String, String)> {
    let output = Command::new("git").arg("-C").arg(root()).args(["ls-files", "-z"]).output().expect("git runs");
    assert!(output.status.success(), "git ls-files: {}", String::from_utf8_lossy(&output.stderr));
    let names = String::from_utf8(output.stdout).expect("names are UTF-8");
    let names = names.split('\0').filter(|name| !name.is_empty());
    // A file that is deleted and not yet committed is no part of the tree any more; one that is no text has no words.
    names.filter_map(|name| Some((name.to_owned(), std::fs::read_to_string(root().join(name)).ok()?))).collect()
}

/// Sections of a document: heading and text.
fn sections(document: &str) -> Vec<(&str, &str)> {
    document.split("\n## ").skip(1).map(|section| section.split_once('\n').expect("a section has a body")).collect()
}

#[test]
fn every_refusal_has_a_section_and_a_row() {
    let document = read("docs/refusals.md");
    let sections = sections(&document);
    let headings: Vec<&str> = sections.iter().map(|(heading, _)| *heading).collect();
    let codes: Vec<&str> = Refusal::ALL.iter().map(|refusal| refusal.code()).collect();
    assert_eq!(headings, codes, "sections stand in the order in which the accept path can say them");
    for (code, text) in sections {
        for part in ["**What happened.**", "**Sender.**", "**Operator.**"] {
            assert!(text.contains(part), "docs/refusals.md, {code}: no {part}");
        }
        assert!(document.contains(&format!("| `{code}` | ")), "docs/refusals.md: no row for {code}");
    }
}

#[test]
fn ignored_tests_say_why() {
    let unexplained = concat!("#[ign", "ore]");
    for (name, text) in tree() {
        assert!(!text.contains(unexplained), "{name} ignores a test without a reason");
    }
}

#[test]
fn no_path_of_a_machine_is_in_the_tree() {
    // Written apart, so that this file does not find itself.
    let homes = [concat!("/ho", "me/"), concat!("/ro", "ot/"), concat!("/Us", "ers/"), concat!("/tm", "p/wt-")];
    let lock = "Cargo.lock";
    for (name, text) in tree().iter().filter(|(name, _)| !name.ends_with(lock)) {
        for (number, line) in text.lines().enumerate() {
            let found = homes.iter().find(|home| line.contains(**home));
            assert!(found.is_none(), "{name}:{}: {}", number + 1, found.unwrap_or(&""));
        }
    }
}

#[test]
fn every_dependency_is_explained() {
    let explained = read("docs/dependencies.md");
    let manifest = read("Cargo.toml");
    let table = manifest.split("[workspace.dependencies]").nth(1).expect("the table");
    let table = table.split("\n[").next().expect("its end");
    let names: BTreeSet<&str> = table
        .lines()
        .filter(|line| !line.starts_with('#') && !line.contains("path ="))
        .filter_map(|line| line.split_once(" = ").map(|(name, _)| name))
        .collect();
    assert!(names.len() > 10, "the table was not read: {names:?}");
    let missing: Vec<_> = names.iter().filter(|name| !explained.contains(&format!("`{name}`"))).collect();
    assert!(missing.is_empty(), "docs/dependencies.md does not say why these are here: {missing:?}");
}

#[test]
fn members_use_only_what_the_workspace_explains() {
    for (name, text) in tree().iter().filter(|(name, _)| name.ends_with("Cargo.toml") && name.contains('/')) {
        // Workspaces of their own.
        if name.starts_with("fuzz/") || name.starts_with("tests/clients/") {
            continue;
        }
        let mut table = "";
        for line in text.lines() {
            if line.starts_with('[') {
                table = line;
            } else if table.ends_with("dependencies]") && line.contains('=') && !line.starts_with('#') {
                assert!(line.contains("workspace = true"), "{name}: `{line}` names its own version");
            }
        }
    }
}
