//! `tidegate log stat`

use super::super::Shell;
use super::super::args::LogStat;
use super::super::events::source::Source;
use super::super::exit::{Exit, Outcome};
use super::super::out::Tone;
use super::super::table::{Cell, Table};
use super::super::when::distance;
use crate::control::wire::{LaneStat, LogStat as Stat};

pub(in crate::cli) fn stat(args: &LogStat, shell: &mut Shell<'_>) -> Outcome {
    let stat = Source::open(&args.place, shell)?.stat()?;
    if args.form.json {
        shell.out.json(&stat)?;
    } else {
        print(&stat, shell)?;
    }
    Ok(Exit::Yes)
}

fn print(stat: &Stat, shell: &mut Shell<'_>) -> Outcome<()> {
    let mut table =
        Table::new(&["CLASS", "SHARD", "RECORDS", "EVENTS", "ON DISK", "SEGMENTS", "KEPT", "OLDEST", "SYNC", "STATE"]);
    for lane in &stat.lanes {
        table.row(row(lane));
    }
    table.print(&mut shell.out)?;
    for lane in &stat.lanes {
        let last =
            lane.last_fault.as_ref().map(|fault| format!("last fault of the disk, {}: {}", fault.at, fault.reason));
        let trouble = lane.unavailable.iter().chain(&last).chain(&lane.damage);
        for text in trouble {
            let lane = shell.out.paint(Tone::Bad, format_args!("{}.{}:", lane.class, lane.shard)).to_string();
            shell.out.line(format_args!("{lane} {}", domain::text::Untrusted::with_limit(text.as_bytes(), 1024)))?;
        }
    }
    let (free, reserve) = (bytes(stat.disk_free_bytes), bytes(stat.reserve_bytes));
    let told = match stat.days_left {
        Some(days) if days > 0.0 => {
            format!("lasts {days:.1} days at this rate: {free} are free, {reserve} of them in reserve")
        }
        Some(_) => format!("is full: {free} are free, no room for a segment above the reserve of {reserve}"),
        None => format!(
            "has {free} free, {reserve} of them in reserve; nothing was appended lately to say how long they last"
        ),
    };
    shell.out.line(format_args!("the disk {told}"))
}

fn row(lane: &LaneStat) -> Vec<Cell> {
    let state = match (&lane.unavailable, lane.damage.is_empty(), lane.active) {
        (Some(_), _, _) if lane.full => Cell::toned(Tone::Bad, "full"),
        (Some(_), _, _) => Cell::toned(Tone::Bad, "unavailable"),
        (None, false, _) => Cell::toned(Tone::Bad, "damaged"),
        (None, true, true) => Cell::toned(Tone::Good, "writing"),
        (None, true, false) => Cell::toned(Tone::Dim, "read only"),
    };
    vec![
        Cell::untrusted(&lane.class),
        Cell::from(format!("{}.{}", lane.generation, lane.shard)),
        Cell::new(&lane.records),
        Cell::from(bytes(lane.event_bytes)),
        Cell::from(bytes(lane.disk_bytes)),
        Cell::new(&lane.segments),
        Cell::from(lane.retention_ms.map_or_else(|| "-".to_owned(), distance)),
        Cell::untrusted(lane.oldest_at.as_deref().unwrap_or("-")),
        Cell::untrusted(&lane.sync),
        state,
    ]
}

/// Bytes in the largest unit that leaves a digit in front of the point.
pub(in crate::cli) fn bytes(count: u64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    if count < 1024 {
        return format!("{count} B");
    }
    let (mut whole, mut unit) = (count, 0);
    while whole >= 1024 * 1024 && unit + 1 < UNITS.len() {
        (whole, unit) = (whole / 1024, unit + 1);
    }
    format!("{}.{} {}", whole / 1024, whole % 1024 * 10 / 1024, UNITS[unit])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::testing::printed;
    use crate::control::wire::DiskFault;

    fn lane() -> LaneStat {
        LaneStat {
            class: "default".into(),
            generation: 0,
            shard: 0,
            active: true,
            retention_ms: Some(30 * 86_400_000),
            records: 1_234_567,
            event_bytes: 1_300_000_000,
            segments: 21,
            disk_bytes: 1_409_286_144,
            sync: "direct".into(),
            oldest_at: Some("2025-11-29T13:46:40.123Z".into()),
            queued: 0,
            unavailable: None,
            full: false,
            failures: 0,
            last_fault: None,
            damage: Vec::new(),
        }
    }

    fn log(lane: LaneStat, days_left: Option<f64>) -> Stat {
        let (disk_free_bytes, reserve_bytes) = (3 << 30, 1 << 30);
        Stat { engine: "embedded".into(), lanes: vec![lane], disk_free_bytes, reserve_bytes, days_left }
    }

    #[test]
    fn a_log_is_one_line_a_lane() {
        let stat = log(lane(), Some(41.26));
        assert_eq!(
            printed(|shell| print(&stat, shell)),
            "CLASS    SHARD  RECORDS  EVENTS   ON DISK  SEGMENTS  KEPT    OLDEST                    SYNC    STATE\n\
             default  0.0    1234567  1.2 GiB  1.3 GiB  21        30d 0h  2025-11-29T13:46:40.123Z  direct  writing\n\
             the disk lasts 41.3 days at this rate: 3.0 GiB are free, 1.0 GiB of them in reserve\n"
        );
    }

    #[test]
    fn trouble_is_said_below() {
        let lane = LaneStat { damage: vec!["segment 7, offset 4096".into()], ..lane() };
        let text = printed(|shell| print(&log(lane, None), shell));
        assert!(text.contains("  damaged\n") && text.contains("\ndefault.0: segment 7, offset 4096\n"), "{text}");
        assert!(
            text.contains("the disk has 3.0 GiB free, 1.0 GiB of them in reserve; nothing was appended lately"),
            "{text}"
        );
    }

    #[test]
    fn a_disk_that_is_full_is_said_to_be_and_so_is_its_last_fault() {
        let last_fault = Some(DiskFault { at: "2025-11-29T13:46:40.123Z".into(), reason: "the disk is full".into() });
        let full = LaneStat { unavailable: Some("the disk is full".into()), full: true, last_fault, ..lane() };
        let text = printed(|shell| print(&log(full.clone(), Some(0.0)), shell));
        assert!(text.contains("  full\ndefault.0: the disk is full\n"), "{text}");
        assert!(text.contains("last fault of the disk, 2025-11-29T13:46:40.123Z: the disk is full\n"), "{text}");
        assert!(text.contains("the disk is full: 3.0 GiB are free"), "{text}");
        let over = LaneStat { unavailable: None, full: false, ..full };
        let text = printed(|shell| print(&log(over, Some(1.0)), shell));
        assert!(text.contains("  writing\n") && text.contains("last fault of the disk"), "{text}");
    }

    #[test]
    fn what_the_log_says_of_a_full_disk_is_what_is_shown() {
        let fault = eventlog::DiskFault { unix_ms: 0, reason: "the disk is full".into() };
        let lane =
            eventlog::LaneStat { full: true, last_fault: Some(fault), failures: 3, ..eventlog::LaneStat::default() };
        let (lanes, days_left) = (vec![lane], Some(0.0));
        let stat = eventlog::Stat { engine: "embedded", lanes, disk_free_bytes: 7, reserve_bytes: 9, days_left };
        let json = serde_json::to_value(Stat::from(stat)).unwrap();
        let lane = &json["lanes"][0];
        assert_eq!((&lane["unavailable"], &lane["full"]), (&"the disk is full".into(), &true.into()));
        assert_eq!((&lane["failures"], &lane["lastFault"]["reason"]), (&3.into(), &"the disk is full".into()));
        assert_eq!((&json["diskFreeBytes"], &json["reserveBytes"]), (&7.into(), &9.into()));
        assert_eq!(json["daysLeft"], 0.0);
    }

    #[test]
    fn a_class_without_settings_is_kept_and_not_for_no_time() {
        let lane =
            |configured| eventlog::LaneStat { configured, retention_ms: 86_400_000, ..eventlog::LaneStat::default() };
        let (lanes, days_left) = (vec![lane(true), lane(false)], None);
        let stat = eventlog::Stat { engine: "embedded", lanes, disk_free_bytes: 0, reserve_bytes: 0, days_left };
        let stat = Stat::from(stat);
        assert_eq!(stat.lanes.iter().map(|lane| lane.retention_ms).collect::<Vec<_>>(), [Some(86_400_000), None]);
        let text = printed(|shell| print(&stat, shell));
        assert!(text.contains("  1d 0h  ") && !text.contains("0ms"), "{text}");
    }

    #[test]
    fn bytes_have_one_digit_behind_the_point() {
        let text = [0, 1023, 1024, 1536, 1 << 20, u64::MAX].map(bytes);
        assert_eq!(text, ["0 B", "1023 B", "1.0 KiB", "1.5 KiB", "1.0 MiB", "16383.9 PiB"]);
    }
}
