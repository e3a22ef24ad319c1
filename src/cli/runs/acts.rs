//! `tidegate runs cancel`, `resolve`, `release`, `rerun`.

use http::Method;
use serde_json::{Value, json};

use super::super::Shell;
use super::super::args::{RunsOf, RunsRerun, RunsResolve};
use super::super::capture;
use super::super::exit::{Failure, Outcome};
use super::ask::{Asking, Question, ended, named, of_tenant, safe};

pub(super) fn cancel(args: &RunsOf, shell: &mut Shell<'_>) -> Outcome {
    let path = of_tenant(&args.of.tenant, &format!("/executions/{}/cancel", named(args.execution)));
    act(args, Question::new(Method::POST, path), "its worker is told, and the run ends", shell)
}

pub(super) fn resolve(args: &RunsResolve, shell: &mut Shell<'_>) -> Outcome {
    let path = of_tenant(&args.of.tenant, &format!("/executions/{}/resolve", named(args.execution)));
    let body = json!({ "node": args.node.as_str(), "choice": args.choice.word() });
    let asking = Asking::of(&args.of.node, shell)?;
    let said = asking.yes(Question::new(Method::POST, path).json(&body), args.of.node.form.json, shell)?;
    tell(said.as_ref(), "it is written down, and the run goes on", args.of.node.form.json, shell)
}

pub(super) fn release(args: &RunsOf, shell: &mut Shell<'_>) -> Outcome {
    let Some(run) = args.run() else {
        return Err(Failure::usage("an event is no run", "name the run: `tidegate runs quarantined` lists them"));
    };
    let path = format!("/release/{}/{run}", args.of.tenant);
    act(
        args,
        Question::new(Method::POST, path),
        "it goes on; if it costs workers again, it is quarantined again",
        shell,
    )
}

pub(super) fn rerun(args: &RunsRerun, shell: &mut Shell<'_>) -> Outcome {
    let node = args.node.as_str().replace('/', "%2F");
    let path = of_tenant(&args.of.tenant, &format!("/executions/{}/nodes/{node}/rerun", named(args.execution)));
    let mut body = json!({ "confirmDuplicates": args.accept_duplicates });
    if let Some(file) = &args.input {
        let bytes = capture::read(file, shell.stdin)?;
        let input: Value = serde_json::from_slice(&bytes)
            .map_err(|fault| Failure::usage(format_args!("the input is no JSON: {fault}"), "give a JSON value"))?;
        body["input"] = input;
    }
    let asking = Asking::of(&args.of.node, shell)?;
    let said = asking.yes(Question::new(Method::POST, path).json(&body), args.of.node.form.json, shell)?;
    tell(said.as_ref(), "it is written down: the node is asked for once more", args.of.node.form.json, shell)
}

fn act(args: &RunsOf, question: Question, done: &str, shell: &mut Shell<'_>) -> Outcome {
    let asking = Asking::of(&args.of.node, shell)?;
    let said = asking.yes(question, args.of.node.form.json, shell)?;
    tell(said.as_ref(), done, args.of.node.form.json, shell)
}

fn tell(said: Option<&Value>, done: &str, json: bool, shell: &mut Shell<'_>) -> Outcome {
    if let Some(body) = said {
        if json {
            shell.out.json(body)?;
        } else {
            let run = body["runId"].as_str().map(safe).unwrap_or_default();
            shell.out.line(format_args!("{run}: {done}"))?;
        }
    }
    Ok(ended(said))
}
