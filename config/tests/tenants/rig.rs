//! A machine with tenants' files, and what is asked of a load.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use domain::ManualClock;
use tempfile::TempDir;
use tidegate_config::{ABSENCE, Appliance, Fault, MapEnvironment, Tenant, TenantFiles, TenantsLoad};

/// A machine with a tenants' directory, and processes that load it one after the other.
pub(crate) struct Machine {
    pub(crate) root: TempDir,
    pub(crate) appliance: Appliance,
    pub(crate) environment: MapEnvironment,
    pub(crate) clock: Arc<ManualClock>,
}

impl Machine {
    pub(crate) fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        let mut appliance = Appliance::default();
        appliance.tenants.directory = root.path().join("tenants");
        appliance.tenants.state_directory = root.path().join("state");
        appliance.tenants.allow_env = vec!["KEY".into()];
        fs::create_dir(&appliance.tenants.directory).unwrap();
        Self { root, appliance, environment: MapEnvironment::new([("KEY", "k1")]), clock: ManualClock::at_unix_ms(0) }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.appliance.tenants.directory.join(name)
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).unwrap();
    }

    /// A good file with these endpoints.
    pub(crate) fn good(&self, tenant: &str, ids: &[&str]) {
        self.write(&format!("{tenant}.toml"), &file(tenant, ids));
    }

    pub(crate) fn process(&self) -> TenantFiles {
        let clock = Arc::clone(&self.clock);
        TenantFiles::new(&self.appliance).with_clock(clock)
    }

    pub(crate) fn load(&self, files: &mut TenantFiles) -> TenantsLoad {
        files.load(&self.appliance, &self.environment, &mut |tenant| (Some(tenant), Vec::new()))
    }

    /// Loads, and once more when what is missing has been so for long enough.
    pub(crate) fn load_twice(&self, files: &mut TenantFiles) -> TenantsLoad {
        self.load(files);
        self.clock.advance(ABSENCE);
        self.load(files)
    }

    pub(crate) fn restarted(&self) -> TenantsLoad {
        self.load(&mut self.process())
    }
}

pub(crate) fn file(tenant: &str, ids: &[&str]) -> String {
    let endpoint = |id: &&str| {
        format!("\n[[endpoint]]\nid = \"{id}\"\nscheme = \"github\"\nsecrets = [{{ value = \"env:KEY\" }}]\n")
    };
    format!("tenant = \"{tenant}\"\n{}", ids.iter().map(endpoint).collect::<String>())
}

/// `acme: wh_1 wh_2`, one line per tenant in force.
pub(crate) fn in_force(load: &TenantsLoad) -> Vec<String> {
    let tenants = load.tenants.iter();
    tenants
        .map(|tenant| {
            let ids: Vec<_> = tenant.endpoints.iter().map(|endpoint| endpoint.id.to_string()).collect();
            format!("{}: {}", tenant.id, ids.join(" "))
        })
        .collect()
}

pub(crate) fn unavailable(load: &TenantsLoad) -> Vec<String> {
    load.unavailable.iter().flat_map(|one| one.endpoints.iter().map(ToString::to_string)).collect()
}

pub(crate) fn of<'l>(load: &'l TenantsLoad, id: &str) -> &'l Arc<Tenant> {
    load.tenants.iter().find(|tenant| tenant.id.as_str() == id).unwrap()
}

#[track_caller]
pub(crate) fn fault_names(faults: &[Fault], file: &str, words: &str) {
    let found = faults.iter().any(|fault| fault.file.ends_with(file) && fault.message.contains(words));
    assert!(found, "no fault of {file} with {words:?} in {faults:#?}");
}
