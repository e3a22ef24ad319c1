//! `tidegate run`: the appliance itself.

use super::Shell;
use super::args::Run;
use super::exit::{Exit, Failure, Outcome};
use super::faults;
use crate::control::wire::FaultLine;
use crate::run::{RunError, with_causes};

pub(super) fn run(args: &Run, shell: &mut Shell<'_>) -> Outcome {
    match crate::run::run(&args.file.config) {
        Ok(()) => Ok(Exit::Yes),
        Err(RunError::Faults(found)) => {
            let lines: Vec<FaultLine> = found.iter().map(FaultLine::from).collect();
            faults::print(&lines, shell)?;
            shell.out.remark("nothing was started; `tidegate check` looks at the tenants' files too");
            // A file that is not there is no faulty one.
            let is_there = std::fs::File::open(&args.file.config).is_ok();
            Ok(if is_there { Exit::No } else { Exit::Failed })
        }
        Err(error) => Err(Failure::plain(with_causes(&error))),
    }
}
