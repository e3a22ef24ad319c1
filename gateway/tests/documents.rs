//! The table of presets in the documents is made of the rows. `TIDEGATE_BLESS=1` writes it anew.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fmt::Write as _;
use std::path::Path;

use tidegate_gateway::scheme::{Presets, Proven, Scheme};

const HEAD: &str = "\
# Presets

Made of the rows of `gateway/presets.toml`; `tidegate schemes show NAME` prints one whole. [Schemes](schemes.md) explains the words.

- **body**: `covered`: the signature covers it; `not covered`: the sender is authenticated, the body could be anybody's.
- **id**: what the provider calls the delivery: `signed`, fit for telling duplicates apart; `unsigned`, a hint that anybody can
  change; or none.
- **evidence**: `known answer`: the row agrees with an answer that the provider published or that its own library gave, which stands
  behind it; `constructed`: the row was read where `from` says, and its answers were made by another implementation.
- **checked**: when the row was last compared with its source.

| preset | provider | algorithm | body | id | evidence | from | checked |
|---|---|---|---|---|---|---|---|
";

fn row(scheme: &Scheme) -> String {
    let row = scheme.declaration();
    let algorithm = serde_json::to_value(row.algorithm).unwrap();
    let aliases = row.aliases.iter().map(|alias| format!(", `{alias}`")).collect::<Vec<_>>().concat();
    let body = if scheme.covers_body() { "covered" } else { "not covered" };
    let id = match (&row.delivery_id, scheme.delivery_id_signed()) {
        (None, _) => "",
        (Some(_), true) => "signed",
        (Some(_), false) => "unsigned",
    };
    let proven = scheme.proven();
    let from = match proven {
        Proven::KnownAnswer { source } => source,
        Proven::Constructed | Proven::Nothing => &row.source,
    };
    format!(
        "| `{}`{aliases} | {} | `{}` | {body} | {id} | {} | {} | {} |\n",
        row.name,
        row.title.replace('|', "\\|"),
        algorithm.as_str().unwrap(),
        proven.label(),
        from.replace('|', "\\|"),
        row.checked,
    )
}

#[test]
fn the_table_of_presets_is_made_of_the_rows() {
    let presets = Presets::load().unwrap();
    let mut made = HEAD.to_owned();
    for scheme in presets.iter() {
        made.push_str(&row(scheme));
    }
    let known = presets.iter().filter(|scheme| matches!(scheme.proven(), Proven::KnownAnswer { .. })).count();
    writeln!(made, "\n{} presets, {known} of them with a known answer.", presets.len()).unwrap();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/presets.md");
    if std::env::var_os("TIDEGATE_BLESS").is_some() {
        std::fs::write(&path, &made).unwrap();
    }
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        written == made,
        "docs/presets.md is not what the rows say: run TIDEGATE_BLESS=1 cargo test -p tidegate-gateway"
    );
}

#[test]
fn what_is_counted_in_the_readme_is_right() {
    let readme = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../README.md")).unwrap();
    let presets = Presets::load().unwrap().len();
    assert!(
        readme.contains(&format!("{presets} schemes are rows")),
        "README.md counts other presets than these {presets}"
    );
}
