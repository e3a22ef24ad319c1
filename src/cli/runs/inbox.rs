//! `tidegate runs inbox` and `dismiss`.

use http::Method;
use runner::view::GroupView;
use serde_json::{Value, json};

use super::super::Shell;
use super::super::args::{RunsDismiss, RunsInbox};
use super::super::exit::{Exit, Outcome};
use super::super::out::Tone;
use super::super::table::{Cell, Table};
use super::ask::{Asking, Question, ended, named, of_tenant, safe};
use super::{connections, list, show};

pub(super) fn run(args: &RunsInbox, shell: &mut Shell<'_>) -> Outcome {
    let json_form = args.of.node.form.json;
    let path = of_tenant(&args.of.tenant, &format!("/inbox?limit={}", args.limit));
    let Some(said) = Asking::of(&args.of.node, shell)?.yes(Question::get(path), json_form, shell)? else {
        return Ok(Exit::No);
    };
    if json_form {
        shell.out.json(&said)?;
        return Ok(Exit::Yes);
    }
    let groups: Vec<GroupView> = show::read(&said["groups"])?;
    let items = |key: &str| said[key].as_array().cloned().unwrap_or_default();
    let (dead, letters) = (items("connections"), items("deadLetters"));
    if groups.is_empty() && dead.is_empty() && letters.is_empty() {
        shell.out.line("nothing waits for anybody")?;
    }
    if !groups.is_empty() {
        shell.out.line("Runs that wait for somebody:")?;
        waiting(&groups, shell)?;
    }
    if !dead.is_empty() {
        shell.out.line("\nConnections that have to be made anew:")?;
        connections::table(&dead, shell)?;
    }
    if !letters.is_empty() {
        shell.out.line("\nRuns that ended so that somebody should look at them:")?;
        list::table(&letters, false, shell)?;
    }
    if said["isPartial"] == true {
        shell.out.warn("more runs wait than were counted");
    }
    if said["isStale"] == true {
        shell.out.warn("the index is behind the ledger: runs of the last moments may be missing");
    }
    if said["next"].is_string() {
        shell.out.remark("there are more that ended badly; see --limit, or `tidegate runs list --dead-letters`");
    }
    Ok(Exit::Yes)
}

fn waiting(groups: &[GroupView], shell: &mut Shell<'_>) -> Outcome<()> {
    let mut table = Table::new(&["WHY", "RUNS", "SINCE", "AUTOMATION", "NODE", "CONNECTION", "OLDEST RUN"]);
    for group in groups {
        let text = |text: Option<&str>| Cell::untrusted(text.unwrap_or("-"));
        table.row(vec![
            text(Some(&group.why)).with(Tone::Warn),
            Cell::new(&group.count),
            text(Some(&group.oldest_since)),
            text(Some(group.automation_name.as_deref().unwrap_or(&group.automation))),
            text(group.node.as_deref()),
            text(group.connection.as_deref()),
            text(group.runs.first().map(String::as_str)),
        ]);
    }
    table.print(&mut shell.out)
}

pub(super) fn dismiss(args: &RunsDismiss, shell: &mut Shell<'_>) -> Outcome {
    let json_form = args.of.node.form.json;
    let path = of_tenant(&args.of.tenant, &format!("/executions/{}/dismiss", named(args.execution)));
    let question = Question::new(Method::POST, path).json(&json!({ "reason": args.reason }));
    let said: Option<Value> = Asking::of(&args.of.node, shell)?.yes(question, json_form, shell)?;
    if let Some(body) = &said {
        if json_form {
            shell.out.json(body)?;
        } else {
            let run = body["runId"].as_str().map(safe).unwrap_or_default();
            shell.out.line(format_args!("{run}: it is no dead letter any more; the run and its history stay"))?;
        }
    }
    Ok(ended(said.as_ref()))
}
