//! The path of a call, in the order in which things are checked. Every `?` is a refusal, and nothing has been dialled
//! by then.
//!
//! What follows a yes is in `way/`: a tunnel, a request that is forwarded, a call of a connection. Each hop of a
//! redirect chain comes back to [`Egress::judge`] and is judged as the first was.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use listen::{Exchange, Reply};
use outbound::dial::Connect;
use outbound::{Host, Scheme};
use ratelimit::retry_budget::Attempt;

use crate::caller::Identified;
use crate::connections::Entry;
use crate::door::{self, Door, fields_of};
use crate::forward::Passage;
use crate::forward::headers::{self, Cleaned};
use crate::no::No;
use crate::policy::{SniRule, Unseen};
use crate::quota::Wanted;
use crate::snapshot::Snapshot;
use crate::trace::Trace;
use crate::tunnel::Side;
use crate::{Asked, Call, Egress, Refusal, Running, Stop, Way};

/// A call that may go out, with everything that was decided on it.
#[derive(Debug)]
pub(crate) struct Going {
    pub(crate) node: Arc<Snapshot>,
    pub(crate) identified: Identified,
    pub(crate) asked: Asked,
    pub(crate) judged: Judged,
    pub(crate) cleaned: Cleaned,
    pub(crate) call: Call,
    pub(crate) terms: Terms,
}

/// What a caller says of how it makes the call.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Terms {
    /// How long it would rather wait here than come again.
    pub(crate) wait: Option<Duration>,
    pub(crate) attempt: Attempt,
}

/// Who asks for a hop, and on which terms.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Asking<'a> {
    pub(crate) node: &'a Snapshot,
    pub(crate) identified: &'a Identified,
    pub(crate) entry: Option<&'a Entry>,
    pub(crate) terms: Terms,
}

/// Everything that was decided for one hop.
#[derive(Debug)]
pub(crate) struct Judged {
    pub(crate) passage: Passage,
    pub(crate) sni: SniRule,
}

impl<C: Connect + 'static> Egress<C>
where
    C::Stream: Side + 'static,
{
    pub(crate) async fn serve(&self, exchange: &mut Exchange, trace: &mut Trace) -> Result<Reply, No> {
        // One load: this call sees one snapshot from here to its end, on every hop.
        let node = self.parts.snapshot.load_full();
        let door = Door::of(exchange.head())?;
        trace.came_by(door.way());

        // 1. Who asks? Where the proof is depends on the door.
        let identified = self.identify(&node, &door, exchange)?;
        trace.is_of(&identified.caller);

        // 2. For what? One strict parser for every door; a connection's host is its own and never the caller's.
        let entry = door::connection(&node, &door, &identified, exchange.head())?.cloned();
        if let Some(entry) = &entry {
            trace.is_call_of(entry);
        }
        let asked = door.asked(exchange.head(), entry.as_ref())?;
        trace.asks(&asked);

        // 3. What of it may travel, and has it been here before? And is there room for one more of this caller?
        let cleaned = headers::clean_request(fields_of(exchange.head())?, &asked, &node.names)?;
        let call = self.parts.calls.begin(&identified.caller, &node.settings.calls_max)?;
        let clock = &*self.parts.ends.clock;
        let running = Running::new(trace.correlation, &asked, &identified, entry.as_ref(), clock);
        // A tunnel has a lifetime of its own.
        let total = if asked.way == Way::Connect { None } else { node.settings.waits.total };
        let call = call.shown_as(running.within(total));
        // Of whoever ran away, attempts are what counts: not what becomes of them.
        self.parts.quota.attempt(&identified.caller, entry.as_ref(), &node.quota)?;

        // 4. May it go there, and by which address? A caller who hangs up meanwhile stops the asking, and so does whoever
        // takes its right (rights.rs).
        let terms = door::terms(exchange.head());
        let asking = Asking { node: &node, identified: &identified, entry: entry.as_ref(), terms };
        let judging = self.judge(&asking, &asked, trace);
        let judged = call.drive(exchange, pin!(judging)).await??;

        // 5. Out: what happens from here on, and how it ends, is in the record.
        let going = Going { node, identified, asked, judged, cleaned, call, terms };
        match (door, entry) {
            (_, Some(entry)) => self.call(&entry, going, exchange, trace).await,
            (Door::Connect, None) => self.tunnel(going, exchange, trace).await,
            (Door::Absolute(_), None) => self.pass_on(going, exchange, trace).await,
            (Door::Governed(_), None) => Err(No::new(Refusal::Internal, "a governed call without a connection")),
        }
    }

    /// One hop: the caller's right, switches, the name, the breaker, the addresses, the exit, the quota. The call is on the
    /// list by now: what changes from here on ends it there.
    pub(crate) async fn judge(&self, asking: &Asking<'_>, asked: &Asked, trace: &mut Trace) -> Result<Judged, No> {
        let Asking { node, identified, entry, terms } = *asking;
        let caller = &*identified.caller;

        // 1. May the caller call at all by now, and is this switched off, for whatever reason that does not wait for a rule?
        if !self.parts.callers.still_good(identified) {
            return Err(Stop::Revoked.into());
        }
        let of_host = node.policy.connector(asked.authority.host()).map(|found| &found.connector);
        for connector in [trace.record().connector.as_ref(), of_host] {
            if let Some(why) = self.parts.switches.thrown(&caller.tenant, connector, &asked.authority, asked.way) {
                return Err(No::new(Refusal::SwitchedOff, why.to_string()));
            }
        }

        // 2. The name. Nothing is resolved for a name that is not allowed: a look-up is a call, too.
        let allowed = node.policy.decide(caller, asked, &mut Unseen)?;
        trace.allowed(&allowed);
        node.rules.judge_name(&asked.authority, &allowed.openings)?;

        // 3. Did it work lately? What is asked of an open breaker is not even resolved.
        let entry = entry.filter(|entry| entry.connection.is_provider_of(&asked.authority));
        let wanted = Wanted { rules: &node.quota, caller, asked, entry, terms };
        let mut permit = self.parts.quota.ask_breaker(&wanted)?;

        // 4. Every address of the answer, or none.
        let vetted = match asked.authority.host() {
            Host::Address(address) => node.rules.vet(&asked.authority, &[*address], &allowed.openings)?,
            Host::Name(name) => {
                let answer = self.parts.resolver.resolve_for(&caller.tenant, name).await;
                let answer = answer.inspect_err(|error| permit.unresolved(error.into()))?;
                trace.answered(&answer.addresses);
                node.rules.vet(&asked.authority, &answer.addresses, &allowed.openings)?
            }
        };

        // 5. From where: the tenant's pool, and never an address that nobody published.
        let exit = node.exits.of_tenant(allowed.pool.as_deref(), &caller.tenant)?;

        // 6. Units of every level that the provider counts, all or none.
        self.parts.quota.lease(&wanted, &exit, &mut permit).await?;
        let tls = (asked.scheme == Scheme::Https).then(|| node.tls.clone());
        trace.decided();
        let (rules, openings, permit) = (Arc::clone(&node.rules), allowed.openings, Arc::new(permit));
        Ok(Judged { passage: Passage { vetted, exit, tls, rules, openings, permit }, sni: allowed.sni })
    }
}
