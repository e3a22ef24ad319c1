//! `tidegate runs replay`.

use http::Method;
use runner::api::AutomationName;
use serde_json::{Value, json};

use super::super::Shell;
use super::super::args::RunsReplay;
use super::super::exit::{Exit, Outcome};
use super::ask::{Asking, Question, ended, named, of_tenant, safe};

pub(super) fn run(args: &RunsReplay, shell: &mut Shell<'_>) -> Outcome {
    let asking = Asking::of(&args.of.node, shell)?;
    let json_form = args.of.node.form.json;
    if let Some(execution) = args.execution {
        let path = of_tenant(&args.of.tenant, &format!("/executions/{}/replay", named(execution)));
        let body = json!({ "confirmDuplicates": args.accept_duplicates });
        let said = asking.yes(Question::new(Method::POST, path).json(&body), json_form, shell)?;
        if let Some(said) = &said {
            begun(said, json_form, shell)?;
        }
        return Ok(ended(said.as_ref()));
    }
    let what = which(args, shell.clock.unix_ms());
    let plan = Question::new(Method::POST, of_tenant(&args.of.tenant, "/replays/plan")).json(&what);
    let Some(plan) = asking.yes(plan, json_form, shell)? else { return Ok(Exit::No) };
    if !args.accept_duplicates {
        if json_form {
            shell.out.json(&plan)?;
        } else {
            counted(&plan, shell)?;
            shell.out.remark("nothing was done: --accept-duplicates does it");
        }
        return Ok(Exit::Yes);
    }
    if !json_form {
        counted(&plan, shell)?;
    }
    let mut what = json!({ "plan": plan["plan"], "confirmDuplicates": true });
    if let Some(name) = &args.name {
        what["name"] = name.as_str().into();
    }
    let start = Question::new(Method::POST, of_tenant(&args.of.tenant, "/replays")).json(&what);
    let said = asking.yes(start, json_form, shell)?;
    if let Some(said) = &said {
        begun(said, json_form, shell)?;
    }
    Ok(ended(said.as_ref()))
}

fn which(args: &RunsReplay, now_unix_ms: u64) -> Value {
    let mut what = json!({});
    let mut put = |name: &str, value: Option<Value>| {
        if let Some(value) = value {
            what[name] = value;
        }
    };
    put("automation", args.automation.as_ref().map(meant));
    put("endpoint", args.endpoint.as_ref().map(|id| id.to_string().into()));
    put("from", args.since.map(|when| when.unix_ms(now_unix_ms).into()));
    put("to", args.until.map(|when| when.unix_ms(now_unix_ms).into()));
    match args.class {
        Some(class) => put("class", Some(class.code().into())),
        None => put("which", Some(args.which.word().into())),
    }
    what
}

/// As a body has it.
fn meant(name: &AutomationName) -> Value {
    match name {
        AutomationName::Id(id) => id.to_string().into(),
        AutomationName::Name(name) => (**name).into(),
    }
}

fn counted(plan: &Value, shell: &mut Shell<'_>) -> Outcome<()> {
    let number = |key: &str| plan[key].as_u64().unwrap_or_default();
    shell.out.line(format_args!(
        "{} events, {} runs, of which {} have effects that may happen a second time",
        number("events"),
        number("runs"),
        number("mayDuplicate")
    ))?;
    if number("conditionsFailed") > 0 {
        shell.out.warn(format_args!(
            "of {} events the trigger's condition fails: they begin none",
            number("conditionsFailed")
        ));
    }
    Ok(())
}

fn begun(said: &Value, json_form: bool, shell: &mut Shell<'_>) -> Outcome<()> {
    if json_form {
        return shell.out.json(said);
    }
    let text = |key: &str| said[key].as_str().map(safe).unwrap_or_default();
    let runs = said["runs"].as_u64().unwrap_or_default();
    let name = text("replay");
    let what = if runs == 1 { "1 run".to_owned() } else { format!("{runs} runs") };
    if said["isNew"] == false {
        shell.out.line(format_args!(
            "replay {name} was begun before: what is missing of its {what} is begun, and nothing twice"
        ))?;
        shell.out.remark("--name does it again, as another replay");
    } else {
        shell.out.line(format_args!("replay {name}: {what}"))?;
    }
    for run in said["runIds"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        shell.out.line(safe(run))?;
    }
    Ok(())
}
