//! `tidegate check`: everything that is wrong with the configuration, before it goes live.

use std::collections::HashMap;

use config::{Fault, Tenant, TenantFiles, TenantsLoad};
use gateway::endpoint::TenantEndpoints;
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
    // Where the appliance's file is faulty, its tenants' files are looked at all the same.
    let in_part = appliance.is_none().then(|| config::appliance_in_part(&args.file.config)).flatten();
    let defaults = in_part.as_ref().map(|(_, keys)| keys.join(", ")).filter(|keys| !keys.is_empty());
    let judged_by = appliance.as_ref().or_else(|| in_part.as_ref().map(|(appliance, _)| appliance));
    if let Some(appliance) = judged_by {
        let load: TenantsLoad = TenantFiles::without_state().load(appliance, shell.environment, &mut |tenant| {
            let faults = inspector.inspect(&tenant);
            (Some(tenant), faults)
        });
        tenants = load.tenants.len();
        endpoints = load.tenants.iter().map(|tenant| tenant.endpoints.len()).sum();
        found.extend(load.faults);
    }
    let lines: Vec<FaultLine> = found.iter().map(FaultLine::from).collect();
    let errors = lines.iter().filter(|line| faults::is_error(line)).count();
    let warnings = lines.len() - errors;
    // A file that is not there is no faulty one: nothing was checked.
    let unread = appliance.is_none() && std::fs::File::open(&args.file.config).is_err();
    let exit = if unread { Exit::Failed } else { Exit::yes_if(errors == 0) };
    if args.form.json {
        shell.out.json(&json!({
            "ok": errors == 0,
            "faults": lines,
            "tenants": tenants,
            "endpoints": endpoints,
            "knownAnswers": inspector.known_answers,
            "judgedWithDefaults": in_part.as_ref().map_or(&[][..], |(_, keys)| keys),
        }))?;
        return Ok(exit);
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
    if let Some(keys) = defaults {
        shell.out.remark(format!("the tenants' files were judged with the defaults of what is faulty: {keys}"));
    }
    if judged_by.is_none() {
        shell.out.remark("the tenants' files were not looked at: put the appliance's file right first");
    }
    Ok(exit)
}

/// Looks at what only the schemes can judge: what a running appliance refuses, and, beyond it, whether the known
/// answers of every scheme in use come out.
struct Inspector<'p> {
    presets: &'p Presets,
    /// Presets are tested once, however many endpoints use them.
    tested: HashMap<String, Vec<String>>,
    known_answers: usize,
}

impl<'p> Inspector<'p> {
    fn new(presets: &'p Presets) -> Self {
        Self { presets, tested: HashMap::new(), known_answers: 0 }
    }

    fn inspect(&mut self, tenant: &Tenant) -> Vec<Fault> {
        let mut found = TenantEndpoints::new(tenant.clone(), self.presets).1;
        for declared in tenant.schemes() {
            let name = &declared.declaration.name;
            let mut say = |fault: String| found.push(tenant.fault(declared.line, format!("scheme.{name}"), fault));
            // One that does not compile has been judged already.
            let Ok(scheme) = Scheme::compile(&declared.declaration) else { continue };
            self.run_known_answers(&scheme).into_iter().for_each(&mut say);
        }
        for endpoint in &tenant.endpoints {
            let Some(preset) = self.presets.get(&endpoint.scheme) else { continue };
            let faults = self.preset_faults(preset);
            let key = format!("endpoint.{}.scheme", endpoint.id);
            found.extend(faults.into_iter().map(|fault| tenant.fault(endpoint.line, key.clone(), fault)));
        }
        found
    }

    fn preset_faults(&mut self, preset: &Scheme) -> Vec<String> {
        if let Some(faults) = self.tested.get(preset.name()) {
            return faults.clone();
        }
        let faults = self.run_known_answers(preset);
        self.tested.insert(preset.name().to_owned(), faults.clone());
        faults
    }

    fn run_known_answers(&mut self, scheme: &Scheme) -> Vec<String> {
        match scheme.self_test() {
            Ok(count) => {
                self.known_answers += count;
                Vec::new()
            }
            Err(faults) => faults,
        }
    }
}
