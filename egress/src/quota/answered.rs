//! What an answer says of the provider's limits, and what becomes of that.

use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::time::Duration;

use http::StatusCode;
use ratelimit::breaker::{Fault, Outcome};
use ratelimit::quota::holder::Seen;
use ratelimit::quota::{Level, Why};
use ratelimit::signals::{self, Answered as Read, Call, Observation, Reading, Scale, Throttle};

use super::Quota;
use super::metering::Line;
use super::park::{Park, ParkedBy};
use super::permit::Leased;
use crate::Asked;
use crate::forward::Answered;

/// How long the beginning of a body is waited for, before what is there has to do: whoever streams is not held up.
const PEEK: Duration = Duration::from_millis(500);

/// Reads an answer: what is left of limits, what the call did cost, and whether the provider throttles. Then it says to
/// the breaker how the call ended. A throttle parks its level on every node, and comes back as what the caller is told.
pub(crate) async fn take_note(asked: &Asked, answered: &mut Answered) -> Option<Park> {
    // The call's place and units are the answer's: who drops that gives them back.
    let permit = &*answered.permit;
    let status = answered.response.status();
    let (Some(leased), Some(quota)) = (&permit.leased, permit.quota()) else {
        permit.ended(outcome_of(status));
        return None;
    };
    let profile = &*leased.connection.connector().manifest().quota;
    let throttles_before = leased.line.throttles.load(Ordering::Relaxed);
    let call = Call { method: asked.method.as_str(), path: asked.path(), throttles_before };
    let received_unix_ms = quota.clock.unix_ms();
    let wanted = signals::body_wanted(profile, &call, status, answered.response.headers());
    let body = if wanted > 0 { answered.response.body_mut().peek(wanted, PEEK).await } else { Vec::new() };
    let read = Read { status, headers: answered.response.headers(), body: &body, received_unix_ms };
    let reading = signals::read(profile, &call, &read);
    leased.note(&reading);
    let Some(throttle) = reading.throttle else {
        leased.line.throttles.store(0, Ordering::Relaxed);
        permit.ended(outcome_of(status));
        return None;
    };
    leased.line.throttles.fetch_add(1, Ordering::Relaxed);
    permit.ended(Outcome::Throttled);
    let park = quota.park(leased, &throttle);
    if let Some(whose) = permit.whose(leased) {
        quota.watcher.parked(&whose, park.level, park.release_ms);
    }
    Some(park)
}

fn outcome_of(status: StatusCode) -> Outcome {
    if status.is_server_error() {
        Outcome::Failed(Fault::ServerError)
    } else if status.is_client_error() {
        Outcome::ClientError
    } else {
        Outcome::Answered
    }
}

impl Leased {
    /// Limits can only become lower by what an answer says; costs are settled.
    fn note(&self, reading: &Reading) {
        for observation in &reading.observations {
            match self.seen(observation) {
                // Of what is only heeded nothing can be granted less of. That nothing is left is a park.
                Some((leg, Seen { remaining: Some(0), reset_ms: Some(reset_ms), .. })) if self.is_heeded(leg) => {
                    self.with(|held| held.throttled(leg, reset_ms, Why::Exhausted));
                }
                Some((leg, seen)) => {
                    self.with(|held| held.observed(leg, seen));
                }
                None => {}
            }
        }
        for settled in &reading.settled {
            if let Some(leg) = self.line.leg_of(settled.limit) {
                self.with(|held| held.settle(leg, clamped(settled.cost)));
            }
        }
    }

    fn is_heeded(&self, leg: usize) -> bool {
        leg >= self.line.route.len()
    }

    /// What is said of a limit that the call is of. What names none is of the level's only one, or of nobody knows what.
    fn seen(&self, said: &Observation) -> Option<(usize, Seen)> {
        let leg = match said.limit {
            Some(limit) => self.line.leg_of(limit)?,
            None => self.line.only_leg_at(Level::from(said.level))?,
        };
        let cap = u64::from(self.line.stations.get(leg)?.cap);
        let remaining = match said.scale {
            Scale::Units => said.remaining.or_else(|| said.cap?.checked_sub(said.used?)),
            Scale::Percent => said.used.map(|used| cap * 100_u64.saturating_sub(used) / 100),
        };
        let limit = said.cap.filter(|_| said.scale == Scale::Units);
        let seen = Seen { limit: limit.map(clamped), remaining: remaining.map(clamped), reset_ms: said.reset_ms };
        Some((leg, seen))
    }
}

impl Line {
    fn leg_of(&self, limit: u16) -> Option<usize> {
        self.stations.iter().position(|station| station.limit == Some(limit))
    }

    fn only_leg_at(&self, level: Level) -> Option<usize> {
        let mut legs = self.legs_at(level);
        legs.next().filter(|_| legs.next().is_none())
    }

    fn legs_at(&self, level: Level) -> impl Iterator<Item = usize> {
        let stations = self.stations.iter().enumerate();
        stations.filter_map(move |(leg, station)| (station.level == level).then_some(leg))
    }
}

impl Quota {
    /// Parks what a throttle is of: the limit it names, or all of its level. One that names nothing is the connection's,
    /// until several connections of an application are throttled together.
    fn park(&self, leased: &Leased, throttle: &Throttle) -> Park {
        let mut level = Level::from(throttle.level);
        let is_spread = !throttle.is_named && level == Level::Connection && self.is_spread(leased);
        if is_spread {
            level = Level::App;
        }
        let jitter_ms = if throttle.wants_jitter { self.random_up_to(throttle.release_ms) } else { 0 };
        let release_ms = throttle.release_ms.saturating_add(jitter_ms);
        let line = &leased.line;
        let named =
            throttle.limit.and_then(|limit| line.leg_of(limit)).filter(|_| level == Level::from(throttle.level));
        let mut legs: Vec<usize> = named.map_or_else(|| line.legs_at(level).collect(), |leg| vec![leg]);
        if is_spread {
            // That it is the application is our guess; that it is this connection is what the provider said.
            legs.extend(line.legs_at(Level::Connection));
        }
        for leg in legs {
            leased.with(|held| held.throttled(leg, release_ms, Why::Provider));
        }
        let detail = format!("{level}: the provider throttles, by {:?}", throttle.source).into();
        Park { release_ms: release_ms.max(1), level: level.word(), by: ParkedBy::Provider, detail }
    }

    fn is_spread(&self, leased: &Leased) -> bool {
        let Some(metering) = leased.connection.metering() else { return false };
        let (application, account) = (metering.application().to_string(), metering.account_name().as_str());
        let now_ms = ratelimit::Now::of(&*self.clock).mono_ms;
        let mut spread = self.spread.lock().unwrap_or_else(PoisonError::into_inner);
        spread.note(&application, (metering.tenant_name().as_str(), account), now_ms)
    }
}

fn clamped(units: u64) -> u32 {
    u32::try_from(units).unwrap_or(u32::MAX)
}
