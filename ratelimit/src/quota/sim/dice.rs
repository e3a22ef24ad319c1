//! Any numbers, by a seed.

/// A generator whose numbers follow from its seed alone (`SplitMix64`).
#[derive(Debug, Clone)]
pub struct Dice(pub u64);

impl Dice {
    #[expect(clippy::should_implement_trait, reason = "it never ends, and is no iterator")]
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// 0 and up, below the bound; 0 for a bound of 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        if bound == 0 { 0 } else { self.next() % bound }
    }

    pub fn permille(&mut self, permille: u64) -> bool {
        self.below(1_000) < permille
    }

    /// 0 and up, below 1.
    pub fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Exponentially distributed with this mean, bounded by ten times of it.
    pub fn exponential(&mut self, mean: f64) -> f64 {
        let unit = self.unit();
        (-(1.0 - unit).ln() * mean).min(mean * 10.0)
    }
}
