//! Blocks and shares.

use super::Subject;
use super::asks::{Asks, LONG, leg, lessee, metered, spec};
use crate::quota::answer::{Answer, Denial};
use crate::quota::key::Level;
use crate::quota::op::Class;
use crate::quota::rule::{Kind, RuleSpec};

pub async fn a_block_is_a_small_part_and_enough_for_the_call<S: Subject>(subject: &mut S) {
    let bucket = metered(Level::Connection, "long", spec(LONG, 1_000));
    let mut asks = Asks::new(subject);
    let Answer::Granted(leases) = asks.acquire(&[leg(&bucket, 1, 900)]).await else { panic!("not granted") };
    assert!((1..=50).contains(&leases[0].units), "{}", leases[0].units);
    assert_eq!(asks.take(&bucket, 200).await.units, 200);
    // A second holder halves the blocks of both.
    let mut other = Asks { lessee: lessee(2, "one"), seq: 0, ..asks };
    let Answer::Granted(leases) = other.acquire(&[leg(&bucket, 1, 900)]).await else { panic!("not granted") };
    assert!((1..=25).contains(&leases[0].units), "{}", leases[0].units);
}

/// One tenant that wants ten times what there is, and four that want a twentieth each.
pub async fn a_hog_leaves_the_others_their_share<S: Subject>(subject: &mut S) {
    let kind = Kind::Bucket { window_ms: 1_000, burst: 60 };
    let bucket = metered(Level::App, "rate", RuleSpec { lease_ms: 100, ..spec(kind, 40) });
    let tenants = ["hog", "a", "b", "c", "d"];
    let (mut seqs, mut got, mut denied) = ([0_u64; 5], [0_u32; 5], [0_u32; 5]);
    let mut asks = Asks::new(subject);
    for round in 0..30 {
        for (at, tenant) in tenants.into_iter().enumerate() {
            asks.lessee = lessee(at as u128 + 1, tenant);
            asks.seq = seqs[at];
            // The small ones ask for one unit in two rounds, which is two a second and half.
            let tries = if at == 0 { 12 } else { u32::from(round % 4 == at - 1) };
            for _ in 0..tries {
                let mut wanted = leg(&bucket, 1, 1);
                wanted.demand_milli = if at == 0 { 400_000 } else { 2_500 };
                match asks.acquire(&[wanted]).await {
                    Answer::Granted(_) | Answer::Denied { .. } if round < 10 => {}
                    Answer::Granted(leases) => got[at] += leases[0].units,
                    Answer::Denied { why: Denial::Share | Denial::Exhausted, .. } => denied[at] += 1,
                    answer => panic!("answered {answer:?}"),
                }
            }
            seqs[at] = asks.seq;
        }
        asks.subject.pass(100).await;
    }
    assert_eq!(denied[1..], [0; 4], "a tenant within its share was refused; got {got:?}");
    assert!(got[1..].iter().all(|&units| units == 5) && denied[0] > 0, "{got:?} {denied:?}");
    // Two seconds of forty, of which the small ones had twenty.
    assert!((45..=75).contains(&got[0]), "{got:?}");
}

pub async fn a_part_is_kept_for_interactive_calls<S: Subject>(subject: &mut S) {
    let bucket = metered(Level::Connection, "bucket", spec(Kind::Bucket { window_ms: 3_600_000, burst: 100 }, 100));
    let mut asks = Asks::new(subject);
    // Nobody interactive: bulk may have it all.
    asks.class = Class::Bulk;
    asks.take(&bucket, 50).await;
    asks.class = Class::Interactive;
    asks.take(&bucket, 1).await;
    asks.class = Class::Bulk;
    let (units, answer) = asks.drain(&bucket, 100).await;
    assert!(matches!(answer, Answer::Denied { why: Denial::Reserved, .. }), "{answer:?}");
    assert!((25..=35).contains(&units), "{units}");
    asks.class = Class::Interactive;
    let (units, answer) = asks.drain(&bucket, 100).await;
    assert!(matches!(answer, Answer::Denied { why: Denial::Exhausted, .. }), "{answer:?}");
    assert!((10..=20).contains(&units), "{units}");
}
