//! `tidegate egress …`: the grammar.

use clap::{Args, Subcommand};
use domain::{ConnectorId, TenantId};
use egress::Way;
use outbound::HostPattern;

use super::{EgressClose, EgressLog, EgressRanges, EgressTop, Form, NodeOf};

#[derive(Debug, Subcommand)]
pub(crate) enum Egress {
    /// Kill switches: calls that are off, whatever the rules say
    #[command(subcommand)]
    Switch(EgressSwitch),
    /// Find decision records of calls: what was asked, by whom, what decided, where it led, what became of it
    #[command(
        after_help = "The newest come first. A call that is named by its correlation id is shown whole, hop by hop, as far back\n\
                            as records are kept; others as a list. A record is there when its hop has ended: a tunnel's, when it is shut.\n\
                            STATUS is the destination's; in brackets, what the caller got of the proxy itself.\n\n\
                            Exit codes: 0 found, 1 nothing found, 3 could not tell (nobody answers, or a part cannot be read).\n\n\
                            Examples:\n  tidegate egress log --correlation call_06dczqd2000020000000000000\n  \
                            tidegate egress log --tenant acme --since 1h --outcome address-not-allowed\n  \
                            tidegate egress log --destination api.stripe.com --limit 1000 --json"
    )]
    Log(EgressLog),
    /// Show the calls that are under way: who makes them, where they lead, and what passes
    #[command(
        after_help = "On a terminal it goes on until it is interrupted; else it looks twice, so that there are rates, and ends.\n\
                            A request's bytes are known once its answer has begun; a tunnel's, at once. `ports` is the destination that\n\
                            each exit address has most connections to, and how many there may be.\n\n\
                            Exit codes: 0 shown, 3 nobody answers.\n\n\
                            Examples:\n  tidegate egress top\n  tidegate egress top --tenant acme --by age --limit 50\n  \
                            tidegate egress top --json"
    )]
    Top(EgressTop),
    /// Close one call under way, tunnel or request; nothing keeps its caller from making another
    #[command(
        after_help = "Its record says `switched-off`. `tidegate egress switch off` keeps calls from coming back.\n\n\
                            Exit codes: 0 closed, 1 no call of this id is under way, 3 nobody answers.\n\n\
                            Example:\n  tidegate egress close call_06dczqd2000020000000000000"
    )]
    Close(EgressClose),
    /// Exit ranges: announce, activate, drain and retire them, and publish what they are
    #[command(subcommand)]
    Ranges(EgressRanges),
}

#[derive(Debug, Subcommand)]
pub(crate) enum EgressSwitch {
    /// Switch calls off that fit all that is named; in force within a second, and after restarts
    #[command(
        after_help = "A tenant that is not configured here is switched off all the same, with a warning: it may be another node's.\n\
                            While the appliance's file is faulty, the running appliance is asked where its state is.\n\n\
                            Exit codes: 0 switched off, 3 could not.\n\n\
                            Examples:\n  tidegate egress switch off --tenant acme --reason 'runaway, ticket 4711'\n  \
                            tidegate egress switch off --destination '*.example.com' --way connect"
    )]
    Off(EgressSwitchOff),
    /// Lift a switch; what it named has to be named again
    #[command(after_help = "Exit codes: 0 lifted, 1 there is no such switch, 3 could not.\n\n\
                            Example:\n  tidegate egress switch on --tenant acme")]
    On(EgressSwitchOn),
    /// Which calls are off, since when, and why
    #[command(after_help = "Example:\n  tidegate egress switch list")]
    List(EgressSwitchList),
}

/// Which calls.
#[derive(Debug, Args)]
#[group(required = true, multiple = true)]
pub(crate) struct SwitchScope {
    /// Calls of this tenant
    #[arg(long, value_name = "TENANT", value_parser = TenantId::parse)]
    pub(crate) tenant: Option<TenantId>,
    /// Calls to this connector's hosts
    #[arg(long, value_name = "CONNECTOR", value_parser = ConnectorId::parse)]
    pub(crate) connector: Option<ConnectorId>,
    /// Calls to this host, or to the hosts of a zone (`*.example.com`)
    #[arg(long, value_name = "HOST", value_parser = HostPattern::parse)]
    pub(crate) destination: Option<HostPattern>,
    /// Calls that come in this way: connect, absolute or governed
    #[arg(long, value_name = "WAY", value_parser = way)]
    pub(crate) way: Option<Way>,
}

fn way(text: &str) -> Result<Way, &'static str> {
    Way::ALL.iter().copied().find(|way| way.as_str() == text).ok_or("is connect, absolute or governed")
}

#[derive(Debug, Args)]
pub(crate) struct EgressSwitchOff {
    #[command(flatten)]
    pub(crate) scope: SwitchScope,
    /// Why, for whoever finds it later
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub(crate) reason: String,
    #[command(flatten)]
    pub(crate) node: NodeOf,
    #[command(flatten)]
    pub(crate) form: Form,
}

#[derive(Debug, Args)]
pub(crate) struct EgressSwitchOn {
    #[command(flatten)]
    pub(crate) scope: SwitchScope,
    #[command(flatten)]
    pub(crate) node: NodeOf,
    #[command(flatten)]
    pub(crate) form: Form,
}

#[derive(Debug, Args)]
pub(crate) struct EgressSwitchList {
    #[command(flatten)]
    pub(crate) node: NodeOf,
    #[command(flatten)]
    pub(crate) form: Form,
}
