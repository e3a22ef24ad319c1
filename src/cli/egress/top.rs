//! `tidegate egress top`: what is under way, again and again on a terminal. `tidegate egress close`: ends a
//! call.

use std::collections::HashMap;
use std::path::Path;
use std::time::Duration;

use domain::text::Untrusted;

use super::super::Shell;
use super::super::args::{EgressClose, EgressTop};
use super::super::events::source::unanswered;
use super::super::exit::{Exit, Failure, Outcome};
use super::super::faults::counted;
use super::super::log::bytes;
use super::super::out::Tone;
use super::super::table::{Cell, Table};
use super::super::{block_on, running, when};
use crate::control::client::Client;
use crate::control::time::rfc3339;
use crate::control::top::{CallLine, Close, Closed, Count, Top, TopQuery};
use crate::control::wire::Whose;

/// A destination has at most 253 bytes of name and a port.
const TEXT_BYTES_MAX: usize = 300;

pub(super) fn run(args: &EgressTop, shell: &mut Shell<'_>) -> Outcome {
    let socket = running::socket(args.socket.as_deref(), &args.file.config, shell)?;
    let whose = args.tenant.clone().map_or(Whose::AllTenants, Whose::Tenant);
    let query = TopQuery { whose, by: args.by, limit: args.limit };
    let is_live = shell.out.is_terminal() && !args.once && !args.form.json;
    block_on(async {
        let mut before = look(&socket, &query).await?;
        if is_live {
            shell.out.clear_screen()?;
            show(&before, None, shell)?;
            shell.out.flush()?;
        }
        loop {
            tokio::time::sleep(Duration::from_secs(args.interval)).await;
            let now = look(&socket, &query).await?;
            if args.form.json {
                shell.out.json(&with_rates(&now, &before)?)?;
                return Ok(Exit::Yes);
            }
            if !is_live {
                show(&now, Some(&before), shell)?;
                return Ok(Exit::Yes);
            }
            shell.out.clear_screen()?;
            show(&now, Some(&before), shell)?;
            shell.out.flush()?;
            before = now;
        }
    })
}

pub(super) fn close(args: &EgressClose, shell: &mut Shell<'_>) -> Outcome {
    let socket = running::socket(args.socket.as_deref(), &args.file.config, shell)?;
    let close = Close { correlation: args.correlation.to_string() };
    let closed: Closed = block_on(async {
        let mut client = Client::connect(&socket).await.map_err(|error| unanswered(&error))?;
        client.ask("/v1/egress/close", &close).await.map_err(|error| unanswered(&error))
    })?;
    if args.form.json {
        shell.out.json(&closed)?;
    } else {
        shell.out.line(match closed {
            Closed::Tunnel => "closed",
            Closed::Request => "closed; what it has sent is not taken back",
            Closed::Nothing => "nothing of this id is under way; `tidegate egress log --correlation` says how it ended",
        })?;
    }
    Ok(Exit::yes_if(closed != Closed::Nothing))
}

async fn look(socket: &Path, query: &TopQuery) -> Outcome<Top> {
    let mut client = Client::connect(socket).await.map_err(|error| unanswered(&error))?;
    client.ask("/v1/egress/top", query).await.map_err(|error| unanswered(&error))
}

/// Bytes a second since the look before; none of what was not there.
struct Rates<'t> {
    before: HashMap<&'t str, (u64, u64)>,
    ms: u64,
}

impl<'t> Rates<'t> {
    fn between(before: Option<&'t Top>, now: &Top) -> Self {
        let calls = before.iter().flat_map(|top| &top.calls);
        Self {
            before: calls.map(|call| (call.correlation.as_str(), (call.sent_bytes, call.received_bytes))).collect(),
            ms: before.map_or(0, |before| now.at_unix_ms.saturating_sub(before.at_unix_ms)),
        }
    }

    /// To the destination and back.
    fn of(&self, call: &CallLine) -> Option<(u64, u64)> {
        let (sent, received) = self.before.get(call.correlation.as_str())?;
        let rate = |now: u64, before: u64| now.saturating_sub(before).saturating_mul(1000).checked_div(self.ms);
        Some((rate(call.sent_bytes, *sent)?, rate(call.received_bytes, *received)?))
    }
}

/// The answer as it came, and in each call what passed a second since the look before.
fn with_rates(now: &Top, before: &Top) -> Outcome<serde_json::Value> {
    let rates = Rates::between(Some(before), now);
    let mut value = serde_json::to_value(now).map_err(|error| Failure::plain(format_args!("no JSON: {error}")))?;
    let lines = value["calls"].as_array_mut().into_iter().flatten();
    for (line, call) in lines.zip(&now.calls) {
        let rate = rates.of(call);
        line["sentBytesPerSecond"] = rate.map(|(sent, _)| sent).into();
        line["receivedBytesPerSecond"] = rate.map(|(_, received)| received).into();
    }
    Ok(value)
}

fn show(now: &Top, before: Option<&Top>, shell: &mut Shell<'_>) -> Outcome<()> {
    let Top { under_way, tunnels, .. } = now;
    let requests = under_way.saturating_sub(*tunnels);
    let [tunnels, requests] = [(*tunnels, "tunnel"), (requests, "request")].map(|(count, noun)| counted(count, noun));
    let title = format!("{under_way} under way: {tunnels}, {requests}");
    let title = shell.out.paint(Tone::Bold, title).to_string();
    shell.out.line(format_args!("{title}  {}", rfc3339(now.at_unix_ms)))?;
    for (name, counts) in [("tenants", &now.tenants), ("callers", &now.callers)] {
        if !counts.is_empty() {
            let counts: Vec<String> = counts.iter().map(count).collect();
            let name = shell.out.paint(Tone::Dim, name).to_string();
            shell.out.line(format_args!("{name}  {}", counts.join(", ")))?;
        }
    }
    for ports in &now.ports {
        let exit = ports.exit.map_or_else(|| "unbound".to_owned(), |exit| exit.to_string());
        let is_near = u64::from(ports.open) * 10 >= u64::from(ports.open_max) * 8;
        let name = shell.out.paint(if is_near { Tone::Bad } else { Tone::Dim }, "ports").to_string();
        let (open, open_max) = (ports.open, ports.open_max);
        shell.out.line(format_args!("{name}    {exit} to {}: {open} of {open_max}", ports.to))?;
    }
    if now.calls.is_empty() {
        return Ok(());
    }
    shell.out.line("")?;
    let rates = Rates::between(before, now);
    let mut table = Table::new(&[
        "TENANT",
        "CALLER",
        "DESTINATION",
        "EXIT",
        "WAY",
        "STAGE",
        "AGE",
        "SENT",
        "BACK",
        "SENT/S",
        "BACK/S",
        "CORRELATION",
    ]);
    for call in &now.calls {
        table.row(row(call, &rates));
    }
    table.print(&mut shell.out)?;
    let more = under_way.saturating_sub(now.calls.len() as u64);
    if more > 0 {
        shell.out.line(format_args!("and {more} more; see --limit"))?;
    }
    Ok(())
}

fn count(count: &Count) -> String {
    let caller = count.caller.as_deref().map_or_else(String::new, |caller| format!(" {}", safe(caller)));
    format!("{}{caller} {}", count.tenant, count.under_way)
}

fn row(call: &CallLine, rates: &Rates<'_>) -> Vec<Cell> {
    let rate = rates.of(call);
    let per_second = |rate: Option<u64>| Cell::from(rate.map_or_else(|| "-".to_owned(), bytes));
    let waits = call.stage == "waiting";
    let so_far = |count: u64| Cell::from(if waits { "-".to_owned() } else { bytes(count) });
    vec![
        Cell::new(&call.tenant),
        Cell::untrusted(&call.caller),
        Cell::untrusted(&call.destination),
        call.exit.as_ref().map_or_else(|| Cell::from("-"), Cell::new),
        Cell::untrusted(&call.way),
        Cell::untrusted(&call.stage).with(if waits { Tone::Warn } else { Tone::Plain }),
        Cell::from(when::distance(call.age_ms)),
        so_far(call.sent_bytes),
        so_far(call.received_bytes),
        per_second(rate.map(|(sent, _)| sent)),
        per_second(rate.map(|(_, received)| received)),
        Cell::untrusted(&call.correlation).with(Tone::Dim),
    ]
}

fn safe(text: &str) -> String {
    Untrusted::with_limit(text.as_bytes(), TEXT_BYTES_MAX).to_string()
}

#[cfg(test)]
mod tests;
