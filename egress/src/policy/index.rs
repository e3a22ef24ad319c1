//! Which of many patterns cover a host, in a time that does not grow with their number.
//!
//! Exact hosts are one look-up; zones are one for each label of the name, as far as the deepest zone goes. A handful of
//! patterns, which is what nearly every tenant has, are compared one by one: that is quicker still, and costs no table.

use std::hash::{DefaultHasher, Hash, Hasher};

use hashbrown::HashTable;
use outbound::{Host, HostPattern};

/// What is found by its pattern.
pub trait Indexed {
    /// Its hosts.
    fn pattern(&self) -> &HostPattern;
}

/// Entries by pattern. Several may have the same one.
#[derive(Debug, Clone)]
pub struct HostIndex<T> {
    /// Exact hosts first, then zones from the deepest to the shallowest; those with one pattern are neighbours, in the
    /// order in which they came.
    entries: Box<[T]>,
    /// The first entry of each pattern; empty where entries are compared one by one.
    table: HashTable<u32>,
    /// Labels of the deepest zone.
    zone_labels_max: usize,
}

impl<T> Default for HostIndex<T> {
    fn default() -> Self {
        Self { entries: Box::default(), table: HashTable::new(), zone_labels_max: 0 }
    }
}

/// Up to here comparing is quicker than hashing the labels of a name.
const COMPARED_MAX: usize = 8;

/// One look-up's key. Host and zone of the same text are different keys.
#[derive(Clone, Copy, Hash, PartialEq)]
enum Key<'a> {
    Exactly(&'a Host),
    Within(&'a str),
}

impl<'a> Key<'a> {
    fn of(pattern: &'a HostPattern) -> Self {
        match pattern {
            HostPattern::Exactly(host) => Self::Exactly(host),
            HostPattern::Within(zone) => Self::Within(zone.as_str()),
        }
    }

    /// Keyed by nothing: what is in the table comes from files, and callers only look up.
    fn hash(self) -> u64 {
        let mut hasher = DefaultHasher::new();
        Hash::hash(&self, &mut hasher);
        hasher.finish()
    }
}

fn zone_labels(pattern: &HostPattern) -> usize {
    match pattern {
        HostPattern::Exactly(_) => 0,
        HostPattern::Within(zone) => zone.labels().count(),
    }
}

impl<T: Indexed> HostIndex<T> {
    /// Indexes them.
    pub fn new(entries: impl IntoIterator<Item = T>) -> Self {
        let mut entries: Box<[T]> = entries.into_iter().collect();
        let rank = |entry: &T| match entry.pattern() {
            HostPattern::Exactly(_) => 0,
            zone @ HostPattern::Within(_) => usize::MAX - zone_labels(zone),
        };
        entries.sort_by(|a, b| {
            let by_rank = rank(a).cmp(&rank(b));
            by_rank.then_with(|| match (a.pattern(), b.pattern()) {
                (HostPattern::Exactly(a), HostPattern::Exactly(b)) => a.cmp(b),
                (HostPattern::Within(a), HostPattern::Within(b)) => a.cmp(b),
                (HostPattern::Exactly(_), HostPattern::Within(_))
                | (HostPattern::Within(_), HostPattern::Exactly(_)) => by_rank,
            })
        });
        let zone_labels_max = entries.iter().map(|entry| zone_labels(entry.pattern())).max().unwrap_or(0);
        let mut table = HashTable::new();
        if entries.len() > COMPARED_MAX {
            let mut before = None;
            for (at, entry) in entries.iter().enumerate() {
                let key = Key::of(entry.pattern());
                if before != Some(key) {
                    let at = u32::try_from(at).expect("a configuration file is smaller than this many rules");
                    table.insert_unique(key.hash(), at, |at| Key::of(entries[*at as usize].pattern()).hash());
                    before = Some(key);
                }
            }
            let entries = &entries;
            table.shrink_to_fit(|at| Key::of(entries[*at as usize].pattern()).hash());
        }
        Self { entries, table, zone_labels_max }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Every entry, in no order that means anything.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.entries.iter()
    }

    /// Those that cover the host: exact ones, then zones from the deepest to the shallowest.
    pub fn covering<'a, 'h>(&'a self, host: &'h Host) -> impl Iterator<Item = &'a T> + use<'a, 'h, T> {
        let is_compared = self.table.is_empty();
        let compared = if is_compared { &*self.entries } else { &[] };
        let keys = if is_compared { None } else { Some(self.keys(host)) };
        let found = keys.into_iter().flatten().flat_map(move |key| self.group(key));
        compared.iter().filter(move |entry| entry.pattern().covers(host)).chain(found)
    }

    /// Those for the zone that has this very name, which they do not cover.
    pub fn at_apex<'a, 'h>(&'a self, host: &'h Host) -> impl Iterator<Item = &'a T> + use<'a, 'h, T> {
        let zone = if let Host::Name(name) = host { Some(Key::Within(name.as_str())) } else { None };
        let is_compared = self.table.is_empty();
        let compared = if is_compared { &*self.entries } else { &[] };
        let found = zone.filter(|_| !is_compared).into_iter().flat_map(move |key| self.group(key));
        compared.iter().filter(move |entry| zone == Some(Key::of(entry.pattern()))).chain(found)
    }

    /// The host, then the zones that it can be in.
    fn keys<'h>(&self, host: &'h Host) -> impl Iterator<Item = Key<'h>> + use<'h, T> {
        let name = if let Host::Name(name) = host { name.as_str() } else { "" };
        let dots = name.bytes().filter(|byte| *byte == b'.').count();
        // Parents of the name, less those that are deeper than any zone here.
        let too_deep = dots.saturating_sub(self.zone_labels_max);
        let zones = std::iter::successors(Some(name), |zone| zone.split_once('.').map(|(_, parent)| parent));
        std::iter::once(Key::Exactly(host)).chain(zones.skip(1 + too_deep).map(Key::Within))
    }

    fn group<'a, 'h>(&'a self, key: Key<'h>) -> impl Iterator<Item = &'a T> + use<'a, 'h, T> {
        let found = self.table.find(key.hash(), |at| Key::of(self.entries[*at as usize].pattern()) == key);
        let start = found.map_or(self.entries.len(), |at| *at as usize);
        self.entries[start..].iter().take_while(move |entry| Key::of(entry.pattern()) == key)
    }
}

#[cfg(test)]
mod tests {
    use outbound::{Authority, HostName};
    use proptest::prelude::*;

    use super::*;

    #[derive(Debug, Clone)]
    struct Entry(HostPattern, usize);

    impl Indexed for Entry {
        fn pattern(&self) -> &HostPattern {
            &self.0
        }
    }

    fn any_host() -> impl Strategy<Value = Host> {
        let name = "([ab]\\.){0,3}[ab]".prop_map(|text| Host::Name(HostName::parse(&text).unwrap()));
        let address = prop::sample::select(vec!["10.0.0.1:1", "[fd00::1]:1"]);
        prop_oneof![5 => name, 1 => address.prop_map(|text| Authority::with_port(text).unwrap().host().clone())]
    }

    fn any_pattern() -> impl Strategy<Value = HostPattern> {
        prop_oneof![
            any_host().prop_map(HostPattern::Exactly),
            "([ab]\\.){0,3}[ab]".prop_map(|text| HostPattern::Within(HostName::parse(&text).unwrap())),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        /// With a table and without one, what is found is what covers, the nearest first.
        #[test]
        fn it_finds_what_covers(patterns in prop::collection::vec(any_pattern(), 0..30), host in any_host()) {
            let index = HostIndex::new(patterns.iter().cloned().enumerate().map(|(at, pattern)| Entry(pattern, at)));
            let found: Vec<&Entry> = index.covering(&host).collect();
            let mut places: Vec<usize> = found.iter().map(|entry| entry.1).collect();
            places.sort_unstable();
            let covering: Vec<usize> = (0..patterns.len()).filter(|at| patterns[*at].covers(&host)).collect();
            prop_assert_eq!(places, covering);
            let depth = |entry: &&Entry| match &entry.0 {
                HostPattern::Exactly(_) => usize::MAX,
                HostPattern::Within(zone) => zone.labels().count(),
            };
            prop_assert!(found.iter().rev().is_sorted_by_key(depth));
            for pair in found.windows(2) {
                prop_assert!(pair[0].0 != pair[1].0 || pair[0].1 < pair[1].1);
            }
            let mut apex: Vec<usize> = index.at_apex(&host).map(|entry| entry.1).collect();
            apex.sort_unstable();
            let zone = match &host {
                Host::Name(name) => Some(HostPattern::Within(name.clone())),
                Host::Address(_) => None,
            };
            let expected: Vec<usize> = (0..patterns.len()).filter(|at| zone.as_ref() == Some(&patterns[*at])).collect();
            prop_assert_eq!(apex, expected);
        }
    }
}
