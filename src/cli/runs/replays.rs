//! `tidegate runs replays …`: replays of events that were begun, and how far they are.

use http::Method;
use serde_json::Value;

use super::super::Shell;
use super::super::args::{OfTenant, ReplaysOf, RunsReplays};
use super::super::exit::{Exit, Outcome};
use super::super::table::{Cell, Table, print_fields};
use super::ask::{Asking, Question, ended, of_tenant, safe};

pub(super) fn run(command: &RunsReplays, shell: &mut Shell<'_>) -> Outcome {
    match command {
        RunsReplays::List(args) => list(args, shell),
        RunsReplays::Show(args) => show(args, Method::GET, "", shell),
        RunsReplays::Stop(args) => show(args, Method::POST, "/stop", shell),
    }
}

fn list(args: &OfTenant, shell: &mut Shell<'_>) -> Outcome {
    let json = args.node.form.json;
    let question = Question::get(of_tenant(&args.tenant, "/replays"));
    let Some(said) = Asking::of(&args.node, shell)?.yes(question, json, shell)? else { return Ok(Exit::No) };
    let lines = said["replays"].as_array().map(Vec::as_slice).unwrap_or_default();
    if json {
        lines.iter().try_for_each(|line| shell.out.json(line))?;
        return Ok(Exit::Yes);
    }
    if lines.is_empty() {
        shell.out.line("no replays")?;
        return Ok(Exit::Yes);
    }
    let mut table = Table::new(&["REPLAY", "STATE", "PLANNED", "ADMITTED", "REFUSED"]);
    for line in lines {
        let text = |key: &str| Cell::untrusted(line[key].as_str().unwrap_or("-"));
        let number = |key: &str| if line[key].is_null() { Cell::new("-") } else { Cell::new(&line[key]) };
        table.row(vec![text("replay"), text("state"), number("planned"), number("admitted"), number("refused")]);
    }
    table.print(&mut shell.out)?;
    Ok(Exit::Yes)
}

/// One of them, as it is or as it was stopped.
fn show(args: &ReplaysOf, method: Method, act: &str, shell: &mut Shell<'_>) -> Outcome {
    let json = args.of.node.form.json;
    let path = of_tenant(&args.of.tenant, &format!("/replays/{}{act}", args.name));
    let said = Asking::of(&args.of.node, shell)?.yes(Question::new(method, path), json, shell)?;
    if let Some(body) = &said {
        if json {
            shell.out.json(body)?;
        } else {
            fields(body, shell)?;
        }
    }
    Ok(ended(said.as_ref()))
}

/// In the order in which runs go through them.
const FIELDS: [&str; 10] =
    ["replay", "state", "planned", "admitted", "refused", "begun", "over", "succeeded", "failed", "needsAttention"];

fn fields(body: &Value, shell: &mut Shell<'_>) -> Outcome<()> {
    let told = |key: &&str| match &body[*key] {
        Value::String(text) => safe(text),
        Value::Null => "unknown".to_owned(),
        Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => safe(&body[*key].to_string()),
    };
    let fields: Vec<_> = FIELDS.iter().filter(|key| body.get(**key).is_some()).map(|key| (*key, told(key))).collect();
    print_fields(&mut shell.out, &fields)?;
    if body["isPartial"] == true {
        shell.out.warn("it has more runs than were counted");
    }
    if body["isStale"] == true {
        shell.out.warn("the index is behind the ledger: runs of the last moments may be missing");
    }
    if body["state"] == "unknown" {
        shell
            .out
            .remark("it was begun before the appliance started: the same plan under this name begins what is missing");
    }
    Ok(())
}
