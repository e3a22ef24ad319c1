//! What is wrong in a file: where, which key, and a sentence that says what to do.

use std::fmt;
use std::path::{Path, PathBuf};

use domain::text::Untrusted;
use serde::{Serialize, Serializer};

/// Does the fault keep the file from being used?
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Severity {
    /// The file is not used.
    Error,
    /// The file is used; somebody should look all the same.
    Warning,
}

/// One thing that is wrong. Shown as `file:line: key: sentence`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Fault {
    #[serde(serialize_with = "shown_path")]
    pub file: PathBuf,
    /// Counted from 1; none where the fault is about the whole file.
    pub line: Option<u32>,
    /// Counted from 1, in characters.
    pub column: Option<u32>,
    /// Dotted path of the key, such as `gateway.listener.idle_timeout` or `endpoint[2].scheme`; may be empty.
    pub key: String,
    pub message: String,
    pub severity: Severity,
}

impl Fault {
    pub fn error(file: impl Into<PathBuf>, key: impl Into<String>, message: impl Into<String>) -> Self {
        let (key, message) = (key.into(), message.into());
        Self { file: file.into(), line: None, column: None, key, message, severity: Severity::Error }
    }

    pub fn warning(file: impl Into<PathBuf>, key: impl Into<String>, message: impl Into<String>) -> Self {
        Self { severity: Severity::Warning, ..Self::error(file, key, message) }
    }

    #[must_use]
    pub fn at(self, line: u32) -> Self {
        Self { line: Some(line), ..self }
    }

    pub fn is_error(&self) -> bool {
        self.severity == Severity::Error
    }
}

/// Whether any of them keeps its file from being used.
pub fn has_errors(faults: &[Fault]) -> bool {
    faults.iter().any(Fault::is_error)
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", shown(&self.file))?;
        if let Some(line) = self.line {
            write!(f, "{line}:")?;
        }
        if self.severity == Severity::Warning {
            f.write_str(" warning:")?;
        }
        if !self.key.is_empty() {
            write!(f, " {}:", self.key)?;
        }
        write!(f, " {}", self.message)
    }
}

/// Names of files come from outside too.
pub(crate) fn shown(path: &Path) -> String {
    use std::os::unix::ffi::OsStrExt;
    Untrusted::with_limit(path.as_os_str().as_bytes(), 1024).to_string()
}

fn shown_path<S: Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&shown(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_as_a_compiler_would_say_it() {
        let fault = Fault::error("tidegate.toml", "log.shards", "is 0; write 1 to 64").at(7);
        assert_eq!(fault.to_string(), "tidegate.toml:7: log.shards: is 0; write 1 to 64");
        let fault = Fault::warning("a\x1b[2J.toml", "", "look");
        assert_eq!(fault.to_string(), "a\\u{1b}[2J.toml: warning: look");
        assert!(!has_errors(&[fault]));
    }
}
