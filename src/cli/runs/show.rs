//! `tidegate runs show`.

use domain::TenantId;
use runner::view::{self, ExecutionView, LineView, NodeOfRun};
use serde_json::Value;

use super::super::Shell;
use super::super::args::RunsShow;
use super::super::events::body::plain_text;
use super::super::events::source::unanswered;
use super::super::exit::{Exit, Failure, Outcome};
use super::ask::{Asking, Question, ended, named, of_tenant, refused};

pub(super) fn run(args: &RunsShow, shell: &mut Shell<'_>) -> Outcome {
    let node = args.node.as_ref().map(|node| format!("/nodes/{}", node.as_str().replace('/', "%2F")));
    let execution = format!("/executions/{}{}", named(args.execution), node.unwrap_or_default());
    let path = of_tenant(&args.of.tenant, &execution);
    let part = [("input", args.input), ("output", args.output)].into_iter().find(|(_, is_wanted)| *is_wanted);
    if let Some((part, _)) = part {
        return payload(&format!("{path}?part={part}"), args, shell);
    }
    let json_form = args.of.node.form.json;
    let said = Asking::of(&args.of.node, shell)?.yes(Question::get(path), json_form, shell)?;
    if let Some(shown) = &said {
        if json_form {
            shell.out.json(shown)?;
        } else if args.node.is_some() {
            shell.out.text(view::draw_node(&read::<NodeOfRun>(shown)?))?;
        } else {
            tell(shown, &args.of.tenant, shell)?;
        }
    }
    Ok(ended(said.as_ref()))
}

/// Writes what was sent or answered as it is kept, to whoever is no terminal that it could do something to.
fn payload(path: &str, args: &RunsShow, shell: &mut Shell<'_>) -> Outcome {
    let said = Asking::of(&args.of.node, shell)?.bytes(Question::get(path))?;
    if said.status != 200 {
        refused(&said.json().map_err(|error| unanswered(&error))?, false, shell)?;
        return Ok(Exit::No);
    }
    if shell.out.is_terminal() && plain_text(&said.body).is_none() {
        return Err(Failure::failed("the payload is not text, and this is a terminal", "redirect it into a file"));
    }
    shell.out.bytes(&said.body)?;
    if said.is_truncated {
        shell.out.warn("it was too large to be kept whole: this is its beginning");
    }
    Ok(Exit::Yes)
}

fn tell(shown: &Value, tenant: &TenantId, shell: &mut Shell<'_>) -> Outcome<()> {
    let runs: Option<Vec<LineView>> = shown.get("runs").map(read).transpose()?;
    match runs.as_deref() {
        Some([]) => {
            return shell
                .out
                .line("the event is in the log, and no run was begun by it: no automation was meant, or not yet");
        }
        Some(runs @ [_, _, ..]) => {
            shell.out.line(format_args!("the event began {} runs; this is the one to look at first:", runs.len()))?;
        }
        Some([_]) | None => {}
    }
    let view: ExecutionView = read(shown)?;
    shell.out.text(view::draw_for(&view, tenant))?;
    if let Some(runs) = runs.filter(|runs| runs.len() > 1) {
        shell.out.line("")?;
        shell.out.text(view::lines(&runs))?;
    }
    Ok(())
}

pub(super) fn read<T: serde::de::DeserializeOwned>(value: &Value) -> Outcome<T> {
    serde_json::from_value(value.clone()).map_err(|fault| {
        Failure::failed(format_args!("the answer is of another form: {fault}"), "is the appliance of another version?")
    })
}
