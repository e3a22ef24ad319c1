//! The harness on trial: it must spare writers that make things durable and convict those that do not.

use std::process::Command;
use std::time::Duration;

use skip::skipped;
use tidegate_tests::Appliance;
use tidegate_tests::disk::{Disk, LoopDisk, VolatileDisk};
use tidegate_tests::judge::lost;
use tidegate_tests::load::Ledger;

/// How many records the writer acknowledged, and how many a power cut left.
fn acknowledged_and_left(disk: &mut dyn Disk, how: &str, round: u32) -> (usize, usize) {
    let file = disk.path().join(format!("{how}-{round}"));
    let output = Command::new(env!("CARGO_BIN_EXE_plain-writer"))
        .args([how, file.to_str().expect("UTF-8"), "40"])
        .output()
        .expect("the writer runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    disk.cut_power();
    disk.power_up();
    (lines(&output.stdout), std::fs::read(&file).map_or(0, |left| lines(&left)))
}

fn lines(bytes: &[u8]) -> usize {
    String::from_utf8_lossy(bytes).matches('\n').count()
}

fn spared(disk: &mut dyn Disk, how: &str) {
    for round in 0..3 {
        assert_eq!(acknowledged_and_left(disk, how, round), (40, 40), "{how}: a cut took what was durable");
    }
}

/// A cut may leave everything, by luck; three in a row do not.
fn convicted(disk: &mut dyn Disk, how: &str) {
    let left: Vec<usize> = (0..3).map(|round| acknowledged_and_left(disk, how, round).1).collect();
    assert!(left.iter().any(|left| *left < 40), "{how}: the cuts took nothing from a writer that never syncs");
}

#[test]
fn power_cuts_take_only_what_was_not_synced() {
    let mut disk = match LoopDisk::new(16) {
        Ok(disk) => disk,
        Err(why) => return skipped(&why),
    };
    spared(&mut disk, "synced");
    convicted(&mut disk, "careless");
}

#[test]
fn a_volatile_cache_takes_only_what_was_not_flushed() {
    let mut disk = match VolatileDisk::new(16) {
        Ok(disk) => disk,
        Err(why) => return skipped(&why),
    };
    spared(&mut disk, "synced");
    convicted(&mut disk, "careless");
    spared(&mut disk, "direct-synced");
    // The mistake that no other test on one machine sees: `O_DIRECT` alone stops in the device's cache.
    convicted(&mut disk, "direct-careless");
    println!("{}", disk.counts());
}

/// The appliance itself, with every sync left out behind its back.
async fn appliance_convicted(disk: Result<impl Disk, String>, sync: &str) {
    let mut disk = match disk {
        Ok(disk) => disk,
        Err(why) => return skipped(&why),
    };
    let mut taken = Vec::new();
    for round in 0..3 {
        let mut node = Appliance::usual()
            .set("gateway", "body_bytes_max", "\"256KiB\"")
            .set("log", "segment_bytes", "\"1MiB\"")
            .set("log", "reserve_bytes", "\"0B\"")
            .set("log", "sync", &format!("\"{sync}\""))
            .log_in(&disk.path().join(format!("log-{round}")))
            .under(&[env!("CARGO_BIN_EXE_without-syncs")])
            .start()
            .await;
        let mut ledger = Ledger::seeded(round);
        let load = ledger.load(&[("wh_1".to_owned(), node.sender("wh_1"))], 2);
        tokio::time::sleep(Duration::from_millis(300)).await;
        disk.cut_power();
        node.kill9().await;
        ledger.settle(load).await;
        disk.power_up();
        taken.push((lost(&ledger, &node), ledger.acknowledged().count()));
    }
    println!("{sync}, syncs skipped: lost and acknowledged {taken:?}");
    assert!(
        taken.iter().any(|(lost, _)| *lost > 0),
        "{sync}: the cuts took nothing from an appliance that never syncs"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn power_cuts_convict_an_appliance_whose_syncs_are_skipped() {
    appliance_convicted(LoopDisk::new(64), "fdatasync").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_volatile_cache_convicts_an_appliance_whose_syncs_are_skipped() {
    appliance_convicted(VolatileDisk::new(64), "direct").await;
}
