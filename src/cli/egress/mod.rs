//! `tidegate egress …`: what an operator does about the way out.

mod log;
mod ranges;
mod switch;
mod top;

use super::Shell;
use super::args::{Egress, EgressSwitch};
use super::exit::Outcome;

pub(super) fn run(command: &Egress, shell: &mut Shell<'_>) -> Outcome {
    match command {
        Egress::Log(args) => log::run(args, shell),
        Egress::Top(args) => top::run(args, shell),
        Egress::Close(args) => top::close(args, shell),
        Egress::Ranges(command) => ranges::run(command, shell),
        Egress::Switch(EgressSwitch::Off(args)) => switch::off(args, shell),
        Egress::Switch(EgressSwitch::On(args)) => switch::on(args, shell),
        Egress::Switch(EgressSwitch::List(args)) => switch::list(args, shell),
    }
}
