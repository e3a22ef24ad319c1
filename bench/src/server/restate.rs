//! Restate, one node, as it comes: a send to a durable handler. It verifies nothing. The handler does nothing, and few
//! of them run at a time, so that running handlers takes as little as possible from accepting.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use super::{Helper, Kind, Server, free_port, fresh, http, program, spawn, wait_ready};
use crate::Result;
use crate::hook::Target;
use crate::peers;

const HANDLER: &str = r#"import * as restate from "@restatedev/restate-sdk";

const bench = restate.service({ name: "bench", handlers: { hook: async (_context, _event) => {} } });
restate.serve({ services: [bench], port: Number(process.argv[2]) });
"#;

/// Three durable steps that do nothing but give 200 bytes.
const WORKFLOW: &str = r#"import * as restate from "@restatedev/restate-sdk";

// The SDK calls it, and node.js has it from 22 on.
Promise.withResolvers ??= function () {
  let resolve, reject;
  const promise = new this((a, b) => { resolve = a; reject = b; });
  return { promise, resolve, reject };
};
const text = "o".repeat(200);
const bench = restate.service({ name: "bench", handlers: { flow: async (context, _event) => {
  await context.run("reserve", () => ({ id: text }));
  await context.run("charge", () => ({ id: text }));
  await context.run("notify", () => ({ id: text }));
  return "done";
} } });
restate.serve({ services: [bench], port: Number(process.argv[2]) });
"#;

/// `modules` is the directory of npm that holds the server and the SDK.
pub fn start(modules: &Path, scratch: &Path) -> Result<Server> {
    start_with(modules, scratch, HANDLER, "/bench/hook/send", "[worker.invoker]\nconcurrent-invocations-limit = 8\n")
}

/// The same with a workflow of three steps, whose requests are answered when it is over; as many handlers at a time as
/// Restate itself sees fit.
pub fn start_workflow(modules: &Path, scratch: &Path) -> Result<Server> {
    start_with(modules, scratch, WORKFLOW, "/bench/flow", "")
}

fn start_with(modules: &Path, scratch: &Path, handler: &str, path: &str, settings: &str) -> Result<Server> {
    let data = fresh(scratch, "restate")?;
    let (ingress, admin, fabric, service) = (free_port()?, free_port()?, free_port()?, free_port()?);
    // ES modules are looked for beside the script.
    fs::write(modules.join("handler.mjs"), handler)?;
    let node = Helper(spawn(
        program("node").arg("handler.mjs").arg(service.port().to_string()).current_dir(modules),
        &data.join("handler.log"),
    )?);
    fs::write(
        data.join("restate.toml"),
        format!(
            "disable-telemetry = true\nlisten-mode = \"tcp\"\nbind-address = \"{fabric}\"\n\
             [ingress]\nbind-address = \"{ingress}\"\n[admin]\nbind-address = \"{admin}\"\ndisable-web-ui = true\n{settings}"
        ),
    )?;
    let log = data.join("output.log");
    let mut child = spawn(
        program(binary(modules))
            .arg("--config-file")
            .arg(data.join("restate.toml"))
            .arg("--base-dir")
            .arg(data.join("base"))
            .args(["--node-name", "bench", "--no-logo"])
            .current_dir(&data),
        &log,
    )?;
    let ready_after = wait_ready(&mut child, admin, "/health", &log)?;
    let server = Server {
        kind: Kind::Restate,
        address: ingress,
        targets: vec![Target { path: path.into(), secret: "unused".into() }],
        data,
        ready_after,
        child,
        helpers: vec![node],
    };
    register(&server, path, admin, service.port())?;
    Ok(server)
}

/// What was fetched, for the report.
pub fn version(modules: &Path) -> String {
    peers::version(&mut Command::new(binary(modules)))
}

fn binary(modules: &Path) -> PathBuf {
    modules.join("node_modules/@restatedev").join(package()).join("bin/restate-server")
}

fn package() -> &'static str {
    if cfg!(target_arch = "aarch64") { "restate-server-linux-arm64" } else { "restate-server-linux-x64" }
}

fn register(server: &Server, path: &str, admin: std::net::SocketAddr, port: u16) -> Result<()> {
    let end = Instant::now() + Duration::from_mins(1);
    let mut last = String::from("nobody answered");
    // The node takes part in its own cluster a moment after it is healthy, and node.js needs one to listen.
    while Instant::now() < end {
        match http(admin, "POST", "/deployments", &format!("{{\"uri\":\"http://127.0.0.1:{port}\"}}")) {
            Ok((200..300, _)) => match http(server.address, "POST", path, "{}") {
                Ok((200..300, _)) => return Ok(()),
                Ok((status, body)) => last = format!("send: {status} {body}"),
                Err(error) => last = error.to_string(),
            },
            Ok((status, body)) => last = format!("deployments: {status} {body}"),
            Err(error) => last = error.to_string(),
        }
        std::thread::sleep(Duration::from_millis(200));
    }
    Err(format!("restate takes no handler: {last}; see {}", server.data.display()).into())
}
