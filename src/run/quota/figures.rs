//! From `[quota]` to the terms of those that keep to it, and what of it is in force now.

use std::fmt::{self, Write as _};
use std::hash::{DefaultHasher, Hasher as _};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use config::{IssuerTenants, Quota, QuotaBreaker, QuotaRetry, QuotaRunaway, QuotaShare};
use egress::quota::{QuotaRules, Shares};
use ratelimit::quota::Share;
use ratelimit::quota::holder::{Degraded, Settings};
use ratelimit::retry_budget::Budget;
use ratelimit::signals::Counting;
use ratelimit::{Bounds, breaker, runaway};

/// Pairs that retried within the last minute.
pub(crate) const RETRIES: Bounds = Bounds { per_tenant: 256, total: 1 << 18 };

/// What the file says that a reload can change. `version` grows with each change of what limits are: it is the centre's
/// `cfgver`.
fn rules(quota: &Quota, version: u32) -> QuotaRules {
    QuotaRules {
        counting: Counting {
            cfgver: version,
            lease_ms: ms(quota.lease),
            slot_lease_ms: ms(quota.slot_lease),
            guard_ms: ms(quota.guard),
            skew_ms: ms(quota.clock_skew),
            now_unix_ms: 0,
        },
        breaker: breaker_rules(&quota.breaker),
        budget: budget(&quota.retry),
        runaway: runaway_rules(&quota.runaway),
        shares: shares(&quota.share),
    }
}

/// The rules that are in force.
#[derive(Debug)]
pub(crate) struct InForce {
    rules: ArcSwap<QuotaRules>,
    /// Of what limits were made of when they were put in force last; none before the first time.
    limits: Mutex<Option<u64>>,
}

impl InForce {
    pub(crate) fn new(quota: &Quota, now_unix_ms: u64) -> Self {
        Self { rules: ArcSwap::from_pointee(rules(quota, seconds(now_unix_ms))), limits: Mutex::default() }
    }

    /// Those of now.
    pub(crate) fn now(&self) -> Arc<QuotaRules> {
        self.rules.load_full()
    }

    /// Puts a file in force that was read at this moment. `limits` is what limits and plans are made of beside it, in a
    /// form that differs where they do.
    ///
    /// The version is the second in which it was read: it goes on growing over restarts, and of nodes that have different
    /// files for a while, the latest one counts. It stays where nothing has changed, since a centre forgets what providers
    /// told of a limit when it changes.
    pub(crate) fn put(&self, quota: &Quota, limits: impl fmt::Debug, now_unix_ms: u64) -> Arc<QuotaRules> {
        // Loads come one after the other; the lock says so.
        let mut known = self.limits.lock().unwrap_or_else(PoisonError::into_inner);
        let digest = digest(limits);
        let is_other = known.replace(digest).is_some_and(|known| known != digest);
        let before = self.now();
        let version = before.counting.cfgver;
        if !is_other && rules(quota, version) == *before {
            return before;
        }
        let version = seconds(now_unix_ms).max(version.saturating_add(1));
        let after = Arc::new(rules(quota, version));
        self.rules.store(Arc::clone(&after));
        after
    }
}

/// Figures of the holder, for as long as it is.
pub(super) fn holder(quota: &Quota) -> Settings {
    let degraded = &quota.degraded;
    let set_aside = || Degraded { permille: degraded.percent * 10, nodes: degraded.nodes };
    Settings {
        budget_ms: u64::from(ms(quota.budget)),
        wait_ms_max: u64::from(ms(quota.wait_max)),
        degraded: (degraded.percent > 0).then(set_aside),
        ..Settings::default()
    }
}

pub(super) fn breaker_rules(file: &QuotaBreaker) -> breaker::Rules {
    let usual = breaker::Rules::default();
    breaker::Rules {
        counted: usual.counted,
        // Ten pieces.
        slot_ms: ms(file.window / 10),
        fault_percent: file.fault_percent,
        volume_min: file.volume_min,
        consecutive_faults: file.consecutive_faults,
        open_ms: ms(file.open),
        open_max_ms: ms(file.open_max),
        probe_lease_ms: ms(file.probe_lease),
        probes_to_close: file.probes_to_close,
        memory_ms: ms(file.memory),
    }
}

fn runaway_rules(file: &QuotaRunaway) -> runaway::Rules {
    runaway::Rules {
        plan_per_minute: file.plan_per_minute,
        floor_per_minute: file.floor_per_minute,
        trigger_factor: file.trigger_factor,
        throttle_factor: file.throttle_factor,
        pause_after_ms: ms(file.pause_after),
    }
}

fn budget(file: &QuotaRetry) -> Budget {
    Budget { per_mille: file.percent * 10, floor: file.per_minute, tokens_max: file.most }
}

fn shares(file: &[QuotaShare]) -> Shares {
    let mut shares = Shares::default();
    for entry in file {
        let share = Share {
            weight: entry.weight,
            floor_permille: entry.floor_permille,
            ceiling_permille: entry.ceiling_permille,
        };
        match &entry.tenants.value {
            IssuerTenants::Every => shares.usual = share,
            IssuerTenants::Only(tenants) => {
                shares.tenants.extend(tenants.iter().map(|tenant| (tenant.clone(), share)));
            }
        }
    }
    shares
}

/// Of what a value shows of itself, without building the text.
fn digest(value: impl fmt::Debug) -> u64 {
    struct Digest(DefaultHasher);

    impl fmt::Write for Digest {
        fn write_str(&mut self, text: &str) -> fmt::Result {
            self.0.write(text.as_bytes());
            Ok(())
        }
    }

    let mut digest = Digest(DefaultHasher::new());
    // Nothing here fails to be written.
    write!(digest, "{value:?}").ok();
    digest.0.finish()
}

/// Every duration of the file is a day at most.
fn ms(duration: Duration) -> u32 {
    u32::try_from(duration.as_millis()).unwrap_or(u32::MAX)
}

/// Up to the year 2106.
fn seconds(unix_ms: u64) -> u32 {
    u32::try_from(unix_ms / 1_000).unwrap_or(u32::MAX).max(1)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use domain::TenantId;

    use super::*;

    fn quota(text: &str) -> Quota {
        let text = format!("[egress]\n{text}");
        let (appliance, faults) = config::parse_appliance(Path::new("tidegate.toml"), text.as_bytes());
        appliance.unwrap_or_else(|| panic!("{faults:?}")).quota
    }

    /// The reference says these as the defaults.
    #[test]
    fn what_the_file_leaves_out_is_usual() {
        let figures = rules(&Quota::default(), 7);
        assert_eq!(figures.breaker, breaker::Rules::default());
        assert_eq!(figures.runaway, runaway::Rules::default());
        assert_eq!(figures.budget, Budget::default());
        assert_eq!(holder(&Quota::default()), Settings::default());
        assert_eq!(figures.shares, Shares::default());
        assert_eq!(figures.counting.cfgver, 7);
    }

    /// Whatever the loader takes, the parts take: at both ends of every range.
    #[test]
    fn what_the_loader_takes_can_be_kept_to() {
        let ends = [
            "[quota]\nbudget = \"1ms\"\nwait_max = \"1s\"\n[quota.breaker]\nwindow = \"1s\"\nopen = \"100ms\"\n\
            open_max = \"100ms\"\nmemory = \"10s\"\nprobe_lease = \"1s\"\nvolume_min = 1\nconsecutive_faults = 1\nprobes_to_close = 1\n",
            "[quota]\nstore = \"redis\"\nbudget = \"1s\"\nwait_max = \"2m\"\n[quota.redis]\naddresses = [\"a:1\"]\n\
            [quota.degraded]\npercent = 50\nnodes = 1000\n[quota.breaker]\nwindow = \"10m\"\nopen = \"1h\"\nopen_max = \"24h\"\nmemory = \"24h\"\n",
            "[quota]\nstore = \"redis\"\n[quota.redis]\naddresses = [\"a:1\"]\n[quota.degraded]\npercent = 1\nnodes = 1\n",
        ];
        for text in ends {
            let quota = quota(text);
            assert_eq!(holder(&quota).check(), Ok(()), "{text}");
            assert_eq!(rules(&quota, 1).breaker.check(), Ok(()), "{text}");
        }
    }

    #[test]
    fn a_tenant_has_its_own_share_or_that_of_all_others() {
        let text = "[[quota.share]]\ntenants = [\"acme\", \"beta\"]\nweight = 4\nfloor_permille = 10\n\
                    [[quota.share]]\ntenants = [\"*\"]\nceiling_permille = 500\n";
        let shares = shares(&quota(text).share);
        let share = |tenant| shares.of(&TenantId::parse(tenant).unwrap());
        assert_eq!(share("beta"), Share { weight: 4, floor_permille: 10, ceiling_permille: 1_000 });
        assert_eq!(share("gamma"), Share { weight: 1, floor_permille: 0, ceiling_permille: 500 });
    }

    #[test]
    fn a_version_grows_with_a_change_and_with_nothing_else() {
        let usual = Quota::default();
        let in_force = InForce::new(&usual, 1_000_000);
        let version = || in_force.now().counting.cfgver;
        assert_eq!(version(), 1_000);
        in_force.put(&usual, "limits", 2_000_000);
        in_force.put(&usual, "limits", 2_000_000);
        assert_eq!(version(), 1_000);
        in_force.put(&usual, "other limits", 2_000_000);
        assert_eq!(version(), 2_000);
        in_force.put(&quota("[quota]\nlease = \"1s\"\n"), "other limits", 2_000_000);
        assert_eq!((version(), in_force.now().counting.lease_ms), (2_001, 1_000), "in the same second");
        in_force.put(&usual, "other limits", 0);
        assert_eq!(version(), 2_002, "whatever the clock says");
    }
}
