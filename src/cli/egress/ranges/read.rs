//! What the book holds, and a book of another machine.

use egress::ranges::file::{self, NotChanged, Trust};
use egress::ranges::{At, Document, Range, State};
use serde_json::json;

use super::super::super::Shell;
use super::super::super::args::{RangesImport, RangesRead};
use super::super::super::exit::{Exit, Outcome};
use super::super::super::out::Tone;
use super::super::super::settings;
use super::super::super::table::{Cell, Table};
use super::verify::public_key;
use super::{book, shown};

pub(super) fn list(args: &RangesRead, shell: &mut Shell<'_>) -> Outcome {
    let path = settings::appliance(&args.file.config)?.egress.ranges.book;
    let Some(book) = book(&path)? else { return nothing(args, shell) };
    if args.form.json {
        for range in book.ranges() {
            shell.out.json(range)?;
        }
        return Ok(Exit::Yes);
    }
    let now = At::of_unix_ms(shell.clock.unix_ms());
    let mut table = Table::new(&["PREFIX", "STATE", "SINCE", "POOL", "PLACE", "NEXT"]);
    for range in book.ranges() {
        let (since, next) = since_and_next(range, now);
        let place = range.city.as_ref().map(ToString::to_string);
        let place = place.or_else(|| range.region.as_ref().map(ToString::to_string));
        let place = place.or_else(|| range.country.as_ref().map(ToString::to_string));
        let tone = match range.state {
            State::Active => Tone::Good,
            State::Announced | State::Draining => Tone::Warn,
            State::Retired => Tone::Dim,
        };
        table.row(vec![
            Cell::new(&range.prefix),
            Cell::toned(tone, &range.state),
            Cell::new(&since),
            Cell::from(range.pool.as_ref().map_or_else(String::new, ToString::to_string)),
            Cell::untrusted(&place.unwrap_or_default()),
            Cell::from(next),
        ]);
    }
    table.print(&mut shell.out)?;
    if let (Some(until), serial) = (book.valid_until(), book.serial()) {
        shell.out.remark(format_args!("version {serial}, valid until {until}"));
    }
    Ok(Exit::Yes)
}

fn since_and_next(range: &Range, now: At) -> (At, String) {
    let when = |word: &str, from: At| if now >= from { format!("{word} now") } else { format!("{word} from {from}") };
    match range.state {
        State::Announced => (range.announced, when("activate", range.active_from)),
        State::Active => (range.active.unwrap_or(range.announced), String::new()),
        State::Draining => {
            (range.draining.unwrap_or(range.announced), when("retire", range.retire_from.unwrap_or(range.announced)))
        }
        State::Retired => (range.retired.unwrap_or(range.announced), String::new()),
    }
}

pub(super) fn history(args: &RangesRead, shell: &mut Shell<'_>) -> Outcome {
    let path = settings::appliance(&args.file.config)?.egress.ranges.book;
    let Some(book) = book(&path)? else { return nothing(args, shell) };
    let history = Document::of(&book).history;
    if args.form.json {
        for past in &history {
            shell.out.json(past)?;
        }
        return Ok(Exit::Yes);
    }
    let mut table = Table::new(&["VERSION", "DATE", "CHANGE", "PREFIX", "FORCED", "REASON"]);
    for past in &history {
        table.row(vec![
            Cell::new(&past.serial),
            Cell::new(&past.date),
            Cell::new(&past.change),
            Cell::from(past.prefix.map_or_else(String::new, |prefix| prefix.to_string())),
            Cell::toned(Tone::Warn, if past.forced { "forced" } else { "" }),
            Cell::untrusted(past.reason.as_ref().map_or("", |reason| reason.as_str())),
        ]);
    }
    table.print(&mut shell.out)?;
    Ok(Exit::Yes)
}

fn nothing(args: &RangesRead, shell: &mut Shell<'_>) -> Outcome {
    if !args.form.json {
        shell.out.line("there is no book: `tidegate egress ranges announce` begins one")?;
    }
    Ok(Exit::Yes)
}

pub(super) fn import(args: &RangesImport, shell: &mut Shell<'_>) -> Outcome {
    let path = settings::appliance(&args.file.config)?.egress.ranges.book;
    let missing = || super::Failure::failed(format_args!("{} is not there", shown(&args.book)), "name another book");
    let other = book(&args.book)?.ok_or_else(missing)?;
    let key = args.key.as_deref().map(public_key).transpose()?;
    match file::take_over(&path, &other, Trust { key, new_key: args.new_key }) {
        Ok(()) => {}
        Err(NotChanged::Made(why)) => {
            if args.form.json {
                shell.out.json(&json!({ "ok": false, "message": why.to_string(), "next": why.next() }))?;
            } else {
                shell.out.line(format_args!("no: {} {why}", shown(&args.book)))?;
                shell.out.remark(format_args!("next: {}", why.next()));
            }
            return Ok(Exit::No);
        }
        Err(NotChanged::Book(fault)) => return Err(super::unread(&fault)),
    }
    if args.form.json {
        shell.out.json(&json!({ "ok": true, "serial": other.serial() }))?;
    } else {
        shell.out.line(format_args!("version {} is here", other.serial()))?;
    }
    Ok(Exit::Yes)
}
