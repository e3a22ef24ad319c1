//! `tidegate runs show`.

use domain::TenantId;
use runner::view::{self, ExecutionView, LineView};
use serde_json::Value;

use super::super::Shell;
use super::super::args::RunsOf;
use super::super::exit::{Failure, Outcome};
use super::ask::{Asking, Question, ended, named, of_tenant};

pub(super) fn run(args: &RunsOf, shell: &mut Shell<'_>) -> Outcome {
    let path = of_tenant(&args.of.tenant, &format!("/executions/{}", named(args.execution)));
    let json_form = args.of.node.form.json;
    let said = Asking::of(&args.of.node, shell)?.yes(Question::get(path), json_form, shell)?;
    if let Some(shown) = &said {
        if json_form {
            shell.out.json(shown)?;
        } else {
            tell(shown, &args.of.tenant, shell)?;
        }
    }
    Ok(ended(said.as_ref()))
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

fn read<T: serde::de::DeserializeOwned>(value: &Value) -> Outcome<T> {
    serde_json::from_value(value.clone()).map_err(|fault| {
        Failure::failed(format_args!("the answer is of another form: {fault}"), "is the appliance of another version?")
    })
}
