//! How a call ended, as far as a breaker is concerned.

/// A way in which a destination can fail. Which of them count is the connector's to say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Fault {
    /// The name could not be resolved: the server failed or did not answer. A name that does not exist is an answer.
    Dns = 1 << 0,
    /// No transport connection: refused, unreachable, timed out.
    Connect = 1 << 1,
    /// No TLS session.
    Tls = 1 << 2,
    /// The answer did not begin, or stalled, for too long.
    Timeout = 1 << 3,
    /// The connection broke before the answer was whole, or what came was no HTTP.
    Broken = 1 << 4,
    /// An answer with a status of 500 to 599 that is no throttle.
    ServerError = 1 << 5,
}

/// A set of faults: those that count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Faults(u8);

impl Faults {
    /// Every one: what holds where a connector says nothing.
    pub const ALL: Self = Self(0b11_1111);
    pub const NONE: Self = Self(0);

    #[must_use]
    pub const fn with(self, fault: Fault) -> Self {
        Self(self.0 | fault as u8)
    }

    #[must_use]
    pub const fn without(self, fault: Fault) -> Self {
        Self(self.0 & !(fault as u8))
    }

    pub const fn has(self, fault: Fault) -> bool {
        self.0 & fault as u8 != 0
    }
}

/// How a call ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// An answer below 400.
    Answered,
    /// An answer of 400 to 499: the destination works, and says that the caller does not.
    ClientError,
    Failed(Fault),
    /// The provider said to slow down, by whatever status and body (429, 403, 200 with a code, 503 with a time).
    Throttled,
    /// The call was set aside before it was sent: by quota, by a park, by the fleet's breaker.
    Parked,
    /// The caller went away, or the appliance stopped, before it was clear.
    Abandoned,
}

/// What an outcome does to a breaker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Weight {
    /// The destination works.
    Good,
    /// A fault that counts.
    Bad,
    /// Neither: it adds nothing to the volume, ends no row of faults, and a probe that ends so proved nothing.
    Nothing,
}

impl Outcome {
    /// `counted` is the connector's choice.
    ///
    /// A 5xx that the connector does not count is still an answer, so it is good: a provider that says 500 for bad
    /// input works. Any other fault that is not counted says nothing. A throttle is neither good nor bad: bad would
    /// punish twice for what a park handles, good would let the throttles of an overloaded provider hide its 5xx.
    pub fn weight(self, counted: Faults) -> Weight {
        match self {
            Self::Failed(fault) if counted.has(fault) => Weight::Bad,
            Self::Answered | Self::ClientError | Self::Failed(Fault::ServerError) => Weight::Good,
            Self::Failed(Fault::Dns | Fault::Connect | Fault::Tls | Fault::Timeout | Fault::Broken)
            | Self::Throttled
            | Self::Parked
            | Self::Abandoned => Weight::Nothing,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_counts_is_the_connectors_choice_among_faults_and_nothing_else() {
        let faults = [Fault::Dns, Fault::Connect, Fault::Tls, Fault::Timeout, Fault::Broken, Fault::ServerError];
        for fault in faults {
            assert_eq!(Outcome::Failed(fault).weight(Faults::ALL), Weight::Bad, "{fault:?}");
            assert_eq!(Outcome::Failed(fault).weight(Faults::NONE.with(fault)), Weight::Bad, "{fault:?}");
            let uncounted = if fault == Fault::ServerError { Weight::Good } else { Weight::Nothing };
            assert_eq!(Outcome::Failed(fault).weight(Faults::ALL.without(fault)), uncounted, "{fault:?}");
        }
        for counted in [Faults::ALL, Faults::NONE] {
            for good in [Outcome::Answered, Outcome::ClientError] {
                assert_eq!(good.weight(counted), Weight::Good);
            }
            for nothing in [Outcome::Throttled, Outcome::Parked, Outcome::Abandoned] {
                assert_eq!(nothing.weight(counted), Weight::Nothing);
            }
        }
    }
}
