//! A manifest's `[quota]`, as it is written.

use std::time::Duration;

use super::path::json_path;
use super::{Anchor, DefaultPark, JsonPath, Penalty, QuotaLevel, QuotaUnit, TimeForm};
use crate::connector::manifest::{date, sentence};
use crate::egress::header;
use crate::form::{
    AtLine, Choice, Count, Flag, Lined, List, Located, Maybe, Placed, Span, Table, Text, needed, settings, text,
};
use crate::settings::class_name;
use crate::units::{days, seconds};

/// Where nothing is known: short enough to be no harm, and it doubles.
pub(super) const PARK: DefaultPark = DefaultPark { first: seconds(2), doubles: true, max: seconds(300), jitter: true };

/// As of the rules that leases are counted by: sums of a few stay exact in a double.
const CAP_MAX: u64 = 1 << 30;

/// Far above any provider's list; a profile is looked at with each answer.
const LIMITS_MAX: usize = 64;
const READINGS_MAX: usize = 128;
const MATCHES_MAX: usize = 64;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KindWord {
    Fixed,
    Sliding,
    Token,
    Concurrent,
    Daily,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PartWord {
    Limit,
    Remaining,
    Used,
    UsedOfLimit,
    PercentUsed,
    Rate,
    Reset,
}

settings! {
    /// Limits of the provider, and how its answers speak of them.
    pub(crate) struct QuotaTable {
        /// When it was last compared with its sources: `YYYY-MM-DD`.
        checked: String = String::new(), needed(date()), live, "Providers change their limits without notice.";
        /// Where this was read: URLs.
        sources: Vec<String> = Vec::new(), needed(List(sentence(), 1..=16)), live, "Whoever doubts can look.";
        /// What of it no source says, in sentences.
        recalled: Vec<String> = Vec::new(), List(sentence(), 0..=32), live,
            "What is documented is promised; what is not is to be looked at first when calls are throttled.";
        /// Plans that have limits of their own. The first is assumed where none is named: the one that allows least.
        tiers: Vec<Located<String>> = Vec::new(), List(Placed(class_name()), 0..=16), live,
            "Which plan an account has is in no answer.";
        /// How long a throttle holds where the answer does not say.
        park: AtLine<Duration> = AtLine { value: PARK.first, line: 0 }, Lined(Span(Duration::from_millis(100)..=days(1))), live,
            "Short enough to be no harm, and it doubles.";
        /// Whether each throttle after another, without a success between, doubles it.
        park_doubles: bool = PARK.doubles, Flag, live, "A provider that throttles again had not recovered.";
        /// Where doubling ends.
        park_max: AtLine<Duration> = AtLine { value: PARK.max, line: 0 }, Lined(Span(Duration::from_millis(100)..=days(1))), live,
            "Longer is for a provider to say.";
        /// Whether up to as much again is added at random.
        park_jitter: bool = PARK.jitter, Flag, live, "Not all come back at once.";
        /// What a call while limited does: `none` that is documented, `counts` towards the limit, `extends` the wait, or `bans`.
        penalty: Penalty = Penalty::None, penalty(), live, "Most providers document none.";
        /// Its limits.
        limit: Vec<Located<LimitTable>> = Vec::new(), List(Placed(Table), 0..=LIMITS_MAX), live, "";
        /// Headers that speak of them.
        header: Vec<Located<HeaderTable>> = Vec::new(), List(Placed(Table), 0..=READINGS_MAX), live, "";
        /// Where a throttled answer says how long, beside `Retry-After`. The first that is there counts, and before that header.
        retry: Vec<Located<RetryTable>> = Vec::new(), List(Placed(Table), 0..=READINGS_MAX), live, "";
        /// Answers that are a throttle, beside 429 and 503 with `Retry-After`. The first that matches counts.
        signal: Vec<Located<SignalTable>> = Vec::new(), List(Placed(Table), 0..=READINGS_MAX), live, "";
    }

    /// One limit.
    pub(crate) struct LimitTable {
        /// Its name, unique in the profile.
        name: Option<Located<String>> = None, needed(Maybe(Placed(class_name()))), live, "Records and overrides name it.";
        /// Whose units it counts: `app`, the application that all tenants share; `connection`; `region`; `source`, the address.
        level: Option<QuotaLevel> = None, needed(Maybe(level())), live, "It is what is parked.";
        /// `fixed` window, `sliding` window, `token` bucket, `concurrent` or `daily`.
        kind: Option<Located<KindWord>> = None, needed(Maybe(Placed(kind()))), live, "The provider decides.";
        /// Units in a window, of the first tier.
        cap: Option<u64> = None, needed(Maybe(Count(1..=CAP_MAX))), live, "Of what varies, the least that is documented.";
        /// Of other tiers.
        by_tier: Vec<Located<TierTable>> = Vec::new(), List(Placed(Table), 0..=16), live,
            "A tier that is not here has the first one's.";
        /// Of `fixed`, `sliding` and `token`: its window.
        window: Option<Located<Duration>> = None, Maybe(Placed(Span(seconds(1)..=days(31)))), live, "The provider decides.";
        /// Of `token`: units at once.
        burst: Option<Located<u64>> = None, Maybe(Placed(Count(1..=CAP_MAX))), live, "Without it, the cap.";
        /// Of `fixed`: whether its windows start by the `clock`, or at the `first-request`.
        anchor: Option<Located<Anchor>> = None, Maybe(Placed(anchor())), live, "Without it, `first-request`: it is no worse than the other.";
        /// Of `daily`: its time zone, such as `America/Los_Angeles`; `UTC`; or `account`, that of the account.
        zone: Option<Located<String>> = None, Maybe(Placed(zone())), live, "Without it, `UTC`.";
        /// What it counts: `requests`, `points`, `tokens` of a model, `cpu-ms`.
        unit: QuotaUnit = QuotaUnit::Requests, unit(), live, "Most count requests.";
        /// Names by which answers call it, as in `RateLimit` and `violated-policies`.
        policies: Vec<String> = Vec::new(), List(sentence(), 0..=16), live, "Its own name counts too.";
        /// The requests that count.
        counts: Vec<MatchTable> = Vec::new(), List(Table, 0..=MATCHES_MAX), live, "Empty: all of them.";
        /// Of those, the ones that do not.
        except: Vec<MatchTable> = Vec::new(), List(Table, 0..=MATCHES_MAX), live, "None.";
        /// What a request costs that `costs` says nothing of.
        cost: u32 = 1, Count(0..=1_000_000), live, "A request.";
        /// What requests cost; the first that matches counts.
        costs: Vec<CostTable> = Vec::new(), List(Table, 0..=MATCHES_MAX), live, "Most cost the same.";
        /// How many segments at the beginning of the path have a bucket of their own.
        split_segments: u8 = 0, Count(0..=8), live, "One bucket for all.";
        /// Header of an answer by which it says what the call did cost.
        settle_header: Option<Located<String>> = None, Maybe(Placed(header())), live, "Few say.";
        /// Place in a JSON body where it says so.
        settle_body: Option<Located<JsonPath>> = None, Maybe(Placed(json_path())), live, "Few say.";
    }

    /// What another tier allows.
    pub(crate) struct TierTable {
        /// One of `tiers`, and not the first.
        tier: Option<Located<String>> = None, needed(Maybe(Placed(class_name()))), live, "Connections name it.";
        /// Units in a window.
        cap: Option<u64> = None, needed(Maybe(Count(1..=CAP_MAX))), live, "The provider decides.";
        /// Of `token`: units at once.
        burst: Option<Located<u64>> = None, Maybe(Placed(Count(1..=CAP_MAX))), live, "Without it, the limit's.";
    }

    /// Some requests.
    pub(crate) struct MatchTable {
        /// Their methods, in capitals.
        methods: Vec<String> = Vec::new(), List(method(), 0..=16), live, "Empty: all of them.";
        /// Beginnings of their paths: whole segments, of which `*` is any; one that ends in `.`, `_`, `-` or `:` ends within a segment.
        paths: Vec<String> = Vec::new(), List(start_of_path(), 0..=MATCHES_MAX), live, "Empty: all of them.";
    }

    /// Some requests, and what one costs.
    pub(crate) struct CostTable {
        /// Their methods, in capitals.
        methods: Vec<String> = Vec::new(), List(method(), 0..=16), live, "Empty: all of them.";
        /// Beginnings of their paths.
        paths: Vec<String> = Vec::new(), List(start_of_path(), 0..=MATCHES_MAX), live, "Empty: all of them.";
        /// Units that one costs.
        cost: Option<u32> = None, needed(Maybe(Count(0..=1_000_000))), live, "The provider decides.";
    }

    /// A header that speaks of a limit.
    pub(crate) struct HeaderTable {
        /// Its name.
        name: Option<Located<String>> = None, needed(Maybe(Placed(header()))), live, "The provider decides.";
        /// The limit that it speaks of.
        limit: Option<Located<String>> = None, needed(Maybe(Placed(class_name()))), live, "The provider decides.";
        /// What it says: `limit`, `remaining`, `used`, `used-of-limit` (`32/40`), `percent-used`, `rate` (units a second) or `reset`.
        reads: Option<PartWord> = None, needed(Maybe(part())), live, "The provider decides.";
        /// Of `reset`: how the time is written.
        form: Option<Located<TimeForm>> = None, Maybe(Placed(form())), live,
            "The same name means another form at the next provider, so that it is never guessed.";
        /// The header is `name=value` pairs, apart by `;` or `,`: the name.
        pair: Option<Located<String>> = None, Maybe(Placed(class_name())), live, "Without it, the header is the value.";
        /// The header is JSON: where in it; of several values, the largest.
        json: Option<Located<JsonPath>> = None, Maybe(Placed(json_path())), live, "Without it, the header is the value.";
        /// Only where another header has one of some values.
        when: Option<WhenTable> = None, Maybe(Table), live, "";
    }

    /// A header has one of some values.
    pub(crate) struct WhenTable {
        /// Its name.
        header: String = String::new(), needed(header()), live, "The provider decides.";
        /// The values, without regard to case.
        values: Vec<String> = Vec::new(), needed(List(sentence(), 1..=32)), live, "The provider decides.";
    }

    /// A place where a throttled answer says how long.
    pub(crate) struct RetryTable {
        /// Name of a header; it or `body`.
        header: Option<Located<String>> = None, Maybe(Placed(header())), live, "The provider decides.";
        /// Place in a JSON body; it or `header`.
        body: Option<Located<JsonPath>> = None, Maybe(Placed(json_path())), live, "The provider decides.";
        /// The header is `name=value` pairs: the name.
        pair: Option<Located<String>> = None, Maybe(Placed(class_name())), live, "Without it, the header is the value.";
        /// The header is JSON: where in it; of several values, the largest.
        json: Option<Located<JsonPath>> = None, Maybe(Placed(json_path())), live, "Without it, the header is the value.";
        /// How the time is written.
        form: Option<TimeForm> = None, needed(Maybe(form())), live, "The provider decides.";
        /// The time is what follows this in a text, up to a space or the end.
        after: String = String::new(), sentence(), live, "Without it, the text is the time.";
        /// Of requests with these beginnings of paths.
        paths: Vec<String> = Vec::new(), List(start_of_path(), 0..=MATCHES_MAX), live, "Empty: all of them.";
    }

    /// An answer that is a throttle. All that is written must hold.
    pub(crate) struct SignalTable {
        /// Its status: one of these.
        status: Vec<u16> = Vec::new(), needed(List(Count(200..=599), 1..=16)), live, "The provider decides.";
        /// Its header.
        when: Option<WhenTable> = None, Maybe(Table), live, "";
        /// Its body, which is JSON.
        body: Option<Located<BodyTable>> = None, Maybe(Placed(Table)), live, "";
        /// The limit that is parked.
        limit: Option<Located<String>> = None, Maybe(Placed(class_name())), live,
            "Without it and without `level`, the connection; and the application once three of its connections, not all of one tenant, are throttled within ten seconds.";
        /// The level that is parked, where the answer names no limit.
        level: Option<Located<QuotaLevel>> = None, Maybe(Placed(level())), live, "As `limit`.";
        /// How long, where the answer does not say.
        park: Option<Duration> = None, Maybe(Span(Duration::from_millis(100)..=days(1))), live, "Without it, the profile's.";
    }

    /// What a JSON body has.
    pub(crate) struct BodyTable {
        /// Where.
        at: Option<JsonPath> = None, needed(Maybe(json_path())), live,
            "A word anywhere in a body could be the tenant's own data.";
        /// The text or number there is one of these.
        values: Vec<String> = Vec::new(), List(sentence(), 0..=32), live, "Or `contains`.";
        /// The text there has one of these in it, without regard to case.
        contains: Vec<String> = Vec::new(), List(sentence(), 0..=32), live, "Or `values`.";
    }
}

pub(super) const fn level() -> Choice<QuotaLevel> {
    Choice(&[
        ("app", QuotaLevel::App),
        ("connection", QuotaLevel::Connection),
        ("region", QuotaLevel::Region),
        ("source", QuotaLevel::Source),
    ])
}

const fn kind() -> Choice<KindWord> {
    Choice(&[
        ("fixed", KindWord::Fixed),
        ("sliding", KindWord::Sliding),
        ("token", KindWord::Token),
        ("concurrent", KindWord::Concurrent),
        ("daily", KindWord::Daily),
    ])
}

const fn penalty() -> Choice<Penalty> {
    Choice(&[
        ("none", Penalty::None),
        ("counts", Penalty::Counts),
        ("extends", Penalty::Extends),
        ("bans", Penalty::Bans),
    ])
}

const fn unit() -> Choice<QuotaUnit> {
    Choice(&[
        ("requests", QuotaUnit::Requests),
        ("points", QuotaUnit::Points),
        ("tokens", QuotaUnit::Tokens),
        ("cpu-ms", QuotaUnit::CpuMs),
    ])
}

const fn anchor() -> Choice<Anchor> {
    Choice(&[("clock", Anchor::Clock), ("first-request", Anchor::FirstRequest)])
}

const fn part() -> Choice<PartWord> {
    Choice(&[
        ("limit", PartWord::Limit),
        ("remaining", PartWord::Remaining),
        ("used", PartWord::Used),
        ("used-of-limit", PartWord::UsedOfLimit),
        ("percent-used", PartWord::PercentUsed),
        ("rate", PartWord::Rate),
        ("reset", PartWord::Reset),
    ])
}

const fn form() -> Choice<TimeForm> {
    Choice(&[
        ("seconds", TimeForm::Seconds),
        ("milliseconds", TimeForm::Milliseconds),
        ("minutes", TimeForm::Minutes),
        ("epoch-seconds", TimeForm::EpochSeconds),
        ("epoch-milliseconds", TimeForm::EpochMilliseconds),
        ("iso-8601", TimeForm::Iso8601),
        ("go-duration", TimeForm::GoDuration),
        ("http-date", TimeForm::HttpDate),
        ("retry-after", TimeForm::RetryAfter),
    ])
}

const fn method() -> Text<String> {
    text(
        "method",
        "POST",
        |text| {
            if (1..=32).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_uppercase()) {
                Ok(text.to_owned())
            } else {
                Err(format!("{text:?} is no method; write it in capitals, such as \"POST\""))
            }
        },
        String::clone,
    )
}

const fn start_of_path() -> Text<String> {
    text(
        "beginning of a path",
        "/v1/",
        |text| {
            let plain = text.bytes().all(|byte| byte.is_ascii_graphic() && !b"?#".contains(&byte));
            if text.starts_with('/') && text.len() <= 256 && plain {
                Ok(text.to_owned())
            } else {
                Err(format!("{text:?} begins no path; write such as \"/v1/\", without a query"))
            }
        },
        String::clone,
    )
}

const fn zone() -> Text<String> {
    text(
        "time zone",
        "America/Los_Angeles",
        |text| {
            let plain = text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"/_+-".contains(&byte));
            if plain && (1..=64).contains(&text.len()) && text.bytes().any(|byte| byte.is_ascii_alphabetic()) {
                Ok(text.to_owned())
            } else {
                Err(format!("{text:?} is no time zone; write \"UTC\", \"account\", or such as \"Europe/Berlin\""))
            }
        },
        String::clone,
    )
}
