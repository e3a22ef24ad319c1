//! Random numbers that a seed brings back.

/// `SplitMix64`: enough to choose moments and bytes.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    pub fn seeded(seed: u64) -> Self {
        Self(seed)
    }

    /// The seed of `TIDEGATE_SEED`, else one from the clock; printed, so that a failure can be run again.
    pub fn announced(scenario: &str) -> Self {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970");
        let fresh = u64::try_from(now.as_nanos() & u128::from(u64::MAX)).expect("masked");
        let seed = std::env::var("TIDEGATE_SEED").ok().map_or(fresh, |text| text.parse().expect("a number"));
        println!("{scenario}: TIDEGATE_SEED={seed}");
        Self(seed)
    }

    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number in `low..high`.
    pub fn within(&mut self, low: u64, high: u64) -> u64 {
        low + self.draw() % (high - low)
    }

    /// A place in something that is `length` long.
    pub fn below(&mut self, length: usize) -> usize {
        let high = u64::try_from(length).expect("64 bits hold a length");
        usize::try_from(self.within(0, high)).expect("it is less than a length")
    }

    pub fn bytes(&mut self, length: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(length + 8);
        while bytes.len() < length {
            bytes.extend_from_slice(&self.draw().to_le_bytes());
        }
        bytes.truncate(length);
        bytes
    }
}
