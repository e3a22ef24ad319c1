//! When parked runs go on: a heap whose members know their places, so that any one of them can be taken out.
//!
//! A member is its entry's number, 4 bytes; its time and its place in the heap are in the entry.

use super::slab::{NONE, Slab};

/// Adding, moving and taking out cost O(log n).
#[derive(Debug, Default)]
pub(super) struct Timers(Vec<u32>);

impl Timers {
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// When the first of them is due, in milliseconds since the Unix epoch.
    pub(super) fn first_unix_ms(&self, slab: &Slab) -> Option<u64> {
        self.0.first().map(|at| slab.get(*at).at)
    }

    pub(super) fn push(&mut self, slab: &mut Slab, at: u32) {
        let place = self.0.len();
        self.0.push(at);
        slab.get_mut(at).prev = number(place);
        self.rise(slab, place);
    }

    /// Takes the first of them, if it is due.
    pub(super) fn pop_due(&mut self, slab: &mut Slab, now_unix_ms: u64) -> Option<u32> {
        let first = *self.0.first()?;
        (slab.get(first).at <= now_unix_ms).then(|| {
            self.remove(slab, first);
            first
        })
    }

    pub(super) fn remove(&mut self, slab: &mut Slab, at: u32) {
        let place = slab.get(at).prev as usize;
        debug_assert_eq!(self.0[place], at, "an entry knows its place");
        self.0.swap_remove(place);
        slab.get_mut(at).prev = NONE;
        if let Some(moved) = self.0.get(place) {
            slab.get_mut(*moved).prev = number(place);
            self.rise(slab, place);
            self.sink(slab, place);
        }
        if self.0.len() * 4 < self.0.capacity() {
            self.0.shrink_to(self.0.len() * 2);
        }
    }

    /// Its time has become earlier.
    pub(super) fn earlier(&mut self, slab: &mut Slab, at: u32) {
        self.rise(slab, slab.get(at).prev as usize);
    }

    pub(super) fn bytes(&self) -> usize {
        self.0.capacity() * size_of::<u32>()
    }

    fn rise(&mut self, slab: &mut Slab, mut place: usize) {
        while place > 0 {
            let above = (place - 1) / 2;
            if slab.get(self.0[above]).at <= slab.get(self.0[place]).at {
                return;
            }
            self.swap(slab, above, place);
            place = above;
        }
    }

    fn sink(&mut self, slab: &mut Slab, mut place: usize) {
        loop {
            let below = 2 * place + 1;
            let nearer = [below, below + 1].into_iter().filter(|below| *below < self.0.len());
            let Some(first) = nearer.min_by_key(|below| slab.get(self.0[*below]).at) else { return };
            if slab.get(self.0[place]).at <= slab.get(self.0[first]).at {
                return;
            }
            self.swap(slab, first, place);
            place = first;
        }
    }

    fn swap(&mut self, slab: &mut Slab, one: usize, other: usize) {
        self.0.swap(one, other);
        for place in [one, other] {
            slab.get_mut(self.0[place]).prev = number(place);
        }
    }
}

fn number(place: usize) -> u32 {
    u32::try_from(place).expect("runs are bounded far below 2^32")
}
