//! Calls and faults of the last ten slots.

/// Pieces of a window: a tenth of it is how late an old fault leaves.
pub(crate) const SLOTS: usize = 10;

/// Counts per slot. A slot that is full is halved, both numbers, which keeps its share of faults: 65,535 calls of one
/// pair in a slot say all that there is to say.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Window {
    /// The slot of the latest count: time divided by a slot's length.
    latest: u64,
    slots: [Counts; SLOTS],
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Counts {
    calls: u16,
    faults: u16,
}

impl Window {
    /// Counts a call. An older moment than one that was counted is counted as of that one.
    pub(crate) fn count(&mut self, now_ms: u64, slot_ms: u32, is_fault: bool) {
        self.roll(now_ms, slot_ms);
        let counts = &mut self.slots[index(self.latest)];
        if counts.calls == u16::MAX {
            *counts = Counts { calls: counts.calls / 2, faults: counts.faults / 2 };
        }
        counts.calls += 1;
        counts.faults += u16::from(is_fault);
    }

    /// Calls and faults in the window that ends with the latest count.
    pub(crate) fn sums(&self) -> (u32, u32) {
        self.slots
            .iter()
            .fold((0, 0), |(calls, faults), slot| (calls + u32::from(slot.calls), faults + u32::from(slot.faults)))
    }

    fn roll(&mut self, now_ms: u64, slot_ms: u32) {
        let slot = now_ms / u64::from(slot_ms.max(1));
        // A slot's length that changed by a reload makes numbers jump: whichever way, what was counted is dropped.
        if slot >= self.latest + SLOTS as u64 || slot + (SLOTS as u64) < self.latest {
            *self = Self { latest: slot, ..Self::default() };
            return;
        }
        while self.latest < slot {
            self.latest += 1;
            self.slots[index(self.latest)] = Counts::default();
        }
    }
}

fn index(slot: u64) -> usize {
    usize::try_from(slot % SLOTS as u64).expect("a remainder of ten is small")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_leaves_with_its_slot() {
        let mut window = Window::default();
        window.count(999, 1_000, true);
        window.count(9_999, 1_000, false);
        assert_eq!(window.sums(), (2, 1));
        window.count(10_000, 1_000, false);
        assert_eq!(window.sums(), (2, 0), "slot 0 is eleven slots back from slot 10");
        window.count(9_500, 1_000, true);
        assert_eq!(window.sums(), (3, 1), "an older moment counts as of the latest");
        window.count(1_000_000, 1_000, false);
        assert_eq!(window.sums(), (1, 0));
    }

    #[test]
    fn a_full_slot_keeps_its_share() {
        let mut window = Window::default();
        for at in 0..200_000 {
            window.count(5, 1_000, at % 4 == 0);
        }
        let (calls, faults) = window.sums();
        assert!((32_768..=65_535).contains(&calls), "{calls}");
        assert!((24..=26).contains(&(faults * 100 / calls)), "{faults} of {calls}");
    }

    #[test]
    fn another_slot_length_begins_anew() {
        let mut window = Window::default();
        window.count(1_000_000, 10, true);
        window.count(1_000_001, 1_000, false);
        assert_eq!(window.sums(), (1, 0));
    }
}
