//! What is done about buckets, breakers and runaways.

use super::super::Shell;
use super::super::args::{Asked, Because, QuotaAnnounce, QuotaOf, QuotaPark, QuotaRelease, QuotaReset};
use super::super::exit::{Exit, Failure, Outcome};
use super::{ask, safe};
use crate::control::quota::wire::{Act, Acted, BucketAct, GuardAct, GuardWord, Guarded, REASON_BYTES_MAX};
use ratelimit::quota::BucketName;

pub(super) fn park(args: &QuotaPark, shell: &mut Shell<'_>) -> Outcome {
    let ms = u64::try_from(args.time.as_millis()).unwrap_or(u64::MAX);
    of_bucket(&args.bucket, Act::Park { ms }, &args.because, &args.asked, shell)
}

pub(super) fn release(args: &QuotaRelease, shell: &mut Shell<'_>) -> Outcome {
    of_bucket(&args.bucket, Act::Release, &args.because, &args.asked, shell)
}

pub(super) fn reset(args: &QuotaReset, shell: &mut Shell<'_>) -> Outcome {
    if let Some(breaker) = &args.breaker {
        return of_guard(breaker, GuardWord::CloseBreaker, &args.because, &args.asked, shell);
    }
    // The grammar sees to it that there is the one or the other.
    let Some(bucket) = &args.bucket else { return Err(Failure::usage("nothing is named", "name a bucket")) };
    if !args.yes {
        let what = "what was used of the bucket would be forgotten, and more may go than the provider allows";
        return Err(Failure::usage(what, "say --yes if that is meant"));
    }
    of_bucket(bucket, Act::Reset, &args.because, &args.asked, shell)
}

pub(super) fn resume(args: &QuotaOf, shell: &mut Shell<'_>) -> Outcome {
    of_guard(&args.of, GuardWord::Resume, &args.because, &args.asked, shell)
}

pub(super) fn announce(args: &QuotaAnnounce, shell: &mut Shell<'_>) -> Outcome {
    let until_unix_ms = args.until.unix_ms(shell.clock.unix_ms());
    let act = GuardWord::Announce { factor: args.factor, until_unix_ms };
    of_guard(&args.of, act, &args.because, &args.asked, shell)
}

pub(super) fn withdraw(args: &QuotaOf, shell: &mut Shell<'_>) -> Outcome {
    of_guard(&args.of, GuardWord::Withdraw, &args.because, &args.asked, shell)
}

fn of_bucket(bucket: &BucketName, act: Act, because: &Because, asked: &Asked, shell: &mut Shell<'_>) -> Outcome {
    let act = BucketAct { bucket: bucket.to_string(), act, reason: reason(because)? };
    let acted = ask(asked, "/v1/quota/bucket", &act, shell)?;
    told(&acted, asked, shell)
}

fn of_guard(of: &Guarded, act: GuardWord, because: &Because, asked: &Asked, shell: &mut Shell<'_>) -> Outcome {
    let act = GuardAct { of: of.clone(), act, reason: reason(because)? };
    let acted = ask(asked, "/v1/quota/guard", &act, shell)?;
    told(&acted, asked, shell)
}

fn reason(because: &Because) -> Outcome<String> {
    if because.reason.len() > REASON_BYTES_MAX {
        return Err(Failure::usage("the reason is longer than 500 bytes", "say it in a sentence, or name a ticket"));
    }
    Ok(because.reason.clone())
}

fn told(acted: &Acted, asked: &Asked, shell: &mut Shell<'_>) -> Outcome {
    if asked.form.json {
        shell.out.json(acted)?;
    } else {
        shell.out.line(safe(&acted.said))?;
    }
    Ok(Exit::yes_if(acted.done))
}
