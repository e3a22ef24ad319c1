//! Walking all records: the history, and then what of the journal is not in it. Who keeps up has them from memory.

use eventlog::segment::{self, Cursor, Journal, Position, ReadError as SegmentError, SegmentInfo};

use super::Core;
use super::catch_up::CatchUpError;
use super::index::Tier;
use super::pack;
use crate::ledger::record::Record;
use crate::ledger::store::{ReadError, Tail, TailPosition};

/// Most bytes of one answer, but for one commit that is larger: whoever asks for a million gets them in parts.
const BYTES_MAX: usize = 8 << 20;

/// A place between two records of either journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Spot {
    tier: Tier,
    position: Position,
    /// In the history: where its last record had been in the journal, which goes on behind that.
    source: Option<Position>,
    /// Records of what is there that were given out.
    skip: u32,
}

const SPOT_BYTES: usize = 1 + 16 + 16 + 4;

impl Spot {
    const START: Self = Self { tier: Tier::History, position: Position::START, source: None, skip: 0 };

    fn encode(self) -> TailPosition {
        let mut bytes = Vec::with_capacity(SPOT_BYTES);
        bytes.push(match self.tier {
            Tier::History => 0,
            Tier::Journal => 1,
        });
        bytes.extend_from_slice(&self.position.to_bytes());
        bytes.extend_from_slice(&self.source.unwrap_or(Position::START).to_bytes());
        bytes.extend_from_slice(&self.skip.to_be_bytes());
        TailPosition(bytes.into())
    }

    fn decode(position: &TailPosition) -> Option<Self> {
        if *position == TailPosition::start() {
            return Some(Self::START);
        }
        let bytes: &[u8; SPOT_BYTES] = (*position.0).try_into().ok()?;
        let at = |from: usize| {
            let mut position = [0; 16];
            position.copy_from_slice(&bytes[from..from + 16]);
            Position::from_bytes(position)
        };
        let tier = match bytes[0] {
            0 => Tier::History,
            1 => Tier::Journal,
            _ => return None,
        };
        let source = Some(at(17)).filter(|source| *source != Position::START);
        Some(Self {
            tier,
            position: at(1),
            source,
            skip: u32::from_be_bytes([bytes[33], bytes[34], bytes[35], bytes[36]]),
        })
    }
}

pub(super) fn tail(core: &Core, from: &TailPosition, max: usize) -> Result<Tail, ReadError> {
    let no_place = || ReadError::Unavailable("it is no place of this ledger".into());
    let spot = Spot::decode(from).ok_or_else(no_place)?;
    let mut walk = Walk { records: Vec::new(), bytes: 0, max, spot };
    if spot.tier == Tier::History {
        walk.history(core)?;
    } else if !walk.recent(core)? {
        walk.go(&mut at(&core.journal, spot.position)?)?;
    }
    Ok(Tail { records: walk.records, next: walk.spot.encode() })
}

#[derive(Debug)]
struct Walk {
    records: Vec<Record>,
    bytes: usize,
    max: usize,
    spot: Spot,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Went {
    ToTheEnd,
    FarEnough,
}

impl Walk {
    fn is_full(&self) -> bool {
        self.records.len() >= self.max || self.bytes >= BYTES_MAX
    }

    /// Walks what is in memory of the journal. False: what comes next is not.
    fn recent(&mut self, core: &Core) -> Result<bool, ReadError> {
        // What is told to be durable a moment before readers may go there is for the next walk: it may have to read.
        let end = core.journal.durable();
        let Some(found) = core.recent.between(self.spot.position, end, self.max, BYTES_MAX) else { return Ok(false) };
        for record in &found {
            self.take(record)?;
            if self.is_full() {
                break;
            }
        }
        Ok(true)
    }

    /// Walks the history, and behind its end the journal.
    fn history(&mut self, core: &Core) -> Result<(), ReadError> {
        let mut cursor = at(&core.history, self.spot.position)?;
        while self.go(&mut cursor)? == Went::ToTheEnd {
            let Some(mut behind) = self.behind_history(core)? else { return Ok(()) };
            // Whatever is moved is in the history before it is gone from the journal: so if nothing came to the history
            // since we have a place in the journal, that place is the next one.
            let before = self.spot.source;
            if self.go(&mut cursor)? == Went::ToTheEnd && self.spot.source == before {
                self.spot = Spot { tier: Tier::Journal, position: behind.position(), source: None, skip: 0 };
                self.go(&mut behind)?;
                return Ok(());
            }
        }
        Ok(())
    }

    /// Where the journal goes on behind what was moved last; none if it has no segment, on a disk that was full when it was
    /// opened.
    fn behind_history(&self, core: &Core) -> Result<Option<Cursor>, ReadError> {
        if let Some(source) = self.spot.source {
            match core.journal.read(source.after()) {
                Ok(cursor) => return Ok(Some(cursor)),
                Err(SegmentError::Trimmed { .. }) => {}
                Err(error) => return Err(told(&error)),
            }
        }
        loop {
            let Some(oldest) = core.journal.segments().first().map(SegmentInfo::first) else { return Ok(None) };
            // A place, and not the beginning, wherever that may be by the time that it is read.
            match core.journal.read(oldest) {
                Ok(cursor) => return Ok(Some(cursor)),
                Err(SegmentError::Trimmed { .. }) => {}
                Err(error) => return Err(told(&error)),
            }
        }
    }

    /// Takes what the cursor gives, until there is no more or it is enough.
    fn go(&mut self, cursor: &mut Cursor) -> Result<Went, ReadError> {
        while !self.is_full() {
            match cursor.next_record() {
                Ok(Some(record)) => self.take(&record)?,
                Ok(None) => {
                    self.spot.position = cursor.position();
                    return Ok(Went::ToTheEnd);
                }
                // What was read before it is given out first.
                Err(_) if !self.records.is_empty() => break,
                Err(error) => return Err(told(&error)),
            }
        }
        Ok(Went::FarEnough)
    }

    fn take(&mut self, record: &segment::Record) -> Result<(), ReadError> {
        let damaged = |error: CatchUpError| ReadError::Damaged(error.to_string().into());
        let skip = self.spot.skip;
        let mut seen: u32 = 0;
        for commit in pack::commits(record) {
            let commit = commit.map_err(damaged)?;
            let heading = commit.heading().map_err(damaged)?;
            let behind = seen + u32::from(heading.count);
            if behind > skip {
                let from = usize::try_from(skip.saturating_sub(seen)).unwrap_or(usize::MAX);
                let room = self.max - self.records.len();
                let records = commit.records().map_err(damaged)?;
                let left = records.len() - from;
                self.records.extend(records.into_iter().skip(from).take(room));
                if left > room {
                    self.spot.position = record.position;
                    self.spot.skip = seen.max(skip) + u32::try_from(room).unwrap_or(u32::MAX);
                    return Ok(());
                }
            }
            seen = behind;
            self.spot.source = commit.source.or(self.spot.source);
        }
        self.bytes += record.payload.len();
        (self.spot.position, self.spot.skip) = (record.position.after(), 0);
        Ok(())
    }
}

fn at(journal: &Journal, position: Position) -> Result<Cursor, ReadError> {
    journal.read(position).map_err(|error| told(&error))
}

fn told(error: &SegmentError) -> ReadError {
    match error {
        // A place that this journal never had is of a ledger that is not here any more.
        SegmentError::Trimmed { .. } | SegmentError::NoSuchPosition(_) => ReadError::Trimmed,
        SegmentError::Damaged(damage) => ReadError::Damaged(damage.to_string().into()),
        SegmentError::Io { .. } => ReadError::Unavailable(error.to_string().into()),
    }
}
