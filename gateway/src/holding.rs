//! Step 5's other way out: what did not prove its sender is kept for a second look.
//!
//! A secret that was rotated on one side only, a wrong preset, a wrong public URL: found out afterwards, they must
//! not have cost a delivery. So it is held on a budget of its own, spends no tenant's limit, and touches neither
//! the log nor its order. Judged again, it is judged from the stored bytes, by the receive time's clock, and never more
//! leniently than a fresh delivery would be.

use std::sync::Arc;

use domain::{EventId, Refusal, Slot};
use eventlog::holding::{Held, NewHeld, Outcome, Proof, ResolveError, Status};
use eventlog::{AppendError, DeliveryId, HeaderBlock, NewEvent, Scope};
use listen::Head;

use crate::Gateway;
use crate::accept::No;
use crate::body::Delivery;
use crate::commit::{stored_headers, unverified_event};
use crate::endpoint::{Endpoint, seen_url};
use crate::once::{NotTaken, Taken};
use crate::record::Promoted;
use crate::scheme::{Headers, Unverified, Verified, VerifyFault};

/// What became of a held delivery that was judged again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Judgement {
    /// It is an event now, with its original id and receive time.
    Promoted,
    /// It verifies, and was an event already: somebody else promoted it.
    AlreadyPromoted,
    /// It verifies; this was a dry run.
    WouldPromote,
    /// It verifies, and is a handshake: no event comes of it.
    Handshake,
    /// It still does not verify.
    Refused(VerifyFault),
    /// Its endpoint is gone, or is another tenant's now.
    NoEndpoint,
    /// It verifies and could not be committed: it stays held.
    NotCommitted(AppendError),
    /// The log could not be asked whether it has it already: it stays held.
    Unreadable(String),
}

impl Gateway {
    /// Keeps an unverified delivery, if it can be judged again from what is stored of it and the budgets of its endpoint
    /// and of the node have room, and says no. The answer does not wait for the disk and does not tell whether it was
    /// kept.
    pub(crate) fn hold(&self, endpoint: &Endpoint, head: &Head, delivery: &Delivery, fault: &VerifyFault) -> No {
        let no = |detail, held| No { refused: Refusal::SignatureInvalid.into(), detail, held, lost: None };
        let Some(holding) = &self.parts.holding else { return no(fault.to_string(), None) };
        if !endpoint.scheme().judges_stored() {
            let why = "this scheme's proof is a secret and is never stored, so it could not be judged again";
            return no(format!("{fault}; not held: {why}"), None);
        }
        let id = self.mint.mint(delivery.received_unix_ms, Slot::of(endpoint.id().as_str()));
        let event = unverified_event(endpoint, head, delivery, id);
        match holding.hold(NewHeld { delivery: event, status: Status::Quarantined, reason: fault.label() }) {
            Ok(()) => {
                self.parts.metrics.held();
                no(fault.to_string(), Some(id))
            }
            Err(full) => {
                self.parts.metrics.held_dropped(full.label());
                no(format!("{fault}; not held: {full}"), None)
            }
        }
    }

    /// Judges a held delivery again and promotes what verifies. Asked twice, also at the same time, it promotes once:
    /// the log is looked at first, for a delivery that was promoted by a process that died before it could say so.
    pub async fn reverify(&self, held: Held, dry_run: bool) -> Judgement {
        let snapshot = self.parts.snapshot.load_full();
        let found = snapshot.by_id(&held.delivery.endpoint).filter(|e| e.tenant().id == held.delivery.tenant);
        let Some(endpoint) = found else { return Judgement::NoEndpoint };
        let verified = match judge(&endpoint, &held) {
            Ok(verified) => verified,
            Err(judgement) => return judgement,
        };
        if dry_run {
            return Judgement::WouldPromote;
        }
        self.promote(held, &endpoint, verified).await
    }

    async fn promote(&self, held: Held, endpoint: &Endpoint, verified: Verified) -> Judgement {
        let _one_at_a_time = self.promoting.lock().await;
        let id = held.delivery.id;
        let judgement = match self.find_event(Scope::Tenant(held.delivery.tenant.clone()), id).await {
            Err(reason) => return Judgement::Unreadable(reason),
            Ok(true) => Judgement::AlreadyPromoted,
            Ok(false) => {
                // A token that has proved a delivery since, or another one that was held, proves no second one.
                let claim = match (verified.once, endpoint.scheme().once_ms()) {
                    (Some(token), Some(span_ms)) => {
                        let (subject, now) = (endpoint.subject().as_u64(), self.parts.clock.unix_ms());
                        match self.once.take(subject, token, &held.delivery.body, now, span_ms) {
                            Ok(Taken::Now(claim)) => Some(claim),
                            Ok(Taken::Before(_)) | Err(NotTaken::OtherBody | NotTaken::Full) => {
                                return Judgement::Refused(VerifyFault::Replayed);
                            }
                        }
                    }
                    _ => None,
                };
                // It was stored as the scheme of that day allowed, which may have been the wrong one: what is a secret
                // to the scheme that proved it must not reach the log.
                let headers = stored_headers(endpoint.scheme(), held.delivery.headers.iter());
                let event = held.promote(Proof {
                    retention: Arc::clone(endpoint.tenant().retention()),
                    scheme: Arc::clone(&endpoint.settings().scheme),
                    secret: endpoint.secret_name(verified.key_index).into(),
                    delivery_id: verified
                        .delivery_id
                        .map(|id| DeliveryId { value: id.value.into_vec().into(), signed: id.signed }),
                    signed_at_unix_ms: verified.signed_at_unix_ms,
                });
                let source = event.peer.ip();
                let (body_bytes, received_unix_ms) = (event.body.len() as u64, event.received_unix_ms);
                if let Err(error) = self.parts.log.append(NewEvent { headers, ..event }).await {
                    return Judgement::NotCommitted(error);
                }
                if let Some(claim) = claim {
                    claim.keep(id);
                }
                self.parts.metrics.promoted();
                self.parts.recorder.promoted(&Promoted {
                    event: id,
                    tenant: endpoint.tenant().id.as_str(),
                    endpoint: endpoint.id().as_str(),
                    scheme: &endpoint.settings().scheme,
                    secret: endpoint.secret_name(verified.key_index),
                    source,
                    body_bytes,
                    received_unix_ms,
                });
                Judgement::Promoted
            }
        };
        self.resolve(id).await;
        judgement
    }

    /// Says in the holding stream that the delivery is an event now. If that fails, it is judged again some day and
    /// found in the log.
    async fn resolve(&self, id: EventId) {
        let Some(holding) = self.parts.holding.clone() else { return };
        let resolved = tokio::task::spawn_blocking(move || holding.resolve(id, Outcome::Promoted)).await;
        match resolved {
            // Somebody who asked at the same time has said so already.
            Ok(Ok(()) | Err(ResolveError::NotHeld(_))) => {}
            Ok(Err(error)) => tracing::warn!(%id, %error, "a promoted delivery is still held"),
            Err(error) => tracing::error!(%id, %error, "a promoted delivery is still held"),
        }
    }

    async fn find_event(&self, scope: Scope, id: EventId) -> Result<bool, String> {
        let log = Arc::clone(&self.parts.log);
        let found = tokio::task::spawn_blocking(move || log.by_id(&scope, id)).await;
        match found {
            Ok(Ok(event)) => Ok(event.is_some()),
            Ok(Err(error)) => Err(error.to_string()),
            Err(error) => Err(error.to_string()),
        }
    }
}

/// Judges what is stored of a delivery, by the receive time's clock.
fn judge(endpoint: &Endpoint, held: &Held) -> Result<Verified, Judgement> {
    let request = Unverified {
        method: held.delivery.method.as_bytes(),
        target: &held.delivery.target,
        url: seen_url(endpoint.public_url()),
        headers: &held.delivery.headers,
        body: &held.delivery.body,
        received_unix_ms: held.delivery.received_unix_ms,
    };
    let verified = endpoint.verify(&request).map_err(Judgement::Refused)?;
    // The provider asks again: an event of it would tell nobody anything.
    if endpoint.scheme().handshake(&request).is_some() { Err(Judgement::Handshake) } else { Ok(verified) }
}

impl Headers for HeaderBlock {
    fn visit<'s>(&'s self, name: &str, each: &mut dyn FnMut(&'s [u8])) {
        self.iter().filter(|(n, _)| n.eq_ignore_ascii_case(name.as_bytes())).for_each(|(_, value)| each(value));
    }
}
