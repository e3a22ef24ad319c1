//! `tidegate quota breakers` and `runaways`.

use super::super::Shell;
use super::super::args::{QuotaBreakers, QuotaRunaways};
use super::super::exit::{Exit, Outcome};
use super::super::out::Tone;
use super::super::table::{Cell, Table};
use super::super::when;
use super::{ask, name};
use crate::control::quota::wire::{BreakerLine, Guards, GuardsQuery, RunawayLine};

pub(super) fn breakers(args: &QuotaBreakers, shell: &mut Shell<'_>) -> Outcome {
    let query = GuardsQuery { tenant: args.tenant.clone(), notable: args.open, limit: args.limit };
    let found: Guards<BreakerLine> = ask(&args.asked, "/v1/quota/breakers", &query, shell)?;
    if args.asked.form.json {
        shell.out.json(&found)?;
        return Ok(Exit::Yes);
    }
    if found.lines.is_empty() {
        shell.out.line(if args.open { "no breaker is open" } else { "nothing has failed lately" })?;
        return Ok(Exit::Yes);
    }
    breaker_table(&found, shell)?;
    Ok(Exit::Yes)
}

pub(super) fn breaker_table(found: &Guards<BreakerLine>, shell: &mut Shell<'_>) -> Outcome<()> {
    let mut table = Table::new(&["BREAKER", "PHASE", "OPEN FOR", "IN A ROW", "FAULTS/CALLS"]);
    for line in &found.lines {
        let is_closed = line.phase == "closed";
        let tone = if is_closed { Tone::Plain } else { Tone::Bad };
        let waits = match (is_closed, line.retry_ms) {
            (true, _) => "-".to_owned(),
            (false, 0) => "the next call probes".to_owned(),
            (false, ms) => when::distance(ms),
        };
        let counted = if is_closed { format!("{}/{}", line.faults, line.calls) } else { "-".to_owned() };
        table.row(vec![
            name(&line.who.name),
            Cell::untrusted(&line.phase).with(tone),
            Cell::from(waits),
            Cell::new(&line.times),
            Cell::from(counted),
        ]);
    }
    table.print(&mut shell.out)?;
    more(found.all, found.lines.len(), shell)
}

pub(super) fn runaways(args: &QuotaRunaways, shell: &mut Shell<'_>) -> Outcome {
    let query = GuardsQuery { tenant: args.tenant.clone(), notable: !args.all, limit: args.limit };
    let found: Guards<RunawayLine> = ask(&args.asked, "/v1/quota/runaways", &query, shell)?;
    if args.asked.form.json {
        shell.out.json(&found)?;
        return Ok(Exit::Yes);
    }
    if found.lines.is_empty() {
        let said = "nothing is watched yet";
        shell.out.line(if args.all { said } else { "nothing is throttled, paused or announced" })?;
        return Ok(Exit::Yes);
    }
    runaway_table(&found, shell)?;
    Ok(Exit::Yes)
}

pub(super) fn runaway_table(found: &Guards<RunawayLine>, shell: &mut Shell<'_>) -> Outcome<()> {
    let mut table = Table::new(&["WHOSE", "STATE", "BASELINE", "WANTED", "TRIGGER", "ANNOUNCED"]);
    for line in &found.lines {
        let (tone, state) = match (line.throttled_to, &line.paused_since) {
            (Some(per_minute), _) => (Tone::Warn, format!("throttled to {per_minute}")),
            (None, Some(since)) => (Tone::Bad, format!("paused since {since}")),
            (None, None) => (Tone::Plain, line.state.clone()),
        };
        let number = |of: Option<u64>| of.map_or_else(|| Cell::from("-"), |number| Cell::new(&number));
        let announced = line.announced.as_ref();
        let announced =
            announced.map_or_else(|| "-".to_owned(), |spike| format!("{}x until {}", spike.factor, spike.until));
        table.row(vec![
            name(&line.who.name),
            Cell::untrusted(&state).with(tone),
            number(line.baseline.map(u64::from)),
            Cell::new(&line.wanted),
            number(line.trigger),
            Cell::untrusted(&announced),
        ]);
    }
    table.print(&mut shell.out)?;
    more(found.all, found.lines.len(), shell)
}

fn more(all: usize, shown: usize, shell: &mut Shell<'_>) -> Outcome<()> {
    match all.saturating_sub(shown) {
        0 => Ok(()),
        more => shell.out.line(format_args!("and {more} more; see --limit")),
    }
}
