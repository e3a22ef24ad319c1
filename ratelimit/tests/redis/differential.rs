//! The library beside the pure centre: any schedule of operations has the same answers from both.
//!
//! Both are given their time. The library's two readings of the outside, the clock and who the server is, are one line
//! each, and here other lines stand in their place; everything else is the product's.

use std::collections::HashMap;
use std::sync::Arc;

use proptest::prelude::*;
use redis::aio::MultiplexedConnection;
use tidegate_ratelimit::quota::conformance::asks::{lessee, name};
use tidegate_ratelimit::quota::redis::{LIBRARY, RedisCentre};
use tidegate_ratelimit::quota::{
    Acquire, Answer, Application, Body, BucketKey, Centre, Class, Core, Describe, Epoch, GiveBack, Kind, Lease, Leg,
    Level, Memory, Metered, Observe, Op, Penalise, Renew, Rule, RuleSpec, Settle, Share, Slots, Tally, Unspent, Why,
};

use crate::server::Server;

pub(crate) const START_MS: u64 = 1_800_000_000_000;
const CLOCK: &str = "local function clock() return call('TIME') end";
const ABOUT: &str = "local function about_server() return call('INFO', 'server', 'memory') end";
/// Where an acquire goes the way of the steady case, if that is what it is.
const STEADY: &str = "local leases, no = steady.legs(1, 4, keys, args, now, since, ask)";
const LISTENS: &str = "local since = listens_since(keys[1])";
/// No schedule is longer than fences are kept: when they are dropped is each centre's own affair.
const SPAN_MS: u64 = 100_000;

/// The library, whose clock and server are keys.
pub(crate) fn library() -> String {
    assert!(LIBRARY.matches(CLOCK).count() == 1 && LIBRARY.matches(ABOUT).count() == 1);
    assert_eq!((LIBRARY.matches("'TIME'").count(), LIBRARY.matches("'INFO'").count()), (1, 1));
    let clock = "local function clock() local ms = call('GET', 'clock') \
                 return { math.floor(ms / 1000), ms % 1000 * 1000 } end";
    LIBRARY.replace(CLOCK, clock).replace(ABOUT, "local function about_server() return call('GET', 'about') end")
}

/// The library, all of whose acquires go the general way; or that counts how many go that of the steady case.
fn library_of(way: Way) -> String {
    let library = library();
    assert!(library.matches(STEADY).count() == 1 && library.matches(LISTENS).count() == 1);
    match way {
        Way::General => library.replace(LISTENS, "local since = nil"),
        Way::Steady => library.replace(STEADY, &format!("{STEADY} if leases or no then call('INCR', 'steady') end")),
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    General,
    Steady,
}

/// What happens: everything, or mostly acquires of few lessees that know what they hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Weather {
    Wild,
    Calm,
}

/// What a server says of itself in its so manieth life.
pub(crate) fn about(life: u64) -> String {
    format!("run_id:{life:013x}{}\r\nmaxmemory:0\r\nmaxmemory_policy:noeviction\r\n", "0".repeat(27))
}

/// What a lessee remembers of a bucket.
#[derive(Debug, Clone, Copy, Default)]
struct Held {
    seq: u64,
    settle_seq: u64,
    units: u32,
    generation: u64,
    wid: u64,
    tally: Tally,
    heard: u64,
}

/// Both centres, and those who ask.
struct Pair {
    redis: RedisCentre,
    connection: MultiplexedConnection,
    core: Core,
    application: Application,
    now_ms: u64,
    life: u64,
    /// Another life has begun, and nobody has asked in it.
    is_new_life: bool,
    versions: Vec<u32>,
    held: HashMap<(u64, usize), Held>,
    told: Vec<String>,
    way: Way,
    weather: Weather,
    acquires: u64,
}

/// What one step is made of.
type Dice = [u16; 10];

fn kind(at: usize) -> (Level, Kind, u32) {
    match at {
        0 => (Level::App, Kind::Fixed { window_ms: 10_000, offset_ms: 300 }, 40),
        1 => (Level::App, Kind::Bucket { window_ms: 1_000, burst: 30 }, 20),
        2 => (Level::App, Kind::Concurrency, 12),
        3 => (Level::Connection, Kind::Sliding { window_ms: 10_000, slots: 10 }, 50),
        4 => (Level::Connection, Kind::Bucket { window_ms: 60_000, burst: 5 }, 100),
        5 => (Level::Region, Kind::Anchored { window_ms: 20_000, slots: 7 }, 60),
        6 => (Level::Source, Kind::Concurrency, 9),
        7 => {
            let first = START_MS - 3_000;
            (Level::Source, Kind::Calendar { bounds_ms: [first, first + 30_000, first + 65_000] }, 70)
        }
        // The last two take up a kind that counts in another way.
        8 => (Level::Connection, Kind::Fixed { window_ms: 7_000, offset_ms: 0 }, 30),
        _ => (Level::App, Kind::Anchored { window_ms: 5_000, slots: 5 }, 3_000),
    }
}

const BUCKETS: usize = 10;
/// Those that are counted by rates, and keep their kind.
const RATES: [usize; 6] = [0, 1, 3, 4, 5, 7];

impl Pair {
    fn metered(&self, at: usize) -> Metered {
        let (level, mut kind, cap) = kind(at);
        let version = self.versions[at];
        if version > 2 && at == 8 {
            kind = Kind::Bucket { window_ms: 7_000, burst: 20 };
        }
        let cap = if version.is_multiple_of(2) { cap / 2 + 1 } else { cap };
        let spec = RuleSpec { cfgver: version, kind, cap, lease_ms: 1_500, guard_ms: 120, skew_ms: 30 };
        let key = BucketKey { level, scope: name("-"), policy: name(&format!("b{at}")) };
        Metered { key: Arc::new(key), rule: Arc::new(Rule::checked(spec).unwrap()) }
    }

    async fn set(&mut self, key: &str, value: &str) {
        let _: () = redis::cmd("SET").arg(key).arg(value).query_async(&mut self.connection).await.unwrap();
    }

    /// Another process answers from here on.
    async fn begin_life(&mut self) {
        self.life += 1;
        self.set("about", &about(self.life)).await;
        let load = redis::cmd("FUNCTION").arg("LOAD").arg("REPLACE").arg(library_of(self.way)).to_owned();
        let _: String = load.query_async(&mut self.connection).await.unwrap();
        self.is_new_life = true;
    }

    /// Asks both.
    async fn ask(&mut self, body: Body) -> Answer {
        let op = Op { application: self.application.clone(), body };
        self.set("clock", &self.now_ms.to_string()).await;
        if self.is_new_life {
            self.core.begin(Epoch { id: self.life, since_ms: self.now_ms, memory: Memory::LostSuffix });
            // A look changes nothing, also not this: who asks next begins it.
            self.is_new_life = matches!(op.body, Body::Describe(_));
        }
        let expected = self.core.step(self.now_ms, &op).answer;
        let answer = self.redis.ask(&op).await.unwrap().answer;
        self.told.push(format!("at {}: {:?}\n   -> {answer:?}", self.now_ms - START_MS, op.body));
        assert_eq!(
            answer,
            expected,
            "the library (left) and the pure centre (right) differ:\n{}",
            self.told.join("\n")
        );
        answer
    }

    fn keep(&mut self, who: u64, at: usize, seq: u64, lease: &Lease) {
        let held = self.held.entry((who, at)).or_default();
        (held.seq, held.units, held.generation) = (seq, lease.units, lease.generation);
        (held.tally, held.wid) = (lease.tally, lease.tally.wid);
        held.heard = held.heard.max(lease.generation);
    }

    async fn step(&mut self, dice: Dice) {
        let [what, who, at, ..] = dice;
        self.now_ms += match dice[3] % (16 * self.rare()) {
            0 => 2_500,
            1 => 900,
            2..6 => u64::from(dice[4] % 400),
            _ => u64::from(dice[4] % 30),
        };
        if self.weather == Weather::Calm {
            return self.calm_step(dice).await;
        }
        let (who, at) = (u64::from(who % 9), usize::from(at) % BUCKETS);
        match what % 24 {
            0..13 => self.acquire(who, at, dice).await,
            13 | 14 => self.give_back(who, at, dice).await,
            15 => self.renew(who, if at.is_multiple_of(2) { 2 } else { 6 }, dice).await,
            16 => self.penalise(at, dice).await,
            17 => self.observe(who, at, dice).await,
            18 | 19 => self.settle(who, at, dice).await,
            20 => drop(self.ask(Body::Release((*self.metered(at).key).clone())).await),
            21 if dice[5].is_multiple_of(4) => drop(self.ask(Body::Reset((*self.metered(at).key).clone())).await),
            22 if dice[5].is_multiple_of(3) => self.versions[at] += 1,
            23 if dice[5].is_multiple_of(8) => self.begin_life().await,
            _ => self.describe(dice).await,
        }
    }

    /// By how much what is unusual is rarer.
    fn rare(&self) -> u16 {
        match self.weather {
            Weather::Wild => 1,
            Weather::Calm => 10,
        }
    }

    async fn calm_step(&mut self, dice: Dice) {
        let (who, at) = (u64::from(dice[1] % 4), RATES[usize::from(dice[2]) % RATES.len()]);
        match dice[0] % 24 {
            0..20 => self.acquire(who, at, dice).await,
            20 | 21 => self.give_back(who, at, dice).await,
            22 => self.settle(who, at, dice).await,
            _ => self.observe(who, at, dice).await,
        }
    }

    async fn acquire(&mut self, who: u64, at: usize, dice: Dice) {
        self.acquires += 1;
        let mut places = vec![at];
        let rare = self.rare();
        for more in 0..dice[5] % 3 {
            let number = at + 1 + usize::from(dice[6]) + usize::from(more);
            let is_calm = self.weather == Weather::Calm;
            let other = if is_calm { RATES[number % RATES.len()] } else { number % BUCKETS };
            if !places.contains(&other) {
                places.push(other);
            }
        }
        let mut legs = Vec::new();
        for &place in &places {
            let held = self.held.get(&(who, place)).copied().unwrap_or_default();
            let seq = match dice[7] % (12 * rare) {
                0 => held.seq.max(1),
                1 => (held.seq.max(2)) - 1,
                _ => held.seq + 1,
            };
            let unspent = match dice[7] % 5 {
                0 | 1 => held.units,
                2 => held.units / 2,
                3 if dice[8].is_multiple_of(7) => held.units + 1,
                _ => 0,
            };
            let least = u32::from(dice[8] % 4);
            let want = least.max(unspent) + u32::from(dice[9] % 9);
            let mut tally = held.tally;
            match dice[9] % (17 * rare) {
                0 => tally = Tally::default(),
                1 => tally.units += 3,
                2 => tally.before += 2,
                3 => tally.wid += 1,
                _ => {}
            }
            let demand_milli = u64::from(dice[8] % 50) * 400 / u64::from(rare);
            let heard = if dice[6].is_multiple_of(29 * rare) { held.heard + 1_000 } else { held.heard };
            legs.push(Leg { bucket: self.metered(place), seq, least, want, unspent, demand_milli, tally, heard });
        }
        let class = if dice[6].is_multiple_of(3) { Class::Bulk } else { Class::Interactive };
        let share = match who % 3 {
            0 => Share { weight: 1, floor_permille: 0, ceiling_permille: 1_000 },
            1 => Share { weight: 3, floor_permille: 100, ceiling_permille: 1_000 },
            _ => Share { weight: 2, floor_permille: 0, ceiling_permille: 400 },
        };
        let seqs: Vec<_> = legs.iter().map(|leg| leg.seq).collect();
        let acquire = Acquire { lessee: member(who), class, share, legs };
        if let Answer::Granted(leases) | Answer::Replayed(leases) = self.ask(Body::Acquire(acquire)).await {
            for ((&place, seq), lease) in places.iter().zip(seqs).zip(&leases) {
                self.keep(who, place, seq, lease);
            }
        }
    }

    async fn give_back(&mut self, who: u64, at: usize, dice: Dice) {
        let held = self.held.get(&(who, at)).copied().unwrap_or_default();
        let units = if dice[5].is_multiple_of(5) { held.units + 1 } else { held.units.min(u32::from(dice[6] % 6)) };
        let generation = held.generation + u64::from(dice[7].is_multiple_of(11));
        let unspent = Unspent { key: self.metered(at).key, seq: held.seq.max(1), generation, wid: held.wid, units };
        let answer = self.ask(Body::GiveBack(GiveBack { lessee: member(who), legs: vec![unspent] })).await;
        if let Answer::Done { units } = answer {
            self.held.entry((who, at)).or_default().units -= units;
        }
    }

    async fn renew(&mut self, who: u64, at: usize, dice: Dice) {
        let held = self.held.get(&(who, at)).copied().unwrap_or_default();
        let seq = if dice[5].is_multiple_of(9) { held.seq.max(1) } else { held.seq + 1 };
        let slots = held.units.min(u32::from(dice[6] % 8)) + u32::from(dice[7].is_multiple_of(6));
        let slots = Slots { bucket: self.metered(at), seq, held: slots, heard: held.heard };
        let count = slots.held;
        if let Answer::Renewed(leases) = self.ask(Body::Renew(Renew { lessee: member(who), legs: vec![slots] })).await {
            self.keep(who, at, seq, &Lease { units: count, ..leases[0] });
        }
    }

    async fn penalise(&mut self, at: usize, dice: Dice) {
        let generation = (!dice[5].is_multiple_of(3)).then(|| {
            self.held.iter().filter(|((_, place), _)| *place == at).map(|(_, held)| held.generation).max().unwrap_or(0)
        });
        let why = Why::ALL[usize::from(dice[6] % 3)];
        let delta_ms = u64::from(dice[7] % 1_500);
        drop(self.ask(Body::Penalise(Penalise { bucket: self.metered(at), delta_ms, generation, why })).await);
    }

    async fn observe(&mut self, who: u64, at: usize, dice: Dice) {
        let held = self.held.get(&(who, at)).copied().unwrap_or_default();
        let limit = (!dice[5].is_multiple_of(3)).then_some(u32::from(dice[5] % 80));
        let remaining = (!dice[6].is_multiple_of(3)).then_some(u32::from(dice[6] % 60));
        let reset_ms = (!dice[7].is_multiple_of(3)).then_some(u64::from(dice[7] % 25_000));
        let wid = held.wid + u64::from(dice[8].is_multiple_of(13));
        drop(self.ask(Body::Observe(Observe { bucket: self.metered(at), wid, limit, remaining, reset_ms })).await);
    }

    async fn settle(&mut self, who: u64, at: usize, dice: Dice) {
        let key = self.metered(at).key;
        let held = self.held.entry((who, at)).or_default();
        held.settle_seq += u64::from(!dice[5].is_multiple_of(4));
        let (seq, wid) = (held.settle_seq.max(1), held.wid);
        let (estimate, actual) = (u32::from(dice[6] % 12), u32::from(dice[7] % 12));
        let age_ms = u64::from(dice[8] % 2_000);
        drop(self.ask(Body::Settle(Settle { lessee: member(who), key, seq, wid, age_ms, estimate, actual })).await);
    }

    async fn describe(&mut self, dice: Dice) {
        let after = dice[5].is_multiple_of(2).then(|| (*self.metered(usize::from(dice[6]) % BUCKETS).key).clone());
        drop(self.ask(Body::Describe(Describe { after, limit: 1 + dice[7] % 12 })).await);
    }
}

/// Three tenants of three holders.
fn member(who: u64) -> tidegate_ratelimit::quota::Lessee {
    lessee(u128::from(who / 3 + 1), &format!("t{}", who % 3))
}

/// How many acquires there were.
async fn run(
    redis: RedisCentre,
    connection: MultiplexedConnection,
    case: u64,
    weather: Weather,
    steps: Vec<Dice>,
) -> u64 {
    let application = Application { provider: name("differential"), name: name(&format!("case-{case}")) };
    let core = Core::new(Epoch { id: 0, since_ms: START_MS, memory: Memory::Whole }, 1_000);
    let mut pair = Pair {
        redis,
        connection,
        core,
        application,
        now_ms: START_MS,
        life: 1,
        is_new_life: false,
        versions: vec![1; BUCKETS],
        held: HashMap::new(),
        told: Vec::new(),
        way: if case.is_multiple_of(3) { Way::General } else { Way::Steady },
        weather,
        acquires: 0,
    };
    // A life that has lasted: a new application is known to be one.
    pair.set("clock", &(START_MS - SPAN_MS).to_string()).await;
    pair.begin_life().await;
    pair.is_new_life = false;
    let elsewhere = Application { provider: name("elsewhere"), name: name("-") };
    let op = Op { application: elsewhere, body: Body::Describe(Describe { after: None, limit: 1 }) };
    pair.redis.ask(&op).await.unwrap();
    for dice in steps {
        if pair.now_ms < START_MS + SPAN_MS {
            pair.step(dice).await;
        }
    }
    pair.ask(Body::Describe(Describe { after: None, limit: 100 })).await;
    pair.acquires
}

/// How many acquires there were, and how many of them went the way of the steady case.
fn compare(weather: Weather, steps: std::ops::Range<usize>) -> (u64, u64) {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let (server, redis, connection) = runtime.block_on(async {
        let server = Server::start().await;
        let connection = server.connection().await;
        let (redis, _) = server.centre();
        (server, redis, connection)
    });
    let cases = std::env::var_os("TIDEGATE_CASES").and_then(|text| text.to_str()?.parse().ok()).unwrap_or(200);
    let config =
        ProptestConfig { cases, max_shrink_iters: 2_000, failure_persistence: None, ..ProptestConfig::default() };
    let mut runner = proptest::test_runner::TestRunner::new(config);
    let (case, acquires) = (std::cell::Cell::new(0_u64), std::cell::Cell::new(0_u64));
    let steps = proptest::collection::vec(any::<Dice>(), steps);
    let result = runner.run(&steps, |steps| {
        case.set(case.get() + 1);
        let done = runtime.block_on(run(redis.clone(), connection.clone(), case.get(), weather, steps));
        acquires.set(acquires.get() + done);
        Ok(())
    });
    let steady = runtime.block_on(async {
        redis::cmd("GET").arg("steady").query_async::<Option<u64>>(&mut connection.clone()).await.unwrap()
    });
    drop(server);
    result.unwrap();
    (acquires.get(), steady.unwrap_or(0))
}

#[test]
fn the_library_answers_as_the_pure_centre() {
    let (acquires, steady) = compare(Weather::Wild, 1..90);
    println!("{steady} of {acquires} acquires were of the steady case");
}

#[test]
fn the_steady_case_answers_as_the_pure_centre() {
    let (acquires, steady) = compare(Weather::Calm, 100..300);
    println!("{steady} of {acquires} acquires were of the steady case");
    // Of two thirds of the schedules only these are counted.
    assert!(steady * 4 > acquires, "{steady} of {acquires}");
}
