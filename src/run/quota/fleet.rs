//! The breakers of providers, which all nodes of a fleet share: by the same store as leases.

use std::sync::Arc;
use std::time::Duration;

use domain::Clock;
use ratelimit::breaker;
use ratelimit::breaker::fleet::{FleetBreakers, FleetRules, FleetSettings, ProcessRegister, Register};
use ratelimit::quota::HolderId;
use ratelimit::quota::redis::RedisCentre;
use tokio::runtime::Runtime;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::QuotaError;

/// How often what happened is looked at, to be told.
const TELL_EVERY: Duration = Duration::from_secs(1);

/// For saying to other nodes that this one holds no probe any more.
const CLOSING: Duration = Duration::from_secs(2);

/// They, and what exchanges them.
#[derive(Debug)]
pub(super) struct Fleet {
    pub(super) breakers: Arc<FleetBreakers>,
    stop: oneshot::Sender<()>,
    exchanging: JoinHandle<()>,
}

impl Fleet {
    /// Begins to exchange: with other nodes through `redis`, or with nobody.
    pub(super) fn start(
        gate: breaker::Rules,
        redis: Option<RedisCentre>,
        holder: HolderId,
        clock: &Arc<dyn Clock>,
        runtime: &Runtime,
    ) -> Result<Self, QuotaError> {
        let usual = FleetSettings::default();
        // Alone there is nobody to wait for.
        let hear_ms = if redis.is_some() { usual.rules.hear_ms } else { 0 };
        let settings = FleetSettings { rules: FleetRules { gate, hear_ms, ..usual.rules }, ..usual };
        let [_, _, _, _, _, _, _, _, low @ ..] = holder.0.to_be_bytes();
        let breakers = FleetBreakers::new(settings, u64::from_be_bytes(low));
        let breakers = Arc::new(breakers.map_err(|error| QuotaError::Settings(error.to_string()))?);
        let register: Arc<dyn Register> = match redis {
            Some(redis) => Arc::new(redis),
            None => Arc::new(ProcessRegister::new(Arc::clone(clock), settings.troubled_max as usize)),
        };
        let (stop, stopped) = oneshot::channel::<()>();
        let (exchanged, clock) = (Arc::clone(&breakers), Arc::clone(clock));
        let exchanging = runtime.spawn(async move {
            exchanged.run(register, clock, async { drop(stopped.await) }).await;
        });
        runtime.spawn(keep_telling(Arc::clone(&breakers)));
        Ok(Self { breakers, stop, exchanging })
    }

    /// Lets go of what this node has of them.
    pub(super) async fn close(self) {
        drop(self.stop);
        if tokio::time::timeout(CLOSING, self.exchanging).await.is_err() {
            tracing::warn!("the breakers of providers were not let go of in time: their probes end by themselves");
        }
    }
}

/// Says when a provider was stopped for all tenants, and when it goes on. Which it is stands in the records of the calls
/// that are refused, and in `tidegate quota explain`.
async fn keep_telling(breakers: Arc<FleetBreakers>) {
    let mut before = breakers.counters();
    loop {
        tokio::time::sleep(TELL_EVERY).await;
        let now = breakers.counters();
        if now.opened > before.opened {
            let (providers, troubled) = (now.opened - before.opened, breakers.troubled());
            tracing::warn!(providers, troubled, "the breaker of a provider opened, for all tenants");
        }
        if now.closed > before.closed {
            let (providers, troubled) = (now.closed - before.closed, breakers.troubled());
            tracing::info!(providers, troubled, "the breaker of a provider closed, for all tenants");
        }
        before = now;
    }
}
