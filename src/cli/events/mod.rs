//! `tidegate events …`: reading what was delivered, always for somebody.

pub(super) mod body;
mod export;
mod list;
mod redact;
mod reverify;
mod show;
pub(super) mod source;
mod tail;

use super::Shell;
use super::args::{Events, Place, Scope, Span};
use super::exit::{Exit, Failure, Outcome};
use super::{running, settings};
use crate::control::wire::{EventLine, Query, Said, Which, Whose};
use domain::text::Untrusted;
use source::Source;

pub(super) fn run(command: &Events, shell: &mut Shell<'_>) -> Outcome {
    match command {
        Events::List(args) => list::run(args, shell),
        Events::Show(args) => show::run(args, shell),
        Events::Tail(args) => tail::run(args, shell),
        Events::Export(args) => export::run(args, shell),
        Events::Reverify(args) => reverify::run(args, shell),
    }
}

/// Whose events a command may see: said by name, or looked up from the endpoint, or explicitly everybody's.
fn whose(scope: &Scope, shell: &Shell<'_>) -> Outcome<Whose> {
    if scope.all_tenants {
        return Ok(Whose::AllTenants);
    }
    if let Some(tenant) = &scope.tenant {
        return Ok(Whose::Tenant(tenant.clone()));
    }
    let Some(endpoint) = &scope.endpoint else {
        return Err(Failure::usage("whose events?", "name --tenant or --endpoint, or say --all-tenants"));
    };
    let configured = settings::Configured::load_in_part(&scope.place.config, shell)?;
    let (tenant, _) = configured.endpoint(endpoint)?;
    Ok(Whose::Tenant(tenant.id.clone()))
}

/// Says so, where the tenant that is named has no file: its name may be misspelt.
fn warn_of_a_stranger(scope: &Scope, shell: &mut Shell<'_>) {
    let Place { config, socket, log } = &scope.place;
    running::warn_of_a_stranger(scope.tenant.as_ref(), config, socket.is_some() || log.is_some(), shell);
}

fn query(scope: &Scope, span: &Span, which: Which, shell: &Shell<'_>) -> Outcome<Query> {
    let now = shell.clock.unix_ms();
    Ok(Query {
        whose: whose(scope, shell)?,
        endpoint: scope.endpoint.clone(),
        since: span.since.map(|since| since.unix_ms(now)),
        until: span.until.map(|until| until.unix_ms(now)),
        which,
        held: false,
        whole: false,
        skip_damage: false,
    })
}

/// Asks, gives each item to `take` and each remark to whoever looks, and says whether the answer is all there is.
fn each(
    source: &Source,
    query: &Query,
    shell: &mut Shell<'_>,
    take: &mut dyn FnMut(EventLine, &mut Shell<'_>) -> Outcome<()>,
) -> Outcome {
    let mut whole = true;
    source.each(query, &mut |said| match said {
        Said::Item(line) => take(line, shell),
        Said::Aside(aside) => {
            whole &= !aside.missing;
            shell.out.remark(Untrusted::with_limit(aside.text.as_bytes(), 1024));
            Ok(())
        }
    })?;
    Ok(Exit::yes_if(whole))
}

#[cfg(test)]
mod sample;
#[cfg(test)]
mod tests;
