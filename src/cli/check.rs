//! `tidegate check`: everything that is wrong with the configuration, before it goes live.

use std::collections::HashMap;
use std::sync::Arc;

use config::{Fault, Tenant, TenantFiles};
use domain::text::Untrusted;
use gateway::scheme::{Presets, Scheme};
use serde_json::json;

use super::Shell;
use super::args::Check;
use super::exit::{Exit, Outcome};
use super::faults;
use super::out::Tone;
use super::scheme;
use crate::control::wire::FaultLine;

pub(super) fn run(args: &Check, shell: &mut Shell<'_>) -> Outcome {
    let presets = scheme::presets()?;
    let (appliance, mut found) = config::load_appliance(&args.file.config);
    let (mut tenants, mut endpoints) = (0, 0);
    let mut inspector = Inspector::new(&presets);
    if let Some(appliance) = &appliance {
        let load =
            TenantFiles::without_state().load(appliance, shell.environment, &mut |tenant| inspector.inspect(tenant));
        tenants = load.tenants.len();
        endpoints = load.tenants.iter().map(|tenant| tenant.endpoints.len()).sum();
        found.extend(load.faults);
    }
    let lines: Vec<FaultLine> = found.iter().map(FaultLine::from).collect();
    let errors = lines.iter().filter(|line| faults::is_error(line)).count();
    let warnings = lines.len() - errors;
    if args.form.json {
        shell.out.json(&json!({
            "ok": errors == 0,
            "faults": lines,
            "tenants": tenants,
            "endpoints": endpoints,
            "knownAnswers": inspector.known_answers,
        }))?;
        return Ok(Exit::yes_if(errors == 0));
    }
    faults::print(&lines, shell)?;
    let checked = format!(
        "{}, {}, {} run",
        faults::counted(tenants, "tenant"),
        faults::counted(endpoints, "endpoint"),
        faults::counted(inspector.known_answers, "known answer")
    );
    let verdict = if errors == 0 {
        shell.out.paint(Tone::Good, "ok".to_owned())
    } else {
        shell.out.paint(Tone::Bad, faults::counted(errors, "error"))
    };
    let warned = if warnings == 0 { String::new() } else { format!(", {}", faults::counted(warnings, "warning")) };
    shell.out.line(format_args!("{verdict}{warned} ({checked})"))?;
    if appliance.is_none() {
        shell.out.remark("the tenants' files were not looked at: put the appliance's file right first");
    }
    Ok(Exit::yes_if(errors == 0))
}

/// Looks at what only the schemes can judge: is there such a scheme, do its known answers come out, does each
/// secret make a key?
pub(crate) struct Inspector<'p> {
    presets: &'p Presets,
    /// Presets are tested once, however many endpoints use them.
    tested: HashMap<String, Vec<String>>,
    pub(crate) known_answers: usize,
}

impl<'p> Inspector<'p> {
    pub(crate) fn new(presets: &'p Presets) -> Self {
        Self { presets, tested: HashMap::new(), known_answers: 0 }
    }

    pub(crate) fn inspect(&mut self, tenant: &Tenant) -> Vec<Fault> {
        let mut found = Vec::new();
        let declared = self.declared(tenant, &mut found);
        for (at, endpoint) in tenant.endpoints.iter().enumerate() {
            let key = |last: &str| format!("endpoint[{at}].{last}");
            let scheme = match (declared.get(&*endpoint.scheme), self.presets.get(&endpoint.scheme)) {
                // Its own faults are said where it is declared.
                (Some(None), _) => continue,
                (Some(Some(scheme)), _) => Arc::clone(scheme),
                (None, Some(preset)) => {
                    let faults = self.preset_faults(preset).into_iter();
                    found.extend(faults.map(|fault| tenant.fault(endpoint.line, key("scheme"), fault)));
                    Arc::clone(preset)
                }
                (None, None) => {
                    let name = Untrusted::new(endpoint.scheme.as_bytes());
                    let message = format!("there is no scheme \"{name}\"; `tidegate schemes list` names them");
                    found.push(tenant.fault(endpoint.line, key("scheme"), message));
                    continue;
                }
            };
            for (nth, entry) in endpoint.secrets.iter().enumerate() {
                let key = key(&format!("secrets[{nth}]"));
                match (scheme.key(&entry.secret), scheme.key_advice(&entry.secret)) {
                    (Err(fault), _) => found.push(tenant.fault(endpoint.line, key, fault.to_string())),
                    (Ok(_), Some(advice)) => {
                        found.push(Fault::warning(tenant.file(), key, advice).at(endpoint.line));
                    }
                    (Ok(_), None) => {}
                }
            }
        }
        found
    }

    /// The tenant's own schemes, compiled and tested; `None` for one that is faulty.
    fn declared(&mut self, tenant: &Tenant, found: &mut Vec<Fault>) -> HashMap<String, Option<Arc<Scheme>>> {
        let mut schemes = HashMap::new();
        for (at, declared) in tenant.schemes().iter().enumerate() {
            let name = declared.declaration.name.clone();
            let mut say = |message: String| found.push(tenant.fault(declared.line, format!("scheme[{at}]"), message));
            if self.presets.get(&name).is_some() {
                say(format!("\"{name}\" is the name of a scheme that comes with Tidegate; give it another one"));
            }
            let scheme = Scheme::compile(&declared.declaration).map_err(|faults| faults.into_iter().for_each(&mut say));
            let scheme = scheme.ok().and_then(|scheme| match scheme.self_test() {
                Ok(count) => {
                    self.known_answers += count;
                    Some(scheme)
                }
                Err(faults) => {
                    faults.into_iter().for_each(&mut say);
                    None
                }
            });
            schemes.insert(name, scheme);
        }
        schemes
    }

    fn preset_faults(&mut self, scheme: &Scheme) -> Vec<String> {
        if let Some(faults) = self.tested.get(scheme.name()) {
            return faults.clone();
        }
        let faults = match scheme.self_test() {
            Ok(count) => {
                self.known_answers += count;
                Vec::new()
            }
            Err(faults) => faults,
        };
        self.tested.insert(scheme.name().to_owned(), faults.clone());
        faults
    }
}
