//! The appliance, with the configuration that a user writes: everything has its default but places and ports.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::{Kind, Server, free_port, fresh, program, spawn, wait_ready};
use crate::Result;
use crate::hook::Target;

/// How many tenants there are, and how many endpoints each of them has.
#[derive(Debug, Clone, Copy)]
pub struct Shape {
    pub tenants: usize,
    pub endpoints_each: usize,
}

impl Shape {
    pub const ONE: Self = Self { tenants: 1, endpoints_each: 1 };

    pub fn endpoints(self) -> usize {
        self.tenants * self.endpoints_each
    }
}

#[derive(Debug, Clone)]
pub struct Appliance {
    pub binary: PathBuf,
    pub threads: usize,
    pub shape: Shape,
}

impl Appliance {
    /// Writes configuration into an empty directory and starts on it.
    pub fn start(&self, scratch: &Path) -> Result<Server> {
        let data = fresh(scratch, "tidegate")?;
        write_tenants(&data.join("tenants"), self.shape, 0)?;
        self.start_on(&data)
    }

    /// Starts on a directory that has its tenants and perhaps a log.
    pub fn start_on(&self, data: &Path) -> Result<Server> {
        let (address, admin) = (free_port()?, free_port()?);
        // Text into a file: what a service under systemd writes. One line per accepted delivery is the default.
        fs::write(
            data.join("tidegate.toml"),
            format!(
                "[gateway]\nlisten = [\"{address}\"]\npublic_url = \"http://{address}\"\nthreads = {}\n\n\
                 [log]\ndirectory = \"log\"\n\n[admin]\nlisten = \"{admin}\"\nsocket = \"tidegate.sock\"\n\n\
                 [tenants]\ndirectory = \"tenants\"\nstate_directory = \"state\"\n",
                self.threads
            ),
        )?;
        let log = data.join("output.log");
        let mut child = spawn(
            program(&self.binary).args(["run", "--config"]).arg(data.join("tidegate.toml")).current_dir(data),
            &log,
        )?;
        let ready_after = wait_ready(&mut child, admin, "/readyz", &log)?;
        let targets = targets(self.shape);
        Ok(Server {
            kind: Kind::Tidegate,
            address,
            targets,
            data: data.to_owned(),
            ready_after,
            child,
            helpers: Vec::new(),
        })
    }
}

fn secret(tenant: usize) -> String {
    format!("secret-of-tenant-{tenant:08}")
}

fn endpoint(tenant: usize, n: usize) -> String {
    // As long as the ids that the appliance issues.
    format!("wh_{tenant:010}{n:010}")
}

fn targets(shape: Shape) -> Vec<Target> {
    (0..shape.tenants)
        .flat_map(|tenant| {
            (0..shape.endpoints_each)
                .map(move |n| Target { path: format!("/hooks/{}", endpoint(tenant, n)), secret: secret(tenant) })
        })
        .collect()
}

/// One file per tenant and one secret beside it. `generation` is all that differs between two writings.
pub fn write_tenants(directory: &Path, shape: Shape, generation: u32) -> Result<()> {
    fs::create_dir_all(directory)?;
    for tenant in 0..shape.tenants {
        let name = format!("t{tenant:08}");
        let mut file = format!("# generation {generation}\ntenant = \"{name}\"\n");
        for n in 0..shape.endpoints_each {
            file += "\n[[endpoint]]\nscheme = \"github\"\nsecrets = [{ value = \"secret:github\" }]\n";
            file.extend(["id = \"", &endpoint(tenant, n), "\"\n"]);
        }
        fs::write(directory.join(format!("{name}.toml")), file)?;
        let secrets = directory.join(format!("{name}.secrets"));
        fs::create_dir_all(&secrets)?;
        let path = secrets.join("github");
        fs::write(&path, secret(tenant))?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600))?;
    }
    // They would have been on the disk for long; the kernel would write them within what is measured.
    rustix::fs::syncfs(fs::File::open(directory)?)?;
    Ok(())
}
