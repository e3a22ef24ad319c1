//! `tidegate explain`: what would be decided on a call, and why. Nothing is dialled.
//!
//! It goes the way of `egress/src/serve.rs`, with the same functions in the same order: parse, switches, name, addresses,
//! exit. What differs is that somebody looks on, that `--answer` can stand for DNS, and that who asks is taken for granted.

mod judge;
mod report;

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use config::{Appliance, Fault, TenantFiles};
use domain::TenantId;
use domain::text::Untrusted;
use egress::compile::{self, Compiled, TenantOut};
use egress::ranges::{BookFound, Shelf};
use egress::switches::Switches;
use egress::{Exits, Policy};

use super::Shell;
use super::args::Explain;
use super::exit::{Exit, Failure, Outcome};
use super::{block_on, settings};
use judge::{Judgement, Verdict};

/// The configuration, as serving has it.
struct Node {
    appliance: Appliance,
    policy: Policy,
    /// What of the tenant's file is about calls.
    out: Option<Arc<TenantOut>>,
    vetting: outbound::Rules,
    exits: Exits,
    /// Exit addresses of the file that no call leaves from, a sentence each.
    unpublished: Vec<String>,
    switches: Switches,
}

pub(super) fn run(args: &Explain, shell: &mut Shell<'_>) -> Outcome {
    let question = judge::Question::of(args)?;
    let node = Node::load(&args.file.config, &args.tenant, shell)?;
    let clock = Arc::clone(&shell.clock);
    let mut judgement = block_on(async { judge::judge(&node, &question, clock).await })?;
    if !node.appliance.egress.enabled {
        judgement
            .remarks
            .push("the file has no [egress] table: no call goes out here, and its defaults are shown".into());
    }
    report::print(&question, &judgement, args.form.json, shell)?;
    Ok(exit(&judgement))
}

fn exit(judgement: &Judgement) -> Exit {
    match judgement.verdict {
        Verdict::Allowed => Exit::Yes,
        Verdict::Refused { .. } => Exit::No,
        Verdict::Undecided { .. } => Exit::Failed,
    }
}

impl Node {
    fn load(path: &Path, asked: &TenantId, shell: &Shell<'_>) -> Outcome<Self> {
        let appliance = settings::appliance(path)?;
        let (catalogue, faults) = compile::catalogue(&appliance);
        let catalogue = catalogue.ok_or_else(|| faulty(path, &faults))?;
        let (compiled, faults) = Compiled::new(&appliance, path, &catalogue);
        if config::has_errors(&faults) {
            return Err(faulty(path, &faults));
        }
        let mut tenants: HashMap<TenantId, Option<Arc<TenantOut>>> = HashMap::new();
        let load: config::TenantsLoad =
            TenantFiles::without_state().load(&appliance, shell.environment, &mut |tenant| {
                let (out, faults) = compiled.tenant(&tenant);
                if !config::has_errors(&faults) {
                    tenants.insert(tenant.id.clone(), out);
                }
                (Some(tenant), faults)
            });
        let tenant = load.tenants.into_iter().find(|tenant| tenant.id == *asked);
        tenants.retain(|id, _| id != asked || tenant.is_some());
        let its_file = appliance.tenants.directory.join(format!("{asked}.toml"));
        let its_faults: Vec<Fault> = load.faults.into_iter().filter(|fault| fault.file == its_file).collect();
        if tenant.is_none() && config::has_errors(&its_faults) {
            return Err(faulty(path, &its_faults));
        }
        let interfaces = outbound::interface_addresses().map_err(|error| {
            Failure::plain(format_args!("the addresses of this machine's interfaces cannot be read: {error}"))
        })?;
        let switches = Switches::open(&appliance.tenants.state_directory).map_err(|fault| {
            let next = "a node with this file does not start: nobody would know what has to be off";
            Failure::failed(Untrusted::with_limit(fault.to_string().as_bytes(), 1024), next)
        })?;
        let book = Shelf::open(&appliance.egress.ranges.book).found();
        if let BookFound::Faulty(fault) = &book {
            let next = "a node with this book does not start: nobody could say which addresses are published";
            return Err(Failure::failed(Untrusted::with_limit(fault.as_bytes(), 1024), next));
        }
        let (exits, unpublished) = Exits::of(&appliance.egress, &book);
        let out = tenants.get(asked).cloned().flatten();
        Ok(Self {
            policy: compiled.policy(tenants.iter().map(|(id, out)| (id, out.as_ref()))),
            vetting: compiled.vetting(compile::own(&appliance, interfaces)),
            exits,
            unpublished,
            appliance,
            out,
            switches,
        })
    }
}

fn faulty(path: &Path, faults: &[Fault]) -> Failure {
    let first = faults.iter().find(|fault| fault.is_error()).map_or_else(String::new, ToString::to_string);
    let shown = Untrusted::with_limit(path.as_os_str().as_encoded_bytes(), 1024);
    Failure::failed(first, format_args!("`tidegate check --config {shown}` says everything that is wrong"))
}

#[cfg(test)]
mod tests;
