//! Measures quota. `make bench-quota` builds everything and runs it.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand, ValueEnum};

use bench::quota::{self, Bench, Part, held, memory};
use bench::{Result, report};

// As the appliance: a hundred bytes here or there are the allocator's.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[derive(Debug, Parser)]
#[command(about = "Measures quota: held blocks, memory, Redis beside a question for each call, a simulated fleet")]
struct Arguments {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Everything, or some parts of it
    Run(Run),
    /// Calls within blocks with one count of buckets: started by the others
    #[command(hide = true)]
    Held {
        #[arg(long)]
        buckets: usize,
    },
    /// Memory of one place: started by the others
    #[command(hide = true)]
    Memory {
        #[arg(long)]
        of: Place,
    },
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Place {
    Node,
    InProcess,
}

#[derive(Debug, Args)]
struct Run {
    /// Measured seconds of each load in steady state
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=3600))]
    seconds: u64,
    /// How often held blocks and operations are measured; the median is told
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..=99))]
    rounds: u8,
    /// Seeds of each simulation; median and worst are told
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=1000))]
    seeds: u64,
    /// Simulated minutes of each seed
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u64).range(1..=60))]
    minutes: u64,
    /// Measure these alone
    #[arg(long, value_delimiter = ',', value_enum)]
    only: Vec<Part>,
    /// Where the report goes, and the Redis keeps its log
    #[arg(long, default_value = "bench/out")]
    out: PathBuf,
}

fn main() -> ExitCode {
    let ended = match Arguments::parse().what {
        What::Run(arguments) => run(&arguments),
        What::Held { buckets } => held::measure(buckets, held::CALLS).and_then(|rows| tell(&rows)),
        What::Memory { of: Place::Node } => memory::node(memory::BUCKETS).and_then(|row| tell(&row)),
        What::Memory { of: Place::InProcess } => memory::in_process(memory::BUCKETS).and_then(|row| tell(&row)),
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench-quota: {error}");
            ExitCode::FAILURE
        }
    }
}

/// To whoever started this process.
fn tell(figures: &impl serde::Serialize) -> Result<()> {
    println!("{}", serde_json::to_string(figures)?);
    Ok(())
}

fn run(arguments: &Run) -> Result<()> {
    std::fs::create_dir_all(&arguments.out)?;
    let out = arguments.out.canonicalize()?;
    let bench = Bench {
        seconds: arguments.seconds,
        rounds: usize::from(arguments.rounds),
        seeds: arguments.seeds,
        simulated_seconds: arguments.minutes * 60,
        this: std::env::current_exe()?,
        scratch: out.join("data"),
    };
    let parts = if arguments.only.is_empty() { Part::value_variants() } else { &arguments.only };
    report::write(&out.join("quota.json"), &quota::run(&bench, parts)?)
}
