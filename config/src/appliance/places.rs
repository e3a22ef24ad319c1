//! Where an operator's command finds the appliance whose file is faulty. It runs on by what it read before, and to switch
//! calls off or to take grants back must not wait until somebody has found a typing error.

use std::path::{Path, PathBuf};

use toml::de::DeTable;

use super::{FILE_BYTES_MAX, Reading, directory_of, find};
use crate::document::{Document, Text, nearest};
use crate::form::Settings;
use crate::read;
use crate::settings::{Admin, Appliance, Log};

/// Places that a file names, faulty or not. What is none was misread, and may be anywhere.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Places {
    /// Where its control socket may be, the most likely first. One, of a file without faults.
    pub sockets: Vec<PathBuf>,
    pub state_directory: Option<PathBuf>,
    pub log_directory: Option<PathBuf>,
    pub records_directory: Option<PathBuf>,
    pub tenants_directory: Option<PathBuf>,
}

impl Places {
    /// Of a file without faults.
    pub fn of(appliance: &Appliance) -> Self {
        Self {
            sockets: vec![appliance.admin.socket.clone()],
            state_directory: Some(appliance.tenants.state_directory.clone()),
            log_directory: Some(appliance.log.directory.clone()),
            records_directory: Some(appliance.egress.records.directory.clone()),
            tenants_directory: Some(appliance.tenants.directory.clone()),
        }
    }
}

/// Of an appliance's file, as much as can be read of where things are. A file that cannot be read at all names nothing,
/// and the socket may be at its default.
pub fn appliance_places(path: &Path) -> Places {
    let bytes = read::file(path, FILE_BYTES_MAX).map(|(bytes, _)| bytes);
    let Ok(bytes) = bytes else {
        let sockets = vec![Admin::default().socket];
        return Places {
            sockets,
            state_directory: None,
            log_directory: None,
            records_directory: None,
            tenants_directory: None,
        };
    };
    let text = Text::new(&bytes);
    let Reading { document, table, appliance } = Reading::of(path, &text);
    let table = table.get_ref();
    let is_sound = |key: &str| document.is_sound(key);
    // What is beside the log is known where the log is, or where it is said.
    let is_known = |key: &[&str]| is_sound(&key.join(".")) && (find(table, key).is_some() || is_sound("log.directory"));
    let known = |key: &[&str], place: &PathBuf| is_known(key).then(|| place.clone());
    let mut sockets = Vec::new();
    if !is_known(&["admin", "socket"]) {
        let meant = |of: &'static str, key: &'static str, keys| meant(table, of, key, keys, &directory_of(path));
        sockets.extend(meant("admin", "socket", Admin::NAMES));
        let logs = meant("log", "directory", Log::NAMES);
        sockets.extend(logs.iter().filter_map(|log| log.parent()).map(|beside| beside.join("tidegate.sock")));
    }
    // The file may say where it will be, and it is where it was when the appliance was started.
    sockets.extend([appliance.admin.socket.clone(), Admin::default().socket]);
    let mut seen = std::collections::HashSet::new();
    sockets.retain(|socket| seen.insert(socket.clone()));
    Places {
        sockets,
        state_directory: known(&["tenants", "state_directory"], &appliance.tenants.state_directory),
        log_directory: is_sound("log.directory").then(|| appliance.log.directory.clone()),
        records_directory: known(&["egress", "records", "directory"], &appliance.egress.records.directory),
        tenants_directory: is_sound("tenants.directory").then(|| appliance.tenants.directory.clone()),
    }
}

/// The line of a key of an appliance's file, such as `log.directory`; none where the file does not have it.
pub fn appliance_line(path: &Path, key: &str) -> Option<u32> {
    let (bytes, _) = read::file(path, FILE_BYTES_MAX).ok()?;
    let text = Text::new(&bytes);
    let (document, table) = Document::parse(path, &text);
    let found = find(table.get_ref(), &key.split('.').collect::<Vec<_>>())?;
    Some(document.line(found.span().start))
}

/// Paths under names that were most likely meant to be `of.key`.
fn meant(table: &DeTable<'_>, of: &str, key: &str, keys: &[&str], directory: &Path) -> Vec<PathBuf> {
    let of_this_name = |name: &str, meant: &str, known: &[&str]| nearest(name, known) == Some(meant);
    let tables = table.iter().filter(|(name, _)| of_this_name(name.get_ref(), of, Appliance::NAMES));
    let values = tables.filter_map(|(_, value)| value.get_ref().as_table()).flat_map(DeTable::iter);
    let named = values.filter(|(name, _)| of_this_name(name.get_ref(), key, keys));
    named.filter_map(|(_, value)| value.get_ref().as_str()).map(|path| directory.join(path)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "[log]\ndirectory = \"/data/log\"\n[gateway]\npublic_url = \"https://h.example.com\"\n";

    fn places(text: &str) -> Places {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("tidegate.toml");
        std::fs::write(&path, text).unwrap();
        appliance_places(&path)
    }

    fn sockets(text: &str) -> Vec<String> {
        places(text).sockets.iter().map(|socket| socket.display().to_string()).collect()
    }

    #[test]
    fn what_a_fault_does_not_touch_is_known() {
        for fault in ["", "[gateway.listener]\nheader_timeot = \"5s\"\n", "[nonsense]\n", "[node]\nid = \"x\"\n"] {
            let found = places(&format!("{GOOD}{fault}"));
            let sockets = ["/data/tidegate.sock", "/var/lib/tidegate/tidegate.sock"];
            assert_eq!(found.sockets, sockets.map(Path::new), "{fault}");
            assert_eq!(found.state_directory.as_deref(), Some(Path::new("/data/state")), "{fault}");
            assert_eq!(found.log_directory.as_deref(), Some(Path::new("/data/log")), "{fault}");
            assert_eq!(found.records_directory.as_deref(), Some(Path::new("/data/egress")), "{fault}");
        }
    }

    #[test]
    fn what_was_misspelt_is_looked_for_where_it_was_meant_to_be() {
        let default = "/var/lib/tidegate/tidegate.sock";
        assert_eq!(sockets(&GOOD.replace("directory", "diretory")), ["/data/tidegate.sock", default]);
        assert_eq!(sockets(&GOOD.replace("[log]", "[logs]")), ["/data/tidegate.sock", default]);
        assert_eq!(sockets("[admin]\nsokcet = \"/run/t.sock\"\n"), ["/run/t.sock", default]);
        assert_eq!(sockets("[log]\ndirectory = 5\n"), [default]);
        assert_eq!(sockets("[log]\ndirectory = \"/data/log\n"), [default], "a line that is no TOML");
        // What is said is said, whatever is wrong beside it.
        let said = "[log]\ndiretory = \"/data/log\"\n[admin]\nsocket = \"/run/t.sock\"\n";
        assert_eq!(sockets(said), ["/run/t.sock", default]);
        let found = places(&GOOD.replace("directory", "diretory"));
        assert_eq!((found.state_directory, found.log_directory), (None, None), "nothing is written to a guess");
    }

    #[test]
    fn a_key_has_its_line() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("tidegate.toml");
        std::fs::write(&path, format!("\n{GOOD}")).unwrap();
        assert_eq!(appliance_line(&path, "log.directory"), Some(3));
        assert_eq!(appliance_line(&path, "tenants.state_directory"), None);
    }

    #[test]
    fn without_a_file_the_socket_may_be_at_its_default() {
        let found = appliance_places(Path::new("/nonexistent/tidegate.toml"));
        assert_eq!(found.sockets, [Path::new("/var/lib/tidegate/tidegate.sock")]);
        assert_eq!(found.tenants_directory, None);
    }
}
