-- Heads: where each run is. One row per run for ever, so that a run is admitted once.
-- Times are milliseconds since the Unix epoch; wake_at is 9223372036854775807 where somebody has to act.
CREATE TABLE tidegate_run_heads (
    run bytea PRIMARY KEY,
    tenant text NOT NULL,
    seq bigint NOT NULL,
    lease bigint NOT NULL,
    owner bytea NOT NULL,
    lease_until bigint NOT NULL,
    wake_at bigint NOT NULL,
    standing smallint NOT NULL,  -- 0 open, 1 quarantined, 2 over
    token bigint NOT NULL        -- of the last commit
);
CREATE INDEX tidegate_run_heads_waiting ON tidegate_run_heads (wake_at, run) WHERE standing = 0;

-- How far each part of the tail is. Whoever commits holds its row, so that places are in the order of commits.
CREATE TABLE tidegate_run_shards (shard smallint PRIMARY KEY, position bigint NOT NULL);
INSERT INTO tidegate_run_shards VALUES (0, 0), (1, 0), (2, 0), (3, 0), (4, 0), (5, 0), (6, 0), (7, 0);

-- Commits of runs. position is the place of a commit's last record; nothing refers to a row, so that old ones may be
-- dropped in any way.
CREATE TABLE tidegate_run_commits (
    shard smallint NOT NULL,
    position bigint NOT NULL,
    run bytea NOT NULL,
    first_seq bigint NOT NULL,
    records bigint NOT NULL,
    tenant text NOT NULL,
    lease bigint NOT NULL,
    body bytea NOT NULL,
    PRIMARY KEY (shard, position)
);
CREATE UNIQUE INDEX tidegate_run_commits_of_run ON tidegate_run_commits (run, first_seq);

-- Automations: the last version of each, every version, and which endpoints begin them.
CREATE TABLE tidegate_automations (
    id bytea PRIMARY KEY,
    tenant text NOT NULL,
    version bigint NOT NULL,
    name bytea NOT NULL,
    is_enabled boolean NOT NULL,
    is_deleted boolean NOT NULL,
    at_unix_ms bigint NOT NULL,
    deleted_by bytea
);
CREATE UNIQUE INDEX tidegate_automations_by_name ON tidegate_automations (tenant, name) WHERE NOT is_deleted;
CREATE INDEX tidegate_automations_of_tenant ON tidegate_automations (tenant, id);
CREATE TABLE tidegate_automation_versions (
    id bytea NOT NULL,
    version bigint NOT NULL,
    tenant text NOT NULL,
    name bytea NOT NULL,
    json bytea NOT NULL,
    digest bytea NOT NULL,
    endpoints text[] NOT NULL,
    is_enabled boolean NOT NULL,
    at_unix_ms bigint NOT NULL,
    by_whom bytea NOT NULL,
    PRIMARY KEY (id, version)
);
CREATE TABLE tidegate_automation_triggers (
    tenant text NOT NULL,
    endpoint text NOT NULL,
    id bytea NOT NULL,
    PRIMARY KEY (tenant, endpoint, id)
);

-- Connections whose authentication is dead; all others have no row.
CREATE TABLE tidegate_dead_connections (
    tenant text NOT NULL,
    connection text NOT NULL,
    since_unix_ms bigint NOT NULL,
    reason bytea NOT NULL,
    PRIMARY KEY (tenant, connection)
)
