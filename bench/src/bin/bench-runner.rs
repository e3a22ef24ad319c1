//! Measures the runner. `make bench-runner` builds everything and runs it.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand, ValueEnum};

use bench::runner::{self, Bench, Part, dormant, egress, history, neighbour, noop, parked, workflows};
use bench::{Result, report};

// As the appliance: a hundred bytes here or there are the allocator's.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[derive(Debug, Parser)]
#[command(about = "Measures the runner: steps, end to end, beside Restate, parked runs, neighbours, history")]
struct Arguments {
    #[command(subcommand)]
    what: What,
}

/// All but the first are started by it, each in a process of its own.
#[derive(Debug, Subcommand)]
enum What {
    /// Everything, or some parts of it
    Run(Run),
    #[command(hide = true)]
    Noop {
        #[arg(long)]
        index: bool,
        #[command(flatten)]
        common: Common,
    },
    #[command(hide = true)]
    Egress {
        #[command(flatten)]
        common: Common,
    },
    #[command(hide = true)]
    Restate {
        #[command(flatten)]
        common: Common,
    },
    #[command(hide = true)]
    Parked {
        #[command(flatten)]
        common: Common,
    },
    #[command(hide = true)]
    Dormant {
        #[arg(long)]
        automations: u64,
        #[command(flatten)]
        common: Common,
    },
    #[command(hide = true)]
    Opened {
        #[arg(long)]
        directory: PathBuf,
        #[arg(long)]
        automations: u64,
    },
    #[command(hide = true)]
    Neighbour {
        #[arg(long)]
        burst: u64,
        #[command(flatten)]
        common: Common,
    },
    #[command(hide = true)]
    History {
        #[arg(long, value_delimiter = ',')]
        runs: Vec<u64>,
        #[command(flatten)]
        common: Common,
    },
}

#[derive(Debug, Clone, Args)]
struct Common {
    /// Measured seconds of each load
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=3600))]
    seconds: u64,
    /// Where the report goes, everything keeps its data, and peers are fetched to
    #[arg(long, default_value = "bench/out")]
    out: PathBuf,
}

impl Common {
    fn scratch(&self) -> PathBuf {
        self.out.join("data")
    }
}

#[derive(Debug, Args)]
struct Run {
    #[command(flatten)]
    common: Common,
    /// How often steps are measured; the median is told
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..=99))]
    rounds: u8,
    /// Dormant automations
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1_000..))]
    automations: u64,
    /// Events of the neighbour's burst
    #[arg(long, default_value_t = neighbour::BURST, value_parser = clap::value_parser!(u64).range(1..))]
    burst: u64,
    /// Longest history, in runs: 10,000, 100,000, … up to it
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(10_000..=100_000_000))]
    history: u64,
    /// Measure these alone
    #[arg(long, value_delimiter = ',', value_enum)]
    only: Vec<Part>,
}

fn main() -> ExitCode {
    match measure(Arguments::parse().what) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench-runner: {error}");
            ExitCode::FAILURE
        }
    }
}

fn measure(what: What) -> Result<()> {
    match what {
        What::Run(arguments) => run(&arguments),
        What::Noop { index, common } => tell(&noop::measure(&common.scratch(), common.seconds, index)?),
        What::Egress { common } => {
            let tidegate = std::env::current_exe()?.with_file_name("tidegate");
            tell(&egress::measure(&common.scratch(), &tidegate, common.seconds)?)
        }
        What::Restate { common } => {
            tell(&workflows::measure(&common.scratch(), &common.out.join("peers"), common.seconds)?)
        }
        What::Parked { common } => tell(&parked::measure(&common.scratch())?),
        What::Dormant { automations, common } => tell(&dormant::measure(&common.scratch(), automations)?),
        What::Opened { directory, automations } => tell(&dormant::opened(&directory, automations)?),
        What::Neighbour { burst, common } => tell(&neighbour::measure(&common.scratch(), burst)?),
        What::History { runs, common } => tell(&history::measure(&common.scratch(), common.seconds, &runs)?),
    }
}

/// To whoever started this process.
fn tell(figures: &impl serde::Serialize) -> Result<()> {
    println!("{}", serde_json::to_string(figures)?);
    Ok(())
}

fn run(arguments: &Run) -> Result<()> {
    std::fs::create_dir_all(&arguments.common.out)?;
    let out = arguments.common.out.canonicalize()?;
    let powers = std::iter::successors(Some(10_000), |length| Some(length * 10));
    let mut history: Vec<u64> = powers.take_while(|length| *length < arguments.history).collect();
    history.push(arguments.history);
    let bench = Bench {
        seconds: arguments.common.seconds,
        rounds: usize::from(arguments.rounds),
        automations: arguments.automations,
        burst: arguments.burst,
        history,
        this: std::env::current_exe()?,
        out: out.clone(),
    };
    let parts = if arguments.only.is_empty() { Part::value_variants() } else { &arguments.only };
    report::write(&out.join("runner.json"), &runner::run(&bench, parts)?)
}
