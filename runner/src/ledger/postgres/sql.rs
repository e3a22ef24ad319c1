//! Every statement of the ledger, and what its parameters are.

/// The database's clock, in milliseconds since the Unix epoch: when the transaction began. Whoever waited for a lock so
/// takes a lease to last a little less long, and another's a little longer.
macro_rules! now_ms {
    () => {
        "(extract(epoch from now()) * 1000)::bigint"
    };
}

/// Shard, how many records come.
pub(super) const TAKE_PLACES: &str = "UPDATE tidegate_run_shards SET position = position + $2 WHERE shard = $1";

/// Arrays of: run, tenant, records, wake, standing, token, class.
pub(super) const ADMIT: &str = concat!(
    "INSERT INTO tidegate_run_heads (run, tenant, seq, lease, owner, lease_until, wake_at, standing, token, class, \
       admitted_at, over_at, kept) \
     SELECT c.run, c.tenant, c.records, 0, ''::bytea, 0, c.wake_at, c.standing, c.token, c.class, ",
    now_ms!(),
    ", CASE WHEN c.standing = 2 THEN ",
    now_ms!(),
    " ELSE 0 END, 0 \
     FROM unnest($1::bytea[], $2::text[], $3::bigint[], $4::bigint[], $5::smallint[], $6::bigint[], $7::smallint[]) \
       AS c (run, tenant, records, wake_at, standing, token, class) \
     ON CONFLICT (run) DO NOTHING"
);

/// Arrays of: run, tenant, expected, records, who (0 anyone, 1 holds the lease, 2 takes it), lease, owner, how long the lease
/// holds (null: as it was), wake (null: as it was), standing (null: as it was), whether it must not be over, token.
pub(super) const ADVANCE: &str = concat!(
    "UPDATE tidegate_run_heads AS h SET \
       seq = c.expected + c.records, \
       lease = CASE WHEN c.who = 2 THEN c.lease ELSE h.lease END, \
       owner = CASE WHEN c.who = 2 THEN c.owner ELSE h.owner END, \
       lease_until = CASE WHEN c.span IS NULL THEN h.lease_until ELSE ",
    now_ms!(),
    " + c.span END, \
       wake_at = coalesce(c.wake_at, h.wake_at), \
       standing = coalesce(c.standing, h.standing), \
       token = c.token, \
       over_at = CASE WHEN c.standing IS NULL THEN h.over_at WHEN c.standing = 2 THEN ",
    now_ms!(),
    " ELSE 0 END, \
       kept = 0 \
     FROM unnest($1::bytea[], $2::text[], $3::bigint[], $4::bigint[], $5::smallint[], $6::bigint[], $7::bytea[], \
                 $8::bigint[], $9::bigint[], $10::smallint[], $11::boolean[], $12::bigint[]) \
       AS c (run, tenant, expected, records, who, lease, owner, span, wake_at, standing, must_go_on, token) \
     WHERE h.run = c.run AND h.tenant = c.tenant AND h.seq = c.expected \
       AND (c.who = 0 \
         OR (c.who = 1 AND h.lease = c.lease) \
         OR (c.who = 2 AND h.lease < c.lease AND (h.owner = c.owner OR h.lease_until <= ",
    now_ms!(),
    "))) \
       AND NOT (c.must_go_on AND h.standing = 2) AND h.kept < 2"
);

/// Shard, how many records come, and arrays of: run, token, first sequence, records, tenant, how far into the batch's places
/// its last record is, body, whether somebody has said it who does not work on the run, whether it names blobs. Those that were
/// refused have no head with their token.
pub(super) const RECORD: &str = "\
    INSERT INTO tidegate_run_commits (shard, position, run, first_seq, records, tenant, lease, body, is_act, has_blobs) \
    SELECT s.shard, s.position - $2 + c.place, c.run, c.first_seq, c.records, c.tenant, h.lease, c.body, c.is_act, \
      c.has_blobs \
    FROM unnest($3::bytea[], $4::bigint[], $5::bigint[], $6::bigint[], $7::text[], $8::bigint[], $9::bytea[], \
                $10::boolean[], $11::boolean[]) \
      AS c (run, token, first_seq, records, tenant, place, body, is_act, has_blobs) \
    JOIN tidegate_run_heads h ON h.run = c.run AND h.token = c.token \
    JOIN tidegate_run_shards s ON s.shard = $1";

/// Array of runs.
pub(super) const HEADS: &str = concat!(
    "SELECT run, tenant, seq, lease, owner, lease_until, wake_at, standing, token, ",
    now_ms!(),
    ", kept FROM tidegate_run_heads WHERE run = ANY($1::bytea[])"
);

/// Run, lease, how much longer.
pub(super) const RENEW: &str = concat!(
    "UPDATE tidegate_run_heads SET lease_until = ",
    now_ms!(),
    " + $3 WHERE run = $1 AND lease = $2 AND lease > 0 RETURNING seq"
);

/// Run.
pub(super) const READ: &str =
    "SELECT run, first_seq, records, tenant, lease, body FROM tidegate_run_commits WHERE run = $1 ORDER BY first_seq";

/// Shard, place, how many commits, how many bytes: the first of them is there however large it is.
pub(super) const TAIL: &str = "\
    SELECT run, first_seq, records, tenant, lease, body, position FROM ( \
      SELECT n.*, (sum(octet_length(n.body)) OVER (ORDER BY n.position))::bigint - octet_length(n.body) AS before FROM ( \
        SELECT run, first_seq, records, tenant, lease, body, position FROM tidegate_run_commits \
        WHERE shard = $1 AND position > $2 ORDER BY position LIMIT $3) AS n) AS m \
    WHERE m.before < $4 ORDER BY position";

/// How far all shards are together.
pub(super) const PROGRESS: &str = "SELECT sum(position)::bigint FROM tidegate_run_shards";

/// How far each shard is.
pub(super) const PLACES: &str = "SELECT shard, position FROM tidegate_run_shards ORDER BY shard";

/// Shard, place, how many: what somebody has said of runs that he does not work on.
pub(super) const ACTS: &str = "SELECT tenant, run, position FROM tidegate_run_commits \
                               WHERE shard = $1 AND position > $2 AND is_act ORDER BY position LIMIT $3";

/// Now, how many, and behind which: its time, its run.
pub(super) const CLAIMABLE: &str = concat!(
    "SELECT tenant, run, seq, lease, class, wake_at FROM tidegate_run_heads \
     WHERE standing = 0 AND wake_at <= $1 AND lease_until <= ",
    now_ms!(),
    " AND (wake_at, run) > ($3, $4) ORDER BY wake_at, run LIMIT $2"
);

/// Runs that are not over.
pub(super) const OPEN: &str = "SELECT (SELECT count(*) FROM tidegate_run_heads WHERE standing = 0) + \
                               (SELECT count(*) FROM tidegate_run_heads WHERE standing = 1)";

/// How much is kept of them, their age in milliseconds, how many.
pub(super) const OVER: &str = concat!(
    "SELECT run, token FROM tidegate_run_heads \
     WHERE standing = 2 AND kept = $1 AND over_at < ",
    now_ms!(),
    " - $2 ORDER BY over_at, run LIMIT $3"
);

/// Run, token: only if nothing was appended since it was read.
pub(super) const BARE: &str =
    "UPDATE tidegate_run_heads SET kept = 1 WHERE run = $1 AND token = $2 AND standing = 2 AND kept = 0 RETURNING run";

/// Run, token, arrays of: first sequence, body.
pub(super) const STRIP: &str = "\
    UPDATE tidegate_run_commits AS c SET body = b.body, has_blobs = false \
    FROM unnest($3::bigint[], $4::bytea[]) AS b (first_seq, body) \
    WHERE c.run = $1 AND c.first_seq = b.first_seq \
      AND EXISTS (SELECT 1 FROM tidegate_run_heads h WHERE h.run = $1 AND h.token = $2 AND h.kept = 1)";

/// Array of runs.
pub(super) const FORGET: &str =
    "UPDATE tidegate_run_heads SET kept = 2 WHERE run = ANY($1::bytea[]) AND standing = 2 AND kept = 1";

/// The same.
pub(super) const DROP: &str = "\
    DELETE FROM tidegate_run_commits AS c USING tidegate_run_heads AS h \
    WHERE c.run = ANY($1::bytea[]) AND h.run = c.run AND h.kept = 2";

/// Age in milliseconds, how many, and behind which: its time, its run. Runs of which everything is kept.
pub(super) const WHOLE: &str = concat!(
    "SELECT run, admitted_at FROM tidegate_run_heads \
     WHERE kept = 0 AND admitted_at < ",
    now_ms!(),
    " - $1 AND (admitted_at, run) > ($3, $4) ORDER BY admitted_at, run LIMIT $2"
);

/// Array of runs: their commits that name blobs.
pub(super) const NAMING: &str = "SELECT run, first_seq, records, tenant, lease, body FROM tidegate_run_commits \
                                 WHERE run = ANY($1::bytea[]) AND has_blobs";
