//! `tidegate egress log`

mod source;

use domain::text::Untrusted;
use egress::{Record, Refusal, Way};

use self::source::Source;
use super::super::Shell;
use super::super::args::EgressLog;
use super::super::exit::{Exit, Failure, Outcome};
use super::super::out::Tone;
use super::super::running;
use super::super::table::{Cell, Table, print_fields};
use crate::control::egress::EgressQuery;
use crate::control::time::rfc3339;
use crate::control::wire::{Said, Whose};

/// The outcome of a hop that went well.
const DONE: &str = "done";

/// A record's texts are bounded; this is beyond all of them.
const VALUE_BYTES_MAX: usize = 2048;

pub(super) fn run(args: &EgressLog, shell: &mut Shell<'_>) -> Outcome {
    let query = query(args, shell);
    let source = Source::open(args, shell)?;
    let mut shown = Shown::new(args);
    let (mut found, mut is_whole) = (0_u64, true);
    source.each(&query, &mut |said| match said {
        Said::Item(record) if !query.is_theirs(&record) => {
            // Whatever is wrong there, it is not shown.
            Err(Failure::plain("a record of somebody else came back; report this"))
        }
        Said::Item(record) => {
            found += 1;
            shown.take(record, shell)
        }
        Said::Aside(aside) => {
            is_whole &= !aside.missing;
            shell.out.remark(Untrusted::with_limit(aside.text.as_bytes(), 1024));
            Ok(())
        }
    })?;
    shown.print(&query, shell)?;
    if !is_whole {
        return Err(Failure::failed(
            "what cannot be read may have been asked for",
            "the appliance's log has a line for each call, too",
        ));
    }
    if found == 0 {
        shell.out.remark("nothing was found; a record is there when its hop has ended");
        let elsewhere = args.socket.is_some() || args.records.is_some();
        running::warn_of_a_stranger(args.tenant.as_ref(), &args.config, elsewhere, shell);
    } else if found == u64::from(args.limit) {
        shell.out.remark(format_args!("the newest {found}; there may be more of them, see --limit"));
    }
    Ok(Exit::yes_if(found > 0))
}

fn query(args: &EgressLog, shell: &Shell<'_>) -> EgressQuery {
    let now = shell.clock.unix_ms();
    EgressQuery {
        whose: args.tenant.clone().map_or(Whose::AllTenants, Whose::Tenant),
        correlation: args.correlation,
        since: args.since.map(|since| since.unix_ms(now)),
        until: args.until.map(|until| until.unix_ms(now)),
        outcome: args.outcome.clone(),
        destination: args.destination.clone(),
        limit: args.limit,
    }
}

/// How records are shown.
enum Shown {
    /// As they come.
    Json,
    /// A line each, once all widths are known.
    List(Table),
    /// All that is known of one call: in the order of its hops.
    Call(Vec<Record>),
}

impl Shown {
    fn new(args: &EgressLog) -> Self {
        if args.form.json {
            Self::Json
        } else if args.correlation.is_some() {
            Self::Call(Vec::new())
        } else if args.tenant.is_some() {
            Self::List(Table::new(&["ENDED", "OUTCOME", "STATUS", "METHOD", "DESTINATION", "TOOK", "CORRELATION"]))
        } else {
            Self::List(Table::new(&[
                "ENDED",
                "TENANT",
                "OUTCOME",
                "STATUS",
                "METHOD",
                "DESTINATION",
                "TOOK",
                "CORRELATION",
            ]))
        }
    }

    fn take(&mut self, record: Record, shell: &mut Shell<'_>) -> Outcome<()> {
        match self {
            Self::Json => shell.out.json(&record)?,
            Self::List(table) => table.row(row(&record, table.columns() == 8)),
            Self::Call(hops) => hops.push(record),
        }
        Ok(())
    }

    fn print(self, query: &EgressQuery, shell: &mut Shell<'_>) -> Outcome<()> {
        match self {
            Self::Json => Ok(()),
            Self::List(table) if table.is_empty() => Ok(()),
            Self::List(table) => table.print(&mut shell.out),
            Self::Call(mut hops) => {
                hops.sort_by_key(|record| (record.hop, record.ended_unix_ms));
                let Some(id) = query.correlation.filter(|_| !hops.is_empty()) else { return Ok(()) };
                let title = shell.out.paint(Tone::Bold, id);
                shell.out.line(title)?;
                for record in &hops {
                    shell.out.line("")?;
                    hop(record, shell)?;
                }
                Ok(())
            }
        }
    }
}

fn tone(record: &Record) -> Tone {
    if &*record.outcome == DONE { Tone::Good } else { Tone::Bad }
}

fn row(record: &Record, with_tenant: bool) -> Vec<Cell> {
    let mut cells = vec![Cell::toned(Tone::Dim, &rfc3339(record.ended_unix_ms))];
    if with_tenant {
        cells.push(record.tenant.as_ref().map_or_else(|| Cell::from("-"), Cell::new));
    }
    cells.extend([
        Cell::untrusted(&record.outcome).with(tone(record)),
        status(record).map_or_else(|| Cell::from("-"), Cell::from),
        Cell::untrusted(&record.method),
        Cell::untrusted(&record.destination),
        Cell::from(milliseconds(record.times.total_us)),
        Cell::new(&record.correlation),
    ]);
    cells
}

/// The destination's own status; in brackets, what the caller got of us in its place.
fn status(record: &Record) -> Option<String> {
    record.status.map(|status| status.to_string()).or_else(|| Some(format!("({})", answered_by_us(record)?)))
}

/// A tunnel that led somewhere was opened by a 200, however it ended.
fn answered_by_us(record: &Record) -> Option<u16> {
    let is_by = |way: Way| *record.way == *way.as_str();
    if is_by(Way::Connect) && record.address.is_some() {
        return Some(200);
    }
    let refusal = Refusal::ALL.iter().find(|refusal| *record.outcome == *refusal.code())?;
    let asks_who = *refusal == Refusal::CallerUnknown && is_by(Way::Governed);
    Some(if asks_who { 401 } else { refusal.status() })
}

fn milliseconds(us: u64) -> String {
    format!("{}.{} ms", us / 1000, us % 1000 / 100)
}

fn safe(text: &str) -> String {
    Untrusted::with_limit(text.as_bytes(), VALUE_BYTES_MAX).to_string()
}

/// One hop, a block of lines.
fn hop(record: &Record, shell: &mut Shell<'_>) -> Outcome<()> {
    let status = status(record).map_or_else(String::new, |status| format!(", status {status}"));
    let outcome = shell.out.paint(tone(record), safe(&record.outcome)).to_string();
    let title = shell.out.paint(Tone::Bold, format!("hop {}", record.hop)).to_string();
    shell.out.line(format_args!("{title}  {outcome}{status}"))?;
    print_fields(&mut shell.out, &fields(record))
}

fn fields(record: &Record) -> Vec<(&'static str, String)> {
    let mut fields = vec![
        ("ended", rfc3339(record.ended_unix_ms)),
        ("tenant", record.tenant.as_ref().map_or_else(|| "nobody that is known".to_owned(), ToString::to_string)),
    ];
    let mut text = |name, text: Option<&str>| fields.extend(text.map(|text| (name, safe(text))));
    text("identity", record.identity.as_deref());
    text("role", record.role.as_deref());
    text("run", record.run.as_deref());
    text("automation", record.automation.as_deref());
    text("class", record.class.as_deref());
    text("connection", record.connection.as_ref().map(domain::ConnectionId::as_str));
    text("connector", record.connector.as_ref().map(domain::ConnectorId::as_str));
    text("way", Some(&record.way));
    text("method", Some(&record.method));
    text("destination", Some(&record.destination));
    text("path", record.path.as_deref());
    text("rule", record.rule.as_deref());
    record.would_refuse.iter().for_each(|rule| text("would refuse", Some(rule)));
    record.provider_ids.iter().for_each(|(name, id)| text("provider id", Some(&format!("{name}: {id}"))));
    text("detail", Some(&*record.detail).filter(|detail| !detail.is_empty()));
    fields.push(("peer", record.peer.to_string()));
    if !record.answer.is_empty() {
        let answer: Vec<_> = record.answer.iter().map(ToString::to_string).collect();
        fields.push(("answer", answer.join(" ")));
    }
    if let Some(address) = record.address {
        let pooled = if record.pooled { " (on a connection that was open)" } else { "" };
        fields.push(("address", format!("{address}{pooled}")));
    }
    if let Some(version) = record.http {
        fields.push(("spoke", format!("HTTP/{}", version.as_str())));
    }
    fields.extend(record.exit.map(|exit| ("left from", exit.to_string())));
    let (sent, received) = (record.sent_bytes, record.received_bytes);
    fields.push(("bytes", format!("{sent} sent, {received} received")));
    fields.push(("sent state", record.send_state.as_str().to_owned()));
    let times = record.times;
    let stages = [
        ("resolve", times.resolve_us),
        ("connect", times.connect_us),
        ("tls", times.tls_us),
        ("first byte", times.first_byte_us),
    ];
    let stages: Vec<_> =
        stages.iter().filter(|(_, us)| *us > 0).map(|(name, us)| format!("{name} {}", milliseconds(*us))).collect();
    let stages = if stages.is_empty() { String::new() } else { format!(" ({})", stages.join(", ")) };
    fields.push(("took", format!("{}{stages}", milliseconds(times.total_us))));
    fields
}

#[cfg(test)]
mod tests;
