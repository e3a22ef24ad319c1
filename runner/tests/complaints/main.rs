//! What users of other systems complain of, as what must hold here: the real engine, ledger, scheduler, admission, index
//! and definitions, real connectors' manifests, and a provider that counts. `README.md` says which complaint is which test.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod connections;
mod duplicates;
mod edits_and_notices;
mod expressions;
mod lost_triggers;
mod neighbours;
mod payloads;
mod process;
mod provider;
mod retries;
mod stuck;
mod time_and_history;
mod world;
