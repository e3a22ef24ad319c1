//! `tidegate runs stat` and `rebuild`.

use http::Method;
use serde_json::Value;

use super::super::Shell;
use super::super::args::RunsPlain;
use super::super::exit::{Exit, Outcome};
use super::super::table::print_fields;
use super::ask::{Asking, Question, ended, safe};

pub(super) fn stat(args: &RunsPlain, shell: &mut Shell<'_>) -> Outcome {
    let said = Asking::of(args, shell)?.yes(Question::get("/stat"), args.form.json, shell)?;
    if let Some(stat) = &said {
        if args.form.json {
            shell.out.json(stat)?;
        } else {
            fields(stat, shell)?;
        }
    }
    Ok(ended(said.as_ref()))
}

pub(super) fn rebuild(args: &RunsPlain, shell: &mut Shell<'_>) -> Outcome {
    let question = Question::new(Method::POST, "/rebuild");
    let said = Asking::of(args, shell)?.yes(question, args.form.json, shell)?;
    if let Some(made) = &said {
        if args.form.json {
            shell.out.json(made)?;
        } else {
            fields(made, shell)?;
        }
    }
    Ok(Exit::yes_if(said.is_some()))
}

pub(super) fn pass_damage(args: &RunsPlain, shell: &mut Shell<'_>) -> Outcome {
    let question = Question::new(Method::POST, "/pass-damage");
    let said = Asking::of(args, shell)?.yes(question, args.form.json, shell)?;
    if let Some(passes) = &said {
        if args.form.json {
            shell.out.json(passes)?;
        } else {
            shell.out.line("admission passes the damaged place; what is there begins no run")?;
        }
    }
    Ok(Exit::yes_if(said.is_some()))
}

/// Every value with the path that leads to it: there are few, and they are all told.
fn fields(stat: &Value, shell: &mut Shell<'_>) -> Outcome<()> {
    let mut flat = Vec::new();
    flatten("", stat, &mut flat);
    let fields: Vec<_> = flat.iter().map(|(name, value)| (name.as_str(), value.clone())).collect();
    print_fields(&mut shell.out, &fields)
}

fn flatten(path: &str, value: &Value, out: &mut Vec<(String, String)>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                let name = safe(name);
                let path = if path.is_empty() { name } else { format!("{path}.{name}") };
                flatten(&path, value, out);
            }
        }
        Value::String(text) => out.push((path.to_owned(), safe(text))),
        Value::Array(items) if items.iter().any(Value::is_object) => {
            for (index, item) in items.iter().enumerate() {
                flatten(&format!("{path}[{index}]"), item, out);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) => {
            out.push((path.to_owned(), safe(&value.to_string())));
        }
    }
}
