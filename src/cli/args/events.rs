//! `tidegate events …`

use clap::{Args, Subcommand};
use domain::event_id::EventId;
use domain::id::{EndpointId, TenantId};

use super::{Form, Place};
use crate::cli::when::{self, When};
use crate::control::wire::NEWEST_MAX;

/// Whose events, and where they are.
#[derive(Debug, Args)]
pub(crate) struct Scope {
    /// Events of this tenant
    #[arg(long, value_name = "T", value_parser = TenantId::parse)]
    pub(crate) tenant: Option<TenantId>,
    /// Events of this endpoint; its tenant is looked up in the configuration
    #[arg(long, value_name = "ID", value_parser = EndpointId::parse)]
    pub(crate) endpoint: Option<EndpointId>,
    /// Events of every tenant: the operator's own view
    #[arg(long, conflicts_with = "tenant")]
    pub(crate) all_tenants: bool,
    #[command(flatten)]
    pub(crate) place: Place,
}

/// Which span of time.
#[derive(Debug, Args)]
pub(crate) struct Span {
    /// Received at this time or later: 1h for that long ago, RFC 3339, or Unix seconds
    #[arg(long, value_name = "TIME", value_parser = when::parse)]
    pub(crate) since: Option<When>,
    /// Received before this time
    #[arg(long, value_name = "TIME", value_parser = when::parse)]
    pub(crate) until: Option<When>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Events {
    /// List the newest events, oldest of them first
    #[command(after_help = "Without --since it looks at the last 24 hours; with --held at everything.\n\n\
                            Reads what the newest take; passes over damage there and names it on standard error.\n\n\
                            Exit codes: 0 done, 1 damage may hide events that belong here, 3 could not read the log.\n\n\
                            Examples:\n  tidegate events list --tenant acme --since 1h\n  \
                            tidegate events list --endpoint wh_9f2c1b7a --held")]
    List(EventsList),
    /// Show one event: its headers and its body
    #[command(after_help = "Headers that look like secrets are redacted unless --reveal is given.\n\n\
                            Exit codes: 0 shown, 1 there is no such event, 3 could not read the log.\n\n\
                            Example:\n  tidegate events show evt_03apb6w5hwagm7bqsb91m3kwyd --tenant acme")]
    Show(EventsShow),
    /// Follow events as they are committed
    #[command(
        after_help = "Ends on Ctrl-C, at damage in the log unless --skip-damage is given, and when its output is not\n\
                            read for half a minute.\n\n\
                            Exit codes: 3 could not read the log, or not on.\n\nExample:\n  tidegate events tail --tenant acme"
    )]
    Tail(EventsTail),
    /// Print events whole, as JSON lines with the body in base64
    #[command(
        after_help = "Nothing is redacted: treat the output as you treat the log. Ends at damage in the log unless\n\
                            --skip-damage is given. What retention trims meanwhile is left out, with a remark.\n\n\
                            Exit codes: 0 done, 1 damage was passed over, 3 could not read the log.\n\n\
                            Example:\n  tidegate events export --tenant acme --since 24h > events.jsonl"
    )]
    Export(EventsExport),
    /// Judge held deliveries again as of their receive time, and promote what verifies
    #[command(
        after_help = "For deliveries that failed under a secret that was wrong here, not there: put the secret right first.\n\n\
                            Exit codes: 0 all of them verify, 1 some still do not, 3 no appliance answers.\n\n\
                            Example:\n  tidegate events reverify --endpoint wh_9f2c1b7a --dry-run"
    )]
    Reverify(EventsReverify),
}

#[derive(Debug, Args)]
pub(crate) struct EventsList {
    #[command(flatten)]
    pub(crate) scope: Scope,
    #[command(flatten)]
    pub(crate) span: Span,
    /// At most this many, the newest
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=i64::from(NEWEST_MAX)))]
    pub(crate) limit: u32,
    /// Deliveries that did not verify and are held, instead of events
    #[arg(long)]
    pub(crate) held: bool,
    /// A list always does; accepted so that scripts can say it everywhere
    #[arg(long, hide = true)]
    pub(crate) skip_damage: bool,
    #[command(flatten)]
    pub(crate) form: Form,
}

#[derive(Debug, Args)]
pub(crate) struct EventsShow {
    /// The event
    #[arg(value_name = "EVENT")]
    pub(crate) id: EventId,
    #[command(flatten)]
    pub(crate) scope: Scope,
    /// Look among the deliveries that did not verify and are held
    #[arg(long)]
    pub(crate) held: bool,
    /// Show headers that look like secrets, too
    #[arg(long)]
    pub(crate) reveal: bool,
    /// Write nothing but the body's bytes, as they came
    #[arg(long, conflicts_with = "json")]
    pub(crate) body_only: bool,
    #[command(flatten)]
    pub(crate) form: Form,
}

#[derive(Debug, Args)]
pub(crate) struct EventsTail {
    #[command(flatten)]
    pub(crate) scope: Scope,
    /// Begin here instead of with what is committed from now on
    #[arg(long, value_name = "TIME", value_parser = when::parse)]
    pub(crate) since: Option<When>,
    /// Go on behind damage in the log, and name on standard error what was passed over
    #[arg(long)]
    pub(crate) skip_damage: bool,
    #[command(flatten)]
    pub(crate) form: Form,
}

#[derive(Debug, Args)]
pub(crate) struct EventsExport {
    #[command(flatten)]
    pub(crate) scope: Scope,
    #[command(flatten)]
    pub(crate) span: Span,
    /// Held deliveries instead of events
    #[arg(long)]
    pub(crate) held: bool,
    /// Stop after this many
    #[arg(long, value_name = "N")]
    pub(crate) limit: Option<u64>,
    /// Go on behind damage in the log, and name on standard error what was passed over
    #[arg(long)]
    pub(crate) skip_damage: bool,
    /// JSON lines are the only form; accepted so that scripts can say it everywhere
    #[arg(long, hide = true)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct EventsReverify {
    /// Only these deliveries [default: all of the scope]
    #[arg(value_name = "EVENT")]
    pub(crate) ids: Vec<EventId>,
    #[command(flatten)]
    pub(crate) scope: Scope,
    /// Say what would be promoted, and promote nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    #[command(flatten)]
    pub(crate) form: Form,
}
