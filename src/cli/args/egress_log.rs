//! `tidegate egress log`: the grammar.

use std::path::PathBuf;

use clap::Args;
use domain::TenantId;
use egress::CorrelationId;

use super::{CONFIG_DEFAULT, Form};
use crate::cli::when::{self, When};
use crate::control::egress::LIMIT_MAX;

#[derive(Debug, Args)]
pub(crate) struct EgressLog {
    /// The call of this id, as the caller and the provider were told it
    #[arg(long, value_name = "ID", value_parser = correlation)]
    pub(crate) correlation: Option<CorrelationId>,
    /// Calls of this tenant [default: everybody's, also of callers that nobody knows]
    #[arg(long, value_name = "T", value_parser = TenantId::parse)]
    pub(crate) tenant: Option<TenantId>,
    /// Ended at this time or later: 1h for that long ago, RFC 3339, or Unix seconds
    #[arg(long, value_name = "TIME", value_parser = when::parse)]
    pub(crate) since: Option<When>,
    /// Ended before this time
    #[arg(long, value_name = "TIME", value_parser = when::parse)]
    pub(crate) until: Option<When>,
    /// `done`, or the code of the refusal or fault that ended it
    #[arg(long, value_name = "CODE")]
    pub(crate) outcome: Option<String>,
    /// To this host, or this host and port
    #[arg(long, value_name = "HOST")]
    pub(crate) destination: Option<String>,
    /// At most this many, the newest
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=i64::from(LIMIT_MAX)))]
    pub(crate) limit: u32,
    #[command(flatten)]
    pub(crate) form: Form,
    /// The appliance's file, which names its socket and the directory of its records
    #[arg(long, value_name = "FILE", default_value = CONFIG_DEFAULT)]
    pub(crate) config: PathBuf,
    /// The running appliance's control socket [default: as configured]
    #[arg(long, value_name = "PATH")]
    pub(crate) socket: Option<PathBuf>,
    /// Read this directory of records and ask no appliance
    #[arg(long, value_name = "DIR", conflicts_with = "socket")]
    pub(crate) records: Option<PathBuf>,
}

pub(super) fn correlation(text: &str) -> Result<CorrelationId, String> {
    text.trim().parse().map_err(|error: egress::NoCorrelationId| error.to_string())
}
