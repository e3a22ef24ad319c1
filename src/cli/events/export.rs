//! `tidegate events export`

use super::super::Shell;
use super::super::args::EventsExport;
use super::super::exit::Outcome;
use super::source::Source;
use crate::control::wire::Which;

pub(super) fn run(args: &EventsExport, shell: &mut Shell<'_>) -> Outcome {
    let which = args.limit.map_or(Which::All, Which::First);
    let mut query = super::query(&args.scope, &args.span, which, shell)?;
    query.whole = true;
    query.held = args.held;
    query.skip_damage = args.skip_damage;
    let source = Source::open(&args.scope.place, shell)?;
    super::each(&source, &query, shell, &mut |line, shell| shell.out.json(&line))
}
