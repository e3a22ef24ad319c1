//! Every statement about definitions.

/// Id.
pub(super) const LOCK: &str = "SELECT tenant, version, is_deleted FROM tidegate_automations WHERE id = $1 FOR UPDATE";

/// Id, tenant, version, name, whether it is enabled, time.
pub(super) const MAKE: &str = "\
    INSERT INTO tidegate_automations (id, tenant, version, name, is_enabled, is_deleted, at_unix_ms) \
    VALUES ($1, $2, $3, $4, $5, false, $6)";

/// The same.
pub(super) const EDIT: &str = "\
    UPDATE tidegate_automations SET version = $3, name = $4, is_enabled = $5, at_unix_ms = $6 \
    WHERE id = $1 AND tenant = $2";

/// Id, version, tenant, name, document, digest, endpoints, whether it is enabled, time, whose.
pub(super) const KEEP: &str = "\
    INSERT INTO tidegate_automation_versions \
      (id, version, tenant, name, json, digest, endpoints, is_enabled, at_unix_ms, by_whom) \
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)";

/// Id.
pub(super) const UNLISTEN: &str = "DELETE FROM tidegate_automation_triggers WHERE id = $1";

/// Tenant, id, endpoints.
pub(super) const LISTEN: &str = "\
    INSERT INTO tidegate_automation_triggers (tenant, id, endpoint) \
    SELECT $1, $2, e.endpoint FROM unnest($3::text[]) AS e (endpoint) ON CONFLICT DO NOTHING";

/// Id, tenant, whose.
pub(super) const DELETE: &str = "\
    UPDATE tidegate_automations SET is_deleted = true, deleted_by = $3 \
    WHERE id = $1 AND tenant = $2 AND NOT is_deleted RETURNING version";

/// Id, tenant, version (null: the last).
pub(super) const GET: &str = "\
    SELECT v.tenant, v.version, v.name, v.json, v.digest, v.endpoints, v.is_enabled, v.at_unix_ms, v.by_whom, \
      a.is_deleted \
    FROM tidegate_automations a \
    JOIN tidegate_automation_versions v ON v.id = a.id AND v.version = coalesce($3::bigint, a.version) \
    WHERE a.id = $1 AND a.tenant = $2";

/// Tenant, name.
pub(super) const BY_NAME: &str =
    "SELECT id FROM tidegate_automations WHERE tenant = $1 AND name = $2 AND NOT is_deleted";

/// Tenant, id before the first, how many.
pub(super) const LIST: &str = "\
    SELECT id, name, version, is_enabled, is_deleted, at_unix_ms FROM tidegate_automations \
    WHERE tenant = $1 AND id > $2 ORDER BY id LIMIT $3";

/// Tenant, endpoint.
pub(super) const TRIGGERED_BY: &str = "\
    SELECT a.id, a.version FROM tidegate_automation_triggers t \
    JOIN tidegate_automations a ON a.id = t.id \
    WHERE t.tenant = $1 AND t.endpoint = $2 AND a.tenant = $1 AND a.is_enabled AND NOT a.is_deleted ORDER BY a.id";

/// Tenant, connection.
pub(super) const CONNECTION: &str =
    "SELECT since_unix_ms, reason FROM tidegate_dead_connections WHERE tenant = $1 AND connection = $2";

/// Tenant, connection, since when, why.
pub(super) const DIED: &str = "\
    INSERT INTO tidegate_dead_connections (tenant, connection, since_unix_ms, reason) VALUES ($1, $2, $3, $4) \
    ON CONFLICT (tenant, connection) DO NOTHING RETURNING connection";

/// Tenant, connection.
pub(super) const RECONNECTED: &str =
    "DELETE FROM tidegate_dead_connections WHERE tenant = $1 AND connection = $2 RETURNING connection";

/// Tenant.
pub(super) const DEAD: &str =
    "SELECT since_unix_ms, reason, connection FROM tidegate_dead_connections WHERE tenant = $1 ORDER BY connection";
