//! A scheme's known answers, run.

use config::scheme::{Evidence, KnownAnswer};
use domain::Secret;

use super::delivery::{ActiveKey, Unverified};
use super::fault::DeclarationFault;
use super::program::{Proof, Scheme};
use super::url::SeenUrl;

/// What stands behind a scheme.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Proven<'s> {
    /// It agrees with an answer that its provider published, or that the provider's own library gave: where that is.
    KnownAnswer { source: &'s str },
    /// Its answers were made by another implementation of the same recipe.
    Constructed,
    /// There is no answer that verifies.
    Nothing,
}

impl Proven<'_> {
    /// One of three words.
    pub const fn label(&self) -> &'static str {
        match self {
            Self::KnownAnswer { .. } => "known answer",
            Self::Constructed => "constructed",
            Self::Nothing => "none",
        }
    }
}

impl Scheme {
    /// What stands behind it: the best of its known answers that verify.
    pub fn proven(&self) -> Proven<'_> {
        let row = &self.declaration;
        let mut verifying = row.known_answers.iter().filter(|answer| answer.fault.is_none());
        match verifying.clone().find(|answer| answer.evidence == Evidence::Published) {
            // Without one of its own, it is published where the recipe was read.
            Some(answer) if answer.source.is_empty() => Proven::KnownAnswer { source: &row.source },
            Some(answer) => Proven::KnownAnswer { source: &answer.source },
            None if verifying.next().is_some() => Proven::Constructed,
            None => Proven::Nothing,
        }
    }

    /// Runs the known answers: how many there are, or each one that does not come out.
    pub fn self_test(&self) -> Result<usize, Vec<DeclarationFault>> {
        let answers = &self.declaration.known_answers;
        let faults: Vec<_> = answers
            .iter()
            .enumerate()
            .filter_map(|(at, answer)| {
                let fault = self.known_answer(answer).err()?;
                let message = format!("known answer {} of scheme {}: {fault}", at + 1, self.name());
                Some(DeclarationFault { key: format!("known_answer[{at}]"), reads: &[], message })
            })
            .collect();
        if faults.is_empty() { Ok(answers.len()) } else { Err(faults) }
    }

    fn known_answer(&self, answer: &KnownAnswer) -> Result<(), String> {
        let is_timed = self.timestamp.is_some() || matches!(self.proof, Proof::Jwt(_));
        if is_timed && answer.at_unix_ms.is_none() {
            return Err("has no at_unix_ms, and the scheme has a timestamp".into());
        }
        let (url, target) = SeenUrl::split(&answer.url).map_err(|fault| format!("its url {fault}"))?;
        let headers: Vec<_> = answer.headers.iter().collect();
        let delivery = Unverified {
            method: answer.method.as_str().as_bytes(),
            target: target.as_bytes(),
            url,
            headers: &headers,
            body: answer.body.as_bytes(),
            received_unix_ms: answer.at_unix_ms.unwrap_or_default(),
        };
        let verdict = if answer.secret.is_empty() {
            self.verify(&delivery, &[])
        } else {
            let key = self.key(&Secret::new(answer.secret.as_bytes())).map_err(|fault| fault.to_string())?;
            self.verify(&delivery, &[ActiveKey { index: 0, key: &key }])
        };
        match (verdict, answer.fault.as_deref()) {
            (Ok(_), None) => Ok(()),
            (Ok(_), Some(expected)) => Err(format!("verifies, and should be refused as {expected}")),
            (Err(fault), Some(expected)) if fault.label() == expected => Ok(()),
            (Err(fault), Some(expected)) => {
                Err(format!("is refused as {}, and should be as {expected}", fault.label()))
            }
            (Err(fault), None) => Err(format!("should verify: {fault}")),
        }
    }
}
