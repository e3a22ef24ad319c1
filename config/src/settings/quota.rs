//! `[quota]`: how other companies' limits are shared out, and what guards calls beside them.
//!
//! What a limit is stands in connectors' profiles, and which plan holds in `[[egress.quota]]`. Here is who counts, how
//! exactly, who gets how much, and when a call is not made at all. Only the operator says these: whoever shares an
//! application with others does not say how much of it is his.

use std::path::Path;
use std::time::Duration;

use super::issuer::{WhoseForm, absolute, operator_reference};
use super::{IssuerTenants, QuotaRedis};
use crate::form::{AtLine, Choice, Count, Lined, List, Span, Table, needed, settings};
use crate::units::seconds;

const MS: Duration = Duration::from_millis(1);
const MINUTE: Duration = Duration::from_mins(1);

/// Who knows how much of each limit is left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QuotaStore {
    /// This process, with a journal in the state directory.
    InProcess,
    /// A Redis that the nodes of a fleet share.
    Redis,
}

settings! {
    /// How limits of providers are shared out. It takes effect where `[egress]` is enabled.
    pub struct Quota {
        /// Who knows how much of each limit is left: `in-process` for one node, with a journal in `tenants.state_directory`; `redis` for several, which share one (`[quota.redis]`).
        store: QuotaStore = QuotaStore::InProcess,
            Choice(&[("in-process", QuotaStore::InProcess), ("redis", QuotaStore::Redis)]), restart,
            "One node needs no server. Two that count each for itself would use every limit twice.";
        /// How long a call waits for the store, unless it asked for longer.
        budget: Duration = 50 * MS, Span(MS..=seconds(1)), restart,
            "A store answers within a few ms. What takes longer is not there, and the call is told when to come again.";
        /// How long a call may wait inside at most, if it asks to (`Prefer: wait`).
        wait_max: Duration = seconds(30), Span(seconds(1)..=seconds(120)), restart,
            "Half the minute that most limits are of, and the patience of most clients.";
        /// How long a block of units may be spent that a node was granted.
        lease: Duration = 500 * MS, Span(50 * MS..=seconds(60)), live,
            "A block that is spent late makes a burst look larger, so that a token bucket is counted smaller by its rate times this: at a second it costs a quarter of a small one, at half a second next to nothing. Shorter leases ask the store more often.";
        /// The same for a place among concurrent calls. It is kept for as long as its node can tell the store; a node that cannot may start no call with it afterwards, and what it began may go on uncounted.
        slot_lease: Duration = seconds(60), Span(seconds(1)..=seconds(60)), live,
            "The longest that there is. After a crash, and after a failover of the store, places come back this late.";
        /// From the last moment at which a unit may be spent to the arrival at the provider, nearly always.
        guard: Duration = 500 * MS, Span(Duration::ZERO..=seconds(10)), live,
            "Simulated with an exponential latency of 50 ms: 0.2 s lets 0.4 % of calls at the end of a window arrive in the next one, 0.5 s none.";
        /// How far the clock of a provider may be off.
        clock_skew: Duration = seconds(2), Span(Duration::ZERO..=seconds(10)), live,
            "Windows that begin by the clock open so much later here and close so much earlier. Those of less than ten times the guard and twice this are counted as if they began anywhere.";
        /// What is spent while the store cannot be asked, besides what is held.
        degraded: QuotaDegraded = QuotaDegraded::default(), Table, restart, "";
        /// Who gets how much of an application that tenants share, while more is wanted than there is.
        share: Vec<QuotaShare> = Vec::new(), List(Table, 0..=1024), live, "";
        /// How often a call may be made again.
        retry: QuotaRetry = QuotaRetry::default(), Table, live, "";
        /// When a tenant stops calling a provider that does not work.
        breaker: QuotaBreaker = QuotaBreaker::default(), Table, live, "";
        /// When a connection or an automation has run away.
        runaway: QuotaRunaway = QuotaRunaway::default(), Table, live, "";
        /// Where the Redis is that `quota.store = "redis"` asks.
        redis: QuotaRedis = QuotaRedis::default(), Table, restart, "";
    }

    /// A part of each limit that is set aside for the time in which the store cannot be asked. Of concurrency, and of a limit whose part would be less than one unit for each node, nothing is.
    pub struct QuotaDegraded {
        /// The part, in per cent. The store grants the rest; 0 is strict: what is held is spent, then calls are parked.
        percent: u16 = 0, Count(0..=50), restart,
            "Nothing is given up for an outage that nobody has. 5 to 10 keep calls going, and are less for every day.";
        /// How many nodes there may be. Each has an equal part of what is set aside, so that no limit is exceeded however many are cut off.
        nodes: u16 = 0, Count(0..=1000), restart,
            "Only the operator knows. It is asked for where `percent` is above 0.";
    }

    /// What some tenants get of an application that they share with others.
    pub struct QuotaShare {
        /// The tenants; `["*"]` for all that no other entry names.
        tenants: AtLine<IssuerTenants> = AtLine { value: IssuerTenants::Every, line: 0 }, needed(Lined(WhoseForm)), live,
            "Without any entry each tenant has the same.";
        /// Weight: twice as much of one is twice the units while both want more.
        weight: u16 = 1, Count(1..=1000), live,
            "Nobody is worth more than somebody else until somebody says so.";
        /// Thousandths of a limit's rate that each of them gets at least, while it wants them.
        floor_permille: u16 = 0, Count(0..=1000), live,
            "Weights share out everything; a floor is for who must not wait however many come.";
        /// Thousandths of a limit's rate that each of them gets at most, also while nobody else wants them.
        ceiling_permille: u16 = 1000, Count(1..=1000), live,
            "What nobody else wants is not kept from anybody.";
    }

    /// Budget of calls that are made again after a fault, per tenant and provider. A park costs nothing of it.
    pub struct QuotaRetry {
        /// Part of first attempts that is earned, in per cent.
        percent: u16 = 10, Count(0..=100), live,
            "When a provider fails altogether, its load grows by a tenth and not fourfold.";
        /// Retries that come back in a minute, and that a tenant begins with.
        per_minute: u16 = 10, Count(0..=1000), live,
            "Who makes one call an hour still may make it again.";
        /// Most retries that can be earned.
        most: u16 = 100, Count(1..=10_000), live,
            "Ten minutes of those that come back: enough for a burst of faults, not for a storm.";
    }

    /// When the breaker of a tenant and a provider opens, and how it closes. What counts as a fault is for the connector to say; a park, a throttle and a 4xx are none.
    pub struct QuotaBreaker {
        /// The rolling window in which calls are counted.
        window: Duration = seconds(10), Span(seconds(1)..=10 * MINUTE), live,
            "What happened before is not how it is now.";
        /// It opens at this part of faults in the window, in per cent…
        fault_percent: u8 = 50, Count(1..=100), live,
            "Half is what a person would call broken.";
        /// …of at least so many calls.
        volume_min: u32 = 20, Count(1..=1_000_000), live,
            "Of fewer, chance explains as much.";
        /// It opens at so many faults in a row.
        consecutive_faults: u16 = 5, Count(1..=10_000), live,
            "Who calls once a minute would not fill the window.";
        /// How long it stays open the first time; it doubles each time.
        open: Duration = seconds(5), Span(100 * MS..=60 * MINUTE), live,
            "Longer than a restart behind a load balancer.";
        /// How long it stays open at most.
        open_max: Duration = 5 * MINUTE, Span(100 * MS..=1440 * MINUTE), live,
            "Short enough that nobody has to close one by hand.";
        /// After this a probe of which nothing was heard is given up.
        probe_lease: Duration = MINUTE, Span(seconds(1)..=60 * MINUTE), live,
            "Its holder may have vanished. A provider that hangs is asked once in so long.";
        /// So many probes in a row must be good until it closes.
        probes_to_close: u8 = 2, Count(1..=100), live,
            "One good answer may be the health check's.";
        /// A closed breaker without a fault for so long is as good as new.
        memory: Duration = 10 * MINUTE, Span(seconds(10)..=1440 * MINUTE), live,
            "Twice the longest that it is open: what fails again right after is the same fault.";
    }

    /// When a connection or an automation wants so much more than it ever did that it is throttled, and then paused.
    pub struct QuotaRunaway {
        /// What counts as usual, in attempts a minute, before a day of it is known.
        plan_per_minute: u32 = 6_000, Count(1..=10_000_000), live,
            "A hundred a second: where this is new, nobody has a history, and who is busy has not run away. Over a thousand a second of somebody new are held back.";
        /// No usual number is taken to be lower, in attempts a minute.
        floor_per_minute: u32 = 60, Count(1..=10_000_000), live,
            "Nobody is throttled for less than ten calls a second.";
        /// Over this many times the usual it has run away.
        trigger_factor: u16 = 10, Count(2..=1000), live,
            "Growth does not do that from one minute to the next; loops do. A spike that is due can be announced.";
        /// It is throttled to this many times the usual.
        throttle_factor: u16 = 2, Count(1..=1000), live,
            "What it usually does goes on, and catches up.";
        /// Throttled for so long and wanting as much, it is paused until an operator resumes it.
        pause_after: Duration = 10 * MINUTE, Span(MINUTE..=1440 * MINUTE), live,
            "Whoever made a mistake may notice it first.";
    }
}

impl Quota {
    /// References to files are meant relative to the file that they stand in.
    pub(crate) fn resolve_paths(&mut self, directory: &Path) {
        for reference in self.redis.references_mut() {
            absolute(&mut reference.value, directory);
        }
    }
}

/// A reference to a secret of the operator's.
pub(super) type Reference = Option<AtLine<String>>;

pub(super) const fn reference() -> crate::form::Text<String> {
    operator_reference()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use crate::Appliance;

    fn read(text: &str) -> Appliance {
        let (appliance, faults) = crate::parse_appliance(Path::new("/etc/tidegate.toml"), text.as_bytes());
        appliance.unwrap_or_else(|| panic!("{faults:?}"))
    }

    #[test]
    fn figures_are_live_and_the_store_waits() {
        let old = read("[egress]\n");
        let new = read(
            "[egress]\n[quota]\nstore = \"redis\"\nbudget = \"20ms\"\nwait_max = \"10s\"\nlease = \"1s\"\nslot_lease = \"30s\"\n\
            guard = \"100ms\"\nclock_skew = \"1s\"\n[quota.degraded]\npercent = 5\nnodes = 3\n[[quota.share]]\ntenants = [\"*\"]\nweight = 2\n\
            [quota.retry]\npercent = 20\n[quota.breaker]\nopen = \"1s\"\n[quota.runaway]\ntrigger_factor = 20\n\
            [quota.redis]\naddresses = [\"a:1\"]\npassword = \"file:redis.password\"\n[quota.redis.tls]\n",
        );
        let wait = [
            "quota.store",
            "quota.budget",
            "quota.wait_max",
            "quota.degraded.percent",
            "quota.degraded.nodes",
            "quota.redis.addresses",
            "quota.redis.password",
            "quota.redis.tls.enabled",
        ];
        assert_eq!(old.restart_needed(&new), wait);
        let live = old.with_live(new.clone()).quota;
        assert_eq!((live.lease, live.slot_lease, live.guard), (new.quota.lease, new.quota.slot_lease, new.quota.guard));
        assert_eq!((live.clock_skew, live.share.len()), (new.quota.clock_skew, 1));
        assert_eq!((live.retry, live.breaker, live.runaway), (new.quota.retry, new.quota.breaker, new.quota.runaway));
        assert_eq!(live.redis, old.quota.redis);
        let password = new.quota.redis.password.unwrap().value;
        assert_eq!(password, "file:/etc/redis.password", "relative to the file that it stands in");
    }

    #[test]
    fn tls_with_redis_is_on_where_its_table_is() {
        let redis = "[egress]\n[quota]\nstore = \"redis\"\n[quota.redis]\naddresses = [\"a:1\"]\n";
        assert!(!read(redis).quota.redis.tls.enabled);
        assert!(read(&format!("{redis}[quota.redis.tls]\n")).quota.redis.tls.enabled);
        assert!(!read(&format!("{redis}[quota.redis.tls]\nenabled = false\n")).quota.redis.tls.enabled);
    }
}
