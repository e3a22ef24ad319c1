//! `tidegate runs connections` and `reconnected`.

use http::Method;
use serde_json::Value;

use super::super::Shell;
use super::super::args::{OfTenant, RunsReconnected};
use super::super::exit::{Exit, Outcome};
use super::super::out::Tone;
use super::super::table::{Cell, Table};
use super::ask::{Asking, Question, of_tenant, safe};

pub(super) fn list(args: &OfTenant, shell: &mut Shell<'_>) -> Outcome {
    let json = args.node.form.json;
    let question = Question::get(of_tenant(&args.tenant, "/connections"));
    let Some(said) = Asking::of(&args.node, shell)?.yes(question, json, shell)? else { return Ok(Exit::No) };
    let lines = said["connections"].as_array().map(Vec::as_slice).unwrap_or_default();
    if json {
        lines.iter().try_for_each(|line| shell.out.json(line))?;
    } else {
        table(lines, shell)?;
    }
    Ok(Exit::Yes)
}

pub(super) fn table(lines: &[Value], shell: &mut Shell<'_>) -> Outcome<()> {
    if lines.is_empty() {
        return shell.out.line("no connections");
    }
    let mut table = Table::new(&["CONNECTION", "STATE", "SINCE", "REASON"]);
    for line in lines {
        let text = |key: &str| Cell::untrusted(line[key].as_str().unwrap_or("-"));
        let tone = if line["state"] == "connected" { Tone::Good } else { Tone::Bad };
        table.row(vec![text("id"), text("state").with(tone), text("since"), text("reason")]);
    }
    table.print(&mut shell.out)
}

pub(super) fn reconnected(args: &RunsReconnected, shell: &mut Shell<'_>) -> Outcome {
    let json = args.of.node.form.json;
    let path = of_tenant(&args.of.tenant, &format!("/connections/{}/reconnected", args.connection));
    let said = Asking::of(&args.of.node, shell)?.yes(Question::new(Method::POST, path), json, shell)?;
    let Some(body) = said else { return Ok(Exit::No) };
    if json {
        shell.out.json(&body)?;
    } else {
        let name = body["id"].as_str().map(safe).unwrap_or_default();
        let released = body["runsReleased"].as_u64().unwrap_or_default();
        let runs = if released == 1 { "1 run goes".to_owned() } else { format!("{released} runs go") };
        shell.out.line(format_args!("{name}: it works again; {runs} on"))?;
    }
    Ok(Exit::Yes)
}
