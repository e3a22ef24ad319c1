//! `tidegate events show`

use std::io::IsTerminal;

use domain::text::Untrusted;

use super::super::Shell;
use super::super::args::EventsShow;
use super::super::exit::{Exit, Failure, Outcome};
use super::super::out::Tone;
use super::super::schemes;
use super::super::table::print_fields;
use super::source::Source;
use super::{body, redact};
use crate::control::wire::{EventLine, Find};

/// Longer header values exist; nobody reads them on a terminal, and --json has them whole.
const VALUE_BYTES_MAX: usize = 2048;

pub(super) fn run(args: &EventsShow, shell: &mut Shell<'_>) -> Outcome {
    let find = Find { whose: super::whose(&args.scope, shell)?, id: args.id, held: args.held };
    let source = Source::open(&args.scope.place, shell)?;
    let of_this_endpoint = |line: &EventLine| args.scope.endpoint.as_ref().is_none_or(|id| *id == line.endpoint);
    let Some(mut line) = source.find(&find)?.filter(of_this_endpoint) else {
        let hint =
            if args.held { "without --held the events are looked at" } else { "--held looks at what did not verify" };
        shell.out.remark(format_args!("there is no {} for whom you asked; {hint}", args.id));
        return Ok(Exit::No);
    };
    if args.body_only {
        return body_only(&line, shell);
    }
    if !args.reveal {
        redact::redact(&mut line);
    }
    if args.form.json {
        shell.out.json(&line)?;
    } else {
        print(&line, shell)?;
    }
    Ok(Exit::Yes)
}

fn body_only(line: &EventLine, shell: &mut Shell<'_>) -> Outcome {
    let body = line.body().unwrap_or_default();
    if std::io::stdout().is_terminal() && body::plain_text(&body).is_none() {
        return Err(Failure::failed("the body is not text, and this is a terminal", "redirect it into a file"));
    }
    shell.out.bytes(&body)?;
    Ok(Exit::Yes)
}

fn print(line: &EventLine, shell: &mut Shell<'_>) -> Outcome<()> {
    let title = shell.out.paint(Tone::Bold, line.id);
    shell.out.line(title)?;
    print_fields(&mut shell.out, &fields(line))?;
    shell.out.line("")?;
    for (name, value) in line.headers.iter().flatten() {
        let name = shell.out.paint(Tone::Dim, format!("{}:", name.shown(VALUE_BYTES_MAX)));
        shell.out.line(format_args!("{name} {}", value.shown(VALUE_BYTES_MAX)))?;
    }
    shell.out.line("")?;
    let body = line.body().unwrap_or_default();
    let (kind, lines, left) = body::rendered(&body);
    let title = shell.out.paint(Tone::Dim, format!("body, {} bytes, {kind}", body.len()));
    shell.out.line(title)?;
    lines.iter().try_for_each(|text| shell.out.line(text))?;
    if left > 0 {
        shell.out.remark(format_args!("{left} bytes more; --body-only writes them all"));
    }
    Ok(())
}

fn safe(text: &str) -> String {
    Untrusted::with_limit(text.as_bytes(), VALUE_BYTES_MAX).to_string()
}

fn fields(line: &EventLine) -> Vec<(&'static str, String)> {
    let mut fields = vec![
        ("received", line.received_at.clone()),
        ("tenant", line.tenant.to_string()),
        ("endpoint", line.endpoint.to_string()),
        ("request", format!("{} {}", safe(&line.method), line.target.shown(VALUE_BYTES_MAX))),
        ("public url", safe(&line.public_url)),
        ("peer", safe(&line.peer)),
    ];
    let by = line
        .secret
        .as_ref()
        .map_or_else(|| "not verified".to_owned(), |name| format!("verified by secret {}", safe(name)));
    fields.push(("scheme", format!("{}, {by}", safe(&line.scheme))));
    if let Some(at) = &line.signed_at {
        fields.push(("signed at", at.clone()));
    }
    if let Some(id) = &line.delivery_id {
        let covered = if id.signed { "signed" } else { "not signed: anybody can write it" };
        fields.push(("delivery", format!("{} ({covered})", id.value.shown(VALUE_BYTES_MAX))));
    }
    if let Some(held) = &line.held {
        fields.push(("held", format!("{}: {}", safe(&held.status), safe(&held.reason))));
        // What is missing, or does not fit, is to be looked for there.
        fields.extend(schemes::signature_of(&line.scheme).map(|place| ("signature", place)));
    }
    if let Some(place) = &line.place {
        fields.push(("committed", place.appended_at.clone()));
        fields.push(("position", place.position.clone()));
        fields.push(("node", format!("{}, epoch {}, sequence {}", place.node, place.epoch, place.sequence)));
        fields.push(("class", place.class.clone()));
    }
    fields
}

#[cfg(test)]
mod tests {
    use super::super::super::testing;
    use super::super::sample;
    use super::*;

    #[test]
    fn where_a_held_delivery_s_signature_should_be_is_said() {
        let held = crate::control::wire::HeldLine { status: "quarantined".into(), reason: "missing".into() };
        let line = EventLine { held: Some(held), place: None, ..sample::line() };
        let shown = testing::printed(|shell| print(&line, shell));
        let want =
            "held        quarantined: missing\nsignature   header X-Hub-Signature-256, behind \"sha256=\", hex\n";
        assert!(shown.contains(want), "{shown}");
        let own = EventLine { scheme: "acme-erp".into(), ..line };
        assert!(!testing::printed(|shell| print(&own, shell)).contains("signature "));
    }

    #[test]
    fn an_event_is_shown_whole_and_safe() {
        let mut line = sample::line();
        redact::redact(&mut line);
        let shown = testing::printed(|shell| print(&line, shell));
        assert_eq!(
            shown,
            "evt_06dczqd2fc00e001041061050r\n\
             received    2025-11-29T13:46:40.123Z\n\
             tenant      acme\n\
             endpoint    wh_9f2c1b7a\n\
             request     POST /hooks/wh_9f2c1b7a\n\
             public url  https://hooks.example.com\n\
             peer        127.0.0.1:5555\n\
             scheme      github, verified by secret primary\n\
             delivery    \\u{1b}[31mred (not signed: anybody can write it)\n\
             committed   2025-11-29T13:46:40.125Z\n\
             position    default.0.0.3.4096\n\
             node        1, epoch 3, sequence 17\n\
             class       normal\n\
             \n\
             Content-Type: application/json\n\
             Authorization: [redacted]\n\
             X-Odd: \\u{1b}]0;title\\u{7}\\xff\n\
             \n\
             body, 9 bytes, text\n\
             {\"a\": 1}\n"
        );
    }
}
