//! Where a journal begins, for whoever wants to notice that a part of it is gone.
//!
//! A journal is trimmed from its front, and a segment that is missing there looks as one that was trimmed; so does a journal
//! that was deleted whole look as one that is new. Whoever keeps what a journal said of its beginning, in another place, can
//! tell: how far was trimmed is written down before anything goes.

use std::fmt;
use std::str::FromStr;

use super::journal::Journal;
use super::position::{Position, SegmentId};

/// Which log it is, and where its oldest record is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Beginning {
    log: [u8; 16],
    /// Of its segment; none without records.
    oldest: Option<Position>,
}

/// A text that no journal gave out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("is not where a journal begins")]
pub struct ParseBeginningError;

/// What is not there any more, and was not trimmed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gone {
    /// All of it: the journal is another one.
    Log,
    /// Its first segment, and what else was before the next one that is there.
    Segment(SegmentId),
}

impl fmt::Display for Beginning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", u128::from_be_bytes(self.log))?;
        self.oldest.map_or(Ok(()), |oldest| write!(f, " {oldest}"))
    }
}

impl FromStr for Beginning {
    type Err = ParseBeginningError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (log, oldest) = text.split_once(' ').map_or((text, None), |(log, oldest)| (log, Some(oldest)));
        let is_hex = log.len() == 32 && log.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        let log = u128::from_str_radix(log, 16).ok().filter(|_| is_hex).ok_or(ParseBeginningError)?;
        let oldest = oldest.map(str::parse).transpose().map_err(|_| ParseBeginningError)?;
        Ok(Self { log: log.to_be_bytes(), oldest })
    }
}

impl Journal {
    pub fn beginning(&self) -> Beginning {
        let oldest = self.segments().into_iter().find(|info| info.records > 0).map(|info| info.first());
        Beginning { log: self.log(), oldest }
    }

    /// What this journal has lost since it began there.
    pub fn gone_since(&self, known: &Beginning) -> Option<Gone> {
        if known.log != self.log() {
            return Some(Gone::Log);
        }
        let oldest = known.oldest.filter(|oldest| *oldest >= self.trimmed())?;
        let is_there = self.segments().iter().any(|info| info.id == oldest.segment());
        (!is_there).then(|| Gone::Segment(oldest.segment()))
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Entry, Journal, Options};
    use super::*;

    fn open(directory: &std::path::Path) -> Journal {
        let clock = domain::ManualClock::at_unix_ms(1_800_000_000_000);
        Journal::open(Options { segment_bytes: 1 << 20, ..Options::new(directory, clock) }).unwrap().0
    }

    /// One record in a segment of its own: each process writes one.
    fn written(directory: &std::path::Path) -> Beginning {
        let journal = open(directory);
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let entry = Entry {
            stream: 1,
            time_unix_ms: 1_800_000_000_000,
            kind: 1,
            payload: b"something".to_vec().into(),
            check: None,
        };
        runtime.block_on(journal.append(entry)).unwrap();
        let beginning = journal.beginning();
        journal.close();
        beginning
    }

    fn segments(directory: &std::path::Path) -> Vec<std::path::PathBuf> {
        let files = std::fs::read_dir(directory).unwrap().map(|file| file.unwrap().path());
        let mut found: Vec<_> = files.filter(|path| path.extension().is_some_and(|it| it == "seg")).collect();
        found.sort();
        found
    }

    #[test]
    fn a_segment_that_is_gone_is_told_from_one_that_was_trimmed() {
        let directory = tempfile::tempdir().unwrap();
        let at = directory.path();
        let known = written(at);
        assert_eq!(known.to_string().parse(), Ok(known));
        let later = written(at);
        assert_eq!(later, known, "it begins where it began");
        assert_eq!(open(at).gone_since(&known), None);
        let first = segments(at).remove(0);
        let bytes = std::fs::read(&first).unwrap();
        std::fs::remove_file(&first).unwrap();
        let journal = open(at);
        assert_eq!(journal.gone_since(&known), Some(Gone::Segment(known.oldest.unwrap().segment())));
        journal.close();
        drop(journal);
        std::fs::write(&first, bytes).unwrap();
        let journal = open(at);
        assert_eq!(journal.gone_since(&known), None);
        let behind = journal.segments()[0].end_position();
        assert_eq!(journal.trim_before(behind).unwrap().segments, 1);
        assert_eq!(journal.gone_since(&known), None, "it was trimmed");
        assert_ne!(journal.beginning(), known);
    }

    #[test]
    fn another_log_is_another_one() {
        let directory = tempfile::tempdir().unwrap();
        let at = directory.path().join("journal");
        std::fs::create_dir(&at).unwrap();
        let known = written(&at);
        std::fs::remove_dir_all(&at).unwrap();
        std::fs::create_dir(&at).unwrap();
        let journal = open(&at);
        assert_eq!(journal.gone_since(&known), Some(Gone::Log));
        let empty = journal.beginning();
        assert_eq!((empty.oldest, empty.to_string().parse()), (None, Ok(empty)));
        assert_eq!(journal.gone_since(&empty), None);
    }

    #[test]
    fn no_text_is_taken_for_one() {
        for text in ["", "x", "00", &"0".repeat(33), &format!("{} ", "0".repeat(32)), &format!("{} 5", "0".repeat(32))]
        {
            assert_eq!(text.parse::<Beginning>(), Err(ParseBeginningError), "{text}");
        }
    }
}
