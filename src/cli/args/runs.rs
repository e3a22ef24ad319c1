//! `tidegate runs …` and `tidegate automations …`: the grammar.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use domain::{ConnectionId, EndpointId, EventId, TenantId};
use runner::api::{AutomationName, ExecutionName, StatusWord};
use runner::engine::REASON_BYTES_MAX;
use runner::failure::FailureClass;
use runner::ids::{RunId, StepId, Version};
use runner::ledger::RunStatus;

use super::{CONFIG_DEFAULT, Form};
use crate::cli::when::{self, When};

#[derive(Debug, Subcommand)]
pub(crate) enum Runs {
    /// List runs, the newest first
    #[command(after_help = "Exit codes: 0 listed, 3 nobody answers.\n\n\
                            Examples:\n  tidegate runs list --tenant acme --status failed,needs-attention --since 1h\n  \
                            tidegate runs list --tenant acme --class authentication-expired --json")]
    List(RunsList),
    /// Show what happened in a run, node by node, and what to do next
    #[command(
        after_help = "Takes a run's id, or the executionId that the gateway answered a delivery with: then it shows every run that its\n\
                            event began. Of each attempt of a call it says under which effect key it was made, how much of it can have reached\n\
                            the provider, and by what id `tidegate egress log` knows it.\n\n\
                            With --node it is that node alone, with every attempt and with inputs and outputs up to 8 MiB; --input or --output\n\
                            writes the payload itself, as it is kept. What retention has taken is said, and is no answer.\n\n\
                            Exit codes: 0 shown, 1 there is none, or it is no longer kept, 3 nobody answers.\n\n\
                            Examples:\n  tidegate runs show --tenant acme ex_01kc7yqz4w3h5v8m2n6p9r1t4c\n  \
                            tidegate runs show --tenant acme run_01kc7yqz4w3h5v8m2n6p9r1t4c --json\n  \
                            tidegate runs show --tenant acme run_01kc7yqz4w3h5v8m2n6p9r1t4c --node charge --output > answer.json"
    )]
    Show(RunsShow),
    /// Cancel a run, also while it waits for a provider
    #[command(after_help = "A call that is under way is given up; what it may have done is in the run's history.\n\n\
                            Exit codes: 0 it is written down, 1 there is no such run, or it is over, 3 could not.\n\n\
                            Example:\n  tidegate runs cancel --tenant acme run_01kc7yqz4w3h5v8m2n6p9r1t4c")]
    Cancel(RunsOf),
    /// Decide about an effect of which nobody knows whether it has happened
    #[command(
        after_help = "Look at the provider first. `continue-accept-gap` goes on as if it had happened; `retry-accept-duplicate` does it\n\
                            again. Who chose is in the history.\n\n\
                            Exit codes: 0 it is written down, 1 nothing is to be decided there, 3 could not.\n\n\
                            Example:\n  tidegate runs resolve --tenant acme run_01kc7yqz4w3h5v8m2n6p9r1t4c --node charge \\\n      \
                            --choice continue-accept-gap"
    )]
    Resolve(RunsResolve),
    /// What waits for somebody: runs by why and where, dead connections, and what ended badly
    #[command(
        after_help = "Runs whose effect may have happened, whose connection is dead, or that are quarantined; and dead letters: runs\n\
                            that ended ambiguous, were tried as often as they may be, or failed after they had been quarantined, until\n\
                            somebody puts them away (`tidegate runs dismiss`).\n\n\
                            Exit codes: 0 listed, 3 nobody answers.\n\nExample:\n  tidegate runs inbox --tenant acme"
    )]
    Inbox(RunsInbox),
    /// Put a dead letter away: the run and its history stay
    #[command(
        after_help = "Who did it, when and why is in the run's history. A re-run of it makes it a run like any other.\n\n\
                            Exit codes: 0 it is written down, 1 it is no dead letter, or not over, 3 could not.\n\n\
                            Example:\n  tidegate runs dismiss --tenant acme run_01kc7yqz4w3h5v8m2n6p9r1t4c --reason \"refunded by hand\""
    )]
    Dismiss(RunsDismiss),
    /// Let a run go on that was quarantined because workers were lost over it
    #[command(after_help = "Exit codes: 0 released, 1 it is not quarantined, 3 could not.\n\n\
                            Example:\n  tidegate runs release --tenant acme run_01kc7yqz4w3h5v8m2n6p9r1t4c")]
    Release(RunsOf),
    /// Do runs again, as new ones: one run, or those of events by automation, endpoint and time
    #[command(
        after_help = "Effects happen again, under keys of their own. Of events it only counts without --accept-duplicates; of one run there is\n\
                            nothing to count, and without it nothing is done (exit code 1). Replayed events wait behind whatever is live.\n\n\
                            What was counted is carried out once: a plan that was begun before adds only what is missing of it, unless --name\n\
                            says that it is another replay. A time that is given by how long ago it was, or not at all, is another one each\n\
                            time that it is asked, and so is its plan. `tidegate runs replays` says how far it is.\n\n\
                            Exit codes: 0 counted, or begun, 1 it may not be, or was not confirmed, 3 could not.\n\n\
                            Examples:\n  tidegate runs replay --tenant acme run_01kc7yqz4w3h5v8m2n6p9r1t4c --accept-duplicates\n  \
                            tidegate runs replay --tenant acme --endpoint wh_9f2c1b7a --since 2h --which not-succeeded"
    )]
    Replay(RunsReplay),
    /// Replays of events: which there are, how far they are, and stopping one
    #[command(subcommand)]
    Replays(RunsReplays),
    /// Do one node of a run again, with another input if need be
    #[command(
        after_help = "It is a new asking, with an effect key of its own, so that a provider does it again; what comes behind the node\n\
                            follows.\n\n\
                            Exit codes: 0 it is written down, 1 it may not be, 3 could not.\n\n\
                            Example:\n  tidegate runs rerun --tenant acme run_01kc7yqz4w3h5v8m2n6p9r1t4c --node send --input fixed.json \\\n      \
                            --accept-duplicates"
    )]
    Rerun(RunsRerun),
    /// List a tenant's connections, and which of them have to be made anew
    #[command(
        after_help = "Exit codes: 0 listed, 3 nobody answers.\n\nExample:\n  tidegate runs connections --tenant acme"
    )]
    Connections(OfTenant),
    /// Say that a connection works again: the runs that wait for it go on
    #[command(
        after_help = "Put the new credential in its place first: a run that finds it dead again waits again.\n\n\
                            Exit codes: 0 it is written down, 1 there is no such connection, 3 could not.\n\n\
                            Example:\n  tidegate runs reconnected --tenant acme conn_stripe"
    )]
    Reconnected(RunsReconnected),
    /// Runs of all tenants that were quarantined, and what was kept of them
    #[command(after_help = "Exit codes: 0 listed, 3 nobody answers.\n\nExample:\n  tidegate runs quarantined")]
    Quarantined(RunsQuarantined),
    /// Let admission pass a damaged place of the event log that it is halted at
    #[command(
        after_help = "Look at it first: `tidegate log verify` says what is damaged. Events of that place begin no run; what comes behind\n\
                            it does, and `tidegate runs replay` finds what can be read of it later.\n\n\
                            Exit codes: 0 it goes on, 1 it is not halted at one, 3 could not.\n\n\
                            Example:\n  tidegate runs pass-damage"
    )]
    PassDamage(RunsPlain),
    /// Events that could not be admitted and were set aside, and trying them again
    #[command(
        after_help = "What crashes admission, or fails for minutes while other events of its tenant get through, is set aside so that its\n\
                            tenant goes on. It begins no run until it is tried again; what gets through is listed no more.\n\n\
                            Exit codes: 0 listed, or tried, 3 nobody answers.\n\n\
                            Example:\n  tidegate runs set-aside\n  tidegate runs set-aside --retry"
    )]
    SetAside(RunsSetAside),
    /// Make the index of runs anew from the ledger
    #[command(
        after_help = "The index holds nothing that the ledger does not: lists may be incomplete until it has caught up. Where a part of the\n\
                            ledger is damaged it says which segment and which bytes, and the index stays as it was.\n\n\
                            Exit codes: 0 made, 3 could not.\n\nExample:\n  tidegate runs rebuild"
    )]
    Rebuild(RunsPlain),
    /// How the runner is: its ledger, its queues, how far admission and index are behind
    #[command(after_help = "Exit codes: 0 shown, 3 nobody answers.\n\nExample:\n  tidegate runs stat --json")]
    Stat(RunsPlain),
    /// Make a token of the runner's API, and the table for the tenant's file
    #[command(after_help = "The token goes to standard output and is a secret; the file has its digest only.\n\n\
                            Exit codes: 0 made, 3 could not.\n\nExample:\n  tidegate runs token --name console --scope operate")]
    Token(RunsToken),
}

#[derive(Debug, Subcommand)]
pub(crate) enum Automations {
    /// Store an automation, as a new one or as the next version of one of the same name
    #[command(
        after_help = "YAML, or JSON where the file's name ends in .json. What is there already in the same words makes no version.\n\n\
                            Exit codes: 0 stored, 1 it has faults, and all are told, 3 could not.\n\n\
                            Examples:\n  tidegate automations put --tenant acme order-mail.yaml\n  \
                            tidegate automations put --tenant acme --id aut_01kc7yqz4w3h5v8m2n6p9r1t4c order-mail.yaml"
    )]
    Put(AutomationsPut),
    /// List a tenant's automations
    #[command(
        after_help = "Exit codes: 0 listed, 3 nobody answers.\n\nExample:\n  tidegate automations list --tenant acme"
    )]
    List(AutomationsList),
    /// Show one version of an automation, as it is kept
    #[command(after_help = "Exit codes: 0 shown, 1 there is none, 3 nobody answers.\n\n\
                            Example:\n  tidegate automations show --tenant acme order-mail --number 2")]
    Show(AutomationsShow),
    /// Delete an automation: no run begins any more, and its history stays
    #[command(after_help = "Exit codes: 0 deleted, 1 there is none, 3 could not.\n\n\
                            Example:\n  tidegate automations delete --tenant acme order-mail")]
    Delete(AutomationsOf),
    /// Start a run of an automation by hand
    #[command(after_help = "Exit codes: 0 started, 1 there is none, 3 could not.\n\n\
                            Example:\n  tidegate automations start --tenant acme order-mail --input order.json")]
    Start(AutomationsStart),
    /// Say what is wrong with an automation, and store nothing
    #[command(
        after_help = "The running appliance judges it, by the connections and connectors that the tenant has.\n\n\
                            Exit codes: 0 nothing, 1 it has faults, 3 could not tell.\n\n\
                            Example:\n  tidegate automations check --tenant acme order-mail.yaml"
    )]
    Check(AutomationsCheck),
    /// Print the JSON Schema of automations, for editors
    #[command(after_help = "Example:\n  tidegate automations schema > automation.schema.json")]
    Schema,
}

/// Whose, and the running appliance that is asked.
#[derive(Debug, Args)]
pub(crate) struct OfTenant {
    /// Whose it is
    #[arg(long, value_name = "T", value_parser = TenantId::parse)]
    pub(crate) tenant: TenantId,
    #[command(flatten)]
    pub(crate) node: RunsPlain,
}

/// The running appliance that is asked.
#[derive(Debug, Args)]
pub(crate) struct RunsPlain {
    /// The appliance's file
    #[arg(long, value_name = "FILE", default_value = CONFIG_DEFAULT)]
    pub(crate) config: PathBuf,
    /// The running appliance's control socket [default: as configured]
    #[arg(long, value_name = "PATH")]
    pub(crate) socket: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) form: Form,
}

#[derive(Debug, Args)]
pub(crate) struct RunsList {
    /// Of this automation
    #[arg(long, value_name = "ID|NAME", value_parser = automation)]
    pub(crate) automation: Option<AutomationName>,
    /// In these states: queued, running, parked, needs-attention, quarantined, succeeded, failed, cancelled, timed-out,
    /// ended-ambiguous
    #[arg(long, value_name = "S,…", value_delimiter = ',', value_parser = status)]
    pub(crate) status: Vec<RunStatus>,
    /// Why they exist
    #[arg(long, value_enum, value_name = "CAUSE")]
    pub(crate) cause: Option<Cause>,
    /// Begun by events of this endpoint
    #[arg(long, value_name = "ID", value_parser = EndpointId::parse)]
    pub(crate) endpoint: Option<EndpointId>,
    /// That wait for this connection
    #[arg(long, value_name = "ID", value_parser = ConnectionId::parse)]
    pub(crate) connection: Option<ConnectionId>,
    /// Of this event, replays of it too: evt_…, or the ex_… of its 202
    #[arg(long, value_name = "ID", value_parser = event)]
    pub(crate) event: Option<EventId>,
    /// Of this replay
    #[arg(long, value_name = "NAME", value_parser = replay)]
    pub(crate) replay: Option<String>,
    /// That failed in this class (docs/failures.md)
    #[arg(long, value_name = "CLASS", value_parser = class)]
    pub(crate) class: Option<FailureClass>,
    /// Only dead letters: set aside, ended ambiguous, or tried as often as they may be
    #[arg(long)]
    pub(crate) dead_letters: bool,
    /// Admitted since then: 1h (ago), or a time
    #[arg(long, value_name = "TIME", value_parser = when::parse)]
    pub(crate) since: Option<When>,
    /// Admitted before then
    #[arg(long, value_name = "TIME", value_parser = when::parse)]
    pub(crate) until: Option<When>,
    /// At most this many
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) limit: u32,
    #[command(flatten)]
    pub(crate) of: OfTenant,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Cause {
    Event,
    Replay,
    Manual,
}

impl Cause {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Event => "event",
            Self::Replay => "replay",
            Self::Manual => "manual",
        }
    }
}

fn status(word: &str) -> Result<RunStatus, String> {
    let words = || StatusWord::ALL.iter().map(|(word, _)| *word).collect::<Vec<_>>().join(", ");
    StatusWord::parse(word).ok_or_else(|| format!("is none of {}", words()))
}

fn class(word: &str) -> Result<FailureClass, String> {
    let found = FailureClass::ALL.iter().copied().find(|class| class.code() == word);
    found.ok_or_else(|| "is no class of failures; docs/failures.md has them".to_owned())
}

fn execution(text: &str) -> Result<ExecutionName, String> {
    ExecutionName::parse(text).ok_or_else(|| "is no run_…, ex_… or evt_…".to_owned())
}

fn automation(text: &str) -> Result<AutomationName, String> {
    AutomationName::parse(text).ok_or_else(|| "is no aut_… and no name of an automation".to_owned())
}

fn event(text: &str) -> Result<EventId, String> {
    match ExecutionName::parse(text) {
        Some(ExecutionName::Event(event)) => Ok(event),
        Some(ExecutionName::Run(_)) | None => Err("is no evt_… and no ex_…".to_owned()),
    }
}

fn replay(text: &str) -> Result<String, String> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    let is_name = (1..=64).contains(&text.len()) && text.bytes().all(is_plain);
    if is_name { Ok(text.to_owned()) } else { Err("has not 1 to 64 letters, digits, '-' and '_'".to_owned()) }
}

fn reason(text: &str) -> Result<String, String> {
    let is_one = (1..=REASON_BYTES_MAX).contains(&text.len()) && !text.trim().is_empty();
    if is_one { Ok(text.to_owned()) } else { Err(format!("has not 1 to {REASON_BYTES_MAX} bytes")) }
}

fn step(text: &str) -> Result<StepId, String> {
    StepId::parse(text).ok_or_else(|| "is no id of a node".to_owned())
}

#[derive(Debug, Args)]
pub(crate) struct RunsOf {
    /// The run, or the execution that the gateway named
    #[arg(value_name = "ID", value_parser = execution)]
    pub(crate) execution: ExecutionName,
    #[command(flatten)]
    pub(crate) of: OfTenant,
}

#[derive(Debug, Args)]
pub(crate) struct RunsShow {
    /// The run, or the execution that the gateway named
    #[arg(value_name = "ID", value_parser = execution)]
    pub(crate) execution: ExecutionName,
    /// This node alone, with all that there is of it
    #[arg(long, value_name = "NODE", value_parser = step)]
    pub(crate) node: Option<StepId>,
    /// What it was given last, as it is
    #[arg(long, requires = "node", conflicts_with_all = ["output", "json"])]
    pub(crate) input: bool,
    /// What came of it, as it is
    #[arg(long, requires = "node", conflicts_with = "json")]
    pub(crate) output: bool,
    #[command(flatten)]
    pub(crate) of: OfTenant,
}

#[derive(Debug, Args)]
pub(crate) struct RunsInbox {
    /// At most this many of those that ended badly
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=200))]
    pub(crate) limit: u32,
    #[command(flatten)]
    pub(crate) of: OfTenant,
}

#[derive(Debug, Args)]
pub(crate) struct RunsDismiss {
    /// The run, or the execution that the gateway named
    #[arg(value_name = "ID", value_parser = execution)]
    pub(crate) execution: ExecutionName,
    /// Why nobody needs to look at it any more: it stands in the run's history
    #[arg(long, value_name = "TEXT", value_parser = reason)]
    pub(crate) reason: String,
    #[command(flatten)]
    pub(crate) of: OfTenant,
}

#[derive(Debug, Subcommand)]
pub(crate) enum RunsReplays {
    /// List the replays that there are
    #[command(
        after_help = "Those that were begun since the appliance started, and the newest others; of these `show` counts the runs.\n\n\
                            Exit codes: 0 listed, 3 nobody answers.\n\nExample:\n  tidegate runs replays list --tenant acme"
    )]
    List(OfTenant),
    /// Show how far a replay is, and what came of its runs
    #[command(
        after_help = "`planned` is what its plan counted, `admitted` the runs that there are, `begun` those that a worker has had, `over`\n\
                            those that have ended. One that was begun before the appliance started is `unknown`: its runs are counted, and its\n\
                            plan is not remembered.\n\n\
                            Exit codes: 0 shown, 1 there is none, 3 nobody answers.\n\n\
                            Example:\n  tidegate runs replays show --tenant acme rep_01kc7yqz4w3h5v8m2n6p9r1t4c"
    )]
    Show(ReplaysOf),
    /// Stop a replay: no more of its runs are begun, and those that are go on
    #[command(after_help = "Carrying the same plan out again, under its name, goes on with what is missing.\n\n\
                            Exit codes: 0 stopped, 1 there is none, or it is not under way, 3 could not.\n\n\
                            Example:\n  tidegate runs replays stop --tenant acme rep_01kc7yqz4w3h5v8m2n6p9r1t4c")]
    Stop(ReplaysOf),
}

#[derive(Debug, Args)]
pub(crate) struct ReplaysOf {
    /// The replay
    #[arg(value_name = "NAME", value_parser = replay)]
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) of: OfTenant,
}

#[derive(Debug, Args)]
pub(crate) struct RunsResolve {
    /// The run, or the execution that the gateway named
    #[arg(value_name = "ID", value_parser = execution)]
    pub(crate) execution: ExecutionName,
    /// The node whose effect it is
    #[arg(long, value_name = "NODE", value_parser = step)]
    pub(crate) node: StepId,
    /// What is to become of it
    #[arg(long, value_enum, value_name = "CHOICE")]
    pub(crate) choice: ChoiceWord,
    #[command(flatten)]
    pub(crate) of: OfTenant,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ChoiceWord {
    /// Go on as if it had happened
    ContinueAcceptGap,
    /// Do it again
    RetryAcceptDuplicate,
}

impl ChoiceWord {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::ContinueAcceptGap => "continue-accept-gap",
            Self::RetryAcceptDuplicate => "retry-accept-duplicate",
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct RunsReplay {
    /// One run, or the execution that the gateway named
    #[arg(value_name = "ID", value_parser = execution, conflicts_with_all = ["automation", "endpoint", "since", "until", "which", "class", "name"])]
    pub(crate) execution: Option<ExecutionName>,
    /// Events that began runs of this automation
    #[arg(long, value_name = "ID|NAME", value_parser = automation, required_unless_present_any = ["execution", "endpoint"])]
    pub(crate) automation: Option<AutomationName>,
    /// Events of this endpoint
    #[arg(long, value_name = "ID", value_parser = EndpointId::parse)]
    pub(crate) endpoint: Option<EndpointId>,
    /// Received since then: 1h (ago), or a time
    #[arg(long, value_name = "TIME", value_parser = when::parse)]
    pub(crate) since: Option<When>,
    /// Received before then
    #[arg(long, value_name = "TIME", value_parser = when::parse)]
    pub(crate) until: Option<When>,
    /// Which of them, by what came of them before
    #[arg(long, value_enum, value_name = "WHICH", default_value = "all")]
    pub(crate) which: WhichWord,
    /// Those of which a run failed in this class
    #[arg(long, value_name = "CLASS", value_parser = class, conflicts_with = "which")]
    pub(crate) class: Option<FailureClass>,
    /// What the replay is called [default: the plan's own name, under which it is carried out once]
    #[arg(long, value_name = "NAME", value_parser = replay)]
    pub(crate) name: Option<String>,
    /// Do it: effects that have happened happen again
    #[arg(long)]
    pub(crate) accept_duplicates: bool,
    #[command(flatten)]
    pub(crate) of: OfTenant,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum WhichWord {
    All,
    /// No run was ever begun
    NeverBegan,
    /// All runs are over, and none has succeeded
    NotSucceeded,
}

impl WhichWord {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::All => "all",
            Self::NeverBegan => "never-began",
            Self::NotSucceeded => "not-succeeded",
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct RunsRerun {
    /// The run, or the execution that the gateway named
    #[arg(value_name = "ID", value_parser = execution)]
    pub(crate) execution: ExecutionName,
    /// The node
    #[arg(long, value_name = "NODE", value_parser = step)]
    pub(crate) node: StepId,
    /// What goes into it, as JSON, in place of what the automation gives it; `-` is standard input
    #[arg(long, value_name = "FILE")]
    pub(crate) input: Option<PathBuf>,
    /// An effect that has happened happens again
    #[arg(long)]
    pub(crate) accept_duplicates: bool,
    #[command(flatten)]
    pub(crate) of: OfTenant,
}

#[derive(Debug, Args)]
pub(crate) struct RunsReconnected {
    /// The connection
    #[arg(value_name = "CONNECTION", value_parser = ConnectionId::parse)]
    pub(crate) connection: ConnectionId,
    #[command(flatten)]
    pub(crate) of: OfTenant,
}

#[derive(Debug, Args)]
pub(crate) struct RunsQuarantined {
    /// At most this many
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) limit: u32,
    #[command(flatten)]
    pub(crate) node: RunsPlain,
}

#[derive(Debug, Args)]
pub(crate) struct RunsSetAside {
    /// Have all of them tried again
    #[arg(long)]
    pub(crate) retry: bool,
    #[command(flatten)]
    pub(crate) node: RunsPlain,
}

#[derive(Debug, Args)]
pub(crate) struct RunsToken {
    /// Its name in the tenant's file: histories say by it who did something
    #[arg(long, value_name = "NAME", default_value = "console")]
    pub(crate) name: String,
    /// What its holder may do
    #[arg(long, value_enum, value_name = "SCOPE", default_value = "read")]
    pub(crate) scope: ScopeWord,
    #[command(flatten)]
    pub(crate) form: Form,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ScopeWord {
    /// Look
    Read,
    /// And act on runs
    Operate,
    /// And write automations
    Author,
}

impl ScopeWord {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Operate => "operate",
            Self::Author => "author",
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct AutomationsPut {
    /// The automation; `-` is standard input, as YAML
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// The automation that it is the next version of [default: the one of its name, or a new one]
    #[arg(long, value_name = "ID|NAME", value_parser = automation)]
    pub(crate) id: Option<AutomationName>,
    /// Only if this is the last version
    #[arg(long, value_name = "N", requires = "id")]
    pub(crate) if_version: Option<Version>,
    #[command(flatten)]
    pub(crate) of: OfTenant,
}

#[derive(Debug, Args)]
pub(crate) struct AutomationsList {
    /// Also those that are deleted
    #[arg(long)]
    pub(crate) deleted: bool,
    #[command(flatten)]
    pub(crate) of: OfTenant,
}

#[derive(Debug, Args)]
pub(crate) struct AutomationsShow {
    /// The automation
    #[arg(value_name = "ID|NAME", value_parser = automation)]
    pub(crate) id: AutomationName,
    /// Which version [default: the last]
    #[arg(long, value_name = "N")]
    pub(crate) number: Option<Version>,
    #[command(flatten)]
    pub(crate) of: OfTenant,
}

#[derive(Debug, Args)]
pub(crate) struct AutomationsOf {
    /// The automation
    #[arg(value_name = "ID|NAME", value_parser = automation)]
    pub(crate) id: AutomationName,
    #[command(flatten)]
    pub(crate) of: OfTenant,
}

#[derive(Debug, Args)]
pub(crate) struct AutomationsStart {
    /// The automation
    #[arg(value_name = "ID|NAME", value_parser = automation)]
    pub(crate) id: AutomationName,
    /// What `input` is in its expressions, as JSON; `-` is standard input
    #[arg(long, value_name = "FILE")]
    pub(crate) input: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) of: OfTenant,
}

#[derive(Debug, Args)]
pub(crate) struct AutomationsCheck {
    /// The automation; `-` is standard input, as YAML
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    #[command(flatten)]
    pub(crate) of: OfTenant,
}

impl RunsOf {
    /// The run, where it is one that is meant and no event.
    pub(crate) fn run(&self) -> Option<RunId> {
        match self.execution {
            ExecutionName::Run(run) => Some(run),
            ExecutionName::Event(_) => None,
        }
    }
}
