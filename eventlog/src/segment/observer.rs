//! The hook by which the layer above indexes what is committed, without the segment layer knowing what it is.

use super::catalog::SegmentInfo;
use super::format::RecordView;
use super::position::SegmentId;

/// Makes a side file's bytes; runs on the helper thread, after the segment is sealed.
pub type SideFile = Box<dyn FnOnce() -> Vec<u8> + Send>;

/// Told what becomes durable, in order. All of it must be quick: the writer's thread waits.
///
/// Only this writer's own records pass here. What older epochs hold is read with `Journal::segments` and
/// `Journal::read_segment`, and side files are read with `Journal::side_file`.
pub trait SegmentObserver: Send + Sync + std::fmt::Debug {
    /// The records of one batch, which is durable; called before anybody is told so, so that who has the answer
    /// finds the record.
    fn committed(&self, segment: SegmentId, records: &mut dyn Iterator<Item = RecordView<'_>>);

    /// The segment takes no more records. The work that is returned makes its side file, which is written beside
    /// the segment and dropped with it; losing a side file loses nothing that the segment does not have.
    fn sealed(&self, segment: &SegmentInfo) -> Option<SideFile>;

    /// Segments of another process's epoch became readable to their end (it ended), or changed.
    fn settled(&self, epoch: u64);

    /// The segment is gone.
    fn trimmed(&self, segment: SegmentId);
}
