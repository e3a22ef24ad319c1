//! Where names in `env:` and `systemd-credential:` references are looked up: the process's environment, or a map
//! in tests.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;

/// The variables that configuration may ask for.
pub trait Environment: Send + Sync + fmt::Debug {
    fn variable(&self, name: &str) -> Option<OsString>;
}

/// The environment that this process was started with.
#[derive(Debug, Clone, Copy, Default)]
pub struct ProcessEnvironment;

impl Environment for ProcessEnvironment {
    fn variable(&self, name: &str) -> Option<OsString> {
        std::env::var_os(name)
    }
}

/// A fixed set of variables, for tests.
#[derive(Clone, Default)]
pub struct MapEnvironment(BTreeMap<String, OsString>);

impl MapEnvironment {
    pub fn new<K: Into<String>, V: Into<OsString>>(variables: impl IntoIterator<Item = (K, V)>) -> Self {
        Self(variables.into_iter().map(|(name, value)| (name.into(), value.into())).collect())
    }

    pub fn set(&mut self, name: &str, value: &str) {
        self.0.insert(name.into(), value.into());
    }

    pub fn unset(&mut self, name: &str) {
        self.0.remove(name);
    }
}

impl Environment for MapEnvironment {
    fn variable(&self, name: &str) -> Option<OsString> {
        self.0.get(name).cloned()
    }
}

impl fmt::Debug for MapEnvironment {
    /// Names only: values are secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}
