//! The command line's grammar. Its doc comments are the help text, and `docs/cli.md` is printed from it.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

use super::out::Colour;

mod egress;
mod egress_log;
mod egress_ranges;
mod egress_top;
mod events;
mod explain;
mod grant;
mod quota;
mod runs;
mod signing;

pub(crate) use egress::{Egress, EgressSwitch, EgressSwitchList, EgressSwitchOff, EgressSwitchOn, SwitchScope};
pub(crate) use egress_log::EgressLog;
pub(crate) use egress_ranges::{
    EgressRanges, RangeAnnounce, RangeForced, RangePlain, RangeRenew, RangesExport, RangesImport, RangesKey,
    RangesRead, RangesVerify,
};
pub(crate) use egress_top::{EgressClose, EgressTop};
pub(crate) use events::{Events, EventsExport, EventsList, EventsReverify, EventsShow, EventsTail, Scope, Span};
pub(crate) use explain::{Answer, Explain};
pub(crate) use grant::{
    Grant, GrantCommand, GrantKeygen, GrantMint, GrantRevoke, GrantRevoked, GrantShow, GrantToken, RevokedWhat,
};
pub(crate) use quota::{
    Asked, Because, ClassWord, Quota, QuotaAnnounce, QuotaBreakers, QuotaExplain, QuotaList, QuotaOf, QuotaPark,
    QuotaRelease, QuotaReset, QuotaRunaways, QuotaShow,
};
pub(crate) use runs::{
    Automations, AutomationsCheck, AutomationsList, AutomationsOf, AutomationsPut, AutomationsShow, AutomationsStart,
    OfTenant, ReplaysOf, Runs, RunsDismiss, RunsInbox, RunsList, RunsOf, RunsPlain, RunsQuarantined, RunsReconnected,
    RunsReplay, RunsReplays, RunsRerun, RunsResolve, RunsSetAside, RunsShow, RunsToken,
};
pub(crate) use signing::{SchemeAndKey, Send, Sign, SignForm, Verify};

/// Where an installed appliance keeps its file.
pub(crate) const CONFIG_DEFAULT: &str = "/etc/tidegate/tidegate.toml";

/// Tidegate takes providers' webhooks: verified, durable, then answered.
#[derive(Debug, Parser)]
#[command(
    name = "tidegate",
    version,
    propagate_version = true,
    subcommand_required = true,
    arg_required_else_help = true
)]
#[command(after_help = "Exit codes: 0 yes, 1 no (a refusal, a fault found), 2 wrong usage, 3 could not do it.\n\
                        `--json` prints one stable object, or one JSON object a line.")]
pub(crate) struct Cli {
    /// When to colour
    #[arg(long, global = true, value_enum, default_value_t, value_name = "WHEN", hide_possible_values = true)]
    pub(crate) color: Colour,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Start the roles that the file enables
    #[command(
        after_help = "Runs in the foreground and logs to standard error. SIGHUP, or saving a file, reloads the\n\
                            configuration (within 30 s where a link leads to it); SIGTERM and SIGINT drain and stop; a second\n\
                            one stops at once.\n\n\
                            Exit codes: 0 stopped after a drain, 1 the configuration is faulty, 3 could not start, or requests were cut off.\n\n\
                            Example:\n  tidegate run --config /etc/tidegate/tidegate.toml"
    )]
    Run(Run),
    /// Report every fault of the configuration at once
    #[command(
        after_help = "Reads the appliance's file and every tenant's, runs the known answers of each scheme in use and\n\
                            decodes every key, without touching a running appliance.\n\n\
                            Exit codes: 0 nothing is wrong, 1 faults were found, 3 could not read the file.\n\n\
                            Example:\n  tidegate check --config /etc/tidegate/tidegate.toml"
    )]
    Check(Check),
    /// Sign a delivery as the endpoint's provider would, post it, and show the answer
    #[command(after_help = "Exit codes: 0 accepted, 1 refused, 3 could not send.\n\n\
                            Examples:\n  tidegate send --endpoint wh_9f2c1b7a --body delivery.json\n  \
                            tidegate send --endpoint wh_9f2c1b7a --count 100 --concurrency 8\n  \
                            tidegate send --endpoint wh_9f2c1b7a --print-curl")]
    Send(Send),
    /// Print the headers that prove a delivery under a scheme
    #[command(after_help = "Exit codes: 0 signed, 3 could not (no such scheme, a key that does not fit it).\n\n\
                            Example:\n  tidegate sign --scheme github --secret env:GITHUB_SECRET --body delivery.json")]
    Sign(Sign),
    /// Say whether a captured delivery would verify, and if not, why
    #[command(after_help = "Exit codes: 0 it verifies, 1 it does not, 3 could not tell.\n\n\
                            Examples:\n  tidegate verify --scheme github --secret env:GITHUB_SECRET --body delivery.json \\\n      \
                            --header 'X-Hub-Signature-256: sha256=…'\n  \
                            tidegate verify --endpoint wh_9f2c1b7a --body delivery.json --headers-from headers.txt --at 2026-11-29T13:44:41Z")]
    Verify(Verify),
    /// Say whether a call would go out, and why. Nothing is dialled
    #[command(
        after_help = "Parses, asks switches and rules, resolves (or takes --answer) and vets every address, as serving does.\n\
                            `docs/explain.md` has the form of --json.\n\n\
                            Exit codes: 0 allowed, 1 refused, 3 could not tell (the configuration, DNS).\n\n\
                            Examples:\n  tidegate explain https://api.example.com/v1/x --tenant acme --method POST\n  \
                            tidegate explain api.example.com:443 --tenant acme --as build --answer 93.184.216.34\n  \
                            tidegate explain /c/conn_stripe/v1/charges --tenant acme"
    )]
    Explain(Explain),
    /// Read what was delivered
    #[command(subcommand)]
    Events(Events),
    /// Look at the event log's files
    #[command(subcommand)]
    Log(Log),
    /// The way out: what was called, what is switched off, which addresses calls leave from
    #[command(subcommand)]
    Egress(Egress),
    /// What providers' limits leave: buckets, parks, breakers, runaways, and what to do about them
    #[command(subcommand)]
    Quota(Quota),
    /// Runs of automations: what happened, what waits for somebody, and what to do about it
    #[command(subcommand)]
    Runs(Runs),
    /// What tenants automate: store, look at, check
    #[command(subcommand)]
    Automations(Automations),
    /// The schemes by which deliveries prove who sent them
    #[command(subcommand)]
    Schemes(Schemes),
    /// Ids of endpoints
    #[command(subcommand)]
    Endpoints(Endpoints),
    /// Mint a call grant for testing, look at one, take some back
    #[command(
        after_help = "Signs with the `signing_key` of an issuer of the appliance's file. Platforms sign grants themselves;\n\
                            docs/grants.md says what one has to say. The grant goes to standard output, and is a secret.\n\n\
                            Exit codes: 0 minted, 1 it would not be taken (no such tenant, role or connection, …), 3 could not.\n\n\
                            Examples:\n  tidegate grant --tenant acme --connection conn_stripe --ttl 5m\n  \
                            curl -x \"http://grant:$(tidegate grant --tenant acme)@127.0.0.1:3128\" \\\n      \
                            https://api.example.com/"
    )]
    Grant(Grant),
    /// Have the running appliance read its configuration again
    #[command(
        after_help = "Exit codes: 0 in force, 1 faults were found (what they touch keeps its last good version), 3 no appliance answers.\n\n\
                            Example:\n  tidegate reload"
    )]
    Reload(Reload),
    /// Print the JSON Schema of a configuration file, for editors
    #[command(
        after_help = "Examples:\n  tidegate schema appliance > tidegate.schema.json\n  tidegate schema tenant > tenant.schema.json"
    )]
    Schema(Schema),
    /// Print a completion script for a shell
    #[command(after_help = "Example:\n  tidegate completions bash > /etc/bash_completion.d/tidegate")]
    Completions(Completions),
    /// Print a reference as Markdown: how the files under `docs/` are made
    #[command(hide = true)]
    Reference(Reference),
}

/// Where the configuration is.
#[derive(Debug, Args)]
pub(crate) struct ConfigFile {
    /// The appliance's file
    #[arg(long, value_name = "FILE", default_value = CONFIG_DEFAULT)]
    pub(crate) config: PathBuf,
}

/// The node whose state it is about.
#[derive(Debug, Args)]
pub(crate) struct NodeOf {
    /// The appliance's file
    #[arg(long, value_name = "FILE", default_value = CONFIG_DEFAULT)]
    pub(crate) config: PathBuf,
    /// The running appliance's control socket: it says where its state is [default: as configured]
    #[arg(long, value_name = "PATH")]
    pub(crate) socket: Option<PathBuf>,
}

/// How the answer is printed.
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct Form {
    /// Print JSON for machines
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Run {
    #[command(flatten)]
    pub(crate) file: ConfigFile,
}

#[derive(Debug, Args)]
pub(crate) struct Check {
    /// This is not the machine that the files are for: exit addresses need not be on it
    #[arg(long)]
    pub(crate) elsewhere: bool,
    #[command(flatten)]
    pub(crate) file: ConfigFile,
    #[command(flatten)]
    pub(crate) form: Form,
}

/// Where the log is: behind the running appliance's socket, or in a directory.
#[derive(Debug, Args)]
pub(crate) struct Place {
    /// The appliance's file, which names its socket and its log
    #[arg(long, value_name = "FILE", default_value = CONFIG_DEFAULT)]
    pub(crate) config: PathBuf,
    /// The running appliance's control socket [default: as configured]
    #[arg(long, value_name = "PATH")]
    pub(crate) socket: Option<PathBuf>,
    /// Read this log directory and ask no appliance
    #[arg(long, value_name = "DIR", conflicts_with = "socket")]
    pub(crate) log: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Log {
    /// Check every record, checksum and seal of a log, without an appliance
    #[command(after_help = "Exit codes: 0 whole, 1 damage was found and named, 3 could not read it.\n\n\
                            Examples:\n  tidegate log verify /var/lib/tidegate/log\n  tidegate log verify --config tidegate.toml --json")]
    Verify(LogVerify),
    /// Segments, records, bytes and what is durable
    #[command(after_help = "Example:\n  tidegate log stat")]
    Stat(LogStat),
}

#[derive(Debug, Args)]
pub(crate) struct LogVerify {
    /// The log's directory [default: as configured]
    #[arg(value_name = "DIR")]
    pub(crate) directory: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) file: ConfigFile,
    #[command(flatten)]
    pub(crate) form: Form,
}

#[derive(Debug, Args)]
pub(crate) struct LogStat {
    #[command(flatten)]
    pub(crate) place: Place,
    #[command(flatten)]
    pub(crate) form: Form,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Schemes {
    /// List the schemes that Tidegate knows, and those that tenants declare
    #[command(after_help = "Example:\n  tidegate schemes list\n  tidegate schemes list --evidence")]
    List(SchemesList),
    /// Show a scheme: what it signs, how it is answered, where that is written
    #[command(
        after_help = "Exit codes: 0 shown, 1 there is no such scheme.\n\nExample:\n  tidegate schemes show stripe"
    )]
    Show(SchemesShow),
}

#[derive(Debug, Args)]
pub(crate) struct SchemesList {
    /// Show what stands behind each: an answer of its provider's own, or one that was constructed; and from where
    #[arg(long)]
    pub(crate) evidence: bool,
    /// List what the tenants of this configuration declare, too
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) form: Form,
}

#[derive(Debug, Args)]
pub(crate) struct SchemesShow {
    /// The scheme's name, or another one that it goes by
    #[arg(value_name = "SCHEME")]
    pub(crate) name: String,
    /// Look among what the tenants of this configuration declare, too
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) form: Form,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Endpoints {
    /// Mint an id that nobody can guess (96 random bits), for a tenant's file
    #[command(after_help = "Example:\n  tidegate endpoints issue")]
    Issue(EndpointsIssue),
}

#[derive(Debug, Args)]
pub(crate) struct EndpointsIssue {
    /// How many
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) count: u32,
    #[command(flatten)]
    pub(crate) form: Form,
}

#[derive(Debug, Args)]
pub(crate) struct Reload {
    #[command(flatten)]
    pub(crate) file: ConfigFile,
    /// The running appliance's control socket [default: as configured]
    #[arg(long, value_name = "PATH")]
    pub(crate) socket: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) form: Form,
}

#[derive(Debug, Args)]
pub(crate) struct Schema {
    /// Of the appliance's file, or of a tenant's
    #[arg(value_enum, value_name = "FILE")]
    pub(crate) of: SchemaOf,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum SchemaOf {
    Appliance,
    Tenant,
}

#[derive(Debug, Args)]
pub(crate) struct Completions {
    #[arg(value_enum)]
    pub(crate) shell: clap_complete::Shell,
}

#[derive(Debug, Args)]
pub(crate) struct Reference {
    #[arg(value_enum)]
    pub(crate) of: ReferenceOf,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum ReferenceOf {
    Cli,
    Configuration,
}
