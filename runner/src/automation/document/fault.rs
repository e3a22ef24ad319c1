//! What is wrong with a document: all of it at once.

use std::fmt;

use super::bounds::FAULTS_MAX;

/// One thing that is wrong, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// As `nodes[2].retryPolicy.maxAttempts`; empty for the document itself.
    pub path: Box<str>,
    /// Line and column from 1, of a document in YAML and of text that cannot be read at all.
    pub place: Option<(u32, u32)>,
    /// In words for its author; no control characters.
    pub message: Box<str>,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some((line, column)) = self.place {
            write!(f, "{line}:{column}: ")?;
        }
        if !self.path.is_empty() {
            write!(f, "{}: ", self.path)?;
        }
        f.write_str(&self.message)
    }
}

/// All that is wrong; never empty. Behind a hundred it says that there is more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Faults(pub Vec<Fault>);

impl fmt::Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, fault) in self.0.iter().enumerate() {
            if at > 0 {
                f.write_str("\n")?;
            }
            fault.fmt(f)?;
        }
        Ok(())
    }
}

impl std::error::Error for Faults {}

impl Faults {
    pub(super) fn one(message: impl Into<Box<str>>) -> Self {
        Self(vec![Fault { path: "".into(), place: None, message: message.into() }])
    }
}

/// Gathers faults while a document is read.
#[derive(Debug, Default)]
pub(super) struct Gathered {
    faults: Vec<Fault>,
    is_cut: bool,
}

impl Gathered {
    pub(super) fn add(&mut self, path: impl Into<String>, message: impl Into<String>) {
        if self.faults.len() < FAULTS_MAX {
            let (path, message) = (path.into(), message.into());
            let path = path.strip_prefix('.').unwrap_or(&path).into();
            self.faults.push(Fault { path, place: None, message: message.into() });
        } else {
            self.is_cut = true;
        }
    }

    pub(super) fn count(&self) -> usize {
        self.faults.len()
    }

    pub(super) fn into_result<T>(mut self, value: impl FnOnce() -> Option<T>) -> Result<T, Faults> {
        if self.is_cut {
            let message = format!("there are more than these {FAULTS_MAX} faults");
            self.faults.push(Fault { path: "".into(), place: None, message: message.into() });
        }
        if !self.faults.is_empty() {
            return Err(Faults(self.faults));
        }
        value().ok_or_else(|| Faults::one("the document cannot be compiled"))
    }
}
