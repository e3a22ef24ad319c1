//! What waits for somebody, and putting away what needs no more looking at.

use domain::ConnectionId;
use runner::api::{Asker, Dismiss, ExecutionFilter, Inbox, No};
use runner::automation::ConnectionState;
use runner::engine::ActError;
use runner::ids::RunId;
use runner::index::{Dismissal, RepairGroup, RepairWhy, RunFilter};
use runner::ledger::ParkReason;
use runner::view;

use super::super::config::InForce;
use super::super::live::Live;
use super::{automations, errors, executions};

pub(super) async fn show(live: &Live, asker: &Asker, after: Option<Box<str>>, limit: usize) -> Result<Inbox, No> {
    // Listed first: they wait for the index to have what is durable.
    let over = ExecutionFilter {
        statuses: RunFilter::FAILED.to_vec(),
        dead_letters: true,
        after,
        limit,
        ..ExecutionFilter::default()
    };
    let dead_letters = executions::list(live, asker, over).await?;
    let found = live.index.repair_inbox(&asker.tenant).await.map_err(errors::index)?;
    let connections = live.definitions.needing_reconnect(&asker.tenant).await.map_err(|error| errors::store(&error))?;
    let mut groups = Vec::new();
    for group in found.groups.iter().filter(|group| waits_for_somebody(group)) {
        let last = automations::get(live, asker, group.automation, None).await.ok();
        let automation_name = last.as_ref().map(|stored| stored.name.to_string());
        let mut shown = view::GroupView { automation_name, ..view::group(group) };
        // They found it dead before they called, and only the automation says which one it is.
        if group.why == RepairWhy::Parked(ParkReason::NeedsReconnect)
            && group.connection.is_none()
            && let Some(last) = last
        {
            let through = executions::calls_through(live, asker, last.id, last.version).await;
            let mut dead = connections.iter().map(|(id, _)| id).filter(|id| through.contains(id));
            shown.connection = dead.next().filter(|_| dead.next().is_none()).map(ToString::to_string);
        }
        groups.push(serde_json::to_value(shown).map_err(|_| No::Internal)?);
    }
    Ok(Inbox { groups, is_partial: found.is_partial, connections, dead_letters })
}

/// A provider's limit ends by itself.
fn waits_for_somebody(group: &RepairGroup) -> bool {
    matches!(group.why, RepairWhy::Quarantined | RepairWhy::Parked(ParkReason::Ambiguous | ParkReason::NeedsReconnect))
}

pub(super) async fn dismiss(live: &Live, asker: &Asker, run: RunId, dismiss: &Dismiss) -> Result<(), No> {
    match live.acts.dismiss(&asker.tenant, run, &asker.by, &dismiss.reason).await {
        Ok(()) => {
            tracing::info!(tenant = %asker.tenant, %run, by = %asker.by, "a dead letter was put away");
            // One that was kept beyond its time in the index is there until it is told.
            if !live.index.caught_up(executions::CATCH_UP).await.is_stale {
                live.index.dismiss(&asker.tenant, run, &asker.by).await.map_err(errors::index)?;
            }
            Ok(())
        }
        // Its records are past their retention, and only its line was kept: there is no history to write it into.
        Err(ActError::NotFound) => match live.index.dismiss(&asker.tenant, run, &asker.by).await {
            Ok(Dismissal::Dismissed) => {
                let reason = domain::text::Untrusted::with_limit(dismiss.reason.as_bytes(), 1_024).to_string();
                tracing::info!(tenant = %asker.tenant, %run, by = %asker.by, %reason, "a dead letter was put away");
                Ok(())
            }
            Ok(Dismissal::Unknown) => Err(No::NotFound),
            Ok(Dismissal::NoDeadLetter) => Err(errors::act(&ActError::NoDeadLetter)),
            Err(error) => Err(errors::index(error)),
        },
        Err(error) => Err(errors::act(&error)),
    }
}

/// Those that the tenant's file has, and those that are dead and that it has no more: their runs still wait.
pub(super) async fn connections(
    live: &Live,
    config: &InForce,
    asker: &Asker,
) -> Result<Vec<(ConnectionId, ConnectionState)>, No> {
    let dead = live.definitions.needing_reconnect(&asker.tenant).await.map_err(|error| errors::store(&error))?;
    let own = config.connections.get(&asker.tenant).into_iter().flat_map(|own| own.keys());
    let well = own.filter(|id| dead.iter().all(|(dead, _)| dead != *id));
    let mut all: Vec<_> = well.map(|id| (id.clone(), ConnectionState::Connected)).collect();
    all.extend(dead);
    all.sort_by(|(one, _), (other, _)| one.as_str().cmp(other.as_str()));
    Ok(all)
}

/// Whether the tenant has such a connection, or had it when it died.
pub(super) async fn has_connection(
    live: &Live,
    config: &InForce,
    asker: &Asker,
    id: &ConnectionId,
) -> Result<bool, No> {
    if config.connection(&asker.tenant, id).is_some() {
        return Ok(true);
    }
    let state = live.definitions.connection_state(&asker.tenant, id).await.map_err(|error| errors::store(&error))?;
    Ok(state != ConnectionState::Connected)
}
