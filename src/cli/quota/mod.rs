//! `tidegate quota …`: what an operator sees of providers' limits, and does about them, through the running appliance.

mod acts;
mod buckets;
mod explain;
mod guards;
#[cfg(test)]
mod tests;

use domain::text::Untrusted;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::args::{Asked, Quota};
use super::events::source::unanswered;
use super::exit::Outcome;
use super::table::Cell;
use super::{Shell, block_on, running};
use crate::control::client::Client;

/// A bucket's name has three names of up to 64 bytes beside a provider's, and two words.
const TEXT_BYTES_MAX: usize = 600;

pub(super) fn run(command: &Quota, shell: &mut Shell<'_>) -> Outcome {
    match command {
        Quota::List(args) => buckets::list(args, shell),
        Quota::Show(args) => buckets::show(args, shell),
        Quota::Explain(args) => explain::run(args, shell),
        Quota::Park(args) => acts::park(args, shell),
        Quota::Release(args) => acts::release(args, shell),
        Quota::Reset(args) => acts::reset(args, shell),
        Quota::Breakers(args) => guards::breakers(args, shell),
        Quota::Runaways(args) => guards::runaways(args, shell),
        Quota::Resume(args) => acts::resume(args, shell),
        Quota::Announce(args) => acts::announce(args, shell),
        Quota::Withdraw(args) => acts::withdraw(args, shell),
    }
}

/// One question to the running appliance.
fn ask<Q: Serialize, T: DeserializeOwned>(asked: &Asked, path: &str, query: &Q, shell: &mut Shell<'_>) -> Outcome<T> {
    let socket = running::socket(asked.socket.as_deref(), &asked.config, shell)?;
    block_on(async {
        let mut client = Client::connect(&socket).await.map_err(|error| unanswered(&error))?;
        client.ask(path, query).await.map_err(|error| unanswered(&error))
    })
}

/// What came over the socket, safe for a terminal.
fn safe(text: &str) -> String {
    Untrusted::with_limit(text.as_bytes(), TEXT_BYTES_MAX).to_string()
}

/// A name that has to be whole, since somebody will type it again.
fn name(text: &str) -> Cell {
    Cell::from(safe(text))
}

/// Thousandths, with as many places as say something.
fn milli(milli: u64) -> String {
    let (whole, rest) = (milli / 1_000, milli % 1_000);
    if rest == 0 { whole.to_string() } else { format!("{whole}.{rest:03}").trim_end_matches('0').to_owned() }
}
