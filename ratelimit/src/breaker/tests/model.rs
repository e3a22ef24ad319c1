//! A breaker against a plain model, which keeps every call of the window in a list and knows nothing of slots that
//! are reused, of entries that are dropped, or of bytes.

use super::*;

/// What the model knows of the pair.
#[derive(Debug, Default)]
struct Model {
    /// Slot and whether it was a fault, of each call heard since the first fault of the Closed period.
    heard: Vec<(u64, bool)>,
    row: u16,
    last_fault_ms: Option<u64>,
    closed_since_ms: u64,
    /// Ends of open time, and the last moment that keeps the memory alive.
    open_until_ms: Option<u64>,
    good: u8,
    /// Serial number and end of the lease of the latest probe, and whether it is out.
    probe: Option<(u32, u64, bool)>,
    level: u8,
    alive_ms: u64,
}

#[derive(Debug, Clone)]
enum Step {
    Admit,
    /// Reports the n-th ticket that is out.
    Report(usize, Outcome),
    Lose(usize),
    Wait(u64),
    Sweep,
    Restart {
        down_ms: u64,
        step_ms: i64,
    },
}

fn outcome() -> impl Strategy<Value = Outcome> {
    prop_oneof![
        5 => Just(BAD),
        2 => Just(Outcome::Failed(Fault::Timeout)),
        3 => Just(Outcome::Answered),
        1 => Just(Outcome::ClientError),
        1 => Just(Outcome::Throttled),
        1 => Just(Outcome::Parked),
        1 => Just(Outcome::Abandoned),
        // Not counted by these rules.
        1 => Just(Outcome::Failed(Fault::Dns)),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        12 => Just(Step::Admit),
        12 => (0..8_usize, outcome()).prop_map(|(nth, outcome)| Step::Report(nth, outcome)),
        1 => (0..8_usize).prop_map(Step::Lose),
        4 => (0..40_u64).prop_map(Step::Wait),
        2 => (0..900_u64).prop_map(Step::Wait),
        1 => Just(Step::Sweep),
        1 => (0..400_u64, -2_000..2_000_i64).prop_map(|(down_ms, step_ms)| Step::Restart { down_ms, step_ms }),
    ]
}

fn rules() -> Rules {
    Rules {
        counted: Faults::ALL.without(Fault::Dns),
        slot_ms: 10,
        fault_percent: 40,
        volume_min: 8,
        consecutive_faults: 5,
        open_ms: 100,
        open_max_ms: 400,
        probe_lease_ms: 150,
        probes_to_close: 2,
        memory_ms: 1_000,
    }
}

impl Model {
    fn tick(&mut self, now: u64) {
        let is_blank = self.last_fault_ms.is_none() && self.open_until_ms.is_none() && self.level == 0;
        if !is_blank && now >= self.alive_ms {
            *self = Self::default();
        }
    }

    fn admits(&mut self, now: u64, serial: u32) -> Option<bool> {
        self.tick(now);
        let Some(until) = self.open_until_ms else { return Some(false) };
        let is_out = matches!(self.probe, Some((_, end, true)) if now < end);
        if now < until || is_out {
            return None;
        }
        // A lease that is taken up again in the same moment ends a millisecond later.
        let end = (now + 150).max(self.probe.map_or(0, |(_, end, _)| end + 1));
        self.probe = Some((serial, end, true));
        self.alive_ms = self.alive_ms.max(end + 1_000);
        Some(true)
    }

    /// `opens`: for how long the real one says that it opened, which the model takes over for the jitter alone.
    fn hears(&mut self, now: u64, serial: u32, admitted: u64, is_probe: bool, weight: Weight) -> Option<bool> {
        self.tick(now);
        if is_probe {
            let Some((latest, end, true)) = self.probe.filter(|(latest, ..)| *latest == serial) else { return None };
            self.open_until_ms?;
            self.probe = Some((latest, end, false));
            return match weight {
                Weight::Nothing => None,
                Weight::Bad => Some(true),
                Weight::Good => {
                    self.good += 1;
                    (self.good >= 2).then_some(false)
                }
            };
        }
        if self.open_until_ms.is_some() || admitted < self.closed_since_ms || weight == Weight::Nothing {
            return None;
        }
        let is_known = self.last_fault_ms.is_some() || self.level > 0;
        if weight == Weight::Good {
            if is_known {
                self.row = 0;
                self.heard.push((now / 10, false));
            }
            return None;
        }
        self.row += 1;
        self.last_fault_ms = Some(now);
        self.alive_ms = self.alive_ms.max(now + 1_000);
        self.heard.push((now / 10, true));
        let window: Vec<_> = self.heard.iter().filter(|(slot, _)| slot + 10 > now / 10).collect();
        let faults = window.iter().filter(|(_, is_fault)| *is_fault).count();
        let is_share = window.len() >= 8 && faults * 100 >= window.len() * 40;
        (self.row >= 5 || is_share).then_some(true)
    }

    fn opens(&mut self, now: u64, for_ms: u64) {
        self.level += 1;
        let whole = (100_u64 << (self.level - 1).min(10)).min(400);
        assert!(for_ms <= whole && for_ms >= whole - whole / 4, "{for_ms} of {whole}");
        self.open_until_ms = Some(now + for_ms);
        self.alive_ms = self.alive_ms.max(now + for_ms + 1_000);
        self.heard.clear();
        self.row = 0;
        self.good = 0;
        self.probe = None;
    }

    fn closes(&mut self, now: u64) {
        self.open_until_ms = None;
        self.closed_since_ms = now;
        self.alive_ms = self.alive_ms.max(now + 1_000);
        self.probe = None;
    }

    /// What a record keeps: that it is open, for how long still, and how often it was.
    fn restarts(&mut self, now: u64, seen_down_ms: u64) {
        let Some(until) = self.open_until_ms else {
            *self = Self::default();
            return;
        };
        let left = if self.probe.is_some() || self.good > 0 { 0 } else { until.saturating_sub(now) };
        let past = seen_down_ms.saturating_sub(left);
        if past >= 1_000 {
            *self = Self::default();
            return;
        }
        let until = left.saturating_sub(seen_down_ms);
        *self =
            Self { open_until_ms: Some(until), level: self.level, alive_ms: until + 1_000 - past, ..Self::default() };
    }
}

fn run(steps: Vec<Step>) {
    let (rules, key) = (rules(), pair(1, 1));
    rules.check().unwrap();
    let mut breakers = Breakers::new(BOUNDS);
    let mut model = Model::default();
    let mut out: Vec<(Ticket, u32, u64)> = Vec::new();
    let mut now = Now { mono_ms: 0, unix_ms: 5_000_000 };
    for (serial, step) in (0_u32..).zip(steps) {
        match step {
            Step::Wait(ms) => now = Now { mono_ms: now.mono_ms + ms, unix_ms: now.unix_ms + ms },
            Step::Sweep => {
                breakers.sweep(now);
            }
            Step::Admit => {
                let got = breakers.admit(key, &rules, now);
                assert_eq!(got.as_ref().ok().map(Ticket::is_probe), model.admits(now.mono_ms, serial), "{step:?}");
                match got {
                    Ok(ticket) => out.push((ticket, serial, now.mono_ms)),
                    Err(refused) => assert!((1..=1_000).contains(&refused.retry_after_ms)),
                }
            }
            Step::Lose(nth) if !out.is_empty() => drop(out.swap_remove(nth % out.len())),
            Step::Report(nth, outcome) if !out.is_empty() => {
                let (ticket, serial, admitted) = out.swap_remove(nth % out.len());
                let (is_probe, weight) = (ticket.is_probe(), outcome.weight(rules.counted));
                let expected = model.hears(now.mono_ms, serial, admitted, is_probe, weight);
                match breakers.report(key, &rules, ticket, outcome, now) {
                    None => assert_eq!(expected, None, "{outcome:?}"),
                    Some(Change::Opened { for_ms, .. }) => {
                        assert_eq!(expected, Some(true));
                        model.opens(now.mono_ms, for_ms);
                    }
                    Some(Change::Closed) => {
                        assert_eq!(expected, Some(false));
                        model.closes(now.mono_ms);
                    }
                }
            }
            Step::Lose(_) | Step::Report(..) => {}
            Step::Restart { down_ms, step_ms } => {
                let record = breakers.record(key, now);
                let passed_ms = i64::try_from(down_ms).unwrap() + step_ms;
                model.tick(now.mono_ms);
                model.restarts(now.mono_ms, u64::try_from(passed_ms).unwrap_or(0));
                now = Now { mono_ms: 0, unix_ms: now.unix_ms.saturating_add_signed(passed_ms) };
                breakers = Breakers::new(BOUNDS);
                out.clear();
                if let Some(bytes) = record {
                    breakers.restore(key, &rules, &bytes, now).unwrap();
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn it_does_what_a_plain_model_does(steps in proptest::collection::vec(step(), 0..200)) {
        run(steps);
    }
}
