//! What an operator does about a bucket: by the centre, which tells every node; this one is told at once. Each act is a
//! line in the log that says who did it.

use std::sync::Arc;

use domain::text::Untrusted;
use egress::quota::{HEEDED, heeded_rule};
use ratelimit::quota::{
    Answer, Application, Body, BucketKey, BucketName, BucketView, Level, Metered, PARK_MS_MAX, Penalise, Rule, Why,
};

use super::wire::{Act, Acted, BucketAct, REASON_BYTES_MAX};
use super::{Desk, DeskError, Peer, bucket_named, line};

impl Desk {
    pub(crate) async fn act(&self, asked: &BucketAct, peer: Peer) -> Result<Acted, DeskError> {
        let name = bucket_named(&asked.bucket)?;
        check_reason(&asked.reason)?;
        let view = self.bucket(&name).await?;
        let acted = match (asked.act, view) {
            (Act::Park { ms }, view) => self.park(&name, ms, view).await?,
            (Act::Release | Act::Reset, None) => nothing("there is no such bucket: it holds nothing and is not parked"),
            (Act::Release, Some(BucketView { park: None, .. })) => nothing("it is not parked"),
            (Act::Release, Some(_)) => self.release(&name).await?,
            (Act::Reset, Some(view)) => self.reset(&name, view.used).await?,
        };
        if acted.done {
            let (act, reason) = (asked.act, Untrusted::with_limit(asked.reason.as_bytes(), REASON_BYTES_MAX));
            tracing::info!(bucket = %name, ?act, %reason, uid = peer.uid, "an operator changed a bucket: {}", acted.said);
        }
        Ok(acted)
    }

    async fn park(&self, name: &BucketName, ms: u64, view: Option<BucketView>) -> Result<Acted, DeskError> {
        if !(1..=PARK_MS_MAX).contains(&ms) {
            let most = line::span(PARK_MS_MAX);
            return Err(DeskError::Refused(format!("a park is 1 ms to {most}: beyond that, switch the calls off")));
        }
        let rule = match view {
            Some(view) => view.rule,
            None => self.rule_of_heeded(name)?,
        };
        let bucket = Metered { key: Arc::new(name.key.clone()), rule: Arc::new(rule) };
        let penalise = Penalise { bucket, delta_ms: ms, generation: None, why: Why::Operator };
        let Answer::ParkedFor { ms, generation } = self.ask(&name.application, Body::Penalise(penalise)).await? else {
            return Err(DeskError::Refused("there is no room for one more bucket".to_owned()));
        };
        self.quota.holder.pushed(&name.application, &name.key, generation, ms, Why::Operator);
        let park = line::park(ms, Why::Operator, self.now_unix_ms());
        let said = format!("parked until {}; leases of before are void", park.until);
        Ok(Acted { done: true, said, park: Some(park) })
    }

    /// Of a bucket that the centre has not met: only one that is there to be parked, and of somebody who is configured, so
    /// that a name that was mistyped makes nothing.
    fn rule_of_heeded(&self, name: &BucketName) -> Result<Rule, DeskError> {
        let BucketName { application, key } = name;
        let refused = |why: &str| DeskError::Refused(why.to_owned());
        if key.policy.as_str() != HEEDED {
            return Err(refused(
                "there is no such bucket: nothing was asked of it yet, and its limit is not known until then",
            ));
        }
        if !self.is_configured(application, key) {
            return Err(refused("no connection that is configured here is of this bucket"));
        }
        heeded_rule(&self.snapshot.load().quota.counting).ok_or(DeskError::Odd)
    }

    fn is_configured(&self, application: &Application, key: &BucketKey) -> bool {
        self.snapshot.load().connections.iter().any(|(_, entry)| {
            entry.connection.counted_as().is_some_and(|(of, account)| {
                of == application
                    && match key.level {
                        Level::App => key.scope.as_str() == "-",
                        Level::Connection => key.scope == *account,
                        Level::Region | Level::Source => false,
                    }
            })
        })
    }

    async fn release(&self, name: &BucketName) -> Result<Acted, DeskError> {
        if !is_done(&self.ask(&name.application, Body::Release(name.key.clone())).await?)? {
            return Ok(nothing("it was dropped meanwhile"));
        }
        self.hear(name).await;
        Ok(Acted { done: true, said: "released; what waits goes step by step".to_owned(), park: None })
    }

    async fn reset(&self, name: &BucketName, used: u64) -> Result<Acted, DeskError> {
        if !is_done(&self.ask(&name.application, Body::Reset(name.key.clone())).await?)? {
            return Ok(nothing("it was dropped meanwhile"));
        }
        self.hear(name).await;
        let said = format!("reset: {used} units that counted are forgotten, and leases of before are void");
        Ok(Acted { done: true, said, park: None })
    }

    /// This node learns at once what has become of it; without an answer it does as others do, with the next one.
    async fn hear(&self, name: &BucketName) {
        if let Ok(Some(view)) = self.bucket(name).await {
            let (ms, why) = view.park.map_or((0, Why::Operator), |park| (park.ms, park.why));
            self.quota.holder.pushed(&name.application, &name.key, view.generation, ms, why);
        }
    }
}

pub(super) fn check_reason(reason: &str) -> Result<(), DeskError> {
    if reason.len() <= REASON_BYTES_MAX {
        return Ok(());
    }
    Err(DeskError::Refused(format!("the reason is longer than {REASON_BYTES_MAX} bytes")))
}

/// No: there is no such bucket.
fn is_done(answer: &Answer) -> Result<bool, DeskError> {
    if matches!(answer, Answer::Done { .. } | Answer::NoBucket) {
        return Ok(*answer != Answer::NoBucket);
    }
    Err(DeskError::Odd)
}

fn nothing(said: &str) -> Acted {
    Acted { done: false, said: said.to_owned(), park: None }
}
