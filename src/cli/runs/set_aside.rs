//! `tidegate runs set-aside`: events that could not be admitted.

use http::Method;
use serde_json::Value;

use super::super::Shell;
use super::super::args::RunsSetAside;
use super::super::exit::{Exit, Outcome};
use super::super::table::{Cell, Table};
use super::ask::{Asking, Question};

pub(super) fn run(args: &RunsSetAside, shell: &mut Shell<'_>) -> Outcome {
    let asking = Asking::of(&args.node, shell)?;
    if args.retry {
        let question = Question::new(Method::POST, "/set-aside/retry");
        let said = asking.yes(question, args.node.form.json, shell)?;
        if let Some(said) = &said {
            if args.node.form.json {
                shell.out.json(said)?;
            } else {
                let tried = said["tried"].as_u64().unwrap_or(0);
                shell.out.line(format!("{tried} tried again; those that do not get through stay listed"))?;
            }
        }
        return Ok(Exit::yes_if(said.is_some()));
    }
    let question = Question::get("/set-aside".to_owned());
    let Some(said) = asking.yes(question, args.node.form.json, shell)? else { return Ok(Exit::No) };
    let lines = said["setAside"].as_array().cloned().unwrap_or_default();
    if args.node.form.json {
        lines.iter().try_for_each(|line| shell.out.json(line))?;
    } else {
        table(&lines, shell)?;
    }
    Ok(Exit::Yes)
}

fn table(lines: &[Value], shell: &mut Shell<'_>) -> Outcome<()> {
    if lines.is_empty() {
        return shell.out.line("no event is set aside");
    }
    let mut table = Table::new(&["TENANT", "EVENT", "ENDPOINT", "SET ASIDE", "TRIES", "WHY"]);
    for line in lines {
        let text = |key: &str| Cell::untrusted(line[key].as_str().unwrap_or("-"));
        let tries = line["tries"].as_u64().unwrap_or(0).to_string();
        table.row(vec![
            text("tenant"),
            text("event"),
            text("endpoint"),
            text("at"),
            Cell::untrusted(&tries),
            text("why"),
        ]);
    }
    table.print(&mut shell.out)
}
