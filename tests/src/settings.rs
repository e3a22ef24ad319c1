//! Configuration as an operator would write it: text, made of tenants and endpoints.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

/// A tenant's file in the making.
#[derive(Debug, Clone)]
pub struct Tenant {
    pub id: String,
    pub endpoints: Vec<Endpoint>,
    tables: BTreeMap<String, BTreeMap<String, String>>,
    extra: String,
}

/// One `[[endpoint]]`.
#[derive(Debug, Clone)]
pub struct Endpoint {
    pub id: String,
    pub scheme: String,
    /// Name and value.
    pub secrets: Vec<(String, String)>,
    keys: BTreeMap<String, String>,
}

pub fn tenant(id: &str) -> Tenant {
    Tenant { id: id.into(), endpoints: Vec::new(), tables: BTreeMap::new(), extra: String::new() }
}

/// An endpoint of the GitHub scheme; its one secret, `primary`, is `the secret of {id}`.
pub fn endpoint(id: &str) -> Endpoint {
    let secret = format!("the secret of {id}");
    Endpoint {
        id: id.into(),
        scheme: "github".into(),
        secrets: vec![("primary".into(), secret)],
        keys: BTreeMap::new(),
    }
}

impl Tenant {
    #[must_use]
    pub fn endpoint(mut self, endpoint: Endpoint) -> Self {
        self.endpoints.push(endpoint);
        self
    }

    /// `[table]` gets `key = value`; the value is TOML.
    #[must_use]
    pub fn set(mut self, table: &str, key: &str, value: &str) -> Self {
        self.tables.entry(table.into()).or_default().insert(key.into(), value.into());
        self
    }

    /// TOML that goes to the end as it is.
    #[must_use]
    pub fn extra(mut self, text: &str) -> Self {
        self.extra.push_str(text);
        self
    }

    pub fn toml(&self) -> String {
        let mut out = format!("tenant = \"{}\"\n", self.id);
        write_tables(&mut out, &self.tables);
        for endpoint in &self.endpoints {
            let _ = writeln!(out, "\n[[endpoint]]\nid = \"{}\"\nscheme = \"{}\"", endpoint.id, endpoint.scheme);
            let secrets: Vec<_> = endpoint
                .secrets
                .iter()
                .map(|(name, _)| format!("{{ name = \"{name}\", value = \"secret:{}-{name}\" }}", endpoint.id))
                .collect();
            if !endpoint.keys.contains_key("secrets") {
                let _ = writeln!(out, "secrets = [{}]", secrets.join(", "));
            }
            for (key, value) in &endpoint.keys {
                let _ = writeln!(out, "{key} = {value}");
            }
        }
        out.push_str(&self.extra);
        out
    }

    /// Writes the file and the secrets that it names. The file appears in one step, as a careful deployment does it.
    pub fn write(&self, directory: &Path) {
        let secrets = directory.join(format!("{}.secrets", self.id));
        std::fs::create_dir_all(&secrets).expect("a directory for secrets");
        restrict(&secrets, 0o700);
        for endpoint in &self.endpoints {
            for (name, value) in &endpoint.secrets {
                let path = secrets.join(format!("{}-{name}", endpoint.id));
                std::fs::write(&path, value).expect("a secret");
                restrict(&path, 0o600);
            }
        }
        replace(&directory.join(format!("{}.toml", self.id)), &self.toml());
    }
}

impl Endpoint {
    #[must_use]
    pub fn scheme(mut self, scheme: &str) -> Self {
        self.scheme = scheme.into();
        self
    }

    /// Replaces the secrets by this one.
    #[must_use]
    pub fn secret(mut self, name: &str, value: &str) -> Self {
        self.secrets = vec![(name.into(), value.into())];
        self
    }

    #[must_use]
    pub fn another_secret(mut self, name: &str, value: &str) -> Self {
        self.secrets.push((name.into(), value.into()));
        self
    }

    /// `key = value` in this endpoint's table; the value is TOML.
    #[must_use]
    pub fn set(mut self, key: &str, value: &str) -> Self {
        self.keys.insert(key.into(), value.into());
        self
    }
}

/// Writes `[table]`s of keys, in order.
pub fn write_tables(out: &mut String, tables: &BTreeMap<String, BTreeMap<String, String>>) {
    for (table, keys) in tables {
        let _ = writeln!(out, "\n[{table}]");
        for (key, value) in keys {
            let _ = writeln!(out, "{key} = {value}");
        }
    }
}

/// Replaces a file in one step.
pub fn replace(path: &Path, text: &str) {
    let beside = path.with_extension("new");
    std::fs::write(&beside, text).expect("a file beside");
    std::fs::rename(&beside, path).expect("a rename");
}

fn restrict(path: &Path, mode: u32) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("its mode");
}
