//! The API for those who write automations, without a socket: requests in, answers out.
//!
//! ```text
//! listener (who asks?) ─▶ Api::answer ─▶ Route ─▶ request, read and bounded ─▶ Desk ─▶ JSON, or a problem document
//! control socket ───────▲
//! ```
//!
//! - Who asks is established before: an [`Asker`] is one tenant, always, and no request can name another.
//! - What is not there and what is somebody else's get the same bytes: [`No::NotFound`], and nothing else.
//! - Bodies are bounded before they get here. Of a body that is wrong, all faults are told at once, each with its path.
//! - [`Desk`] is everything that the API can do. The appliance's own one stands on ledger, definitions and index; tests
//!   have one of their own.

mod answer;
mod asker;
mod body;
mod desk;
mod forms;
mod handle;
mod no;
mod openapi;
mod operations;
mod query;
mod route;

#[cfg(test)]
mod tests;

pub use answer::{ApiAnswer, ApiRequest};
pub use asker::{Asker, Scope};
pub use body::{Confirmed, Dismiss, Document, DocumentForm, Replays, Rerun, Resolve, Start, StartReplays, Which};
pub use desk::{Desk, Inbox, Page, Payload, PlannedReplay, ReplayProgress, ReplayRuns, Replayed, Saved};
pub use handle::Api;
pub use no::{DocumentFault, No};
pub use openapi::OPENAPI;
pub use operations::Operations;
pub use query::{CauseWord, ExecutionFilter, LIMIT_DEFAULT, LIMIT_MAX, StatusWord};
pub use route::{AutomationName, ExecutionName, ROUTES, Route};
