//! `tidegate grant`: mints call grants for testing, looks at them, takes them back.
//!
//! Grants and tokens are secrets: they go to standard output where one was asked for, and nowhere else.

mod keygen;
mod known;
mod mint;
mod revoke;
mod show;
mod token;

use std::path::Path;
use std::sync::Arc;

use config::Appliance;
use domain::Clock;
use egress::caller::{CallerSettings, Callers, REVOCATIONS_FILE, RevocationFault, Revocations};

use super::Shell;
use super::args::{Grant, GrantCommand};
use super::exit::{Failure, Outcome};

pub(super) fn run(args: &Grant, shell: &mut Shell<'_>) -> Outcome {
    match &args.command {
        None => mint::run(&args.mint, shell),
        Some(GrantCommand::Show(args)) => show::run(args, shell),
        Some(GrantCommand::Revoke(args)) => revoke::revoke(args, shell),
        Some(GrantCommand::Revoked(args)) => revoke::list(args, shell),
        Some(GrantCommand::Token(args)) => token::run(args, shell),
        Some(GrantCommand::Keygen(args)) => keygen::run(args, shell),
    }
}

/// Everybody who may come, as a node that is started now would have them.
fn callers<'t>(
    appliance: &Appliance,
    tenants: impl IntoIterator<Item = &'t config::Tenant>,
    shell: &mut Shell<'_>,
) -> Outcome<Callers> {
    let (settings, faults) = CallerSettings::of(&appliance.egress, tenants);
    for fault in faults {
        shell.out.remark(format_args!("{} (line {}): {fault}", fault.key, fault.line));
    }
    let revocations = revocations(&appliance.tenants.state_directory, &shell.clock)?;
    let (callers, left_out) = Callers::new(settings, Arc::new(revocations), Arc::clone(&shell.clock));
    for left_out in left_out {
        shell.out.remark(format_args!("{left_out}: it is not taken"));
    }
    Ok(callers)
}

fn revocations(state_directory: &Path, clock: &Arc<dyn Clock>) -> Outcome<Revocations> {
    Revocations::open(state_directory, Arc::clone(clock)).map_err(|fault| unread(&fault))
}

fn unread(fault: &RevocationFault) -> Failure {
    Failure::failed(
        format_args!("what is revoked cannot be read: {fault}"),
        format_args!("look at {REVOCATIONS_FILE} in the state directory; only its owner may be able to read that"),
    )
}

fn no_randomness<E>(_: E) -> Failure {
    Failure::plain("the operating system gives no randomness")
}

#[cfg(test)]
mod tests;
