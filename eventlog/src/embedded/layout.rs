//! Where lanes lie: `events/<class>/<generation>-of-<shards>/<shard>` under the log's directory.
//!
//! A lane never changes its number of shards. When the settings name another, a new generation begins beside the
//! old one; the old one is read before it and trimmed like any other, so no record ever moves and the order of an
//! endpoint's events is the order of generations.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::position::{Lane, is_class_name};

/// A lane's directory, and how many shards its generation has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LanePlace {
    pub(crate) lane: Lane,
    pub(crate) shards: u16,
    pub(crate) directory: PathBuf,
    /// New events go here.
    pub(crate) active: bool,
}

/// Which shard of so many has an endpoint's slot: a contiguous range of slots each.
pub(crate) fn shard_of(slot: domain::Slot, shards: u16) -> u16 {
    let product = u32::from(slot.0) * u32::from(shards);
    u16::try_from(product >> 16).unwrap_or(u16::MAX)
}

/// The lanes that are there, and those that the settings ask for.
pub(crate) fn lanes(root: &Path, classes: &[&str], shards: u16) -> io::Result<Vec<LanePlace>> {
    let mut generations = existing(root)?;
    for class in classes {
        let of_class = generations.entry((*class).to_owned()).or_default();
        let newest = of_class.last_key_value().map(|(generation, found)| (*generation, found.shards));
        let current = match newest {
            Some((generation, found)) if found == shards => generation,
            Some((generation, _)) => generation.checked_add(1).ok_or_else(|| {
                let fault = format!(
                    "{class} has a generation {generation}, and none comes after it: no appliance makes it; move its \
                     directory away"
                );
                io::Error::new(io::ErrorKind::InvalidData, fault)
            })?,
            None => 1,
        };
        let wanted = of_class.entry(current).or_insert_with(|| Generation { shards, found: Vec::new() });
        wanted.found = (0..shards).collect();
    }
    let mut lanes = Vec::new();
    for (class, generations) in generations {
        let configured = classes.contains(&class.as_str());
        let newest = generations.last_key_value().map(|(generation, _)| *generation);
        let class: std::sync::Arc<str> = class.into();
        for (number, generation) in generations {
            for shard in generation.found {
                let lane = Lane { class: std::sync::Arc::clone(&class), generation: number, shard };
                let directory = directory(root, &lane, generation.shards);
                let active = configured && newest == Some(number);
                lanes.push(LanePlace { lane, shards: generation.shards, directory, active });
            }
        }
    }
    Ok(lanes)
}

fn directory(root: &Path, lane: &Lane, shards: u16) -> PathBuf {
    root.join("events").join(&*lane.class).join(format!("{}-of-{shards}", lane.generation)).join(lane.shard.to_string())
}

#[derive(Debug)]
struct Generation {
    shards: u16,
    found: Vec<u16>,
}

/// What lies under the root. Names that are not ours are passed over: people put notes and `lost+found` there.
fn existing(root: &Path) -> io::Result<BTreeMap<String, BTreeMap<u32, Generation>>> {
    let mut classes: BTreeMap<String, BTreeMap<u32, Generation>> = BTreeMap::new();
    for (class, path) in directories(&root.join("events"))? {
        if !is_class_name(&class) {
            continue;
        }
        for (name, path) in directories(&path)? {
            let Some((number, shards)) = generation_name(&name) else { continue };
            let mut found: Vec<u16> = directories(&path)?
                .into_iter()
                .filter_map(|(name, _)| name.parse().ok().filter(|shard: &u16| shard.to_string() == name))
                .filter(|shard| *shard < shards)
                .collect();
            found.sort_unstable();
            let generations = classes.entry(class.clone()).or_default();
            if let Some(other) = generations.insert(number, Generation { shards, found }) {
                let fault = format!(
                    "{class} has two generations {number}, of {} and of {shards} shards: was a directory copied?",
                    other.shards
                );
                return Err(io::Error::new(io::ErrorKind::InvalidData, fault));
            }
        }
    }
    Ok(classes)
}

fn generation_name(name: &str) -> Option<(u32, u16)> {
    let (number, shards) = name.split_once("-of-")?;
    let parsed = (number.parse().ok()?, shards.parse().ok()?);
    (format!("{}-of-{}", parsed.0, parsed.1) == name && parsed.1 > 0).then_some(parsed)
}

fn directories(path: &Path) -> io::Result<Vec<(String, PathBuf)>> {
    let entries = match fs::read_dir(path) {
        Ok(entries) => entries,
        Err(fault) if fault.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(fault) => return Err(fault),
    };
    let mut found = Vec::new();
    for entry in entries {
        let entry = entry?;
        if entry.file_type()?.is_dir()
            && let Some(name) = entry.file_name().to_str()
        {
            found.push((name.to_owned(), entry.path()));
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(lanes: &[LanePlace]) -> Vec<(String, u16, bool)> {
        lanes.iter().map(|place| (place.lane.to_string(), place.shards, place.active)).collect()
    }

    fn make(lanes: &[LanePlace]) {
        for place in lanes {
            fs::create_dir_all(&place.directory).unwrap();
        }
    }

    #[test]
    fn a_change_of_shards_begins_a_generation_and_keeps_the_old() {
        let root = tempfile::tempdir().unwrap();
        let first = lanes(root.path(), &["default"], 1).unwrap();
        assert_eq!(names(&first), [("default.1.0".to_owned(), 1, true)]);
        make(&first);
        assert_eq!(lanes(root.path(), &["default"], 1).unwrap(), first);

        let second = lanes(root.path(), &["default"], 2).unwrap();
        let expected = [("default.1.0", 1, false), ("default.2.0", 2, true), ("default.2.1", 2, true)];
        assert_eq!(names(&second), expected.map(|(name, shards, active)| (name.to_owned(), shards, active)));
        make(&second);

        // Back to one: a third generation, the first is not written again.
        let third = lanes(root.path(), &["default"], 1).unwrap();
        assert_eq!(third.iter().filter(|place| place.active).map(|p| p.lane.generation).collect::<Vec<_>>(), [3]);
        assert_eq!(third.len(), 4);
    }

    #[test]
    fn a_class_that_was_taken_from_the_settings_is_read_and_not_written() {
        let root = tempfile::tempdir().unwrap();
        make(&lanes(root.path(), &["default", "week"], 1).unwrap());
        let left = lanes(root.path(), &["default"], 1).unwrap();
        let expected = [("default.1.0".to_owned(), 1, true), ("week.1.0".to_owned(), 1, false)];
        assert_eq!(names(&left), expected);
    }

    #[test]
    fn other_names_are_passed_over_and_a_copied_generation_is_refused() {
        let root = tempfile::tempdir().unwrap();
        for other in ["events/.x/1-of-1/0", "events/default/1-of-0/0", "events/default/01-of-1/0", "events/default/x"] {
            fs::create_dir_all(root.path().join(other)).unwrap();
        }
        fs::create_dir_all(root.path().join("events/default/1-of-2/7")).unwrap();
        assert!(names(&lanes(root.path(), &[], 1).unwrap()).is_empty());
        fs::create_dir_all(root.path().join("events/default/1-of-4/0")).unwrap();
        assert!(lanes(root.path(), &[], 1).is_err());
    }

    #[test]
    fn there_is_no_generation_behind_the_last_one() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("events/default/4294967295-of-1/0")).unwrap();
        assert_eq!(lanes(root.path(), &["default"], 1).unwrap().len(), 1, "as long as it fits");
        let fault = lanes(root.path(), &["default"], 2).unwrap_err().to_string();
        assert!(fault.contains("4294967295") && fault.contains("move"), "{fault}");
    }

    #[test]
    fn every_slot_has_a_shard() {
        for shards in [1, 2, 3, 7, 64, u16::MAX] {
            assert_eq!(shard_of(domain::Slot(0), shards), 0);
            assert_eq!(shard_of(domain::Slot(u16::MAX), shards), shards - 1);
        }
    }
}
