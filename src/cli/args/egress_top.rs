//! `tidegate egress top` and `tidegate egress close`: the grammar.

use std::path::PathBuf;

use clap::Args;
use domain::TenantId;
use egress::CorrelationId;

use super::egress_log::correlation;
use super::{ConfigFile, Form};
use crate::control::top::{By, LIMIT_MAX};

#[derive(Debug, Args)]
pub(crate) struct EgressTop {
    /// Calls of this tenant [default: everybody's]
    #[arg(long, value_name = "T", value_parser = TenantId::parse)]
    pub(crate) tenant: Option<TenantId>,
    /// What stands first
    #[arg(long, value_enum, value_name = "BY", default_value = "bytes")]
    pub(crate) by: By,
    /// At most this many
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=i64::from(LIMIT_MAX)))]
    pub(crate) limit: u32,
    /// Seconds between looks; rates are of that time
    #[arg(long, value_name = "SECONDS", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=60))]
    pub(crate) interval: u64,
    /// Show it once and end, as where the answer does not go to a terminal
    #[arg(long)]
    pub(crate) once: bool,
    #[command(flatten)]
    pub(crate) form: Form,
    #[command(flatten)]
    pub(crate) file: ConfigFile,
    /// The running appliance's control socket [default: as configured]
    #[arg(long, value_name = "PATH")]
    pub(crate) socket: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct EgressClose {
    /// The call of this id, as `tidegate egress top` shows it
    #[arg(value_name = "ID", value_parser = correlation)]
    pub(crate) correlation: CorrelationId,
    #[command(flatten)]
    pub(crate) form: Form,
    #[command(flatten)]
    pub(crate) file: ConfigFile,
    /// The running appliance's control socket [default: as configured]
    #[arg(long, value_name = "PATH")]
    pub(crate) socket: Option<PathBuf>,
}
