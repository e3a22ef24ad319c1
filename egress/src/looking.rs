//! Looking at a file of the state directory again and again: commands write it, and every process of the node takes it.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{MissedTickBehavior, interval};

/// How often. What a command writes is in force within a second; this leaves most of it for a slow disk.
pub const LOOK_EVERY: Duration = Duration::from_millis(250);

/// Looks for ever; dropped when the node stops. A disk may take its time, and the runtime's threads have calls to serve.
pub(crate) async fn keep_looking<T: Send + Sync + 'static>(at: Arc<T>, what: &'static str, look: fn(&T)) {
    let mut ticks = interval(LOOK_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let at = Arc::clone(&at);
        if let Err(error) = tokio::task::spawn_blocking(move || look(&at)).await {
            tracing::error!(%error, what, "looking at a file of the state directory failed");
        }
    }
}
