//! Rules of a file, from what was written to what is matched.

use std::path::Path;
use std::sync::Arc;

use config::EgressRule;
use http::Method;
use outbound::HostPattern;

use super::no_host;
use crate::policy::{PathPrefix, Place, Rule, Rules};

/// A file that has rules.
pub(super) struct RuleFile {
    pub(super) file: Arc<Path>,
}

impl RuleFile {
    pub(super) fn new(file: &Path) -> Self {
        Self { file: file.into() }
    }

    /// One list. Rules that are none are said and left out.
    pub(super) fn list(&self, written: &[EgressRule], key: &str, say: &mut impl FnMut(u32, &str, String)) -> Rules {
        let compiled = written.iter().filter_map(|rule| match self.rule(rule) {
            Ok(rule) => Some(Arc::new(rule)),
            Err(fault) => {
                say(rule.line, key, fault);
                None
            }
        });
        Rules::new(compiled)
    }

    fn rule(&self, written: &EgressRule) -> Result<Rule, String> {
        let hosts = HostPattern::parse(&written.host).map_err(|fault| no_host(&written.host, &fault))?;
        let method = |text: &String| Method::from_bytes(text.as_bytes()).map_err(|_| format!("{text:?} is no method"));
        let methods = written.methods.iter().map(method).collect::<Result<Box<[_]>, _>>()?;
        let path = |text: &String| PathPrefix::parse(text).map_err(|fault| format!("{text:?} is no path: {fault}"));
        let paths = written.paths.iter().map(path).collect::<Result<Box<[_]>, _>>()?;
        Ok(Rule {
            name: written.name.as_deref().map(Into::into),
            place: Some(Place { file: Arc::clone(&self.file), line: written.line }),
            hosts,
            ports: some(written.ports.as_slice().into()),
            methods: some(methods),
            paths: some(paths),
            mode: written.mode,
        })
    }
}

/// Nothing written means nothing bounded.
fn some<T>(values: Box<[T]>) -> Option<Box<[T]>> {
    if values.is_empty() { None } else { Some(values) }
}
