//! What is drawn.

use std::sync::Mutex;

use super::super::testing::lock;

/// A list of bytes that is used up from the front. Behind its end all is zero.
#[derive(Debug)]
pub(super) struct Choices(Mutex<(Vec<u8>, usize)>);

impl Choices {
    pub(super) fn new(bytes: Vec<u8>) -> Self {
        Self(Mutex::new((bytes, 0)))
    }

    pub(super) fn byte(&self) -> u8 {
        let mut drawn = lock(&self.0);
        let byte = drawn.0.get(drawn.1).copied().unwrap_or(0);
        drawn.1 += 1;
        byte
    }

    /// One of so many, 0 more often the larger `calm` is: out of 256, so many more go to it.
    pub(super) fn one_of(&self, count: usize, calm: u8) -> usize {
        let byte = usize::from(self.byte());
        let calm = usize::from(calm);
        if byte <= calm || count < 2 { 0 } else { 1 + (byte - calm - 1) * (count - 1) / (255 - calm) }
    }

    /// A time from a milliseconds to minutes, drawn by its order of magnitude; 0 if nothing is drawn.
    pub(super) fn millis(&self) -> u64 {
        const TIMES: [u64; 10] = [0, 1, 10, 100, 700, 2_000, 6_000, 16_000, 35_000, 90_000];
        TIMES[self.one_of(TIMES.len(), 20)]
    }
}
