//! `tidegate runs …`: what an operator sees of runs, and does about them, through the running appliance.

mod acts;
pub(super) mod ask;
mod connections;
mod inbox;
mod list;
mod replay;
mod replays;
mod set_aside;
mod show;
mod state;
mod token;

use super::Shell;
use super::args::Runs;
use super::exit::Outcome;

pub(super) fn run(command: &Runs, shell: &mut Shell<'_>) -> Outcome {
    match command {
        Runs::List(args) => list::run(args, shell),
        Runs::Show(args) => show::run(args, shell),
        Runs::Inbox(args) => inbox::run(args, shell),
        Runs::Dismiss(args) => inbox::dismiss(args, shell),
        Runs::Cancel(args) => acts::cancel(args, shell),
        Runs::Resolve(args) => acts::resolve(args, shell),
        Runs::Release(args) => acts::release(args, shell),
        Runs::Replay(args) => replay::run(args, shell),
        Runs::Replays(command) => replays::run(command, shell),
        Runs::Rerun(args) => acts::rerun(args, shell),
        Runs::Connections(args) => connections::list(args, shell),
        Runs::Reconnected(args) => connections::reconnected(args, shell),
        Runs::Quarantined(args) => list::quarantined(args, shell),
        Runs::PassDamage(args) => state::pass_damage(args, shell),
        Runs::SetAside(args) => set_aside::run(args, shell),
        Runs::Rebuild(args) => state::rebuild(args, shell),
        Runs::Stat(args) => state::stat(args, shell),
        Runs::Token(args) => token::run(args, shell),
    }
}
