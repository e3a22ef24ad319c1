//! Where to begin for the newest few: as near to the end as the indexes say, so that a look at a long log reads no more
//! than one at a short log.

use super::lane::Lane;
use super::lane_index::Answer;
use super::place::position_at;
use crate::index::Wanted;
use crate::segment::{Position, SegmentId};

/// Behind every segment that there can be.
const END: SegmentId = SegmentId { epoch: u64::MAX, sequence: u32::MAX };

impl Lane {
    /// A place with at least so many of the wanted behind it; `None` is the beginning of the lane, where there are fewer.
    /// Segments that no index covers count for nothing: whoever reads from there on reads them too.
    pub(super) fn newest(&self, wanted: &Wanted<'_>, count: usize) -> Option<Position> {
        self.refresh();
        // The end first: an index may know what readers are not shown yet.
        let durable = self.segments.durable();
        if count == 0 {
            return Some(durable);
        }
        let mut left = count;
        let mut at = self.index.before(END);
        while let Some(segment) = at {
            if let Answer::Found(mut spots) = self.index.select(segment, wanted) {
                spots.retain(|spot| position_at(segment, *spot) < durable);
                if let Some(first) = spots.len().checked_sub(left) {
                    return Some(position_at(segment, spots[first]));
                }
                left -= spots.len();
            }
            at = self.index.before(segment);
        }
        None
    }
}
