//! Ingress under load: the appliance beside a bare responder and its peers, with many endpoints, with a long history.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::Result;
use crate::hook::Ring;
use crate::load::{self, Outcome, Pace, Plan};
use crate::process;
use crate::report::{Edges, Row};
use crate::server::tidegate::{Appliance, Shape};
use crate::server::{Kind, Server};
use crate::syncs;

pub mod compare;
pub mod endpoints;
pub mod history;

/// What all parts of a run share.
#[derive(Debug, Clone)]
pub struct Bench {
    /// Measured time of one load.
    pub seconds: u64,
    /// How often everything is measured; the median is told.
    pub rounds: usize,
    /// Threads of the servers that let them be chosen.
    pub server_threads: usize,
    pub load_threads: usize,
    pub tidegate: PathBuf,
    pub responder: PathBuf,
    /// Servers keep their data here, on the disk that is measured.
    pub scratch: PathBuf,
    /// What was fetched is kept here.
    pub peers: PathBuf,
    pub out: PathBuf,
}

/// GitHub's usual delivery.
const BODY_BYTES: usize = 1_024;

/// Distinct signed requests; a peer that looks at bodies sees no repetition within any cache of its own.
const RING: usize = 10_000;

const WARM_UP: Duration = Duration::from_secs(2);

/// Time for counting syncs under strace.
const TRACED: Duration = Duration::from_secs(3);

impl Bench {
    fn appliance(&self, shape: Shape) -> Appliance {
        Appliance { binary: self.tidegate.clone(), threads: self.server_threads, shape }
    }

    fn measured(&self) -> Duration {
        Duration::from_secs(self.seconds)
    }

    fn plan(&self, server: &Server, connections: usize, pace: Pace) -> Plan {
        // One request for each endpoint at least.
        let ring =
            Ring::signed(RING.max(server.targets.len()), &server.targets, &server.address.to_string(), BODY_BYTES);
        Plan {
            target: server.address,
            connections,
            threads: self.load_threads,
            pace,
            warm_up: WARM_UP,
            measured: self.measured(),
            requests: Arc::new(ring),
            tls: None,
        }
    }

    /// Runs one load against a server.
    fn measure(&self, server: &mut Server, load: &str, plan: &Plan) -> Result<(Row, Outcome)> {
        eprintln!("{}: {load}, {} connections, {} s …", server.kind.label(), plan.connections, self.seconds);
        let pid = server.pid();
        let mut edges = Edges { disk_before: process::disk_bytes(&server.data), ..Edges::default() };
        let mut seen = Vec::with_capacity(2);
        let outcome = load::run(plan, || seen.push(process::usage(pid)))?;
        server.check()?;
        outcome.check(server.kind.label())?;
        let mut seen = seen.into_iter();
        edges.before = seen.next().ok_or("the first edge was not read")??;
        edges.after = seen.next().ok_or("the second edge was not read")??;
        edges.disk_after = process::disk_bytes(&server.data);
        edges.memory = process::memory(pid)?;
        Ok((Row::new(server.kind, load, plan.connections, &outcome, &edges), outcome))
    }

    /// Counts the syncs of a server while it is loaded as `plan` says.
    fn trace(&self, server: &Server, plan: &Plan, row: &mut Row) -> Result<()> {
        let plan = Plan { warm_up: TRACED, measured: TRACED, ..plan.clone() };
        let (pid, scratch) = (server.pid(), self.scratch.clone());
        let tracer = std::thread::spawn(move || {
            // The load's warm-up: strace is attached when the measured time begins.
            std::thread::sleep(TRACED);
            syncs::count(pid, TRACED, &scratch)
        });
        let outcome = load::run(&plan, || {})?;
        if let Some(counted) = tracer.join().map_err(|_| "the tracer panicked")?? {
            row.add_syncs(counted, outcome.per_second());
        }
        Ok(())
    }
}

/// Free bytes of the file system that holds `path`.
fn free_bytes(path: &Path) -> Result<u64> {
    let stat = rustix::fs::statvfs(path)?;
    Ok(stat.f_bavail * stat.f_frsize)
}

/// The servers of a comparison, by name.
pub fn kinds(without: &[String]) -> Vec<Kind> {
    let all = [(Kind::Bare, "bare"), (Kind::Tidegate, "tidegate"), (Kind::Restate, "restate"), (Kind::Qhook, "qhook")];
    all.into_iter().filter(|(_, name)| !without.iter().any(|other| other == name)).map(|(kind, _)| kind).collect()
}
