//! `tidegate send`, `sign` and `verify`: what has to do with a single delivery.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use domain::id::{EndpointId, TenantId};

use super::{CONFIG_DEFAULT, ConfigFile, Form};
use crate::cli::capture;
use crate::cli::secret::Reference;
use crate::cli::when::{self, When};

#[derive(Debug, Args)]
pub(crate) struct Send {
    #[command(flatten)]
    pub(crate) file: ConfigFile,
    /// The endpoint to deliver to
    #[arg(long, value_name = "ID", value_parser = EndpointId::parse)]
    pub(crate) endpoint: EndpointId,
    /// The body: a file, or - for standard input [default: a small sample]
    #[arg(long, value_name = "FILE")]
    pub(crate) body: Option<PathBuf>,
    /// A header to send beside the signature's, 'Name: value'; again for more
    #[arg(long = "header", short = 'H', value_name = "K: V", value_parser = capture::header)]
    pub(crate) headers: Vec<(String, String)>,
    /// The method [default: the scheme's first]
    #[arg(long, value_name = "M")]
    pub(crate) method: Option<String>,
    /// Post here instead of to the configured listener
    #[arg(long, value_name = "U")]
    pub(crate) url: Option<String>,
    /// Sign as of this time: RFC 3339, Unix seconds, or 10m for that long ago
    #[arg(long, value_name = "TIME", default_value = "now", value_parser = when::parse)]
    pub(crate) at: When,
    /// How many deliveries to send; {number} in the body becomes each one's number
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) count: u32,
    /// How many connections to send them over
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=256))]
    pub(crate) concurrency: u32,
    /// Print a signed curl command that is ready to paste, and send nothing
    #[arg(long, visible_alias = "dry-run", conflicts_with_all = ["count", "json"])]
    pub(crate) print_curl: bool,
    #[command(flatten)]
    pub(crate) form: Form,
}

/// Which scheme, and the key to it: by name, or as an endpoint of the configuration has it.
#[derive(Debug, Args)]
pub(crate) struct SchemeAndKey {
    /// The scheme; `tidegate schemes list` names them
    #[arg(long, value_name = "S", required_unless_present = "endpoint", requires = "secret")]
    pub(crate) scheme: Option<String>,
    /// Where the secret is, never the secret itself: `env:NAME`, `file:PATH`, or - for standard input
    #[arg(long, value_name = "REF")]
    pub(crate) secret: Option<Reference>,
    /// Take the scheme, the secrets and the URL from this endpoint of the configuration
    #[arg(long, value_name = "ID", value_parser = EndpointId::parse, conflicts_with_all = ["scheme", "secret"])]
    pub(crate) endpoint: Option<EndpointId>,
    /// The appliance's file: for --endpoint, and for schemes that a tenant declares
    #[arg(long, value_name = "FILE", default_value = CONFIG_DEFAULT)]
    pub(crate) config: PathBuf,
    /// The tenant that declares the scheme
    #[arg(long, value_name = "T", value_parser = TenantId::parse, requires = "scheme")]
    pub(crate) tenant: Option<TenantId>,
}

/// What is signed beside the headers.
#[derive(Debug, Args)]
pub(crate) struct Message {
    /// The body: a file, or - for standard input
    #[arg(long, value_name = "FILE")]
    pub(crate) body: PathBuf,
    /// The method [default: the scheme's first]
    #[arg(long, value_name = "M")]
    pub(crate) method: Option<String>,
    /// The whole URL as the provider has it, for schemes that sign it
    #[arg(long, value_name = "U")]
    pub(crate) url: Option<String>,
    /// The time of it: RFC 3339, Unix seconds, or 10m for that long ago
    #[arg(long, value_name = "TIME", default_value = "now", value_parser = when::parse)]
    pub(crate) at: When,
}

#[derive(Debug, Args)]
pub(crate) struct Sign {
    #[command(flatten)]
    pub(crate) key: SchemeAndKey,
    #[command(flatten)]
    pub(crate) message: Message,
    /// A header that is signed too, 'Name: value'; again for more
    #[arg(long = "header", short = 'H', value_name = "K: V", value_parser = capture::header)]
    pub(crate) headers: Vec<(String, String)>,
    /// How to print it
    #[arg(long, value_enum, default_value_t, value_name = "FORM", conflicts_with = "json")]
    pub(crate) form: SignForm,
    /// Print JSON for machines
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(crate) enum SignForm {
    /// One header a line
    #[default]
    Headers,
    /// A curl command; needs --url
    Curl,
}

#[derive(Debug, Args)]
pub(crate) struct Verify {
    #[command(flatten)]
    pub(crate) key: SchemeAndKey,
    #[command(flatten)]
    pub(crate) message: Message,
    /// A header of the delivery, 'Name: value'; again for more, also for the same name
    #[arg(long = "header", short = 'H', value_name = "K: V", value_parser = capture::header)]
    pub(crate) headers: Vec<(String, String)>,
    /// A file with one header a line, as most tools print them
    #[arg(long, value_name = "FILE")]
    pub(crate) headers_from: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) form: Form,
}
