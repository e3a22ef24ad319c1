//! `tidegate check`: everything that is wrong with the configuration, before it goes live.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use config::{ApplianceInPart, Environment, Fault, Tenant, TenantFiles, TenantsLoad};
use domain::SystemClock;
use domain::text::Untrusted;
use egress::ranges::Shelf;
use gateway::endpoint::TenantEndpoints;
use gateway::scheme::{DeclarationFault, Presets, Proven, Scheme};
use serde_json::json;

use super::Shell;
use super::args::Check;
use super::events::source::shown;
use super::exit::{Exit, Outcome};
use super::out::Tone;
use super::{directories, faults, scheme};
use crate::control::wire::FaultLine;
use crate::run::{JudgedBy, Machine, judge_calls, judge_runs, unvouched};

/// What was looked at, and what was found.
#[derive(Default)]
pub(super) struct Looked {
    pub(super) faults: Vec<Fault>,
    tenants: usize,
    endpoints: usize,
    known_answers: usize,
    /// Whether the appliance's file has faults that keep it from being used.
    is_faulty: bool,
    /// Of a faulty file, what tenants' files could be judged by.
    in_part: Option<ApplianceInPart>,
    /// Files beside the tenants' own that nobody reads.
    passed_over: Vec<PathBuf>,
}

/// Looks at a whole configuration. Where the appliance's file is faulty, its tenants' files are looked at all the same.
pub(super) fn look(path: &Path, environment: &dyn Environment, presets: &Presets, on: Machine) -> Looked {
    let (appliance, faults) = config::load_appliance(path);
    let in_part = appliance.is_none().then(|| config::appliance_in_part(path)).flatten();
    let mut looked = Looked { faults, is_faulty: appliance.is_none(), in_part, ..Looked::default() };
    let judged_by = appliance.as_ref().or_else(|| looked.in_part.as_ref().map(|part| &part.appliance));
    if let Some(appliance) = judged_by {
        let mut inspector = Inspector::new(presets);
        let files = TenantFiles::without_state().with_variables_apart();
        let mut files = if let Some(part) = &looked.in_part { files.judged_in_part(part) } else { files };
        // As a running appliance does, where it takes calls.
        let shelf = Shelf::open(&appliance.egress.ranges.book);
        let judged = || {
            let (book, now_unix_ms) = (&shelf.found(), SystemClock::shared().unix_ms());
            judge_calls(appliance, path, JudgedBy { environment, now_unix_ms, book, on })
        };
        let calls = appliance.egress.enabled.then(judged);
        let (calls, found) = calls.unwrap_or_default();
        looked.faults.extend(found);
        if appliance.runner.enabled && looked.in_part.is_none() {
            looked.faults.extend(judge_runs(appliance, path, environment, SystemClock::shared().unix_ms()).1);
        }
        if on == Machine::This && looked.in_part.is_none() {
            looked.faults.extend(directories::faults(appliance, path));
        }
        looked.passed_over = config::files_passed_over(&appliance.tenants.directory);
        let load: TenantsLoad = files.load(appliance, environment, &mut |tenant| {
            let mut faults = inspector.inspect(&tenant);
            faults.extend(calls.iter().flat_map(|calls| calls.compiled.tenant(&tenant).1));
            faults.extend(Some(&tenant).filter(|_| appliance.runner.enabled).and_then(|it| unvouched(appliance, it)));
            (Some(tenant), faults)
        });
        looked.tenants = load.tenants.len();
        looked.endpoints = load.tenants.iter().map(|tenant| tenant.endpoints.len()).sum();
        looked.known_answers = inspector.known_answers;
        looked.faults.extend(load.faults);
    }
    looked
}

pub(super) fn run(args: &Check, shell: &mut Shell<'_>) -> Outcome {
    let presets = scheme::presets()?;
    let Looked { faults: found, tenants, endpoints, known_answers, is_faulty, in_part, passed_over } = look(
        &args.file.config,
        shell.environment,
        &presets,
        if args.elsewhere { Machine::Another } else { Machine::This },
    );
    let misread = in_part.as_ref().map(|part| part.misread.join(", ")).filter(|keys| !keys.is_empty());
    let lines: Vec<FaultLine> = found.iter().map(FaultLine::from).collect();
    let errors = lines.iter().filter(|line| faults::is_error(line)).count();
    let warnings = lines.len() - errors;
    // A file that is not there is no faulty one: nothing was checked.
    let unread = is_faulty && std::fs::File::open(&args.file.config).is_err();
    let exit = if unread { Exit::Failed } else { Exit::yes_if(errors == 0) };
    if args.form.json {
        shell.out.json(&json!({
            "ok": errors == 0,
            "faults": lines,
            "tenants": tenants,
            "endpoints": endpoints,
            "knownAnswers": known_answers,
            "judgedWithDefaults": in_part.as_ref().map_or(&[][..], |part| &part.misread),
        }))?;
        return Ok(exit);
    }
    faults::print(&lines, shell)?;
    let checked = format!(
        "{}, {}, {} run",
        faults::counted(tenants, "tenant"),
        faults::counted(endpoints, "endpoint"),
        faults::counted(known_answers, "known answer")
    );
    let verdict = if errors == 0 {
        shell.out.paint(Tone::Good, "ok".to_owned())
    } else {
        shell.out.paint(Tone::Bad, faults::counted(errors, "error"))
    };
    let warned = if warnings == 0 { String::new() } else { format!(", {}", faults::counted(warnings, "warning")) };
    shell.out.line(format_args!("{verdict}{warned} ({checked})"))?;
    for file in passed_over {
        let file = shown(&file);
        shell.out.remark(format_args!("note: {file} is not read: a tenant's file is named <tenant>.toml"));
    }
    if let Some(keys) = misread {
        shell.out.remark(format!("the tenants' files were judged without what is faulty: {keys}"));
    }
    if is_faulty && in_part.is_none() {
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
        for declared in tenant.schemes().iter().filter(|declared| declared.is_whole()) {
            // One that does not compile has been judged already.
            let Ok(scheme) = Scheme::compile_shared(&declared.declaration) else { continue };
            let key = format!("scheme[{}]", declared.index);
            let is_used = tenant.endpoints.iter().any(|endpoint| *endpoint.scheme == *scheme.name());
            if is_used && scheme.proven() == Proven::Nothing {
                let message = format!(
                    "scheme \"{}\" has no known answer that verifies: nothing shows that it is its provider's; add \
                     [[scheme.known_answer]] of a delivery that you captured",
                    Untrusted::new(scheme.name().as_bytes())
                );
                found.push(Fault::warning(tenant.file(), format!("{key}.known_answer"), message).at(declared.line));
            }
            found.extend(
                self.run_known_answers(&scheme)
                    .into_iter()
                    .map(|fault| tenant.fault(declared.line, format!("{key}.{}", fault.key), fault.message)),
            );
        }
        for (index, endpoint) in tenant.endpoints.iter().enumerate() {
            let Some(preset) = self.presets.get(&endpoint.scheme) else { continue };
            let faults = self.preset_faults(preset);
            let key = format!("endpoint[{index}].scheme");
            found.extend(faults.into_iter().map(|fault| tenant.fault(endpoint.line, key.as_str(), fault)));
        }
        found
    }

    fn preset_faults(&mut self, preset: &Scheme) -> Vec<String> {
        if let Some(faults) = self.tested.get(preset.name()) {
            return faults.clone();
        }
        let faults: Vec<_> = self.run_known_answers(preset).into_iter().map(|fault| fault.message).collect();
        self.tested.insert(preset.name().to_owned(), faults.clone());
        faults
    }

    fn run_known_answers(&mut self, scheme: &Scheme) -> Vec<DeclarationFault> {
        match scheme.self_test() {
            Ok(count) => {
                self.known_answers += count;
                Vec::new()
            }
            Err(faults) => faults,
        }
    }
}
