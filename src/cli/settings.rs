//! The configuration, as commands need it: read, never written, never fallen back on an older version.

use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;

use config::{Appliance, Endpoint, Fault, Tenant, TenantFiles, TenantsLoad};
use domain::text::Untrusted;
use domain::{EndpointId, TenantId};
use gateway::scheme::Scheme;

use super::Shell;
use super::exit::{Failure, Outcome};
use super::scheme::{Setup, named_key, preset, unknown};

/// Both kinds of file, as they are now.
#[derive(Debug)]
pub(crate) struct Configured {
    pub(crate) appliance: Appliance,
    tenants: Vec<Arc<Tenant>>,
    /// Whose files are faulty, with stand-ins for what is.
    in_part: Vec<Arc<Tenant>>,
    faults: Vec<Fault>,
}

/// The appliance's file alone.
pub(crate) fn appliance(path: &Path) -> Outcome<Appliance> {
    let (appliance, faults) = config::load_appliance(path);
    appliance.ok_or_else(|| {
        let shown = Untrusted::with_limit(path.as_os_str().as_encoded_bytes(), 1024).to_string();
        let first = faults.first().map_or_else(|| shown.clone(), ToString::to_string);
        let check = format!("`tidegate check --config {shown}` says everything that is wrong with it");
        Failure::failed(first, format_args!("name the appliance's file with --config; {check}"))
    })
}

impl Configured {
    pub(crate) fn load(path: &Path, shell: &Shell<'_>) -> Outcome<Self> {
        let appliance = appliance(path)?;
        Ok(Self::of(appliance, TenantFiles::without_state(), shell))
    }

    fn of(appliance: Appliance, mut files: TenantFiles, shell: &Shell<'_>) -> Self {
        let mut in_part: Vec<Arc<Tenant>> = Vec::new();
        let load: TenantsLoad = files.load(&appliance, shell.environment, &mut |tenant| {
            let tenant = Arc::new(tenant);
            in_part.push(Arc::clone(&tenant));
            (Some(tenant), Vec::new())
        });
        let whole: HashSet<&TenantId> = load.tenants.iter().map(|tenant| &tenant.id).collect();
        in_part.retain(|tenant| !whole.contains(&tenant.id));
        Self { appliance, tenants: load.tenants, in_part, faults: load.faults }
    }

    /// The same as far as it can be read, where the appliance's own file is faulty: enough to find whose an endpoint is.
    pub(crate) fn load_in_part(path: &Path, shell: &Shell<'_>) -> Outcome<Self> {
        let fault = match Self::load(path, shell) {
            Err(fault) => fault,
            loaded => return loaded,
        };
        let Some(part) = config::appliance_in_part(path) else { return Err(fault) };
        let files = TenantFiles::without_state().judged_in_part(&part);
        Ok(Self::of(part.appliance, files, shell))
    }

    /// Every tenant whose file could be read.
    pub(crate) fn tenants(&self) -> impl Iterator<Item = &Tenant> {
        self.tenants.iter().map(|tenant| &**tenant)
    }

    /// What keeps a tenant's file from being read.
    pub(crate) fn fault_of(&self, tenant: &TenantId) -> Option<&Fault> {
        let file = self.appliance.tenants.directory.join(format!("{tenant}.toml"));
        self.faults.iter().find(|fault| fault.is_error() && fault.file == file)
    }

    /// An endpoint and whose it is.
    pub(crate) fn endpoint(&self, id: &EndpointId) -> Outcome<(&Tenant, &Endpoint)> {
        let found = self.tenants.iter().find_map(|tenant| {
            let endpoint = tenant.endpoints.iter().find(|endpoint| endpoint.id == *id)?;
            Some((&**tenant, endpoint))
        });
        if let Some(found) = self.endpoint_in_part(id).filter(|_| found.is_none()) {
            return found;
        }
        found.ok_or_else(|| {
            let directory = Untrusted::new(self.appliance.tenants.directory.as_os_str().as_encoded_bytes()).to_string();
            match self.faults.iter().find(|fault| fault.is_error()) {
                Some(fault) => Failure::failed(
                    format_args!("endpoint {id} is in no file that could be read"),
                    format_args!("a tenant's file is faulty, and may be the one that has it: {fault}"),
                ),
                None => Failure::failed(
                    format_args!("there is no endpoint {id}"),
                    format_args!("the tenants' files are read from {directory}; --config names another configuration"),
                ),
            }
        })
    }

    /// An endpoint of a faulty file, if nothing that is at fault has to do with it.
    fn endpoint_in_part(&self, id: &EndpointId) -> Option<Outcome<(&Tenant, &Endpoint)>> {
        let (tenant, index) = self.in_part.iter().find_map(|tenant| {
            let index = tenant.endpoints.iter().position(|endpoint| endpoint.id == *id)?;
            Some((&**tenant, index))
        })?;
        let endpoint = tenant.endpoints.get(index)?;
        let others = |key: &str| {
            // What is no TOML can have been anything, and a scheme that is misread can be this one's.
            let of_this = format!("endpoint[{index}]");
            let is_of_this = key.strip_prefix(&of_this).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'));
            !is_of_this && !["", "tenant", "endpoint"].contains(&key) && !key.starts_with("scheme")
        };
        let file = tenant.file();
        let mut faults = self.faults.iter().filter(|fault| fault.is_error() && fault.file == file);
        let fault = faults.find(|fault| !others(&fault.key));
        Some(match fault {
            None => Ok((tenant, endpoint)),
            Some(fault) => Err(Failure::failed(fault, format_args!("put that right: endpoint {id} is touched by it"))),
        })
    }

    /// What an endpoint's deliveries are verified with.
    pub(crate) fn setup(&self, id: &EndpointId) -> Outcome<Setup> {
        let (tenant, endpoint) = self.endpoint(id)?;
        let scheme = scheme_of(tenant, &endpoint.scheme)?;
        let keys = endpoint.secrets.iter().map(|entry| {
            let (from, until) = (entry.terms.not_before_unix_ms(), entry.terms.not_after_unix_ms());
            named_key(&scheme, entry.terms.name(), entry.secret.clone(), from, until)
        });
        let keys = keys.collect::<Outcome<_>>()?;
        let public_url = endpoint.public_url().unwrap_or(&self.appliance.gateway.public_url);
        let url = Some(public_url.with_target(&format!("/hooks/{id}")));
        Ok(Setup { scheme, keys, url })
    }

    /// A scheme as a tenant's endpoints can name it.
    pub(crate) fn scheme(&self, tenant: &TenantId, name: &str) -> Outcome<Arc<Scheme>> {
        let tenant = self.tenants.iter().find(|known| known.id == *tenant).ok_or_else(|| {
            Failure::failed(format_args!("there is no tenant {tenant}"), "--config names another configuration")
        })?;
        scheme_of(tenant, name)
    }

    /// Every scheme that a tenant declares.
    pub(crate) fn declared(&self) -> Vec<(TenantId, Outcome<Arc<Scheme>>)> {
        let each = self.tenants.iter().flat_map(|tenant| tenant.schemes().iter().map(move |scheme| (tenant, scheme)));
        each.map(|(tenant, declared)| (tenant.id.clone(), compiled(tenant, declared))).collect()
    }
}

/// A tenant's own scheme, or a preset: the names never clash.
fn scheme_of(tenant: &Tenant, name: &str) -> Outcome<Arc<Scheme>> {
    match tenant.schemes().iter().find(|declared| declared.declaration.name == name) {
        Some(declared) => compiled(tenant, declared),
        None => preset(name).map_err(|_| unknown(name)),
    }
}

fn compiled(tenant: &Tenant, declared: &config::DeclaredScheme) -> Outcome<Arc<Scheme>> {
    Scheme::compile(&declared.declaration).map_err(|faults| {
        let first = faults.first().map(ToString::to_string).unwrap_or_default();
        Failure::failed(
            tenant.fault(declared.line, "scheme", first),
            "`tidegate check` says everything that is wrong with it",
        )
    })
}
