//! The schemes that come with the gateway: rows of data, in the syntax that tenants write.

use std::collections::BTreeMap;
use std::sync::Arc;

use config::scheme::SchemeDeclaration;
use serde::Deserialize;

use super::program::Scheme;

/// The rows.
const TEXT: &str = include_str!("../../presets.toml");

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    scheme: Vec<SchemeDeclaration>,
}

/// Every preset, compiled.
#[derive(Debug, Clone)]
pub struct Presets {
    schemes: BTreeMap<Box<str>, Arc<Scheme>>,
    aliases: BTreeMap<Box<str>, Box<str>>,
}

/// The presets of this build are faulty: a defect of ours that no configuration causes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("presets.toml: {}", faults.join("; "))]
pub struct FaultyPresets {
    pub faults: Vec<String>,
}

impl Presets {
    /// Compiles them. Tens of milliseconds at most; do it once.
    pub fn load() -> Result<Self, FaultyPresets> {
        Self::read(TEXT)
    }

    fn read(text: &str) -> Result<Self, FaultyPresets> {
        let file: File = toml::from_str(text).map_err(|fault| FaultyPresets { faults: vec![fault.to_string()] })?;
        let mut schemes = BTreeMap::new();
        let mut aliases = BTreeMap::new();
        let mut faults = Vec::new();
        for declaration in &file.scheme {
            let name = &declaration.name;
            match Scheme::compile(declaration) {
                Ok(scheme) => {
                    if schemes.insert(name.as_str().into(), scheme).is_some() {
                        faults.push(format!("{name}: is there twice"));
                    }
                }
                Err(wrong) => faults.extend(wrong.into_iter().map(|fault| format!("{name}: {fault}"))),
            }
        }
        for declaration in file.scheme {
            for alias in declaration.aliases {
                let name = declaration.name.as_str();
                if schemes.contains_key(alias.as_str()) || aliases.contains_key(alias.as_str()) {
                    faults.push(format!("{name}: its alias {alias} is there twice"));
                }
                aliases.insert(alias.into(), name.into());
            }
        }
        if faults.is_empty() { Ok(Self { schemes, aliases }) } else { Err(FaultyPresets { faults }) }
    }

    /// The preset of this name or alias.
    pub fn get(&self, name: &str) -> Option<&Arc<Scheme>> {
        self.schemes.get(name).or_else(|| self.schemes.get(self.aliases.get(name)?))
    }

    /// All of them, by name.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Scheme>> {
        self.schemes.values()
    }

    pub fn len(&self) -> usize {
        self.schemes.len()
    }

    pub fn is_empty(&self) -> bool {
        self.schemes.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_fault_of_every_row_is_said() {
        let rows = r#"
            [[scheme]]
            name = "a"
            algorithm = "hmac-sha256"
            signature = { header = "X", encoding = "hex" }
            content = "{nonsense}"
            [[scheme]]
            name = "b"
            algorithm = "token"
            signature = { header = "X" }
            [[scheme]]
            name = "b"
            algorithm = "token"
            signature = { }
            content = "{body}"
            [[scheme]]
            name = "b"
            algorithm = "token"
            signature = { header = "Y" }
        "#;
        let faults = Presets::read(rows).unwrap_err().faults;
        assert_eq!(faults.len(), 4, "{faults:#?}");
        assert!(Presets::read("[[scheme]]\nname = \"a\"\nunknown = 1").unwrap_err().to_string().contains("unknown"));
    }
}
