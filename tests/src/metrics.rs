//! The Prometheus text format, as far as a judge needs it.

use std::collections::{BTreeMap, BTreeSet};

/// One scrape.
#[derive(Debug, Clone, Default)]
pub struct Metrics {
    /// Sample name with its labels as printed, and value.
    pub samples: BTreeMap<String, f64>,
    /// Family names with their types.
    pub families: BTreeMap<String, String>,
    /// Families with a `# HELP` line.
    pub helped: BTreeSet<String>,
}

impl Metrics {
    pub fn parse(text: &str) -> Self {
        let mut metrics = Self::default();
        for line in text.lines() {
            if let Some(rest) = line.strip_prefix("# TYPE ") {
                let (name, kind) = rest.split_once(' ').expect("a name and a type");
                metrics.families.insert(name.into(), kind.into());
            } else if let Some(rest) = line.strip_prefix("# HELP ") {
                metrics.helped.insert(rest.split(' ').next().expect("a name").into());
            } else if !line.starts_with('#') && !line.is_empty() {
                let (name, value) = line.rsplit_once(' ').unwrap_or_else(|| panic!("no value in {line:?}"));
                let value = value.parse().unwrap_or_else(|_| panic!("no number in {line:?}"));
                assert!(metrics.samples.insert(name.into(), value).is_none(), "{name} twice");
            }
        }
        metrics
    }

    /// Sum of the samples of this name whose labels contain all of `labels` (`code="x"`).
    pub fn sum(&self, name: &str, labels: &[&str]) -> f64 {
        let of = |sample: &str| sample.split('{').next() == Some(name) && labels.iter().all(|l| sample.contains(l));
        self.samples.iter().filter(|(sample, _)| of(sample)).map(|(_, value)| value).sum()
    }

    /// How many label sets each sample name has.
    pub fn cardinality(&self) -> BTreeMap<&str, usize> {
        let mut counts = BTreeMap::new();
        for sample in self.samples.keys() {
            *counts.entry(sample.split('{').next().expect("a name")).or_default() += 1;
        }
        counts
    }
}
