//! What an operation costs Redis, in its own processor time, network included: a full acquire of one, two and three
//! levels beside what limiters without leases do for each call. The two are compared per operation here; how many
//! operations a call needs is measured in `steady`.

use std::time::Duration;

use ratelimit::quota::redis::RedisCentre;
use ratelimit::quota::{
    Acquire, Answer, Application, Body, CAP_MAX, Centre, Class, Denial, HolderId, Kind, Leg, Lessee, Level, Metered,
    Op, Tally,
};
use redis::aio::MultiplexedConnection;
use serde::Serialize;

use super::counted::Counted;
use super::redis_server::Server;
use super::things::{SHARE, application, metered, name, rule};
use crate::Result;

/// Operations of one asker in one measurement.
pub const ASKS: usize = 1_000;
/// Askers at a time: one waits for each answer, many share the work of the network.
const ASKERS: [usize; 2] = [1, 16];
const HOUR_MS: u64 = 3_600_000;

/// One operation.
#[derive(Debug, Clone, Serialize)]
pub struct Row {
    pub what: String,
    pub levels: usize,
    pub askers: usize,
    /// Processor µs of the server for each.
    pub cpu_us: f64,
    /// Of these, within the command itself, as the server says: without reading and answering. None of pipelines.
    pub command_us: Option<f64>,
    /// The smallest and the largest of all rounds.
    pub least_us: f64,
    pub most_us: f64,
}

#[derive(Debug, Clone)]
enum What {
    Counted(Counted, &'static str),
    /// Legs of one application, and whether a source address is asked after it.
    Acquire {
        legs: Vec<(Level, Kind)>,
        has_source: bool,
        label: &'static str,
    },
}

impl What {
    fn label(&self) -> &'static str {
        match self {
            Self::Counted(_, label) | Self::Acquire { label, .. } => label,
        }
    }

    /// The command that the server counts it under.
    fn command(&self) -> &'static str {
        match self {
            Self::Counted(Counted::Incrby, _) => "incrby",
            Self::Counted(Counted::Gcra { .. }, _) => "evalsha",
            Self::Acquire { .. } => "fcall",
        }
    }
}

fn kinds() -> [(Kind, &'static str); 4] {
    [
        (Kind::Fixed { window_ms: HOUR_MS, offset_ms: 0 }, "acquire: fixed window"),
        (Kind::Sliding { window_ms: 10_000, slots: 10 }, "acquire: sliding window"),
        (Kind::Bucket { window_ms: 60_000, burst: 1_000_000 }, "acquire: token bucket"),
        (Kind::Concurrency, "acquire: concurrency"),
    ]
}

/// What is measured, with the number of levels.
fn all(gcra: &Counted) -> Vec<(What, usize)> {
    let [fixed, sliding, ..] = kinds().map(|(kind, _)| kind);
    let legs = [(Level::Connection, fixed), (Level::App, fixed), (Level::Region, sliding)];
    let acquire = |legs: &[(Level, Kind)], has_source, label| What::Acquire { legs: legs.to_vec(), has_source, label };
    let mut all: Vec<_> =
        kinds().into_iter().map(|(kind, label)| (acquire(&[(Level::Connection, kind)], false, label), 1)).collect();
    all.push((acquire(&[(Level::App, fixed)], false, "acquire: fixed window, shared by tenants"), 1));
    all.push((acquire(&legs[..2], false, "acquire"), 2));
    all.push((acquire(&legs, false, "acquire"), 3));
    all.push((acquire(&legs[..2], true, "acquire, and a source address"), 3));
    for levels in 1..=3 {
        all.push((What::Counted(Counted::Incrby, "INCRBY"), levels));
        all.push((What::Counted(gcra.clone(), "GCRA script"), levels));
    }
    all
}

pub(super) async fn measure(server: &Server, rounds: usize, asks: usize) -> Result<Vec<Row>> {
    let mut connection = server.connection().await?;
    let gcra = Counted::gcra(&mut connection).await?;
    let all = all(&gcra);
    let mut seen: Vec<Vec<(f64, f64)>> = vec![Vec::new(); all.len() * ASKERS.len()];
    // All of them in each round, so that what the machine does meanwhile meets all alike.
    for round in 0..rounds {
        for (at, (what, levels)) in all.iter().enumerate() {
            for (of, askers) in ASKERS.into_iter().enumerate() {
                let run = Run { server, what, levels: *levels, askers, asks, round };
                seen[at * ASKERS.len() + of].push(run.measure().await?);
            }
        }
    }
    let mut rows = Vec::new();
    for (at, (what, levels)) in all.iter().enumerate() {
        for (of, askers) in ASKERS.into_iter().enumerate() {
            let seen = &mut seen[at * ASKERS.len() + of];
            seen.sort_by(|a, b| a.0.total_cmp(&b.0));
            let (cpu_us, command_us) = seen[seen.len() / 2];
            let is_pipelined = matches!(what, What::Counted(Counted::Incrby, _)) && *levels > 1;
            rows.push(Row {
                what: what.label().into(),
                levels: *levels,
                askers,
                cpu_us,
                command_us: (!is_pipelined).then_some(command_us),
                least_us: seen[0].0,
                most_us: seen[seen.len() - 1].0,
            });
        }
    }
    Ok(rows)
}

struct Run<'a> {
    server: &'a Server,
    what: &'a What,
    levels: usize,
    askers: usize,
    asks: usize,
    round: usize,
}

impl Run<'_> {
    /// Processor µs of each operation, and those within the command.
    async fn measure(&self) -> Result<(f64, f64)> {
        let mut look = self.server.look().await?;
        let mut askers = Vec::new();
        for number in 0..self.askers {
            askers.push(self.asker(number).await?);
        }
        let before = (look.cpu_us().await?, look.command(self.what.command()).await?);
        let mut tasks = tokio::task::JoinSet::new();
        for asker in askers {
            let asks = self.asks;
            tasks.spawn(asker.run(asks));
        }
        while let Some(ended) = tasks.join_next().await {
            ended??;
        }
        let after = (look.cpu_us().await?, look.command(self.what.command()).await?);
        let count = (self.askers * self.asks) as f64;
        Ok(((after.0 - before.0) / count, (after.1.1 - before.1.1) / count))
    }

    async fn asker(&self, number: usize) -> Result<Asker> {
        let of = format!("acquire-{}-{}-{}", self.round, self.askers, self.levels);
        match self.what {
            What::Counted(counted, label) => {
                Ok(Asker::Counted {
                    counted: counted.clone(),
                    connection: self.server.connection().await?,
                    keys: (0..self.levels)
                        // The connection's own, the application's, the region's.
                        .map(|level| {
                            if level == 0 { format!("{label}:{of}:{number}") } else { format!("{label}:{of}:-{level}") }
                        })
                        .collect(),
                })
            }
            What::Acquire { legs, has_source, label } => {
                let centre = self.server.centre()?;
                // Letters and digits of the label: each kind of acquire has buckets of its own.
                let plain: String = label.chars().filter(char::is_ascii_alphanumeric).collect();
                let app = application(&format!("{of}-{plain}"));
                let mut parts = vec![Part::new(app, number, legs)];
                if *has_source {
                    let legs = [(Level::Source, Kind::Fixed { window_ms: HOUR_MS, offset_ms: 0 })];
                    parts.push(Part::new(application(&format!("{of}-src-192.0.2.1")), number, &legs));
                }
                for part in &mut parts {
                    part.begin(&centre).await?;
                }
                Ok(Asker::Leases { centre, parts })
            }
        }
    }
}

enum Asker {
    Counted { counted: Counted, connection: MultiplexedConnection, keys: Vec<String> },
    Leases { centre: RedisCentre, parts: Vec<Part> },
}

impl Asker {
    async fn run(self, asks: usize) -> Result<()> {
        match self {
            Self::Counted { counted, mut connection, keys } => {
                for _ in 0..asks {
                    counted.call(&mut connection, &keys).await?;
                }
            }
            Self::Leases { centre, mut parts } => {
                for _ in 0..asks {
                    for part in &mut parts {
                        part.acquire(&centre).await?;
                    }
                }
            }
        }
        Ok(())
    }
}

/// What a holder remembers of its leases of one application: all of it is told again with each acquire.
struct Part {
    application: Application,
    lessee: Lessee,
    seq: u64,
    legs: Vec<(Metered, Tally, u64)>,
}

impl Part {
    fn new(application: Application, number: usize, legs: &[(Level, Kind)]) -> Self {
        let leg = |&(level, kind): &(Level, Kind)| {
            let scope = match level {
                Level::Connection => format!("con-{number}"),
                Level::App => "-".into(),
                Level::Region | Level::Source => "one".into(),
            };
            // So much that tenants together want far less than there is: else it is shares that are measured.
            let cap = if matches!(kind, Kind::Bucket { .. }) { 1_000_000 } else { CAP_MAX };
            (metered(level, &scope, &rule(kind, cap, 1_000, 50)), Tally::default(), 0)
        };
        let lessee = Lessee { holder: HolderId(1), tenant: name(&format!("tenant-{number}")) };
        Self { application, lessee, seq: 0, legs: legs.iter().map(leg).collect() }
    }

    async fn begin(&mut self, centre: &RedisCentre) -> Result<()> {
        self.seq += 1;
        let op = self.next();
        let answer = until_granted(centre, &op).await?;
        self.heard(&answer)
    }

    /// The next acquire: a block is used up, and another one is wanted. At the end of a window nothing is granted for a
    /// moment.
    async fn acquire(&mut self, centre: &RedisCentre) -> Result<()> {
        loop {
            self.seq += 1;
            let answer = centre.ask(&self.next()).await?.answer;
            let Answer::Denied { why: Denial::Guard, retry_ms, .. } = answer else { return self.heard(&answer) };
            tokio::time::sleep(Duration::from_millis(retry_ms)).await;
        }
    }

    fn next(&self) -> Op {
        let leg = |(bucket, tally, heard): &(Metered, Tally, u64)| Leg {
            bucket: bucket.clone(),
            seq: self.seq,
            least: 1,
            want: 20,
            unspent: 0,
            demand_milli: 20_000,
            tally: *tally,
            heard: *heard,
        };
        let legs = self.legs.iter().map(leg).collect();
        let acquire = Acquire { lessee: self.lessee.clone(), class: Class::Interactive, share: SHARE, legs };
        Op { application: self.application.clone(), body: Body::Acquire(acquire) }
    }

    fn heard(&mut self, answer: &Answer) -> Result<()> {
        let Answer::Granted(leases) = answer else { return Err(format!("not granted: {answer:?}").into()) };
        for ((_, tally, heard), lease) in self.legs.iter_mut().zip(leases) {
            (*tally, *heard) = (lease.tally, lease.generation);
        }
        Ok(())
    }
}

/// Asks until it is granted: a server that has just begun grants nothing for the time of a lease, and the first
/// connection takes its time.
pub(super) async fn until_granted(centre: &RedisCentre, op: &Op) -> Result<Answer> {
    let mut last = None;
    for _ in 0..1_200 {
        match centre.ask(op).await {
            Ok(reply) if matches!(reply.answer, Answer::Granted(_)) => return Ok(reply.answer),
            other => last = Some(other),
        }
        tokio::time::sleep(Duration::from_millis(25)).await;
    }
    Err(format!("nothing is granted: {last:?}").into())
}

pub(super) fn print(rows: &[Row]) {
    println!("\nprocessor µs of Redis for each operation, network included");
    println!(
        "{:<42} {:>6} {:>7} {:>8} {:>8} {:>8} {:>9}",
        "operation", "levels", "askers", "CPU µs", "least", "most", "command"
    );
    for row in rows {
        let command = row.command_us.map_or_else(|| "-".into(), |us| format!("{us:.1}"));
        println!(
            "{:<42} {:>6} {:>7} {:>8.1} {:>8.1} {:>8.1} {command:>9}",
            row.what, row.levels, row.askers, row.cpu_us, row.least_us, row.most_us
        );
    }
}
