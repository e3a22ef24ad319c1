//! Loads the appliance's file.

mod cross_check;
mod egress;
mod part;
mod places;
mod quota;
mod runner;

use std::path::Path;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::document::{Document, Text};
use crate::fault::Fault;
use crate::form::Settings;
use crate::read;
use crate::settings::Appliance;
use crate::units::MIB;

use cross_check::cross_check;
pub use part::{ApplianceInPart, NamesRead, appliance_in_part};
pub use places::{Places, appliance_line, appliance_places};

/// Far above any appliance's file; what is larger is another file.
const FILE_BYTES_MAX: u64 = 4 * MIB;

/// Reads the appliance's file. The settings are there unless a fault is an error; warnings may be there either way.
pub fn load_appliance(path: &Path) -> (Option<Appliance>, Vec<Fault>) {
    let (appliance, faults, _) = reload_appliance(path);
    (appliance, faults)
}

/// The same, and whether the file could not be read for a reason that passes: then it is worth reading again, though
/// nobody changes it.
pub fn reload_appliance(path: &Path) -> (Option<Appliance>, Vec<Fault>, bool) {
    let fault = match read::file(path, FILE_BYTES_MAX) {
        Ok((bytes, _)) => {
            let (appliance, faults) = parse_appliance(path, &bytes);
            return (appliance, faults, false);
        }
        Err(fault) => fault,
    };
    let message = if matches!(fault, read::Unreadable::Missing) {
        "is not there; name the configuration with --config".into()
    } else {
        fault.to_string()
    };
    (None, vec![Fault::error(path, "", message)], fault.is_passing())
}

/// The same from bytes; `path` names the file in faults, and its directory is where relative paths start.
pub fn parse_appliance(path: &Path, bytes: &[u8]) -> (Option<Appliance>, Vec<Fault>) {
    let text = Text::new(bytes);
    let Reading { mut document, table, mut appliance } = Reading::of(path, &text);
    cross_check(&mut document, table.get_ref(), &appliance);
    read_keys(&mut document, &mut appliance);
    let good = !document.has_errors();
    (good.then_some(appliance), document.into_faults())
}

/// What was read of a file. Keys that were misread have their defaults, and the document says which they are.
struct Reading<'s> {
    document: Document<'s>,
    table: Spanned<DeTable<'s>>,
    appliance: Appliance,
}

impl<'s> Reading<'s> {
    fn of(path: &'s Path, text: &'s Text<'_>) -> Self {
        let (mut document, table) = Document::parse(path, text);
        let mut appliance = Appliance::read(&mut document, table.get_ref(), 0..0);
        derive(&mut appliance, table.get_ref());
        appliance.resolve_paths(&directory_of(path));
        Self { document, table, appliance }
    }
}

fn directory_of(path: &Path) -> std::path::PathBuf {
    let parent = path.parent().unwrap_or_else(|| Path::new(""));
    std::path::absolute(parent).unwrap_or_else(|_| match parent {
        // `absolute` refuses the empty path: it means here.
        empty if empty.as_os_str().is_empty() => std::env::current_dir().unwrap_or_else(|_| ".".into()),
        other => other.into(),
    })
}

/// Defaults that follow from other keys.
fn derive(appliance: &mut Appliance, table: &DeTable<'_>) {
    appliance.gateway.enabled &= table.contains_key("gateway");
    appliance.egress.enabled &= table.contains_key("egress");
    appliance.quota.redis.tls.enabled &= find(table, &["quota", "redis", "tls"]).is_some();
    appliance.runner.enabled &= table.contains_key("runner");
    appliance.runner.postgres.tls.enabled &= find(table, &["runner", "postgres", "tls"]).is_some();
    let beside = appliance.log.directory.parent().unwrap_or_else(|| Path::new("/"));
    if find(table, &["admin", "socket"]).is_none() {
        appliance.admin.socket = beside.join("tidegate.sock");
    }
    if find(table, &["tenants", "state_directory"]).is_none() {
        appliance.tenants.state_directory = beside.join("state");
    }
    if find(table, &["egress", "records", "directory"]).is_none() {
        appliance.egress.records.directory = beside.join("egress");
    }
    if find(table, &["runner", "directory"]).is_none() {
        appliance.runner.directory = beside.join("runner");
    }
    if find(table, &["egress", "ranges", "book"]).is_none() {
        appliance.egress.ranges.book = appliance.tenants.state_directory.join("egress-ranges.book");
    }
}

/// Public keys that are in files of their own.
fn read_keys(document: &mut Document<'_>, appliance: &mut Appliance) {
    document.within("egress", |document| {
        document.within("issuer", |document| {
            for (index, issuer) in document.indexes_read().zip(&mut appliance.egress.issuer) {
                document.within_index(index, |document| issuer.read_keys(document));
            }
        });
    });
}

fn find<'t>(table: &'t DeTable<'_>, path: &[&str]) -> Option<&'t Spanned<DeValue<'t>>> {
    let (first, rest) = path.split_first()?;
    let value = table.get(*first)?;
    if rest.is_empty() { Some(value) } else { find(value.get_ref().as_table()?, rest) }
}
