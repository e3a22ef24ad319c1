//! `tidegate send`: sign as the endpoint's provider would, post, show the answer.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use domain::text::Untrusted;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::Shell;
use super::args::Send;
use super::block_on;
use super::curl::Curl;
use super::exit::{Exit, Outcome};
use super::http::{Client, Reply};
use super::out::Tone;
use super::plan::{Plan, plan};
use super::sign::not_pastable;

/// What came of one delivery.
struct Sent {
    reply: Reply,
    ms: f64,
}

pub(super) fn run(args: &Send, shell: &mut Shell<'_>) -> Outcome {
    let plan = plan(args, shell)?;
    if args.print_curl {
        return print_curl(args, &plan, shell);
    }
    let plan = Arc::new(plan);
    let started = Instant::now();
    let (mut tally, single) = (Tally::default(), args.count == 1);
    block_on(async {
        let (results, mut sent) = mpsc::channel(64);
        let next = Arc::new(AtomicU32::new(0));
        let mut workers = JoinSet::new();
        for _ in 0..args.concurrency.min(args.count) {
            workers.spawn(work(Arc::clone(&plan), Arc::clone(&next), args.count, results.clone()));
        }
        drop(results);
        while let Some(result) = sent.recv().await {
            let sent: Sent = result?;
            if args.form.json {
                shell.out.json(&as_json(&sent))?;
            } else if single {
                show(&sent, shell)?;
            }
            tally.add(&sent);
        }
        Ok(())
    })?;
    if !single && !args.form.json {
        tally.print(started.elapsed().as_secs_f64(), shell)?;
    }
    Ok(Exit::yes_if(tally.refused == 0))
}

/// Sends deliveries over one connection, and over a new one where the appliance closed it.
async fn work(plan: Arc<Plan>, next: Arc<AtomicU32>, count: u32, results: mpsc::Sender<Outcome<Sent>>) {
    let mut connection = None;
    loop {
        let number = next.fetch_add(1, Ordering::Relaxed);
        if number >= count {
            return;
        }
        let result = deliver(&plan, number, &mut connection).await;
        let failed = result.is_err();
        if results.send(result).await.is_err() || failed {
            return;
        }
    }
}

async fn deliver(plan: &Plan, number: u32, connection: &mut Option<Client>) -> Outcome<Sent> {
    let request = plan.request(number)?;
    let mut client = match connection.take() {
        Some(mut client) => {
            if client.is_ready().await {
                client
            } else {
                Client::connect(&plan.target).await?
            }
        }
        None => Client::connect(&plan.target).await?,
    };
    let started = Instant::now();
    let reply = client.send(request).await?;
    let ms = started.elapsed().as_secs_f64() * 1000.0;
    *connection = Some(client);
    Ok(Sent { reply, ms })
}

fn accepted(reply: &Reply) -> bool {
    (200..300).contains(&reply.status)
}

/// The answer's own words, if it has some: ours are JSON, on acceptance and on refusal.
fn words(reply: &Reply) -> Value {
    serde_json::from_slice(&reply.body).unwrap_or(Value::Null)
}

fn as_json(sent: &Sent) -> Value {
    let words = words(&sent.reply);
    json!({
        "status": sent.reply.status,
        "accepted": accepted(&sent.reply),
        "eventId": words["eventId"],
        "executionId": words["executionId"],
        "code": words["code"],
        "title": words["title"],
        "retryAfter": sent.reply.retry_after,
        "ms": (sent.ms * 1000.0).round() / 1000.0,
    })
}

fn show(sent: &Sent, shell: &mut Shell<'_>) -> Outcome<()> {
    let words = words(&sent.reply);
    let said = |key: &str| words[key].as_str().map(|text| Untrusted::new(text.as_bytes()).to_string());
    let tone = if accepted(&sent.reply) { Tone::Good } else { Tone::Bad };
    let status = shell.out.paint(tone, sent.reply.status);
    let what = match (said("eventId"), said("code"), said("title")) {
        (Some(id), _, _) => id,
        (None, Some(code), Some(title)) => format!("{code}: {title}"),
        (None, Some(only), None) | (None, None, Some(only)) => only,
        (None, None, None) => Untrusted::new(&sent.reply.body).to_string(),
    };
    shell.out.line(format_args!("{status}  {what}  {:.1} ms", sent.ms))?;
    if let Some(after) = &sent.reply.retry_after {
        shell.out.remark(format_args!("try again after {} s", Untrusted::new(after.as_bytes())));
    }
    Ok(())
}

#[derive(Default)]
struct Tally {
    ms: Vec<f64>,
    refused: usize,
    kinds: std::collections::BTreeMap<String, usize>,
}

impl Tally {
    fn add(&mut self, sent: &Sent) {
        self.ms.push(sent.ms);
        self.refused += usize::from(!accepted(&sent.reply));
        let words = words(&sent.reply);
        let code = words["code"].as_str().map(|code| format!(" {}", Untrusted::with_limit(code.as_bytes(), 40)));
        *self.kinds.entry(format!("{}{}", sent.reply.status, code.unwrap_or_default())).or_default() += 1;
    }

    fn print(&mut self, seconds: f64, shell: &mut Shell<'_>) -> Outcome<()> {
        self.ms.sort_by(f64::total_cmp);
        for (kind, count) in &self.kinds {
            let tone = if kind.starts_with('2') { Tone::Good } else { Tone::Bad };
            let kind = shell.out.paint(tone, kind);
            shell.out.line(format_args!("{count} × {kind}"))?;
        }
        let at = |share: usize| self.ms.get(self.ms.len().saturating_sub(1) * share / 100).copied().unwrap_or_default();
        #[expect(clippy::cast_precision_loss, reason = "at most a million")]
        let rate = self.ms.len() as f64 / seconds.max(f64::MIN_POSITIVE);
        shell.out.line(format_args!(
            "{rate:.0}/s, median {:.1} ms, 99% {:.1} ms, longest {:.1} ms",
            at(50),
            at(99),
            at(100)
        ))
    }
}

fn print_curl(args: &Send, plan: &Plan, shell: &mut Shell<'_>) -> Outcome {
    let body = plan.body(1);
    let (mut headers, path) = plan.signed(&body)?;
    // Not needed where the host is what curl connects to anyway.
    if plan.target.host != plan.target.dial {
        headers.insert(0, ("Host".to_owned(), plan.target.host.clone()));
    }
    let url = format!("http://{}{path}", plan.target.dial);
    let file = args.body.as_deref().filter(|path| path.as_os_str() != "-");
    let curl = Curl { method: &plan.method, url: &url, headers: &headers, body: &body, body_file: file };
    shell.out.line(curl.command().ok_or_else(not_pastable)?)?;
    Ok(Exit::Yes)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    #[test]
    fn a_tally_counts_by_kind_and_by_time() {
        let mut tally = Tally::default();
        for (status, ms) in [(202, 1.0), (202, 3.0), (429, 2.0)] {
            let body = if status == 429 { Bytes::from_static(b"{\"code\":\"rate-limited\"}") } else { Bytes::new() };
            tally.add(&Sent { reply: Reply { status, retry_after: None, body }, ms });
        }
        assert_eq!(tally.refused, 1);
        let printed = super::super::testing::printed(|shell| tally.print(0.5, shell));
        assert_eq!(printed, "2 × 202\n1 × 429 rate-limited\n6/s, median 2.0 ms, 99% 2.0 ms, longest 3.0 ms\n");
    }
}
