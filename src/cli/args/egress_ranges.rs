//! `tidegate egress ranges …`: the grammar.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use egress::ranges::{City, Country, PoolName, Prefix, Reason, Region};

use super::{ConfigFile, Form};

#[derive(Debug, Subcommand)]
pub(crate) enum EgressRanges {
    /// Say that calls will leave from a range; they may when its notice is over and it is activated
    #[command(after_help = "The notice is `egress.ranges.notice` of the appliance's file, as it is now.\n\n\
                            Exit codes: 0 announced, 1 against the rules, 3 could not.\n\n\
                            Examples:\n  tidegate egress ranges announce 93.184.216.0/24 --country DE --region DE-BE --city Berlin\n  \
                            tidegate egress ranges announce 2600:1f00:1234::/48 --pool eu\n  \
                            tidegate egress ranges announce 93.184.216.0/24 93.184.217.0/24 --force --reason 'in use since 2024'")]
    Announce(RangeAnnounce),
    /// Let calls leave from an announced range
    #[command(after_help = "Exit codes: 0 active, 1 against the rules (its notice is not over), 3 could not.\n\n\
                            Examples:\n  tidegate egress ranges activate 93.184.216.0/24\n  \
                            tidegate egress ranges activate 93.184.216.0/24 --force --reason 'the old range was taken from us'")]
    Activate(RangeForced),
    /// Begin to give a range up: it stays ours for as long as `egress.ranges.drain` says
    #[command(
        after_help = "Exit codes: 0 draining, 1 against the rules (a pool would be left without), 3 could not.\n\n\
                            Example:\n  tidegate egress ranges drain 93.184.216.0/24"
    )]
    Drain(RangePlain),
    /// Give a draining range up for good
    #[command(
        after_help = "Exit codes: 0 retired, 1 against the rules (still used, or promised for longer), 3 could not.\n\n\
                            Example:\n  tidegate egress ranges retire 93.184.216.0/24"
    )]
    Retire(RangeForced),
    /// Take an announcement back that was a mistake; its --reason is published
    #[command(after_help = "Exit codes: 0 withdrawn, 1 against the rules, 3 could not.\n\n\
                            Example:\n  tidegate egress ranges withdraw 93.184.215.0/24 --reason 'a typing error'")]
    Withdraw(RangePlain),
    /// Publish the same again, with a new date of validity
    #[command(after_help = "Exit codes: 0 renewed, 1 there is nothing to renew, 3 could not.\n\n\
                            Examples:\n  tidegate egress ranges renew\n  tidegate egress ranges renew --new-key")]
    Renew(RangeRenew),
    /// The ranges, how far they have come, and what may come next
    #[command(after_help = "Examples:\n  tidegate egress ranges list\n  tidegate egress ranges list --json")]
    List(RangesRead),
    /// Every change there was
    #[command(after_help = "Example:\n  tidegate egress ranges history")]
    History(RangesRead),
    /// Write everything that is published into a directory, for any web host
    #[command(
        after_help = "The directory is for this alone, and is exchanged as a whole: a document never stands beside the\n\
                            signature of another one. Serve it as /.well-known/.\n\n\
                            Exit codes: 0 written, 1 there is nothing to publish, 3 could not.\n\n\
                            Example:\n  tidegate egress ranges export /srv/www/well-known"
    )]
    Export(RangesExport),
    /// Take over a book that was written on another machine, if it continues the one that is here
    #[command(
        after_help = "Where no book is here yet, --key is needed. A node that runs takes a book of another key when it is\n\
                            started again.\n\n\
                            Exit codes: 0 taken over, 1 it does not continue the one that is here or is another key's, 3 could not.\n\n\
                            Examples:\n  tidegate egress ranges import egress-ranges.book --key pinned.pem\n  \
                            tidegate egress ranges import egress-ranges.book\n  \
                            tidegate egress ranges import egress-ranges.book --key new.pem --new-key"
    )]
    Import(RangesImport),
    /// Check published documents: signature, validity, and that each continues the one before
    #[command(
        after_help = "Name them from old to new. The signature of FILE is FILE.sig. Without --key the key beside the\n\
                            first document is taken, which shows only that they belong together and proves nothing:\n\
                            the exit code is never 0 then.\n\n\
                            Exit codes: 0 they are right, 1 they are not or there is no --key, 3 could not tell.\n\n\
                            Examples:\n  tidegate egress ranges verify egress-ranges.json --key pinned.pem\n  \
                            tidegate egress ranges verify egress-ranges/6.json egress-ranges.json --key pinned.pem"
    )]
    Verify(RangesVerify),
    /// Show the key that signs what is published, or make it
    #[command(after_help = "Exit codes: 0 shown or made, 3 could not.\n\n\
                            Examples:\n  tidegate egress ranges key --make\n  tidegate egress ranges key > egress-ranges.pub.pem")]
    Key(RangesKey),
}

#[derive(Debug, Args)]
pub(crate) struct RangeAnnounce {
    /// The ranges, such as 93.184.216.0/24: all of them, or none
    #[arg(value_name = "PREFIX", required = true, num_args = 1..=64)]
    pub(crate) prefixes: Vec<Prefix>,
    /// Only for this pool; everybody can read its name [default: for any]
    #[arg(long, value_name = "NAME")]
    pub(crate) pool: Option<PoolName>,
    /// Where it is, for the geofeed: ISO 3166-1, such as DE
    #[arg(long, value_name = "CC")]
    pub(crate) country: Option<Country>,
    /// ISO 3166-2, such as DE-BE
    #[arg(long, value_name = "CC-R", requires = "country")]
    pub(crate) region: Option<Region>,
    /// Its city
    #[arg(long, value_name = "NAME", requires = "country")]
    pub(crate) city: Option<City>,
    /// They are in use already: activate them in the same step, without a notice; needs a --reason
    #[arg(long, requires = "reason")]
    pub(crate) force: bool,
    /// Said with it in the history, which everybody can read
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: Option<Reason>,
    #[command(flatten)]
    pub(crate) file: ConfigFile,
    #[command(flatten)]
    pub(crate) form: Form,
}

#[derive(Debug, Args)]
pub(crate) struct RangePlain {
    /// The range, as it was announced
    #[arg(value_name = "PREFIX")]
    pub(crate) prefix: Prefix,
    /// Said with it in the history, which everybody can read
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: Option<Reason>,
    #[command(flatten)]
    pub(crate) file: ConfigFile,
    #[command(flatten)]
    pub(crate) form: Form,
}

#[derive(Debug, Args)]
pub(crate) struct RangeForced {
    /// Do not wait until the date that was published; needs a --reason
    #[arg(long, requires = "reason")]
    pub(crate) force: bool,
    #[command(flatten)]
    pub(crate) plain: RangePlain,
}

#[derive(Debug, Args)]
pub(crate) struct RangeRenew {
    /// Sign by another key from this version on: who has pinned the old one has to be told
    #[arg(long)]
    pub(crate) new_key: bool,
    /// Said with it in the history, which everybody can read
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: Option<Reason>,
    #[command(flatten)]
    pub(crate) file: ConfigFile,
    #[command(flatten)]
    pub(crate) form: Form,
}

#[derive(Debug, Args)]
pub(crate) struct RangesRead {
    #[command(flatten)]
    pub(crate) file: ConfigFile,
    #[command(flatten)]
    pub(crate) form: Form,
}

#[derive(Debug, Args)]
pub(crate) struct RangesExport {
    /// The directory; it is made, or holds an earlier export and nothing else
    #[arg(value_name = "DIR")]
    pub(crate) directory: PathBuf,
    #[command(flatten)]
    pub(crate) file: ConfigFile,
    #[command(flatten)]
    pub(crate) form: Form,
}

#[derive(Debug, Args)]
pub(crate) struct RangesImport {
    /// The other machine's book
    #[arg(value_name = "FILE")]
    pub(crate) book: PathBuf,
    /// The public key that it has to be signed by, PEM or `ed25519:…` in a file
    #[arg(long, value_name = "FILE")]
    pub(crate) key: Option<PathBuf>,
    /// That key may be another one than signed the book that is here
    #[arg(long, requires = "key")]
    pub(crate) new_key: bool,
    #[command(flatten)]
    pub(crate) file: ConfigFile,
    #[command(flatten)]
    pub(crate) form: Form,
}

#[derive(Debug, Args)]
pub(crate) struct RangesVerify {
    /// Documents, from old to new
    #[arg(value_name = "FILE", required = true, num_args = 1..=1000)]
    pub(crate) documents: Vec<PathBuf>,
    /// The public key, PEM or `ed25519:…` in a file [default: egress-ranges.pub.pem beside the first document]
    #[arg(long, value_name = "FILE")]
    pub(crate) key: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) form: Form,
}

#[derive(Debug, Args)]
pub(crate) struct RangesKey {
    /// Make it, where `egress.ranges.signing_key` has its file; one that is there is never replaced
    #[arg(long)]
    pub(crate) make: bool,
    #[command(flatten)]
    pub(crate) file: ConfigFile,
    #[command(flatten)]
    pub(crate) form: Form,
}
