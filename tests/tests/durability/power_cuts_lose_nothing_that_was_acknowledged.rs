use std::time::Duration;

use skip::skipped;
use tidegate_tests::disk::{Disk, LoopDisk, VolatileDisk};
use tidegate_tests::judge::assert_lawful;
use tidegate_tests::load::Ledger;
use tidegate_tests::patience::how_many;
use tidegate_tests::random::Random;
use tidegate_tests::{Appliance, endpoint, tenant};

/// Cuts the power of the disk under load, again and again; the appliance comes back each time on what is left.
async fn cut(disk: Result<impl Disk, String>, sync: &str, cuts: usize) {
    let mut disk = match disk {
        Ok(disk) => disk,
        Err(why) => return skipped(&why),
    };
    let mut random = Random::announced(&format!("power cuts, {sync}"));
    let mut ledger = Ledger::seeded(random.draw());
    let acme = tenant("acme").endpoint(endpoint("wh_1")).endpoint(endpoint("wh_2"));
    let mut node = Appliance::new()
        .tenant(acme)
        .set("gateway", "body_bytes_max", "\"256KiB\"")
        .set("log", "segment_bytes", "\"1MiB\"")
        .set("log", "reserve_bytes", "\"0B\"")
        .set("log", "sync", &format!("\"{sync}\""))
        .log_in(&disk.path().join("log"))
        .prepare();
    let senders = ["wh_1", "wh_2"].map(|id| (id.to_owned(), node.sender(id)));
    let judged_every = (cuts / 8).max(5);
    for cut in 1..=cuts {
        node.start().await;
        let load = ledger.load(&senders, 2);
        tokio::time::sleep(Duration::from_millis(random.within(1, 200))).await;
        disk.cut_power();
        // It lives on for a moment without its disk, and must not say 202 in it.
        tokio::time::sleep(Duration::from_millis(random.within(0, 20))).await;
        node.kill9().await;
        ledger.settle(load).await;
        disk.power_up();
        if cut % judged_every == 0 || cut == cuts {
            node.start().await;
            assert_lawful(&ledger, &senders, &node.export());
            node.terminate().await;
        }
    }
    // A cut tears what was being written, and that is no damage: an alarm that cries wolf is switched off.
    let verify = node.cli(&["log", "verify"]);
    assert_eq!(verify.status.code(), Some(0), "{}", String::from_utf8_lossy(&verify.stdout));
    let acknowledged = ledger.acknowledged().count();
    println!("{cuts} cuts, {acknowledged} acknowledged, {} sent", ledger.attempts.len());
    assert!(acknowledged > cuts * 5, "there was no load to speak of");
}

/// A disk with room for so many cuts: each life of the appliance begins a segment or two of a mebibyte and gives none
/// back.
fn mebibytes(cuts: usize) -> u32 {
    64 + 4 * u32::try_from(cuts).expect("few")
}

/// `TIDEGATE_CUTS` says how many; `make torture` says more.
#[tokio::test(flavor = "multi_thread")]
async fn power_cuts_lose_nothing_that_was_synced() {
    let cuts = how_many("TIDEGATE_CUTS", 20);
    cut(LoopDisk::new(mebibytes(cuts)), "fdatasync", cuts).await;
}

/// The cut of the file system alone cannot tell `O_DIRECT` from `O_DIRECT|O_DSYNC`; this one can.
#[tokio::test(flavor = "multi_thread")]
async fn power_cuts_lose_nothing_that_was_written_directly() {
    let cuts = how_many("TIDEGATE_CUTS", 20);
    cut(VolatileDisk::new(mebibytes(cuts)), "direct", cuts).await;
}
