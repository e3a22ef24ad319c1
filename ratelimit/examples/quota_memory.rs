//! What a bucket costs that nobody uses but that has to be remembered: a connection's daily quota, of which something is
//! used. Resident bytes, before and after.

use std::sync::Arc;

use tidegate_ratelimit::quota::{
    Acquire, Answer, Application, Body, BucketKey, Class, Core, Epoch, HolderId, Kind, Leg, Lessee, Level, Memory,
    Metered, Name, Op, Rule, RuleSpec, Share, SweepCursor, Tally,
};

/// As the appliance itself has it.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const BUCKETS: usize = 200_000;
const START_MS: u64 = 1_800_000_000_000;

fn resident_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    statm.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok()).unwrap_or(0) * 4_096
}

fn name(text: &str) -> Name {
    Name::parse(text).expect("a name")
}

fn ask(number: usize, rule: &Arc<Rule>) -> Op {
    // Ids are drawn at random: so are these, as far as the order of keys goes.
    let drawn = (number as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let (scope, policy) = (name(&format!("con_{drawn:016x}")), name("daily"));
    let key = Arc::new(BucketKey { level: Level::Connection, scope, policy });
    let leg = Leg {
        bucket: Metered { key, rule: Arc::clone(rule) },
        seq: 1,
        least: 1,
        want: 10,
        unspent: 0,
        demand_milli: 1_000,
        tally: Tally::default(),
        heard: 0,
    };
    let acquire = Acquire {
        lessee: Lessee { holder: HolderId(0x0123_4567_89ab_cdef_0123_4567_89ab_cdef), tenant: name("ten_0123456789") },
        class: Class::Interactive,
        share: Share { weight: 1, floor_permille: 0, ceiling_permille: 1_000 },
        legs: vec![leg],
    };
    let application = Application { provider: name("acme"), name: name("main") };
    Op { application, body: Body::Acquire(acquire) }
}

#[expect(clippy::print_stdout, reason = "it is what this is for")]
fn main() {
    let kind = Kind::Fixed { window_ms: 86_400_000, offset_ms: 0 };
    let spec = RuleSpec { cfgver: 1, kind, cap: 5_000, lease_ms: 2_000, guard_ms: 500, skew_ms: 0 };
    let rule = Arc::new(Rule::checked(spec).expect("a rule"));
    let mut core = Core::new(Epoch { id: 1, since_ms: START_MS, memory: Memory::Whole }, BUCKETS);
    let before = resident_bytes();
    let mut cursor = SweepCursor::default();
    for number in 0..BUCKETS {
        // Packed as it goes, as a running centre does.
        let now_ms = START_MS + number as u64 * 10;
        let reply = core.step(now_ms, &ask(number, &rule));
        assert!(matches!(reply.answer, Answer::Granted(_)), "{reply:?}");
        if number % 500 == 0 {
            core.sweep(now_ms, &mut cursor, BUCKETS);
        }
    }
    let busy = resident_bytes();
    for _ in 0..BUCKETS / 1_000 {
        core.sweep(START_MS + BUCKETS as u64 * 10 + 60_000, &mut cursor, 4_000);
    }
    let idle = resident_bytes();
    let each = |bytes: u64| bytes.saturating_sub(before) / BUCKETS as u64;
    println!("{} buckets: {} bytes each at the end of the asks, {} at rest", core.buckets(), each(busy), each(idle));
    let mut day_after = SweepCursor::default();
    for _ in 0..BUCKETS / 1_000 {
        core.sweep(START_MS + 3 * 86_400_000, &mut day_after, 4_000);
    }
    println!("{} buckets the day after", core.buckets());
}
