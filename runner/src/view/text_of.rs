//! Small texts that views share.

use crate::automation::format_rfc3339;

/// Bytes of a text that somebody wrote, before it is cut.
const TEXT_BYTES_MAX: usize = 1_024;

pub(super) fn time(unix_ms: u64) -> String {
    format_rfc3339(unix_ms)
}

/// A text, cut at a character, and marked where it is.
pub(super) fn cut(text: &str) -> String {
    if text.len() <= TEXT_BYTES_MAX {
        return text.to_owned();
    }
    format!("{}…", &text[..text.floor_char_boundary(TEXT_BYTES_MAX)])
}

/// How long something took, in two units at most.
pub(super) fn span(ms: u64) -> String {
    let (seconds, minutes, hours, days) = (ms / 1_000, ms / 60_000, ms / 3_600_000, ms / 86_400_000);
    match ms {
        0..1_000 => format!("{ms} ms"),
        1_000..10_000 => format!("{seconds}.{} s", ms % 1_000 / 100),
        10_000..60_000 => format!("{seconds} s"),
        60_000..3_600_000 => format!("{minutes} min {} s", seconds % 60),
        3_600_000..86_400_000 => format!("{hours} h {} min", minutes % 60),
        86_400_000.. => format!("{days} d {} h", hours % 24),
    }
}

/// So many workers, in words.
pub(super) fn workers_were_lost(count: u32) -> String {
    if count == 1 { "1 worker was lost".to_owned() } else { format!("{count} workers were lost") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_have_two_units_at_most() {
        let shown: Vec<_> = [0, 999, 1_250, 59_999, 61_000, 3_660_000, 90_000_000].into_iter().map(span).collect();
        assert_eq!(shown, ["0 ms", "999 ms", "1.2 s", "59 s", "1 min 1 s", "1 h 1 min", "1 d 1 h"]);
        assert!(!span(u64::MAX).is_empty());
    }

    #[test]
    fn one_worker_is_one() {
        assert_eq!(
            [0, 1, 2].map(workers_were_lost),
            ["0 workers were lost", "1 worker was lost", "2 workers were lost"]
        );
    }

    #[test]
    fn texts_are_cut_at_characters() {
        assert_eq!(cut("ä"), "ä");
        let long = cut(&"ä".repeat(2_000));
        assert!(long.len() <= TEXT_BYTES_MAX + "…".len() && long.ends_with('…'));
    }
}
