//! From a manifest's `[quota]` to a profile: what no key can see alone.

use std::collections::BTreeSet;

use super::tables::{
    BodyTable, CostTable, HeaderTable, KindWord, LimitTable, MatchTable, PartWord, QuotaTable, RetryTable, SignalTable,
    TierTable, WhenTable,
};
use super::{
    Anchor, BodyHas, DefaultPark, HeaderIs, HeaderReading, Inside, JsonPath, Part, QuotaKind, QuotaLimit, QuotaProfile,
    RequestMatch, RetryPlace, RetryReading, Settle, Target, ThrottleSignal, TierCap, Zone,
};
use crate::document::Document;
use crate::form::Located;

/// Names that lists refer to, in their order; none where some were misread, so that nothing is a mere consequence.
struct Names {
    tiers: Vec<String>,
    limits: Vec<String>,
    limits_known: bool,
    tiers_known: bool,
}

/// The document stands at the table.
pub(in crate::connector) fn build(document: &mut Document<'_>, table: QuotaTable) -> QuotaProfile {
    let (park, park_max) = (table.park.value, table.park_max.value);
    if park > park_max && document.is_sound("park") && document.is_sound("park_max") {
        let message = "is shorter than park, which would never be reached; raise it";
        let line = table.park.line.max(table.park_max.line);
        document.within("park_max", |document| document.fault_in_line(line, message));
    }
    let tiers = unique(document, "tiers", &table.tiers);
    let names = Names {
        tiers_known: document.is_whole("tiers"),
        limits_known: document.is_read_in_each("limit", "name"),
        limits: table.limit.iter().filter_map(|limit| Some(limit.value.name.as_ref()?.value.clone())).collect(),
        tiers,
    };
    let limits = document.within("limit", |document| each(document, table.limit, &names, build_limit));
    let mut seen = BTreeSet::new();
    let limits = limits.into_iter().filter(|limit| seen.insert(limit.name.clone())).collect();
    QuotaProfile {
        checked: table.checked.into(),
        sources: boxed(table.sources),
        recalled: boxed(table.recalled),
        limits,
        headers: document.within("header", |document| each(document, table.header, &names, build_header)).into(),
        retries: document.within("retry", |document| each(document, table.retry, &names, build_retry)).into(),
        signals: document.within("signal", |document| each(document, table.signal, &names, build_signal)).into(),
        tiers: boxed(names.tiers),
        park: DefaultPark {
            first: park,
            doubles: table.park_doubles,
            max: park_max.max(park),
            jitter: table.park_jitter,
        },
        penalty: table.penalty,
    }
}

fn each<T, U>(
    document: &mut Document<'_>,
    tables: Vec<Located<T>>,
    names: &Names,
    build: fn(&mut Document<'_>, Located<T>, &Names) -> Option<U>,
) -> Vec<U> {
    let built = tables.into_iter().filter_map(|table| {
        let index = table.index;
        document.within_index(index, |document| build(document, table, names))
    });
    built.collect()
}

fn unique(document: &mut Document<'_>, key: &'static str, list: &[Located<String>]) -> Vec<String> {
    let mut seen = BTreeSet::new();
    for name in list {
        if !seen.insert(&name.value) {
            let message = format!("names \"{}\" twice; write it once", name.value);
            document.within(key, |document| document.fault(name.span.clone(), message));
        }
    }
    list.iter().map(|name| name.value.clone()).collect()
}

fn boxed(texts: Vec<String>) -> Box<[Box<str>]> {
    texts.into_iter().map(Into::into).collect()
}

/// A key that does not go with another one.
fn stray<T>(document: &mut Document<'_>, key: &'static str, written: Option<&Located<T>>, message: &str) {
    if let Some(written) = written {
        document.within(key, |document| document.fault(written.span.clone(), message));
    }
}

fn build_limit(document: &mut Document<'_>, table: Located<LimitTable>, names: &Names) -> Option<QuotaLimit> {
    let Located { span, index, value: table } = table;
    if let Some(name) = &table.name
        && names.limits.iter().position(|one| *one == name.value).is_some_and(|first| first < index)
        && names.limits_known
    {
        let message = format!("\"{}\" is the name of another limit too; give each its own", name.value);
        document.within("name", |document| document.fault(name.span.clone(), message));
    }
    let kind = build_kind(document, &span, &table);
    let is_token = table.kind.as_ref().is_some_and(|kind| kind.value == KindWord::Token);
    let tiers = document.within("by_tier", |document| {
        let mut seen = BTreeSet::new();
        let tiers = table.by_tier.into_iter().filter_map(|tier| {
            document.within_index(tier.index, |document| build_tier(document, tier, is_token, names, &mut seen))
        });
        tiers.collect()
    });
    let both = table.settle_header.is_some() && table.settle_body.is_some();
    stray(
        document,
        "settle_body",
        table.settle_body.as_ref().filter(|_| both),
        "stands beside settle_header; write one",
    );
    let settle = table.settle_header.map(|name| Settle::Header(name.value.into()));
    Some(QuotaLimit {
        name: table.name?.value.into(),
        level: table.level?,
        kind: kind?,
        cap: table.cap?,
        tiers,
        unit: table.unit,
        policies: boxed(table.policies),
        counts: table.counts.into_iter().map(Into::into).collect(),
        except: table.except.into_iter().map(Into::into).collect(),
        costs: table.costs.into_iter().filter_map(cost).collect(),
        cost: table.cost,
        split_segments: table.split_segments,
        settle: settle.or_else(|| table.settle_body.map(|path| Settle::Body(path.value))),
    })
}

/// How it counts, from the keys that say so; those of other kinds must not be there.
fn build_kind(document: &mut Document<'_>, span: &std::ops::Range<usize>, table: &LimitTable) -> Option<QuotaKind> {
    let kind = table.kind.as_ref()?.value;
    let windowed = matches!(kind, KindWord::Fixed | KindWord::Sliding | KindWord::Token);
    if windowed && table.window.is_none() {
        document.within("window", |document| document.missing(span.clone(), "is missing; write `window = \"60s\"`"));
    }
    let strays = [
        ("window", windowed, table.window.as_ref().map(|key| &key.span), "belongs to fixed, sliding and token"),
        ("burst", kind == KindWord::Token, table.burst.as_ref().map(|key| &key.span), "belongs to kind = \"token\""),
        ("anchor", kind == KindWord::Fixed, table.anchor.as_ref().map(|key| &key.span), "belongs to kind = \"fixed\""),
        ("zone", kind == KindWord::Daily, table.zone.as_ref().map(|key| &key.span), "belongs to kind = \"daily\""),
    ];
    for (key, belongs, written, words) in strays {
        if let Some(span) = written.filter(|_| !belongs) {
            document.within(key, |document| document.fault(span.clone(), format!("{words}; take it out")));
        }
    }
    let window = table.window.as_ref().map(|window| window.value);
    Some(match kind {
        KindWord::Fixed => {
            let anchor = table.anchor.as_ref().map_or(Anchor::FirstRequest, |anchor| anchor.value);
            QuotaKind::Fixed { window: window?, anchor }
        }
        KindWord::Sliding => QuotaKind::Sliding { window: window? },
        KindWord::Token => {
            let burst = table.burst.as_ref().map_or(table.cap, |burst| Some(burst.value));
            QuotaKind::Token { window: window?, burst: burst? }
        }
        KindWord::Concurrent => QuotaKind::Concurrent,
        KindWord::Daily => QuotaKind::Daily {
            zone: match table.zone.as_ref().map(|zone| zone.value.as_str()) {
                None | Some("UTC") => Zone::Utc,
                Some("account") => Zone::Account,
                Some(name) => Zone::Named(name.into()),
            },
        },
    })
}

fn build_tier(
    document: &mut Document<'_>,
    table: Located<TierTable>,
    is_token: bool,
    names: &Names,
    seen: &mut BTreeSet<u8>,
) -> Option<TierCap> {
    let TierTable { tier, cap, burst } = table.value;
    stray(document, "burst", burst.as_ref().filter(|_| !is_token), "belongs to kind = \"token\"; take it out");
    let tier = tier?;
    let place = names.tiers.iter().position(|name| *name == tier.value);
    let fault = match place {
        None if names.tiers_known => Some(format!("\"{}\" is none of quota.tiers; add it there", tier.value)),
        Some(0) => Some(format!("\"{}\" is the first tier, whose cap is the limit's own; take it out", tier.value)),
        Some(place) if u8::try_from(place).is_ok_and(|place| !seen.insert(place)) => {
            Some(format!("\"{}\" is there twice; write it once", tier.value))
        }
        None | Some(_) => None,
    };
    if let Some(message) = fault {
        document.within("tier", |document| document.fault(tier.span.clone(), message));
    }
    Some(TierCap { tier: u8::try_from(place?).ok()?, cap: cap?, burst: burst.map(|burst| burst.value) })
}

impl From<MatchTable> for RequestMatch {
    fn from(table: MatchTable) -> Self {
        Self { methods: boxed(table.methods), paths: boxed(table.paths) }
    }
}

fn cost(table: CostTable) -> Option<(RequestMatch, u32)> {
    Some((RequestMatch { methods: boxed(table.methods), paths: boxed(table.paths) }, table.cost?))
}

/// The limit that something speaks of.
fn limit_of(document: &mut Document<'_>, limit: &Located<String>, names: &Names) -> Option<u16> {
    let place = names.limits.iter().position(|name| *name == limit.value);
    if place.is_none() && names.limits_known {
        let message = format!("\"{}\" is no limit of this profile; add a [[quota.limit]] of that name", limit.value);
        document.within("limit", |document| document.fault(limit.span.clone(), message));
    }
    u16::try_from(place?).ok()
}

impl From<WhenTable> for HeaderIs {
    fn from(table: WhenTable) -> Self {
        Self { name: table.header.into(), values: boxed(table.values) }
    }
}

fn inside(document: &mut Document<'_>, pair: Option<Located<String>>, json: Option<Located<JsonPath>>) -> Inside {
    stray(document, "json", json.as_ref().filter(|_| pair.is_some()), "stands beside pair; write one");
    match (pair, json) {
        (Some(pair), _) => Inside::Pair(pair.value.into()),
        (None, Some(json)) => Inside::Json(json.value),
        (None, None) => Inside::Whole,
    }
}

fn build_header(document: &mut Document<'_>, table: Located<HeaderTable>, names: &Names) -> Option<HeaderReading> {
    let Located { span, value: HeaderTable { name, limit, reads, form, pair, json, when }, .. } = table;
    let limit = limit.and_then(|limit| limit_of(document, &limit, names));
    let inside = inside(document, pair, json);
    let is_reset = reads == Some(PartWord::Reset);
    stray(document, "form", form.as_ref().filter(|_| !is_reset), "belongs to reads = \"reset\"; take it out");
    if is_reset && form.is_none() {
        let message = "is missing: how a reset is written is never guessed; write `form = \"epoch-seconds\"`";
        document.within("form", |document| document.missing(span.clone(), message));
    }
    let part = match reads? {
        PartWord::Limit => Part::Limit,
        PartWord::Remaining => Part::Remaining,
        PartWord::Used => Part::Used,
        PartWord::UsedOfLimit => Part::UsedOfLimit,
        PartWord::PercentUsed => Part::PercentUsed,
        PartWord::Rate => Part::Rate,
        PartWord::Reset => Part::Reset(form?.value),
    };
    Some(HeaderReading { name: name?.value.into(), limit: limit?, part, inside, when: when.map(Into::into) })
}

fn build_retry(document: &mut Document<'_>, table: Located<RetryTable>, _: &Names) -> Option<RetryReading> {
    let Located { span, value: RetryTable { header, body, pair, json, form, after, paths }, .. } = table;
    stray(document, "body", body.as_ref().filter(|_| header.is_some()), "stands beside header; write one");
    if header.is_none() && body.is_none() {
        document.missing(span, "has neither header nor body; write where the time stands");
    }
    for (key, stands) in [("pair", pair.as_ref().map(|key| &key.span)), ("json", json.as_ref().map(|key| &key.span))] {
        if let Some(span) = stands.filter(|_| header.is_none() && body.is_some()) {
            document.within(key, |document| document.fault(span.clone(), "belongs to header; take it out"));
        }
    }
    let inside = inside(document, pair, json);
    let place = match (header, body) {
        (Some(header), _) => RetryPlace::Header(header.value.into(), inside),
        (None, body) => RetryPlace::Body(body?.value),
    };
    Some(RetryReading { place, form: form?, after: after.into(), paths: boxed(paths) })
}

fn build_signal(document: &mut Document<'_>, table: Located<SignalTable>, names: &Names) -> Option<ThrottleSignal> {
    let SignalTable { status, when, body, limit, level, park } = table.value;
    stray(
        document,
        "level",
        level.as_ref().filter(|_| limit.is_some()),
        "stands beside limit, whose level it is; write one",
    );
    let target = match limit {
        Some(limit) => Some(Target::Limit(limit_of(document, &limit, names)?)),
        None => level.map(|level| Target::Level(level.value)),
    };
    let body = match body {
        Some(body) => Some(document.within("body", |document| build_body(document, body))?),
        None => None,
    };
    // 429 is a throttle of itself; any other status is one only with what tells it from the rest.
    if when.is_none() && body.is_none() && status.iter().any(|status| *status < 400) {
        document
            .missing(table.span, "has a status of success and nothing else; write what tells a throttle from the rest");
    }
    Some(ThrottleSignal { statuses: status.into(), header: when.map(Into::into), body, target, park })
}

fn build_body(document: &mut Document<'_>, table: Located<BodyTable>) -> Option<BodyHas> {
    let Located { span, value: BodyTable { at, values, contains }, .. } = table;
    if values.is_empty() && contains.is_empty() {
        document.missing(span, "has neither values nor contains; write what the body has there");
    }
    Some(BodyHas { path: at?, values: boxed(values), contains: boxed(contains) })
}
