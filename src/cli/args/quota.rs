//! `tidegate quota …`: the grammar.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use config::units::parse_duration;
use domain::{ConnectionId, TenantId};
use ratelimit::quota::{BucketName, Level, Name, PARK_MS_MAX};

use super::{CONFIG_DEFAULT, Form};
use crate::cli::when::{self, Ahead};
use crate::control::quota::wire::{Guarded, LIMIT_MAX};

#[derive(Debug, Subcommand)]
pub(crate) enum Quota {
    /// List the buckets of all applications that the node has met or that are configured
    #[command(
        after_help = "A bucket is one limit of one provider: PROVIDER:APPLICATION/LEVEL:SCOPE:POLICY. USED is of the cap as whoever\n\
                            counts has it, for all nodes; ROOM is what could be granted now. SHARE is what each tenant may have per second\n\
                            and weight while more is wanted than there is. Buckets that nobody has used lately are not there.\n\n\
                            Exit codes: 0 listed, 3 nobody answers.\n\n\
                            Examples:\n  tidegate quota list --parked\n  tidegate quota list --provider hubspot --level app --json"
    )]
    List(QuotaList),
    /// Show a bucket whole: its rule, who holds how much, what this node holds for which tenant
    #[command(after_help = "Exit codes: 0 shown, 1 there is no such bucket, 3 nobody answers.\n\n\
                            Example:\n  tidegate quota show hubspot:app/connection:acme.crm:daily")]
    Show(QuotaShow),
    /// Say what a call of a connection would meet now, and until when. Nothing is taken or asked for
    #[command(
        after_help = "It goes the way of a call: runaways, rules, breaker, and every level that counts it. Of each level it says what\n\
                            this node has and what whoever counts would say. Whether the call is allowed at all is `tidegate explain`'s.\n\n\
                            Exit codes: 0 it would go, 1 it would be parked or refused, 3 could not tell.\n\n\
                            Examples:\n  tidegate quota explain --tenant acme --connection crm\n  \
                            tidegate quota explain --tenant acme --connection crm --method POST --path /crm/v3/search --class bulk"
    )]
    Explain(QuotaExplain),
    /// Park a bucket: nothing of it is granted on any node until then
    #[command(
        after_help = "A longer park that is there stays. A bucket named `any` has no limit and is there to be parked, at each level of\n\
                            which the provider says none; others can be parked once something was asked of them.\n\n\
                            Exit codes: 0 parked, 3 could not.\n\n\
                            Example:\n  tidegate quota park hubspot:app/connection:acme.crm:daily --for 10m --reason 'they asked us to, ticket 4711'"
    )]
    Park(QuotaPark),
    /// End a bucket's park, whoever made it; what waits goes step by step
    #[command(after_help = "Exit codes: 0 released, 1 it is not parked, 3 could not.\n\n\
                            Example:\n  tidegate quota release hubspot:app/connection:acme.crm:daily")]
    Release(QuotaRelease),
    /// Forget what was counted of a bucket; or close a tenant's breaker
    #[command(
        after_help = "A bucket that is reset is as if nothing of it was used: more may go than the provider allows. It asks for --yes.\n\
                            A breaker is this node's own; others keep theirs.\n\n\
                            Exit codes: 0 reset, 1 there is nothing to reset, 3 could not.\n\n\
                            Examples:\n  tidegate quota reset hubspot:app/connection:acme.crm:daily --yes --reason 'counted twice'\n  \
                            tidegate quota reset --breaker acme/hubspot\n  tidegate quota reset --breaker acme/api.example.com:443"
    )]
    Reset(QuotaReset),
    /// Breakers of tenants and what they call, on this node: those that had a fault lately
    #[command(after_help = "Where nobody here knows a name any more, `key:…` stands for it.\n\n\
                            Exit codes: 0 listed, 3 nobody answers.\n\n\
                            Example:\n  tidegate quota breakers --open")]
    Breakers(QuotaBreakers),
    /// Connections and automations that ran away, on this node: throttled, paused or announced
    #[command(
        after_help = "WANTED is what was asked for per minute lately, granted or not; over TRIGGER it runs away.\n\n\
                            Exit codes: 0 listed, 3 nobody answers.\n\n\
                            Examples:\n  tidegate quota runaways\n  tidegate quota runaways --all --tenant acme --json"
    )]
    Runaways(QuotaRunaways),
    /// Let a connection or an automation go on that is throttled or paused
    #[command(after_help = "Exit codes: 0 resumed, 1 it is neither throttled nor paused, 3 could not.\n\n\
                            Examples:\n  tidegate quota resume acme/crm\n  tidegate quota resume acme/automation:nightly-export")]
    Resume(QuotaOf),
    /// Announce that a connection or an automation will want more than usual, so that it is no runaway
    #[command(
        after_help = "Each node watches what passes through it: announce it to every one. A later announcement replaces the one before.\n\n\
                            Exit codes: 0 announced, 3 could not.\n\n\
                            Examples:\n  tidegate quota announce acme/crm --factor 20 --until 6h\n  \
                            tidegate quota announce acme/automation:import --factor 50 --until 2026-12-01T06:00:00Z"
    )]
    Announce(QuotaAnnounce),
    /// Take an announcement back
    #[command(after_help = "Exit codes: 0 withdrawn, 1 nothing was announced, 3 could not.\n\n\
                            Example:\n  tidegate quota withdraw acme/crm")]
    Withdraw(QuotaOf),
}

/// The running appliance that is asked.
#[derive(Debug, Args)]
pub(crate) struct Asked {
    /// The appliance's file
    #[arg(long, value_name = "FILE", default_value = CONFIG_DEFAULT)]
    pub(crate) config: PathBuf,
    /// The running appliance's control socket [default: as configured]
    #[arg(long, value_name = "PATH")]
    pub(crate) socket: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) form: Form,
}

/// Why, for whoever reads the log.
#[derive(Debug, Args)]
pub(crate) struct Because {
    /// Why, for whoever reads the appliance's log later
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub(crate) reason: String,
}

#[derive(Debug, Args)]
pub(crate) struct QuotaList {
    /// Buckets at this provider: a connector's name
    #[arg(long, value_name = "P", value_parser = Name::parse)]
    pub(crate) provider: Option<Name>,
    /// Buckets of the application of this name, at whichever provider
    #[arg(long, value_name = "A", value_parser = Name::parse)]
    pub(crate) application: Option<Name>,
    /// Buckets of this level: app, connection, region or source
    #[arg(long, value_name = "L", value_parser = level)]
    pub(crate) level: Option<Level>,
    /// Those that are parked
    #[arg(long)]
    pub(crate) parked: bool,
    /// At most this many
    #[arg(long, value_name = "N", default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) limit: u32,
    #[command(flatten)]
    pub(crate) asked: Asked,
}

fn level(word: &str) -> Result<Level, &'static str> {
    Level::parse(word).ok_or("is app, connection, region or source")
}

#[derive(Debug, Args)]
pub(crate) struct QuotaShow {
    /// The bucket, as `tidegate quota list` prints it
    #[arg(value_name = "BUCKET")]
    pub(crate) bucket: BucketName,
    #[command(flatten)]
    pub(crate) asked: Asked,
}

#[derive(Debug, Args)]
pub(crate) struct QuotaExplain {
    /// Whose call it is
    #[arg(long, value_name = "T", value_parser = TenantId::parse)]
    pub(crate) tenant: TenantId,
    /// By which of the tenant's connections
    #[arg(long, value_name = "C", value_parser = ConnectionId::parse)]
    pub(crate) connection: ConnectionId,
    /// The request's method
    #[arg(long, value_name = "M", default_value = "GET")]
    pub(crate) method: String,
    /// What stands behind `/c/CONNECTION`
    #[arg(long, value_name = "PATH", default_value = "/")]
    pub(crate) path: String,
    /// What the grant says of the call's class
    #[arg(long, value_enum, value_name = "CLASS", default_value = "interactive")]
    pub(crate) class: ClassWord,
    /// The caller's role [default: none]
    #[arg(long = "as", value_name = "ROLE")]
    pub(crate) role: Option<String>,
    /// The automation that the grant names [default: none]
    #[arg(long, value_name = "NAME")]
    pub(crate) automation: Option<String>,
    #[command(flatten)]
    pub(crate) asked: Asked,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ClassWord {
    Interactive,
    /// Waits behind interactive calls of its tenant
    Bulk,
}

#[derive(Debug, Args)]
pub(crate) struct QuotaPark {
    /// The bucket, as `tidegate quota list` prints it
    #[arg(value_name = "BUCKET")]
    pub(crate) bucket: BucketName,
    /// For how long, up to 26h
    #[arg(long = "for", value_name = "TIME", value_parser = park)]
    pub(crate) time: Duration,
    #[command(flatten)]
    pub(crate) because: Because,
    #[command(flatten)]
    pub(crate) asked: Asked,
}

fn park(text: &str) -> Result<Duration, String> {
    let time = parse_duration(text)?;
    let is_park = (1..=u128::from(PARK_MS_MAX)).contains(&time.as_millis());
    if is_park { Ok(time) } else { Err("is not from 1ms to 26h".into()) }
}

#[derive(Debug, Args)]
pub(crate) struct QuotaRelease {
    /// The bucket, as `tidegate quota list` prints it
    #[arg(value_name = "BUCKET")]
    pub(crate) bucket: BucketName,
    #[command(flatten)]
    pub(crate) because: Because,
    #[command(flatten)]
    pub(crate) asked: Asked,
}

#[derive(Debug, Args)]
pub(crate) struct QuotaReset {
    /// The bucket, as `tidegate quota list` prints it
    #[arg(value_name = "BUCKET", required_unless_present = "breaker", conflicts_with = "breaker")]
    pub(crate) bucket: Option<BucketName>,
    /// The breaker of TENANT/CONNECTOR or TENANT/HOST:PORT, as `tidegate quota breakers` prints it
    #[arg(long, value_name = "BREAKER", value_parser = breaker)]
    pub(crate) breaker: Option<Guarded>,
    /// A bucket's reset is meant
    #[arg(long, conflicts_with = "breaker")]
    pub(crate) yes: bool,
    #[command(flatten)]
    pub(crate) because: Because,
    #[command(flatten)]
    pub(crate) asked: Asked,
}

#[derive(Debug, Args)]
pub(crate) struct QuotaBreakers {
    /// Those that are open or half-open
    #[arg(long)]
    pub(crate) open: bool,
    /// Those of this tenant
    #[arg(long, value_name = "T", value_parser = TenantId::parse)]
    pub(crate) tenant: Option<TenantId>,
    /// At most this many
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=i64::from(LIMIT_MAX)))]
    pub(crate) limit: u32,
    #[command(flatten)]
    pub(crate) asked: Asked,
}

#[derive(Debug, Args)]
pub(crate) struct QuotaRunaways {
    /// Also those that are fine
    #[arg(long)]
    pub(crate) all: bool,
    /// Those of this tenant
    #[arg(long, value_name = "T", value_parser = TenantId::parse)]
    pub(crate) tenant: Option<TenantId>,
    /// At most this many
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=i64::from(LIMIT_MAX)))]
    pub(crate) limit: u32,
    #[command(flatten)]
    pub(crate) asked: Asked,
}

#[derive(Debug, Args)]
pub(crate) struct QuotaOf {
    /// TENANT/CONNECTION or TENANT/automation:NAME, as `tidegate quota runaways` prints it
    #[arg(value_name = "WHOSE", value_parser = runaway)]
    pub(crate) of: Guarded,
    #[command(flatten)]
    pub(crate) because: Because,
    #[command(flatten)]
    pub(crate) asked: Asked,
}

#[derive(Debug, Args)]
pub(crate) struct QuotaAnnounce {
    /// TENANT/CONNECTION or TENANT/automation:NAME
    #[arg(value_name = "WHOSE", value_parser = runaway)]
    pub(crate) of: Guarded,
    /// Times the trigger, 2 to 1000
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(2..=1_000))]
    pub(crate) factor: u16,
    /// When it ends: how long from now, or a time; within a week
    #[arg(long, value_name = "TIME", value_parser = when::parse_ahead)]
    pub(crate) until: Ahead,
    #[command(flatten)]
    pub(crate) because: Because,
    #[command(flatten)]
    pub(crate) asked: Asked,
}

/// A tenant and the rest.
fn of_tenant(text: &str) -> Result<(TenantId, &str), String> {
    let (tenant, what) = text.split_once('/').ok_or("is not of the form TENANT/WHAT")?;
    let tenant = TenantId::parse(tenant).map_err(|fault| format!("has a tenant that is none: {fault}"))?;
    if what.is_empty() { Err("names nothing of the tenant's".to_owned()) } else { Ok((tenant, what)) }
}

fn key(text: &str) -> Option<Guarded> {
    text.strip_prefix("key:").map(|digits| Guarded::Key(digits.to_owned()))
}

fn breaker(text: &str) -> Result<Guarded, String> {
    if let Some(key) = key(text) {
        return Ok(key);
    }
    let (tenant, what) = of_tenant(text)?;
    let what = what.to_owned();
    // A connector's name has no colon, and a destination has a port.
    Ok(if what.contains(':') { Guarded::Destination { tenant, what } } else { Guarded::Connector { tenant, what } })
}

fn runaway(text: &str) -> Result<Guarded, String> {
    if let Some(key) = key(text) {
        return Ok(key);
    }
    let (tenant, what) = of_tenant(text)?;
    if let Some(what) = what.strip_prefix("automation:") {
        return Ok(Guarded::Automation { tenant, what: what.to_owned() });
    }
    let what = ConnectionId::parse(what).map_err(|fault| format!("has a connection that is none: {fault}"))?;
    Ok(Guarded::Connection { tenant, what })
}
