//! So many lines a second, and a count of the others.

use std::sync::atomic::{AtomicU64, Ordering};

/// Lets a few lines a second through, and counts the others: a second (in the upper 32 bits) and how many lines were asked for in it; and how many went unwritten.
#[derive(Debug, Default)]
pub(crate) struct Sample {
    window: AtomicU64,
    unwritten: AtomicU64,
}

impl Sample {
    /// May a line be written in this second? With it, how many were not since the last one that was.
    pub(crate) fn admit(&self, second: u64, lines: u64) -> Option<u64> {
        let second = second & 0xffff_ffff;
        let asked = self
            .window
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |window| {
                let count = if window >> 32 == second { (window & 0xffff_ffff) + 1 } else { 1 };
                Some(second << 32 | count.min(0xffff_ffff))
            })
            .map_or(1, |window| if window >> 32 == second { (window & 0xffff_ffff) + 1 } else { 1 });
        if asked > lines {
            self.unwritten.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        Some(self.unwritten.swap(0, Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_sampled_and_counted() {
        let sample = Sample::default();
        let written: Vec<_> = (0..100).filter_map(|_| sample.admit(7, 5)).collect();
        assert_eq!(written, vec![0; 5]);
        assert_eq!(sample.admit(8, 5), Some(95));
        assert_eq!(sample.admit(9, 5), Some(0));
    }
}
