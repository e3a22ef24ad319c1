//! `tidegate explain`

use std::ffi::OsString;
use std::net::IpAddr;

use clap::Args;
use domain::TenantId;

use super::{ConfigFile, Form};

#[derive(Debug, Args)]
pub(crate) struct Explain {
    /// The URL of a request, `host:port` of a tunnel, or `/c/CONNECTION/…` of a governed call
    #[arg(value_name = "URL|AUTHORITY", allow_hyphen_values = true)]
    pub(crate) target: OsString,
    /// Whose call it is
    #[arg(long, value_name = "T", value_parser = TenantId::parse)]
    pub(crate) tenant: TenantId,
    /// The caller's role [default: none]
    #[arg(long = "as", value_name = "ROLE")]
    pub(crate) role: Option<String>,
    /// The request's method [default: GET]
    #[arg(long, value_name = "M")]
    pub(crate) method: Option<String>,
    /// It is a tunnel, whatever the target looks like
    #[arg(long)]
    pub(crate) connect: bool,
    /// An address that DNS would answer with, once for each; `none` for a name without any [default: DNS is asked]
    #[arg(long = "answer", value_name = "IP", value_parser = answer)]
    pub(crate) answers: Vec<Answer>,
    #[command(flatten)]
    pub(crate) file: ConfigFile,
    #[command(flatten)]
    pub(crate) form: Form,
}

/// One `--answer`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answer {
    Address(IpAddr),
    /// The name has no addresses.
    Nothing,
}

fn answer(text: &str) -> Result<Answer, &'static str> {
    if text == "none" {
        return Ok(Answer::Nothing);
    }
    text.parse().map(Answer::Address).map_err(|_| "is an IPv4 or IPv6 address without brackets and port, or `none`")
}
