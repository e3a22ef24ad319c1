//! Directories that the appliance writes to: whether they can be what the file says that they are.

use std::collections::HashSet;
use std::path::Path;

use config::{Appliance, Fault};

use super::events::source::shown;

/// What is in the place of a directory of this machine. One that is not there yet is made at the start.
pub(super) fn faults(appliance: &Appliance, file: &Path) -> Vec<Fault> {
    let Appliance { log, tenants, egress, gateway, runner, .. } = appliance;
    let each = [
        (gateway.enabled, "log.directory", &log.directory),
        (true, "tenants.state_directory", &tenants.state_directory),
        (egress.enabled, "egress.records.directory", &egress.records.directory),
        (runner.enabled, "runner.directory", &runner.directory),
    ];
    let used = each.into_iter().filter(|(is_used, ..)| *is_used);
    // One file in the way of several directories is one fault.
    let mut told = HashSet::new();
    let faulty = used.filter_map(|(_, key, directory)| {
        let found = in_the_way(directory).filter(|found| told.insert(*found))?;
        let message = format!("{} cannot be made: {} is there and is no directory", shown(directory), shown(found));
        let fault = Fault::error(file, key, message);
        Some(match config::appliance_line(file, key) {
            Some(line) => fault.at(line),
            None => fault,
        })
    });
    faulty.collect()
}

/// The part of the path that is something else than a directory.
fn in_the_way(directory: &Path) -> Option<&Path> {
    let nearest = directory.ancestors().find_map(|path| std::fs::metadata(path).ok().map(|found| (path, found)));
    nearest.filter(|(_, found)| !found.is_dir()).map(|(path, _)| path)
}
