//! Frames of HTTP/2 as they pass (RFC 9113, 4.1), and an allowance for those that get no work done.
//!
//! The codec bounds what frames make it hold, and not how many there may be: floods of PING, SETTINGS, PRIORITY,
//! `WINDOW_UPDATE`, empty DATA and CONTINUATION (CVE-2019-9512 and its kin), and streams that are opened and reset at once
//! (CVE-2023-44487), keep a processor busy for as long as somebody sends them. So a connection has an [`Allowance`]: a burst,
//! some more with time, and more for what is sent on it, since who is sent something has something to say to it. Every
//! frame takes from it but DATA with something in it.
//!
//! That is bounded by flow control only for as long as there is somebody to take it: what comes on a stream that is over is
//! dropped by the codec, which opens the connection's window again for it. So DATA has an allowance of its own, in bytes,
//! and whoever takes some gives back as much ([`weight`]): what is left of it is what nobody took. It bounds small frames
//! that wait, too, of which a window holds more than memory should.
//!
//! What counts is the same towards clients and towards destinations; how much of it there is, each says for itself.

use std::time::Duration;

use tokio::time::Instant;

/// A frame's head.
const HEAD_BYTES: usize = 9;

/// The types of frames that are told apart here (RFC 9113, 6).
pub const DATA: u8 = 0;
pub const HEADERS: u8 = 1;
pub const SETTINGS: u8 = 4;
pub const CONTINUATION: u8 = 9;

/// Flags of theirs.
pub const END_STREAM: u8 = 1;
pub const END_HEADERS: u8 = 4;
pub const PADDED: u8 = 8;

/// SETTINGS may make us walk through all streams.
const SETTINGS_COST: u32 = 4;

/// What a frame of DATA costs beside its bytes where it waits, and to look at: some more bytes.
const DATA_BYTES_MIN: usize = 256;

/// DATA that may lie about untaken beside what the windows hold: what was on its way to streams that were answered early,
/// a window of each.
pub const UNTAKEN_BYTES: u32 = 16 << 20;
/// And so much more each second.
pub const UNTAKEN_EACH_SECOND: u32 = 1 << 20;

/// What DATA with so many bytes takes of what may be untaken, and gives back when they are taken; the codec gives out a
/// frame at a time.
pub fn weight(bytes: usize) -> u32 {
    u32::try_from(bytes.max(DATA_BYTES_MIN)).unwrap_or(u32::MAX)
}

/// A frame's head, as far as anything depends on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Frame {
    /// Its type.
    pub kind: u8,
    /// Its flags, whose meaning depends on its type.
    pub flags: u8,
    /// Bytes of its payload.
    pub length: usize,
}

impl Frame {
    /// Whether this flag is set.
    pub fn has(self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// What it takes from an allowance, by its head.
    fn cost(self) -> u32 {
        match self.kind {
            DATA if self.length > 0 || self.has(END_STREAM) => 0,
            SETTINGS => SETTINGS_COST,
            _ => 1,
        }
    }
}

/// What is seen in bytes that pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seen {
    /// A frame's head has come, for so much of the allowance.
    Begun(Frame, u32),
    /// So many bytes of data are in it, without padding.
    Data(usize),
    /// There is nothing in it but padding, which takes from the allowance, too.
    OnlyPadding(u32),
    /// Its last byte has come.
    Ended(Frame),
}

/// Finds frames in bytes, however they are cut. It holds one head.
#[derive(Debug)]
pub struct Frames {
    head: [u8; HEAD_BYTES],
    /// Of that, what has come.
    filled: usize,
    frame: Frame,
    /// Of its payload, what has not come yet.
    left: usize,
}

impl Default for Frames {
    fn default() -> Self {
        Self { head: [0; HEAD_BYTES], filled: 0, frame: Frame { kind: DATA, flags: 0, length: 0 }, left: 0 }
    }
}

impl Frames {
    /// These bytes have come; `see` is told what is in them, in order.
    pub fn feed(&mut self, mut bytes: &[u8], mut see: impl FnMut(Seen)) {
        while let [first, ..] = bytes {
            if self.left == 0 {
                let taken = (HEAD_BYTES - self.filled).min(bytes.len());
                self.head[self.filled..self.filled + taken].copy_from_slice(&bytes[..taken]);
                self.filled += taken;
                bytes = &bytes[taken..];
                if self.filled == HEAD_BYTES {
                    self.filled = 0;
                    self.begin(&mut see);
                }
                continue;
            }
            if self.left == self.frame.length && self.is_padded() {
                // The first byte says how much of it there is. More than there can be is for the codec to refuse.
                match self.frame.length.saturating_sub(1 + usize::from(*first)) {
                    0 if self.frame.has(END_STREAM) => {}
                    0 => see(Seen::OnlyPadding(1)),
                    bytes => see(Seen::Data(bytes)),
                }
            }
            let taken = self.left.min(bytes.len());
            self.left -= taken;
            bytes = &bytes[taken..];
            if self.left == 0 {
                see(Seen::Ended(self.frame));
            }
        }
    }

    /// A frame that has begun and not ended.
    pub fn under_way(&self) -> Option<Frame> {
        (self.left > 0).then_some(self.frame)
    }

    /// Whether a part of a head has come.
    pub fn is_in_head(&self) -> bool {
        self.filled > 0
    }

    fn begin(&mut self, see: &mut impl FnMut(Seen)) {
        let [high, middle, low, kind, flags, ..] = self.head;
        let length = usize::from(high) << 16 | usize::from(middle) << 8 | usize::from(low);
        self.frame = Frame { kind, flags, length };
        self.left = length;
        see(Seen::Begun(self.frame, self.frame.cost()));
        if kind == DATA && length > 0 && !self.is_padded() {
            see(Seen::Data(length));
        }
        if length == 0 {
            see(Seen::Ended(self.frame));
        }
    }

    fn is_padded(&self) -> bool {
        self.frame.kind == DATA && self.frame.has(PADDED)
    }
}

/// How much may come that gets no work done: frames, or bytes.
#[derive(Debug)]
pub struct Allowance {
    burst: u32,
    each_second: u32,
    left: u32,
    refilled: Instant,
    is_used_up: bool,
}

impl Allowance {
    /// `burst` at once and at most, and `each_second` more with time; neither is 0.
    pub fn new(burst: u32, each_second: u32, now: Instant) -> Self {
        Self { burst, each_second, left: burst, refilled: now, is_used_up: false }
    }

    /// Whether more was taken than there was. It stays so.
    pub fn is_used_up(&self) -> bool {
        self.is_used_up
    }

    /// What there is.
    pub fn left(&self) -> u32 {
        self.left
    }

    /// Something was sent that its reader may have to say something to, or was taken.
    pub fn earn(&mut self, more: u64) {
        let more = u32::try_from(more).unwrap_or(u32::MAX);
        self.left = self.left.saturating_add(more).min(self.burst);
    }

    /// A frame came.
    pub fn spend(&mut self, cost: u32) {
        match self.left.checked_sub(cost) {
            Some(left) => self.left = left,
            None => self.is_used_up = true,
        }
    }

    /// Time has passed.
    pub fn refill(&mut self, now: Instant) {
        let passed = now.saturating_duration_since(self.refilled);
        let each = Duration::from_secs(1) / self.each_second;
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

    fn frame(kind: u8, flags: u8, payload: &[u8]) -> Vec<u8> {
        let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
        [&[length[1], length[2], length[3], kind, flags, 0, 0, 0, 1], payload].concat()
    }

    #[test]
    fn frames_are_found_however_they_are_cut() {
        const PING: u8 = 6;
        let all = [
            frame(SETTINGS, 0, &[7; 18]),
            frame(PING, 0, &[7; 8]),
            frame(HEADERS, END_HEADERS, &[7; 300]),
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
            let mut frames = Frames::default();
            let (mut begun, mut ended, mut cost, mut data) = (Vec::new(), Vec::new(), 0, 0);
            for part in all.chunks(step) {
                frames.feed(part, |seen| match seen {
                    Seen::Begun(frame, takes) => {
                        begun.push((frame.kind, frame.length));
                        cost += takes;
                    }
                    Seen::Data(bytes) => data += bytes,
                    Seen::OnlyPadding(takes) => cost += takes,
                    Seen::Ended(frame) => ended.push((frame.kind, frame.length)),
                });
            }
            assert_eq!((begun.len(), &begun, cost), (11, &ended, SETTINGS_COST + 6), "{step}");
            assert_eq!(data, 70_001, "{step}");
            assert_eq!((frames.under_way(), frames.is_in_head()), (None, false), "{step}");
        }
    }

    #[test]
    fn an_allowance_comes_back_with_time_and_with_what_is_earned() {
        let now = Instant::now();
        let mut allowance = Allowance::new(1_000, 10, now);
        allowance.spend(1_000);
        assert!(!allowance.is_used_up() && allowance.left() == 0);
        allowance.refill(now + Duration::from_secs(1));
        assert_eq!(allowance.left(), 10);
        allowance.earn(1);
        allowance.spend(11);
        assert!(!allowance.is_used_up());
        allowance.spend(1);
        assert!(allowance.is_used_up());
        let mut idle = Allowance::new(1_000, 10, now);
        idle.spend(1);
        idle.refill(now + Duration::from_hours(100_000));
        idle.earn(u64::MAX);
        assert_eq!(idle.left(), 1_000, "nobody saves up");
    }
}
