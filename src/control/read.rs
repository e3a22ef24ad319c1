//! Reading the log into lines: the same for the control socket and for a directory that is read without a node.

use std::collections::VecDeque;

use data_encoding::BASE64;
use eventlog::holding::{Held, HoldingFilter, Status};
use eventlog::{Class, EventLog, Filter, HeaderBlock, HoldingStore, ReadError, Scope, Start, StoredEvent};

use super::time::rfc3339;
use super::walk::{Holes, Passed, Remarks, Step, Walk, unskipped};
use super::wire::{Aside, DeliveryId, EventLine, Find, HeldLine, PlaceLine, Query, Text, Which, Whose};

/// Where lines go. An error means that nobody wants more of them.
pub(crate) trait Sink {
    type Stop;

    fn take(&mut self, line: EventLine) -> Result<(), Self::Stop>;

    /// A remark on the answer.
    fn aside(&mut self, aside: Aside) -> Result<(), Self::Stop>;

    /// Everything that is durable was given; more may come. Blocks until it is time to look again.
    fn caught_up(&mut self) -> Result<(), Self::Stop>;
}

/// Why a read ended early.
#[derive(Debug)]
pub(crate) enum Ended<S> {
    /// The sink wants no more.
    Stopped(S),
    /// There is more, and it cannot be read: why, in a sentence.
    Unreadable(String),
}

impl<S> From<ReadError> for Ended<S> {
    fn from(error: ReadError) -> Self {
        Self::Unreadable(error.to_string())
    }
}

/// Reads events as `query` says. Blocks on the disk.
pub(crate) fn events<S: Sink>(log: &dyn EventLog, query: &Query, sink: &mut S) -> Result<(), Ended<S::Stop>> {
    let start = match query.which {
        Which::Newest(count) => Start::Newest(count as usize),
        Which::FollowFromNow => Start::Latest,
        Which::All | Which::First(_) | Which::Follow => Start::Earliest,
    };
    let filter = Filter { endpoint: query.endpoint.clone(), from_unix_ms: query.since, until_unix_ms: query.until };
    let reader = log.reader(scope(&query.whose), start, filter)?;
    let mut walk = Walk::new(reader, query.skip_damage);
    match query.which {
        Which::All => forward(&mut walk, u64::MAX, query.whole, sink),
        Which::First(count) => forward(&mut walk, count, query.whole, sink),
        Which::Newest(count) => newest(&mut walk, count, query.whole, sink),
        Which::Follow | Which::FollowFromNow => loop {
            forward(&mut walk, u64::MAX, query.whole, sink)?;
            sink.caught_up().map_err(Ended::Stopped)?;
        },
    }
}

fn forward<S: Sink>(walk: &mut Walk, count: u64, whole: bool, sink: &mut S) -> Result<(), Ended<S::Stop>> {
    let mut remarks = Remarks::default();
    let mut given = 0;
    while given < count {
        match walk.step().map_err(Ended::Unreadable)? {
            Step::Event(event) => {
                given += 1;
                sink.take(line(&event, whole)).map_err(Ended::Stopped)?;
            }
            Step::Passed(passed) => say(remarks.on_passed(&passed), sink)?,
            Step::End => break,
        }
    }
    say(remarks.rest(), sink)
}

fn say<S: Sink>(aside: Option<Aside>, sink: &mut S) -> Result<(), Ended<S::Stop>> {
    aside.map_or(Ok(()), |aside| sink.aside(aside)).map_err(Ended::Stopped)
}

/// The log reads forward only, from some place in front of the newest: they are what is left when the end is reached.
fn newest<S: Sink>(walk: &mut Walk, count: u32, whole: bool, sink: &mut S) -> Result<(), Ended<S::Stop>> {
    let mut ring = Ring::new(count as usize, NEWEST_BYTES_MAX);
    let mut holes = Holes::new(count.into());
    let mut remarks = Remarks::default();
    loop {
        match walk.step().map_err(Ended::Unreadable)? {
            Step::Event(event) => {
                for past in holes.see(&event.position.lane) {
                    say(remarks.on(&format!("{past}; it is older than what is shown"), false), sink)?;
                }
                ring.push(line(&event, whole));
            }
            Step::Passed(Passed::Damage { text, lane }) => {
                if let Some(given_up) = holes.add(text, lane) {
                    say(remarks.on(&given_up, true), sink)?;
                }
            }
            Step::Passed(passed @ Passed::Trimmed { .. }) => say(remarks.on_passed(&passed), sink)?,
            Step::End => break,
        }
    }
    for hole in holes.into_open() {
        say(remarks.on(&hole, true), sink)?;
    }
    say(remarks.rest(), sink)?;
    ring.give(sink)
}

/// Bytes of the newest that are gathered: more is for `first`, `all` or a beginning in time, which gather nothing. Each of
/// the control socket's readers may have as many, and the accept path needs the memory.
const NEWEST_BYTES_MAX: usize = 16 << 20;

/// The last lines that came, in bounds.
struct Ring {
    lines: VecDeque<EventLine>,
    count: usize,
    bytes: usize,
    bytes_max: usize,
    /// How many came since one had to go for its bytes; `None` if none had to.
    since_cut: Option<usize>,
}

impl Ring {
    fn new(count: usize, bytes_max: usize) -> Self {
        Self { lines: VecDeque::new(), count, bytes: 0, bytes_max, since_cut: None }
    }

    fn push(&mut self, line: EventLine) {
        self.bytes += line.bytes();
        self.lines.push_back(line);
        self.since_cut = self.since_cut.map(|since| since.saturating_add(1));
        while self.lines.len() > self.count {
            self.pop();
        }
        // The newest one always stays: one line is bounded by itself.
        while self.bytes > self.bytes_max && self.lines.len() > 1 {
            self.pop();
            self.since_cut = Some(self.lines.len());
        }
    }

    fn pop(&mut self) {
        self.bytes -= self.lines.pop_front().map_or(0, |line| line.bytes());
    }

    /// Gives what is left; where that is less than was asked for, it says so.
    fn give<S: Sink>(self, sink: &mut S) -> Result<(), Ended<S::Stop>> {
        let (count, left) = (self.count, self.lines.len());
        let is_cut = self.since_cut.is_some_and(|since| since < count);
        self.lines.into_iter().try_for_each(|line| sink.take(line)).map_err(Ended::Stopped)?;
        if is_cut {
            let mib = self.bytes_max >> 20;
            return Err(Ended::Unreadable(format!(
                "the newest {count} are more than the {mib} MiB that are gathered: these are the newest {left}"
            )));
        }
        Ok(())
    }
}

/// Why there is nothing to say about held deliveries.
const HOLDING_OFF: &str = "the holding stream is switched off (holding.enabled)";

/// Reads held deliveries as `query` says. What is held is bounded, so that it can be gathered.
pub(crate) fn held<S: Sink>(store: Option<&HoldingStore>, query: &Query, sink: &mut S) -> Result<(), Ended<S::Stop>> {
    let store = store.ok_or_else(|| Ended::Unreadable(HOLDING_OFF.to_owned()))?;
    let filter = HoldingFilter {
        endpoint: query.endpoint.clone(),
        status: None,
        from_unix_ms: query.since,
        until_unix_ms: query.until,
    };
    let mut remarks = Remarks::default();
    // What there is of a delivery: nothing, where it does not read and that was passed over.
    let mut line_of = |held: Result<Held, ReadError>, sink: &mut S| match held {
        Ok(held) => Ok(Some(held_line(&held, query.whole))),
        Err(fault @ (ReadError::Damaged { .. } | ReadError::NotAnEvent { .. })) if query.skip_damage => {
            say(remarks.on(&fault.to_string(), true), sink).map(|()| None)
        }
        Err(fault @ (ReadError::Damaged { .. } | ReadError::NotAnEvent { .. })) => {
            Err(Ended::Unreadable(unskipped(&fault.to_string())))
        }
        Err(fault) => Err(fault.into()),
    };
    let all = store.iter(&scope(&query.whose), &filter);
    let count = match query.which {
        Which::All => usize::MAX,
        Which::First(count) => usize::try_from(count).unwrap_or(usize::MAX),
        Which::Newest(count) => {
            let mut ring = Ring::new(count as usize, NEWEST_BYTES_MAX);
            for held in all {
                if let Some(line) = line_of(held, sink)? {
                    ring.push(line);
                }
            }
            say(remarks.rest(), sink)?;
            return ring.give(sink);
        }
        Which::Follow | Which::FollowFromNow => {
            return Err(Ended::Unreadable("held deliveries cannot be followed".to_owned()));
        }
    };
    let mut given = 0;
    for held in all {
        if given == count {
            break;
        }
        if let Some(line) = line_of(held, sink)? {
            given += 1;
            sink.take(line).map_err(Ended::Stopped)?;
        }
    }
    say(remarks.rest(), sink)
}

/// Finds one held delivery, whole.
pub(crate) fn find_held(store: Option<&HoldingStore>, find: &Find) -> Result<Option<EventLine>, String> {
    let store = store.ok_or_else(|| HOLDING_OFF.to_owned())?;
    match store.by_id(&scope(&find.whose), find.id) {
        Ok(found) => Ok(found.map(|held| held_line(&held, true))),
        Err(ReadError::ScopeMismatch { .. }) => Ok(None),
        Err(error) => Err(error.to_string()),
    }
}

fn held_line(held: &Held, whole: bool) -> EventLine {
    let status = match held.status {
        Status::Pending => "pending",
        Status::Quarantined => "quarantined",
    };
    let reason = held.reason.to_string();
    EventLine {
        place: None,
        held: Some(HeldLine { status: status.to_owned(), reason }),
        secret: None,
        ..line(&held.delivery, whole)
    }
}

/// Finds one event, whole.
pub(crate) fn find(log: &dyn EventLog, find: &Find) -> Result<Option<EventLine>, String> {
    match log.by_id(&scope(&find.whose), find.id) {
        Ok(found) => Ok(found.map(|event| line(&event, true))),
        // Somebody else's: for whoever asks it is not there, and that there is one is nobody's business.
        Err(ReadError::ScopeMismatch { .. }) => Ok(None),
        Err(error) => Err(error.to_string()),
    }
}

fn scope(whose: &Whose) -> Scope {
    match whose {
        Whose::Tenant(tenant) => Scope::Tenant(tenant.clone()),
        Whose::AllTenants => Scope::Operator,
    }
}

/// An event in its stable form; `whole` adds headers and body.
fn line(event: &StoredEvent, whole: bool) -> EventLine {
    let class = match event.class {
        Class::Normal => "normal",
        Class::Bulk => "bulk",
    };
    EventLine {
        id: event.id,
        execution_id: event.id.execution(),
        tenant: event.tenant.clone(),
        endpoint: event.endpoint.clone(),
        received_at: rfc3339(event.received_unix_ms),
        place: Some(PlaceLine {
            node: event.node.0,
            epoch: event.epoch,
            sequence: event.sequence,
            position: event.position.to_string(),
            appended_at: rfc3339(event.appended_unix_ms),
            class: class.to_owned(),
        }),
        held: None,
        method: event.method.to_string(),
        target: Text::of(&event.target),
        peer: event.peer.to_string(),
        scheme: event.scheme.to_string(),
        secret: Some(event.secret.to_string()),
        delivery_id: event.delivery_id.as_ref().map(|id| DeliveryId { value: Text::of(&id.value), signed: id.signed }),
        signed_at: event.signed_at_unix_ms.map(rfc3339),
        public_url: event.public_url.to_string(),
        headers: whole.then(|| headers(&event.headers)),
        body_bytes: event.body.len() as u64,
        body: whole.then(|| BASE64.encode(&event.body)),
    }
}

fn headers(block: &HeaderBlock) -> Vec<(Text, Text)> {
    block.iter().map(|(name, value)| (Text::of(name), Text::of(value))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use domain::{EndpointId, EventId, NodeId, Slot, TenantId};

    impl Sink for Vec<EventLine> {
        type Stop = ();

        fn take(&mut self, line: EventLine) -> Result<(), ()> {
            self.push(line);
            Ok(())
        }

        fn aside(&mut self, aside: Aside) -> Result<(), ()> {
            panic!("nothing is wrong: {aside:?}")
        }

        fn caught_up(&mut self) -> Result<(), ()> {
            Ok(())
        }
    }

    fn event_line(nth: u64, body_bytes: usize) -> EventLine {
        let id = EventId::new(nth, Slot::of("wh_1"), NodeId(1), [0; 6]);
        EventLine {
            id,
            execution_id: id.execution(),
            tenant: TenantId::parse("acme").unwrap(),
            endpoint: EndpointId::parse("wh_1").unwrap(),
            received_at: String::new(),
            place: None,
            held: None,
            method: "POST".to_owned(),
            target: Text::of(b"/"),
            peer: String::new(),
            scheme: String::new(),
            secret: None,
            delivery_id: None,
            signed_at: None,
            public_url: String::new(),
            headers: None,
            body_bytes: 0,
            body: Some("x".repeat(body_bytes)),
        }
    }

    /// What is given of bodies of these sizes: theirs, and whether that is all that was asked for.
    fn newest_of(count: usize, sizes: &[usize]) -> (Vec<usize>, bool) {
        let mut ring = Ring::new(count, 100_000);
        for (nth, size) in (0..).zip(sizes) {
            ring.push(event_line(nth, *size));
            assert!(ring.lines.len() <= count && (ring.bytes <= 100_000 || ring.lines.len() == 1));
        }
        let mut given = Vec::new();
        let all = ring.give(&mut given).is_ok();
        (given.iter().map(|line| line.body.as_ref().unwrap().len()).collect(), all)
    }

    #[test]
    fn the_newest_are_gathered_in_bounds_of_number_and_bytes() {
        assert_eq!(newest_of(2, &[]), (vec![], true));
        assert_eq!(newest_of(2, &[1, 2, 3]), (vec![2, 3], true));
        assert_eq!(newest_of(3, &[60_000, 2, 60_000]), (vec![2, 60_000], false));
        assert_eq!(newest_of(9, &[1, 200_000]), (vec![200_000], false), "one is given whatever its size");
        assert_eq!(newest_of(2, &[60_000, 60_000, 3, 4]), (vec![3, 4], true), "what had to go was not asked for");
        assert_eq!(newest_of(3, &[60_000, 60_000, 3, 4]), (vec![60_000, 3, 4], true));
        assert_eq!(newest_of(4, &[60_000, 60_000, 3, 4]), (vec![60_000, 3, 4], false));
    }
}
