//! The harness on trial: it must spare a writer that syncs and convict one that does not.

use std::process::Command;

use tidegate_tests::disk::LoopDisk;
use tidegate_tests::patience::skipped;

/// How many records the writer acknowledged, and how many a power cut left.
fn acknowledged_and_left(disk: &mut LoopDisk, how: &str) -> (usize, usize) {
    let file = disk.path().join(how);
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
    String::from_utf8_lossy(bytes).lines().count()
}

#[test]
fn power_cuts_take_only_what_was_not_synced() {
    let mut disk = match LoopDisk::new(16) {
        Ok(disk) => disk,
        Err(why) => return skipped(&why),
    };
    assert_eq!(acknowledged_and_left(&mut disk, "synced"), (40, 40));
    let (acknowledged, left) = acknowledged_and_left(&mut disk, "careless");
    assert_eq!(acknowledged, 40);
    assert!(left < acknowledged, "the cut took nothing from a writer that never syncs: it proves nothing");
}
