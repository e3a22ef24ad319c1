//! Measures ingress. `make bench-ingest` builds everything and runs it.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use bench::ingest::{Bench, compare, endpoints, history, kinds};
use bench::{Result, report};

#[derive(Debug, Parser)]
#[command(about = "Measures ingress: peers side by side, many endpoints, a long history")]
struct Arguments {
    /// Measured seconds of each load; 5 for a quick look
    #[arg(long, default_value_t = 20, global = true, value_parser = clap::value_parser!(u64).range(1..=3600))]
    seconds: u64,
    /// How often everything is measured; the median is told
    #[arg(long, default_value_t = 3, global = true, value_parser = clap::value_parser!(u8).range(1..=99))]
    rounds: u8,
    /// Threads that make load; half of the CPUs if not given
    #[arg(long, global = true)]
    load_threads: Option<usize>,
    /// Threads of the appliance and of the bare responder; one per CPU if not given
    #[arg(long, global = true)]
    server_threads: Option<usize>,
    /// The appliance; beside this program if not given
    #[arg(long, global = true)]
    tidegate: Option<PathBuf>,
    /// Where reports go, servers keep their data, and peers are fetched to
    #[arg(long, default_value = "bench/out", global = true)]
    out: PathBuf,
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// The appliance, a bare Pingora responder, Restate and qhook under the same load
    Compare {
        /// Leave out: bare, tidegate, restate, qhook
        #[arg(long, value_delimiter = ',')]
        without: Vec<String>,
    },
    /// One endpoint against 100,000
    Endpoints,
    /// An empty log against a long one
    History {
        #[arg(long, default_value_t = 10_000_000)]
        events: u64,
    },
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench-ingest: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<()> {
    let cores = std::thread::available_parallelism()?.get();
    std::fs::create_dir_all(&arguments.out)?;
    let out = arguments.out.canonicalize()?;
    let beside = std::env::current_exe()?;
    let bench = Bench {
        seconds: arguments.seconds,
        rounds: usize::from(arguments.rounds),
        server_threads: arguments.server_threads.unwrap_or(cores),
        load_threads: arguments.load_threads.unwrap_or((cores / 2).max(1)),
        tidegate: arguments.tidegate.clone().unwrap_or_else(|| beside.with_file_name("tidegate")),
        responder: beside.with_file_name("bench-responder"),
        scratch: out.join("data"),
        peers: out.join("peers"),
        out,
    };
    match &arguments.what {
        What::Compare { without } => {
            report::write(&bench.out.join("ingest.json"), &compare::run(&bench, &kinds(without))?)
        }
        What::Endpoints => report::write(&bench.out.join("endpoints.json"), &endpoints::run(&bench)?),
        What::History { events } => report::write(&bench.out.join("history.json"), &history::run(&bench, *events)?),
    }
}
