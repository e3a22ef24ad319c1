//! What is known of a call so far: its record, as it grows.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use domain::Clock;
use domain::text::Untrusted;
use listen::Head;

use crate::connections::Entry;
use crate::forward::{Tally, Went};
use crate::metrics::Metrics;
use crate::no::No;
use crate::policy::Allowed;
use crate::record::{Record, Recorder, SendState, Times};
use crate::tunnel::{End, Live, Mismatch};
use crate::{Asked, Caller, CorrelationId, Refusal, Way};

/// Bytes of a target that could not be read, and of a path.
const TEXT_BYTES_MAX: usize = 256;

/// One call under way. Each hop of it ends in one record, also where what served it is dropped.
#[derive(Debug)]
pub(crate) struct Trace {
    pub(crate) correlation: CorrelationId,
    pub(crate) way: Option<Way>,
    hop_began: Duration,
    record: Box<Record>,
    ends: Arc<Ends>,
    /// A record is still to be written.
    owed: bool,
    /// What counts the bytes from here on: a tunnel, or else a hop.
    tunnel: Option<Arc<Live<CorrelationId>>>,
    tally: Option<Arc<Tally>>,
}

/// Where records go, and by which clock.
#[derive(Debug)]
pub struct Ends {
    /// The clock.
    pub clock: Arc<dyn Clock>,
    /// Takes every record.
    pub recorder: Arc<dyn Recorder>,
    /// Counts.
    pub metrics: Arc<Metrics>,
    /// When a drain cuts off what is still under way, by the clock's monotonic time: [`Ends::drain`].
    pub cut_at: OnceLock<Duration>,
}

impl Ends {
    /// A drain has begun, and cuts off in `timeout` what is under way then.
    pub fn drain(&self, timeout: Duration) {
        self.cut_at.get_or_init(|| self.clock.monotonic().saturating_add(timeout));
    }

    /// Who let go of a call whose connection is gone: its caller, or a drain whose time was up.
    fn let_go<'a>(&self, by_caller: &'a str) -> (&'static str, &'a str) {
        if self.cut_at.get().is_some_and(|at| *at <= self.clock.monotonic()) {
            (Refusal::Overloaded.code(), End::DrainDeadline.as_str())
        } else {
            ("caller-gone", by_caller)
        }
    }
}

impl Trace {
    pub(crate) fn begin(correlation: CorrelationId, peer: SocketAddr, ends: Arc<Ends>) -> Self {
        let hop_began = ends.clock.monotonic();
        let record = Box::new(blank(correlation, peer));
        Self { correlation, way: None, hop_began, record, ends, owed: true, tunnel: None, tally: None }
    }

    /// What was asked, as it came: for a call that ended before it was understood.
    pub(crate) fn shows(&mut self, head: &Head) {
        if self.record.destination.is_empty() {
            let target = without_query(head.target());
            self.record.method = Untrusted::with_limit(head.method().as_bytes(), 32).to_string().into();
            self.record.destination = Untrusted::with_limit(target, TEXT_BYTES_MAX).to_string().into();
        }
    }

    pub(crate) fn came_by(&mut self, way: Way) {
        self.way = Some(way);
        self.record.way = way.as_str().into();
    }

    pub(crate) fn is_of(&mut self, caller: &Caller) {
        let record = &mut self.record;
        record.tenant = Some(caller.tenant.clone());
        record.role.clone_from(&caller.role);
        record.identity = Some(caller.identity.to_string().into());
        record.run.clone_from(&caller.run);
        record.automation.clone_from(&caller.automation);
        record.class.clone_from(&caller.class);
    }

    pub(crate) fn asks(&mut self, asked: &Asked) {
        self.record.method = asked.method.as_str().into();
        self.record.destination = asked.authority.to_string().into();
        self.record.path = (asked.way != Way::Connect)
            .then(|| Untrusted::with_limit(asked.path().as_bytes(), TEXT_BYTES_MAX).to_string().into());
    }

    pub(crate) fn record(&self) -> &Record {
        &self.record
    }

    pub(crate) fn ends(&self) -> &Ends {
        &self.ends
    }

    /// The trace goes on elsewhere, with whatever the call goes on with. What stays here says nothing any more.
    pub(crate) fn carry_on(&mut self) -> Self {
        let Self { correlation, way, hop_began, .. } = *self;
        let left = Box::new(blank(correlation, self.record.peer));
        let record = std::mem::replace(&mut self.record, left);
        let owed = std::mem::take(&mut self.owed);
        let (tunnel, tally) = (self.tunnel.take(), self.tally.take());
        Self { correlation, way, hop_began, record, ends: Arc::clone(&self.ends), owed, tunnel, tally }
    }

    /// A request may be on its way from here on: whoever gives up waiting does not know how much of it got there, but how
    /// much was handed over.
    pub(crate) fn is_sending(&mut self, tally: &Arc<Tally>) {
        self.record.send_state = SendState::SentNoResponse;
        self.tally = Some(Arc::clone(tally));
    }

    /// A no to what is under way: nobody knows more of how far it got than is known here. Once a hop was answered, a later
    /// one that was not sent does not make it as if nothing had been asked.
    pub(crate) fn so_far(&self, no: No) -> No {
        let state = self.record.send_state;
        let is_unsaid = self.record.hop > 0 && state == SendState::NotSent;
        No { send_state: if is_unsaid { SendState::Response } else { state }, hop_state: Some(state), ..no }
    }

    /// From here on a tunnel counts what passes.
    pub(crate) fn goes_through(&mut self, tunnel: &Arc<Live<CorrelationId>>) {
        self.tunnel = Some(Arc::clone(tunnel));
    }

    pub(crate) fn tunnel_ended(self, end: &End) {
        let outcome = end.refusal().map_or("done", Refusal::code);
        self.ended(outcome, &end.detail());
    }

    pub(crate) fn record_mut(&mut self) -> &mut Record {
        &mut self.record
    }

    pub(crate) fn allowed(&mut self, allowed: &Allowed) {
        self.record.rule = Some(allowed.by.to_string().into());
        self.record.would_refuse = allowed.reported.iter().map(|by| by.to_string().into()).collect();
    }

    /// What would have ended a tunnel, if it were not merely reported.
    pub(crate) fn would_refuse(&mut self, mismatch: &Mismatch) {
        if self.record.would_refuse.is_empty() {
            self.ends.metrics.would_refuse();
        }
        self.record.would_refuse.push(format!("tunnel: {mismatch}").into());
    }

    pub(crate) fn answered(&mut self, addresses: &[IpAddr]) {
        self.record.answer = addresses.to_vec();
        self.record.times.resolve_us = micros(self.ends.clock.monotonic().saturating_sub(self.hop_began));
    }

    pub(crate) fn went(&mut self, went: &Went) {
        self.went_by(went);
        self.ends.metrics.connected(went.pooled);
        self.ends.metrics.answered(went.version, went.first_byte);
    }

    pub(crate) fn is_call_of(&mut self, entry: &Entry) {
        self.record.connection = Some(entry.connection.id().clone());
        self.record.connector = Some(entry.connection.connector_id().clone());
    }

    /// By what names the provider's logs know the request.
    pub(crate) fn is_known_as<'n>(&mut self, ids: impl Iterator<Item = (&'n str, &'n [u8])>) {
        let text = |value: &[u8]| Untrusted::with_limit(value, TEXT_BYTES_MAX).to_string();
        self.record.provider_ids = ids.map(|(name, value)| (name.into(), text(value).into())).collect();
    }

    pub(crate) fn went_by(&mut self, went: &Went) {
        self.connected(went.address.socket(), went.local.ip(), went.connect, went.tls);
        self.record.pooled = went.pooled;
        self.record.http = Some(went.version);
        self.record.times.first_byte_us = micros(went.first_byte);
    }

    pub(crate) fn connected(&mut self, address: SocketAddr, exit: IpAddr, connect: Duration, tls: Duration) {
        self.record.address = Some(address);
        self.record.exit = Some(exit);
        self.record.times.connect_us = micros(connect);
        self.record.times.tls_us = micros(tls);
    }

    /// What was counted of the hop goes into its record.
    fn count(&mut self) {
        if let Some(tally) = self.tally.take() {
            self.bytes(tally.sent_bytes(), tally.received_bytes());
        }
    }

    fn bytes(&mut self, sent: u64, received: u64) {
        self.record.sent_bytes = sent;
        self.record.received_bytes = received;
    }

    /// Let out.
    pub(crate) fn decided(&self) {
        if let Some(way) = self.way {
            let took = self.ends.clock.monotonic().saturating_sub(self.hop_began);
            self.ends.metrics.decided(way, took, !self.record.would_refuse.is_empty());
        }
    }

    /// The hop is over, and another one follows: what is said of the call stays.
    pub(crate) fn next_hop(&mut self) {
        self.count();
        let next = self.record.hop.saturating_add(1);
        let mut kept = Record {
            hop: next,
            path: None,
            rule: None,
            would_refuse: Vec::new(),
            answer: Vec::new(),
            address: None,
            exit: None,
            pooled: false,
            http: None,
            sent_bytes: 0,
            received_bytes: 0,
            times: Times::default(),
            status: None,
            provider_ids: BTreeMap::new(),
            detail: "".into(),
            send_state: SendState::NotSent,
            ..(*self.record).clone()
        };
        std::mem::swap(&mut *self.record, &mut kept);
        write(&self.ends, kept, self.hop_began);
        self.hop_began = self.ends.clock.monotonic();
    }

    /// A no ended it.
    pub(crate) fn refused(&mut self, no: &No) {
        self.ends.metrics.refused(no.refusal);
        self.record.outcome = no.refusal.code().into();
        self.record.detail.clone_from(&no.detail);
        self.record.send_state = no.hop_state.unwrap_or(no.send_state);
        if let Some(tried) = no.tried {
            self.record.address = Some(tried.address.socket());
            self.record.exit = tried.exit;
        }
        self.count();
        self.owed = false;
        write(&self.ends, (*self.record).clone(), self.hop_began);
    }

    /// It ended as far as it could: `done`, or a word for how it was cut short after the answer had begun.
    pub(crate) fn ended(mut self, outcome: &str, detail: &str) {
        self.end(outcome, detail);
    }

    /// Its connection is gone, in the middle of it. `detail` holds where it was the caller that went.
    pub(crate) fn lost(mut self, detail: &str) {
        let (outcome, detail) = self.ends.let_go(detail);
        self.end(outcome, detail);
    }

    fn end(&mut self, outcome: &str, detail: &str) {
        self.owed = false;
        self.count();
        if let Some(tunnel) = self.tunnel.take() {
            let (sent, received) = (tunnel.to_destination(), tunnel.to_client());
            self.bytes(sent, received);
            // A switch of protocols was an answer already.
            if self.way == Some(Way::Connect) {
                self.record.send_state = match (sent, received) {
                    (0, 0) => SendState::NotSent,
                    (_, 0) => SendState::SentNoResponse,
                    (_, _) => SendState::Response,
                };
            }
        }
        let left = blank(self.correlation, self.record.peer);
        let record = std::mem::replace(&mut *self.record, left);
        write(&self.ends, Record { outcome: outcome.into(), detail: detail.into(), ..record }, self.hop_began);
    }
}

/// Whoever served it is gone in the middle of it: with its connection, at the end of a drain, or in a panic. That it was
/// let out, and how far it got, is written all the same.
impl Drop for Trace {
    fn drop(&mut self) {
        if !self.owed {
            return;
        }
        if std::thread::panicking() {
            self.end(Refusal::Internal.code(), "serving it broke off");
        } else {
            let (outcome, detail) = self.ends.let_go("the caller's connection ended before the call did");
            self.end(outcome, detail);
        }
    }
}

fn write(ends: &Ends, mut record: Record, since: Duration) {
    record.ended_unix_ms = ends.clock.unix_ms();
    record.times.total_us = micros(ends.clock.monotonic().saturating_sub(since));
    ends.metrics.relayed(record.sent_bytes, record.received_bytes);
    ends.recorder.record(record);
}

/// A record that says nothing yet.
fn blank(correlation: CorrelationId, peer: SocketAddr) -> Record {
    Record {
        correlation,
        hop: 0,
        ended_unix_ms: 0,
        tenant: None,
        role: None,
        identity: None,
        run: None,
        automation: None,
        class: None,
        connection: None,
        connector: None,
        peer,
        way: "".into(),
        method: "".into(),
        destination: "".into(),
        path: None,
        rule: None,
        would_refuse: Vec::new(),
        answer: Vec::new(),
        address: None,
        exit: None,
        pooled: false,
        http: None,
        sent_bytes: 0,
        received_bytes: 0,
        times: Times::default(),
        status: None,
        provider_ids: BTreeMap::new(),
        outcome: "done".into(),
        detail: "".into(),
        send_state: SendState::NotSent,
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// A query may hold secrets, and is written nowhere.
fn without_query(target: &[u8]) -> &[u8] {
    let end = target.iter().position(|byte| *byte == b'?').unwrap_or(target.len());
    &target[..end]
}

#[cfg(test)]
mod tests;
