//! `tidegate events list`

use super::super::Shell;
use super::super::args::EventsList;
use super::super::exit::Outcome;
use super::super::out::Tone;
use super::super::table::{Cell, Table};
use super::super::when::When;
use super::source::Source;
use crate::control::wire::{EventLine, Query, Which, Whose};

/// Whoever has few events would else have the index of every segment looked at.
const SINCE_DEFAULT: When = When::Ago(24 * 3_600_000);

/// Enough of a provider's id to recognise it by.
const DELIVERY_BYTES_MAX: usize = 40;

pub(super) fn run(args: &EventsList, shell: &mut Shell<'_>) -> Outcome {
    let mut query = super::query(&args.scope, &args.span, Which::Newest(args.limit), shell)?;
    query.held = args.held;
    // What is held is bounded; events are not.
    if query.since.is_none() && !args.held {
        query.since = Some(SINCE_DEFAULT.unix_ms(shell.clock.unix_ms()));
    }
    let source = Source::open(&args.scope.place, shell)?;
    // A look at what there is, and no copy of it.
    query.skip_damage = true;
    if args.form.json {
        let mut is_empty = true;
        let exit = super::each(&source, &query, shell, &mut |line, shell| {
            is_empty = false;
            shell.out.json(&line)
        })?;
        if is_empty {
            say_nothing(args, shell);
        }
        return Ok(exit);
    }
    let mut table = Table::new(heads(&query));
    let exit = super::each(&source, &query, shell, &mut |line, _| {
        table.row(row(&query, &line));
        Ok(())
    })?;
    if table.is_empty() {
        say_nothing(args, shell);
        return Ok(exit);
    }
    table.print(&mut shell.out)?;
    Ok(exit)
}

fn say_nothing(args: &EventsList, shell: &mut Shell<'_>) {
    shell.out.remark(nothing(args));
    super::warn_of_a_stranger(&args.scope, shell);
}

fn nothing(args: &EventsList) -> &'static str {
    match (args.held, args.span.since) {
        (true, _) => "nothing is held",
        (false, None) => "no events in the last 24 hours; --since 30d looks further back",
        (false, Some(_)) => "no events in that time",
    }
}

fn heads(query: &Query) -> &'static [&'static str] {
    match (query.held, &query.whose) {
        (false, Whose::Tenant(_)) => &["RECEIVED", "EVENT", "ENDPOINT", "SCHEME", "BYTES", "DELIVERY"],
        (false, Whose::AllTenants) => &["RECEIVED", "EVENT", "TENANT", "ENDPOINT", "SCHEME", "BYTES", "DELIVERY"],
        (true, Whose::Tenant(_)) => &["RECEIVED", "EVENT", "ENDPOINT", "SCHEME", "BYTES", "STATUS", "REASON", "PEER"],
        (true, Whose::AllTenants) => {
            &["RECEIVED", "EVENT", "TENANT", "ENDPOINT", "SCHEME", "BYTES", "STATUS", "REASON", "PEER"]
        }
    }
}

fn row(query: &Query, line: &EventLine) -> Vec<Cell> {
    let mut cells = vec![Cell::toned(Tone::Dim, &line.received_at), Cell::new(&line.id)];
    if query.whose == Whose::AllTenants {
        cells.push(Cell::new(&line.tenant));
    }
    cells.extend([Cell::new(&line.endpoint), Cell::untrusted(&line.scheme), Cell::new(&line.body_bytes)]);
    if let Some(held) = &line.held {
        cells.extend([
            Cell::toned(Tone::Warn, held.status.as_str()),
            Cell::untrusted(&held.reason),
            Cell::untrusted(&line.peer),
        ]);
    } else {
        let delivery = line.delivery_id.as_ref().map(|id| id.value.shown(DELIVERY_BYTES_MAX));
        cells.push(Cell::from(delivery.unwrap_or_default()));
    }
    cells
}
