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
        let trouble = lane.unavailable.iter().chain(&lane.damage);
        for text in trouble {
            let lane = shell.out.paint(Tone::Bad, format_args!("{}.{}:", lane.class, lane.shard)).to_string();
            shell.out.line(format_args!("{lane} {}", domain::text::Untrusted::with_limit(text.as_bytes(), 1024)))?;
        }
    }
    if let Some(days) = stat.days_left {
        shell.out.line(format_args!("the disk lasts {days:.1} days at this rate"))?;
    }
    Ok(())
}

fn row(lane: &LaneStat) -> Vec<Cell> {
    let state = match (&lane.unavailable, lane.damage.is_empty(), lane.active) {
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
pub(super) fn bytes(count: u64) -> String {
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
            damage: Vec::new(),
        }
    }

    #[test]
    fn a_log_is_one_line_a_lane() {
        let stat = Stat { engine: "embedded".into(), lanes: vec![lane()], days_left: Some(41.26) };
        assert_eq!(
            printed(|shell| print(&stat, shell)),
            "CLASS    SHARD  RECORDS  EVENTS   ON DISK  SEGMENTS  KEPT    OLDEST                    SYNC    STATE\n\
             default  0.0    1234567  1.2 GiB  1.3 GiB  21        30d 0h  2025-11-29T13:46:40.123Z  direct  writing\n\
             the disk lasts 41.3 days at this rate\n"
        );
    }

    #[test]
    fn trouble_is_said_below() {
        let lane = LaneStat { damage: vec!["segment 7, offset 4096".into()], ..lane() };
        let text =
            printed(|shell| print(&Stat { engine: "embedded".into(), lanes: vec![lane], days_left: None }, shell));
        assert!(text.contains("  damaged\n") && text.ends_with("default.0: segment 7, offset 4096\n"), "{text}");
    }

    #[test]
    fn bytes_have_one_digit_behind_the_point() {
        let text = [0, 1023, 1024, 1536, 1 << 20, u64::MAX].map(bytes);
        assert_eq!(text, ["0 B", "1023 B", "1.0 KiB", "1.5 KiB", "1.0 MiB", "16383.9 PiB"]);
    }
}
