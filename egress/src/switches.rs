//! Kill switches: calls that are off, by tenant, connector, destination and way in, whatever the rules say.
//!
//! They stand in one file of the state directory, `egress.switches`, which `tidegate egress switch` writes and every
//! running process looks at four times a second: a switch is in force within a second and survives restarts. A switch
//! names one or more of the four; a call that fits all that it names is off.
//!
//! **A file that cannot be read** lifts nothing: what was off stays off, and the fault is told until it is mended. With
//! nothing to go by, at a start, a node does not start: nobody would know what has to be off.

pub mod file;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;
use domain::{ConnectorId, TenantId};
use outbound::{Authority, HostPattern};
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use crate::Way;
use crate::looking::keep_looking;
use file::{SwitchesFault, Version};

/// What is off.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Scope {
    /// Calls of this tenant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<TenantId>,
    /// Calls to this connector's hosts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connector: Option<ConnectorId>,
    /// Calls to these hosts.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "pattern")]
    pub destination: Option<HostPattern>,
    /// Calls that come in this way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub way: Option<Way>,
}

/// One switch that is thrown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Switch {
    /// What it switches off.
    #[serde(flatten)]
    pub scope: Scope,
    /// Since when, in milliseconds since the Unix epoch.
    pub since_unix_ms: u64,
    /// Why, in the operator's words.
    #[serde(default)]
    pub reason: Box<str>,
}

impl Scope {
    /// Does it name nothing? Such a switch would be everything, and that is what stopping the role is for.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Is this call off by it?
    pub fn covers(&self, tenant: &TenantId, connector: Option<&ConnectorId>, to: &Authority, way: Way) -> bool {
        self.tenant.as_ref().is_none_or(|own| own == tenant)
            && self.connector.as_ref().is_none_or(|own| Some(own) == connector)
            && self.destination.as_ref().is_none_or(|own| own.covers(to.host()))
            && self.way.is_none_or(|own| own == way)
    }

    /// Is every call of this tenant off by it?
    fn covers_all_of(&self, of: &TenantId) -> bool {
        let Self { tenant, connector, destination, way } = self;
        let is_bare = connector.is_none() && destination.is_none() && way.is_none();
        is_bare && tenant.as_ref().is_none_or(|own| own == of)
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = [
            self.tenant.as_ref().map(|tenant| format!("tenant {tenant}")),
            self.connector.as_ref().map(|connector| format!("connector {connector}")),
            self.destination.as_ref().map(|destination| format!("destination {destination}")),
            self.way.map(|way| format!("way {way}")),
        ];
        let named: Vec<String> = parts.into_iter().flatten().collect();
        f.write_str(&named.join(", "))
    }
}

impl fmt::Display for Switch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "switched off: {}", self.scope)
    }
}

/// The switches that are in force on this node.
#[derive(Debug)]
pub struct Switches {
    path: PathBuf,
    thrown: ArcSwap<Vec<Switch>>,
    seen: Mutex<Seen>,
    changes: watch::Sender<u64>,
}

#[derive(Debug)]
struct Seen {
    version: Option<Version>,
    fault: Option<String>,
}

impl Switches {
    /// Reads the file in this directory; none is no switch.
    ///
    /// # Errors
    /// It is there and cannot be read.
    pub fn open(state_directory: &Path) -> Result<Self, SwitchesFault> {
        let path = state_directory.join(file::FILE_NAME);
        let (switches, version) = file::read(&path)?;
        let seen = Mutex::new(Seen { version, fault: None });
        Ok(Self { path, thrown: ArcSwap::from_pointee(switches), seen, changes: watch::Sender::new(0) })
    }

    /// These, and no file: for tests and commands.
    pub fn of(switches: Vec<Switch>) -> Self {
        let seen = Mutex::new(Seen { version: None, fault: None });
        let (path, changes) = (PathBuf::new(), watch::Sender::new(0));
        Self { path, thrown: ArcSwap::from_pointee(switches), seen, changes }
    }

    /// The switch that this call is off by, if it is. There are few: they are asked one after the other.
    pub fn thrown(
        &self,
        tenant: &TenantId,
        connector: Option<&ConnectorId>,
        to: &Authority,
        way: Way,
    ) -> Option<Switch> {
        let thrown = self.thrown.load();
        thrown.iter().find(|switch| switch.scope.covers(tenant, connector, to, way)).cloned()
    }

    /// Is every call of this tenant off?
    pub(crate) fn cover_all_of(&self, tenant: &TenantId) -> bool {
        self.thrown.load().iter().any(|switch| switch.scope.covers_all_of(tenant))
    }

    /// All of them.
    pub fn all(&self) -> Arc<Vec<Switch>> {
        self.thrown.load_full()
    }

    /// A number that changes with the switches: who holds a tunnel open asks again.
    pub fn watch(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// What is wrong with the file, if anything is.
    pub fn fault(&self) -> Option<String> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).fault.clone()
    }

    /// Looks at the file for ever, every [`LOOK_EVERY`](crate::LOOK_EVERY).
    pub async fn keep_looking(self: Arc<Self>) {
        keep_looking(self, "kill switches", Self::look).await;
    }

    /// Looks once: reads the file again if it is another one.
    pub fn look(&self) {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let found = Version::of(&self.path);
        if seen.fault.is_none() && found.as_ref().is_ok_and(|found| *found == seen.version) {
            return;
        }
        match file::read(&self.path) {
            // A file that is gone lifts nothing: whoever lifts the last switch leaves an empty list.
            Ok((_, None)) if !self.thrown.load().is_empty() => self.tell(&mut seen, "the file was taken away".into()),
            Ok((switches, version)) => {
                if seen.fault.is_some() {
                    tracing::info!("switches can be read again");
                }
                *seen = Seen { version, fault: None };
                if **self.thrown.load() != switches {
                    tracing::warn!(switches = switches.len(), "kill switches have changed");
                    self.thrown.store(Arc::new(switches));
                    self.changes.send_modify(|number| *number = number.wrapping_add(1));
                }
            }
            Err(fault) => self.tell(&mut seen, fault.to_string()),
        }
    }

    fn tell(&self, seen: &mut Seen, fault: String) {
        if seen.fault.as_ref() != Some(&fault) {
            tracing::error!(path = %self.path.display(), %fault, "kill switches cannot be read: those in force stay");
        }
        seen.fault = Some(fault);
    }
}

mod pattern {
    use outbound::HostPattern;
    use serde::{Deserialize, Deserializer, Serializer};

    #[expect(clippy::ref_option, reason = "serde calls it so")]
    pub(super) fn serialize<S: Serializer>(pattern: &Option<HostPattern>, serializer: S) -> Result<S::Ok, S::Error> {
        match pattern {
            Some(pattern) => serializer.collect_str(pattern),
            None => serializer.serialize_none(),
        }
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<HostPattern>, D::Error> {
        let text = Option::<String>::deserialize(deserializer)?;
        text.map(|text| HostPattern::parse(&text).map_err(serde::de::Error::custom)).transpose()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scope(tenant: Option<&str>, destination: Option<&str>, way: Option<Way>) -> Scope {
        Scope {
            tenant: tenant.map(|tenant| TenantId::parse(tenant).unwrap()),
            connector: None,
            destination: destination.map(|text| HostPattern::parse(text).unwrap()),
            way,
        }
    }

    fn switch(scope: Scope) -> Switch {
        Switch { scope, since_unix_ms: 1, reason: "a test".into() }
    }

    fn is_off(switches: &Switches, tenant: &str, to: &str, way: Way) -> bool {
        let (tenant, to) = (TenantId::parse(tenant).unwrap(), Authority::with_port(to).unwrap());
        switches.thrown(&tenant, None, &to, way).is_some()
    }

    #[test]
    fn a_call_is_off_that_fits_all_that_a_switch_names() {
        let switches = Switches::of(vec![
            switch(scope(Some("acme"), None, Some(Way::Connect))),
            switch(scope(None, Some("*.evil.example"), None)),
        ]);
        assert!(is_off(&switches, "acme", "a.example:443", Way::Connect));
        assert!(!is_off(&switches, "acme", "a.example:443", Way::Governed));
        assert!(!is_off(&switches, "other", "a.example:443", Way::Connect));
        assert!(is_off(&switches, "other", "x.evil.example:80", Way::Absolute));
        let connector = ConnectorId::parse("stripe").unwrap();
        let by_connector = Scope { connector: Some(connector.clone()), ..Scope::default() };
        let (tenant, to) = (TenantId::parse("acme").unwrap(), Authority::with_port("a.example:443").unwrap());
        assert!(by_connector.covers(&tenant, Some(&connector), &to, Way::Governed));
        assert!(!by_connector.covers(&tenant, None, &to, Way::Governed));
    }

    #[test]
    fn all_of_a_tenant_is_off_where_nothing_narrows_it() {
        let acme = TenantId::parse("acme").unwrap();
        for (scope, covers) in [
            (scope(Some("acme"), None, None), true),
            (scope(None, None, None), true),
            (scope(Some("other"), None, None), false),
            (scope(Some("acme"), None, Some(Way::Connect)), false),
            (scope(None, Some("*.example"), None), false),
        ] {
            assert_eq!(Switches::of(vec![switch(scope)]).cover_all_of(&acme), covers);
        }
    }

    #[test]
    fn a_change_is_seen_and_a_faulty_file_lifts_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(file::FILE_NAME);
        let switches = Switches::open(directory.path()).unwrap();
        let changes = switches.watch();
        assert!(!is_off(&switches, "acme", "a.example:443", Way::Connect));
        let acme = scope(Some("acme"), None, None);
        file::throw(&path, switch(acme.clone())).unwrap();
        switches.look();
        assert!(is_off(&switches, "acme", "a.example:443", Way::Connect));
        assert!(changes.has_changed().unwrap());

        for damage in ["{", "[{}]", "[{\"tenat\":\"acme\",\"sinceUnixMs\":1}]"] {
            std::fs::write(&path, damage).unwrap();
            switches.look();
            assert!(switches.fault().is_some(), "{damage}");
            assert!(is_off(&switches, "acme", "a.example:443", Way::Connect), "{damage}");
            assert!(Switches::open(directory.path()).is_err(), "{damage}");
        }
        std::fs::remove_file(&path).unwrap();
        switches.look();
        assert!(switches.fault().is_some() && is_off(&switches, "acme", "a.example:443", Way::Connect));

        file::throw(&path, switch(acme.clone())).unwrap();
        assert!(file::lift(&path, &acme).unwrap());
        assert!(!file::lift(&path, &acme).unwrap());
        switches.look();
        assert!(switches.fault().is_none() && !is_off(&switches, "acme", "a.example:443", Way::Connect));
    }

    #[test]
    fn whoever_throws_at_the_same_time_loses_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(file::FILE_NAME);
        std::thread::scope(|threads| {
            for thread in 0..8 {
                let path = &path;
                threads.spawn(move || {
                    for nth in 0..8 {
                        let tenant = format!("t{thread}-{nth}");
                        file::throw(path, switch(scope(Some(&tenant), None, None))).unwrap();
                    }
                });
            }
        });
        assert_eq!(file::read(&path).unwrap().0.len(), 64);
    }
}
