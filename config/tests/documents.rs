//! What is written about the configuration is what the code does. `TIDEGATE_BLESS=1` writes it anew.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::{Path, PathBuf};

use tidegate_config as config;

fn docs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs")
}

#[track_caller]
fn same(name: &str, made: &str) {
    let path = docs().join(name);
    if std::env::var_os("TIDEGATE_BLESS").is_some() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, made).unwrap();
    }
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        written == made,
        "docs/{name} is not what the code says: run TIDEGATE_BLESS=1 cargo test -p tidegate-config"
    );
}

fn pretty(value: &serde_json::Value) -> String {
    format!("{}\n", serde_json::to_string_pretty(value).unwrap())
}

#[test]
fn the_reference_is_what_the_loader_reads() {
    same("configuration.md", &config::reference_markdown());
}

#[test]
fn the_list_of_connectors_is_what_is_shipped() {
    let catalogue = config::connector::Catalogue::shipped().unwrap();
    same("connectors.md", &config::connector::connectors_markdown(&catalogue));
}

#[test]
fn the_schemas_are_what_the_loader_reads() {
    same("schema/tidegate.schema.json", &pretty(&config::appliance_schema()));
    same("schema/tenant.schema.json", &pretty(&config::tenant_schema()));
}

/// Every leaf of the reference has a reason, and every size and duration its unit.
#[test]
fn every_default_has_its_reason() {
    let text = config::reference_markdown();
    for line in text.lines().filter(|line| line.starts_with("| `") && line.matches('|').count() > 4) {
        assert!(line.ends_with(".* |") || line.contains("| table |"), "no reason: {line}");
    }
}
