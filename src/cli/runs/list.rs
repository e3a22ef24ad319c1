//! `tidegate runs list` and `quarantined`.

use runner::api::{LIMIT_MAX, StatusWord};
use serde_json::Value;

use super::super::Shell;
use super::super::args::{RunsList, RunsQuarantined};
use super::super::exit::{Exit, Outcome};
use super::super::out::Tone;
use super::super::table::{Cell, Table};
use super::ask::{Asking, Question, called, of_tenant};

pub(super) fn run(args: &RunsList, shell: &mut Shell<'_>) -> Outcome {
    let asking = Asking::of(&args.of.node, shell)?;
    let now_unix_ms = shell.clock.unix_ms();
    let mut filter = Vec::new();
    let mut add = |name: &str, value: Option<String>| filter.extend(value.map(|value| format!("{name}={value}")));
    let statuses: Vec<_> = args.status.iter().map(|status| StatusWord::of(*status)).collect();
    add("automation", args.automation.as_ref().map(called));
    add("status", (!statuses.is_empty()).then(|| statuses.join(",")));
    add("cause", args.cause.map(|cause| cause.word().to_owned()));
    add("endpoint", args.endpoint.as_ref().map(ToString::to_string));
    add("connection", args.connection.as_ref().map(ToString::to_string));
    add("event", args.event.map(|event| event.to_string()));
    add("replay", args.replay.clone());
    add("class", args.class.map(|class| class.code().to_owned()));
    add("deadLetters", args.dead_letters.then(|| "true".to_owned()));
    add("from", args.since.map(|when| when.unix_ms(now_unix_ms).to_string()));
    add("to", args.until.map(|when| when.unix_ms(now_unix_ms).to_string()));
    let (mut left, mut after, mut lines) = (args.limit as usize, None::<String>, Vec::new());
    let mut is_stale = false;
    let has_more = loop {
        let mut query = filter.clone();
        query.push(format!("limit={}", left.min(LIMIT_MAX)));
        query.extend(after.as_ref().map(|after| format!("after={after}")));
        let path = of_tenant(&args.of.tenant, &format!("/executions?{}", query.join("&")));
        let Some(page) = asking.yes(Question::get(path), args.of.node.form.json, shell)? else { return Ok(Exit::No) };
        is_stale |= page["isStale"] == true;
        let items = page["executions"].as_array().cloned().unwrap_or_default();
        left = left.saturating_sub(items.len());
        if args.of.node.form.json {
            items.iter().try_for_each(|line| shell.out.json(line))?;
            shell.out.flush()?;
        } else {
            lines.extend(items);
        }
        after = page["next"].as_str().map(str::to_owned);
        if after.is_none() || left == 0 {
            break after.is_some();
        }
    };
    if !args.of.node.form.json {
        table(&lines, false, shell)?;
    }
    if is_stale {
        shell.out.warn("the index is behind the ledger: runs of the last moments may be missing");
    }
    if has_more {
        shell.out.remark("there may be more; see --limit");
    }
    Ok(Exit::Yes)
}

pub(super) fn quarantined(args: &RunsQuarantined, shell: &mut Shell<'_>) -> Outcome {
    let asking = Asking::of(&args.node, shell)?;
    let question = Question::get(format!("/quarantined?limit={}", args.limit));
    let Some(said) = asking.yes(question, args.node.form.json, shell)? else { return Ok(Exit::No) };
    let lines = said["quarantined"].as_array().cloned().unwrap_or_default();
    if args.node.form.json {
        lines.iter().try_for_each(|line| shell.out.json(line))?;
    } else {
        table(&lines, true, shell)?;
    }
    Ok(Exit::Yes)
}

pub(super) fn table(lines: &[Value], with_tenant: bool, shell: &mut Shell<'_>) -> Outcome<()> {
    if lines.is_empty() {
        return shell.out.line("no such run");
    }
    let heads: &[&'static str] = if with_tenant {
        &["TENANT", "RUN", "STATUS", "ADMITTED", "AUTOMATION", "FAILED AT", "CLASS"]
    } else {
        &["RUN", "STATUS", "ADMITTED", "AUTOMATION", "FAILED AT", "CLASS"]
    };
    let mut table = Table::new(heads);
    for line in lines {
        let text = |key: &str| Cell::untrusted(line[key].as_str().unwrap_or("-"));
        let status = line["status"].as_str().unwrap_or("-");
        let mut row = vec![
            text("id"),
            Cell::untrusted(status).with(tone(status)),
            text("admittedAt"),
            text(if line["automationName"].is_string() { "automationName" } else { "automation" }),
            text("failedAt"),
            text("errorClass"),
        ];
        if with_tenant {
            row.insert(0, text("tenant"));
        }
        table.row(row);
    }
    table.print(&mut shell.out)
}

/// How a status is to be looked at.
pub(super) fn tone(status: &str) -> Tone {
    match status {
        "succeeded" => Tone::Good,
        "failed" | "timed-out" | "ended-ambiguous" | "quarantined" => Tone::Bad,
        "needs-attention" => Tone::Warn,
        _ => Tone::Plain,
    }
}
