//! `tidegate quota list` and `show`.

use super::super::Shell;
use super::super::args::{QuotaList, QuotaShow};
use super::super::events::source::unanswered;
use super::super::exit::{Exit, Outcome};
use super::super::out::Tone;
use super::super::table::{Cell, Table, print_fields};
use super::super::{block_on, running, when};
use super::{ask, milli, name, safe};
use crate::control::client::Client;
use crate::control::quota::wire::{
    BucketLine, HolderLine, HoldingLine, LIMIT_MAX, ListQuery, Listed, ShowQuery, Shown,
};

pub(super) fn list(args: &QuotaList, shell: &mut Shell<'_>) -> Outcome {
    let socket = running::socket(args.asked.socket.as_deref(), &args.asked.config, shell)?;
    let mut query = ListQuery {
        provider: args.provider.as_ref().map(ToString::to_string),
        application: args.application.as_ref().map(ToString::to_string),
        level: args.level.map(|level| level.word().to_owned()),
        parked: args.parked,
        after: None,
        limit: 0,
    };
    let (mut left, mut buckets) = (args.limit, Vec::new());
    let has_more = block_on(async {
        let mut client = Client::connect(&socket).await.map_err(|error| unanswered(&error))?;
        loop {
            query.limit = left.min(LIMIT_MAX);
            let page: Listed = client.ask("/v1/quota/list", &query).await.map_err(|error| unanswered(&error))?;
            left = left.saturating_sub(u32::try_from(page.buckets.len()).unwrap_or(u32::MAX));
            if args.asked.form.json {
                page.buckets.iter().try_for_each(|line| shell.out.json(line))?;
                // Somebody may read along: with many applications there are many pages.
                shell.out.flush()?;
            } else {
                buckets.extend(page.buckets);
            }
            query.after = page.next;
            if query.after.is_none() || left == 0 {
                return Ok(query.after.is_some());
            }
        }
    })?;
    if !args.asked.form.json {
        table(&buckets, shell)?;
    }
    if has_more {
        shell.out.remark("there may be more; see --limit");
    }
    Ok(Exit::Yes)
}

pub(super) fn table(buckets: &[BucketLine], shell: &mut Shell<'_>) -> Outcome<()> {
    if buckets.is_empty() {
        return shell.out.line("no such bucket is in use");
    }
    let mut table = Table::new(&["BUCKET", "USED/CAP", "ROOM", "PARKED", "UNTIL", "BY", "SHARE/S", "TENANTS", "NODES"]);
    for line in buckets {
        let cap = if line.rule.kind == "none" { "-".to_owned() } else { cap(line).to_string() };
        let park = line.park.as_ref();
        let dash = || Cell::from("-");
        table.row(vec![
            name(&line.bucket),
            Cell::from(format!("{}/{cap}", line.used)),
            if line.rule.kind == "none" { dash() } else { Cell::new(&line.room) },
            park.map_or_else(dash, |park| Cell::toned(Tone::Warn, &when::distance(park.ms))),
            park.map_or_else(dash, |park| Cell::untrusted(&park.until)),
            park.map_or_else(dash, |park| Cell::untrusted(&park.why)),
            line.lambda_milli.map_or_else(dash, |lambda| Cell::from(milli(lambda))),
            Cell::new(&line.tenants),
            Cell::new(&line.holders.len()),
        ]);
    }
    table.print(&mut shell.out)
}

/// The rule's, or what the provider's headers say if that is less.
fn cap(line: &BucketLine) -> u32 {
    line.limit_seen.map_or(line.rule.cap, |seen| seen.min(line.rule.cap))
}

pub(super) fn show(args: &QuotaShow, shell: &mut Shell<'_>) -> Outcome {
    let query = ShowQuery { bucket: args.bucket.to_string() };
    let shown: Option<Shown> = ask(&args.asked, "/v1/quota/show", &query, shell)?;
    if args.asked.form.json {
        shell.out.json(&shown)?;
    } else if let Some(shown) = &shown {
        whole(shown, shell)?;
    } else {
        shell.out.line("there is no such bucket: nothing was asked of it lately, and it is not parked")?;
    }
    Ok(Exit::yes_if(shown.is_some()))
}

pub(super) fn whole(shown: &Shown, shell: &mut Shell<'_>) -> Outcome<()> {
    let line = &shown.line;
    let span = |ms: Option<u64>| ms.map_or_else(|| "no".to_owned(), |ms| format!("for {}", when::distance(ms)));
    let park = line.park.as_ref().map_or_else(
        || "no".to_owned(),
        |park| format!("for {}, until {}, by {}", when::distance(park.ms), safe(&park.until), safe(&park.why)),
    );
    let released = match line.released_milli {
        1_000 => "all of the rate".to_owned(),
        part => format!("{} % of the rate, after a park, one call after the other", milli(u64::from(part) * 100)),
    };
    let refusal = line.refusal.as_ref().map_or_else(
        || "no".to_owned(),
        |refusal| format!("{}, for {}", safe(&refusal.reason), when::distance(refusal.retry_ms)),
    );
    let share = line.lambda_milli.map_or_else(
        || "as much as each wants".to_owned(),
        |lambda| format!("{} a second and weight each", milli(lambda)),
    );
    let is_limit = line.rule.kind != "none";
    let seen = line.limit_seen.map_or_else(|| "none lower".to_owned(), |seen| seen.to_string());
    print_fields(
        &mut shell.out,
        &[
            ("bucket", safe(&line.bucket)),
            ("rule", safe(&line.rule.words)),
            ("used", line.used.to_string()),
            ("room", if is_limit { line.room.to_string() } else { "any".to_owned() }),
            ("limit in answers", seen),
            ("parked", park),
            ("released", released),
            ("share of tenants", share),
            ("tenants that want", line.tenants.to_string()),
            ("listening after a loss", span(line.learning_ms)),
            ("would refuse a unit", refusal),
            ("generation", line.generation.to_string()),
        ],
    )?;
    if !line.holders.is_empty() {
        shell.out.line("")?;
        let mut table = Table::new(&["NODE", "UNITS", "FOR"]);
        line.holders.iter().for_each(|holder| table.row(holder_row(holder)));
        table.print(&mut shell.out)?;
    }
    if shown.here.is_empty() {
        return Ok(());
    }
    shell.out.line("")?;
    let mut table = Table::new(&["TENANT HERE", "FREE", "OF", "IN USE", "FOR", "WAIT", "WANTED/S", "ASKING"]);
    shown.here.iter().for_each(|holding| table.row(holding_row(holding)));
    table.print(&mut shell.out)?;
    let more = shown.here_all.saturating_sub(shown.here.len());
    if more > 0 {
        shell.out.line(format_args!("and {more} more tenants hold less"))?;
    }
    Ok(())
}

fn holder_row(holder: &HolderLine) -> Vec<Cell> {
    let named = if holder.here { format!("{} (this one)", safe(&holder.holder)) } else { safe(&holder.holder) };
    vec![Cell::from(named), Cell::new(&holder.units), Cell::from(when::distance(holder.ttl_ms))]
}

fn holding_row(holding: &HoldingLine) -> Vec<Cell> {
    vec![
        name(&holding.tenant),
        Cell::new(&holding.free),
        Cell::new(&holding.granted),
        Cell::new(&holding.in_use),
        Cell::from(when::distance(holding.ttl_ms)),
        Cell::new(&holding.queued),
        Cell::from(milli(holding.wanted_milli.into())),
        Cell::from(if holding.asking { "yes" } else { "no" }),
    ]
}
