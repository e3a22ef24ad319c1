//! Finding the running appliance, and what it stands on, also while its file is faulty.
//!
//! Calls are switched off, grants taken back and events looked at in an incident, and then it must not matter that
//! somebody has just put a typing error into the file: the appliance runs on by what it read before. So where the file
//! is faulty, its socket is looked for where the file most likely means it to be, and believed only if the appliance
//! behind it says that it was started with this file.

use std::path::{Path, PathBuf};
use std::time::Duration;

use config::Places;
use domain::TenantId;
use tokio::time::timeout;

use super::Shell;
use super::events::source::{is_absent, shown, unanswered};
use super::exit::{Failure, Outcome};
use super::{block_on, settings};
use crate::control::client::{Client, ClientError};
use crate::control::wire::Stat;

/// What a command goes by.
pub(crate) enum Reach {
    /// The appliance that answers here.
    Node(PathBuf),
    /// Nobody answers: what is in this directory.
    Directory(PathBuf),
}

/// Where the file says that everything is, and the first of its faults.
struct Site {
    places: Places,
    fault: Option<Failure>,
}

impl Site {
    fn of(config: &Path) -> Self {
        match settings::appliance(config) {
            Ok(appliance) => Self { places: Places::of(&appliance), fault: None },
            Err(fault) => Self { places: config::appliance_places(config), fault: Some(fault) },
        }
    }
}

/// The control socket: named, or as the configuration has it.
pub(crate) fn socket(named: Option<&Path>, config: &Path, shell: &mut Shell<'_>) -> Outcome<PathBuf> {
    if let Some(path) = named {
        return Ok(path.to_owned());
    }
    let Site { places, fault } = Site::of(config);
    let Some(fault) = fault else { return first(places) };
    let found = seek(config, &places).map_err(|looked| nobody(&fault, &looked))?;
    Ok(asking(found, &fault, shell))
}

/// The running appliance; without one the directory, and a remark that says so.
pub(crate) fn reach(
    named: Option<&Path>,
    config: &Path,
    directory: impl Fn(&Places) -> Option<&PathBuf>,
    shell: &mut Shell<'_>,
) -> Outcome<Reach> {
    if let Some(path) = named {
        return Ok(Reach::Node(path.to_owned()));
    }
    let Site { places, fault } = Site::of(config);
    let directory = directory(&places).cloned();
    match (fault, directory) {
        (None, Some(directory)) => {
            let socket = first(places)?;
            if !is_absent(&socket) {
                return Ok(Reach::Node(socket));
            }
            shell.out.remark(format_args!("no appliance answers at {}; reading {}", shown(&socket), shown(&directory)));
            Ok(Reach::Directory(directory))
        }
        (None, None) => Ok(Reach::Node(first(places)?)),
        (Some(fault), directory) => match (seek(config, &places), directory) {
            (Ok(found), _) => Ok(Reach::Node(asking(found, &fault, shell))),
            (Err(_), Some(directory)) => {
                remark(&fault, format_args!("no appliance answers; reading {}", shown(&directory)), shell);
                Ok(Reach::Directory(directory))
            }
            (Err(looked), None) => Err(nobody(&fault, &looked)),
        },
    }
}

/// The state directory, to write to: the one of the appliance whose socket is named, else as the configuration has it.
pub(crate) fn state_directory(named: Option<&Path>, config: &Path, shell: &mut Shell<'_>) -> Outcome<PathBuf> {
    if let Some(socket) = named {
        return of_node(socket);
    }
    let Site { places, fault } = Site::of(config);
    match (fault, places.state_directory.clone()) {
        (None, Some(directory)) => Ok(directory),
        (None, None) => of_node(&first(places)?),
        (Some(fault), known) => match (seek(config, &places), known) {
            (Ok(found), _) => of_node(&asking(found, &fault, shell)),
            // What is written where no appliance looks would reach nobody: the directory may be a new one, and the
            // appliance runs with the one that it had.
            (Err(looked), Some(directory)) if looked.all_absent && directory.is_dir() => {
                remark(&fault, format_args!("no appliance answers; going by {}", shown(&directory)), shell);
                Ok(directory)
            }
            (Err(mut looked), Some(directory)) if !directory.is_dir() => {
                looked.found.push(format!("there is no directory {}", shown(&directory)));
                Err(nobody(&fault, &looked))
            }
            (Err(looked), _) => Err(nobody(&fault, &looked)),
        },
    }
}

/// Says that a tenant has no file here, where it has none: what is done for it is done all the same, since it may be
/// another node's, or one that has just gone.
///
/// `elsewhere`: what is asked is named by something else than the file, which then says nothing about it.
pub(crate) fn warn_of_a_stranger(tenant: Option<&TenantId>, config: &Path, elsewhere: bool, shell: &mut Shell<'_>) {
    let Some(tenant) = tenant.filter(|_| !elsewhere) else { return };
    let places = Site::of(config).places;
    let Some(directory) = places.tenants_directory else { return };
    if config::is_tenant_there(&directory, tenant) == Some(false) {
        let file = shown(&directory.join(format!("{tenant}.toml")));
        shell.out.warn(format_args!("no tenant {tenant} is configured here: there is no {file}"));
    }
}

fn first(places: Places) -> Outcome<PathBuf> {
    places.sockets.into_iter().next().ok_or_else(|| Failure::plain("the file names no control socket"))
}

/// What was found where no appliance with the file was.
struct Looked {
    /// In each place.
    found: Vec<String>,
    /// There was nobody in any of them.
    all_absent: bool,
}

/// The socket behind which the appliance is that was started with this file; else what was found in each place.
fn seek(config: &Path, places: &Places) -> Result<PathBuf, Looked> {
    let mut looked = Looked { found: Vec::new(), all_absent: true };
    for socket in &places.sockets {
        let asked = ask(socket);
        looked.all_absent &= matches!(asked, Err(ClientError::Absent { .. }));
        looked.found.push(match asked {
            Ok(stat) if is_of(&stat, config) => return Ok(socket.clone()),
            Ok(_) => format!("the one at {} has another file", shown(socket)),
            Err(ClientError::Absent { .. }) => format!("none answers at {}", shown(socket)),
            Err(error) => error.to_string(),
        });
    }
    Err(looked)
}

/// A look at a running appliance takes milliseconds. Of one that is stuck its operator is told, in an incident most of all.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);

fn ask(socket: &Path) -> Result<Stat, ClientError> {
    let asked = block_on(async {
        let stat = async { Client::connect(socket).await?.get::<Stat>("/v1/stat").await };
        Ok(timeout(ANSWER_WITHIN, stat).await.unwrap_or_else(|_| {
            Err(ClientError::Broken(format!(
                "nothing came within {} s from {}",
                ANSWER_WITHIN.as_secs(),
                shown(socket)
            )))
        }))
    });
    asked.unwrap_or_else(|_| Err(ClientError::Broken("no runtime could be started".to_owned())))
}

/// By the file's own place, whatever links lead there.
fn is_of(stat: &Stat, config: &Path) -> bool {
    let place = |path: &Path| std::fs::canonicalize(path).or_else(|_| std::path::absolute(path)).ok();
    let started_with = stat.node["config"].as_str().map(Path::new).and_then(place);
    started_with.is_some() && started_with == place(config)
}

fn of_node(socket: &Path) -> Outcome<PathBuf> {
    let stat = ask(socket).map_err(|error| unanswered(&error))?;
    let directory = stat.node["stateDirectory"].as_str().map(PathBuf::from);
    directory.ok_or_else(|| {
        Failure::failed(
            format_args!("the appliance at {} does not say where its state directory is", shown(socket)),
            "it is of an older version: name its file with --config instead",
        )
    })
}

fn asking(socket: PathBuf, fault: &Failure, shell: &mut Shell<'_>) -> PathBuf {
    remark(fault, format_args!("asking the appliance that runs with it, at {}", shown(&socket)), shell);
    socket
}

fn remark(fault: &Failure, instead: std::fmt::Arguments<'_>, shell: &mut Shell<'_>) {
    let what = fault.complaint().map_or("", |complaint| complaint.what.as_str());
    shell.out.warn(format_args!("the appliance's file is faulty ({what}); {instead}"));
}

fn nobody(fault: &Failure, looked: &Looked) -> Failure {
    let what = fault.complaint().map_or("", |complaint| complaint.what.as_str());
    let next = "put the file right, name another one with --config, or the running appliance's socket with --socket";
    Failure::failed(what, format_args!("{next} ({})", looked.found.join("; ")))
}
