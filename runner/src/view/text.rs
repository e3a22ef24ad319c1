//! A run on a terminal: what somebody wants who is woken at three. First what happened and what to do, then node by node.
//!
//! Everything that came from elsewhere is escaped, also what a server of ours has sent: nothing moves the cursor.

use std::fmt::Write as _;

use domain::TenantId;
use domain::text::{Untrusted, json_for_terminals};

use super::form::{AttemptView, ExecutionView, LineView, NextAct, NodeOfRun, NodeView, ParkView};
use super::payload::PayloadView;
use super::text_of::{span, workers_were_lost};

/// Columns of running text.
const WIDTH: usize = 100;

/// Bytes of a payload on its line.
const PAYLOAD_BYTES_MAX: usize = 400;

/// Bytes of any other text.
const TEXT_BYTES_MAX: usize = 300;

fn safe(text: &str) -> String {
    Untrusted::with_limit(text.as_bytes(), TEXT_BYTES_MAX).to_string()
}

/// A table, a line at a time, its columns as wide as they have to be.
#[derive(Default)]
struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().collect());
    }

    fn draw(&self, out: &mut String, indent: usize) {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let width = |column: usize| {
            self.rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<_> = (0..columns).map(width).collect();
        for row in &self.rows {
            let mut line = " ".repeat(indent);
            for (cell, width) in row.iter().zip(&widths).filter(|(_, width)| **width > 0) {
                let room = width - cell.chars().count();
                line.push_str(cell);
                line.push_str(&" ".repeat(room + 2));
            }
            out.push_str(line.trim_end());
            out.push('\n');
        }
    }
}

/// A run, whole.
pub fn draw(view: &ExecutionView) -> String {
    drawn(view, "")
}

/// The same for whoever sees several tenants: what to do names the tenant, as its commands have to.
pub fn draw_for(view: &ExecutionView, tenant: &TenantId) -> String {
    drawn(view, &format!(" --tenant {tenant}"))
}

fn drawn(view: &ExecutionView, of: &str) -> String {
    let mut out = String::new();
    head(view, &mut out);
    out.push('\n');
    wrapped(&safe_long(&view.summary), 2, &mut out);
    let commands: Vec<_> = view.next.iter().flat_map(|next| commands(view, next, of)).collect();
    if !commands.is_empty() {
        out.push_str("\n  What to do\n");
        for command in &commands {
            line(&mut out, 4, command);
        }
    }
    if view.is_expired {
        out.push_str("\n  Its details are past their retention.\n");
    }
    if !view.nodes.is_empty() {
        out.push('\n');
    }
    nodes(&view.nodes, view.nodes_omitted, &mut out);
    out
}

/// One node of a run, with all that there is of it.
pub fn draw_node(view: &NodeOfRun) -> String {
    let mut out = String::new();
    line(&mut out, 0, &format!("{}  {}", safe(&view.run_id), safe(&view.run_status)));
    nodes(std::slice::from_ref(&view.node), 0, &mut out);
    out
}

fn line(out: &mut String, indent: usize, text: &str) {
    // Writing to a string does not fail.
    let _written = writeln!(out, "{:indent$}{text}", "");
}

/// The summary is a few sentences: longer than other texts may be.
fn safe_long(text: &str) -> String {
    Untrusted::with_limit(text.as_bytes(), 2_000).to_string()
}

fn wrapped(text: &str, indent: usize, out: &mut String) {
    let mut row = String::new();
    for word in text.split(' ') {
        if !row.is_empty() && row.chars().count() + 1 + word.chars().count() > WIDTH - indent {
            line(out, indent, &row);
            row.clear();
        }
        if !row.is_empty() {
            row.push(' ');
        }
        row.push_str(word);
    }
    line(out, indent, &row);
}

fn head(view: &ExecutionView, out: &mut String) {
    let took = match view.ended_at {
        Some(_) => format!("after {}", span(view.duration_ms)),
        None => format!("for {}", span(view.duration_ms)),
    };
    line(out, 0, &format!("{}  {}  {took}", safe(&view.id), safe(&view.status)));
    let mut table = Table::default();
    let mut fact = |name: &str, value: String| table.row([name.to_owned(), value]);
    let name = view.automation_name.as_deref().map(|name| format!("{} ", safe(name))).unwrap_or_default();
    fact("automation", format!("{name}{} version {}", safe(&view.automation), view.version));
    fact("because of", because(view));
    let ended = view.ended_at.as_deref().map(|at| format!(", ended {}", safe(at))).unwrap_or_default();
    fact("admitted", format!("{}{ended}, deadline {}", safe(&view.admitted_at), safe(&view.deadline)));
    fact("queue", safe(&view.class));
    if let Some(parked) = &view.parked {
        fact("waits for", waits(parked));
    }
    if let Some(cancel) = &view.cancel_requested {
        fact("cancelled", format!("by {} at {}", safe(&cancel.by), safe(&cancel.at)));
    }
    if let Some(quarantined) = &view.quarantined {
        fact("set aside", format!("at {}: {}", safe(&quarantined.at), safe(&quarantined.reason)));
    }
    if view.crashes > 0 {
        fact("crashes", format!("{} over it", workers_were_lost(view.crashes)));
    }
    if let Some(dismissed) = &view.dismissed {
        let (by, at) = (safe(&dismissed.by), safe(&dismissed.at));
        fact("put away", format!("by {by} at {at}: {}", safe(&dismissed.reason)));
    }
    if let Some(input) = &view.input {
        fact("input", payload(input));
    }
    table.draw(out, 2);
}

fn because(view: &ExecutionView) -> String {
    let cause = &view.cause;
    let text = |text: &Option<String>| text.as_deref().map(safe).unwrap_or_default();
    let execution = view.execution_id.as_deref().map(|id| format!(" ({})", safe(id))).unwrap_or_default();
    match &*cause.kind {
        "event" => format!("event {} at {}{execution}", text(&cause.event), text(&cause.endpoint)),
        "replay" if cause.of.is_some() => {
            format!("replay {} of {}, by {}", text(&cause.replay), text(&cause.of), text(&cause.by))
        }
        "replay" => {
            let (replay, event) = (text(&cause.replay), text(&cause.event));
            format!("replay {replay} of event {event} at {}{execution}", text(&cause.endpoint))
        }
        _ => format!("{}, who started it by hand", text(&cause.by)),
    }
}

fn waits(parked: &ParkView) -> String {
    let until = parked.until.as_deref().map(|until| format!(" until {}", safe(until))).unwrap_or_default();
    format!("{}{until}, since {}", safe(&parked.reason), safe(&parked.since))
}

/// The command line's words for an act.
fn commands(view: &ExecutionView, next: &NextAct, of: &str) -> Vec<String> {
    let run = safe(&view.id);
    let node = next.node.as_deref().map(safe).unwrap_or_default();
    match &*next.act {
        "resolve" => {
            let choices = next.choices.iter().map(|choice| safe(choice));
            choices.map(|choice| format!("tidegate runs resolve{of} {run} --node {node} --choice {choice}")).collect()
        }
        "rerun" => vec![format!("tidegate runs rerun{of} {run} --node {node}")],
        "replay" => vec![format!("tidegate runs replay{of} {run}")],
        "release" => vec![format!("tidegate runs release{of} {run}")],
        "cancel" => vec![format!("tidegate runs cancel{of} {run}")],
        "dismiss" => vec![format!("tidegate runs dismiss{of} {run} --reason \"…\"")],
        "reconnect" => match next.connection.as_deref().map(safe) {
            Some(name) => vec![format!("connect {name} anew"), format!("tidegate runs reconnected{of} {name}")],
            None => vec!["connect its connection anew".into()],
        },
        _ => Vec::new(),
    }
}

/// One sign for each way in which a node can stand.
fn sign(status: &str) -> char {
    match status {
        "succeeded" => '✓',
        "gap-accepted" => '≈',
        "failed" => '✗',
        "ambiguous" | "needs-attention" => '?',
        "running" => '▸',
        "retrying" => '↻',
        "parked" => '‖',
        "skipped" => '↷',
        _ => '·',
    }
}

fn nodes(views: &[NodeView], omitted: usize, out: &mut String) {
    // Heads first, so that their columns stand below each other; what is below a node is put between.
    let mut table = Table::default();
    for node in views {
        let took = node.duration_ms.map(span).unwrap_or_default();
        let chosen = node.chosen.as_deref().map(|case| format!("→ {}", safe(case))).unwrap_or_default();
        let after: Vec<_> = node.after.iter().map(|edge| safe(edge)).collect();
        let after = if after.is_empty() { String::new() } else { format!("← {}", after.join(", ")) };
        let name = format!("{} {}", sign(&node.status), safe(&node.id));
        table.row([name, safe(&node.status), took, chosen, after]);
    }
    let mut heads = String::new();
    table.draw(&mut heads, 2);
    for (head, node) in heads.lines().zip(views) {
        line(out, 0, head);
        below(node, out);
    }
    if omitted > 0 {
        line(out, 2, &format!("… {omitted} more nodes"));
    }
}

fn below(node: &NodeView, out: &mut String) {
    const INDENT: usize = 6;
    let is_call =
        node.kind.as_deref() == Some("call") || node.attempts.iter().any(|attempt| attempt.effect_key.is_some());
    let mut facts = Table::default();
    let mut fact = |name: &str, value: Option<String>| {
        facts.rows.extend(value.map(|value| vec![name.to_owned(), value]));
    };
    let action = node.action.as_deref().map(|action| format!("{} ", safe(action))).unwrap_or_default();
    let provider = node.provider.as_deref().map(|provider| format!(" ({})", safe(provider))).unwrap_or_default();
    let through = node.connection.as_deref().map(|name| format!("{action}through {}{provider}", safe(name)));
    fact("call", through.filter(|_| is_call));
    fact("waits for", node.parked.as_ref().map(waits));
    let error = node.error_class.as_deref().map(|class| {
        let title = node.error.as_deref().map(|title| format!(": {}", safe(title))).unwrap_or_default();
        format!("{}{title}", safe(class))
    });
    fact("error", error);
    let is_said = |detail: &&str| !detail.is_empty() && node.provider_message.as_deref() != Some(*detail);
    fact("detail", node.error_detail.as_deref().filter(is_said).map(safe));
    fact("provider said", node.provider_message.as_deref().map(safe));
    fact("next", node.user_action.as_deref().map(safe));
    fact("in", node.input.as_ref().map(payload));
    fact("out", node.output.as_ref().map(payload));
    facts.draw(out, INDENT);
    attempts(node, is_call, out, INDENT);
}

fn attempts(node: &NodeView, is_call: bool, out: &mut String, indent: usize) {
    if is_call && !node.attempts.is_empty() {
        if node.attempts_omitted > 0 {
            line(out, indent, &format!("… {} earlier attempts are not shown", node.attempts_omitted));
        }
        let mut table = Table::default();
        let mut key = None;
        for attempt in &node.attempts {
            // Tries of one asking have the same key: it is said with the first of them.
            let new = attempt.effect_key.as_deref().filter(|now| key != Some(*now));
            key = new.or(key);
            table.row(tried(attempt, new));
        }
        table.draw(out, indent);
    }
    let mut table = Table::default();
    for late in &node.late_outcomes {
        let mut cells = tried(late, None);
        cells[1] = "came late".into();
        table.row(cells);
    }
    for choice in &node.choices {
        let what = format!("by {} at {}", safe(&choice.by), safe(&choice.at));
        table.row([safe(&choice.attempt), safe(&choice.choice), what]);
    }
    table.draw(out, indent);
}

/// The time of day: the date is in the head.
fn clock(at: &str) -> String {
    safe(at.get(11..23).unwrap_or(at))
}

fn tried(attempt: &AttemptView, key: Option<&str>) -> Vec<String> {
    let text = |text: &Option<String>| text.as_deref().map(safe).unwrap_or_default();
    let result = match (&attempt.error_class, &attempt.detail) {
        (Some(class), _) => safe(class),
        (None, Some(detail)) => format!("{}: {}", safe(&attempt.result), safe(detail)),
        (None, None) => safe(&attempt.result),
    };
    let named = |name: &str, value: &Option<String>| {
        value.as_deref().map(|value| format!("{name} {}", safe(value))).unwrap_or_default()
    };
    vec![
        safe(&attempt.attempt),
        safe(&attempt.why),
        attempt.at.as_deref().or(attempt.ended_at.as_deref()).map(clock).unwrap_or_default(),
        attempt.duration_ms.map(span).unwrap_or_default(),
        text(&attempt.send_state),
        attempt.provider_status.map(|status| status.to_string()).unwrap_or_default(),
        result,
        named("request", &attempt.provider_request_id),
        named("egress", &attempt.correlation_id),
        attempt.next_attempt_at.as_deref().map(|at| format!("next {}", clock(at))).unwrap_or_default(),
        key.map(|key| format!("key {}", safe(key))).unwrap_or_default(),
    ]
}

/// A payload on one line, and how much of it that is.
fn payload(view: &PayloadView) -> String {
    let (shown, is_whole) = match (&view.value, &view.text, &view.base64) {
        (Some(value), ..) => {
            let json = value.to_string();
            let cut = &json[..json.floor_char_boundary(PAYLOAD_BYTES_MAX)];
            (json_for_terminals(cut).into_owned(), cut.len() == json.len())
        }
        (None, Some(text), _) => {
            let shown = Untrusted::with_limit(text.as_bytes(), PAYLOAD_BYTES_MAX).to_string();
            (shown, text.len() <= PAYLOAD_BYTES_MAX)
        }
        (None, None, Some(base64)) => (format!("base64 {}", safe(base64)), base64.len() <= TEXT_BYTES_MAX),
        // Null has no value of its own once it was read from JSON.
        (None, None, None) if !view.truncated => ("null".to_owned(), true),
        (None, None, None) => (String::new(), true),
    };
    let because = match view.because.as_deref() {
        Some("expired") => "its time was up",
        Some("too-large") => "too large to be kept whole",
        Some("unavailable") => "not to be had just now",
        None if is_whole => return shown,
        Some(_) | None => "not shown whole",
    };
    format!(
        "{shown}{}[{}{} bytes, {because}, {}]",
        if shown.is_empty() { "" } else { "… " },
        if view.unfinished { "more than " } else { "" },
        view.bytes,
        safe(&view.digest)
    )
}

/// Runs, a line each.
pub fn lines(views: &[LineView]) -> String {
    let mut table = Table::default();
    if !views.is_empty() {
        table.row(["RUN", "STATUS", "ADMITTED", "TOOK", "AUTOMATION", "CAUSE", "WHAT"].map(str::to_owned));
    }
    for view in views {
        let took = view.duration_ms.map(span).unwrap_or_default();
        let step = view.failed_at.as_deref().map(|step| format!(" at {}", safe(step))).unwrap_or_default();
        let what = match (&view.error_class, &view.parked) {
            (Some(class), _) => format!("{}{step}", safe(class)),
            (None, Some(parked)) => waits(parked),
            (None, None) => String::new(),
        };
        let name = view.automation_name.as_deref().unwrap_or(&view.automation);
        let automation = format!("{} v{}", safe(name), view.version);
        let cells =
            [safe(&view.id), safe(&view.status), safe(&view.admitted_at), took, automation, safe(&view.cause.kind)];
        table.row(cells.into_iter().chain([what]));
    }
    let mut out = String::new();
    table.draw(&mut out, 0);
    out
}
