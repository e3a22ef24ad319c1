//! What a tenant's file says of its runs, as it is written.

use super::tenant::RunnerScope;
use crate::egress::token_hash;
use crate::form::{Choice, Count, List, Located, Maybe, Moment, Placed, Table, needed, settings};
use crate::settings::class_name;

settings! {
    /// Who may ask for the tenant's runs, and how many of them go on at one time.
    pub(crate) struct RunnerTable {
        /// Its tier, one of `[[runner.tier]]` of the appliance's file.
        tier: Option<Located<String>> = None, Maybe(Placed(class_name())), live,
            "Without it, the one named `default`, if there is one.";
        /// Runs of this tenant that are worked on at one time, if that is less than its tier allows.
        concurrency: Option<u32> = None, Maybe(Count(1..=65_536)), live,
            "For whom fewer at a time is better: a provider that takes one call after the other, or an order that has to be kept.";
        /// Tokens of the runner's API (`runner.api` of the appliance's file).
        token: Vec<Located<RunnerTokenTable>> = Vec::new(), List(Placed(Table), 0..=1024), live, "";
    }

    /// A token of the runner's API. Whoever has it asks for this tenant, and sees nobody else's.
    pub(crate) struct RunnerTokenTable {
        /// Its name: histories say by it who did something.
        name: String = String::new(), needed(class_name()), live, "Histories say who acted and never show a token.";
        /// `sha256:` and the digest of the token in hex, as `printf %s TOKEN | sha256sum` prints it. A token begins with `tgr_`: `tidegate runs token` makes one, and this table.
        hash: Option<[u8; 32]> = None, needed(Maybe(token_hash())), live,
            "Whoever reads this file cannot ask with what is in it.";
        /// What its holder may do: `read` looks; `operate` also starts, cancels, decides, replays and re-runs; `author` also writes automations.
        scope: RunnerScope = RunnerScope::Read,
            Choice(&[("read", RunnerScope::Read), ("operate", RunnerScope::Operate), ("author", RunnerScope::Author)]), live,
            "Who said nothing more may look.";
        /// When it ends, such as `2026-01-31T12:00:00Z`.
        not_after: Option<u64> = None, Maybe(Moment), live, "It counts until it is taken out.";
    }
}
