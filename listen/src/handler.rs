//! What a listener hands requests to.

use std::net::SocketAddr;

use async_trait::async_trait;
use domain::Refusal;

use crate::{Answer, Exchange, Reply};

/// Answers requests. One call at a time per connection.
///
/// Its future is boxed on purpose: it lives for one request, while a connection's own task lives, mostly idle, for as
/// long as the client keeps the connection, and would have to keep room for it.
#[async_trait]
pub trait Handler: Send + Sync + 'static {
    /// Answers one request. Whoever does not read the body closes the connection, unless it has arrived already.
    async fn handle(&self, exchange: &mut Exchange) -> Reply;

    /// The answer to what never became a request: all refusals of the gate come through here, so that bodies are made
    /// in one place. The connection is closed behind it whatever it says.
    fn refused(&self, peer: SocketAddr, refusal: Refusal) -> Answer;

    /// The same for [`Refusal::MalformedRequest`], where it is known which check failed. `why` is ours and holds nothing of
    /// what was sent: it is for the log, and never for the answer.
    fn malformed(&self, peer: SocketAddr, why: &'static str) -> Answer {
        let _ = why;
        self.refused(peer, Refusal::MalformedRequest)
    }

    /// The answer to a request to a proxy ([`Forms::Proxy`](crate::http::Forms::Proxy)) whose `Host` names another place
    /// than its target. The connection is closed behind it.
    fn host_differs(&self, peer: SocketAddr) -> Answer {
        self.refused(peer, Refusal::MalformedRequest)
    }
}
