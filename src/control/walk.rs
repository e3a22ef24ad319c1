//! Reading past what cannot be read, and saying so: for people and for copies. A consumer reads through the library, which
//! stops at damage.

use eventlog::position::Lane;
use eventlog::{EventReader, ReadError, StoredEvent};

use super::wire::Aside;

/// Places that are named in one answer: as many as somebody looks into. The others are counted.
const NAMED_MAX: usize = 20;

/// A walk over events.
pub(super) struct Walk {
    reader: Box<dyn EventReader>,
    skip_damage: bool,
}

/// What comes next.
pub(super) enum Step {
    Event(Box<StoredEvent>),
    /// Something was passed over.
    Passed(Passed),
    /// Nothing more is durable for the moment.
    End,
}

/// What was passed over.
pub(super) enum Passed {
    Damage {
        text: String,
        lane: Lane,
    },
    /// Retention was faster than the walk. What it took is beyond what the log promises.
    Trimmed {
        text: String,
    },
}

impl Walk {
    pub(super) fn new(reader: Box<dyn EventReader>, skip_damage: bool) -> Self {
        Self { reader, skip_damage }
    }

    /// The next event, or what is passed over in front of it. An error says how to go on, where one can.
    pub(super) fn step(&mut self) -> Result<Step, String> {
        let fault = match self.reader.next() {
            Ok(Some(event)) => return Ok(Step::Event(Box::new(event))),
            Ok(None) => return Ok(Step::End),
            Err(fault) => fault,
        };
        let text = fault.to_string();
        let lane = match fault {
            ReadError::Trimmed { .. } if self.reader.skip_trimmed() => {
                return Ok(Step::Passed(Passed::Trimmed { text }));
            }
            ReadError::Damaged { lane, .. } => lane,
            ReadError::NotAnEvent { position, .. } => position.lane,
            ReadError::ScopeMismatch { .. } => return Err(moved(&text)),
            ReadError::Trimmed { .. }
            | ReadError::IndexMismatch { .. }
            | ReadError::NoSuchPlace { .. }
            | ReadError::Unreadable { .. } => return Err(text),
        };
        if !self.skip_damage {
            return Err(unskipped(&text));
        }
        if self.reader.skip_damage() { Ok(Step::Passed(Passed::Damage { text, lane })) } else { Err(text) }
    }
}

/// What an answer ends with at damage that nobody wanted passed over.
pub(super) fn unskipped(fault: &str) -> String {
    format!("{fault}; --skip-damage goes on behind it")
}

/// What an answer ends with at a record of another tenant: most often the endpoint was given to another file.
fn moved(fault: &str) -> String {
    format!(
        "{fault}; if its endpoint was moved between tenants, --since or --until the move reads one side of it, and \
         --all-tenants --endpoint reads both"
    )
}

/// Remarks on what was passed over, in bounds.
#[derive(Debug, Default)]
pub(super) struct Remarks {
    named: usize,
    more: u64,
    missing: bool,
}

impl Remarks {
    /// The remark to make, if this one is still named.
    pub(super) fn on(&mut self, text: &str, missing: bool) -> Option<Aside> {
        if self.named == NAMED_MAX {
            self.more += 1;
            self.missing |= missing;
            return None;
        }
        self.named += 1;
        Some(Aside { text: format!("passed over: {text}"), missing })
    }

    pub(super) fn on_passed(&mut self, passed: &Passed) -> Option<Aside> {
        match passed {
            Passed::Damage { text, .. } => self.on(text, true),
            Passed::Trimmed { text } => self.on(&format!("retention was faster than this read: {text}"), false),
        }
    }

    /// How many were not named, if there are some.
    pub(super) fn rest(&mut self) -> Option<Aside> {
        let (more, missing) = (std::mem::take(&mut self.more), std::mem::take(&mut self.missing));
        let text = format!("passed over: {more} more places; `tidegate log verify` names all damage");
        (more > 0).then_some(Aside { text, missing })
    }
}

/// Damage that may hide one of the newest events. What it hides lies in front of the next event of its lane: when that
/// one is no longer among the newest, it hides none of them.
#[derive(Debug)]
pub(super) struct Holes {
    /// The newest so many.
    count: u64,
    events: u64,
    open: Vec<Hole>,
}

#[derive(Debug)]
struct Hole {
    text: String,
    lane: Lane,
    /// Which event was the first one behind it.
    behind: Option<u64>,
}

impl Holes {
    pub(super) fn new(count: u64) -> Self {
        Self { count, events: 0, open: Vec::new() }
    }

    /// Notes one; says which one is given up for it, where there are more than are named.
    pub(super) fn add(&mut self, text: String, lane: Lane) -> Option<String> {
        let given_up = (self.open.len() == NAMED_MAX).then(|| self.open.remove(0).text);
        self.open.push(Hole { text, lane, behind: None });
        given_up
    }

    /// Takes note of an event; gives out those that hide nothing any more.
    pub(super) fn see(&mut self, lane: &Lane) -> Vec<String> {
        self.events += 1;
        for hole in self.open.iter_mut().filter(|hole| hole.behind.is_none() && hole.lane == *lane) {
            hole.behind = Some(self.events);
        }
        // The newest ones are those behind this many.
        let old = self.events.saturating_sub(self.count);
        let is_past =
            |hole: &mut Hole| self.events >= self.count && hole.behind.is_some_and(|behind| behind <= old + 1);
        self.open.extract_if(.., is_past).map(|hole| hole.text).collect()
    }

    /// Those that may hide something.
    pub(super) fn into_open(self) -> impl Iterator<Item = String> {
        self.open.into_iter().map(|hole| hole.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lane(shard: u16) -> Lane {
        Lane { class: "default".into(), generation: 1, shard }
    }

    /// Events of these lanes, after a hole in lane 1: how many until it hides none of the newest `count`?
    fn past_after(count: u64, lanes: &[u16]) -> Option<usize> {
        let mut holes = Holes::new(count);
        assert_eq!(holes.add("hole".to_owned(), lane(1)), None);
        let past = lanes.iter().position(|shard| !holes.see(&lane(*shard)).is_empty());
        assert_eq!(holes.into_open().count(), usize::from(past.is_none()));
        past.map(|at| at + 1)
    }

    #[test]
    fn a_hole_hides_nothing_once_enough_came_behind_it_in_its_own_lane() {
        assert_eq!(past_after(3, &[1, 1]), None);
        assert_eq!(past_after(3, &[1, 1, 1]), Some(3));
        assert_eq!(past_after(3, &[2, 2, 2, 2]), None, "what it hides may be younger than all of these");
        assert_eq!(past_after(3, &[2, 2, 1, 2]), None);
        assert_eq!(past_after(3, &[2, 2, 1, 2, 2]), Some(5));
    }

    #[test]
    fn a_log_full_of_holes_is_told_in_bounds() {
        let mut holes = Holes::new(5);
        let mut remarks = Remarks::default();
        let given_up: Vec<_> = (0..100).filter_map(|n| holes.add(format!("hole {n}"), lane(1))).collect();
        assert_eq!((given_up.len(), given_up[0].as_str()), (80, "hole 0"));
        let said = given_up.into_iter().chain(holes.into_open()).filter_map(|text| remarks.on(&text, true)).count();
        assert_eq!(said, NAMED_MAX);
        let rest = remarks.rest().unwrap();
        assert!(rest.missing && rest.text.contains("80 more"), "{rest:?}");
        assert_eq!(remarks.rest(), None);
    }
}
