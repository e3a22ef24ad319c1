//! The command line. `args` is its grammar, each command has a file, and `Shell` is all that a command sees of
//! the world outside: its output, standard input, the environment, the clock.

mod answers;
mod args;
mod automations;
mod capture;
mod check;
mod curl;
mod diagnose;
mod directories;
mod egress;
mod endpoints;
mod events;
mod exit;
mod explain;
mod faults;
mod grant;
mod help;
mod http;
mod log;
mod out;
mod plan;
mod quota;
mod reference;
mod reload;
mod run;
mod running;
mod runs;
mod scheme;
mod schemes;
mod secret;
mod send;
mod settings;
mod sign;
mod table;
mod verify;
mod when;

use std::ffi::OsString;
use std::future::Future;
use std::io::{self, BufWriter, Read};
use std::process::ExitCode;
use std::sync::Arc;

use clap::FromArgMatches;
use config::{Environment, ProcessEnvironment};
use domain::{Clock, SystemClock};

use args::{
    Automations, Cli, Command, Egress, EgressSwitch, Endpoints, Events, Grant, GrantCommand, Log, Quota, Runs, SchemaOf,
};
use exit::{Exit, Failure, Outcome};
use out::{Colour, Out};

/// What a command sees of the world outside.
pub(crate) struct Shell<'a> {
    pub(crate) out: Out<'a>,
    pub(crate) stdin: &'a mut dyn Read,
    pub(crate) environment: &'a dyn Environment,
    pub(crate) clock: Arc<dyn Clock>,
}

/// Runs the process's own command line.
pub(crate) fn main() -> ExitCode {
    // Not locked for the whole run: the appliance's own log lines go to the same stream from other threads.
    let mut answer = BufWriter::new(io::stdout());
    let mut remarks = io::stderr();
    let mut shell = Shell {
        out: Out::new(&mut answer, &mut remarks),
        stdin: &mut io::stdin(),
        environment: &ProcessEnvironment,
        clock: SystemClock::shared(),
    };
    execute(std::env::args_os(), &mut shell).into()
}

/// Runs one command line.
pub(crate) fn execute(words: impl IntoIterator<Item = OsString>, shell: &mut Shell<'_>) -> Exit {
    let plain_wanted = wants_plain(shell.environment);
    shell.out.colour(Colour::Auto, plain_wanted);
    let cli = match parse(words) {
        Ok(cli) => cli,
        Err(error) => return explain(&error, shell),
    };
    shell.out.colour(cli.color, plain_wanted);
    let outcome = dispatch(cli.command, shell).and_then(|exit| shell.out.flush().map(|()| exit));
    outcome.unwrap_or_else(|failure| {
        // What was said before the failure is still part of the answer, if anybody listens.
        drop(shell.out.flush());
        shell.out.complain(&failure);
        failure.exit()
    })
}

fn parse(words: impl IntoIterator<Item = OsString>) -> Result<Cli, clap::Error> {
    let mut matches = help::command().try_get_matches_from(words)?;
    Cli::from_arg_matches_mut(&mut matches).map_err(|error| error.format(&mut help::command()))
}

/// <https://no-color.org>: set and not empty. A dumb terminal shows escapes as garbage.
fn wants_plain(environment: &dyn Environment) -> bool {
    let set = |name| environment.variable(name).filter(|value| !value.is_empty());
    set("NO_COLOR").is_some() || set("TERM").is_some_and(|term| term == "dumb")
}

/// Help and version are answers; everything else that the parser says is a wrong command line.
fn explain(error: &clap::Error, shell: &mut Shell<'_>) -> Exit {
    if error.use_stderr() {
        // It repeats what was typed, and what was typed may have come from anywhere.
        let text = error.render().to_string();
        let escaped: String = text.chars().map(printable).collect();
        shell.out.complain_plainly(escaped.trim_end());
        return Exit::Usage;
    }
    let help = error.render();
    let help = if shell.out.coloured() { help.ansi().to_string() } else { help.to_string() };
    match shell.out.text(help::trimmed(&help)).and_then(|()| shell.out.flush()) {
        Ok(()) => Exit::Yes,
        Err(failure) => failure.exit(),
    }
}

fn printable(c: char) -> String {
    if c.is_control() && c != '\n' { c.escape_default().to_string() } else { c.to_string() }
}

/// Is the answer to this command yes or no?
fn asks_for_a_verdict(command: &Command) -> bool {
    match command {
        Command::Check(_)
        | Command::Send(_)
        | Command::Verify(_)
        | Command::Explain(_)
        | Command::Reload(_)
        | Command::Egress(Egress::Close(_) | Egress::Ranges(_) | Egress::Switch(EgressSwitch::On(_)))
        | Command::Events(Events::Reverify(_))
        | Command::Quota(
            Quota::Show(_)
            | Quota::Explain(_)
            | Quota::Park(_)
            | Quota::Release(_)
            | Quota::Reset(_)
            | Quota::Resume(_)
            | Quota::Announce(_)
            | Quota::Withdraw(_),
        )
        | Command::Runs(
            Runs::Show(_) | Runs::Cancel(_) | Runs::Resolve(_) | Runs::Release(_) | Runs::Replay(_) | Runs::Rerun(_),
        )
        | Command::Automations(
            Automations::Put(_)
            | Automations::Show(_)
            | Automations::Delete(_)
            | Automations::Start(_)
            | Automations::Check(_),
        )
        | Command::Log(Log::Verify(_))
        | Command::Grant(Grant { command: Some(GrantCommand::Show(_)), .. }) => true,
        Command::Run(_)
        | Command::Sign(_)
        | Command::Events(_)
        | Command::Log(_)
        | Command::Grant(_)
        | Command::Egress(_)
        | Command::Quota(_)
        | Command::Runs(_)
        | Command::Automations(_)
        | Command::Schemes(_)
        | Command::Endpoints(_)
        | Command::Schema(_)
        | Command::Completions(_)
        | Command::Reference(_) => false,
    }
}

fn dispatch(command: Command, shell: &mut Shell<'_>) -> Outcome {
    if asks_for_a_verdict(&command) {
        shell.out.is_for_a_verdict();
    }
    match command {
        Command::Run(args) => run::run(&args, shell),
        Command::Check(args) => check::run(&args, shell),
        Command::Send(args) => send::run(&args, shell),
        Command::Sign(args) => sign::run(&args, shell),
        Command::Verify(args) => verify::run(&args, shell),
        Command::Explain(args) => explain::run(&args, shell),
        Command::Events(command) => events::run(&command, shell),
        Command::Log(Log::Verify(args)) => log::verify(&args, shell),
        Command::Log(Log::Stat(args)) => log::stat(&args, shell),
        Command::Egress(command) => egress::run(&command, shell),
        Command::Quota(command) => quota::run(&command, shell),
        Command::Runs(command) => runs::run(&command, shell),
        Command::Automations(command) => automations::run(&command, shell),
        Command::Grant(args) => grant::run(&args, shell),
        Command::Schemes(command) => schemes::run(&command, shell),
        Command::Endpoints(Endpoints::Issue(args)) => endpoints::issue(&args, shell),
        Command::Reload(args) => reload::run(&args, shell),
        Command::Schema(args) => {
            shell.out.json_pretty(&match args.of {
                SchemaOf::Appliance => config::appliance_schema(),
                SchemaOf::Tenant => config::tenant_schema(),
            })?;
            Ok(Exit::Yes)
        }
        Command::Completions(args) => completions(args.shell, shell),
        Command::Reference(args) => reference::run(args.of, shell),
    }
}

fn completions(kind: clap_complete::Shell, shell: &mut Shell<'_>) -> Outcome {
    let mut script = Vec::new();
    let mut command = help::command();
    clap_complete::generate(kind, &mut command, "tidegate", &mut script);
    shell.out.text(String::from_utf8_lossy(&script))?;
    if kind == clap_complete::Shell::Fish {
        shell.out.text(fish_words(&command))?;
    }
    Ok(Exit::Yes)
}

/// The words that an argument without a name can be: fish would offer files for it.
fn fish_words(command: &clap::Command) -> String {
    let words_of = |child: &clap::Command| {
        let words = child.get_positionals().flat_map(clap::Arg::get_possible_values);
        let words: Vec<String> = words.map(|word| word.get_name().to_owned()).collect();
        (child.get_name().to_owned(), words.join(" "))
    };
    let with_words = command.get_subcommands().filter(|child| !child.is_hide_set()).map(words_of);
    let lines = with_words.filter(|(_, words)| !words.is_empty()).map(|(name, words)| {
        format!("complete -c tidegate -n \"__fish_tidegate_using_subcommand {name}\" -f -a \"{words}\"\n")
    });
    lines.collect()
}

/// Runs what waits for a network or a socket. Commands are short: one thread is enough.
pub(crate) fn block_on<T>(work: impl Future<Output = Outcome<T>>) -> Outcome<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Failure::plain(format_args!("could not start a runtime: {error}")))?;
    runtime.block_on(work)
}

#[cfg(test)]
mod check_tests;
#[cfg(test)]
mod check_whole_tests;
#[cfg(test)]
mod send_tests;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
