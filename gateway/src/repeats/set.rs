//! One set of places, and who has to go when it is full.

use domain::EventId;
use tokio::sync::watch;

use super::WAYS;

/// An id as the table knows it: a keyed hash, and whose it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Id {
    pub(super) endpoint: u64,
    pub(super) hash: u128,
}

#[derive(Debug)]
pub(super) struct Entry {
    pub(super) id: Id,
    pub(super) at_unix_ms: u64,
    pub(super) state: State,
}

#[derive(Debug)]
pub(super) enum State {
    /// It is being committed; whoever waits for it is told by the sender's end.
    Pending(Option<watch::Sender<()>>),
    Event(EventId),
}

/// At most [`WAYS`] entries.
#[derive(Debug, Default)]
pub(super) struct Set(Vec<Entry>);

impl Set {
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// The entry of an id. One that became an event before `since_unix_ms` goes.
    pub(super) fn get(&mut self, id: Id, since_unix_ms: u64) -> Option<&mut Entry> {
        let at = self.0.iter().position(|entry| entry.id == id)?;
        let entry = &self.0[at];
        if matches!(entry.state, State::Event(_)) && entry.at_unix_ms < since_unix_ms {
            self.0.swap_remove(at);
            return None;
        }
        self.0.get_mut(at)
    }

    /// Places an entry whose id has none; says whether there was room.
    pub(super) fn put(&mut self, entry: Entry) -> bool {
        if self.0.len() < WAYS {
            self.0.push(entry);
            return true;
        }
        let Some(at) = self.oldest_of_most() else { return false };
        self.0[at] = entry;
        true
    }

    /// The oldest event of the endpoint that has most places here. What is being committed stays.
    fn oldest_of_most(&self) -> Option<usize> {
        let places = |endpoint: u64| self.0.iter().filter(|entry| entry.id.endpoint == endpoint).count();
        let settled = self.0.iter().enumerate().filter(|(_, entry)| matches!(entry.state, State::Event(_)));
        let first_to_go =
            settled.max_by_key(|(_, entry)| (places(entry.id.endpoint), std::cmp::Reverse(entry.at_unix_ms)));
        first_to_go.map(|(at, _)| at)
    }

    pub(super) fn settle(&mut self, id: Id, event: EventId) {
        if let Some(entry) = self.0.iter_mut().find(|entry| entry.id == id) {
            entry.state = State::Event(event);
        }
    }

    pub(super) fn give_up(&mut self, id: Option<Id>) {
        self.0.retain(|entry| Some(entry.id) != id || matches!(entry.state, State::Event(_)));
    }
}
