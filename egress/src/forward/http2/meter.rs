//! Counts what a destination says that gets no work done, before the codec sees it.
//!
//! The codec bounds what frames make it hold, and not how many there may be: PING and SETTINGS are answered, interim
//! heads, empty DATA and changes of windows wake somebody, for as long as somebody sends them. So a connection has an
//! **allowance**: a burst, some more with time, and more for what is sent on it, since who is sent a request has an
//! answer to it. Every frame takes from it but DATA with something in it, which flow control bounds. It is counted
//! while nobody is on the connection, too.
//!
//! The listener has one of its own for its callers (RFC 9113, 10.5; CVE-2019-9512 and its kin).

use std::time::Duration;

use tokio::time::Instant;

/// A frame's head (RFC 9113, 4.1).
const HEAD_BYTES: usize = 9;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const END_STREAM: u8 = 1;
const PADDED: u8 = 8;

/// At once: a destination that says ten things about each of 64 calls and some more beside.
const BURST: u32 = 1_000;
/// And so many more each second. A thousand idle connections may cost as much as one that is at work.
const EACH_SECOND: u32 = 10;
/// SETTINGS may make us walk through all streams.
const SETTINGS_COST: u32 = 4;
/// For a request: its answer's head in parts, interim heads, trailers, a reset, a window or two.
pub(super) const REQUEST_EARNS: u64 = 8;
/// For each KiB of a request's body, and each piece that its caller sent: the windows of its stream and of the connection.
pub(super) const PIECE_EARNS: u64 = 2;

#[derive(Debug)]
pub(super) struct Meter {
    head: [u8; HEAD_BYTES],
    /// Of that, what has come.
    filled: usize,
    /// Of the frame's payload, what has not come yet.
    payload: usize,
    /// Of DATA with padding, whose first byte says how much of it there is.
    is_padded: bool,
    left: u32,
    refilled: Instant,
    is_flooded: bool,
}

impl Meter {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            head: [0; HEAD_BYTES],
            filled: 0,
            payload: 0,
            is_padded: false,
            left: BURST,
            refilled: now,
            is_flooded: false,
        }
    }

    /// Is the allowance used up?
    pub(super) fn is_flooded(&self) -> bool {
        self.is_flooded
    }

    /// These bytes have come, and since the last ones so much was earned. How many frames of answers began in them.
    pub(super) fn feed(&mut self, mut bytes: &[u8], earned: u64, now: Instant) -> u64 {
        self.refill(now);
        self.earn(earned);
        let mut answers = 0;
        while let [first, ..] = bytes {
            if self.payload > 0 {
                if std::mem::take(&mut self.is_padded) && self.payload == 1 + usize::from(*first) {
                    self.spend(1);
                }
                let taken = self.payload.min(bytes.len());
                self.payload -= taken;
                bytes = &bytes[taken..];
                continue;
            }
            let taken = (HEAD_BYTES - self.filled).min(bytes.len());
            self.head[self.filled..self.filled + taken].copy_from_slice(&bytes[..taken]);
            self.filled += taken;
            bytes = &bytes[taken..];
            if self.filled == HEAD_BYTES {
                self.filled = 0;
                answers += u64::from(self.begin());
            }
        }
        answers
    }

    /// A frame's head is there. Whether it is an answer's.
    fn begin(&mut self) -> bool {
        let [high, middle, low, kind, flags, ..] = self.head;
        self.payload = usize::from(high) << 16 | usize::from(middle) << 8 | usize::from(low);
        let is_last = flags & END_STREAM != 0;
        self.is_padded = kind == DATA && flags & PADDED != 0 && !is_last;
        self.spend(match kind {
            DATA if self.payload > 0 || is_last => 0,
            SETTINGS => SETTINGS_COST,
            _ => 1,
        });
        matches!(kind, DATA | HEADERS)
    }

    fn spend(&mut self, cost: u32) {
        match self.left.checked_sub(cost) {
            Some(left) => self.left = left,
            None => self.is_flooded = true,
        }
    }

    fn earn(&mut self, frames: u64) {
        let frames = u32::try_from(frames).unwrap_or(u32::MAX);
        self.left = self.left.saturating_add(frames).min(BURST);
    }

    fn refill(&mut self, now: Instant) {
        let passed = now.saturating_duration_since(self.refilled);
        let each = Duration::from_secs(1) / EACH_SECOND;
        let earned = u32::try_from(passed.as_nanos() / each.as_nanos()).unwrap_or(u32::MAX);
        if earned > 0 {
            self.refilled += each.saturating_mul(earned);
            self.earn(earned.into());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PING: u8 = 6;

    fn frame(kind: u8, flags: u8, payload: &[u8]) -> Vec<u8> {
        let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
        [&[length[1], length[2], length[3], kind, flags, 0, 0, 0, 1], payload].concat()
    }

    #[test]
    fn frames_are_counted_however_they_are_cut() {
        let now = Instant::now();
        let all = [
            frame(SETTINGS, 0, &[7; 18]),
            frame(PING, 0, &[7; 8]),
            frame(HEADERS, 4, &[7; 300]),
            frame(DATA, 0, &vec![7; 70_000]),
            frame(DATA, 0, &[]),
            frame(DATA, END_STREAM, &[]),
            // Padding and one byte; nothing but padding, twice; and that at the end.
            frame(DATA, PADDED, &[2, 7, 0, 0]),
            frame(DATA, PADDED, &[2, 0, 0]),
            frame(DATA, PADDED, &[0]),
            frame(DATA, PADDED | END_STREAM, &[0]),
            frame(0xee, 0, &[7; 3]),
        ]
        .concat();
        for step in [1, 7, 9, 24, 100, all.len()] {
            let mut meter = Meter::new(now);
            let answers: u64 = all.chunks(step).map(|part| meter.feed(part, 0, now)).sum();
            assert_eq!((meter.left, answers), (BURST - SETTINGS_COST - 6, 8), "{step}");
        }
    }

    #[test]
    fn an_allowance_comes_back_with_time_and_with_what_is_asked() {
        let now = Instant::now();
        let ping = frame(PING, 0, &[7; 8]);
        let mut meter = Meter::new(now);
        for _ in 0..BURST {
            meter.feed(&ping, 0, now);
        }
        assert!(!meter.is_flooded() && meter.left == 0);
        let later = now + Duration::from_secs(1);
        for _ in 0..EACH_SECOND {
            meter.feed(&ping, 0, later);
        }
        meter.feed(&ping, 1, later);
        assert!(!meter.is_flooded());
        meter.feed(&ping, 0, later);
        assert!(meter.is_flooded());
        let mut idle = Meter::new(now);
        idle.feed(&ping, u64::MAX, now + Duration::from_hours(100_000));
        assert_eq!(idle.left, BURST - 1, "nobody saves up");
    }
}
