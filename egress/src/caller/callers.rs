//! Who asks, decided: everything that proves a caller, in one place.
//!
//! In order: is the connection one that a proof may come over; what kind of proof is it; does it hold; is it revoked.
//! All of it is asked on every call. What is kept between calls is that a signature was checked, and that is forgotten
//! with the issuers it was checked under.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::ArcSwap;
use domain::{Clock, TenantId};
use listen::Vouching;
use ratelimit::Source;
use ring::digest::{Context, SHA256};
use tokio::sync::watch;

use super::cache::{Cache, Verified};
use super::certificate::{CertificateEntry, CertificateMatch, Certificates, NotOne, PeerCertificate};
use super::forgeries::Forgeries;
use super::issuers::{IssuerEntry, Issuers};
use super::presented::{Presented, looks_like_proof};
use super::revocation::node::Revocations;
use super::token::{TOKEN_PREFIX, TokenEntry, TokenHash, Tokens};
use super::unproved::{GrantFault, Unproved};
use super::uses::Uses;
use super::{Caller, Identity};

/// The connection that a request came over.
#[derive(Debug, Clone, Copy)]
pub struct Arrival<'a> {
    /// Who is at the other end.
    pub peer: IpAddr,
    /// At which of our addresses.
    pub local: IpAddr,
    /// How it is protected.
    pub tls: Tls<'a>,
    /// Whether a false proof came over it before.
    pub is_distrusted: bool,
}

/// TLS towards a caller.
#[derive(Debug, Clone, Copy)]
pub enum Tls<'a> {
    /// None.
    Absent,
    /// With no certificate of the caller's.
    Anonymous,
    /// With this one, which the listener verified.
    Mutual(&'a PeerCertificate),
}

/// Where proofs are taken over connections without TLS.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PlaintextGrants {
    /// Where both ends are on this machine.
    #[default]
    Loopback,
    /// Nowhere.
    Never,
}

/// Who may come, as it is configured.
#[derive(Debug, Clone, Default)]
pub struct CallerSettings {
    /// What a grant's `aud` has to be.
    pub audience: Box<str>,
    /// Where proofs are taken over connections without TLS.
    pub plaintext: PlaintextGrants,
    /// Who issues grants.
    pub issuers: Vec<IssuerEntry>,
    /// Every tenant's static tokens.
    pub tokens: Vec<TokenEntry>,
    /// Every client certificate.
    pub certificates: Vec<CertificateEntry>,
}

/// What was left out, since it would not be clear whose it is.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LeftOut {
    /// Two issuers of this name, or one with more than 16 keys.
    #[error("issuer {0} is there twice, or has more than 16 keys")]
    Issuer(Box<str>),
    /// Two entries have the token with this hash.
    #[error("the token with the hash {0} is there twice")]
    Token(TokenHash),
    /// Two entries are recognised by this.
    #[error("the certificate {0:?} is there twice")]
    Certificate(CertificateMatch),
}

#[derive(Debug)]
struct Directory {
    plaintext: PlaintextGrants,
    issuers: Arc<Issuers>,
    /// Of `issuers`: the same as long as they are.
    generation: u64,
    tokens: Tokens,
    certificates: Certificates,
}

/// A caller, and by what it was recognised.
#[derive(Debug, Clone)]
pub struct Identified {
    /// Who.
    pub caller: Arc<Caller>,
    by: By,
}

#[derive(Debug, Clone)]
enum By {
    Grant(Arc<Verified>),
    Token(TokenHash),
    Certificate(Arc<CertificateEntry>, Vouching),
}

impl Identified {
    /// Whoever has some token.
    #[cfg(test)]
    pub(crate) fn by_token(caller: &Arc<Caller>) -> Self {
        Self { caller: Arc::clone(caller), by: By::Token(TokenHash::of(b"")) }
    }

    /// Was it by what the connection has shown, and nothing that the request presented?
    pub(crate) fn by_connection(&self) -> bool {
        matches!(self.by, By::Certificate(..))
    }
}

/// Everybody who may come. Shared by all that listen; asked once per request.
#[derive(Debug)]
pub struct Callers {
    clock: Arc<dyn Clock>,
    directory: ArcSwap<Directory>,
    generations: AtomicU64,
    revocations: Arc<Revocations>,
    cache: Cache,
    uses: Uses,
    forgeries: Forgeries,
}

impl Callers {
    /// Who may come, and what was left out.
    pub fn new(settings: CallerSettings, revocations: Arc<Revocations>, clock: Arc<dyn Clock>) -> (Self, Vec<LeftOut>) {
        let (directory, left_out) = Directory::new(settings);
        let forgeries = Forgeries::new(Arc::clone(&clock));
        let callers = Self {
            clock,
            directory: ArcSwap::from_pointee(directory),
            generations: AtomicU64::new(0),
            revocations,
            cache: Cache::new(),
            uses: Uses::new(),
            forgeries,
        };
        (callers, left_out)
    }

    /// Takes other settings: one store. Grants that were verified under other issuers are verified anew. Called by one
    /// thread at a time.
    pub fn replace(&self, settings: CallerSettings) -> Vec<LeftOut> {
        let (mut fresh, left_out) = Directory::new(settings);
        let before = self.directory.load_full();
        if fresh.issuers.are_as(&before.issuers) {
            fresh.issuers = Arc::clone(&before.issuers);
            fresh.generation = before.generation;
        } else {
            fresh.generation = self.generations.fetch_add(1, Ordering::Relaxed) + 1;
        }
        let is_other = fresh.generation != before.generation;
        self.directory.store(Arc::new(fresh));
        if is_other {
            self.cache.clear();
        }
        self.revocations.announce();
        left_out
    }

    /// Who is this? `presented` is what [`super::presented`] found.
    pub fn identify(
        &self,
        presented: Result<Presented<'_>, Unproved>,
        arrival: &Arrival<'_>,
    ) -> Result<Identified, Unproved> {
        let directory = self.directory.load();
        let certificate = match arrival.tls {
            // Also where nothing was presented: to ask for a proof is to have it sent.
            Tls::Absent if !directory.takes_plaintext(arrival) => return Err(Unproved::Plaintext),
            Tls::Absent | Tls::Anonymous => None,
            // It was verified when the connection began, which may be long ago.
            Tls::Mutual(certificate) if !certificate.is_good(self.clock.unix_ms()) => {
                return Err(Unproved::CertificateEnded);
            }
            Tls::Mutual(certificate) => Some(certificate),
        };
        let holder = certificate.map(|certificate| directory.certificates.find(certificate));
        let identified = match (presented, holder.zip(certificate)) {
            (Err(Unproved::Missing), Some((Ok(entry), certificate))) => {
                let caller = Arc::new(Caller::of_certificate(entry, certificate.until_unix_ms));
                Identified { caller, by: By::Certificate(Arc::clone(entry), certificate.vouching.clone()) }
            }
            (Err(Unproved::Missing), Some((Err(_), _))) => return Err(Unproved::Certificate),
            (Err(unproved), _) => return Err(unproved),
            (Ok(presented), _) => {
                let identified = self.by_proof(&directory, &presented.proof, arrival, certificate)?;
                match holder {
                    // A certificate of the platform's, that stands for no tenant.
                    None | Some(Err(NotOne::None)) => identified,
                    Some(Ok(entry)) if entry.tenant == identified.caller.tenant => identified,
                    Some(Ok(_) | Err(NotOne::Several)) => return Err(Unproved::OtherTenant),
                }
            }
        };
        if self.revocations.cover(&identified.caller) {
            return Err(Unproved::Revoked);
        }
        // Last of all: what is refused for another reason uses nothing up.
        if let By::Grant(verified) = &identified.by
            && let Some(calls_max) = verified.grant.calls_max
            && !self.uses.take(verified.counted_as, calls_max, verified.grant.expires_ms, self.clock.unix_ms())
        {
            return Err(GrantFault::UsedUp.into());
        }
        Ok(identified)
    }

    /// May what this caller has under way go on? Asked when [`Callers::watch`] changes. That its proof runs out is another
    /// matter, [`Caller::until_unix_ms`]: whoever holds something open keeps to that by himself.
    pub fn still_good(&self, identified: &Identified) -> bool {
        let caller = &*identified.caller;
        let directory = self.directory.load();
        let is_known = match (&identified.by, &caller.identity) {
            (By::Grant(verified), Identity::Grant { issuer, .. }) => {
                directory.issuers.have(issuer, &verified.key, &caller.tenant)
            }
            (By::Token(hash), Identity::Token { .. }) => {
                directory.tokens.find(hash).is_some_and(|entry| caller.is_of_token(entry))
            }
            (By::Certificate(entry, vouching), Identity::Certificate { .. }) => {
                vouching.holds() && directory.certificates.has(entry)
            }
            (By::Grant(_) | By::Token(_) | By::Certificate(..), _) => false,
        };
        is_known && !self.revocations.cover(caller)
    }

    /// Is everything revoked that is this tenant's?
    pub(crate) fn have_revoked(&self, tenant: &TenantId) -> bool {
        self.revocations.cover_all_of(tenant)
    }

    /// A number that changes whenever [`Callers::still_good`] may say something else.
    pub fn watch(&self) -> watch::Receiver<u64> {
        self.revocations.watch()
    }

    /// Forgets what has ended. Called now and then.
    pub fn sweep(&self) {
        self.uses.sweep(self.clock.unix_ms());
        self.forgeries.sweep();
    }

    fn by_proof(
        &self,
        directory: &Directory,
        proof: &[u8],
        arrival: &Arrival<'_>,
        certificate: Option<&PeerCertificate>,
    ) -> Result<Identified, Unproved> {
        if !looks_like_proof(proof) {
            return Err(Unproved::Unrecognised);
        }
        if proof.len() > super::grant::GRANT_BYTES_MAX {
            return Err(GrantFault::TooLong.into());
        }
        let hash = TokenHash::of(proof);
        if proof.starts_with(TOKEN_PREFIX.as_bytes()) {
            let entry = directory.tokens.find(&hash).ok_or(Unproved::Token)?;
            return match entry.until_unix_ms {
                Some(until_ms) if self.clock.unix_ms() >= until_ms => Err(Unproved::TokenExpired),
                _ => Ok(Identified { caller: Arc::new(Caller::of_token(entry)), by: By::Token(hash) }),
            };
        }
        let verified = match self.cache.find(hash.as_bytes(), directory.generation) {
            Some(verified) => verified,
            None => self.verified(directory, proof, hash, arrival)?,
        };
        verified.grant.is_timely(self.clock.unix_ms())?;
        verified.grant.is_for(arrival.peer, certificate)?;
        Ok(Identified { caller: Arc::clone(&verified.grant.caller), by: By::Grant(verified) })
    }

    fn verified(
        &self,
        directory: &Directory,
        proof: &[u8],
        hash: TokenHash,
        arrival: &Arrival<'_>,
    ) -> Result<Arc<Verified>, Unproved> {
        let source = Source::of(arrival.peer);
        let mut paid_by = None;
        let may_check = || {
            if arrival.is_distrusted {
                return Err(Unproved::Throttled);
            }
            paid_by = Some(self.forgeries.admit(source).map_err(|_| Unproved::Throttled)?);
            Ok(())
        };
        let verified = directory.issuers.verify(proof, may_check);
        if let (Err(Unproved::Grant(GrantFault::Signature)), Some(paid_by)) = (&verified, paid_by) {
            self.forgeries.found(source, paid_by);
        }
        let (grant, key) = verified?;
        // One that has ended is not worth a place.
        grant.is_timely(self.clock.unix_ms())?;
        let verified = Arc::new(Verified {
            counted_as: counted_as(&grant.caller.identity),
            grant,
            key,
            generation: directory.generation,
            bytes: proof.len(),
        });
        self.cache.insert(*hash.as_bytes(), Arc::clone(&verified));
        Ok(verified)
    }
}

impl Directory {
    fn new(settings: CallerSettings) -> (Self, Vec<LeftOut>) {
        let (issuers, names) = Issuers::new(&settings.audience, settings.issuers);
        let (tokens, hashes) = Tokens::new(settings.tokens);
        let (certificates, matches) = Certificates::new(settings.certificates);
        let left_out = names.into_iter().map(LeftOut::Issuer);
        let left_out = left_out.chain(hashes.into_iter().map(LeftOut::Token));
        let left_out = left_out.chain(matches.into_iter().map(LeftOut::Certificate)).collect();
        let plaintext = settings.plaintext;
        (Self { plaintext, issuers: Arc::new(issuers), generation: 0, tokens, certificates }, left_out)
    }

    fn takes_plaintext(&self, arrival: &Arrival<'_>) -> bool {
        let is_within = |address: IpAddr| address.to_canonical().is_loopback();
        self.plaintext == PlaintextGrants::Loopback && is_within(arrival.peer) && is_within(arrival.local)
    }
}

/// Issuer and id, hashed together: the issuer has a length before it, so that no two pairs are written alike.
fn counted_as(identity: &Identity) -> [u8; 16] {
    let mut counted_as = [0; 16];
    if let Identity::Grant { issuer, id } = identity {
        let mut context = Context::new(&SHA256);
        context.update(&issuer.len().to_be_bytes());
        context.update(issuer.as_bytes());
        context.update(id.as_bytes());
        counted_as.copy_from_slice(&context.finish().as_ref()[..16]);
    }
    counted_as
}

#[cfg(test)]
mod tests;
