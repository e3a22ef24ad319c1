//! Squid as Debian has it, one worker per thread, without a cache. An allow rule by zone, a line in its access log for each
//! call. Left out, in its favour: nobody is asked who they are, addresses are not vetted, and names are in a hosts file of
//! its own since it asks DNS on port 53 only. Governed calls are `https://` in absolute-form, to which it adds the
//! credential; this build speaks TLS 1.2 and not 1.3 to origins (with 1.3 it fails to read their answers).

use std::fmt::Write as _;
use std::fs;
use std::net::IpAddr;
use std::path::Path;
use std::process::Command;

use super::{Governed, Kind, Proxy, listens, wait_until};
use crate::egress::names::{API, CREDENTIAL, Places, TUNNEL_HOSTS, ZONE, address_of, tunnel_host};
use crate::server::{free_port, fresh, program, spawn};
use crate::{Result, peers};

pub const BINARY: &str = "/usr/sbin/squid";

pub fn start(scratch: &Path, places: &Places, threads: usize) -> Result<Proxy> {
    // Started as root, it works as another user, who may not reach what is ours.
    let is_root = rustix::process::geteuid().is_root();
    let home = is_root.then(|| tempfile::Builder::new().prefix("bench-squid-").tempdir()).transpose()?;
    let data = match &home {
        Some(home) => home.path().to_owned(),
        None => fresh(scratch, "squid")?,
    };
    if is_root {
        said_ok(Command::new("chown").arg("proxy").arg(&data))?;
    }
    let address = free_port()?;
    fs::write(data.join("hosts"), hosts())?;
    fs::copy(&places.roots, data.join("roots.pem"))?;
    let ports = places.ports().map(|port| port.to_string()).join(" ");
    let place = data.display();
    fs::write(
        data.join("squid.conf"),
        format!(
            "http_port {address}\nworkers {threads}\nvisible_hostname bench\npid_filename {place}/squid.pid\n\
             cache_log {place}/cache.log\naccess_log stdio:{place}/access.log\ncoredump_dir {place}\n\
             hosts_file {place}/hosts\ncache deny all\ncache_mem 0 MB\npinger_enable off\nshutdown_lifetime 1 second\n\
             max_filedescriptors {}\n\
             acl allowed dstdomain .{ZONE}\nacl ports port {ports}\nacl over_tls proto HTTPS\n\
             http_access allow allowed ports\nhttp_access deny all\n\
             tls_outgoing_options cafile={place}/roots.pem options=NORMAL:-VERS-TLS1.3\n\
             request_header_add Authorization \"Bearer {CREDENTIAL}\" over_tls\n",
            crate::egress::files_max(),
        ),
    )?;
    let log = data.join("output.log");
    let mut command = program(BINARY);
    // The name keeps its workers' shared memory apart from that of another Squid on the machine.
    command.args(["--foreground", "-n", &format!("bench{}", std::process::id()), "-f"]).arg(data.join("squid.conf"));
    let mut child = spawn(&mut command, &log)?;
    wait_until(&mut child, &log, || listens(address))?;
    Ok(Proxy {
        kind: Kind::Squid,
        data,
        proxy: address,
        governed: (address, Governed::Absolute),
        fixed: None,
        grant: None,
        metrics: None,
        child,
        home,
    })
}

pub fn version() -> String {
    peers::version(&mut Command::new(BINARY))
}

fn hosts() -> String {
    let line = |text: &mut String, address: IpAddr, name: &str| _ = writeln!(text, "{address} {name}");
    let mut text = String::new();
    line(&mut text, address_of(0), API);
    (0..TUNNEL_HOSTS).for_each(|host| line(&mut text, address_of(host), &tunnel_host(host)));
    text
}

fn said_ok(command: &mut Command) -> Result<()> {
    let status = command.status()?;
    if status.success() { Ok(()) } else { Err(format!("{command:?}: {status}").into()) }
}
