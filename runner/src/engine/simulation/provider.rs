//! A provider that counts effects by their keys, and what becomes of calls to it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use domain::Clock;
use http::{HeaderMap, Method};

use super::super::testing::{KEY, VirtualClock, lock};
use super::choices::Choices;
use super::invariants::Watch;
use crate::call::{Answer, Call, Caller, Cut, ParkSource, Reply};
use crate::ledger::{BoxFuture, SendState};

/// Ways in which a call that is to have an effect can go, beside the good one.
pub(super) const BEHAVIOURS: usize = 22;

/// No effect comes later than so long after its call has ended: what is read back then is the truth.
const EFFECT_MS_MAX: u64 = 1_500;

/// Effects by key.
pub(super) type Effects = BTreeMap<Box<str>, u32>;

#[derive(Debug)]
pub(super) struct Provider {
    pub(super) clock: Arc<VirtualClock>,
    pub(super) choices: Arc<Choices>,
    pub(super) effects: Arc<Mutex<Effects>>,
    pub(super) watch: Arc<Watch>,
    /// How the next call goes, whatever is drawn.
    pub(super) forced: Mutex<Option<usize>>,
}

impl Caller for Provider {
    fn call(&self, call: Call) -> BoxFuture<'_, Answer> {
        Box::pin(async move {
            tokio::task::yield_now().await;
            let key: Box<str> = call.headers.iter().find(|(name, _)| *name == KEY).unwrap().1.to_str().unwrap().into();
            if call.method == Method::GET { self.read_back(&key).await } else { self.do_it(key, &call).await }
        })
    }
}

impl Provider {
    async fn do_it(&self, key: Box<str>, call: &Call) -> Answer {
        let input: serde_json::Value = serde_json::from_slice(&call.body).unwrap();
        let is_idempotent = input["class"] == "idempotent";
        let drawn = self.choices.one_of(BEHAVIOURS + 1, 110);
        let behaviour = lock(&self.forced).take().unwrap_or(drawn);
        let sends = !matches!(behaviour, 1 | 10 | 13 | 14);
        if sends {
            self.watch.arrives(&key);
        }
        if is_idempotent && sends && lock(&self.effects).contains_key(&key) && matches!(behaviour, 5 | 6 | 8 | 16 | 18)
        {
            // A provider that remembers the key does not answer otherwise than before.
            return response(200, "again");
        }
        let effect = || effect(&self.effects, &key, is_idempotent);
        let later = |ms: u64| tokio::time::sleep(Duration::from_millis(ms));
        match behaviour {
            1 => failed(SendState::NotSent, "connect-failed"),
            2 => {
                effect();
                later(5).await;
                failed(SendState::SentNoResponse, "response-incomplete")
            }
            3 => failed(SendState::SentNoResponse, "response-timeout"),
            4 => {
                effect();
                later(1).await;
                response(500, "after")
            }
            5 => response(500, "before"),
            6 => response(400, "no"),
            7 => response(401, "revoked"),
            8 => response(409, "locked"),
            9 => self.parked(SendState::Response, ParkSource::Provider, Some(429)),
            10 => self.parked(SendState::NotSent, ParkSource::Quota, None),
            11 => {
                effect();
                later(40_000).await;
                response(200, "too late")
            }
            12 => {
                let (effects, key) = (Arc::clone(&self.effects), key.clone());
                tokio::spawn(async move {
                    tokio::time::sleep(Duration::from_millis(EFFECT_MS_MAX)).await;
                    self::effect(&effects, &key, is_idempotent);
                });
                later(40_000).await;
                response(200, "too late")
            }
            13 => refused("destination-not-allowed"),
            14 => refused("overloaded"),
            15 => failed(SendState::PartiallySent, "response-incomplete"),
            16 => {
                effect();
                response(302, "who knows")
            }
            17 => {
                effect();
                later(5_000).await;
                response(200, "slow")
            }
            18 => {
                later(5_000).await;
                response(400, "slow")
            }
            19 => {
                effect();
                self.parked(SendState::Response, ParkSource::Provider, Some(503))
            }
            20 => {
                effect();
                cut("done, and more than is kept")
            }
            21 => {
                effect();
                cut("{ what it is stands in the rest")
            }
            22 => {
                // Within its time, and only if somebody waits for it.
                later(8_000).await;
                effect();
                response(200, "done at last")
            }
            _ => {
                later(3).await;
                effect();
                later(3).await;
                response(200, "done")
            }
        }
    }

    async fn read_back(&self, key: &str) -> Answer {
        tokio::time::sleep(Duration::from_millis(2)).await;
        match self.choices.one_of(6, 150) {
            1 => response(500, "later"),
            2 => response(200, "maybe"),
            3 => failed(SendState::SentNoResponse, "response-timeout"),
            4 => response(401, "revoked"),
            5 => self.parked(SendState::Response, ParkSource::Provider, Some(429)),
            _ => response(200, if lock(&self.effects).contains_key(key) { "yes" } else { "no" }),
        }
    }

    fn parked(&self, send_state: SendState, source: ParkSource, status: Option<u16>) -> Answer {
        let release_unix_ms = self.clock.unix_ms() + self.choices.millis();
        Answer { send_state, correlation: None, reply: Reply::Parked { release_unix_ms, source, status } }
    }
}

fn effect(effects: &Mutex<Effects>, key: &str, is_idempotent: bool) {
    let mut effects = lock(effects);
    let count = effects.entry(key.into()).or_default();
    if !is_idempotent || *count == 0 {
        *count += 1;
    }
}

fn response(status: u16, body: &'static str) -> Answer {
    let body = Bytes::from_static(body.as_bytes());
    let reply = Reply::Response { status, headers: Arc::new(HeaderMap::new()), body, cut: None };
    Answer { send_state: SendState::Response, correlation: None, reply }
}

/// A success of which only the beginning is kept.
fn cut(beginning: &'static str) -> Answer {
    let cut = Cut { bytes: 9 << 20, digest: [9; 32], is_whole: true };
    let mut answer = response(200, beginning);
    if let Reply::Response { cut: said, .. } = &mut answer.reply {
        *said = Some(cut);
    }
    answer
}

fn failed(send_state: SendState, code: &str) -> Answer {
    Answer { send_state, correlation: None, reply: Reply::Failed { code: code.into(), detail: "drawn".into() } }
}

fn refused(code: &str) -> Answer {
    let reply = Reply::Refused { code: code.into(), detail: "drawn".into(), retry_after: None };
    Answer { send_state: SendState::NotSent, correlation: None, reply }
}
