//! Automations and their versions.

use std::sync::Arc;

use runner::api::{Asker, Document, DocumentFault, DocumentForm, No, Page, Saved};
use runner::automation::{Draft, Format, Listed, StoreError, Stored};
use runner::ids::{AutomationId, Version};

use super::super::live::Live;
use super::errors;

/// A document that is sound, by itself and by the connections that its tenant has.
pub(super) async fn draft(live: &Arc<Live>, asker: &Asker, document: Document) -> Result<Draft, No> {
    let text = String::from_utf8(document.text.to_vec())
        .map_err(|_| No::Invalid(vec![DocumentFault::new("", "is no UTF-8")]))?;
    let format = match document.form {
        DocumentForm::Json => Format::Json,
        DocumentForm::Yaml => Format::Yaml,
    };
    let (live, tenant) = (Arc::clone(live), asker.tenant.clone());
    // Up to half a second of a processor.
    let read = tokio::task::spawn_blocking(move || {
        let draft = Draft::read(&text, format)?;
        draft.check(&tenant, &*live.connectors)?;
        Ok(draft)
    });
    read.await.map_err(|_| No::Internal)?.map_err(errors::faults)
}

pub(super) async fn create(live: &Arc<Live>, asker: &Asker, document: Document, now_unix_ms: u64) -> Result<Saved, No> {
    let draft = draft(live, asker, document).await?;
    let id = new_id(now_unix_ms)?;
    let stored = draft.into_stored(asker.tenant.clone(), id, Version::MIN, now_unix_ms, &asker.by);
    save(live, asker, stored).await
}

pub(super) async fn replace(
    live: &Arc<Live>,
    asker: &Asker,
    (id, expected): (AutomationId, Option<Version>),
    document: Document,
    now_unix_ms: u64,
) -> Result<Saved, No> {
    let draft = draft(live, asker, document).await?;
    let last = get(live, asker, id, None).await?;
    if last.is_deleted {
        return Err(No::NotFound);
    }
    if expected.is_some_and(|expected| expected != last.version) {
        return Err(No::VersionConflict { last: last.version.get() });
    }
    if last.digest == draft.digest() {
        return Ok(Saved { stored: last, is_unchanged: true, warnings: Vec::new() });
    }
    let version = last.version.checked_add(1).ok_or(No::Internal)?;
    // Whoever was quicker is told of as a conflict, whether a version was named or not: it is that one that is edited.
    save(live, asker, draft.into_stored(asker.tenant.clone(), id, version, now_unix_ms, &asker.by)).await
}

async fn save(live: &Live, asker: &Asker, stored: Stored) -> Result<Saved, No> {
    let put = live.definitions.put(stored.clone()).await;
    if put == Err(StoreError::NameTaken) {
        return Err(No::NameTaken(stored.name));
    }
    put.map_err(|error| errors::store(&error))?;
    live.triggers.changed(&asker.tenant);
    tracing::info!(
        tenant = %asker.tenant, automation = %stored.id, version = stored.version.get(), by = %asker.by,
        "an automation was stored"
    );
    Ok(Saved { stored, is_unchanged: false, warnings: Vec::new() })
}

/// Ids sort by when they were made, and nobody guesses one.
fn new_id(now_unix_ms: u64) -> Result<AutomationId, No> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes[6..]).map_err(|_| No::Internal)?;
    bytes[..6].copy_from_slice(&now_unix_ms.to_be_bytes()[2..]);
    Ok(AutomationId::from_bytes(bytes))
}

pub(super) async fn get(live: &Live, asker: &Asker, id: AutomationId, version: Option<Version>) -> Result<Stored, No> {
    let found = live.definitions.get(&asker.tenant, id, version).await.map_err(|error| errors::store(&error))?;
    let stored = found.ok_or(No::NotFound)?;
    if stored.tenant != asker.tenant {
        tracing::error!(tenant = %asker.tenant, automation = %id, "a definition is another tenant's");
        return Err(No::NotFound);
    }
    Ok(stored)
}

pub(super) async fn list(
    live: &Live,
    asker: &Asker,
    after: Option<AutomationId>,
    limit: usize,
) -> Result<Page<Listed>, No> {
    let mut items =
        live.definitions.list(&asker.tenant, after, limit + 1).await.map_err(|error| errors::store(&error))?;
    let has_more = items.len() > limit;
    items.truncate(limit);
    let next = items.last().filter(|_| has_more).map(|last| last.id.to_string().into());
    Ok(Page { items, next, is_stale: false })
}

/// The one of this name that is not deleted.
pub(super) async fn named(live: &Live, asker: &Asker, name: &str) -> Result<Option<Listed>, No> {
    let found = live.definitions.by_name(&asker.tenant, name).await.map_err(|error| errors::store(&error))?;
    let Some(id) = found else { return Ok(None) };
    let stored = get(live, asker, id, None).await?;
    Ok(Some(Listed {
        id,
        name: stored.name,
        version: stored.version,
        is_enabled: stored.is_enabled,
        is_deleted: stored.is_deleted,
        at_unix_ms: stored.at_unix_ms,
    }))
}

pub(super) async fn delete(live: &Live, asker: &Asker, id: AutomationId) -> Result<(), No> {
    let was_there =
        live.definitions.delete(&asker.tenant, id, &asker.by).await.map_err(|error| errors::store(&error))?;
    live.triggers.changed(&asker.tenant);
    if !was_there {
        return Err(No::NotFound);
    }
    tracing::info!(tenant = %asker.tenant, automation = %id, by = %asker.by, "an automation was deleted");
    Ok(())
}
