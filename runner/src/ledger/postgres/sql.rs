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

/// Arrays of: run, tenant, records, wake, standing, token.
pub(super) const ADMIT: &str = "\
    INSERT INTO tidegate_run_heads (run, tenant, seq, lease, owner, lease_until, wake_at, standing, token) \
    SELECT c.run, c.tenant, c.records, 0, ''::bytea, 0, c.wake_at, c.standing, c.token \
    FROM unnest($1::bytea[], $2::text[], $3::bigint[], $4::bigint[], $5::smallint[], $6::bigint[]) \
      AS c (run, tenant, records, wake_at, standing, token) \
    ON CONFLICT (run) DO NOTHING";

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
       token = c.token \
     FROM unnest($1::bytea[], $2::text[], $3::bigint[], $4::bigint[], $5::smallint[], $6::bigint[], $7::bytea[], \
                 $8::bigint[], $9::bigint[], $10::smallint[], $11::boolean[], $12::bigint[]) \
       AS c (run, tenant, expected, records, who, lease, owner, span, wake_at, standing, must_go_on, token) \
     WHERE h.run = c.run AND h.tenant = c.tenant AND h.seq = c.expected \
       AND (c.who = 0 \
         OR (c.who = 1 AND h.lease = c.lease) \
         OR (c.who = 2 AND h.lease < c.lease AND (h.owner = c.owner OR h.lease_until <= ",
    now_ms!(),
    "))) \
       AND NOT (c.must_go_on AND h.standing = 2)"
);

/// Shard, how many records come, and arrays of: run, token, first sequence, records, tenant, how far into the batch's places
/// its last record is, body. Those that were refused have no head with their token.
pub(super) const RECORD: &str = "\
    INSERT INTO tidegate_run_commits (shard, position, run, first_seq, records, tenant, lease, body) \
    SELECT s.shard, s.position - $2 + c.place, c.run, c.first_seq, c.records, c.tenant, h.lease, c.body \
    FROM unnest($3::bytea[], $4::bigint[], $5::bigint[], $6::bigint[], $7::text[], $8::bigint[], $9::bytea[]) \
      AS c (run, token, first_seq, records, tenant, place, body) \
    JOIN tidegate_run_heads h ON h.run = c.run AND h.token = c.token \
    JOIN tidegate_run_shards s ON s.shard = $1";

/// Array of runs.
pub(super) const HEADS: &str = concat!(
    "SELECT run, tenant, seq, lease, owner, lease_until, wake_at, standing, token, ",
    now_ms!(),
    " FROM tidegate_run_heads WHERE run = ANY($1::bytea[])"
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

/// Now, how many.
pub(super) const CLAIMABLE: &str = concat!(
    "SELECT tenant, run, seq, lease FROM tidegate_run_heads \
     WHERE standing = 0 AND wake_at <= $1 AND lease_until <= ",
    now_ms!(),
    " ORDER BY wake_at, run LIMIT $2"
);
