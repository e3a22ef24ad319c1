//! Announce, activate, drain, retire, withdraw, renew: one change each, judged, signed and written.

use config::Appliance;
use egress::caller::SigningKey;
use egress::ranges::file::{self, NotChanged};
use egress::ranges::{At, Book, Broken, Change, Policy, Range, Reason, State, Terms, Uses};
use outbound::AddressTable;
use serde_json::json;

use super::super::super::Shell;
use super::super::super::args::{ConfigFile, Form, RangeAnnounce, RangeForced, RangePlain, RangeRenew};
use super::super::super::exit::{Exit, Failure, Outcome};
use super::super::super::settings;
use super::key;

pub(super) fn announce(args: &RangeAnnounce, shell: &mut Shell<'_>) -> Outcome {
    let announced = args.prefixes.iter().map(|prefix| Change::Announce {
        prefix: *prefix,
        pool: args.pool.clone(),
        country: args.country.clone(),
        region: args.region.clone(),
        city: args.city.clone(),
    });
    // What is in use is published and active in one step: in between no call could leave from it.
    let activated = args.prefixes.iter().filter(|_| args.force).map(|prefix| Change::Activate { prefix: *prefix });
    let what = announced.chain(activated).collect();
    Asked { what, force: args.force, new_key: false, reason: args.reason.clone() }.run(&args.file, args.form, shell)
}

pub(super) fn activate(args: &RangeForced, shell: &mut Shell<'_>) -> Outcome {
    Asked::plain(Change::Activate { prefix: args.plain.prefix }, &args.plain, args.force, shell)
}

pub(super) fn drain(args: &RangePlain, shell: &mut Shell<'_>) -> Outcome {
    Asked::plain(Change::Drain { prefix: args.prefix }, args, false, shell)
}

pub(super) fn retire(args: &RangeForced, shell: &mut Shell<'_>) -> Outcome {
    Asked::plain(Change::Retire { prefix: args.plain.prefix }, &args.plain, args.force, shell)
}

pub(super) fn withdraw(args: &RangePlain, shell: &mut Shell<'_>) -> Outcome {
    Asked::plain(Change::Withdraw { prefix: args.prefix }, args, false, shell)
}

pub(super) fn renew(args: &RangeRenew, shell: &mut Shell<'_>) -> Outcome {
    let asked = Asked { what: vec![Change::Renew], force: false, new_key: args.new_key, reason: args.reason.clone() };
    asked.run(&args.file, args.form, shell)
}

/// What somebody wants: all of it, or nothing.
struct Asked {
    what: Vec<Change>,
    force: bool,
    new_key: bool,
    reason: Option<Reason>,
}

/// Why it is not to be had.
enum Not {
    Broken(Broken),
    OtherKey { serial: u64 },
    NoRandomness,
}

impl Asked {
    fn plain(what: Change, args: &RangePlain, force: bool, shell: &mut Shell<'_>) -> Outcome {
        Self { what: vec![what], force, new_key: false, reason: args.reason.clone() }.run(&args.file, args.form, shell)
    }

    fn run(self, file: &ConfigFile, form: Form, shell: &mut Shell<'_>) -> Outcome {
        let appliance = settings::appliance(&file.config)?;
        let key = key::read(&appliance, shell)?;
        // The time is read where nobody else can change the book any more: whoever waited for others is later than they.
        let clock = &shell.clock;
        let made = file::change(&appliance.egress.ranges.book, |before| {
            self.made(before, &appliance, &key, At::of_unix_ms(clock.unix_ms()))
        });
        match made {
            Ok(book) => self.say(&book, form, shell),
            Err(NotChanged::Made(Not::Broken(broken))) => refuse(&broken, form, shell),
            Err(NotChanged::Made(Not::OtherKey { serial })) => Err(Failure::failed(
                format_args!("the signing key is another one than signed version {serial}"),
                "put that one back; or, to go over to this one, `tidegate egress ranges renew --new-key`, and tell \
                 everybody who has pinned the old one",
            )),
            Err(NotChanged::Made(Not::NoRandomness)) => Err(Failure::plain("the operating system gives no randomness")),
            Err(NotChanged::Book(fault)) => Err(super::unread(&fault)),
        }
    }

    fn made(&self, before: Option<Book>, appliance: &Appliance, key: &SigningKey, at: At) -> Result<Book, Not> {
        let before = match before {
            Some(before) => before,
            None => Book::found().map_err(|_| Not::NoRandomness)?,
        };
        if let Some(last) = before.last().filter(|last| last.key != key.public().to_string() && !self.new_key) {
            return Err(Not::OtherKey { serial: last.serial });
        }
        let (uses, table) = (Uses::of(&appliance.egress), AddressTable::shipped());
        self.what.iter().try_fold(before, |book, change| {
            let terms = Terms {
                at,
                force: self.force,
                reason: self.reason.clone(),
                policy: Policy::of(&appliance.egress.ranges),
                uses: &uses,
                table: &table,
            };
            book.draft(change.clone(), terms).map(|draft| draft.sign(key)).map_err(Not::Broken)
        })
    }

    fn say(&self, book: &Book, form: Form, shell: &mut Shell<'_>) -> Outcome {
        let (serial, valid_until) = (book.serial(), book.valid_until());
        let named = |range: &&Range| self.what.iter().any(|change| change.prefix() == Some(range.prefix));
        let ranges: Vec<&Range> = book.ranges().filter(named).collect();
        if form.json {
            shell.out.json(&json!({ "ok": true, "serial": serial, "validUntil": valid_until, "ranges": ranges }))?;
            return Ok(Exit::Yes);
        }
        let withdrawn = matches!(self.what.as_slice(), [Change::Withdraw { .. }]);
        for range in &ranges {
            let (prefix, state) = (range.prefix, range.state);
            let then = match (state, range.retire_from) {
                (State::Announced, _) => format!("; it may be activated from {} on", range.active_from),
                (State::Draining, Some(from)) => format!("; it may be retired from {from} on"),
                (State::Active | State::Draining | State::Retired, _) => String::new(),
            };
            let state = if withdrawn { "withdrawn" } else { state.as_str() };
            shell.out.line(format_args!("{prefix} is {state}{then}"))?;
        }
        let until = valid_until.map_or_else(String::new, |until| until.to_string());
        shell.out.line(format_args!("version {serial}, valid until {until}"))?;
        shell.out.remark(if self.new_key {
            "nodes that run stay with the key that they know: start them again, also this one"
        } else {
            "nodes that have this book publish it within a second; `tidegate egress ranges export` writes it for others"
        });
        Ok(Exit::Yes)
    }
}

/// A rule says no. That is an answer, and no fault.
fn refuse(broken: &Broken, form: Form, shell: &mut Shell<'_>) -> Outcome {
    if form.json {
        let (message, next) = (broken.to_string(), broken.next());
        shell.out.json(&json!({ "ok": false, "code": broken.code(), "message": message, "next": next }))?;
    } else {
        shell.out.line(format_args!("no: {broken}"))?;
        shell.out.remark(format_args!("next: {}", broken.next()));
    }
    Ok(Exit::No)
}
