//! The appliance, with everything on that it does: a grant verified on every request, a thousand rules to look through,
//! names resolved over DNS, every address vetted, opened by name since it is internal, a decision record of every call in
//! a log line and in the store. Bounds on calls are raised to hold ten thousand tunnels of one caller.

use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use super::{Governed, Kind, Proxy, wait_until};
use crate::Result;
use crate::egress::names::{API, CONNECTION, CREDENTIAL, Places, ZONE};
use crate::server::{free_port, fresh, http, program, spawn};

/// Rules that are about other places.
const OTHER_RULES: usize = 1_000;

pub fn start(binary: &Path, scratch: &Path, places: &Places, threads: usize) -> Result<Proxy> {
    let data = fresh(scratch, "tidegate-egress")?;
    let (listen, admin) = (free_port()?, free_port()?);
    let key = data.join("grant.key.pem");
    let issuer = keygen(binary, &key)?;
    let ports = places.ports().map(|port| port.to_string()).join(", ");
    let config = data.join("tidegate.toml");
    fs::write(
        &config,
        format!(
            "[gateway]\nenabled = false\npublic_url = \"http://{listen}\"\n\n[log]\ndirectory = \"log\"\n\n\
             [admin]\nlisten = \"{admin}\"\nsocket = \"tidegate.sock\"\n\n\
             [tenants]\ndirectory = \"tenants\"\nstate_directory = \"state\"\n\n\
             [egress]\nlisten = [\"{listen}\"]\nthreads = {threads}\n\
             connect_ports = [{ports}]\nports = [{ports}]\n\n\
             [egress.dns]\nservers = [\"{}\"]\n\n\
             [quota.runaway]\nplan_per_minute = 10000000\n\n\
             [egress.limits]\ncalls_per_tenant_max = 32768\ncalls_per_caller_max = 32768\n\n\
             [[egress.opening]]\nhost = \"*.{ZONE}\"\nnetworks = [\"127.0.0.0/8\"]\nports = [{ports}]\ntenant = \"acme\"\n\n\
             {issuer}",
            places.dns,
        ),
    )?;
    write_tenant(&data, places)?;
    let log = data.join("output.log");
    let mut child = spawn(program(binary).args(["run", "--config"]).arg(&config).current_dir(&data), &log)?;
    wait_until(&mut child, &log, || matches!(http(admin, "GET", "/readyz", ""), Ok((200..300, _))))?;
    let grant = grant(binary, &config)?;
    Ok(Proxy {
        kind: Kind::Tidegate,
        data,
        proxy: listen,
        governed: (listen, Governed::Path),
        fixed: None,
        grant: Some(grant),
        metrics: Some(admin),
        child,
        home: None,
    })
}

fn write_tenant(data: &Path, places: &Places) -> Result<()> {
    let mut rules = String::new();
    for n in 0..OTHER_RULES {
        writeln!(rules, "  \"api{n}.provider{}.example\",", n % 97)?;
    }
    let secrets = data.join("tenants/acme.secrets");
    fs::create_dir_all(&secrets)?;
    fs::write(
        data.join("tenants/acme.toml"),
        format!(
            "tenant = \"acme\"\n\n[egress]\nallow = [\n{rules}  \"*.{ZONE}\",\n]\n\n\
             [[connection]]\nid = \"{CONNECTION}\"\nconnector = \"http\"\nbase_url = \"https://{API}:{}\"\n\
             credential = \"cred\"\nroots = \"secret:roots\"\n\n\
             [[credential]]\nid = \"cred\"\nkind = \"bearer\"\nvalue = \"secret:credential\"\n",
            places.tls,
        ),
    )?;
    for (name, value) in [("roots", fs::read_to_string(&places.roots)?), ("credential", CREDENTIAL.into())] {
        let path = secrets.join(name);
        fs::write(&path, value)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600))?;
    }
    Ok(())
}

/// Makes a key, and what the appliance's file says of it.
pub(crate) fn keygen(binary: &Path, key: &Path) -> Result<String> {
    said(Command::new(binary).args(["grant", "keygen", "--out"]).arg(key))?;
    let public = key.with_extension("pub.pem");
    let text = said(Command::new("openssl").args(["pkey", "-pubout", "-in"]).arg(key))?;
    fs::write(&public, text)?;
    Ok(format!(
        "[[egress.issuer]]\nname = \"platform\"\nkeys = [\"file:{}\"]\ntenants = [\"acme\"]\nsigning_key = \"file:{}\"\n",
        public.display(),
        key.display()
    ))
}

/// A grant for a run, as long as one may count.
fn grant(binary: &Path, config: &Path) -> Result<String> {
    let mut command = Command::new(binary);
    command.args(["grant", "--tenant", "acme", "--ttl", "15m", "--run", "run_bench", "--config"]).arg(config);
    Ok(said(&mut command)?.trim().to_owned())
}

pub(crate) fn said(command: &mut Command) -> Result<String> {
    let output = command.output().map_err(|error| format!("{}: {error}", command.get_program().display()))?;
    if !output.status.success() {
        let why = String::from_utf8_lossy(&output.stderr).into_owned();
        return Err(format!("{command:?}: {}: {why}", output.status).into());
    }
    Ok(String::from_utf8(output.stdout)?)
}
