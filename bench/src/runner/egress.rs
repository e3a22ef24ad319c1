//! End to end: the appliance with gateway, way out and runner in one process, signed deliveries, and calls that go through
//! the way out to a provider over TLS, in a process of its own. More deliveries than runs can be performed, so that there
//! is a backlog; what is told is how quickly steps are performed while deliveries come, and from the backlog alone when
//! they have ended. Then as many deliveries as make the steps a second that are asked for, and half of what it can.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::noop::STEPS;
use crate::egress::names::{API, CONNECTION, CREDENTIAL, Places, ZONE};
use crate::egress::proxies::tidegate::{keygen, said};
use crate::egress::{Origin, raise_files};
use crate::hook::{Ring, Target};
use crate::load::{self, Pace, Plan};
use crate::server::{Helper, free_port, fresh, http, program, spawn, wait_ready};
use crate::{Result, process};

/// Deliveries a second of the first load: more than there can be runs.
const OVER: f64 = 3_000.0;
/// Deliveries a second whose steps are what is asked for, and a little more.
const ASKED: f64 = 1_010.0;
const BODY_BYTES: usize = 512;
const SECRET: &str = "secret-of-the-bench";
const PATIENCE: Duration = Duration::from_mins(3);

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Row {
    pub load: String,
    pub deliveries_per_second: f64,
    pub ack_p99_ms: f64,
    pub steps_per_second: f64,
    /// Of the appliance, deliveries included.
    pub cpu_us_per_step: f64,
    pub cpus: f64,
    /// Runs that were admitted and not over, or events that waited, at the end.
    pub backlog: u64,
    /// Runs that ended otherwise than well.
    pub failed: u64,
}

struct Node {
    child: Helper,
    admin: std::net::SocketAddr,
    gateway: std::net::SocketAddr,
}

pub fn measure(scratch: &Path, tidegate: &Path, seconds: u64) -> Result<Vec<Row>> {
    raise_files()?;
    let origin = Origin::start(&std::env::current_exe()?.with_file_name("bench-egress"), scratch, 1)?;
    let node = start(tidegate, scratch, &origin.places)?;
    let target = Target { path: "/hooks/wh_bench".into(), secret: SECRET.into() };
    let ring = Arc::new(Ring::signed(10_000, &[target], &node.gateway.to_string(), BODY_BYTES));
    let deliver = |per_second: f64| Plan {
        target: node.gateway,
        connections: 64,
        threads: 1,
        pace: Pace::Open { per_second },
        warm_up: Duration::from_secs(2),
        measured: Duration::from_secs(seconds),
        requests: Arc::<Ring>::clone(&ring),
        tls: None,
    };
    let mut rows = vec![node.under(&deliver(OVER), "over")?];
    rows.push(node.backlog(Duration::from_secs(seconds))?);
    node.idle()?;
    rows.push(node.under(&deliver(ASKED), "asked")?);
    node.idle()?;
    rows.push(node.under(&deliver(rows[1].steps_per_second / STEPS as f64 / 2.0), "half")?);
    node.idle()?;
    Ok(rows)
}

/// Counters at one moment.
#[derive(Debug, Clone, Copy)]
struct Seen {
    at: Instant,
    cpu: f64,
    attempts: f64,
    admitted: f64,
    succeeded: f64,
    ended: f64,
    events: f64,
    waiting: f64,
}

impl Row {
    fn of(load: &str, before: Seen, after: Seen) -> Result<Self> {
        let (seconds, steps) = ((after.at - before.at).as_secs_f64(), after.attempts - before.attempts);
        if steps <= 0.0 {
            return Err("no step was performed".into());
        }
        Ok(Self {
            load: load.into(),
            deliveries_per_second: 0.0,
            ack_p99_ms: 0.0,
            steps_per_second: steps / seconds,
            cpu_us_per_step: (after.cpu - before.cpu) * 1e6 / steps,
            cpus: (after.cpu - before.cpu) / seconds,
            backlog: (after.admitted - after.ended + after.waiting) as u64,
            failed: (after.ended - after.succeeded) as u64,
        })
    }
}

impl Node {
    fn seen(&self) -> Result<Seen> {
        let (_, text) = http(self.admin, "GET", "/metrics", "")?;
        let sum = |name: &str, label: &str| {
            let of_it = text.lines().filter(|line| {
                line.strip_prefix(name).is_some_and(|rest| rest.starts_with([' ', '{'])) && line.contains(label)
            });
            of_it.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum::<f64>()
        };
        Ok(Seen {
            at: Instant::now(),
            cpu: process::usage(self.child.0.id())?.cpu_seconds,
            attempts: sum("tidegate_runner_attempts_total", ""),
            admitted: sum("tidegate_runner_admitted_total", ""),
            succeeded: sum("tidegate_runner_ended_total", "succeeded"),
            ended: sum("tidegate_runner_ended_total", ""),
            events: sum("tidegate_runner_admission_events_total", ""),
            waiting: sum("tidegate_runner_admission_waiting", ""),
        })
    }

    fn under(&self, plan: &Plan, load: &str) -> Result<Row> {
        eprintln!("end to end: {load}, {:?} …", plan.pace);
        let mut edges = Vec::with_capacity(2);
        let outcome = load::run(plan, || edges.push(self.seen()))?;
        outcome.check("deliveries")?;
        let mut edges = edges.into_iter();
        let mut edge = || edges.next().ok_or("an edge was not seen")?;
        let (before, after) = (edge()?, edge()?);
        let row = Row::of(load, before, after)?;
        Ok(Row { deliveries_per_second: outcome.per_second(), ack_p99_ms: outcome.latency_ms(0.99), ..row })
    }

    /// Without deliveries, for as long as there is a backlog, and no longer than this.
    fn backlog(&self, measured: Duration) -> Result<Row> {
        let before = self.seen()?;
        while before.at.elapsed() < measured {
            std::thread::sleep(Duration::from_millis(200));
            let now = self.seen()?;
            // The last ones do not fill the slots.
            if now.admitted - now.ended + now.waiting < 1_000.0 {
                break;
            }
        }
        Row::of("backlog", before, self.seen()?)
    }

    /// Waits until every run is over.
    fn idle(&self) -> Result<()> {
        let end = Instant::now() + PATIENCE;
        loop {
            let now = self.seen()?;
            if now.events > 0.0 && now.waiting == 0.0 && (now.admitted - now.ended) == 0.0 {
                return Ok(());
            }
            if Instant::now() > end {
                return Err(format!("runs are not over: {now:?}").into());
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

fn start(binary: &Path, scratch: &Path, places: &Places) -> Result<Node> {
    let data = fresh(scratch, "runner-egress")?;
    let (gateway, egress, api, admin) = (free_port()?, free_port()?, free_port()?, free_port()?);
    let issuer = keygen(binary, &data.join("grant.key.pem"))?;
    let ports = places.ports().map(|port| port.to_string()).join(", ");
    let config = data.join("tidegate.toml");
    fs::write(
        &config,
        format!(
            "[gateway]\nlisten = [\"{gateway}\"]\npublic_url = \"http://{gateway}\"\n\n[log]\ndirectory = \"log\"\n\n\
             [admin]\nlisten = \"{admin}\"\nsocket = \"tidegate.sock\"\n\n\
             [tenants]\ndirectory = \"tenants\"\nstate_directory = \"state\"\n\n\
             [egress]\nlisten = [\"{egress}\"]\nconnect_ports = [{ports}]\nports = [{ports}]\n\n\
             [egress.dns]\nservers = [\"{}\"]\n\n[quota.runaway]\nplan_per_minute = 10000000\n\n\
             [egress.limits]\ncalls_per_tenant_max = 32768\ncalls_per_caller_max = 32768\n\n\
             [[egress.opening]]\nhost = \"*.{ZONE}\"\nnetworks = [\"127.0.0.0/8\"]\nports = [{ports}]\ntenant = \"acme\"\n\n\
             [runner]\n\n[runner.api]\nlisten = [\"{api}\"]\n\n{issuer}",
            places.dns,
        ),
    )?;
    write_tenant(&data, places)?;
    let log = data.join("output.log");
    let mut child = spawn(program(binary).args(["run", "--config"]).arg(&config).current_dir(&data), &log)?;
    wait_ready(&mut child, admin, "/readyz", &log)?;
    let node = Node { child: Helper(child), admin, gateway };
    put_automation(binary, &config, &data)?;
    Ok(node)
}

fn write_tenant(data: &Path, places: &Places) -> Result<()> {
    let secrets = data.join("tenants/acme.secrets");
    fs::create_dir_all(&secrets)?;
    fs::write(
        data.join("tenants/acme.toml"),
        format!(
            "tenant = \"acme\"\n\n[[endpoint]]\nid = \"wh_bench\"\nscheme = \"github\"\n\
             secrets = [{{ value = \"secret:github\" }}]\n\n[egress]\nallow = [\"*.{ZONE}\"]\n\n\
             [[connection]]\nid = \"{CONNECTION}\"\nconnector = \"http\"\nbase_url = \"https://{API}:{}\"\n\
             credential = \"cred\"\nroots = \"secret:roots\"\n\n\
             [[credential]]\nid = \"cred\"\nkind = \"bearer\"\nvalue = \"secret:credential\"\n",
            places.tls,
        ),
    )?;
    let roots = fs::read_to_string(&places.roots)?;
    for (name, value) in [("github", SECRET), ("roots", roots.as_str()), ("credential", CREDENTIAL)] {
        let path = secrets.join(name);
        fs::write(&path, value)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600))?;
    }
    Ok(())
}

/// Three calls without a body, which the origin of egress answers with a KiB.
fn put_automation(binary: &Path, config: &Path, data: &Path) -> Result<()> {
    let nodes = ["reserve", "charge", "notify"].map(|id| {
        format!(
            "{{\"id\":\"{id}\",\"type\":\"http.request\",\"credential\":\"{CONNECTION}\",\"method\":\"GET\",\
             \"path\":\"/governed/{id}\"}}"
        )
    });
    let document: PathBuf = data.join("automation.json");
    fs::write(
        &document,
        format!("{{\"name\":\"bench\",\"trigger\":{{\"endpoint\":\"wh_bench\"}},\"nodes\":[{}]}}", nodes.join(",")),
    )?;
    let end = Instant::now() + Duration::from_secs(20);
    loop {
        // The ledger opens a moment behind the listeners.
        let mut put = Command::new(binary);
        put.args(["automations", "put", "--tenant", "acme", "--config"]).arg(config).arg(&document);
        match said(&mut put) {
            Ok(_) => return Ok(()),
            Err(error) if Instant::now() > end => return Err(error),
            Err(_) => std::thread::sleep(Duration::from_millis(100)),
        }
    }
}

pub(super) fn print(rows: &[Row]) {
    println!("\nend to end: signed deliveries, runs of {STEPS} calls, each through the way out to a provider over TLS");
    println!(
        "{:<8} {:>12} {:>10} {:>9} {:>8} {:>5} {:>9} {:>7}",
        "load", "deliveries/s", "ack p99 ms", "steps/s", "CPU µs", "CPUs", "backlog", "failed"
    );
    for row in rows {
        println!(
            "{:<8} {:>12.0} {:>10.1} {:>9.0} {:>8.0} {:>5.2} {:>9} {:>7}",
            row.load,
            row.deliveries_per_second,
            row.ack_p99_ms,
            row.steps_per_second,
            row.cpu_us_per_step,
            row.cpus,
            row.backlog,
            row.failed
        );
    }
}
