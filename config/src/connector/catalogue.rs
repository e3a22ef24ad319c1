//! All manifests: those that come with Tidegate, and those of an operator's directory.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use domain::ConnectorId;

use super::manifest::Manifest;
use crate::fault::{Fault, has_errors};
use crate::read;
use crate::units::KIB;

/// Far above any manifest; what is larger is another file.
const FILE_BYTES_MAX: u64 = 256 * KIB;

/// Manifests in a directory: there are not so many providers.
const FILES_MAX: usize = 10_000;

macro_rules! shipped {
    ($($name:literal),+ $(,)?) => {
        &[$(($name, include_str!(concat!("../../connectors/", $name, ".toml"))),)+]
    };
}

const SHIPPED: &[(&str, &str)] = shipped![
    "airtable",
    "amazon-sp-api",
    "anthropic",
    "asana",
    "discord",
    "exact-online",
    "github",
    "google",
    "http",
    "hubspot",
    "intercom",
    "jira",
    "klaviyo",
    "linear",
    "meta",
    "microsoft-graph",
    "notion",
    "openai",
    "quickbooks",
    "salesforce",
    "sendgrid",
    "shopify",
    "slack",
    "stripe",
    "twilio",
    "xero",
    "zendesk",
    "zoom",
];

/// Connectors by name.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Catalogue(BTreeMap<ConnectorId, Arc<Manifest>>);

impl Catalogue {
    /// The manifests that come with Tidegate.
    ///
    /// # Errors
    /// They are faulty: a fault of ours, which a test finds before anybody else does.
    pub fn shipped() -> Result<Self, Vec<Fault>> {
        let (mut catalogue, mut faults) = (Self::default(), Vec::new());
        for (name, text) in SHIPPED {
            catalogue.add(Path::new(&format!("{name}.toml")), name, text.as_bytes(), &mut faults);
        }
        if has_errors(&faults) { Err(faults) } else { Ok(catalogue) }
    }

    /// These, and those of a directory: one of the same name takes the place of the one before. Nothing where any of them
    /// is faulty: a connector that fell back to a wider one would not be noticed.
    pub fn with_directory(mut self, directory: &Path) -> (Option<Self>, Vec<Fault>) {
        let mut faults = Vec::new();
        let names = match list(directory) {
            Ok(names) => names,
            Err(message) => return (None, vec![Fault::error(directory, "connectors.directory", message)]),
        };
        for name in names {
            let path = directory.join(format!("{name}.toml"));
            match read::file(&path, FILE_BYTES_MAX) {
                Ok((bytes, _)) => self.add(&path, &name, &bytes, &mut faults),
                Err(fault) => faults.push(Fault::error(&path, "", fault.to_string())),
            }
        }
        ((!has_errors(&faults)).then_some(self), faults)
    }

    fn add(&mut self, path: &Path, name: &str, bytes: &[u8], faults: &mut Vec<Fault>) {
        let Ok(id) = ConnectorId::parse(name) else {
            let message = "has no name of a connector: write NAME.toml, in letters, digits, - and _";
            faults.push(Fault::error(path, "", message));
            return;
        };
        let (manifest, found) = Manifest::parse(path, &id, bytes);
        faults.extend(found);
        if let Some(manifest) = manifest {
            self.0.insert(id, Arc::new(manifest));
        }
    }

    pub fn get(&self, connector: &ConnectorId) -> Option<&Arc<Manifest>> {
        self.0.get(connector)
    }

    /// All of them, by name.
    pub fn manifests(&self) -> impl Iterator<Item = &Arc<Manifest>> {
        self.0.values()
    }
}

/// Names of the manifests in a directory, sorted; hidden files and other kinds are not looked at.
fn list(directory: &Path) -> Result<Vec<String>, String> {
    let cannot = |fault: std::io::Error| format!("cannot be listed: {fault}");
    let mut names = Vec::new();
    for entry in std::fs::read_dir(directory).map_err(cannot)? {
        let name = entry.map_err(cannot)?.file_name();
        let name = name.to_string_lossy();
        if let Some(stem) = name.strip_suffix(".toml").filter(|stem| !stem.starts_with('.')) {
            names.push(stem.to_owned());
        }
        if names.len() > FILES_MAX {
            return Err(format!("has more than {FILES_MAX} manifests; name a directory of nothing else"));
        }
    }
    names.sort_unstable();
    Ok(names)
}
