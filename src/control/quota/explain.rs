//! Why a call would be refused now, in a sentence, with everything that it follows from.
//!
//! The order is that of serving: runaways, rules, breaker, levels. The first that says no is the reason; the rest is shown
//! all the same, since it is what comes next.

use egress::quota::{Explained, NotExplained, Question};
use http::Method;
use ratelimit::breaker;
use ratelimit::quota::holder::{LegView, Parked, Reason};
use ratelimit::quota::{BucketName, BucketView, Class, RefusalView};
use ratelimit::runaway::Verdict;

use super::guards::{self, who};
use super::line::{because, bucket, parked_because};
use super::wire::{ExplainAnswer, ExplainQuery, Fate, LevelLine, RefusalLine};
use super::{Desk, DeskError};
use crate::control::time::rfc3339;

/// What a call would come to.
pub(super) struct Outlook {
    pub(super) fate: Fate,
    pub(super) said: String,
    pub(super) release_ms: Option<u64>,
}

/// One level, from both sides.
pub(super) struct Seen {
    pub(super) name: BucketName,
    pub(super) leg: LegView,
    pub(super) centre: Result<Option<BucketView>, String>,
}

impl Desk {
    /// What a call would meet now. Nothing is taken, and nothing asked for but what there is.
    pub(crate) async fn explain(&self, query: &ExplainQuery) -> Result<Result<ExplainAnswer, NotExplained>, DeskError> {
        let method = Method::from_bytes(query.method.as_bytes());
        let method = method.map_err(|_| DeskError::Refused("that is no method".to_owned()))?;
        let question = Question {
            tenant: &query.tenant,
            role: query.role.as_deref(),
            connection: &query.connection,
            method,
            path: &query.path,
            class: if query.bulk { Class::Bulk } else { Class::Interactive },
            automation: query.automation.as_deref(),
        };
        let explained = self.quota.explain(&self.snapshot.load(), &question);
        let mut explained = match explained {
            Ok(explained) => explained,
            Err(why) => return Ok(Err(why)),
        };
        let mut levels = Vec::with_capacity(explained.levels.len());
        for leg in std::mem::take(&mut explained.levels) {
            let name = BucketName { application: leg.application.clone(), key: leg.key.clone() };
            let centre = self.bucket(&name).await.map_err(|fault| fault.to_string());
            levels.push(Seen { name, leg, centre });
        }
        let outlook = outlook(&explained, &levels);
        Ok(Ok(self.answer(explained, levels, outlook)))
    }

    fn answer(&self, explained: Explained, levels: Vec<Seen>, outlook: Outlook) -> ExplainAnswer {
        let (now_unix_ms, here) = (self.now_unix_ms(), self.quota.holder.id());
        let runaways = explained.runaways.into_iter();
        let runaways = runaways.map(|(key, called, view)| guards::runaway(who(key, Some(&called)), view));
        let (breaker, called, view) = explained.breaker;
        let levels = levels.into_iter().map(|Seen { name, leg, centre }| {
            let (centre, unanswered) = match centre {
                Ok(view) => (view.map(|view| bucket(&name.application, view, here, now_unix_ms)), None),
                Err(fault) => (None, Some(fault)),
            };
            LevelLine {
                bucket: name.to_string(),
                level: name.key.level.word().to_owned(),
                units: leg.units,
                free: leg.free,
                asks: leg.is_missing,
                here: leg
                    .refusal
                    .map(|parked| RefusalLine { reason: parked.reason.word().to_owned(), retry_ms: parked.release_ms }),
                centre,
                unanswered,
            }
        });
        ExplainAnswer {
            fate: outlook.fate,
            said: outlook.said,
            release_ms: outlook.release_ms,
            until: outlook.release_ms.map(|ms| rfc3339(now_unix_ms.saturating_add(ms))),
            application: explained.application.to_string(),
            runaways: runaways.collect(),
            breaker: guards::breaker(who(breaker, Some(&called)), view),
            fleet_breaker: explained.fleet.map(|refused| RefusalLine {
                reason: guards::word(refused.phase).to_owned(),
                retry_ms: refused.retry_after_ms,
            }),
            retries_left: explained.retries_left,
            levels: levels.collect(),
        }
    }
}

impl Outlook {
    fn parked(said: String, release_ms: Option<u64>) -> Self {
        Self { fate: Fate::Parked, said, release_ms }
    }
}

pub(super) fn outlook(explained: &Explained, levels: &[Seen]) -> Outlook {
    let stopped = paused(explained)
        .or_else(|| refused(explained))
        .or_else(|| shut(explained))
        .or_else(|| shut_for_all(explained))
        .or_else(|| parked_here(levels))
        .or_else(|| parked_there(levels));
    if let Some(stopped) = stopped {
        return stopped;
    }
    let missing: Vec<String> =
        levels.iter().filter(|seen| seen.leg.is_missing).map(|seen| seen.name.to_string()).collect();
    let mut said = if missing.is_empty() {
        "it would go: this node holds units of every level".to_owned()
    } else {
        format!("it would go once units are granted of {}", missing.join(", "))
    };
    if explained.breaker.2.is_some_and(|view| view.phase != breaker::Phase::Closed) {
        said.push_str("; it would be the probe that closes the breaker, or opens it again");
    }
    let throttled = explained.runaways.iter().find_map(|(key, called, view)| match view.as_ref()?.verdict {
        Verdict::Throttled { per_minute } => Some((who(*key, Some(called)).name, called.kind, per_minute)),
        Verdict::Fine | Verdict::Paused { .. } => None,
    });
    match throttled {
        None => Outlook { fate: Fate::Goes, said, release_ms: None },
        Some((name, kind, per_minute)) => {
            let said = format!("the {kind} {name} ran away, and {per_minute} a minute may go; in its turn {said}");
            Outlook { fate: Fate::Throttled, said, release_ms: None }
        }
    }
}

fn paused(explained: &Explained) -> Option<Outlook> {
    explained.runaways.iter().find_map(|(key, called, view)| {
        let Verdict::Paused { since_unix_ms } = view.as_ref()?.verdict else { return None };
        let (name, since) = (who(*key, Some(called)).name, rfc3339(since_unix_ms));
        let kind = called.kind;
        Some(Outlook::parked(
            format!("the {kind} {name} ran away and is paused since {since}, until it is resumed"),
            None,
        ))
    })
}

fn refused(explained: &Explained) -> Option<Outlook> {
    let why = explained.refused.as_ref()?;
    let said = format!("the rules refuse it before quota is asked ({why}); `tidegate explain` says by which one");
    Some(Outlook { fate: Fate::Refused, said, release_ms: None })
}

fn shut(explained: &Explained) -> Option<Outlook> {
    let (key, called, view) = &explained.breaker;
    let view = view.as_ref().filter(|view| view.retry_after_ms > 0)?;
    let name = who(*key, Some(called)).name;
    let what = match view.phase {
        breaker::Phase::HalfOpen => "half-open, and its probe is out",
        breaker::Phase::Open | breaker::Phase::Closed => "open, since calls failed",
    };
    Some(Outlook::parked(format!("the breaker of {name} is {what}"), Some(view.retry_after_ms)))
}

fn shut_for_all(explained: &Explained) -> Option<Outlook> {
    let refused = explained.fleet?;
    let said = "calls of many tenants to this provider failed, and the fleet lets one go at a time".to_owned();
    Some(Outlook::parked(said, Some(refused.retry_after_ms)))
}

/// What this node would say without asking. What is only heeded is looked at first, as serving does.
fn parked_here(levels: &[Seen]) -> Option<Outlook> {
    let refusals = levels.iter().filter_map(|seen| Some((seen, seen.leg.refusal?)));
    let last = refusals.max_by_key(|(seen, parked)| (seen.leg.units == 0, parked.release_ms));
    last.map(|(seen, parked)| Outlook::parked(clause(&seen.name, &parked), Some(parked.release_ms)))
}

/// What the centre would say where it has to be asked, or what this node will have heard of in a moment.
fn parked_there(levels: &[Seen]) -> Option<Outlook> {
    let mut unknown = None;
    for Seen { name, leg, centre } in levels.iter().filter(|seen| seen.leg.is_missing || seen.leg.units == 0) {
        match centre {
            Err(fault) if leg.is_missing => {
                let said = format!("units of {name} are not held here, and {fault}");
                unknown.get_or_insert(Outlook { fate: Fate::Unknown, said, release_ms: None });
            }
            Ok(Some(view)) => {
                // A park is one also while the centre listens, and nobody else heeds what is only heeded.
                let park = view.park.map(|park| RefusalView::Parked { ms: park.ms, why: park.why });
                if let Some(refusal) = park.or_else(|| view.refusal.filter(|_| leg.units > 0)) {
                    return Some(refused_there(name, refusal));
                }
                if u64::from(leg.units) > view.room {
                    let (room, units) = (view.room, leg.units);
                    let said = format!("{name} has room for {room} units, and the call takes {units}");
                    return Some(Outlook::parked(said, None));
                }
            }
            Ok(None) | Err(_) => {}
        }
    }
    unknown
}

fn refused_there(name: &BucketName, refusal: RefusalView) -> Outlook {
    let (why, ms) = match refusal {
        RefusalView::Parked { ms, why } => (parked_because(why), ms),
        RefusalView::Learning { ms } => ("may have been forgotten in part, and is listened for", ms),
        RefusalView::Denied { retry_ms, why } => (because(why), retry_ms),
    };
    Outlook::parked(format!("{name} {why}"), Some(ms))
}

fn clause(name: &BucketName, parked: &Parked) -> String {
    let why = match parked.reason {
        Reason::Park(why) => parked_because(why),
        Reason::Denied(denial) => because(denial),
        Reason::Learning => "may have been forgotten in part by whoever counts, who listens",
        Reason::Slow => "was asked for, and no answer came in time",
        Reason::Gone => "cannot be asked for: whoever counts does not answer, and what was held is spent",
        Reason::Busy => "cannot be asked for: as many calls wait as may",
        Reason::Closing => "is not given out any more: this node is about to end",
        Reason::Spoilt => "was held, and that is over",
    };
    format!("{name} {why}")
}
