//! A scheme's known answers, run.

use config::scheme::KnownAnswer;
use domain::Secret;

use super::delivery::{ActiveKey, Unverified};
use super::fault::DeclarationFault;
use super::program::Scheme;
use super::url::SeenUrl;

impl Scheme {
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
        if self.timestamp.is_some() && answer.at_unix_ms.is_none() {
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
        let key = self.key(&Secret::new(answer.secret.as_bytes())).map_err(|fault| fault.to_string())?;
        let verdict = self.verify(&delivery, &[ActiveKey { index: 0, key: &key }]);
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
