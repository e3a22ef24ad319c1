//! How long to wait before the next try: a function of what was tried, so that a restart changes nothing about it.

use crate::automation::RetryPolicy;
use crate::ids::{RunId, StepId};

use super::state::StepState;

/// A read-back is made so long after the doubt at the earliest, in milliseconds: what was sent may still be worked on, and
/// "it has not happened" would then mean "not yet".
pub const READ_BACK_AFTER_MS: u64 = 2_000;

/// Read-backs that fail for the time being, before somebody is asked instead.
pub const READ_BACKS_MAX: u32 = 8;

/// First and longest wait for what is ours and is not there, in milliseconds.
const UNAVAILABLE_MS: (u64, u64) = (1_000, 60_000);

/// Before the try behind `tries` that failed: any part of the policy's backoff, which doubles (full jitter). Drawn by what the
/// try is one of, which is as good as by lot, and is the same for every worker.
pub fn wait_ms(run: RunId, step: &StepId, state: &StepState, policy: RetryPolicy, tries: u32) -> u64 {
    let first = u64::try_from(policy.backoff.as_millis()).unwrap_or(u64::MAX);
    let longest = u64::try_from(policy.backoff_max.as_millis()).unwrap_or(u64::MAX);
    draw(run, step, state, doubled(first, longest, tries))
}

/// Before it is looked again whether egress, or another part of ours, is there: at least half of what doubles.
pub fn unavailable_ms(run: RunId, step: &StepId, state: &StepState) -> u64 {
    let most = doubled(UNAVAILABLE_MS.0, UNAVAILABLE_MS.1, state.deferrals.saturating_add(1));
    most / 2 + draw(run, step, state, most / 2)
}

fn doubled(first: u64, longest: u64, tries: u32) -> u64 {
    let doublings = tries.saturating_sub(1).min(32);
    first.saturating_mul(1 << doublings).min(longest)
}

/// 0 to `most`.
fn draw(run: RunId, step: &StepId, state: &StepState, most: u64) -> u64 {
    let mut hasher = blake3::Hasher::new_derive_key("tidegate 2026 backoff of a step");
    hasher.update(run.as_bytes());
    hasher.update(&state.logical.get().to_be_bytes());
    hasher.update(&state.physical.to_be_bytes());
    hasher.update(step.as_str().as_bytes());
    let mut bytes = [0; 8];
    hasher.finalize_xof().fill(&mut bytes);
    // The modulus of 64 bits by at most a day of milliseconds leans by less than one in 10^10.
    u64::from_be_bytes(bytes).checked_rem(most.saturating_add(1)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn it_doubles_with_full_jitter_up_to_its_bound_and_is_the_same_every_time() {
        let policy =
            RetryPolicy { attempts_max: 9, backoff: Duration::from_millis(100), backoff_max: Duration::from_secs(1) };
        let step = StepId::parse("charge").unwrap();
        let mut sums = [0; 6];
        for run in 0..200_u8 {
            let run = RunId::from_bytes([run; 16]);
            for (tries, most) in
                [(1, 100), (2, 200), (3, 400), (4, 800), (5, 1_000), (60, 1_000)].into_iter().enumerate()
            {
                let state = StepState { physical: most.0, ..StepState::default() };
                let wait = wait_ms(run, &step, &state, policy, most.0);
                assert!(wait <= most.1, "{wait} of {}", most.1);
                assert_eq!(wait, wait_ms(run, &step, &state, policy, most.0));
                sums[tries] += wait;
            }
        }
        for (sum, mean) in sums.into_iter().zip([50, 100, 200, 400, 500, 500]) {
            assert!((mean * 170..mean * 230).contains(&sum), "mean {} and not about {mean}", sum / 200);
        }
    }

    #[test]
    fn what_is_ours_is_looked_for_after_a_second_and_once_a_minute() {
        let (run, step) = (RunId::from_bytes([1; 16]), StepId::parse("a").unwrap());
        let at = |deferrals| unavailable_ms(run, &step, &StepState { deferrals, ..StepState::default() });
        assert!((500..=1_000).contains(&at(0)));
        assert!((30_000..=60_000).contains(&at(40)));
    }
}
