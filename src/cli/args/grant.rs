//! `tidegate grant …`: the grammar.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use config::units::parse_duration;
use domain::{ConnectionId, TenantId};
use outbound::HostPattern;

use super::{ConfigFile, Form, NodeOf};

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct Grant {
    #[command(subcommand)]
    pub(crate) command: Option<GrantCommand>,
    #[command(flatten)]
    pub(crate) mint: GrantMint,
}

#[derive(Debug, Subcommand)]
pub(crate) enum GrantCommand {
    /// Say what a grant or token says, whether it would be taken now, and if not, why
    #[command(after_help = "Asks as a caller on this machine would, unless --from says otherwise.\n\n\
                            Exit codes: 0 it would be taken, 1 it would not, 3 could not tell.\n\n\
                            Example:\n  tidegate grant --tenant acme | tidegate grant show -")]
    Show(GrantShow),
    /// Take grants back by id or run, or all that is a tenant's; in force within a second, and after restarts
    #[command(
        after_help = "It counts on the node whose state directory it is written to: run it on each. A tenant that is not\n\
                            configured here is revoked all the same, with a warning. While the appliance's file is faulty, the\n\
                            running appliance is asked where its state is.\n\n\
                            Exit codes: 0 revoked, 3 could not.\n\n\
                            Examples:\n  tidegate grant revoke --jti r5cXxYpkTZXo0pAbLkWmZw\n  \
                            tidegate grant revoke --run run_7 --tenant acme\n  \
                            tidegate grant revoke --tenant acme\n  tidegate grant revoke --tenant acme --lift"
    )]
    Revoke(GrantRevoke),
    /// List what is revoked now
    #[command(after_help = "Example:\n  tidegate grant revoked")]
    Revoked(GrantRevoked),
    /// Make a static token for a tenant's file, or hash one
    #[command(after_help = "The token is shown once; the file holds its hash.\n\n\
                            Examples:\n  tidegate grant token --new --name ci\n  tidegate grant token --hash < token.txt")]
    Token(GrantToken),
    /// Make a key pair that signs grants, and print what the appliance's file needs of it
    #[command(after_help = "The file is for its owner only, and an existing one is never replaced.\n\n\
                            Exit codes: 0 made, 3 could not.\n\n\
                            Example:\n  tidegate grant keygen --out grant.key.pem")]
    Keygen(GrantKeygen),
}

/// What a grant is to say.
#[derive(Debug, Args)]
pub(crate) struct GrantMint {
    /// For whom
    #[arg(long, value_name = "TENANT", value_parser = TenantId::parse, required = true)]
    pub(crate) tenant: Option<TenantId>,
    /// A connection that may be called; again for more [default: all of the tenant's]
    #[arg(long = "connection", value_name = "ID", value_parser = ConnectionId::parse)]
    pub(crate) connections: Vec<ConnectionId>,
    /// A host that may be asked for, or the hosts of a zone (`*.example.com`); again for more [default: what policy says]
    #[arg(long = "destination", value_name = "HOST", value_parser = HostPattern::parse)]
    pub(crate) destinations: Vec<HostPattern>,
    /// The tenant's role that it is for [default: the tenant's own rules]
    #[arg(long, value_name = "ROLE")]
    pub(crate) role: Option<String>,
    /// The run that it is for: records carry it, and a run can be revoked
    #[arg(long, value_name = "RUN")]
    pub(crate) run: Option<String>,
    /// The automation that the run is of, for records
    #[arg(long, value_name = "ID")]
    pub(crate) automation: Option<String>,
    /// The class that the run is of: calls of `bulk` go after the tenant's others
    #[arg(long, value_name = "CLASS")]
    pub(crate) class: Option<String>,
    /// A network that the caller has to be in; again for more [default: any]
    #[arg(long = "source", value_name = "NET", value_parser = source)]
    pub(crate) sources: Vec<Box<str>>,
    /// How often it may be used on one node [default: no bound]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) calls_max: Option<u32>,
    /// How long it counts, 15 minutes at most
    #[arg(long, value_name = "TIME", default_value = "5m", value_parser = ttl)]
    pub(crate) ttl: Duration,
    /// The issuer whose `signing_key` is used [default: the only one that has one]
    #[arg(long, value_name = "NAME")]
    pub(crate) issuer: Option<String>,
    /// It is for another node: the tenant, its role and its connections need not be configured here
    #[arg(long)]
    pub(crate) elsewhere: bool,
    #[command(flatten)]
    pub(crate) file: ConfigFile,
    #[command(flatten)]
    pub(crate) form: Form,
}

fn source(text: &str) -> Result<Box<str>, &'static str> {
    egress::caller::network(text).map(|_| text.into()).ok_or("is no network such as 10.0.0.0/8, and no address")
}

fn ttl(text: &str) -> Result<Duration, String> {
    let ttl = parse_duration(text)?;
    if ttl.subsec_nanos() == 0 && (1..=egress::caller::LIFETIME_SECONDS_MAX).contains(&ttl.as_secs()) {
        Ok(ttl)
    } else {
        Err("is not in whole seconds from 1s to 15m".into())
    }
}

#[derive(Debug, Args)]
pub(crate) struct GrantShow {
    /// The grant or token, or - for standard input, which no other user of the machine can see
    #[arg(value_name = "TOKEN", default_value = "-")]
    pub(crate) token: String,
    /// The address of the caller, to whom TLS is then taken to be spoken [default: a caller on this machine]
    #[arg(long, value_name = "IP")]
    pub(crate) from: Option<IpAddr>,
    #[command(flatten)]
    pub(crate) file: ConfigFile,
    #[command(flatten)]
    pub(crate) form: Form,
}

/// What is revoked.
#[derive(Debug, Args)]
#[group(required = true, multiple = true)]
pub(crate) struct RevokedWhat {
    /// The grant with this id
    #[arg(long, value_name = "ID", conflicts_with_all = ["run", "tenant"])]
    pub(crate) jti: Option<String>,
    /// The grants of this run, of every tenant that --tenant does not exclude
    #[arg(long, value_name = "RUN")]
    pub(crate) run: Option<String>,
    /// Everything that is this tenant's: grants, static tokens, certificates
    #[arg(long, value_name = "TENANT", value_parser = TenantId::parse)]
    pub(crate) tenant: Option<TenantId>,
}

#[derive(Debug, Args)]
pub(crate) struct GrantRevoke {
    #[command(flatten)]
    pub(crate) what: RevokedWhat,
    /// Until when: 1h from now, RFC 3339, or Unix seconds [default: a tenant until it is lifted, others until every
    /// grant of today's has ended, which is 15m 30s]
    #[arg(long, value_name = "TIME")]
    pub(crate) until: Option<String>,
    /// Lift what was revoked by the same words
    #[arg(long, conflicts_with = "until")]
    pub(crate) lift: bool,
    #[command(flatten)]
    pub(crate) node: NodeOf,
    #[command(flatten)]
    pub(crate) form: Form,
}

#[derive(Debug, Args)]
pub(crate) struct GrantRevoked {
    #[command(flatten)]
    pub(crate) node: NodeOf,
    #[command(flatten)]
    pub(crate) form: Form,
}

#[derive(Debug, Args)]
pub(crate) struct GrantToken {
    /// Make one: 192 random bits
    #[arg(long, required_unless_present = "hash", conflicts_with = "hash")]
    pub(crate) new: bool,
    /// Hash one that standard input holds
    #[arg(long)]
    pub(crate) hash: bool,
    /// What records call it
    #[arg(long, value_name = "NAME", default_value = "ci")]
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) form: Form,
}

#[derive(Debug, Args)]
pub(crate) struct GrantKeygen {
    /// The file that the private key is written to
    #[arg(long, value_name = "FILE")]
    pub(crate) out: PathBuf,
    /// The issuer's name
    #[arg(long, value_name = "NAME", default_value = "platform")]
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) form: Form,
}
