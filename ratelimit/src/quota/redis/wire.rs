//! Operations as calls of the library: keys, and numbers as bytes.

use redis::{Cmd, cmd};

use crate::quota::key::{Application, BucketKey, Level};
use crate::quota::op::{Acquire, Body, Class, GiveBack, Leg, Lessee, Metered, Observe, Penalise, Renew, Settle, Why};
use crate::quota::rule::{Kind, Rule};

use super::library::{PREFIX, REVISION};

/// Integers that a double holds. What is beyond is no window, gen or length that anybody has.
const EXACT_MAX: u64 = 1 << 53;

/// What begins all keys of an application; its hash tag.
pub(super) fn tag(application: &Application) -> String {
    format!("{{q:{}:{}}}", application.provider, application.name)
}

/// The application's sharded channel.
pub(super) fn channel(application: &Application) -> String {
    format!("{}:ev", tag(application))
}

/// The name of a bucket in the index and on the channel.
pub(super) fn bucket_name(key: &BucketKey) -> String {
    format!("{} {} {}", level_number(key.level), key.scope, key.policy)
}

/// Reads what [`bucket_name`] writes.
pub(super) fn parse_bucket_name(name: &str) -> Option<BucketKey> {
    let mut parts = name.split(' ');
    let level = parts.next()?.parse::<usize>().ok().and_then(|at| Level::ALL.get(at)).copied()?;
    let mut next = || crate::quota::name::Name::parse(parts.next()?).ok();
    let key = BucketKey { level, scope: next()?, policy: next()? };
    parts.next().is_none().then_some(key)
}

fn level_number(level: Level) -> u8 {
    match level {
        Level::App => 0,
        Level::Connection => 1,
        Level::Region => 2,
        Level::Source => 3,
    }
}

/// The call that does the operation. A description is several calls: none here.
pub(super) fn call(application: &Application, body: &Body) -> Option<Cmd> {
    let mut call = Call { tag: tag(application), keys: Vec::new(), args: Vec::new() };
    let function = match body {
        Body::Acquire(acquire) => call.acquire(acquire),
        Body::GiveBack(back) => call.give_back(back),
        Body::Renew(renew) => call.renew(renew),
        Body::Penalise(penalise) => call.penalise(penalise),
        Body::Observe(observe) => call.observe(observe),
        Body::Settle(settle) => call.settle(settle),
        Body::Release(key) => call.bare("release", key),
        Body::Reset(key) => call.bare("reset", key),
        Body::Describe(_) => return None,
    };
    Some(call.command(function))
}

/// The call that tells the epoch and does nothing.
pub(super) fn nothing(application: &Application) -> Cmd {
    Call { tag: tag(application), keys: Vec::new(), args: vec![vec![REVISION]] }.command("nothing")
}

/// The call that lists names of buckets behind one.
pub(super) fn list(application: &Application, after: Option<&BucketKey>, limit: u16) -> Cmd {
    let mut head = vec![REVISION];
    head.extend_from_slice(&limit.to_le_bytes());
    let after = after.map(bucket_name).unwrap_or_default().into_bytes();
    Call { tag: tag(application), keys: Vec::new(), args: vec![head, after] }.command("list")
}

/// The call that describes one bucket.
pub(super) fn describe(application: &Application, key: &BucketKey) -> Cmd {
    let mut call = Call { tag: tag(application), keys: Vec::new(), args: Vec::new() };
    let function = call.bare("describe", key);
    call.command(function)
}

struct Call {
    tag: String,
    keys: Vec<String>,
    args: Vec<Vec<u8>>,
}

impl Call {
    fn command(self, function: &str) -> Cmd {
        let mut command = cmd("FCALL");
        command.arg(format!("{PREFIX}{function}")).arg(self.keys.len() + 3);
        for own in ["e", "i", "x"] {
            command.arg(format!("{}:{own}", self.tag));
        }
        for key in &self.keys {
            command.arg(key);
        }
        for arg in &self.args {
            command.arg(arg.as_slice());
        }
        command
    }

    fn bucket(&mut self, key: &BucketKey) {
        let letters: &[char] = if key.level == Level::App { &['b', 'z', 's'] } else { &['b', 'z'] };
        for letter in letters {
            self.keys.push(format!("{}:{letter}:{key}", self.tag));
        }
    }

    fn lessee(&mut self, lessee: &Lessee) {
        self.args.push(lessee.holder.to_string().into_bytes());
        self.args.push(lessee.tenant.as_str().as_bytes().to_vec());
    }

    fn bare(&mut self, function: &'static str, key: &BucketKey) -> &'static str {
        self.bucket(key);
        self.args.push(vec![REVISION]);
        function
    }

    fn acquire(&mut self, acquire: &Acquire) -> &'static str {
        let share = acquire.share;
        let mut head = Bytes(vec![REVISION, u8::from(acquire.class == Class::Interactive)]);
        for part in [share.weight, share.floor_permille, share.ceiling_permille] {
            head.0.extend_from_slice(&part.to_le_bytes());
        }
        self.args.push(head.0);
        self.lessee(&acquire.lessee);
        for Leg { bucket, seq, least, want, unspent, demand_milli, tally, heard } in &acquire.legs {
            let mut leg = self.metered(bucket);
            leg.wide(*seq).small(*least).small(*want).small(*unspent).wide(*demand_milli);
            leg.wide(tally.wid).wide(tally.units).wide(tally.before).wide(*heard);
            self.args.push(leg.0);
        }
        "acquire"
    }

    fn give_back(&mut self, back: &GiveBack) -> &'static str {
        self.args.push(vec![REVISION]);
        self.lessee(&back.lessee);
        for unspent in &back.legs {
            self.bucket(&unspent.key);
            let mut leg = Bytes::default();
            leg.wide(unspent.seq).wide(unspent.generation).wide(unspent.wid).small(unspent.units);
            self.args.push(leg.0);
        }
        "give_back"
    }

    fn renew(&mut self, renew: &Renew) -> &'static str {
        self.args.push(vec![REVISION]);
        self.lessee(&renew.lessee);
        for slots in &renew.legs {
            let mut leg = self.metered(&slots.bucket);
            leg.wide(slots.seq).small(slots.held).wide(slots.heard);
            self.args.push(leg.0);
        }
        "renew"
    }

    fn penalise(&mut self, penalise: &Penalise) -> &'static str {
        self.args.push(vec![REVISION]);
        let mut what = self.metered(&penalise.bucket);
        what.wide(penalise.delta_ms).byte(why_number(penalise.why)).maybe(penalise.generation);
        self.args.push(what.0);
        "penalise"
    }

    fn observe(&mut self, observe: &Observe) -> &'static str {
        self.args.push(vec![REVISION]);
        let mut what = self.metered(&observe.bucket);
        what.wide(observe.wid).maybe(observe.limit.map(u64::from)).maybe(observe.remaining.map(u64::from));
        what.maybe(observe.reset_ms);
        self.args.push(what.0);
        "observe"
    }

    fn settle(&mut self, settle: &Settle) -> &'static str {
        self.args.push(vec![REVISION]);
        self.lessee(&settle.lessee);
        self.bucket(&settle.key);
        let mut what = Bytes::default();
        what.wide(settle.seq).wide(settle.wid).wide(settle.age_ms).small(settle.estimate).small(settle.actual);
        self.args.push(what.0);
        "settle"
    }

    /// The bucket's keys, and the rule as what an argument begins with.
    fn metered(&mut self, metered: &Metered) -> Bytes {
        self.bucket(&metered.key);
        let mut bytes = Bytes::default();
        bytes.rule(&metered.rule);
        bytes
    }
}

/// Integers as bytes, the lowest first.
#[derive(Default)]
struct Bytes(Vec<u8>);

impl Bytes {
    fn byte(&mut self, value: u8) -> &mut Self {
        self.0.push(value);
        self
    }

    fn small(&mut self, value: u32) -> &mut Self {
        self.0.extend_from_slice(&value.to_le_bytes());
        self
    }

    /// Seven bytes: what a double holds, and one bit for one that is beyond.
    fn wide(&mut self, value: u64) -> &mut Self {
        self.0.extend_from_slice(&value.min(EXACT_MAX).to_le_bytes()[..7]);
        self
    }

    fn maybe(&mut self, value: Option<u64>) -> &mut Self {
        self.wide(value.map_or(0, |value| value.min(EXACT_MAX - 1) + 1))
    }

    fn rule(&mut self, rule: &Rule) {
        let (kind, a, b, c) = match rule.kind {
            Kind::Fixed { window_ms, offset_ms } => (0, window_ms, offset_ms, 0),
            Kind::Anchored { window_ms, slots } => (1, window_ms, u64::from(slots), 0),
            Kind::Calendar { bounds_ms: [first, second, third] } => (2, first, second, third),
            Kind::Sliding { window_ms, slots } => (3, window_ms, u64::from(slots), 0),
            Kind::Bucket { window_ms, burst } => (4, window_ms, u64::from(burst), 0),
            Kind::Concurrency => (5, 0, 0, 0),
        };
        self.small(rule.cfgver)
            .byte(kind)
            .small(rule.cap)
            .small(rule.lease_ms)
            .small(rule.guard_ms)
            .small(rule.skew_ms);
        self.wide(a).wide(b).wide(c);
    }
}

fn why_number(why: Why) -> u8 {
    match why {
        Why::Provider => 1,
        Why::Exhausted => 2,
        Why::Operator => 3,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_buckets_are_read_back() {
        for level in Level::ALL {
            let name = |text| crate::quota::name::Name::parse(text).unwrap();
            let key = BucketKey { level, scope: name("a.b-c"), policy: name("_") };
            assert_eq!(parse_bucket_name(&bucket_name(&key)), Some(key));
        }
        for wrong in ["", "0", "0 a", "0 a b c", "4 a b", "-1 a b", "0  a", "0 a:b c"] {
            assert_eq!(parse_bucket_name(wrong), None, "{wrong}");
        }
    }
}
