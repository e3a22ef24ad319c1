//! `tidegate events reverify`

use super::super::Shell;
use super::super::args::EventsReverify;
use super::super::exit::{Exit, Outcome};
use super::super::out::Tone;
use super::super::running;
use super::super::table::{Cell, print_row};
use super::source;
use crate::control::client::Client;
use crate::control::wire::{Judged, JudgedOutcome, Reverify};

/// A time, an id, an issued endpoint, a verdict.
const WIDTHS: [usize; 4] = [24, 30, 23, 14];

pub(super) fn run(args: &EventsReverify, shell: &mut Shell<'_>) -> Outcome {
    let ask = Reverify {
        whose: super::whose(&args.scope, shell)?,
        endpoint: args.scope.endpoint.clone(),
        ids: args.ids.clone(),
        dry_run: args.dry_run,
    };
    let place = &args.scope.place;
    if place.log.is_some() {
        return Err(source::needs_node("--log reads a directory", "reverify changes the log"));
    }
    let socket = running::socket(place.socket.as_deref(), &place.config, shell)?;
    let (mut good, mut already, mut bad) = (0_usize, 0_usize, 0_usize);
    super::super::block_on(async {
        let mut client = Client::connect(&socket).await.map_err(|error| source::unanswered(&error))?;
        let mut lines = client.stream("/v1/reverify", &ask).await.map_err(|error| source::unanswered(&error))?;
        while let Some(judged) = lines.next::<Judged>().await.map_err(|error| source::unanswered(&error))? {
            *(match judged.outcome {
                JudgedOutcome::Promoted | JudgedOutcome::WouldPromote => &mut good,
                JudgedOutcome::AlreadyPromoted => &mut already,
                JudgedOutcome::Refused | JudgedOutcome::Failed => &mut bad,
            }) += 1;
            if args.form.json {
                shell.out.json(&judged)?;
            } else {
                print_row(&mut shell.out, &row(&judged), &WIDTHS)?;
            }
            shell.out.flush()?;
        }
        Ok(())
    })?;
    let missing = args.ids.len().saturating_sub(good + already + bad);
    if missing > 0 {
        shell.out.remark(format_args!("{missing} of the named deliveries are not held for whom you asked"));
    }
    if !args.form.json {
        let verb = if args.dry_run { "would be promoted" } else { "promoted" };
        let others = if already > 0 { format!(", {already} by somebody else") } else { String::new() };
        shell.out.remark(format_args!("{good} {verb}{others}, {bad} not"));
    }
    Ok(Exit::yes_if(bad + missing == 0))
}

fn row(judged: &Judged) -> Vec<Cell> {
    let (tone, verdict) = match judged.outcome {
        JudgedOutcome::Promoted => (Tone::Good, "promoted"),
        JudgedOutcome::AlreadyPromoted => (Tone::Good, "already there"),
        JudgedOutcome::WouldPromote => (Tone::Good, "would promote"),
        JudgedOutcome::Refused => (Tone::Bad, "refused"),
        JudgedOutcome::Failed => (Tone::Bad, "failed"),
    };
    let reason = judged.reason.as_deref().unwrap_or_default();
    vec![
        Cell::toned(Tone::Dim, &judged.received_at),
        Cell::new(&judged.id),
        Cell::new(&judged.endpoint),
        Cell::toned(tone, verdict),
        Cell::untrusted(reason),
    ]
}
