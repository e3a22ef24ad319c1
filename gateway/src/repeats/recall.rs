//! What an earlier process committed: read from the log, so that a restart forgets little.

use eventlog::{Filter, ReadError, Scope, Start};

use super::Whose;
use crate::Gateway;

/// Events that are read again. At 100 a second they are ten minutes, in which most providers have sent again what got no
/// answer; reading them takes about a second.
const EVENTS_MAX: usize = 65_536;

impl Gateway {
    /// Reads the newest events and remembers their ids; how many. Blocking: for a thread of its own, beside the deliveries that
    /// come meanwhile. One that is sent again before its event was read becomes a second event.
    ///
    /// # Errors
    /// The log could not be read: what was read until then is remembered.
    pub fn recall_repeats(&self) -> Result<usize, ReadError> {
        let snapshot = self.parts.snapshot.load_full();
        let remembered_ms = u64::try_from(snapshot.settings.repeats_for.as_millis()).unwrap_or(u64::MAX);
        let from_unix_ms = Some(self.parts.clock.unix_ms().saturating_sub(remembered_ms));
        let filter = Filter { from_unix_ms, ..Filter::default() };
        let mut reader = self.parts.log.reader(Scope::Operator, Start::Newest(EVENTS_MAX), filter)?;
        let mut recalled = 0;
        // Bounded also where deliveries come faster than they are read.
        for _ in 0..2 * EVENTS_MAX {
            let Some(event) = reader.next()? else { break };
            let Some(id) = &event.delivery_id else { continue };
            let endpoint = snapshot.by_id(&event.endpoint).filter(|endpoint| endpoint.tenant().id == event.tenant);
            if endpoint.is_some_and(|endpoint| endpoint.drops_repeats(id.signed)) {
                let of = Whose { tenant: &event.tenant, endpoint: &event.endpoint };
                self.parts.repeats.recall(of, &id.value, event.id, event.received_unix_ms);
                recalled += 1;
            }
        }
        Ok(recalled)
    }
}
