//! Faults of the configuration, as lines that editors and terminals can jump to.

use super::Shell;
use super::exit::Outcome;
use super::out::Tone;
use crate::control::wire::FaultLine;

/// Prints one a line: `file:line: key: sentence`.
pub(crate) fn print(faults: &[FaultLine], shell: &mut Shell<'_>) -> Outcome<()> {
    for fault in faults {
        let place = fault.line.map_or_else(|| format!("{}:", fault.file), |line| format!("{}:{line}:", fault.file));
        let tone = if is_error(fault) { Tone::Bad } else { Tone::Warn };
        let place = shell.out.paint(Tone::Bold, place);
        let kind = if is_error(fault) { "" } else { " warning:" };
        let key = if fault.key.is_empty() { String::new() } else { format!(" {}:", fault.key) };
        let label = shell.out.paint(tone, format!("{kind}{key}"));
        shell.out.line(format_args!("{place}{label} {}", fault.message))?;
    }
    Ok(())
}

pub(crate) fn is_error(fault: &FaultLine) -> bool {
    fault.severity == "error"
}

/// `1 tenant`, `2 tenants`.
pub(crate) fn counted(count: impl TryInto<u64>, noun: &str) -> String {
    let count = count.try_into().unwrap_or(u64::MAX);
    if count == 1 { format!("1 {noun}") } else { format!("{count} {noun}s") }
}

impl From<&config::Fault> for FaultLine {
    fn from(fault: &config::Fault) -> Self {
        let escaped = |text: &str| domain::text::Untrusted::with_limit(text.as_bytes(), 4096).to_string();
        Self {
            file: domain::text::Untrusted::with_limit(fault.file.as_os_str().as_encoded_bytes(), 4096).to_string(),
            line: fault.line,
            column: fault.column,
            key: escaped(&fault.key),
            message: fault.message.clone(),
            severity: if fault.is_error() { "error" } else { "warning" }.to_owned(),
        }
    }
}
