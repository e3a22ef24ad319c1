//! Commits of different runs as the columns that statements take.

use std::collections::HashMap;

use domain::TenantId;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use super::blobs::blobs_of;
use super::sql;
use crate::ids::RunId;
use crate::ledger::codec::{self, Heading, Turn};
use crate::ledger::record::{Body, QueueClass};
use crate::ledger::rules::{Change, Head, Lapse, Standing, Wake};
use crate::ledger::store::{AppendError, Commit, Committed, Writer};
use crate::postgres::Statement;

/// Longest that a lease can be taken for: whatever is asked, sums of times stay in range.
pub(super) const LEASE_MS_MAX: u64 = 10 * 365 * 86_400_000;
const NEVER: i64 = i64::MAX;
/// Of a head: how much is kept.
const FORGOTTEN: i16 = 2;

/// What a batch has in columns. Each run is there once.
#[derive(Debug, Default)]
pub(super) struct Batch {
    shard: i16,
    records: i64,
    admitted: Admitted,
    advanced: Advanced,
    all: All,
}

#[derive(Debug, Default)]
struct Admitted {
    run: Vec<Vec<u8>>,
    tenant: Vec<String>,
    records: Vec<i64>,
    wake: Vec<i64>,
    standing: Vec<i16>,
    token: Vec<i64>,
    class: Vec<i16>,
}

#[derive(Debug, Default)]
struct Advanced {
    run: Vec<Vec<u8>>,
    tenant: Vec<String>,
    expected: Vec<i64>,
    records: Vec<i64>,
    who: Vec<i16>,
    lease: Vec<i64>,
    owner: Vec<Vec<u8>>,
    span: Vec<Option<i64>>,
    wake: Vec<Option<i64>>,
    standing: Vec<Option<i16>>,
    must_go_on: Vec<bool>,
    token: Vec<i64>,
}

#[derive(Debug, Default)]
struct All {
    run: Vec<Vec<u8>>,
    token: Vec<i64>,
    first: Vec<i64>,
    records: Vec<i64>,
    tenant: Vec<String>,
    place: Vec<i64>,
    body: Vec<Vec<u8>>,
    is_act: Vec<bool>,
    has_blobs: Vec<bool>,
}

impl Batch {
    /// `token` tells this batch's heads from all others': random.
    pub(super) fn new<'a>(shard: u8, token: i64, commits: impl Iterator<Item = &'a Commit>) -> Self {
        let mut batch = Self { shard: i16::from(shard), ..Self::default() };
        for (commit, nth) in commits.zip(0..) {
            batch.add(commit, token.wrapping_add(nth));
        }
        batch
    }

    fn add(&mut self, commit: &Commit, token: i64) {
        let change = Change::of(commit);
        if change.admits {
            self.admitted.add(commit, &change, token);
        } else {
            self.advanced.add(commit, &change, token);
        }
        let count = commit.bodies.len();
        self.records += number(count as u64);
        let heading = Heading {
            tenant: commit.tenant.clone(),
            run: commit.run,
            first: commit.expected + 1,
            count: u16::try_from(count).unwrap_or(u16::MAX),
            // Only the head knows it: it is a column of its own.
            lease: 0,
            at_unix_ms: commit.at_unix_ms,
            turn: Turn::of(&commit.bodies),
        };
        self.all.run.push(commit.run.as_bytes().to_vec());
        self.all.token.push(token);
        self.all.first.push(number(heading.first));
        self.all.records.push(i64::from(heading.count));
        self.all.tenant.push(commit.tenant.to_string());
        self.all.place.push(self.records);
        self.all.body.push(codec::encode(&heading, &commit.bodies, 0));
        self.all.is_act.push(commit.writer == Writer::Anyone && !change.admits);
        self.all.has_blobs.push(commit.bodies.iter().any(|body| blobs_of(body).next().is_some()));
    }

    /// What is sent, in this order. The last answers with the heads.
    pub(super) fn statements(&self) -> Vec<Statement<'_>> {
        let mut statements = vec![Statement { sql: sql::TAKE_PLACES, params: vec![&self.shard, &self.records] }];
        if !self.admitted.run.is_empty() {
            statements.push(Statement { sql: sql::ADMIT, params: self.admitted.params() });
        }
        if !self.advanced.run.is_empty() {
            statements.push(Statement { sql: sql::ADVANCE, params: self.advanced.params() });
        }
        let All { run, token, first, records, tenant, place, body, is_act, has_blobs } = &self.all;
        let params: Vec<&(dyn ToSql + Sync)> =
            vec![&self.shard, &self.records, run, token, first, records, tenant, place, body, is_act, has_blobs];
        statements.push(Statement { sql: sql::RECORD, params });
        statements.push(Statement { sql: sql::HEADS, params: vec![run] });
        statements
    }

    /// What came of each commit, by the heads after the batch.
    pub(super) fn answers<'a>(
        &self,
        commits: impl Iterator<Item = &'a Commit>,
        heads: &[Row],
    ) -> Vec<Result<Committed, AppendError>> {
        let heads: Option<HashMap<RunId, Found>> =
            heads.iter().map(|row| Found::read(row).map(|found| (found.run, found))).collect();
        let Some(heads) = heads else {
            // It has committed, and nobody can say what: whoever asked reads.
            let odd = || Err(AppendError::Unavailable("the database has heads that nobody can read".into()));
            return commits.map(|_| odd()).collect();
        };
        let answer = |(commit, token): (&Commit, &i64)| match heads.get(&commit.run) {
            Some(found) if found.token == *token => Ok(found.head.committed()),
            Some(found) => Err(found.refusal(commit)),
            None => Err(AppendError::Conflict { seq: 0 }),
        };
        commits.zip(&self.all.token).map(answer).collect()
    }
}

impl Admitted {
    fn add(&mut self, commit: &Commit, change: &Change<'_>, token: i64) {
        self.run.push(commit.run.as_bytes().to_vec());
        self.tenant.push(commit.tenant.to_string());
        self.records.push(number(commit.bodies.len() as u64));
        self.wake.push(change.wake.map_or(0, wake_number));
        self.standing.push(change.standing.map_or(0, standing_number));
        self.token.push(token);
        if let Some(Body::Admitted(admitted)) = commit.bodies.first() {
            self.class.push(class_number(admitted.class));
        }
    }

    fn params(&self) -> Vec<&(dyn ToSql + Sync)> {
        vec![&self.run, &self.tenant, &self.records, &self.wake, &self.standing, &self.token, &self.class]
    }
}

impl Advanced {
    fn add(&mut self, commit: &Commit, change: &Change<'_>, token: i64) {
        let (who, lease) = match commit.writer {
            Writer::Anyone => (0, 0),
            Writer::Lease(lease) if change.takes.is_none() => (1, lease),
            Writer::Lease(lease) => (2, lease),
        };
        self.run.push(commit.run.as_bytes().to_vec());
        self.tenant.push(commit.tenant.to_string());
        self.expected.push(number(commit.expected));
        self.records.push(number(commit.bodies.len() as u64));
        self.who.push(who);
        self.lease.push(number(lease));
        self.owner.push(change.takes.map_or_else(Vec::new, |taken| taken.owner.as_bytes().to_vec()));
        self.span.push(change.lease_until(commit, 0).map(|span| number(span.min(LEASE_MS_MAX))));
        self.wake.push(change.wake.map(wake_number));
        self.standing.push(change.standing.map(standing_number));
        self.must_go_on.push(change.needs_unfinished);
        self.token.push(token);
    }

    fn params(&self) -> Vec<&(dyn ToSql + Sync)> {
        vec![
            &self.run,
            &self.tenant,
            &self.expected,
            &self.records,
            &self.who,
            &self.lease,
            &self.owner,
            &self.span,
            &self.wake,
            &self.standing,
            &self.must_go_on,
            &self.token,
        ]
    }
}

/// A head as it is in the table.
#[derive(Debug)]
pub(super) struct Found {
    run: RunId,
    pub(super) head: Head,
    token: i64,
    now_unix_ms: u64,
    /// Only its id is left.
    is_forgotten: bool,
}

impl Found {
    pub(super) fn read(row: &Row) -> Option<Self> {
        let unsigned = |at: usize| u64::try_from(row.try_get::<_, i64>(at).ok()?).ok();
        let head = Head {
            tenant: TenantId::parse(row.try_get(1).ok()?).ok()?,
            seq: unsigned(2)?,
            lease: unsigned(3)?,
            owner: String::from_utf8(row.try_get(4).ok()?).ok()?.into(),
            lease_until_unix_ms: unsigned(5)?,
            wake: match row.try_get(6).ok()? {
                NEVER => Wake::Never,
                at => Wake::At(u64::try_from(at).ok()?),
            },
            standing: match row.try_get::<_, i16>(7).ok()? {
                0 => Standing::Open,
                1 => Standing::Quarantined,
                2 => Standing::Terminal,
                _ => return None,
            },
        };
        let run = run_id(row.try_get(0).ok()?)?;
        let is_forgotten = row.try_get::<_, i16>(10).ok()? == FORGOTTEN;
        Some(Self { run, head, token: row.try_get(8).ok()?, now_unix_ms: unsigned(9)?, is_forgotten })
    }

    /// Why the statement has not taken it: by the rules, which say the same.
    fn refusal(&self, commit: &Commit) -> AppendError {
        let change = Change::of(commit);
        if change.admits && self.head.tenant == commit.tenant {
            return AppendError::Conflict { seq: self.head.seq };
        }
        match self.head.allows(commit, &change, Lapse::At(self.now_unix_ms)) {
            Err(error @ AppendError::Tenant) => error,
            _ if self.is_forgotten => AppendError::Invalid("the run is no longer kept"),
            Err(error) => error,
            Ok(()) => AppendError::Unavailable("the database has refused what the rules allow".into()),
        }
    }
}

pub(super) fn run_id(bytes: &[u8]) -> Option<RunId> {
    bytes.try_into().ok().map(RunId::from_bytes)
}

/// What the rules have bounded to 63 bits.
pub(super) fn number(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn wake_number(wake: Wake) -> i64 {
    match wake {
        Wake::At(at) => number(at).min(NEVER - 1),
        Wake::Never => NEVER,
    }
}

pub(super) fn class_number(class: QueueClass) -> i16 {
    match class {
        QueueClass::Interactive => 0,
        QueueClass::Retry => 1,
        QueueClass::ParkedRelease => 2,
        QueueClass::Bulk => 3,
    }
}

pub(super) fn class_of(number: i16) -> Option<QueueClass> {
    const ALL: [QueueClass; 4] =
        [QueueClass::Interactive, QueueClass::Retry, QueueClass::ParkedRelease, QueueClass::Bulk];
    ALL.into_iter().find(|class| class_number(*class) == number)
}

fn standing_number(standing: Standing) -> i16 {
    match standing {
        Standing::Open => 0,
        Standing::Quarantined => 1,
        Standing::Terminal => 2,
    }
}
