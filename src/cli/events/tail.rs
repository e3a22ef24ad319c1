//! `tidegate events tail`

use super::super::Shell;
use super::super::args::{EventsTail, Span};
use super::super::exit::Outcome;
use super::super::out::Tone;
use super::super::table::{Cell, print_row};
use super::source::Source;
use crate::control::wire::{EventLine, Which};

/// Columns of a stream cannot wait for their widest cell: a time, an id, an issued endpoint, a usual scheme.
const WIDTHS: [usize; 5] = [24, 30, 23, 16, 4];

pub(super) fn run(args: &EventsTail, shell: &mut Shell<'_>) -> Outcome {
    let which = if args.since.is_some() { Which::Follow } else { Which::FollowFromNow };
    let mut query = super::query(&args.scope, &Span { since: args.since, until: None }, which, shell)?;
    let source = Source::open_live(&args.scope.place, shell)?;
    query.skip_damage = args.skip_damage;
    // Nothing would ever come, and nobody would say why.
    super::warn_of_a_stranger(&args.scope, shell);
    super::each(&source, &query, shell, &mut |line, shell| {
        if args.form.json {
            shell.out.json(&line)?;
        } else {
            print_row(&mut shell.out, &row(&line), &WIDTHS)?;
        }
        shell.out.flush()
    })
}

fn row(line: &EventLine) -> Vec<Cell> {
    vec![
        Cell::toned(Tone::Dim, &line.received_at),
        Cell::new(&line.id),
        Cell::new(&line.endpoint),
        Cell::untrusted(&line.scheme),
        Cell::untrusted(&line.method),
        Cell::new(&format_args!("{} B", line.body_bytes)),
    ]
}
