//! `tidegate egress switch`: throws and lifts kill switches, in the file that every process of this node looks at.

use std::path::PathBuf;

use egress::switches::{Scope, Switch, file};
use serde_json::json;

use super::super::Shell;
use super::super::args::{EgressSwitchList, EgressSwitchOff, EgressSwitchOn, NodeOf, SwitchScope};
use super::super::exit::{Exit, Failure, Outcome};
use super::super::running;
use super::super::table::{Cell, Table};
use crate::control::time::rfc3339;

/// Bytes of a reason: as much as somebody reads in a table.
const REASON_BYTES_MAX: usize = 500;

pub(super) fn off(args: &EgressSwitchOff, shell: &mut Shell<'_>) -> Outcome {
    if args.reason.len() > REASON_BYTES_MAX {
        return Err(Failure::usage("the reason is longer than 500 bytes", "say it in a sentence, or name a ticket"));
    }
    let path = path(&args.node, shell)?;
    let NodeOf { config, socket } = &args.node;
    running::warn_of_a_stranger(args.scope.tenant.as_ref(), config, socket.is_some(), shell);
    let since_unix_ms = shell.clock.unix_ms();
    let switch = Switch { scope: scope(&args.scope), since_unix_ms, reason: args.reason.as_str().into() };
    file::throw(&path, switch.clone()).map_err(unwritten)?;
    if args.form.json {
        shell.out.json(&switch)?;
    } else {
        shell.out.line(format_args!("{switch}; in force within a second"))?;
    }
    Ok(Exit::Yes)
}

pub(super) fn on(args: &EgressSwitchOn, shell: &mut Shell<'_>) -> Outcome {
    let scope = scope(&args.scope);
    let lifted = file::lift(&path(&args.node, shell)?, &scope).map_err(unwritten)?;
    if args.form.json {
        shell.out.json(&json!({ "lifted": lifted }))?;
    } else if lifted {
        shell.out.line(format_args!("lifted: {scope}; in force within a second"))?;
    } else {
        shell
            .out
            .line(format_args!("no switch names exactly this: {scope}; `tidegate egress switch list` says all"))?;
    }
    Ok(Exit::yes_if(lifted))
}

pub(super) fn list(args: &EgressSwitchList, shell: &mut Shell<'_>) -> Outcome {
    let (switches, _) = file::read(&path(&args.node, shell)?).map_err(|fault| Failure::plain(&fault))?;
    if args.form.json {
        for switch in &switches {
            shell.out.json(switch)?;
        }
        return Ok(Exit::Yes);
    }
    if switches.is_empty() {
        shell.out.line("nothing is switched off")?;
        return Ok(Exit::Yes);
    }
    let mut table = Table::new(&["OFF", "SINCE", "REASON"]);
    for switch in &switches {
        let since = rfc3339(switch.since_unix_ms);
        table.row(vec![Cell::new(&switch.scope), Cell::from(since), Cell::untrusted(&switch.reason)]);
    }
    table.print(&mut shell.out)?;
    Ok(Exit::Yes)
}

fn path(node: &NodeOf, shell: &mut Shell<'_>) -> Outcome<PathBuf> {
    Ok(running::state_directory(node.socket.as_deref(), &node.config, shell)?.join(file::FILE_NAME))
}

fn scope(named: &SwitchScope) -> Scope {
    let SwitchScope { tenant, connector, destination, way } = named;
    Scope { tenant: tenant.clone(), connector: connector.clone(), destination: destination.clone(), way: *way }
}

fn unwritten(fault: file::SwitchesFault) -> Failure {
    Failure::failed(fault, "whoever runs the appliance owns its state directory: run this as that user")
}

#[cfg(test)]
mod tests {
    use crate::cli::exit::Exit;
    use crate::cli::testing::run;

    #[test]
    fn a_switch_is_thrown_listed_and_lifted() {
        let directory = tempfile::tempdir().unwrap();
        let config = directory.path().join("tidegate.toml");
        std::fs::write(&config, "[gateway]\npublic_url = \"https://hooks.example.com\"\n[log]\ndirectory = \"log\"\n")
            .unwrap();
        let config = config.to_str().unwrap();
        let switch = |words: &[&str]| run(&[&["egress", "switch"], words, &["--config", config]].concat());

        assert_eq!(switch(&["off"]).exit, Exit::Usage, "everything is not a switch");
        assert_eq!(switch(&["off", "--way", "sideways"]).exit, Exit::Usage);
        assert_eq!(switch(&["off", "--destination", "127.1"]).exit, Exit::Usage);
        assert!(switch(&["list"]).answer.contains("nothing"));
        let off = switch(&["off", "--tenant", "acme", "--way", "connect", "--reason", "a \u{1b}[2J reason"]);
        assert_eq!((off.exit, off.remarks.as_str()), (Exit::Yes, ""), "no directory says who is a tenant");
        let list = switch(&["list"]).answer;
        assert!(list.contains("tenant acme, way connect") && !list.contains('\u{1b}'), "{list}");
        let json: serde_json::Value = serde_json::from_str(&switch(&["list", "--json"]).answer).unwrap();
        assert_eq!((&json["tenant"], &json["way"]), (&"acme".into(), &"connect".into()));
        assert_eq!(switch(&["on", "--tenant", "acme"]).exit, Exit::No, "that is another switch");
        assert_eq!(switch(&["on", "--tenant", "acme", "--way", "connect"]).exit, Exit::Yes);
        assert!(switch(&["list"]).answer.contains("nothing"));

        std::fs::create_dir(directory.path().join("tenants")).unwrap();
        std::fs::write(directory.path().join("tenants/acme.toml"), "tenant = \"acme\"\n").unwrap();
        assert_eq!(switch(&["off", "--tenant", "acme"]).remarks, "");
        let stranger = switch(&["off", "--tenant", "nobody"]);
        assert_eq!(stranger.exit, Exit::Yes);
        assert!(stranger.remarks.contains("no tenant nobody is configured here"), "{}", stranger.remarks);
        assert!(switch(&["list"]).answer.contains("tenant nobody"), "it is done all the same");
    }
}
