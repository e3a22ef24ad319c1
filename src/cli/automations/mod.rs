//! `tidegate automations …`: what tenants automate, through the running appliance.

use std::ffi::OsStr;
use std::path::Path;

use http::Method;
use runner::api::AutomationName;
use serde_json::{Value, json};

use super::Shell;
use super::args::{
    Automations, AutomationsCheck, AutomationsList, AutomationsOf, AutomationsPut, AutomationsShow, AutomationsStart,
};
use super::capture;
use super::exit::{Exit, Failure, Outcome};
use super::runs::ask::{Asking, Question, ended, of_tenant, refused, safe};
use super::table::{Cell, Table};

pub(super) fn run(command: &Automations, shell: &mut Shell<'_>) -> Outcome {
    match command {
        Automations::Put(args) => put(args, shell),
        Automations::List(args) => list(args, shell),
        Automations::Show(args) => show(args, shell),
        Automations::Delete(args) => delete(args, shell),
        Automations::Start(args) => start(args, shell),
        Automations::Check(args) => check(args, shell),
        Automations::Schema => {
            shell.out.text(format!("{:#}\n", runner::automation::published_schema()))?;
            Ok(Exit::Yes)
        }
    }
}

/// What a file's name says that it is. JSON is YAML too, and YAML says where a fault is.
fn media_type(file: &Path) -> &'static str {
    if file.extension() == Some(OsStr::new("json")) { "application/json" } else { "application/yaml" }
}

fn put(args: &AutomationsPut, shell: &mut Shell<'_>) -> Outcome {
    let text = capture::read(&args.file, shell.stdin)?;
    let asking = Asking::of(&args.of.node, shell)?;
    let json_form = args.of.node.form.json;
    let at = |path: &str| of_tenant(&args.of.tenant, path);
    let document = |method, path| Question::new(method, path).document(media_type(&args.file), text.clone());
    let replace = |id: &str| document(Method::PUT, at(&format!("/workflows/{id}")));
    let mut said = match &args.id {
        Some(id) => {
            let version = args.if_version.map(std::num::NonZero::get);
            let Some(id) = asking.automation(&args.of.tenant, id, json_form, shell)? else { return Ok(Exit::No) };
            asking.say(replace(&id).if_version(version))?
        }
        None => asking.say(document(Method::POST, at("/workflows")))?,
    };
    // The one of this name is the one that is meant.
    if args.id.is_none() && said.body["code"] == "name-taken" {
        let name = said.body["detail"].as_str().and_then(AutomationName::parse);
        let Some(name) = name else {
            return Err(Failure::failed("another automation has this name", "say which one is meant with --id"));
        };
        let Some(id) = asking.automation(&args.of.tenant, &name, json_form, shell)? else { return Ok(Exit::No) };
        said = asking.say(replace(&id))?;
    }
    if !(200..300).contains(&said.status) {
        refused(&said, json_form, shell)?;
        return Ok(Exit::No);
    }
    if json_form {
        shell.out.json(&said.body)?;
        return Ok(Exit::Yes);
    }
    let part = |key: &str| said.body[key].as_str().map(safe).unwrap_or_default();
    let version = said.body["version"].as_u64().unwrap_or_default();
    let how = if said.body["isUnchanged"] == true { "is as it was" } else { "is stored" };
    shell.out.line(format_args!("{} {}: version {version} {how}", part("id"), part("name")))?;
    for warning in said.body["warnings"].as_array().into_iter().flatten() {
        let part = |key: &str| warning[key].as_str().map(safe).unwrap_or_default();
        shell.out.warn(format_args!("{} {}", part("path"), part("message")));
    }
    Ok(Exit::Yes)
}

fn list(args: &AutomationsList, shell: &mut Shell<'_>) -> Outcome {
    let asking = Asking::of(&args.of.node, shell)?;
    let json_form = args.of.node.form.json;
    let (mut after, mut lines) = (String::new(), Vec::new());
    loop {
        let path = of_tenant(&args.of.tenant, &format!("/workflows?limit=200{after}"));
        let Some(page) = asking.yes(Question::get(path), json_form, shell)? else { return Ok(Exit::No) };
        let items = page["workflows"].as_array().cloned().unwrap_or_default();
        lines.extend(items.into_iter().filter(|one| args.deleted || one["isDeleted"] == false));
        match page["next"].as_str() {
            Some(next) => after = format!("&after={next}"),
            None => break,
        }
    }
    if json_form {
        lines.iter().try_for_each(|line| shell.out.json(line))?;
        return Ok(Exit::Yes);
    }
    if lines.is_empty() {
        shell.out.line("the tenant has no automation")?;
        return Ok(Exit::Yes);
    }
    let mut table = Table::new(&["ID", "NAME", "VERSION", "STATE", "STORED"]);
    for line in &lines {
        let text = |key: &str| Cell::untrusted(line[key].as_str().unwrap_or("-"));
        let state = match (line["isDeleted"] == true, line["isEnabled"] == true) {
            (true, _) => "deleted",
            (false, true) => "enabled",
            (false, false) => "disabled",
        };
        table.row(vec![text("id"), text("name"), Cell::new(&line["version"]), state.into(), text("at")]);
    }
    table.print(&mut shell.out)?;
    Ok(Exit::Yes)
}

fn show(args: &AutomationsShow, shell: &mut Shell<'_>) -> Outcome {
    let version = args.number.map(|version| format!("?version={version}")).unwrap_or_default();
    let (asking, json_form) = (Asking::of(&args.of.node, shell)?, args.of.node.form.json);
    let Some(id) = asking.automation(&args.of.tenant, &args.id, json_form, shell)? else { return Ok(Exit::No) };
    let path = of_tenant(&args.of.tenant, &format!("/workflows/{id}{version}"));
    let said = asking.yes(Question::get(path), json_form, shell)?;
    if let Some(shown) = &said {
        if json_form {
            shell.out.json(shown)?;
        } else {
            let part = |key: &str| shown[key].as_str().map(safe).unwrap_or_default();
            let deleted = if shown["isDeleted"] == true { ", deleted" } else { "" };
            shell.out.remark(format_args!(
                "{}, version {}{deleted}, stored {} by {}",
                part("name"),
                shown["version"],
                part("at"),
                part("by")
            ));
            shell.out.json_pretty(&shown["document"])?;
        }
    }
    Ok(ended(said.as_ref()))
}

fn delete(args: &AutomationsOf, shell: &mut Shell<'_>) -> Outcome {
    let (asking, json_form) = (Asking::of(&args.of.node, shell)?, args.of.node.form.json);
    let Some(id) = asking.automation(&args.of.tenant, &args.id, json_form, shell)? else { return Ok(Exit::No) };
    let path = of_tenant(&args.of.tenant, &format!("/workflows/{id}"));
    let said = asking.yes(Question::new(Method::DELETE, path), json_form, shell)?;
    if said.is_some() {
        if json_form {
            shell.out.json(&json!({ "id": id, "isDeleted": true }))?;
        } else {
            shell.out.line(format_args!("{} is deleted: no run begins any more, and its history stays", safe(&id)))?;
        }
    }
    Ok(ended(said.as_ref()))
}

fn start(args: &AutomationsStart, shell: &mut Shell<'_>) -> Outcome {
    let mut body = json!({});
    if let Some(file) = &args.input {
        let bytes = capture::read(file, shell.stdin)?;
        let input: Value = serde_json::from_slice(&bytes)
            .map_err(|fault| Failure::usage(format_args!("the input is no JSON: {fault}"), "give a JSON value"))?;
        body["input"] = input;
    }
    let (asking, json_form) = (Asking::of(&args.of.node, shell)?, args.of.node.form.json);
    let Some(id) = asking.automation(&args.of.tenant, &args.id, json_form, shell)? else { return Ok(Exit::No) };
    let path = of_tenant(&args.of.tenant, &format!("/workflows/{id}/runs"));
    let question = Question::new(Method::POST, path).json(&body);
    let said = asking.yes(question, json_form, shell)?;
    if let Some(started) = &said {
        if json_form {
            shell.out.json(started)?;
        } else {
            shell.out.line(started["runId"].as_str().map(safe).unwrap_or_default())?;
        }
    }
    Ok(ended(said.as_ref()))
}

fn check(args: &AutomationsCheck, shell: &mut Shell<'_>) -> Outcome {
    let text = capture::read(&args.file, shell.stdin)?;
    let path = of_tenant(&args.of.tenant, "/workflows/check");
    let json_form = args.of.node.form.json;
    let question = Question::new(Method::POST, path).document(media_type(&args.file), text);
    let said = Asking::of(&args.of.node, shell)?.yes(question, json_form, shell)?;
    if let Some(checked) = &said {
        if json_form {
            shell.out.json(checked)?;
        } else {
            for warning in checked["warnings"].as_array().into_iter().flatten() {
                let part = |key: &str| warning[key].as_str().map(safe).unwrap_or_default();
                shell.out.warn(format_args!("{} {}", part("path"), part("message")));
            }
            shell.out.line("ok")?;
        }
    }
    Ok(ended(said.as_ref()))
}
