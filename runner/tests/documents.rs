//! What is written about automations is what the code does. `TIDEGATE_BLESS=1` writes the schema anew.

use std::path::{Path, PathBuf};

use tidegate_runner::automation::{Draft, Format, published_schema};

fn docs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs")
}

#[test]
fn the_published_schema_is_what_documents_are_read_by() {
    let path = docs().join("schema/automation.schema.json");
    let made = format!("{}\n", serde_json::to_string_pretty(&published_schema()).unwrap());
    if std::env::var_os("TIDEGATE_BLESS").is_some() {
        std::fs::write(&path, &made).unwrap();
    }
    assert!(
        std::fs::read_to_string(&path).unwrap_or_default() == made,
        "docs/schema/automation.schema.json is not what the code says: run TIDEGATE_BLESS=1 cargo test -p tidegate-runner"
    );
}

/// Fenced blocks of a page, with their language.
fn blocks(page: &str) -> Vec<(&str, String)> {
    let mut blocks = Vec::new();
    let mut lines = page.lines();
    while let Some(line) = lines.next() {
        if let Some(language) = line.strip_prefix("```").filter(|language| !language.is_empty()) {
            let inside: Vec<&str> = lines.by_ref().take_while(|line| !line.starts_with("```")).collect();
            blocks.push((language, format!("{}\n", inside.join("\n"))));
        }
    }
    blocks
}

/// A whole automation, and not a part of one or something else.
fn is_automation(text: &str) -> bool {
    let has = |key: &str| text.lines().any(|line| line.starts_with(&format!("{key}:")));
    has("name") && has("nodes") || text.starts_with('{') && text.contains("\"nodes\"") && text.contains("\"name\"")
}

#[test]
fn every_example_is_sound() {
    let validator = jsonschema::draft202012::new(&published_schema()).unwrap();
    let mut examples = 0;
    for page in std::fs::read_dir(docs()).unwrap() {
        let path = page.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "md") {
            continue;
        }
        for (language, text) in blocks(&std::fs::read_to_string(&path).unwrap()) {
            let format = match language {
                "yaml" => Format::Yaml,
                "json" => Format::Json,
                _ => continue,
            };
            if !is_automation(&text) {
                continue;
            }
            let draft = Draft::read(&text, format).unwrap_or_else(|why| panic!("{}: {why}\n{text}", path.display()));
            let value = serde_json::from_str(draft.json()).unwrap();
            let errors: Vec<String> = validator.iter_errors(&value).map(|error| error.to_string()).collect();
            assert!(errors.is_empty(), "{}: {errors:?}\n{text}", path.display());
            examples += 1;
        }
    }
    assert!(examples >= 4, "examples are found: {examples}");
}
