//! `HAProxy` as Debian has it. It is no forward proxy: requests and governed calls go to one origin that stands in its
//! configuration, whatever they name, and instead of CONNECT there is a TCP frontend for one host of tunnels. So it decides
//! nothing, resolves nothing and writes no line per call: it is printed beside the others, and nothing is judged by it.

use std::fs;
use std::path::Path;
use std::process::Command;

use super::{Fixed, Governed, Kind, Proxy, listens, wait_until};
use crate::egress::names::{API, CONNECTION, CREDENTIAL, Places, address_of};
use crate::server::{free_port, fresh, program, spawn};
use crate::{Result, peers};

pub const BINARY: &str = "/usr/sbin/haproxy";

pub fn start(scratch: &Path, places: &Places, threads: usize) -> Result<Proxy> {
    let data = fresh(scratch, "haproxy")?;
    let (plain, governed, greeting, bulk) = (free_port()?, free_port()?, free_port()?, free_port()?);
    let origin = address_of(0);
    let roots = places.roots.display();
    // Two files for each connection, and some of its own.
    let connections = (crate::egress::files_max() - 200) / 2;
    let Places { plain: plain_port, tls, greeting: greeting_port, bulk: bulk_port, .. } = places;
    fs::write(
        data.join("haproxy.cfg"),
        format!(
            "global\n  nbthread {threads}\n  maxconn {connections}\n\
             defaults\n  mode http\n  timeout connect 5s\n  timeout client 300s\n  timeout server 300s\n  http-reuse always\n\
             frontend plain\n  bind {plain}\n  default_backend plain\n\
             backend plain\n  server origin {origin}:{plain_port}\n\
             frontend governed\n  bind {governed}\n\
             \x20 http-request replace-path /c/{CONNECTION}/(.*) /\\1\n\
             \x20 http-request set-header authorization \"Bearer {CREDENTIAL}\"\n\
             \x20 http-request set-header host {API}:{tls}\n\
             \x20 default_backend tls\n\
             backend tls\n\
             \x20 server origin {origin}:{tls} ssl verify required ca-file {roots} sni str({API}) verifyhost {API}\n\
             listen greeting\n  mode tcp\n  bind {greeting}\n  server origin {origin}:{greeting_port}\n\
             listen bulk\n  mode tcp\n  bind {bulk}\n  server origin {origin}:{bulk_port}\n",
        ),
    )?;
    let log = data.join("output.log");
    let mut child = spawn(program(BINARY).arg("-db").arg("-f").arg(data.join("haproxy.cfg")), &log)?;
    wait_until(&mut child, &log, || listens(bulk))?;
    Ok(Proxy {
        kind: Kind::Haproxy,
        data,
        proxy: plain,
        governed: (governed, Governed::Path),
        fixed: Some(Fixed { greeting, bulk }),
        grant: None,
        metrics: None,
        child,
        home: None,
    })
}

pub fn version() -> String {
    peers::version_by(&mut Command::new(BINARY), "-v")
}
