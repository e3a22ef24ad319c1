//! Under which clock what was written. A record says when it was appended, by the clock of then; when that clock has been
//! set since, the record is older or younger than it says.
//!
//! Every step of the believed clock ends an era and moves what all eras before say of themselves by as much, so that an
//! age is the same before a step and after it: what came while a clock said 2020 is not six years old when it is set
//! right. Steps back count too, or a machine that boots in 1970 every week would make everything young every week.
//!
//! The time for which no process ran is such a step as well: nothing tells it from a clock that was behind.

use super::position::SegmentId;
use super::trim_clock::SLACK_MS;

/// Most eras that are told apart: as many as fit one sector of a disk with the believed time. They go with their
/// segments, so that a machine without a clock of its own has some two for each start within an age.
pub(crate) const ERAS_MAX: usize = 16;

/// What was appended under one setting of the clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Era {
    /// The last segment that may have anything of it. The next era may begin in the same one.
    pub(crate) until: SegmentId,
    /// How far its clock was behind that of now, in ms; less than 0 where it was ahead.
    pub(crate) behind_ms: i64,
    /// When it ended, by the clock of now: nothing of it is younger.
    pub(crate) ended_unix_ms: u64,
}

/// Eras that are over, oldest first.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Eras(Vec<Era>);

impl Eras {
    /// `None` if they are none that `iter` gave out.
    pub(crate) fn from_stored(eras: Vec<Era>) -> Option<Self> {
        (eras.len() <= ERAS_MAX && eras.is_sorted_by_key(|era| era.until)).then_some(Self(eras))
    }

    /// Everything up to this segment is as young as `unix_ms`, for all that is known.
    pub(crate) fn unknown(until: SegmentId, unix_ms: u64) -> Self {
        Self(vec![Era { until, behind_ms: i64::MAX, ended_unix_ms: unix_ms }])
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Era> {
        self.0.iter()
    }

    /// The clock was set by `by_ms`, to `now_unix_ms`, while this segment was written.
    pub(crate) fn step(&mut self, by_ms: i64, written: SegmentId, now_unix_ms: u64) {
        for era in &mut self.0 {
            era.behind_ms = era.behind_ms.saturating_add(by_ms);
            era.ended_unix_ms = era.ended_unix_ms.saturating_add_signed(by_ms).min(now_unix_ms);
        }
        self.push(Era { until: written, behind_ms: by_ms, ended_unix_ms: now_unix_ms });
    }

    /// This segment gets a record that says a time `by_ms` before `now_unix_ms`: the clock fell and may be right again,
    /// and nobody saw it. An era for this segment alone. False if what is known of it covers that.
    pub(crate) fn dip(&mut self, by_ms: i64, written: SegmentId, now_unix_ms: u64) -> bool {
        if let Some(last) = self.0.last_mut()
            && last.behind_ms.saturating_add_unsigned(SLACK_MS) >= by_ms
            && last.ended_unix_ms.saturating_add(SLACK_MS) >= now_unix_ms
        {
            let is_new = last.until < written;
            last.until = last.until.max(written);
            return is_new;
        }
        // What came before it, up to this segment, is as old as it says.
        self.push(Era { until: written, behind_ms: 0, ended_unix_ms: now_unix_ms });
        self.push(Era { until: written, behind_ms: by_ms, ended_unix_ms: now_unix_ms });
        true
    }

    /// Takes in what somebody else knows, by the same clock: nothing is older than by either.
    pub(crate) fn unite(&mut self, other: &Self) {
        let mut untils: Vec<SegmentId> = self.iter().chain(other.iter()).map(|era| era.until).collect();
        untils.sort_unstable();
        untils.dedup();
        let both = [std::mem::take(&mut self.0), other.0.clone()];
        for until in untils {
            let up_to = both.iter().filter_map(|eras| eras.iter().find(|era| era.until >= until));
            let within = both.iter().flatten().filter(|era| era.until == until);
            for era in [youngest(until, up_to), youngest(until, within)].into_iter().flatten() {
                if self.0.last() != Some(&era) {
                    self.push(era);
                }
            }
        }
    }

    fn push(&mut self, era: Era) {
        let until = self.0.last().map_or(era.until, |last| last.until.max(era.until));
        self.0.push(Era { until, ..era });
        if self.0.len() > ERAS_MAX {
            self.merge(self.shortest_pair());
        }
    }

    /// The latest time, by the clock of now, at which a record of this segment can have been appended that says
    /// `unix_ms`. Never before what it says itself.
    pub(crate) fn latest(&self, segment: SegmentId, unix_ms: u64) -> u64 {
        let mut latest = unix_ms;
        let mut begins = None;
        for era in &self.0 {
            // In a segment that has something of several, any may be the one.
            if segment <= era.until && begins.is_none_or(|begins| begins <= segment) {
                let corrected = unix_ms.saturating_add_signed(era.behind_ms).min(era.ended_unix_ms);
                latest = latest.max(corrected);
            }
            begins = Some(era.until);
        }
        latest
    }

    /// Forgets eras of which nothing is left.
    pub(crate) fn forget_before(&mut self, oldest: SegmentId) {
        self.0.retain(|era| era.until >= oldest);
    }

    /// Takes this era and the next for one, in which nothing is older than it was.
    fn merge(&mut self, at: usize) {
        let elder = self.0.remove(at);
        if let Some(era) = self.0.get_mut(at) {
            era.behind_ms = era.behind_ms.max(elder.behind_ms);
            era.ended_unix_ms = era.ended_unix_ms.max(elder.ended_unix_ms);
        }
    }

    /// Which era lasted least together with the next: what is taken for one is kept longer by less than that. Always the
    /// oldest two would grow into one that never ages.
    fn shortest_pair(&self) -> usize {
        // When the first one began is not known.
        let mut began_unix_ms = 0;
        let lasted = self.0.windows(2).map(|pair| {
            let began = std::mem::replace(&mut began_unix_ms, pair[0].ended_unix_ms);
            pair[1].ended_unix_ms.saturating_sub(began)
        });
        lasted.enumerate().min_by_key(|(_, lasted)| *lasted).map_or(0, |(at, _)| at)
    }
}

/// One era in which nothing is older than in any of these.
fn youngest<'a>(until: SegmentId, eras: impl Iterator<Item = &'a Era>) -> Option<Era> {
    eras.copied()
        .reduce(|one, other| Era {
            until,
            behind_ms: one.behind_ms.max(other.behind_ms),
            ended_unix_ms: one.ended_unix_ms.max(other.ended_unix_ms),
        })
        .map(|era| Era { until, ..era })
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: i64 = 24 * 3600 * 1000;
    const YEARS: i64 = 365 * DAY;
    const NOW: u64 = 1_790_000_000_000;

    fn segment(sequence: u32) -> SegmentId {
        SegmentId { epoch: 1, sequence }
    }

    fn before(unix_ms: u64, ms: i64) -> u64 {
        unix_ms.saturating_add_signed(-ms)
    }

    #[test]
    fn what_came_under_a_clock_that_was_behind_is_as_young_as_it_was() {
        let mut eras = Eras::default();
        let wrong = before(NOW, 6 * YEARS);
        assert_eq!(eras.latest(segment(0), wrong), wrong);
        eras.step(6 * YEARS, segment(3), NOW);
        assert_eq!(eras.latest(segment(0), before(wrong, DAY)), before(NOW, DAY));
        assert_eq!(eras.latest(segment(3), before(NOW, DAY)), NOW, "nothing of it came after the step");
        assert_eq!(eras.latest(segment(3), NOW + 5), NOW + 5, "the next one begins in the same segment");
        assert_eq!(eras.latest(segment(4), wrong), wrong);
    }

    #[test]
    fn a_step_that_was_wrong_itself_counts_no_longer_when_it_is_taken_back() {
        let mut eras = Eras::default();
        eras.step(73 * YEARS, segment(3), NOW + (73 * YEARS).unsigned_abs());
        eras.step(-73 * YEARS, segment(5), NOW);
        assert_eq!(eras.latest(segment(1), before(NOW, DAY)), before(NOW, DAY));
        assert_eq!(eras.latest(segment(4), NOW + 9), NOW + 9, "nothing is older than it says");
        eras.step(DAY, segment(5), NOW + DAY.unsigned_abs());
        assert_eq!(eras.latest(segment(1), before(NOW, DAY)), NOW);
    }

    #[test]
    fn a_clock_that_falls_back_at_every_start_makes_nothing_young() {
        let mut eras = Eras::default();
        let mut now = NOW;
        for start in 0..200 {
            let (at, off) = (segment(10 * start), 600_000_i64);
            eras.step(-50 * YEARS, at, before(now, 50 * YEARS));
            now += off.unsigned_abs();
            eras.step(50 * YEARS + off, at, now);
            now += DAY.unsigned_abs();
            // Segments go after 30 days.
            eras.forget_before(segment(10 * start.saturating_sub(30)));
            assert!(eras.iter().count() <= ERAS_MAX);
            if start >= 30 {
                let old = eras.latest(segment(10 * (start - 30) + 5), before(now, 30 * (DAY + off)));
                assert!((NOW..before(now, 20 * DAY)).contains(&old), "{}", (now - old) / DAY.unsigned_abs());
            }
        }
    }

    /// Merging forgets which clock a record came under, and never how young it may be.
    #[test]
    fn more_eras_than_are_told_apart_make_nothing_older() {
        let mut eras = Eras::default();
        // Segment, time that was said, and the same by the clock of now.
        let mut records: Vec<(SegmentId, u64, u64)> = Vec::new();
        let mut wall = NOW;
        for n in 0..100_u32 {
            wall += DAY.unsigned_abs();
            records.push((segment(n), wall, wall));
            let by = [DAY, -3 * DAY, 7 * DAY, -4 * DAY, DAY / 2][n as usize % 5] * i64::from(1 + n % 3);
            wall = wall.saturating_add_signed(by);
            for (.., by_now) in &mut records {
                *by_now = by_now.saturating_add_signed(by);
            }
            eras.step(by, segment(n), wall);
            assert_eq!(eras.iter().count(), ERAS_MAX.min(n as usize + 1));
            for (segment, said, by_now) in &records {
                assert!(eras.latest(*segment, *said) >= *by_now, "{segment} after {n} steps");
            }
        }
    }

    #[test]
    fn a_dip_makes_its_own_segment_young_and_no_other() {
        let mut eras = Eras::default();
        eras.step(-DAY, segment(1), NOW);
        let later = NOW + DAY.unsigned_abs();
        assert!(eras.dip(50 * YEARS, segment(4), later));
        assert!(!eras.dip(50 * YEARS, segment(4), later + 1000), "it is known");
        assert_eq!(eras.latest(segment(4), before(later, 50 * YEARS)), later);
        assert_eq!((eras.latest(segment(3), 5), eras.latest(segment(5), 5)), (5, 5));
        assert!(eras.dip(50 * YEARS, segment(5), later + 2000));
        assert_eq!(eras.latest(segment(5), before(later, 50 * YEARS)), later);
        assert!(eras.dip(51 * YEARS, segment(5), later + 2000), "it fell further");
        assert!(eras.dip(51 * YEARS, segment(5), later + 1000 * 1000), "it fell again");
        assert_eq!((eras.latest(segment(3), 5), eras.latest(segment(6), 5)), (5, 5));
    }

    #[test]
    fn nothing_is_older_by_what_two_know_than_by_what_one_knows() {
        let (mut one, mut other) = (Eras::default(), Eras::default());
        for n in 0..30_u32 {
            let by = [DAY, -3 * DAY, 7 * DAY, -4 * DAY, DAY / 2][n as usize % 5];
            let eras = if n % 3 == 0 { &mut one } else { &mut other };
            eras.step(by, segment(n / 2), NOW + u64::from(n));
            eras.dip(9 * YEARS, segment(n / 2), NOW + u64::from(n));
            let mut both = one.clone();
            both.unite(&other);
            assert!(Eras::from_stored(both.iter().copied().collect()).is_some());
            for at in 0..20 {
                for said in [before(NOW, 9 * YEARS), before(NOW, 2 * DAY), NOW] {
                    let least = one.latest(segment(at), said).max(other.latest(segment(at), said));
                    assert!(both.latest(segment(at), said) >= least, "{at} after {n}");
                }
            }
        }
        let mut twice = one.clone();
        twice.unite(&one);
        for at in 0..20 {
            assert_eq!(twice.latest(segment(at), NOW - 5), one.latest(segment(at), NOW - 5));
        }
    }

    #[test]
    fn eras_go_with_their_segments() {
        let mut eras = Eras::unknown(segment(2), NOW);
        eras.step(DAY, segment(7), NOW + DAY.unsigned_abs());
        eras.forget_before(segment(2));
        assert_eq!(eras.iter().count(), 2);
        eras.forget_before(segment(3));
        assert_eq!(eras.iter().map(|era| era.until).collect::<Vec<_>>(), [segment(7)]);
        assert_eq!(Eras::from_stored(eras.iter().copied().collect()), Some(eras.clone()));
        let era = *eras.iter().next().unwrap();
        assert_eq!(Eras::from_stored(vec![era; ERAS_MAX + 1]), None);
        assert_eq!(Eras::from_stored(vec![era, Era { until: segment(6), ..era }]), None);
    }
}
