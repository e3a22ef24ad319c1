//! Counts what a destination says that gets no work done, before the codec sees it ([`listen::frames`]). PING and SETTINGS
//! are answered, interim heads, empty DATA and changes of windows wake somebody, and DATA for a stream that is over costs
//! whatever the destination likes; it is counted while nobody is on the connection, too.

use listen::frames::{Allowance, DATA, Frames, HEADERS, Seen, UNTAKEN_BYTES, UNTAKEN_EACH_SECOND, weight};
use tokio::time::Instant;

use super::CONNECTION_WINDOW;

/// At once: a destination that says ten things about each of 64 calls and some more beside.
const BURST: u32 = 1_000;
/// And so many more each second. A thousand idle connections may cost as much as one that is at work.
const EACH_SECOND: u32 = 10;
/// For a request: its answer's head in parts, interim heads, trailers, a reset, a window or two.
pub(super) const REQUEST_EARNS: u64 = 8;
/// For each KiB of a request's body, and each piece that its caller sent: the windows of its stream and of the connection.
pub(super) const PIECE_EARNS: u64 = 2;

#[derive(Debug)]
pub(super) struct Meter {
    frames: Frames,
    allowance: Allowance,
    /// Bytes of DATA that nobody has taken.
    untaken: Allowance,
}

/// What came back since the last bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Earned {
    /// For what was sent.
    pub(super) frames: u64,
    /// For what was taken ([`weight`]), or given up.
    pub(super) bytes: u64,
}

impl Meter {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            frames: Frames::default(),
            allowance: Allowance::new(BURST, EACH_SECOND, now),
            untaken: Allowance::new(CONNECTION_WINDOW + UNTAKEN_BYTES, UNTAKEN_EACH_SECOND, now),
        }
    }

    /// Is an allowance used up?
    pub(super) fn is_flooded(&self) -> bool {
        self.allowance.is_used_up() || self.untaken.is_used_up()
    }

    /// These bytes have come. How many frames of answers began in them.
    pub(super) fn feed(&mut self, bytes: &[u8], earned: Earned, now: Instant) -> u64 {
        self.allowance.refill(now);
        self.allowance.earn(earned.frames);
        self.untaken.refill(now);
        self.untaken.earn(earned.bytes);
        let Self { frames, allowance, untaken } = self;
        let mut answers = 0;
        frames.feed(bytes, |seen| match seen {
            Seen::Begun(frame, cost) => {
                answers += u64::from(matches!(frame.kind, DATA | HEADERS));
                allowance.spend(cost);
            }
            Seen::Data(bytes) => untaken.spend(weight(bytes)),
            Seen::OnlyPadding(cost) => allowance.spend(cost),
            Seen::Ended(_) => {}
        });
        answers
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use listen::frames::END_STREAM;

    use super::*;

    const PING: u8 = 6;

    fn frame(kind: u8, flags: u8, payload: &[u8]) -> Vec<u8> {
        let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
        [&[length[1], length[2], length[3], kind, flags, 0, 0, 0, 1], payload].concat()
    }

    #[test]
    fn frames_of_answers_are_counted_however_they_are_cut() {
        let now = Instant::now();
        let all = [
            frame(PING, 0, &[7; 8]),
            frame(HEADERS, 4, &[7; 300]),
            frame(DATA, 0, &vec![7; 70_000]),
            frame(DATA, 0, &[]),
            frame(DATA, END_STREAM, &[]),
            frame(0xee, 0, &[7; 3]),
        ]
        .concat();
        for step in [1, 7, 9, 24, 100, all.len()] {
            let mut meter = Meter::new(now);
            let answers: u64 = all.chunks(step).map(|part| meter.feed(part, Earned::default(), now)).sum();
            assert_eq!((meter.allowance.left(), answers), (BURST - 4, 4), "{step}");
        }
    }

    #[test]
    fn an_allowance_comes_back_with_time_and_with_what_is_asked() {
        let now = Instant::now();
        let ping = frame(PING, 0, &[7; 8]);
        let mut meter = Meter::new(now);
        for _ in 0..BURST {
            meter.feed(&ping, Earned::default(), now);
        }
        assert!(!meter.is_flooded());
        let later = now + Duration::from_secs(1);
        for _ in 0..EACH_SECOND {
            meter.feed(&ping, Earned::default(), later);
        }
        meter.feed(&ping, Earned { frames: 1, bytes: 0 }, later);
        assert!(!meter.is_flooded());
        meter.feed(&ping, Earned::default(), later);
        assert!(meter.is_flooded());
    }
    #[test]
    fn data_that_nobody_takes_is_bounded_and_what_is_taken_is_not() {
        let now = Instant::now();
        let (data, most) = (frame(DATA, 0, &[7; 16 << 10]), (CONNECTION_WINDOW + UNTAKEN_BYTES) / (16 << 10));
        let taken = Earned { frames: 0, bytes: weight(16 << 10).into() };
        let mut meter = Meter::new(now);
        for _ in 0..3 * most {
            meter.feed(&data, taken, now);
        }
        for _ in 1..most {
            meter.feed(&data, Earned::default(), now);
        }
        assert!(!meter.is_flooded());
        meter.feed(&data, Earned::default(), now);
        assert!(meter.is_flooded());
    }
}
