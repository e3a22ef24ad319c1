//! Measures egress. `make bench-egress` builds everything and runs it.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand, ValueEnum};

use bench::egress::compare::{self, Load};
use bench::egress::proxies::Kind;
use bench::egress::{Bench, origin, raise_files};
use bench::{Result, report};

#[derive(Debug, Parser)]
#[command(about = "Measures egress: the appliance beside Squid, Envoy, HAProxy and calls without a proxy")]
struct Arguments {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Every proxy under every load
    Compare(Compare),
    /// What is called: started by the others
    #[command(hide = true)]
    Origin {
        #[arg(long)]
        directory: PathBuf,
        #[arg(long, default_value_t = 1)]
        threads: usize,
    },
}

#[derive(Debug, Args)]
struct Compare {
    /// Measured seconds of each load
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=3600))]
    seconds: u64,
    /// How often everything is measured; the median is told
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..=99))]
    rounds: u8,
    /// Leave out: direct, tidegate, squid, envoy, haproxy
    #[arg(long, value_delimiter = ',')]
    without: Vec<String>,
    /// Measure these alone
    #[arg(long, value_delimiter = ',', value_enum)]
    only: Vec<Load>,
    /// Idle tunnels, if so many files may be open: two for each in the proxy
    #[arg(long, default_value_t = 10_000)]
    tunnels: usize,
    /// Threads of every proxy; one per CPU if not given
    #[arg(long)]
    proxy_threads: Option<usize>,
    /// Threads that send requests; half of the CPUs if not given
    #[arg(long)]
    load_threads: Option<usize>,
    /// Threads of the origin; half of the CPUs if not given
    #[arg(long)]
    origin_threads: Option<usize>,
    /// The appliance; beside this program if not given
    #[arg(long)]
    tidegate: Option<PathBuf>,
    /// Where the report goes, proxies keep their data, and peers are fetched to
    #[arg(long, default_value = "bench/out")]
    out: PathBuf,
}

fn main() -> ExitCode {
    let ended = match Arguments::parse().what {
        What::Origin { directory, threads } => origin::run(&directory, threads),
        What::Compare(arguments) => run(&arguments),
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench-egress: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Compare) -> Result<()> {
    raise_files()?;
    let cores = std::thread::available_parallelism()?.get();
    let half = (cores / 2).max(1);
    std::fs::create_dir_all(&arguments.out)?;
    let out = arguments.out.canonicalize()?;
    let this = std::env::current_exe()?;
    let bench = Bench {
        seconds: arguments.seconds,
        rounds: usize::from(arguments.rounds),
        proxy_threads: arguments.proxy_threads.unwrap_or(cores),
        load_threads: arguments.load_threads.unwrap_or(half),
        origin_threads: arguments.origin_threads.unwrap_or(half),
        tunnels: arguments.tunnels,
        tidegate: arguments.tidegate.clone().unwrap_or_else(|| this.with_file_name("tidegate")),
        this,
        scratch: out.join("data"),
        peers: out.join("peers"),
        out,
    };
    for name in &arguments.without {
        if !Kind::ALL.iter().any(|kind| kind.name() == name) {
            return Err(format!("--without {name}: there is no such proxy").into());
        }
    }
    let kinds: Vec<Kind> =
        Kind::ALL.into_iter().filter(|kind| !arguments.without.iter().any(|n| n == kind.name())).collect();
    let loads = if arguments.only.is_empty() { Load::value_variants() } else { &arguments.only };
    report::write(&bench.out.join("egress.json"), &compare::run(&bench, &kinds, loads)?)
}
