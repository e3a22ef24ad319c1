//! `tidegate reload`: have the running appliance read its configuration again.

use super::Shell;
use super::args::Reload;
use super::events::source;
use super::exit::{Exit, Outcome};
use super::{faults, running};
use crate::control::client::Client;
use crate::control::wire::Reloaded;

pub(super) fn run(args: &Reload, shell: &mut Shell<'_>) -> Outcome {
    let socket = running::socket(args.socket.as_deref(), &args.file.config, shell)?;
    let reloaded: Reloaded = super::block_on(async {
        let mut client = Client::connect(&socket).await.map_err(|error| source::unanswered(&error))?;
        client.ask("/v1/reload", &()).await.map_err(|error| source::unanswered(&error))
    })?;
    let good = !reloaded.faults.iter().any(|fault| fault.severity == "error");
    if args.form.json {
        shell.out.json(&reloaded)?;
    } else {
        faults::print(&reloaded.faults, shell)?;
        let verdict = if good { "in force" } else { "in force, except for what is faulty" };
        if !reloaded.restart_needed.is_empty() {
            let keys = reloaded.restart_needed.join(", ");
            shell.out.line(format_args!("at the next start: {keys}"))?;
        }
        shell.out.line(format_args!("{verdict}; {} changed", faults::counted(reloaded.changed, "tenant")))?;
    }
    Ok(Exit::yes_if(good))
}
