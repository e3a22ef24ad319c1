use super::*;

#[derive(Debug)]
struct Until(u64, Option<u64>);

impl Entry for Until {
    fn is_settled(&self, now: Now) -> bool {
        self.0 <= now.mono_ms
    }

    fn worth(&self) -> Option<u64> {
        self.1
    }
}

fn at(mono_ms: u64) -> Now {
    Now { mono_ms, unix_ms: 0 }
}

fn put(table: &PairTable<Until>, tenant: u64, subject: u64, until: u64, worth: Option<u64>, now: u64) -> bool {
    table.with_new(PairKey::of(tenant, subject), at(now), || Until(until, worth), |_| ()).is_ok()
}

fn has(table: &PairTable<Until>, tenant: u64, subject: u64, now: u64) -> bool {
    table.with(PairKey::of(tenant, subject), at(now), |found| found.is_some())
}

#[test]
fn a_tenant_makes_room_at_its_own_expense_the_settled_first_then_the_least_worth() {
    let table = PairTable::new(Bounds { per_tenant: 2, total: 1_000 });
    assert!(put(&table, 7, 1, 100, Some(1), 0));
    assert!(put(&table, 7, 2, 10, Some(9), 0));
    assert!(put(&table, 8, 1, 100, Some(0), 0), "another tenant's least worth is nobody's but its own");
    assert!(put(&table, 7, 3, 100, Some(5), 10));
    assert_eq!([1, 2, 3].map(|subject| has(&table, 7, subject, 10)), [true, false, true]);
    assert!(put(&table, 7, 4, 100, None, 10));
    assert_eq!([1, 3, 4].map(|subject| has(&table, 7, subject, 10)), [false, true, true]);
    assert!(put(&table, 7, 5, 100, None, 10));
    assert!(!put(&table, 7, 6, 100, None, 10), "both must stay");
    assert!(has(&table, 8, 1, 10));
    assert_eq!(table.len(), 3);
}

#[test]
fn the_bound_of_all_holds_and_room_comes_back_when_entries_settle() {
    let table = PairTable::new(Bounds { per_tenant: 4, total: 64 });
    // Tenants below 2^40 share a shard, whose part of the bound is one.
    assert!(put(&table, 1, 1, 50, None, 0));
    assert!(!put(&table, 2, 1, 50, None, 49));
    assert!(put(&table, 1 << 40, 1, 50, None, 49), "another shard has its own part");
    assert!(!put(&table, 2, 1, 100, None, 1_048), "a full shard is searched once a second");
    assert!(put(&table, 2, 1, 2_000, None, 1_049));
    assert!(!has(&table, 1, 1, 1_049));
}

#[test]
fn what_is_settled_is_dropped_when_met_and_by_a_sweep() {
    let table = PairTable::new(Bounds { per_tenant: 4, total: 1_000 });
    for subject in 0..4 {
        assert!(put(&table, 1, subject, 10 + subject, None, 0));
    }
    assert!(!has(&table, 1, 0, 10));
    assert_eq!(table.len(), 3);
    let mut seen = Vec::new();
    assert_eq!(table.sweep(at(12), |key, _| seen.push(key.subject())), 1);
    seen.sort_unstable();
    assert_eq!(seen, [1, 2, 3]);
    assert!(has(&table, 1, 3, 12));
    assert!(table.forget(PairKey::of(1, 3)));
    assert!(!table.forget(PairKey::of(1, 3)));
    assert_eq!(table.len(), 0);
}
