//! Where the state of a provider's breaker is kept for all nodes: a compare-and-set register with time.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use domain::Clock;

use super::state::STATE_BYTES_MAX;
use crate::pair::ProviderKey;
use crate::quota::AskError;

/// Most bytes of a value.
pub const VALUE_BYTES_MAX: usize = 48 << 10;
/// Longest that a value is kept without being written again.
pub const TTL_MAX: Duration = Duration::from_hours(24);

const _: () = assert!(STATE_BYTES_MAX <= VALUE_BYTES_MAX, "a whole state fits into a register");

/// Keeps one value per provider.
///
/// # Contract
///
/// - **One at a time.** Operations on one provider happen one after the other, each as a whole.
/// - **Compare and set.** A write is done where the version is the one that it expects, and no other; each has a version
///   that this provider had never before, higher than the one it follows. 0 is the version of nothing.
/// - **Forgotten** is a value when its time is over. A keeper that lost what it had says so by a lower version.
/// - **An error** is returned within the keeper's own time limit. A write may then be done, or be done later.
#[async_trait]
pub trait Register: Send + Sync + std::fmt::Debug {
    async fn read(&self, provider: ProviderKey) -> Result<Kept, AskError>;

    /// A `bytes` beyond [`VALUE_BYTES_MAX`] is refused; a `ttl` beyond [`TTL_MAX`], or of less than a millisecond, is
    /// taken as that.
    async fn write(
        &self,
        provider: ProviderKey,
        expected: u64,
        bytes: &[u8],
        ttl: Duration,
    ) -> Result<Written, AskError>;

    /// Whether other nodes may have the same.
    fn is_shared(&self) -> bool {
        true
    }
}

/// What a register has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kept {
    /// 0: nothing, and no bytes.
    pub version: u64,
    pub bytes: Vec<u8>,
    /// The keeper's clock, in ms since whenever; it may step.
    pub now_ms: u64,
}

/// What became of a write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Written {
    Done {
        version: u64,
    },
    /// Not done: somebody else has written, or it is forgotten.
    Newer(Kept),
}

/// What is refused with.
pub(crate) const TOO_LONG: AskError = AskError::Store("the state of a breaker is longer than a register takes");

/// The span of a value's life, within its bounds.
pub(crate) fn ttl_ms(ttl: Duration) -> u64 {
    u64::try_from(ttl.min(TTL_MAX).as_millis()).unwrap_or(u64::MAX).max(1)
}

/// The register of a node alone, in its memory. It never fails. At `providers_max`, what nobody has written for longest
/// makes room: that of a node's own providers, which are bounded by the same number.
#[derive(Debug)]
pub struct ProcessRegister {
    clock: Arc<dyn Clock>,
    providers_max: usize,
    state: Mutex<Values>,
}

#[derive(Debug, Default)]
struct Values {
    by_provider: BTreeMap<ProviderKey, Value>,
    /// Of all providers, so that what was forgotten never comes back.
    last_version: u64,
}

#[derive(Debug)]
struct Value {
    version: u64,
    bytes: Vec<u8>,
    until_ms: u64,
}

impl ProcessRegister {
    /// `clock`'s monotonic time is the keeper's.
    pub fn new(clock: Arc<dyn Clock>, providers_max: usize) -> Self {
        Self { clock, providers_max: providers_max.max(1), state: Mutex::default() }
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.clock.monotonic().as_millis()).unwrap_or(u64::MAX)
    }

    fn lock(&self) -> MutexGuard<'_, Values> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Values {
    fn kept(&mut self, provider: ProviderKey, now_ms: u64) -> Kept {
        if self.by_provider.get(&provider).is_some_and(|value| value.until_ms <= now_ms) {
            self.by_provider.remove(&provider);
        }
        match self.by_provider.get(&provider) {
            Some(Value { version, bytes, .. }) => Kept { version: *version, bytes: bytes.clone(), now_ms },
            None => Kept { version: 0, bytes: Vec::new(), now_ms },
        }
    }

    fn make_room(&mut self, most: usize, now_ms: u64) {
        if self.by_provider.len() < most {
            return;
        }
        self.by_provider.retain(|_, value| value.until_ms > now_ms);
        while self.by_provider.len() >= most {
            let oldest = self.by_provider.iter().min_by_key(|(_, value)| value.version).map(|(provider, _)| *provider);
            let Some(oldest) = oldest else { return };
            self.by_provider.remove(&oldest);
        }
    }
}

#[async_trait]
impl Register for ProcessRegister {
    async fn read(&self, provider: ProviderKey) -> Result<Kept, AskError> {
        Ok(self.lock().kept(provider, self.now_ms()))
    }

    async fn write(
        &self,
        provider: ProviderKey,
        expected: u64,
        bytes: &[u8],
        ttl: Duration,
    ) -> Result<Written, AskError> {
        if bytes.len() > VALUE_BYTES_MAX {
            return Err(TOO_LONG);
        }
        let mut values = self.lock();
        let now_ms = self.now_ms();
        let kept = values.kept(provider, now_ms);
        if kept.version != expected {
            return Ok(Written::Newer(kept));
        }
        if expected == 0 {
            values.make_room(self.providers_max, now_ms);
        }
        values.last_version += 1;
        let version = values.last_version;
        let until_ms = now_ms.saturating_add(ttl_ms(ttl));
        values.by_provider.insert(provider, Value { version, bytes: bytes.to_vec(), until_ms });
        Ok(Written::Done { version })
    }

    fn is_shared(&self) -> bool {
        false
    }
}

#[cfg(any(test, feature = "test-util"))]
pub mod conformance;

#[cfg(test)]
mod tests;
