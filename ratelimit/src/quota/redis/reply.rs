//! Answers as the library gives them. A server is not trusted: what is not as it has to be is not read.

use redis::Value;

use crate::quota::answer::{
    Answer, BucketView, Denial, HOLDERS_SHOWN_MAX, HolderView, Lease, ParkView, RefusalView, Reply,
};
use crate::quota::key::BucketKey;
use crate::quota::name::HolderId;
use crate::quota::op::{Body, Tally, Why};
use crate::quota::rule::{Kind, LEASE_MS_MAX, Rule, RuleSpec};

use super::fault::Fault;
use super::wire::parse_bucket_name;

/// What a lease takes of an answer.
const LEASE_BYTES: usize = 36;

/// The answer to the operation.
pub(super) fn read(value: Value, body: &Body) -> Result<Reply, Fault> {
    read_answer(value, body).ok_or(Fault::Unreadable)
}

/// The epoch, of an answer that has nothing else.
pub(super) fn read_epoch(value: Value) -> Result<u64, Fault> {
    Fields::of(value).and_then(|mut fields| fields.int()).ok_or(Fault::Unreadable)
}

/// The epoch, and names of buckets: no more than were asked for.
pub(super) fn read_names(value: Value, most: u16) -> Result<(u64, Vec<BucketKey>), Fault> {
    let read = || {
        let mut fields = Fields::of(value)?;
        let (epoch, word) = (fields.int()?, fields.word()?);
        let names = Fields::of(fields.next()?)?;
        if word != "names" || names.0.len() > usize::from(most) {
            return None;
        }
        let keys = names.0.map(|name| parse_bucket_name(&text(name)?)).collect::<Option<Vec<_>>>()?;
        Some((epoch, keys))
    };
    read().ok_or(Fault::Unreadable)
}

/// A bucket, if it is still there.
pub(super) fn read_view(value: Value) -> Result<Option<BucketView>, Fault> {
    let read = || {
        let mut fields = Fields::of(value)?;
        let (_epoch, word) = (fields.int::<u64>()?, fields.word()?);
        match word.as_str() {
            "no-bucket" => Some(None),
            "bucket" => Some(Some(view(&mut fields)?)),
            _ => None,
        }
    };
    read().ok_or(Fault::Unreadable)
}

fn read_answer(value: Value, body: &Body) -> Option<Reply> {
    let mut fields = Fields::of(value)?;
    let epoch = fields.int()?;
    let word = fields.word()?;
    let answer = match (word.as_str(), body) {
        ("granted", Body::Acquire(acquire)) => {
            let leases = fields.leases(acquire.legs.len())?;
            let is_asked = leases.iter().zip(&acquire.legs).all(|(lease, leg)| lease.units <= leg.want);
            is_asked.then_some(Answer::Granted(leases))?
        }
        ("replayed", Body::Acquire(acquire)) => Answer::Replayed(fields.leases(acquire.legs.len())?),
        ("renewed", Body::Renew(renew)) => Answer::Renewed(fields.leases(renew.legs.len())?),
        ("stale", Body::Acquire(_) | Body::Renew(_)) => Answer::Stale { leg: fields.leg(body)?, seq: fields.int()? },
        ("denied", _) => {
            Answer::Denied { leg: fields.leg(body)?, retry_ms: fields.int()?, why: denial(&fields.word()?)? }
        }
        ("parked", Body::Acquire(_)) => {
            Answer::Parked { leg: fields.leg(body)?, ms: fields.int()?, why: why(&fields.word()?)? }
        }
        ("learning", Body::Acquire(_)) => Answer::Learning { leg: fields.leg(body)?, ms: fields.int()? },
        ("parked-for", Body::Penalise(_)) => Answer::ParkedFor { ms: fields.int()?, generation: fields.int()? },
        ("done", _) if !matches!(body, Body::Acquire(_) | Body::Renew(_)) => {
            Answer::Done { units: u32::try_from(fields.int::<u64>()?).unwrap_or(u32::MAX) }
        }
        ("no-bucket", Body::Release(_) | Body::Reset(_)) => Answer::NoBucket,
        _ => return None,
    };
    fields.end()?;
    Some(Reply { epoch, answer })
}

fn view(fields: &mut Fields) -> Option<BucketView> {
    let key = parse_bucket_name(&fields.word()?)?;
    let rule = rule(&mut Fields::of(fields.next()?)?)?;
    let mut numbers = Fields::of(fields.next()?)?;
    let (used, room, generation) = (numbers.int()?, numbers.int()?, numbers.int()?);
    let (limit_seen, park, alpha_milli) = (numbers.maybe()?, numbers.maybe()?, numbers.int()?);
    let (lambda_milli, tenants, learning_ms) = (numbers.maybe()?, numbers.int()?, numbers.maybe()?);
    let reason = fields.word()?;
    let park = match park {
        Some(ms) => Some(ParkView { ms, why: why(&reason)? }),
        None => None,
    };
    let holders = holders(Fields::of(fields.next()?)?)?;
    let refusal = refusal(Fields::of(fields.next()?)?)?;
    Some(BucketView {
        key,
        rule,
        used,
        room,
        generation,
        limit_seen,
        park,
        alpha_milli,
        lambda_milli,
        tenants,
        learning_ms,
        holders,
        refusal,
    })
}

fn rule(fields: &mut Fields) -> Option<Rule> {
    let (cfgver, kind, cap) = (fields.int()?, fields.int::<u8>()?, fields.int()?);
    let (lease_ms, guard_ms, skew_ms) = (fields.int()?, fields.int()?, fields.int()?);
    let (first, second, third) = (fields.int()?, fields.int::<u64>()?, fields.int()?);
    let kind = match kind {
        0 => Kind::Fixed { window_ms: first, offset_ms: second },
        1 => Kind::Anchored { window_ms: first, slots: second.try_into().ok()? },
        2 => Kind::Calendar { bounds_ms: [first, second, third] },
        3 => Kind::Sliding { window_ms: first, slots: second.try_into().ok()? },
        4 => Kind::Bucket { window_ms: first, burst: second.try_into().ok()? },
        5 => Kind::Concurrency,
        _ => return None,
    };
    Rule::checked(RuleSpec { cfgver, kind, cap, lease_ms, guard_ms, skew_ms }).ok()
}

fn holders(mut fields: Fields) -> Option<Vec<HolderView>> {
    let mut holders = Vec::new();
    while !fields.is_empty() && holders.len() < HOLDERS_SHOWN_MAX {
        let holder = HolderId::parse(&fields.word()?).ok()?;
        holders.push(HolderView { holder, units: fields.int()?, ttl_ms: fields.int()? });
    }
    fields.end()?;
    Some(holders)
}

#[expect(clippy::option_option, reason = "what cannot be read, and nothing that stands there")]
fn refusal(mut fields: Fields) -> Option<Option<RefusalView>> {
    if fields.is_empty() {
        return Some(None);
    }
    let (word, ms, reason) = (fields.word()?, fields.int()?, fields.word()?);
    Some(Some(match word.as_str() {
        "learning" => RefusalView::Learning { ms },
        "parked" => RefusalView::Parked { ms, why: why(&reason)? },
        "denied" => RefusalView::Denied { retry_ms: ms, why: denial(&reason)? },
        _ => return None,
    }))
}

fn why(word: &str) -> Option<Why> {
    Why::ALL.into_iter().find(|why| why.word() == word)
}

fn denial(word: &str) -> Option<Denial> {
    Denial::ALL.into_iter().find(|denial| denial.word() == word)
}

/// The elements of an array, one after the other.
struct Fields(std::vec::IntoIter<Value>);

impl Fields {
    fn of(value: Value) -> Option<Self> {
        let Value::Array(values) = value else { return None };
        Some(Self(values.into_iter()))
    }

    fn next(&mut self) -> Option<Value> {
        self.0.next()
    }

    fn int<T: TryFrom<i64>>(&mut self) -> Option<T> {
        let Value::Int(value) = self.next()? else { return None };
        T::try_from(value).ok()
    }

    /// −1 is none.
    #[expect(clippy::option_option, reason = "what cannot be read, and nothing that stands there")]
    fn maybe<T: TryFrom<i64>>(&mut self) -> Option<Option<T>> {
        let Value::Int(value) = self.next()? else { return None };
        if value == -1 { Some(None) } else { T::try_from(value).ok().map(Some) }
    }

    fn word(&mut self) -> Option<String> {
        text(self.next()?)
    }

    fn leg(&mut self, body: &Body) -> Option<u8> {
        let legs = match body {
            Body::Acquire(acquire) => acquire.legs.len(),
            Body::GiveBack(back) => back.legs.len(),
            Body::Renew(renew) => renew.legs.len(),
            Body::Penalise(_)
            | Body::Observe(_)
            | Body::Settle(_)
            | Body::Release(_)
            | Body::Reset(_)
            | Body::Describe(_) => 1,
        };
        self.int::<u8>().filter(|&leg| usize::from(leg) < legs)
    }

    /// As many leases as were asked for, all in one string of bytes.
    fn leases(&mut self, count: usize) -> Option<Vec<Lease>> {
        let Value::BulkString(bytes) = self.next()? else { return None };
        let (leases, rest) = bytes.as_chunks::<LEASE_BYTES>();
        if leases.len() != count || !rest.is_empty() {
            return None;
        }
        leases.iter().map(lease).collect()
    }

    fn is_empty(&self) -> bool {
        self.0.len() == 0
    }

    /// Nothing may follow.
    fn end(&self) -> Option<()> {
        self.is_empty().then_some(())
    }
}

/// Units and ttl, of four bytes; gen, wid, tally and tally before, of seven. The lowest byte comes first.
fn lease(bytes: &[u8; LEASE_BYTES]) -> Option<Lease> {
    let int = |from: usize, size: usize| {
        let mut wide = [0; 8];
        wide[..size].copy_from_slice(&bytes[from..from + size]);
        u64::from_le_bytes(wide)
    };
    let (units, ttl_ms) = (u32::try_from(int(0, 4)).ok()?, u32::try_from(int(4, 4)).ok()?);
    let tally = Tally { wid: int(15, 7), units: int(22, 7), before: int(29, 7) };
    (ttl_ms <= LEASE_MS_MAX).then(|| Lease { units, ttl_ms, generation: int(8, 7), tally })
}

fn text(value: Value) -> Option<String> {
    let Value::BulkString(bytes) = value else { return None };
    String::from_utf8(bytes).ok()
}
