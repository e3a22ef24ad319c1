//! `tidegate quota explain`

use super::super::Shell;
use super::super::args::{ClassWord, QuotaExplain};
use super::super::exit::{Exit, Outcome};
use super::super::faults::counted;
use super::super::out::Tone;
use super::super::table::{Cell, Table, print_fields};
use super::super::when;
use super::{ask, name, safe};
use crate::control::quota::wire::{
    BreakerLine, ExplainAnswer, ExplainQuery, Fate, LevelLine, RefusalLine, RunawayLine,
};

pub(super) fn run(args: &QuotaExplain, shell: &mut Shell<'_>) -> Outcome {
    let query = ExplainQuery {
        tenant: args.tenant.clone(),
        role: args.role.clone(),
        connection: args.connection.clone(),
        method: args.method.clone(),
        path: args.path.clone(),
        bulk: args.class == ClassWord::Bulk,
        automation: args.automation.clone(),
    };
    let answer: ExplainAnswer = ask(&args.asked, "/v1/quota/explain", &query, shell)?;
    if args.asked.form.json {
        shell.out.json(&answer)?;
    } else {
        print(&answer, shell)?;
    }
    Ok(match answer.fate {
        Fate::Goes | Fate::Throttled => Exit::Yes,
        Fate::Parked | Fate::Refused => Exit::No,
        Fate::Unknown => Exit::Failed,
    })
}

pub(super) fn print(answer: &ExplainAnswer, shell: &mut Shell<'_>) -> Outcome<()> {
    let (tone, word) = match answer.fate {
        Fate::Goes => (Tone::Good, "goes"),
        Fate::Throttled => (Tone::Warn, "throttled"),
        Fate::Parked => (Tone::Bad, "parked"),
        Fate::Refused => (Tone::Bad, "refused"),
        Fate::Unknown => (Tone::Warn, "unknown"),
    };
    let word = shell.out.paint(tone, word).to_string();
    let until = answer.release_ms.zip(answer.until.as_ref());
    let until =
        until.map_or_else(String::new, |(ms, until)| format!(", for {} (until {})", when::distance(ms), safe(until)));
    shell.out.line(format_args!("{word}: {}{until}", safe(&answer.said)))?;
    shell.out.line("")?;
    let mut fields: Vec<(&str, String)> = answer.runaways.iter().map(|line| ("watched", watched(line))).collect();
    fields.push(("breaker", breaker(&answer.breaker)));
    fields.extend(answer.fleet_breaker.as_ref().map(|fleet| {
        let waits = when::distance(fleet.retry_ms);
        ("the fleet's", format!("{}, for {waits}", safe(&fleet.reason)))
    }));
    fields.push(("retries left", answer.retries_left.to_string()));
    print_fields(&mut shell.out, &fields)?;
    shell.out.line("")?;
    let mut table = Table::new(&["BUCKET", "TAKES", "FREE HERE", "HERE", "USED", "ROOM", "WHO COUNTS"]);
    answer.levels.iter().for_each(|level| table.row(row(level)));
    table.print(&mut shell.out)
}

fn watched(line: &RunawayLine) -> String {
    let name = safe(&line.who.name);
    let Some((baseline, trigger)) = line.baseline.zip(line.trigger) else {
        return format!("{name}: never called here");
    };
    let state = match (line.throttled_to, &line.paused_since) {
        (Some(per_minute), _) => format!("throttled to {per_minute}"),
        (None, Some(since)) => format!("paused since {}", safe(since)),
        (None, None) => safe(&line.state),
    };
    format!("{name}: {state}; wants {} a minute, usual are {baseline}, over {trigger} it runs away", line.wanted)
}

fn breaker(line: &BreakerLine) -> String {
    let state = format!("{}: {}", safe(&line.who.name), safe(&line.phase));
    let counts = (line.calls > 0).then(|| format!("{} of {} calls failed", line.faults, line.calls));
    let opened = (line.times > 0).then(|| format!("opened {} in a row", counted(line.times, "time")));
    [Some(state), counts, opened].into_iter().flatten().collect::<Vec<_>>().join(", ")
}

fn row(level: &LevelLine) -> Vec<Cell> {
    let said = |refusal: &RefusalLine| {
        let text = format!("{} {}", safe(&refusal.reason), when::distance(refusal.retry_ms));
        Cell::toned(Tone::Bad, &text)
    };
    let here = match (&level.here, level.asks, level.units) {
        (Some(refusal), ..) => said(refusal),
        (None, true, _) => Cell::from("asks"),
        (None, false, 0) => Cell::from("not parked"),
        (None, false, _) => Cell::toned(Tone::Good, "ready"),
    };
    let centre = level.centre.as_ref();
    let is_limit = centre.is_some_and(|line| line.rule.kind != "none");
    let number = |of: Option<u64>| of.filter(|_| is_limit).map_or_else(|| Cell::from("-"), |number| Cell::new(&number));
    let park = centre.and_then(|line| line.park.as_ref());
    let park = park.map(|park| RefusalLine { reason: park.why.clone(), retry_ms: park.ms });
    let refusal = park.or_else(|| centre?.refusal.clone().filter(|_| level.units > 0));
    let counts = match (refusal, centre, &level.unanswered) {
        (_, _, Some(fault)) => Cell::untrusted(fault).with(Tone::Warn),
        (Some(refusal), ..) => said(&refusal),
        (None, Some(_), None) if level.units == 0 => Cell::from("not parked"),
        (None, Some(_), None) => Cell::toned(Tone::Good, "grants"),
        (None, None, None) => Cell::from("not asked yet"),
    };
    vec![
        name(&level.bucket),
        Cell::new(&level.units),
        Cell::new(&level.free),
        here,
        number(centre.map(|line| line.used)),
        number(centre.map(|line| line.room)),
        counts,
    ]
}
