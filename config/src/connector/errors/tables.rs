//! A manifest's `[errors]`, as it is written.

use super::{ErrorClass, class};
use crate::connector::action::{StatusRange, status};
use crate::connector::manifest::{date, sentence};
use crate::connector::quota::{JsonPath, WhenTable, json_path};
use crate::form::{List, Located, Maybe, Placed, Table, needed, settings};

/// Far above any provider's list; they are looked at with each failure.
const RULES_MAX: usize = 64;

settings! {
    /// What answers of the provider mean.
    pub(crate) struct ErrorsTable {
        /// When it was last compared with its sources: `YYYY-MM-DD`.
        checked: String = String::new(), date(), live, "Providers change.";
        /// Where this was read: URLs.
        sources: Vec<String> = Vec::new(), List(sentence(), 0..=16), live, "Whoever doubts can look.";
        /// What of it no source says, in sentences.
        recalled: Vec<String> = Vec::new(), List(sentence(), 0..=32), live,
            "What is documented is promised; what is not is to be looked at first when a failure has the wrong class.";
        /// Places of the provider's own words; the first that has some counts.
        message: Vec<JsonPath> = Vec::new(), List(json_path(), 0..=16), live,
            "Without it, the common places: `error.message`, `message`, `errors[].message`, `detail` and others.";
        /// Places of more words, which go behind them; members found by `*` are named.
        details: Vec<JsonPath> = Vec::new(), List(json_path(), 0..=16), live, "Which field it was stands there.";
        /// Answers that say that the credential is dead. A 401 says so too, unless a rule says otherwise.
        auth_death: Vec<Located<DeathTable>> = Vec::new(), List(Placed(Table), 0..=RULES_MAX), live,
            "The run then waits for a new connection, and is not tried again.";
        /// Other answers and what they mean; the first that matches counts, and before what the status alone says.
        rule: Vec<Located<RuleTable>> = Vec::new(), List(Placed(Table), 0..=RULES_MAX), live, "";
    }

    /// An answer that says that the credential is dead. All that is written must hold.
    pub(crate) struct DeathTable {
        /// Its status: one of these.
        status: Vec<StatusRange> = Vec::new(), List(status(), 0..=16), live, "Without it, any of 400 and above.";
        /// Its header.
        when: Option<WhenTable> = None, Maybe(Table), live, "";
        /// A place in its JSON body.
        at: Option<Located<JsonPath>> = None, Maybe(Placed(json_path())), live,
            "A word anywhere in a body could be the tenant's own data.";
        /// The text or number there is one of these.
        values: Vec<String> = Vec::new(), List(sentence(), 0..=64), live, "Without it and `contains`, anything there.";
        /// The text there has one of these in it, without regard to case.
        contains: Vec<String> = Vec::new(), List(sentence(), 0..=32), live, "Without it and `values`, anything there.";
    }

    /// An answer and what it means. All that is written must hold.
    pub(crate) struct RuleTable {
        /// Its status: one of these.
        status: Vec<StatusRange> = Vec::new(), List(status(), 0..=16), live, "Without it, any of 400 and above.";
        /// Its header.
        when: Option<WhenTable> = None, Maybe(Table), live, "";
        /// A place in its JSON body.
        at: Option<Located<JsonPath>> = None, Maybe(Placed(json_path())), live,
            "A word anywhere in a body could be the tenant's own data.";
        /// The text or number there is one of these.
        values: Vec<String> = Vec::new(), List(sentence(), 0..=64), live, "Without it and `contains`, anything there.";
        /// The text there has one of these in it, without regard to case.
        contains: Vec<String> = Vec::new(), List(sentence(), 0..=32), live, "Without it and `values`, anything there.";
        /// What it means: a class of `docs/failures.md`.
        class: Option<Located<ErrorClass>> = None, needed(Maybe(Placed(class()))), live, "It decides what happens next.";
    }
}
