//! `tidegate grant revoke` and `revoked`: what was granted and is no more, in a file that every node looks at.

use std::path::PathBuf;

use config::units::parse_duration;
use egress::caller::{REVOCATIONS_FILE, REVOKED_MS_MIN, Revocation, RevocationFault, Revoked, Until};

use super::super::Shell;
use super::super::args::{GrantRevoke, GrantRevoked, NodeOf, RevokedWhat};
use super::super::exit::{Exit, Failure, Outcome};
use super::super::running;
use super::super::table::{Cell, Table};
use super::super::when::{self, When};
use crate::control::time::rfc3339;

pub(super) fn revoke(args: &GrantRevoke, shell: &mut Shell<'_>) -> Outcome {
    let now_ms = shell.clock.unix_ms();
    let what = what(&args.what)?;
    let until = until(args, &what, now_ms)?;
    let revocation = Revocation { what, at_unix_ms: now_ms, until };
    let path = path(&args.node, shell)?;
    let NodeOf { config, socket } = &args.node;
    running::warn_of_a_stranger(args.what.tenant.as_ref(), config, socket.is_some() || args.lift, shell);
    egress::caller::revoke(&path, &revocation, now_ms).map_err(|fault| unwritten(&fault))?;
    if args.form.json {
        shell.out.json(&revocation)?;
        return Ok(Exit::Yes);
    }
    let what = &revocation.what;
    match until {
        Until::UnixMs(ms) => shell.out.line(format_args!("revoked: {what}, until {}", rfc3339(ms)))?,
        Until::Lifted => shell.out.line(format_args!("revoked: {what}, until it is lifted"))?,
        Until::Now => shell.out.line(format_args!("lifted: {what}"))?,
    }
    shell.out.remark("in force within a second, on the nodes that have this state directory");
    Ok(Exit::Yes)
}

pub(super) fn list(args: &GrantRevoked, shell: &mut Shell<'_>) -> Outcome {
    let path = path(&args.node, shell)?;
    let revoked = egress::caller::revoked(&path, shell.clock.unix_ms()).map_err(|fault| super::unread(&fault))?;
    if args.form.json {
        for revocation in &revoked {
            shell.out.json(revocation)?;
        }
        return Ok(Exit::Yes);
    }
    if revoked.is_empty() {
        shell.out.line("nothing is revoked")?;
        return Ok(Exit::Yes);
    }
    let mut table = Table::new(&["REVOKED", "SINCE", "UNTIL"]);
    for revocation in &revoked {
        let until = match revocation.until {
            Until::UnixMs(ms) => rfc3339(ms),
            Until::Lifted | Until::Now => "it is lifted".to_owned(),
        };
        table.row(vec![Cell::new(&revocation.what), Cell::from(rfc3339(revocation.at_unix_ms)), Cell::from(until)]);
    }
    table.print(&mut shell.out)?;
    Ok(Exit::Yes)
}

fn what(named: &RevokedWhat) -> Outcome<Revoked> {
    let RevokedWhat { jti, run, tenant } = named;
    match (jti, run, tenant) {
        (Some(id), _, _) => Ok(Revoked::Grant(id.as_str().into())),
        (None, Some(run), tenant) => Ok(Revoked::Run { tenant: tenant.clone(), run: run.as_str().into() }),
        (None, None, Some(tenant)) => Ok(Revoked::Tenant(tenant.clone())),
        (None, None, None) => Err(Failure::usage("nothing is named", "name --jti, --run or --tenant")),
    }
}

fn until(args: &GrantRevoke, what: &Revoked, now_ms: u64) -> Outcome<Until> {
    if args.lift {
        return Ok(Until::Now);
    }
    let is_tenant = matches!(what, Revoked::Tenant(_));
    let Some(text) = &args.until else {
        return Ok(if is_tenant { Until::Lifted } else { Until::UnixMs(now_ms.saturating_add(REVOKED_MS_MIN)) });
    };
    let ms = moment(text, now_ms).map_err(|fault| {
        Failure::usage(format_args!("--until {fault}"), "write 1h (from now), 2026-11-29T13:44:41Z, or Unix seconds")
    })?;
    if ms <= now_ms {
        return Err(Failure::usage("--until is over already", "write a time that is to come"));
    }
    if !is_tenant && ms < now_ms.saturating_add(REVOKED_MS_MIN) {
        return Err(Failure::usage(
            "--until is sooner than 15m 30s from now: a grant that is revoked could outlive its revocation",
            "leave it out, or write a later time",
        ));
    }
    Ok(Until::UnixMs(ms))
}

fn moment(text: &str, now_ms: u64) -> Result<u64, String> {
    if let Ok(ahead) = parse_duration(text) {
        return Ok(now_ms.saturating_add(u64::try_from(ahead.as_millis()).unwrap_or(u64::MAX)));
    }
    match when::parse(text)? {
        When::At(ms) => Ok(ms),
        When::Now | When::Ago(_) => Err("is no time to come".into()),
    }
}

fn path(node: &NodeOf, shell: &mut Shell<'_>) -> Outcome<PathBuf> {
    Ok(running::state_directory(node.socket.as_deref(), &node.config, shell)?.join(REVOCATIONS_FILE))
}

fn unwritten(fault: &RevocationFault) -> Failure {
    let next = match &fault {
        RevocationFault::Label => return Failure::usage(fault, "copy it from the grant's `jti` or `run`"),
        RevocationFault::Line { .. } => {
            "mend or take out that line: nothing is written to a file that is not understood"
        }
        RevocationFault::TooLarge { .. } => "revoke tenants instead of single grants",
        RevocationFault::Io { .. } => "whoever runs the appliance owns its state directory: run this as that user",
    };
    Failure::failed(fault, next)
}
