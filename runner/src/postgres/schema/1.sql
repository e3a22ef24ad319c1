-- Which ledger this is: a random name that whatever is made of it (an index of a node) is filed under.
CREATE TABLE tidegate_ledger (one smallint PRIMARY KEY, id bytea NOT NULL);

-- Heads: where each run is. One row per run for ever, so that a run is admitted once.
-- Times are milliseconds since the Unix epoch; wake_at is 9223372036854775807 where somebody has to act. What tells ages
-- (admitted_at, over_at) is by the database's clock.
CREATE TABLE tidegate_run_heads (
    run bytea PRIMARY KEY,
    tenant text NOT NULL,
    seq bigint NOT NULL,
    lease bigint NOT NULL,
    owner bytea NOT NULL,
    lease_until bigint NOT NULL,
    wake_at bigint NOT NULL,
    standing smallint NOT NULL,  -- 0 open, 1 quarantined, 2 over
    token bigint NOT NULL,       -- of the last commit
    class smallint NOT NULL DEFAULT 0,      -- the queue that it began in: 0 interactive, 1 retry, 2 released, 3 bulk
    admitted_at bigint NOT NULL DEFAULT 0,
    over_at bigint NOT NULL DEFAULT 0,      -- 0 while it is not over
    kept smallint NOT NULL DEFAULT 0        -- 0 everything, 1 no inputs and outputs, 2 nothing but this row
);
CREATE INDEX tidegate_run_heads_waiting ON tidegate_run_heads (wake_at, run) WHERE standing = 0;
CREATE INDEX tidegate_run_heads_aside ON tidegate_run_heads (run) WHERE standing = 1;
-- What retention asks for; runs of which only this row is left are in neither.
CREATE INDEX tidegate_run_heads_over ON tidegate_run_heads (kept, over_at, run) WHERE standing = 2 AND kept < 2;
CREATE INDEX tidegate_run_heads_whole ON tidegate_run_heads (admitted_at, run) WHERE kept = 0;

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
    is_act boolean NOT NULL DEFAULT false,       -- of somebody who does not work on the run
    has_blobs boolean NOT NULL DEFAULT false,    -- it names some
    PRIMARY KEY (shard, position)
);
CREATE UNIQUE INDEX tidegate_run_commits_of_run ON tidegate_run_commits (run, first_seq);
CREATE INDEX tidegate_run_commits_of_acts ON tidegate_run_commits (shard, position) WHERE is_act;

-- What is too large for a commit, or is needed where it did not come to be: payloads by their digests, and events that runs
-- began with by their ids. A row is there when all of its parts are. kept_at is by the database's clock.
CREATE TABLE tidegate_blobs (
    tenant text NOT NULL,
    kind smallint NOT NULL,      -- 0 payload, 1 event
    name bytea NOT NULL,
    bytes bigint NOT NULL,
    kept_at bigint NOT NULL,
    PRIMARY KEY (tenant, kind, name)
);
CREATE INDEX tidegate_blobs_by_age ON tidegate_blobs (kept_at);
CREATE TABLE tidegate_blob_parts (
    tenant text NOT NULL,
    kind smallint NOT NULL,
    name bytea NOT NULL,
    part smallint NOT NULL,
    body bytea NOT NULL,
    PRIMARY KEY (tenant, kind, name, part),
    FOREIGN KEY (tenant, kind, name) REFERENCES tidegate_blobs ON DELETE CASCADE
);

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
