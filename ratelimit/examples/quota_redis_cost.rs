//! What an operation costs the Redis, in its own processor time: `quota_redis_cost HOST:PORT` of a server that nobody
//! else uses. Beside it one `INCRBY`, and a GCRA script as limiters without leases call it once per call.

#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "a measurement for people, of a server of theirs")]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use tidegate_ratelimit::quota::redis::{Address, Dial, RedisCentre, RedisSettings, Servers, Stream};
use tidegate_ratelimit::quota::{
    Acquire, Answer, Application, Body, BucketKey, CAP_MAX, Centre, Class, HolderId, Kind, Leg, Lessee, Level, Metered,
    Name, Op, Penalise, Rule, RuleSpec, Share, Tally, Why,
};

const ASKERS: u64 = 16;
const ASKS: u64 = 2_000;
const GCRA: &str = "local t = redis.call('TIME') local now = t[1] * 1000 + math.floor(t[2] / 1000) \
                    local tat = math.max(tonumber(redis.call('GET', KEYS[1]) or now), now) + tonumber(ARGV[1]) \
                    if tat - now > tonumber(ARGV[2]) then return 0 end \
                    redis.call('SET', KEYS[1], tat, 'PX', ARGV[2]) return 1";

/// Dials where it was told to, as a measurement may.
#[derive(Debug)]
struct Plain;

#[async_trait::async_trait]
impl Dial for Plain {
    async fn dial(&self, host: &str, port: u16) -> std::io::Result<Box<dyn Stream>> {
        let stream = tokio::net::TcpStream::connect((host, port)).await?;
        stream.set_nodelay(true)?;
        Ok(Box::new(stream))
    }
}

fn name(text: &str) -> Name {
    Name::parse(text).unwrap()
}

fn metered(level: Level, policy: &str, kind: Kind) -> Metered {
    let cap = CAP_MAX / 1_000;
    let spec = RuleSpec { cfgver: 1, kind, cap, lease_ms: 1_000, guard_ms: 50, skew_ms: 0 };
    let key = BucketKey { level, scope: name("scope"), policy: name(policy) };
    Metered { key: Arc::new(key), rule: Arc::new(Rule::checked(spec).unwrap()) }
}

fn op(application: &str, body: Body) -> Op {
    Op { application: Application { provider: name("cost"), name: name(application) }, body }
}

/// As a holder that knows what it was granted before.
fn acquire(application: &str, tenant: u64, seq: u64, buckets: &[Metered], tallies: &[Tally]) -> Op {
    let leg = |(at, bucket): (usize, &Metered)| Leg {
        bucket: bucket.clone(),
        seq,
        least: 1,
        want: 20,
        unspent: 0,
        demand_milli: 20_000,
        tally: tallies.get(at).copied().unwrap_or_default(),
        heard: 0,
    };
    let lessee = Lessee { holder: HolderId(1), tenant: name(&format!("tenant-{tenant}")) };
    let share = Share { weight: 1, floor_permille: 0, ceiling_permille: 1_000 };
    let legs = buckets.iter().enumerate().map(leg).collect();
    op(application, Body::Acquire(Acquire { lessee, class: Class::Interactive, share, legs }))
}

async fn processor_s(connection: &mut MultiplexedConnection) -> f64 {
    let info: String = redis::cmd("INFO").arg("cpu").query_async(connection).await.unwrap();
    let field = |name: &str| -> f64 {
        info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')?.trim().parse().ok()).unwrap()
    };
    field("used_cpu_user_main_thread") + field("used_cpu_sys_main_thread")
}

/// µs that the server has spent within commands.
async fn within_commands_us(connection: &mut MultiplexedConnection) -> u64 {
    let info: String = redis::cmd("INFO").arg("commandstats").query_async(connection).await.unwrap();
    let commands = ["cmdstat_fcall:", "cmdstat_incrby:", "cmdstat_eval:"];
    let asked = info.lines().filter(|line| commands.iter().any(|command| line.starts_with(command)));
    let us =
        asked.filter_map(|line| line.split(',').find_map(|field| field.strip_prefix("usec=")?.parse::<u64>().ok()));
    us.sum()
}

/// µs of the server's processor for each of the asks, and the part of it that was spent within the command: the rest is
/// reading and writing sockets, of which a busy server does less for each.
async fn measure<F>(connection: &mut MultiplexedConnection, what: &str, ask: impl Fn(u64, u64) -> F)
where
    F: Future<Output = ()> + Send + 'static,
{
    let (before, within) = (processor_s(connection).await, within_commands_us(connection).await);
    let askers: Vec<_> =
        (0..ASKERS).map(|asker| (asker, (0..ASKS).map(|at| ask(asker, at)).collect::<Vec<_>>())).collect();
    let mut tasks = Vec::new();
    for (_, asks) in askers {
        tasks.push(tokio::spawn(async move {
            for ask in asks {
                ask.await;
            }
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
    #[expect(clippy::cast_precision_loss, reason = "a small number")]
    let each = |us: f64| us / (ASKERS * ASKS) as f64;
    let all = each((processor_s(connection).await - before) * 1e6);
    #[expect(clippy::cast_precision_loss, reason = "a small number")]
    let within = each((within_commands_us(connection).await - within) as f64);
    println!("{what:<44} {all:6.1} µs, {within:6.1} within the command");
}

#[tokio::main]
async fn main() {
    let address = std::env::args().nth(1).expect("HOST:PORT of a Redis that nobody else uses");
    let client = redis::Client::open(format!("redis://{address}")).unwrap();
    let mut connection = client.get_multiplexed_async_connection().await.unwrap();
    let mut settings = RedisSettings::new(Servers::One(Address::parse(&address).unwrap()), Arc::new(Plain));
    settings.budget = Duration::from_secs(5);
    let (centre, _pushes) = RedisCentre::new(settings, &tokio::runtime::Handle::current());

    let own = connection.clone();
    measure(&mut connection, "INCRBY", |_, _| {
        let mut own = own.clone();
        async move {
            let _: i64 = redis::cmd("INCRBY").arg("cost").arg(1).query_async(&mut own).await.unwrap();
        }
    })
    .await;
    measure(&mut connection, "a GCRA script (EVAL)", |_, _| {
        let mut own = own.clone();
        async move {
            let call = redis::cmd("EVAL").arg(GCRA).arg(1).arg("gcra").arg(0).arg(1_000).to_owned();
            let _: i64 = call.query_async(&mut own).await.unwrap();
        }
    })
    .await;

    let burst = CAP_MAX / 1_000;
    let kinds = [
        ("fixed", metered(Level::Connection, "fixed", Kind::Fixed { window_ms: 3_600_000, offset_ms: 0 })),
        ("sliding", metered(Level::Region, "sliding", Kind::Sliding { window_ms: 10_000, slots: 10 })),
        ("bucket", metered(Level::Region, "bucket", Kind::Bucket { window_ms: 60_000, burst })),
        ("concurrency", metered(Level::Connection, "slots", Kind::Concurrency)),
        ("fixed, shared by tenants", metered(Level::App, "fixed", Kind::Fixed { window_ms: 3_600_000, offset_ms: 0 })),
    ];
    // A server that has just begun grants nothing for a moment.
    for application in ["one", "three", "parked"] {
        drop(centre.ask(&acquire(application, 0, 1, &[kinds[0].1.clone()], &[])).await);
    }
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    for (what, bucket) in &kinds {
        run(&mut connection, &centre, &format!("acquire: {what}"), "one", vec![bucket.clone()]).await;
    }
    let three = vec![kinds[4].1.clone(), kinds[1].1.clone(), kinds[2].1.clone()];
    run(&mut connection, &centre, "acquire: three levels", "three", three.clone()).await;
    let penalise = Penalise { bucket: three[0].clone(), delta_ms: 600_000, generation: None, why: Why::Operator };
    centre.ask(&op("parked", Body::Penalise(penalise))).await.unwrap();
    run(&mut connection, &centre, "acquire: three levels, parked", "parked", three).await;
}

async fn run(
    connection: &mut MultiplexedConnection,
    centre: &RedisCentre,
    what: &str,
    application: &'static str,
    buckets: Vec<Metered>,
) {
    // By asker: each asks again when it has its answer.
    let told: Arc<[Mutex<Vec<Tally>>]> = (0..ASKERS).map(|_| Mutex::default()).collect();
    let buckets: Arc<[Metered]> = buckets.into();
    measure(connection, what, |asker, at| {
        let (centre, told, buckets) = (centre.clone(), Arc::clone(&told), Arc::clone(&buckets));
        async move {
            let told = &told[usize::try_from(asker).unwrap()];
            let op = acquire(application, asker, at + 2, &buckets, &told.lock().unwrap());
            if let Answer::Granted(leases) = centre.ask(&op).await.unwrap().answer {
                *told.lock().unwrap() = leases.iter().map(|lease| lease.tally).collect();
            }
        }
    })
    .await;
}
